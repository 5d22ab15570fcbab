/**
 * Rows ↔ the core's nouns, once for every database: which column holds which field, and how a value is written. The
 * adapters build their statements from these tables, so that a new field is one line.
 */
import type { HandlerFacts } from "../core/facts.ts";
import type { Mutation } from "../core/mutation.ts";
import type { Run } from "../core/run.ts";
import type { Schedule } from "../core/workflow.ts";

export type Cell = string | number | null;
export type Row = Record<string, Cell>;

/** How a field is stored: as it is, as 0 or 1, or as JSON text. */
type Form = "plain" | "flag" | "json";
export type Columns<Noun> = { readonly [Field in keyof Noun]-?: readonly [column: string, form: Form] };

export const RUN_COLUMNS: Columns<Run> = {
  id: ["id", "plain"],
  workflow: ["workflow", "plain"],
  version: ["version", "plain"],
  handler: ["handler", "plain"],
  kind: ["kind", "plain"],
  trigger: ["trigger_json", "json"],
  rootId: ["root_id", "plain"],
  retryOf: ["retry_of", "plain"],
  successor: ["successor", "plain"],
  attempt: ["attempt", "plain"],
  phase: ["phase", "plain"],
  status: ["status", "plain"],
  pauseReason: ["pause_reason", "plain"],
  open: ["open", "flag"],
  readyAtMs: ["ready_at", "plain"],
  retries: ["retries", "plain"],
  crashes: ["crashes", "plain"],
  crashPhase: ["crash_phase", "plain"],
  redos: ["redos", "plain"],
  outcome: ["outcome", "plain"],
  prepared: ["prepared_json", "plain"],
  result: ["result_json", "plain"],
  error: ["error_json", "json"],
  policy: ["policy_json", "plain"],
  startSeq: ["start_seq", "plain"],
  chainStartedAtMs: ["chain_started_at", "plain"],
  createdAtMs: ["created_at", "plain"],
  endedAtMs: ["ended_at", "plain"],
  deadlineAtMs: ["deadline_at", "plain"],
  wakeAtMs: ["wake_at", "plain"],
  resources: ["resources_json", "plain"],
  host: ["host", "plain"],
  resolution: ["resolution_json", "json"],
  revision: ["revision", "plain"],
};

export const MUTATION_COLUMNS: Columns<Mutation> = {
  id: ["id", "plain"],
  originRun: ["origin_run", "plain"],
  ownerRun: ["owner_run", "plain"],
  status: ["status", "plain"],
  alias: ["alias", "plain"],
  connection: ["connection", "plain"],
  configVersion: ["config_version", "plain"],
  tool: ["tool", "plain"],
  args: ["args_json", "plain"],
  description: ["description", "plain"],
  proof: ["proof", "plain"],
  before: ["before_json", "plain"],
  idempotencyKey: ["idempotency_key", "plain"],
  n: ["n", "plain"],
  sends: ["sends", "plain"],
  endedAtMs: ["ended_at", "plain"],
  settleMs: ["settle_ms", "plain"],
  checks: ["checks", "plain"],
  nextCheckAtMs: ["next_check_at", "plain"],
  resending: ["resending", "flag"],
  result: ["result_json", "plain"],
  resultInvalid: ["result_invalid", "flag"],
  notSent: ["not_sent", "flag"],
  error: ["error_json", "plain"],
  createdAtMs: ["created_at", "plain"],
};

export function toCell(value: unknown, form: Form): Cell {
  if (form === "flag") return value ? 1 : 0;
  if (value === undefined || value === null) return null;
  return form === "json" ? JSON.stringify(value) : (value as Cell);
}

/** A noun from its row; columns that are NULL are absent fields. */
export function fromRow<Noun>(row: Row, columns: Columns<Noun>): Noun {
  const noun: Record<string, unknown> = {};
  for (const field in columns) {
    const [column, form] = columns[field];
    const cell = row[column];
    if (cell === null || cell === undefined) continue;
    noun[field] = form === "flag" ? cell === 1 : form === "json" ? JSON.parse(cell as string) : cell;
  }
  return noun as Noun;
}

/** The stored half of a handler's facts; `declared` is the active version's half. */
export function handlerFromRow(
  row: Row,
  declared: { schedule?: Schedule; hasMutate: boolean; hasNext: boolean },
): HandlerFacts {
  const facts: HandlerFacts = {
    id: row["id"] as number,
    kind: row["kind"] as HandlerFacts["kind"],
    name: row["name"] as string,
    order: row["ord"] as number,
    orphaned: row["orphaned"] === 1,
    seenSeq: row["seen_seq"] as number,
    ...declared,
  };
  if (row["state_json"] !== null) facts.state = row["state_json"] as string;
  if (row["queued_at"] !== null)
    facts.queued = {
      reason: row["queued_reason"] as NonNullable<HandlerFacts["queued"]>["reason"],
      atMs: row["queued_at"] as number,
    };
  if (row["triggered_at"] !== null)
    facts.triggered = {
      reason: row["triggered_reason"] as NonNullable<HandlerFacts["triggered"]>["reason"],
      atMs: row["triggered_at"] as number,
    };
  if (row["wake_at"] !== null) facts.wakeAtMs = row["wake_at"] as number;
  if (row["next_run_at"] !== null) facts.nextRunAtMs = row["next_run_at"] as number;
  if (row["anchor_at"] !== null) facts.anchorMs = row["anchor_at"] as number;
  if (row["oldest_at"] !== null && row["oldest_at"] !== undefined)
    facts.oldestPendingAtMs = row["oldest_at"] as number;
  if (row["new_at"] !== null && row["new_at"] !== undefined) facts.newPendingAtMs = row["new_at"] as number;
  return facts;
}
