/**
 * The outside world, as the engine sees it: named tools behind a workflow's aliases. An adapter holds credentials and
 * sockets; nothing of them crosses. The contract suite is `test/contract/connector.ts`.
 */
import type { GrantMode } from "../core/change.ts";
import type { ErrorClass } from "../core/errors.ts";
import type { WorkflowId } from "../core/ids.ts";
import type { ProofClass } from "../core/mutation.ts";
import type { JsonText } from "../core/workflow.ts";

export type { GrantMode };

/** What stands behind an alias and a tool name at this moment. */
export interface Tool {
  kind: "read" | "mutation";
  connection: string;
  configVersion: number;
  grant: GrantMode;
  /** Raised whenever the grant is set anew: what was allowed under the old one is void. 0 where nobody counts. */
  grantVersion?: number;
  /** Mutations. */
  proof: ProofClass;
  canCheck: boolean;
  settleMs: number;
  /** It looks at the outside before its decision is recorded. */
  looksBefore?: boolean;
}

export interface ToolCall {
  workflow: WorkflowId;
  alias: string;
  tool: string;
  args: JsonText;
  signal?: AbortSignal;
}

export interface ToolFailure {
  class: ErrorClass;
  code: string;
  message: string;
  /** A server's own wish. */
  retryAfterMs?: number;
}

export type ReadAnswer = { ok: true; value: JsonText } | ({ ok: false } & ToolFailure);

/** `failed` is proof that nothing happened; whatever is not proof is `unknown`. */
export type SendAnswer =
  | { outcome: "applied"; result: JsonText; resultInvalid?: boolean; raw: JsonText }
  | ({ outcome: "failed"; raw: JsonText } & ToolFailure)
  | ({ outcome: "unknown"; raw: JsonText } & ToolFailure);

export type CheckAnswer =
  | { says: "applied"; result?: JsonText; resultInvalid?: boolean }
  | { says: "notApplied" }
  | { says: "unsure" }
  | { says: "auth" };

/** A recorded decision, as it is sent, and sent again where the proof class allows it. */
export interface RecordedCall extends ToolCall {
  idempotencyKey: string;
  connection: string;
  configVersion: number;
  /** How far the events have come that it acts on. */
  hops?: number;
  /** How far those that follow may come. */
  maxHops?: number;
  /** What `before` saw. */
  before?: JsonText;
}

export interface World {
  /**
   * The tool behind an alias, or why there is none. How it proves its outcome may depend on the arguments. With a
   * connection: of a call that was sent through it, whatever the alias is bound to by now.
   */
  tool(
    call: Pick<ToolCall, "workflow" | "alias" | "tool"> & { args?: JsonText; connection?: string },
  ): Promise<Tool | ToolFailure>;
  /** One sentence from the real arguments, written by the host. */
  describe(call: ToolCall): Promise<string>;
  /** Hash of the bytes that will leave, credentials excluded. */
  fingerprint(call: RecordedCall): Promise<string>;
  /** What a later check will compare with, recorded before the call leaves. Never rejects. */
  before?(call: ToolCall): Promise<JsonText | undefined>;
  /** Never rejects. */
  read(call: ToolCall): Promise<ReadAnswer>;
  /** Never rejects. Resolves when the call has really ended, however late. */
  send(call: RecordedCall): Promise<SendAnswer>;
  /** Never rejects. */
  check(call: RecordedCall): Promise<CheckAnswer>;
}
