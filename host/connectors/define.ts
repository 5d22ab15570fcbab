/**
 * What a connector is: named tools that read the outside or change it, beside the config and secrets they need (06).
 * Whoever writes one imports from here alone.
 *
 * C1. A tool fails only through the errors below. From a mutation each of them but `unknownOutcome` and `internal` is the
 *     connector's word that nothing happened; whatever else is thrown proves nothing.
 * C2. A mutation says how its outcome can be proved; without a word it is `lookup` if it can reconcile, else `none`.
 */
import type { z } from "zod";
import type { ErrorClass } from "../core/errors.ts";
import type { ProofClass } from "../core/mutation.ts";
import type { Json } from "../core/workflow.ts";
import type { Misfit } from "../ports/connections.ts";
import type { Origin } from "../ports/siblings.ts";

/** A connection as a tool sees it: opened, its secrets in the clear for the length of one call. */
export interface OpenConnection<Config = unknown, Secrets = unknown> {
  namespace: string;
  name: string;
  config: Config;
  secrets: Secrets;
  configVersion: number;
  /** From now on the value is as secret as those that are stored: for what a tool makes of them, or gets for them. */
  hide(value: string): void;
  /** Stores other secrets for this connection, for a service that changes them. Rejects when they could not be kept. */
  replaceSecrets(secrets: Secrets): Promise<void>;
}

export interface ReadContext {
  signal: AbortSignal;
}

export interface SendContext extends ReadContext {
  /** The same for every send of one decision; unknown to the script. */
  idempotencyKey: string;
  /** For calls that stay within the host. */
  origin: Origin;
}

export interface CheckContext extends SendContext {
  /** What `before` saw when the decision was recorded. */
  before?: Json;
}

export type Verdict =
  | { says: "applied"; result?: unknown }
  | { says: "notApplied" }
  | { says: "unsure"; why?: string };

export const applied = (result?: unknown): Verdict => ({ says: "applied", result });
export const notApplied = (): Verdict => ({ says: "notApplied" });
export const unsure = (why?: string): Verdict => ({ says: "unsure", ...(why === undefined ? {} : { why }) });

/** What a connection's own `check` found. */
export type Health = { status: "ok" } | { status: "auth" | "unreachable"; message: string };

export interface ReadTool<Config, Secrets, Input = unknown, Output = unknown> {
  kind: "read";
  input: z.ZodType<Input>;
  output: z.ZodType<Output>;
  run: (connection: OpenConnection<Config, Secrets>, input: Input, context: ReadContext) => Promise<unknown>;
}

export interface MutationTool<Config, Secrets, Input = unknown, Output = unknown> {
  kind: "mutation";
  input: z.ZodType<Input>;
  output: z.ZodType<Output>;
  /** One sentence from the real arguments; what a person approves. Never contains a secret. */
  describe: (input: Input, connection: OpenConnection<Config, unknown>) => string;
  /** The bytes that will leave, credentials excluded; the canonical input unless told. */
  bytes?: (input: Input, connection: OpenConnection<Config, unknown>) => string | Uint8Array;
  /** Read before the decision is recorded, for a check that compares. Its failure is no failure of the call. */
  before?: (
    connection: OpenConnection<Config, Secrets>,
    input: Input,
    context: ReadContext,
  ) => Promise<Json | undefined>;
  run: (connection: OpenConnection<Config, Secrets>, input: Input, context: SendContext) => Promise<unknown>;
  /** Asks whether a call whose outcome is unknown took effect. Throws `auth` when it is not let in. */
  reconcile?: (
    connection: OpenConnection<Config, Secrets>,
    input: Input,
    context: CheckContext,
  ) => Promise<Verdict>;
  /** (C2) May depend on the call: a recipe in its arguments, say. */
  proof?: ProofClass | ((input: Input, connection: OpenConnection<Config, unknown>) => ProofClass);
  /** How long after the call ended on our side "not there" may still be wrong. 30 s unless told. */
  settleMs?: number | ((connection: OpenConnection<Config, unknown>) => number);
}

export type AnyTool<Config, Secrets> =
  // oxlint-disable-next-line typescript/no-explicit-any -- each tool has its own input, checked by its schema
  ReadTool<Config, Secrets, any, any> | MutationTool<Config, Secrets, any, any>;

// oxlint-disable-next-line typescript/no-explicit-any -- a registry holds connectors of every config
export interface Connector<Config = any, Secrets = any> {
  name: string;
  /** What an operator fills in, not secret. */
  config: z.ZodType<Config>;
  /** Encrypted at rest, write-only for people. */
  secrets: z.ZodType<Secrets>;
  /** What only shows when config and secrets are seen together: a scheme without its key, say. Empty when all is well. */
  fits?: (config: Config, secrets: Secrets) => Misfit[];
  /** Is this connection good? Without it, nobody can tell. */
  check?: (connection: OpenConnection<Config, Secrets>, context: ReadContext) => Promise<Health>;
  tools: Record<string, AnyTool<Config, Secrets>>;
}

/** Methods whose name promises a change; nobody may register them as a read. */
const CHANGING = new Set([
  "post",
  "put",
  "patch",
  "delete",
  "send",
  "write",
  "publish",
  "create",
  "update",
  "remove",
]);
const NAME = /^[a-z][a-z0-9-]{0,31}$/;
const TOOL_NAME = /^[a-zA-Z][a-zA-Z0-9]{0,31}$/;

export function defineConnector<Config, Secrets>(
  connector: Connector<Config, Secrets>,
): Connector<Config, Secrets> {
  if (!NAME.test(connector.name))
    throw new Error(`a connector's name is lower-case letters, digits and dashes: ${connector.name}`);
  for (const [name, tool] of Object.entries(connector.tools)) {
    const label = `${connector.name}.${name}`;
    if (!TOOL_NAME.test(name)) throw new Error(`${label}: a tool's name is letters and digits`);
    if (tool.kind === "read" && CHANGING.has(name))
      throw new Error(`${label} changes something: register it with mutation()`);
    if (tool.kind === "mutation" && tool.proof === "lookup" && !tool.reconcile)
      throw new Error(`${label} claims that its outcome can be looked up, but has no reconcile`);
  }
  return Object.freeze(connector);
}

export function read<Config, Secrets, Input, Output>(
  tool: Omit<ReadTool<Config, Secrets, Input, Output>, "kind">,
): ReadTool<Config, Secrets, Input, Output> {
  return { kind: "read", ...tool };
}

export function mutation<Config, Secrets, Input, Output>(
  tool: Omit<MutationTool<Config, Secrets, Input, Output>, "kind">,
): MutationTool<Config, Secrets, Input, Output> {
  return { kind: "mutation", ...tool };
}

/** Why a tool could not do what it was asked. `proves` = nothing happened outside (C1). */
export class ToolError extends Error {
  override readonly name = "ToolError";
  readonly class: ErrorClass;
  readonly code: string;
  readonly proves: boolean;
  readonly retryAfterMs: number | undefined;
  /** What came back, for the record; safe to show. */
  readonly evidence: Json | undefined;

  constructor(
    kind: ErrorClass,
    code: string,
    message: string,
    more: { proves?: boolean; retryAfterMs?: number; evidence?: Json } = {},
  ) {
    super(message);
    this.class = kind;
    this.code = code;
    this.proves = more.proves ?? true;
    this.retryAfterMs = more.retryAfterMs;
    this.evidence = more.evidence;
  }
}

type More = { code?: string; evidence?: Json };

const failure =
  (kind: ErrorClass, usual: string, proves = true) =>
  (message: string, { code = usual, evidence }: More = {}): ToolError =>
    new ToolError(kind, code, message, { proves, ...(evidence === undefined ? {} : { evidence }) });

export const transient = failure("transient", "tool-unavailable");
export const auth = failure("auth", "tool-auth");
export const permission = failure("permission", "tool-permission");
export const precondition = failure("precondition", "tool-precondition");
/** The script asked for something that can never work. */
export const invalid = failure("logic", "tool-input-invalid");
export const internal = failure("internal", "connector-threw", false);
/** The call may have had its effect. */
export const unknownOutcome = failure("transient", "outcome-unknown", false);

export const rateLimited = ({
  retryAfterMs,
  message = "the service asks for patience",
  evidence,
}: {
  retryAfterMs?: number;
  message?: string;
  evidence?: Json;
} = {}): ToolError =>
  new ToolError("transient", "rate-limited", message, {
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    ...(evidence === undefined ? {} : { evidence }),
  });
