/**
 * `pawl/client`: the calls of the API as typed functions, over `fetch`. Carries the contract's names and types, and nothing
 * else of the host.
 *
 *     const pawl = createClient({ url: "http://127.0.0.1:7420", token });
 *     const { items } = await pawl.listRuns({ query: { open: "true" } });
 */
import type { AnswerOf, BodyFor, ParamsOf, QueryFor } from "./api/contract.ts";
import { type CallName, PATHS, placeOf } from "./api/contract-paths.ts";

export type { AnswerOf, CallName };

export interface ClientOptions {
  url: string;
  token?: string;
  /** What is asked about; without it the token's own, or `default`. */
  namespace?: string;
  fetch?: typeof fetch;
}

/** Why a call was refused, as the host says it. */
export class PawlProblem extends Error {
  override readonly name = "PawlProblem";
  readonly status: number;
  readonly code: string;
  readonly hint: string | undefined;
  readonly path: string | undefined;
  readonly location: { line: number; column: number } | undefined;
  readonly requestId: string | undefined;
  /** All of what came back. */
  readonly body: unknown;

  constructor(status: number, body: unknown) {
    const { code, message, hint, path, location, requestId } = problemIn(body);
    super(message ?? `the host answered ${status}`);
    this.status = status;
    this.code = code ?? "unreadable";
    this.hint = hint;
    this.path = path;
    this.location = location;
    this.requestId = requestId;
    this.body = body;
  }
}

type Needed<Key extends string, Value> = undefined extends Value
  ? { [One in Key]?: Exclude<Value, undefined> }
  : { [One in Key]: Value };
type Given<Name extends CallName> = ([ParamsOf<Name>] extends [never]
  ? unknown
  : { params: Record<ParamsOf<Name>, string | number> }) &
  Needed<"body", BodyFor<Name>> &
  ([QueryFor<Name>] extends [undefined]
    ? unknown
    : Record<string, never> extends QueryFor<Name>
      ? { query?: QueryFor<Name> }
      : { query: QueryFor<Name> }) & {
    /** Of a POST: the same key gets the same answer. */
    idempotencyKey?: string;
    signal?: AbortSignal;
  };

type Asking<Name extends CallName> =
  Record<string, never> extends Given<Name>
    ? (given?: Given<Name>) => Promise<AnswerOf<Name>>
    : (given: Given<Name>) => Promise<AnswerOf<Name>>;

export type Client = { [Name in CallName]: Asking<Name> };

interface Loose {
  params?: Record<string, string | number>;
  query?: Record<string, string | number | boolean | undefined>;
  body?: unknown;
  idempotencyKey?: string;
  signal?: AbortSignal;
}

export function createClient(options: ClientOptions): Client {
  const asking = (Object.keys(PATHS) as CallName[]).map(
    (name) => [name, (given: Loose = {}) => ask(options, name, given)] as const,
  );
  return Object.fromEntries(asking) as unknown as Client;
}

async function ask(options: ClientOptions, name: CallName, given: Loose): Promise<unknown> {
  const { method, path } = placeOf(name);
  const { params = {}, query = {}, body, idempotencyKey, signal } = given;
  const filled = path.replaceAll(/\{(\w+)\}/g, (_, param: string) =>
    encodeURIComponent(String(params[param])),
  );
  const url = new URL(filled, options.url);
  for (const [field, value] of Object.entries(query))
    if (value !== undefined) url.searchParams.set(field, String(value));
  const response = await (options.fetch ?? fetch)(url, {
    method,
    redirect: "error",
    ...(signal ? { signal } : {}),
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    headers: {
      ...(options.token === undefined ? {} : { authorization: `Bearer ${options.token}` }),
      ...(options.namespace === undefined ? {} : { "pawl-namespace": options.namespace }),
      ...(body === undefined ? {} : { "content-type": "application/json" }),
      ...(idempotencyKey === undefined ? {} : { "idempotency-key": idempotencyKey }),
    },
  });
  const text = await response.text();
  const isJson = response.headers.get("content-type")?.startsWith("application/json") ?? false;
  const answer: unknown = isJson ? JSON.parse(text) : text;
  if (!response.ok) throw new PawlProblem(response.status, answer);
  return answer;
}

type Problem = Partial<Pick<PawlProblem, "code" | "message" | "hint" | "path" | "location" | "requestId">>;

function problemIn(body: unknown): Problem {
  const error = typeof body === "object" && body !== null && "error" in body ? body.error : undefined;
  return typeof error === "object" && error !== null ? (error as Problem) : {};
}
