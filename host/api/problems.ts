/**
 * Why a request is refused, as the client reads it. One shape for all of it; the status comes from the catalogue.
 *
 * R1. On the wire a code is written with underscores (05); the catalogue's hyphens are never sent.
 * R2. What the host did not foresee is `internal`, with nothing of it but the request's id: no message, no stack, no path.
 */
import type { z } from "zod";
import { type ErrorCode, ERRORS, PawlError } from "../core/errors.ts";
import { readable } from "./misfits.ts";
import type { problem } from "./contract-shapes.ts";
import type { Deployed } from "../engine/deploys.ts";
import type { Decided } from "../engine/operator.ts";
import type { Problem } from "../ports/sandbox.ts";

export type ProblemBody = z.output<typeof problem>["error"];
type Said = Partial<Omit<ProblemBody, "code" | "message" | "requestId">>;

export class Refusal extends Error {
  override readonly name = "Refusal";
  readonly code: ErrorCode;
  readonly said: Said;
  readonly headers: Record<string, string>;

  constructor(code: ErrorCode, message: string, said: Said = {}, headers: Record<string, string> = {}) {
    super(message);
    this.code = code;
    this.said = said;
    this.headers = headers;
  }

  get status(): number {
    return ERRORS[this.code].http ?? 500;
  }
}

export const onWire = (code: string): string => code.replaceAll("-", "_"); // (R1)

export const notFound = (what: string): Refusal => new Refusal("not-found", what);

/** What somebody threw, as a refusal. (R2) */
export function refusalOf(thrown: unknown): Refusal {
  if (thrown instanceof Refusal) return thrown;
  if (thrown instanceof PawlError) {
    const { http } = ERRORS[thrown.code];
    if (http !== undefined && http < 500) return new Refusal(thrown.code, thrown.message);
    if (http !== undefined) return new Refusal(thrown.code, ERRORS[thrown.code].summary);
  }
  return new Refusal("internal", "the host failed; its log has the details under this request's id");
}

export function problemBody(refusal: Refusal, requestId: string): { error: ProblemBody } {
  const { code, message, said } = refusal;
  return { error: { code: onWire(code), message, hint: ERRORS[code].fix, ...said, requestId } };
}

/** A person's decision that was refused is thrown. */
export function settled<Given extends Decided>(decided: Given): Extract<Given, { ok: true }> {
  if (decided.ok) return decided as Extract<Given, { ok: true }>;
  const { code, message, first } = decided;
  const said: Said = first
    ? { first: { by: first.by, action: first.action, at: new Date(first.atMs).toISOString() } }
    : {};
  throw new Refusal(codeOf(code), message, said);
}

/** Codes of the core are spelt with underscores, too. */
export function codeOf(code: string): ErrorCode {
  const known = code.replaceAll("_", "-");
  return Object.hasOwn(ERRORS, known) ? (known as ErrorCode) : "wrong-state";
}

const OF_ACCESS: readonly string[] = [
  "binding-missing",
  "binding-invalid",
  "grant-invalid",
  "unknown-connector",
  "param-invalid",
];

/** An upload or an activation that was refused is thrown: with all problems, and the place of the first. */
export function accepted(deployed: Deployed): Extract<Deployed, { ok: true }> {
  if (deployed.ok) return deployed;
  const [first] = deployed.problems;
  if (!first || first.code === ("no-workflow" as string) || first.code === ("no-version" as string))
    throw notFound(first?.message ?? "there is no such workflow");
  const isAccess = OF_ACCESS.includes(first.code);
  const code: ErrorCode = isAccess ? (first.code as ErrorCode) : "script-invalid";
  const hint = first.hint === "" ? {} : { hint: first.hint };
  const place = isAccess ? {} : { location: first.location };
  throw new Refusal(code, first.message, {
    ...hint,
    ...place,
    problems: deployed.problems.map(scriptProblem),
  });
}

export const scriptProblem = ({ severity, code, message, hint, location }: Problem) => ({
  severity,
  code,
  message,
  hint,
  location: { line: location.line, column: location.column },
});

/** Something of a request does not fit its schema. */
export function misfit(error: z.ZodError, at = ""): Refusal {
  const [issue] = error.issues;
  if (!issue) return new Refusal("request-invalid", "the request does not fit");
  const { path, message } = readable(issue, at);
  return new Refusal("request-invalid", `${path === "" ? "the body" : path}: ${message}`, { path });
}
