// The tools of the built-in connectors, as a script sees them. A connector's entry in `Connectors` says which tools
// may be called where: `read` in producers and in `prepare`, `mutation` in `mutate`. `http` tools take a path and options,
// all others one object.

/** Any value that survives `JSON.stringify`. `undefined` properties are dropped. */
export type Json = string | number | boolean | null | readonly Json[] | JsonObject;

/** A JSON object. */
export interface JsonObject {
  readonly [key: string]: Json | undefined;
}

/**
 * A condition on an HTTP answer: its status, the value at a JSON path of its body such as `$.items[0].id`, or both. A
 * value without a status counts in an answer of success only.
 */
export type AnswerCondition =
  | { readonly status: number | readonly number[] }
  | { readonly path: string; readonly equals: Json }
  | { readonly status: number | readonly number[]; readonly path: string; readonly equals: Json };

/**
 * How the host finds out whether a call whose answer was lost took effect: it reads `url`. Placeholders such as
 * `{args.body.id}`, `{args.query.x}`, `{args.path}` and `{key}` are filled from the recorded call, URL-encoded. If neither
 * condition matches, or both do, a person decides in the end.
 */
export interface VerifyRecipe {
  readonly url: string;
  readonly appliedIf: AnswerCondition;
  readonly notAppliedIf: AnswerCondition;
}

/** Options of a reading HTTP call. */
export interface HttpReadOptions {
  /** Values that are `undefined` or `null` are left out. */
  readonly query?: Readonly<Record<string, string | number | boolean | null | undefined>> | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Statuses that are an answer instead of a failure, e.g. `[404]`. */
  readonly accept?: readonly number[] | undefined;
  readonly timeoutMs?: number | undefined;
}

/** Options of the reading POST (`query`). */
export interface HttpQueryOptions extends HttpReadOptions {
  /**
   * Sent as JSON; a text as it is. With the header `content-type` also as a form
   * (`application/x-www-form-urlencoded`), or, given as `{ base64: "…" }`, as bytes of any type.
   */
  readonly body?: unknown;
}

/** Options of a changing HTTP call. */
export interface HttpMutationOptions extends HttpQueryOptions {
  readonly verify?: VerifyRecipe | undefined;
  /**
   * The service makes a change once per key, for at least a day. The host sends the key; if the answer is lost, it sends
   * the same call again.
   */
  readonly idempotency?: "key" | undefined;
}

/** An HTTP answer. `T` is the author's claim about the body; the host does not check it. */
export interface HttpResult<T = unknown> {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** Parsed if the answer is JSON, else text; bytes that are no text as `{ base64: "…" }`; `null` if it is empty. */
  readonly body: T;
}

/** `http` in a producer and in `prepare`. */
export interface HttpRead {
  get<T = unknown>(path: string, options?: HttpReadOptions): Promise<HttpResult<T>>;
  head(path: string, options?: HttpReadOptions): Promise<HttpResult<null>>;
  /** A POST that the connection lists as read-only: GraphQL, search, model calls. */
  query<T = unknown>(path: string, options?: HttpQueryOptions): Promise<HttpResult<T>>;
}

/** `http` in `mutate`. */
export interface HttpMutation {
  post(path: string, options?: HttpMutationOptions): void;
  put(path: string, options?: HttpMutationOptions): void;
  patch(path: string, options?: HttpMutationOptions): void;
  delete(path: string, options?: HttpMutationOptions): void;
}

/** One e-mail; give `text`, `html` or both. An address is `name@example.com` or `Name <name@example.com>`, one per text. */
export interface Mail {
  readonly to: string | readonly string[];
  readonly cc?: string | readonly string[] | undefined;
  readonly bcc?: string | readonly string[] | undefined;
  readonly replyTo?: string | undefined;
  readonly subject: string;
  readonly text?: string | undefined;
  readonly html?: string | undefined;
}

/** `smtp` in `mutate`. */
export interface SmtpMutation {
  send(mail: Mail): void;
}

/** What `smtp.send` gives. A mail that somebody gets is sent; `rejected` are those who do not get it. */
export interface SmtpResult {
  readonly messageId: string;
  readonly accepted: readonly string[];
  readonly rejected: readonly string[];
}

/** One entry of a feed; `id` falls back to the link. */
export interface FeedItem {
  readonly id: string;
  readonly title: string;
  readonly link?: string;
  readonly summary?: string;
  readonly author?: string;
  /** ISO 8601. */
  readonly publishedAt?: string;
}

/** A feed as read from RSS, Atom or JSON Feed. */
export interface FeedResult {
  readonly title: string;
  readonly items: readonly FeedItem[];
  /** Ours, not the server's. Hand it back in the next fetch; an unchanged feed then answers `notModified` with no items. */
  readonly etag?: string;
  readonly notModified?: boolean;
}

/** `feed` in a producer and in `prepare`. */
export interface FeedRead {
  fetch(args?: {
    readonly url?: string | undefined;
    readonly etag?: string | undefined;
    readonly timeoutMs?: number | undefined;
  }): Promise<FeedResult>;
}

/** A file below the connection's root. */
export interface FileEntry {
  readonly path: string;
  readonly size: number;
  /** ISO 8601. */
  readonly modifiedAt: string;
}

/** `file` in a producer and in `prepare`. */
export interface FileRead {
  read(args: {
    readonly path: string;
    readonly encoding?: "utf8" | "base64" | undefined;
  }): Promise<{ readonly path: string; readonly content: string; readonly hash: string }>;
  /** Every file below the path, in all folders. */
  list(args?: { readonly path?: string | undefined }): Promise<{ readonly files: readonly FileEntry[] }>;
}

/** `file` in `mutate`. */
export interface FileMutation {
  /** Replaces the file as a whole: a reader sees the old content or the new. */
  write(args: {
    readonly path: string;
    readonly content: string;
    readonly encoding?: "utf8" | "base64" | undefined;
  }): void;
}

/** What `file.write` gives. */
export interface FileResult {
  readonly path: string;
  readonly hash: string;
}

/** `workflow` in `mutate`: an event for another workflow of the same namespace. */
export interface WorkflowMutation {
  publish(event: {
    readonly workflow: string;
    readonly topic: string;
    readonly messageId: string;
    readonly payload: unknown;
  }): void;
}

/** What `workflow.publish` gives. */
export interface WorkflowResult {
  readonly messageId: string;
}

/** A connector has no tools of this kind. */
export type NoTools = Record<never, never>;

/** What a connector offers to scripts; the shape of an entry in `Connectors`. */
export interface ConnectorTools {
  readonly read: object;
  readonly mutation: object;
  /** What its mutation tools give: `outcome.result` in `next`. */
  readonly result: unknown;
}

/**
 * Connector name → its tools. Add your own by declaration merging:
 * `declare module "pawl" { interface Connectors { crm: { read: CrmRead; mutation: CrmMutation; result: CrmResult } } }`
 */
export interface Connectors {
  // oxlint-disable-next-line typescript/no-explicit-any -- mutate and next share no types, so the body is the author's claim
  http: { read: HttpRead; mutation: HttpMutation; result: HttpResult<any> };
  smtp: { read: NoTools; mutation: SmtpMutation; result: SmtpResult };
  feed: { read: FeedRead; mutation: NoTools; result: never };
  file: { read: FileRead; mutation: FileMutation; result: FileResult };
  workflow: { read: NoTools; mutation: WorkflowMutation; result: WorkflowResult };
  webhook: { read: NoTools; mutation: NoTools; result: never };
}

/**
 * Tools of a connector this package has no types for: any name, one JSON argument. `any`, because an index signature
 * would make every tool "possibly undefined" under `noUncheckedIndexedAccess`; the host checks at run time.
 */
// oxlint-disable-next-line typescript/no-explicit-any -- see above
export type UntypedTools = any;

/** A custom connector's result; at least `null` still has to be checked for. */
// oxlint-disable-next-line typescript/no-explicit-any -- see UntypedTools
export type UntypedResult = Readonly<Record<string, any>>;

/** The reading tools of the connector called `Name`. */
export type ReadTools<Name> = Name extends keyof Connectors ? Connectors[Name]["read"] : UntypedTools;

/** The mutation tools of the connector called `Name`. */
export type MutationTools<Name> = Name extends keyof Connectors ? Connectors[Name]["mutation"] : UntypedTools;

/** What a mutation tool of the connector called `Name` gives. */
export type MutationResult<Name> = Name extends keyof Connectors ? Connectors[Name]["result"] : UntypedResult;
