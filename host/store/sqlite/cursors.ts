/**
 * The rows of workflows and of their handlers, kept between Changes: every Change reads its workflow, and most of them
 * read it just after the one before has written it.
 *
 * C1. What is kept is what is stored: only `apply` writes these columns, one host has the file open, and a Change that
 *     breaks half-way breaks the store. Whoever takes writes back, or writes past `apply`, calls `forget`.
 * C2. A handler's state is never kept: it may be large, and nothing is decided on it.
 * C3. So many workflows and no more; those that came first are read again.
 */
import type { HandlerId, WorkflowId } from "../../core/ids.ts";
import type { Row } from "../rows.ts";
import type { Statements } from "./statements.ts";

export interface WorkflowCursor {
  readonly id: WorkflowId;
  readonly namespace: number;
  revision: number;
  generation: number;
  seq: number;
  journalSeq: number;
  paused: boolean;
  archived: boolean;
  openRun: number | null;
  consumerStreak: number;
  activeVersion: number;
  mode: string;
  dueAtMs: number | null;
  /** By the Change that is applied. */
  touched: boolean;
  /** Absent until somebody asks. */
  handlers?: Map<HandlerId, Row>;
}

const MOST = 5_000;
const READ_WORKFLOW =
  "SELECT namespace, revision, generation, seq, journal_seq, paused, archived, open_run, consumer_streak, active_version, mode, due_at FROM workflows WHERE id = ?";
/** Everything but the state (C2). */
const READ_HANDLERS =
  "SELECT id, kind, name, ord, orphaned, seen_seq, queued_reason, queued_at, triggered_reason, triggered_at, wake_at, next_run_at, anchor_at, due_at, NULL AS state_json, NULL AS new_at FROM handlers";

export class Cursors {
  readonly #statements: Statements;
  readonly #kept = new Map<WorkflowId, WorkflowCursor>();

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  forget(): void {
    this.#kept.clear(); // (C1)
  }

  of(id: WorkflowId): WorkflowCursor | undefined {
    const kept = this.#kept.get(id);
    if (kept) {
      kept.touched = false;
      return kept;
    }
    const read = this.#read(id);
    if (!read) return undefined;
    if (this.#kept.size >= MOST) this.#kept.delete(this.#kept.keys().next().value as WorkflowId); // (C3)
    this.#kept.set(id, read);
    return read;
  }

  handlersOf(cursor: WorkflowCursor): Map<HandlerId, Row> {
    if (!cursor.handlers) {
      const rows = this.#statements.sql(`${READ_HANDLERS} WHERE workflow = ?+0`).all(cursor.id) as Row[];
      cursor.handlers = new Map(rows.map((row) => [row["id"] as HandlerId, row]));
    }
    return cursor.handlers;
  }

  /** One that was inserted just now joins those that are kept; they may hold what is not written yet. */
  addHandler(cursor: WorkflowCursor, id: HandlerId): void {
    const row = this.#statements.sql(`${READ_HANDLERS} WHERE id = ?`).get(id) as Row;
    cursor.handlers?.set(id, row);
  }

  #read(id: WorkflowId): WorkflowCursor | undefined {
    const row = this.#statements.sql(READ_WORKFLOW).get(id) as Row | undefined;
    if (!row) return undefined;
    return {
      id,
      namespace: row["namespace"] as number,
      revision: row["revision"] as number,
      generation: row["generation"] as number,
      seq: row["seq"] as number,
      journalSeq: row["journal_seq"] as number,
      paused: row["paused"] === 1,
      archived: row["archived"] === 1,
      openRun: row["open_run"] as number | null,
      consumerStreak: row["consumer_streak"] as number,
      activeVersion: row["active_version"] as number,
      mode: row["mode"] as string,
      dueAtMs: row["due_at"] as number | null,
      touched: false,
    };
  }
}
