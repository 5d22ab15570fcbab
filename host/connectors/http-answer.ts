/**
 * What an answer means, for a read and for a change: the table of 06. Decides from status and framing alone; only what
 * this table calls proof may be taken for proof.
 *
 * A1. Of a change, 2xx and what the call accepts is success, whatever its body is like.
 * A2. Of a change, proof that nothing happened is: nothing was sent; a redirect that keeps the method; a 4xx but 408 and
 *     425; a 503 with Retry-After where the connection says that it is proof.
 * A3. A wish to wait that makes no sense is no wish; none is longer than a day.
 */
import type { Json } from "../core/workflow.ts";
import {
  auth,
  invalid,
  permission,
  precondition,
  rateLimited,
  ToolError,
  transient,
  unknownOutcome,
} from "./define.ts";
import type { GuardedAnswer, RequestFailed } from "./egress-request.ts";
import { inert, isJsonType, type Method } from "./http-call.ts";

export interface HttpResult {
  status: number;
  headers: Record<string, string>;
  body: Json;
}

/** A result whose body could not be had; fits no output, so that it is kept as `resultInvalid`. */
export type Flawed = HttpResult & { problem: string };

const DAY_MS = 86_400_000;
const DEEPEST = 190;
const MOST_EVIDENCE = 2_000;
const MOST_SAID = 200;
/** Of the wire, or credentials of a session. */
const UNTOLD = new Set([
  "connection",
  "keep-alive",
  "transfer-encoding",
  "trailer",
  "set-cookie",
  "set-cookie2",
]);

const isOk = (status: number, accept: readonly number[] = []): boolean =>
  (status >= 200 && status < 300) || accept.includes(status);

export function readResult(answer: GuardedAnswer, method: Method, accept?: readonly number[]): HttpResult {
  const { status } = answer;
  if (!isOk(status, accept)) throw readFailure(answer);
  const found = resultOf(answer, method);
  if (!("problem" in found)) return found;
  if (answer.problem === "too-large")
    throw invalid(`the answer ${status} ${found.problem}`, { code: "answer-too-large" });
  throw transient(`the answer ${status} ${found.problem}`);
}

export function changeResult(
  answer: GuardedAnswer,
  method: Method,
  { accept, retryAfterIsProof }: { accept?: readonly number[] | undefined; retryAfterIsProof: boolean },
): HttpResult | Flawed {
  if (isOk(answer.status, accept)) return resultOf(answer, method); // (A1)
  throw changeFailure(answer, retryAfterIsProof);
}

function readFailure(answer: GuardedAnswer): ToolError {
  const { status } = answer;
  const refused = refusal(answer);
  if (refused) return refused;
  if (status >= 400 && status < 500 && !isPassing(status)) return invalid(said(answer), of(answer));
  if (status >= 300 && status < 400)
    return invalid(`${said(answer)}: a redirect that is not followed`, of(answer));
  const retryAfterMs = retryAfter(answer);
  return retryAfterMs === undefined || status < 500
    ? transient(said(answer), of(answer))
    : rateLimited({ retryAfterMs, message: said(answer), ...of(answer) });
}

/** (A2) */
function changeFailure(answer: GuardedAnswer, retryAfterIsProof: boolean): ToolError {
  const { status } = answer;
  const refused = refusal(answer);
  if (refused) return refused;
  const retryAfterMs = retryAfter(answer);
  if (status === 503 && retryAfterIsProof && retryAfterMs !== undefined)
    return rateLimited({ retryAfterMs, message: said(answer), ...of(answer) });
  if (status === 307 || status === 308)
    return invalid(`${said(answer)}: a change is never sent to another address`, of(answer));
  if (status >= 400 && status < 500 && !isPassing(status)) return invalid(said(answer), of(answer));
  return new ToolError("transient", "outcome-unknown", said(answer), {
    proves: false,
    ...of(answer),
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
  });
}

/** What reads and changes have in common. */
function refusal(answer: GuardedAnswer): ToolError | undefined {
  switch (answer.status) {
    case 401:
      return auth(said(answer), of(answer));
    case 403:
      return permission(said(answer), of(answer));
    case 412:
    case 423:
    case 428:
      return precondition(said(answer), of(answer));
    case 429: {
      const retryAfterMs = retryAfter(answer);
      const wish = retryAfterMs === undefined ? {} : { retryAfterMs };
      return rateLimited({ ...wish, message: said(answer), ...of(answer) });
    }
    default:
      return undefined;
  }
}

const isPassing = (status: number): boolean => status === 408 || status === 425;

/** There is no answer. */
export function unanswered({ why, sent, message }: RequestFailed, kind: "read" | "change"): ToolError {
  if (why === "refused") return permission(message, { code: "egress-refused" });
  const about = sent ? `the call left, and no whole answer came: ${message}` : `nothing was sent: ${message}`;
  if (kind === "change" && sent) return unknownOutcome(about);
  return transient(about);
}

/** Seconds or a date, as milliseconds from now. (A3) */
export function retryAfter({ headers }: Pick<GuardedAnswer, "headers">): number | undefined {
  const text = headers["retry-after"]?.trim();
  if (text === undefined) return undefined;
  if (/^\d{1,9}$/.test(text)) return Math.min(Number(text) * 1_000, DAY_MS);
  if (!/^[A-Z][a-z]{2,8}, .*GMT$/.test(text)) return undefined;
  const atMs = Date.parse(text);
  return Number.isNaN(atMs) ? undefined : Math.min(Math.max(0, atMs - Date.now()), DAY_MS);
}

export function resultOf(answer: GuardedAnswer, method: Method): HttpResult | Flawed {
  const { status } = answer;
  const headers = Object.fromEntries(Object.entries(answer.headers).filter(([name]) => !UNTOLD.has(name)));
  if (method === "HEAD") return { status, headers, body: null };
  if (answer.problem === "too-large")
    return { status, headers, body: null, problem: "has a body larger than the connection's limit" };
  if (answer.problem === "undecodable")
    return { status, headers, body: null, problem: "has a body whose encoding cannot be undone" };
  return { status, headers, ...bodyOf(answer) };
}

/** JSON parsed, else text, else bytes as `{ base64 }`; of an empty body `null`. */
function bodyOf({ bytes, headers }: GuardedAnswer): { body: Json; problem?: string } {
  if (bytes.length === 0) return { body: null };
  const type = headers["content-type"] ?? "";
  const text = textOf(bytes, type);
  if (text === undefined) return { body: { base64: bytes.toString("base64") } };
  if (!isJsonType(type)) return { body: text };
  if (isTooDeep(text)) return { body: null, problem: `is JSON that nests more than ${DEEPEST} levels deep` };
  try {
    return { body: JSON.parse(text) as Json };
  } catch {
    return { body: text.slice(0, MOST_EVIDENCE).toWellFormed(), problem: "says that it is JSON, and is not" };
  }
}

/** As declared, else UTF-8; nothing where it is no text of that kind. */
function textOf(bytes: Uint8Array, type: string): string | undefined {
  const named = /;\s*charset\s*=\s*"?([\w.:-]+)/i.exec(type)?.[1] ?? "utf-8";
  try {
    const text = new TextDecoder(named, { fatal: true }).decode(bytes);
    return text.includes("\0") ? undefined : text;
  } catch {
    return undefined;
  }
}

/** Whoever writes it out again would run out of stack. */
function isTooDeep(text: string): boolean {
  let depth = 0;
  let inText = false;
  for (let at = 0; at < text.length; at++) {
    const c = text.charCodeAt(at);
    if (c === 34) inText = !inText;
    else if (inText) at += c === 92 ? 1 : 0;
    else if (c === 91 || c === 123) {
      if (++depth > DEEPEST) return true;
    } else if (c === 93 || c === 125) depth--;
  }
  return false;
}

/** The status, and what the service says about it where it says it in plain words. */
function said(answer: GuardedAnswer): string {
  const type = answer.headers["content-type"] ?? "";
  const isPlain = isJsonType(type) || type.startsWith("text/plain");
  const text = isPlain ? textOf(answer.bytes, type)?.trim() : undefined;
  const words = text ? `: ${inert(text.slice(0, MOST_SAID).toWellFormed())}` : "";
  return `the service answered ${answer.status}${words}`;
}

function of({ status, bytes, headers }: GuardedAnswer): { evidence: Json } {
  const text = textOf(bytes, headers["content-type"] ?? "");
  const body = text === undefined ? `${bytes.length} bytes` : text.slice(0, MOST_EVIDENCE).toWellFormed();
  const wish = headers["retry-after"];
  return { evidence: { status, ...(wish === undefined ? {} : { retryAfter: wish.slice(0, 100) }), body } };
}
