/**
 * The handlers that a Change touches: each row is changed in memory, and written once, with its `due_at`.
 *
 * H1. `due_at` is what the core says, after everything else of the Change is written.
 */
import type { HandlerPatch, Write } from "../../core/change.ts";
import type { EpochMs, HandlerId } from "../../core/ids.ts";
import { handlerDueAt } from "../../core/trigger.ts";
import { type Cell, handlerFromRow, type Row } from "../rows.ts";
import type { Cursors, WorkflowCursor } from "./cursors.ts";
import type { Statements } from "./statements.ts";

interface Touched {
  row: Row;
  changed: boolean;
  state?: Cell;
  triggerIfPending: boolean;
}

const WRITE =
  "ord = ?, orphaned = ?, seen_seq = ?, queued_reason = ?, queued_at = ?, triggered_reason = ?, triggered_at = ?, wake_at = ?, next_run_at = ?, anchor_at = ?, due_at = ? WHERE id = ?";
const WRITE_ALL = `UPDATE handlers SET ${WRITE}`;
const WRITE_WITH_STATE = `UPDATE handlers SET state_json = ?, ${WRITE}`;
const ANY_PENDING = "SELECT 1 FROM deliveries WHERE handler = ?+0 AND status = 'pending' LIMIT 1";

/**
 * When the oldest pending delivery changed that the handler has not looked at: published since, or given a new payload
 * since. Of the second kind there are few, and only they are in the index by change.
 */
export const newPendingAt = (handler: string, seenSeq: string): string => `(SELECT min(at) FROM (
  SELECT * FROM (SELECT e.updated_at AS at FROM deliveries d JOIN events e ON e.id = d.event
    WHERE d.handler = ${handler} AND d.status = 'pending' AND d.seq > ${seenSeq} ORDER BY d.seq LIMIT 1)
  UNION ALL
  SELECT * FROM (SELECT e.updated_at AS at FROM deliveries d JOIN events e ON e.id = d.event
    WHERE d.handler = ${handler} AND d.status = 'pending' AND d.change_seq > d.seq AND d.change_seq > ${seenSeq}
    ORDER BY d.change_seq LIMIT 1)))`;
// Parameters are expressions on purpose: a bare one beside an ORDER BY makes SQLite plan anew on every call.
const NEW_PENDING_AT = `SELECT ${newPendingAt("@id+0", "@seen+0")}`;

export class Handlers {
  readonly #statements: Statements;
  readonly #cursors: Cursors;
  #cursor: WorkflowCursor | undefined;
  readonly #touched = new Map<HandlerId, Touched>();

  constructor(statements: Statements, cursors: Cursors) {
    this.#statements = statements;
    this.#cursors = cursors;
  }

  begin(cursor: WorkflowCursor): void {
    this.#cursor = cursor;
    if (this.#touched.size > 0) this.#touched.clear();
  }

  /** Its deliveries have changed: it may be due at another time. */
  touch(id: HandlerId): Touched {
    let known = this.#touched.get(id);
    if (!known) {
      const row = this.#cursors.handlersOf(this.#workflow).get(id);
      if (!row) throw new Error(`a Change for handler ${id}, which does not exist`);
      known = { row, changed: false, triggerIfPending: false };
      this.#touched.set(id, known);
    }
    return known;
  }

  create(write: Extract<Write, { do: "handler.create" }>): void {
    const { id, seq } = this.#workflow;
    this.#statements
      .sql("INSERT INTO handlers (id, workflow, kind, name, ord, seen_seq) VALUES (?, ?, ?, ?, ?, ?)")
      .run(write.id, id, write.kind, write.name, write.order, seq);
    this.#cursors.addHandler(this.#workflow, write.id);
    this.set(write.id, write.set);
  }

  set(id: HandlerId, set: HandlerPatch): void {
    const touched = this.touch(id);
    const { row } = touched;
    touched.changed = true;
    if (set.state !== undefined) touched.state = set.state;
    if (set.seenSeq !== undefined) row["seen_seq"] = this.#workflow.seq;
    if (set.queued !== undefined) {
      row["queued_reason"] = set.queued?.reason ?? null;
      row["queued_at"] = set.queued?.atMs ?? null;
    }
    if (set.triggered !== undefined) {
      row["triggered_reason"] = set.triggered?.reason ?? null;
      row["triggered_at"] = set.triggered?.atMs ?? null;
    }
    if (set.wakeAtMs !== undefined) row["wake_at"] = set.wakeAtMs;
    if (set.nextRunAtMs !== undefined) row["next_run_at"] = set.nextRunAtMs;
    if (set.anchorMs !== undefined) row["anchor_at"] = set.anchorMs;
    if (set.orphaned !== undefined) row["orphaned"] = set.orphaned ? 1 : 0;
    if (set.order !== undefined) row["ord"] = set.order;
    if (set.triggerIfPending) touched.triggerIfPending = true;
  }

  /** Writes what was touched; true if the workflow may be due at another time than before. */
  end(atMs: EpochMs): boolean {
    const { seq } = this.#workflow;
    let rescheduled = false;
    for (const [id, touched] of this.#touched) {
      const { row } = touched;
      if (touched.triggerIfPending && row["triggered_at"] === null && this.#hasPending(id)) {
        row["triggered_reason"] = "more";
        row["triggered_at"] = atMs;
      }
      // Nothing lies beyond the highest sequence that exists.
      row["new_at"] = (row["seen_seq"] as number) < seq ? this.#newPendingAt(row) : null;
      const dueAtMs = handlerDueAt(handlerFromRow(row, { hasMutate: false, hasNext: false })) ?? null; // (H1)
      if (dueAtMs !== row["due_at"]) {
        row["due_at"] = dueAtMs;
        touched.changed = true;
        rescheduled = true;
      }
      if (touched.changed) this.#write(id, touched);
    }
    return rescheduled;
  }

  /** When the first of the workflow's handlers is due. */
  earliestDue(): EpochMs | undefined {
    let earliest: EpochMs | undefined;
    for (const { due_at: at } of this.#cursors.handlersOf(this.#workflow).values())
      if (at !== null && (earliest === undefined || (at as EpochMs) < earliest)) earliest = at as EpochMs;
    return earliest;
  }

  get #workflow(): WorkflowCursor {
    if (!this.#cursor) throw new Error("handlers are touched only within a Change");
    return this.#cursor;
  }

  #hasPending(id: HandlerId): boolean {
    return this.#statements.sql(ANY_PENDING).get(id) !== undefined;
  }

  #newPendingAt(row: Row): Cell {
    if (row["kind"] === "producer") return null;
    return this.#statements.sql(NEW_PENDING_AT).pluck().get({ id: row["id"], seen: row["seen_seq"] }) as Cell;
  }

  #write(id: HandlerId, { row, state }: Touched): void {
    const cells: Cell[] = state === undefined ? [] : [state];
    cells.push(
      row["ord"] as Cell,
      row["orphaned"] as Cell,
      row["seen_seq"] as Cell,
      row["queued_reason"] as Cell,
      row["queued_at"] as Cell,
      row["triggered_reason"] as Cell,
      row["triggered_at"] as Cell,
      row["wake_at"] as Cell,
      row["next_run_at"] as Cell,
      row["anchor_at"] as Cell,
      row["due_at"] as Cell,
      id,
    );
    this.#statements.sql(state === undefined ? WRITE_ALL : WRITE_WITH_STATE).run(cells);
  }
}
