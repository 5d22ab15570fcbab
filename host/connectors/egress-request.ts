/**
 * One request to the outside and its answer, behind the guard of `egress.ts` and within caps on time and bytes. Knows
 * HTTP, but not what a status means: that is the caller's. Every request opens a connection of its own and closes it, so
 * that nothing is sent twice by a pool, and no answer can belong to another request.
 *
 * Q1. `sent` is false only if not one byte of the request was handed to a socket.
 * Q2. Redirects are followed only for GET, HEAD, and from a POST to a GET; each one passes the guard anew.
 * Q3. Credentials go to the first URL's origin and, once left, to no other; nor do headers that could be some.
 * Q4. The time is one budget for all: names, connections, redirects, answers.
 */
import type { Socket } from "node:net";
import { Client } from "undici";
import { addressesOf, EgressRefused, type EgressRule, type Network, open, SYSTEM_NETWORK } from "./egress.ts";
import { type Body, ENCODINGS, readBody } from "./egress-body.ts";

export interface Credentials {
  headers?: Record<string, string>;
  query?: Record<string, string>;
}

export interface GuardedRequest {
  method: "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE";
  url: URL;
  headers?: Record<string, string>;
  /** (Q3) */
  credentials?: Credentials;
  body?: string | Uint8Array;
  rule: EgressRule;
  limits?: Partial<RequestLimits>;
  /** How many redirects to follow; none unless told. */
  redirects?: number;
  signal?: AbortSignal;
  network?: Network;
}

export interface RequestLimits {
  /** All of it. */
  totalMs: number;
  connectMs: number;
  headerBytes: number;
  /** After decompression. */
  bodyBytes: number;
}

export interface GuardedAnswer extends Body {
  status: number;
  /** Lower-case names; several of one name are joined. */
  headers: Record<string, string>;
  /** Where the answer came from in the end, without credentials. */
  url: string;
}

export const DEFAULT_LIMITS: RequestLimits = {
  totalMs: 30_000,
  connectMs: 10_000,
  headerBytes: 32_768,
  bodyBytes: 1_048_576,
};

/** There is no answer. */
export class RequestFailed extends Error {
  override readonly name = "RequestFailed";
  /** (Q1) */
  readonly sent: boolean;
  readonly why: "refused" | "unreachable" | "timeout" | "aborted" | "broken";

  constructor(why: RequestFailed["why"], sent: boolean, message: string) {
    super(message);
    this.why = why;
    this.sent = sent;
  }
}

const MOST_INFOS = 20;
/** Chunks of two bytes take seven on the wire. */
const WIRE_FACTOR = 4;
const REDIRECTS = new Set([301, 302, 303, 307, 308]);

/** Rejects with `RequestFailed` only. */
export async function guardedRequest(request: GuardedRequest): Promise<GuardedAnswer> {
  const limits = { ...DEFAULT_LIMITS, ...request.limits };
  const ending = new AbortController();
  const outOfTime = (): void => ending.abort(new Ending("timeout", `no answer within ${limits.totalMs} ms`));
  const aborted = (): void => ending.abort(new Ending("aborted", "the call was ended early"));
  const timer = setTimeout(outOfTime, limits.totalMs); // (Q4)
  request.signal?.addEventListener("abort", aborted, { once: true });
  if (request.signal?.aborted) aborted();
  try {
    return await following(request, limits, ending.signal);
  } finally {
    clearTimeout(timer);
    request.signal?.removeEventListener("abort", aborted);
  }
}

/** (Q2) */
async function following(
  request: GuardedRequest,
  limits: RequestLimits,
  signal: AbortSignal,
): Promise<GuardedAnswer> {
  let next = request;
  for (let left = request.redirects ?? 0; ; left--) {
    const answer = await exchange(next, limits, signal);
    const onward = redirectOf(next, answer);
    if (!onward || left <= 0) return answer;
    next = onward;
  }
}

function redirectOf(request: GuardedRequest, answer: GuardedAnswer): GuardedRequest | undefined {
  const location = answer.headers["location"];
  if (!REDIRECTS.has(answer.status) || location === undefined || !URL.canParse(location, request.url.href))
    return undefined;
  const reads = request.method === "GET" || request.method === "HEAD";
  if (!reads && (answer.status > 303 || request.method !== "POST")) return undefined;
  const url = new URL(location, request.url);
  const { body: _, credentials, ...rest } = request;
  const stays = url.origin === request.url.origin;
  const headers = stays ? (request.headers ?? {}) : harmless(request.headers ?? {});
  return {
    ...rest,
    url,
    method: reads ? request.method : "GET",
    headers: reads ? headers : withoutContent(headers),
    ...(stays && credentials ? { credentials } : {}), // (Q3)
  };
}

/** A header may be a credential that nobody declared as one; what every reader may send may go anywhere. (Q3) */
const HARMLESS = new Set([
  "accept",
  "accept-language",
  "cache-control",
  "if-modified-since",
  "if-none-match",
  "user-agent",
]);
const harmless = (headers: Record<string, string>): Record<string, string> =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => HARMLESS.has(name.toLowerCase())));

const withoutContent = (headers: Record<string, string>): Record<string, string> =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => !name.toLowerCase().startsWith("content-")));

/** One request on one connection. */
async function exchange(
  request: GuardedRequest,
  limits: RequestLimits,
  signal: AbortSignal,
): Promise<GuardedAnswer> {
  const socket = await connected(request, limits, signal);
  const wire = { sent: false };
  watch(socket, wire, WIRE_FACTOR * limits.bodyBytes + limits.headerBytes * MOST_INFOS);
  let isTaken = false;
  const client = new Client(request.url.origin, {
    // Taken once: undici may not open another connection and send again. Given later, because undici does not notice
    // what it is given while it asks.
    connect: (_, callback) => {
      const wasTaken = isTaken;
      isTaken = true;
      queueMicrotask(() => {
        if (wasTaken || socket.destroyed) callback(new Error("the connection was closed"), null);
        else callback(null, socket);
      });
    },
    allowH2: false,
    useMilo: false,
    pipelining: 1,
    maxHeaderSize: limits.headerBytes,
    headersTimeout: 0,
    bodyTimeout: 0,
  });
  try {
    return await unlessEnded(answerOf(client, request, limits, signal), signal);
  } catch (error) {
    throw failureOf(error, wire.sent, signal);
  } finally {
    socket.destroy();
    void client.destroy().catch(() => {});
  }
}

async function connected(
  request: GuardedRequest,
  limits: RequestLimits,
  signal: AbortSignal,
): Promise<Socket> {
  const { url, rule, network = SYSTEM_NETWORK } = request;
  try {
    signal.throwIfAborted();
    const addresses = await unlessEnded(addressesOf(url, rule, network), signal);
    return await open(url, addresses, rule, { network, signal, timeoutMs: limits.connectMs });
  } catch (error) {
    throw failureOf(error, false, signal);
  }
}

/** (Q1) Marks the first write; ends what sends more than any answer within the caps could need. */
function watch(socket: Socket, wire: { sent: boolean }, maxBytes: number): void {
  const write = socket.write.bind(socket) as (...args: unknown[]) => boolean;
  socket.write = ((...args: unknown[]) => {
    wire.sent = true;
    return write(...args);
  }) as typeof socket.write;
  socket.on("readable", () => {
    if (socket.bytesRead > maxBytes) socket.destroy(new Error("the answer does not end"));
  });
}

async function answerOf(
  client: Client,
  request: GuardedRequest,
  limits: RequestLimits,
  signal: AbortSignal,
): Promise<GuardedAnswer> {
  const { method, url, headers, credentials, body } = request;
  const secret = new URLSearchParams(credentials?.query ?? {}).toString();
  // Appended as text: what the caller wrote stays byte for byte what it was.
  const search = secret === "" ? url.search : `${url.search === "" ? "?" : `${url.search}&`}${secret}`;
  let infos = 0;
  const response = await client.request({
    method,
    path: `${url.pathname}${search}`,
    headers: { "accept-encoding": ENCODINGS, ...headers, ...credentials?.headers },
    body: body ?? null,
    signal,
    reset: true,
    // While a reader lags behind, undici takes the end of a connection for a loss of what it still holds.
    highWaterMark: limits.bodyBytes,
    onInfo: () => {
      if (++infos > MOST_INFOS) throw new Error("more interim answers than anybody needs");
    },
  });
  const fields = joined(response.headers);
  const read = await readBody(response.body, fields["content-encoding"] ?? "", limits.bodyBytes);
  return { status: response.statusCode, headers: fields, url: url.href, ...read };
}

function joined(headers: Record<string, string | string[] | undefined>): Record<string, string> {
  const fields: Record<string, string> = {};
  for (const [name, value] of Object.entries(headers))
    if (value !== undefined) fields[name] = Array.isArray(value) ? value.join(", ") : value;
  return fields;
}

class Ending extends Error {
  readonly why: "timeout" | "aborted";
  constructor(why: "timeout" | "aborted", message: string) {
    super(message);
    this.why = why;
  }
}

function failureOf(error: unknown, sent: boolean, signal: AbortSignal): RequestFailed {
  if (error instanceof EgressRefused) return new RequestFailed("refused", false, error.message);
  if (signal.reason instanceof Ending)
    return new RequestFailed(signal.reason.why, sent, signal.reason.message);
  const message = error instanceof Error ? error.message || error.name : String(error);
  return new RequestFailed(sent ? "broken" : "unreachable", sent, message);
}

/** A name server cannot be told to stop; its answer is no longer waited for. */
async function unlessEnded<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  work.catch(() => {});
  let stop = (): void => {};
  const ended = new Promise<never>((_, reject) => {
    stop = () => reject(signal.reason as Error);
    signal.addEventListener("abort", stop, { once: true });
  });
  try {
    return await Promise.race([work, ended]);
  } finally {
    signal.removeEventListener("abort", stop);
  }
}
