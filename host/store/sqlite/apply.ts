/**
 * A Change → rows, inside the open transaction. Checks every expectation before the first write, so that a refused
 * Change has written nothing and needs no savepoint.
 *
 * Q1. Expectations first, then writes; a refusal leaves no trace. The run's revision is compared by the UPDATE that
 *     raises it, which is the first write of all.
 * Q2. Sequences are taken under the workflow's row: events, changes and journal have no gap and no double.
 * Q3. The journal entries of a Change are written with it.
 * Q4. `due_at` of a handler and of a workflow is what the core says it is, after everything else is written.
 */
import type { Database } from "better-sqlite3";
import type { Change, RunPatch, WorkflowPatch, Write } from "../../core/change.ts";
import type { OpenRunFacts } from "../../core/facts.ts";
import type { RunId } from "../../core/ids.ts";
import { type Effect, type Entry, journalOf, type Published } from "../../core/journal.ts";
import { workflowDueAt } from "../../core/trigger.ts";
import type { Applied, Refused } from "../../ports/store.ts";
import { type Row, RUN_COLUMNS } from "../rows.ts";
import { writeAccess } from "./access.ts";
import { Cursors, type WorkflowCursor } from "./cursors.ts";
import { Events } from "./events.ts";
import { refusalOf } from "./expect.ts";
import { Handlers } from "./handlers.ts";
import { Ledger } from "./ledger.ts";
import { hash, Records } from "./records.ts";
import { Statements } from "./statements.ts";

const WRITE_WORKFLOW =
  "UPDATE workflows SET revision = ?, generation = ?, seq = ?, journal_seq = ?, active_version = ?, paused = ?, archived = ?, mode = ?, consumer_streak = ?, open_run = ?, due_at = ?, updated_at = ? WHERE id = ?";
const WRITE_SEQUENCES = "UPDATE workflows SET seq = ?, journal_seq = ?, updated_at = ? WHERE id = ?";
const WRITE_JOURNAL =
  "INSERT INTO journal (workflow, first, count, run, verb, at, entries_json) VALUES (?, ?, ?, ?, ?, ?, ?)";

export class Applier {
  readonly #statements: Statements;
  readonly #cursors: Cursors;
  readonly #handlers: Handlers;
  readonly #events: Events;
  readonly #ledger: Ledger;
  readonly #records: Records;
  readonly #newId: () => number;

  constructor(db: Database, newId: () => number) {
    this.#statements = new Statements(db);
    this.#newId = newId;
    this.#cursors = new Cursors(this.#statements);
    this.#handlers = new Handlers(this.#statements, this.#cursors);
    this.#events = new Events(this.#statements, this.#handlers, newId);
    this.#ledger = new Ledger(this.#statements, newId);
    this.#records = new Records(this.#statements, newId);
  }

  /** What was written is not there any more, or somebody else has written. */
  forget(): void {
    this.#cursors.forget();
  }

  apply(change: Change): Applied | Refused {
    const cursor = this.#cursors.of(change.workflow);
    if (!cursor) return { ok: false, because: "stale-workflow" };
    const refused = refusalOf(change, cursor, this.#statements); // (Q1)
    if (refused) return refused;
    const patch = patchOf(change);
    if (!this.#setRun(change, patch)) return { ok: false, because: "stale-run" }; // (Q1)
    const effects = new Map<Write, Effect>();
    this.#handlers.begin(cursor);
    this.#events.begin();
    this.#ledger.begin(change.writes);
    for (const write of change.writes) this.#write(change, write, cursor, effects);
    const rescheduled = this.#handlers.end(change.atMs); // (Q4)
    this.#journal(change, cursor, journalOf(change, effects, hash)); // (Q3)
    const moved = patch?.status !== undefined || patch?.readyAtMs !== undefined;
    this.#writeWorkflow(change, cursor, cursor.touched || rescheduled || moved);
    const published: Published[] = [];
    for (const effect of effects.values()) if (effect.of === "publish") published.push(effect.published);
    const applied: Applied = { ok: true, workflowRevision: cursor.revision, seq: cursor.seq, published };
    if (change.expect.run) applied.runRevision = change.expect.run.revision + 1;
    return applied;
  }

  /** All steps of one run in one Change are one UPDATE and one revision. */
  #setRun({ expect: { run } }: Change, patch: RunPatch | undefined): boolean {
    if (!run) return true;
    const fixed = "revision = revision + 1 WHERE id = ? AND revision = ?";
    return this.#statements.update("runs", RUN_COLUMNS, patch ?? {}, fixed, [run.id, run.revision]) === 1;
  }

  #write(change: Change, write: Write, cursor: WorkflowCursor, effects: Map<Write, Effect>): void {
    switch (write.do) {
      case "run.set":
      case "unit.dispatched":
      case "unit.ended":
        return;
      case "run.create":
        this.#statements.insert("runs", RUN_COLUMNS, write.run, "namespace", cursor.namespace);
        return;
      case "mutation.create":
      case "mutation.set":
      case "send.create":
      case "send.end":
      case "evidence":
        return this.#ledger.write(write, cursor.id, change.atMs);
      case "deliveries":
      case "deliveries.handover":
      case "delivery.renew":
      case "orphans.move":
      case "orphans.skip":
      case "publish":
      case "input": {
        const effect = this.#events.write(write, cursor, change.atMs); // (Q2)
        if (effect) effects.set(write, effect);
        return;
      }
      case "handler.create":
        return this.#handlers.create(write);
      case "handler.set":
        return this.#handlers.set(write.id, write.set);
      case "workflow.set":
        this.#setWorkflow(cursor.id, write.set, change.atMs);
        return setCursor(cursor, write.set);
      case "bind":
      case "grant":
        // Whoever has looked at what is granted looks again.
        cursor.touched = true;
        return writeAccess(this.#statements, cursor.id, write, this.#newId);
      case "slot":
      case "version.create":
      case "inbox.open":
      case "inbox.close":
      case "audit":
      case "outbox":
      case "transcript":
      case "logs":
        return this.#records.write(write, { workflow: cursor.id, namespace: cursor.namespace }, change.atMs);
    }
  }

  /** What the cursor does not keep. */
  #setWorkflow(workflow: number, set: WorkflowPatch, atMs: number): void {
    const { approvals, params, labels, activeVersion } = set;
    const write = (column: string, text: string) =>
      this.#statements.sql(`UPDATE workflows SET ${column} = ? WHERE id = ?`).run(text, workflow);
    if (approvals) write("approvals_json", JSON.stringify(approvals));
    if (params !== undefined) write("params_json", params);
    if (labels !== undefined) write("labels_json", labels);
    if (activeVersion === undefined) return;
    this.#statements
      .sql("UPDATE versions SET activated_at = ? WHERE workflow = ? AND number = ? AND activated_at IS NULL")
      .run(atMs, workflow, activeVersion);
  }

  /** Most steps move nothing but the sequences; what decides when the workflow is due is looked at only if it moved. */
  #writeWorkflow(change: Change, cursor: WorkflowCursor, moved: boolean): void {
    if (cursor.touched) cursor.revision++;
    if (moved) cursor.dueAtMs = this.#dueAt(change, cursor); // (Q4)
    if (!moved) {
      this.#statements.sql(WRITE_SEQUENCES).run(cursor.seq, cursor.journalSeq, change.atMs, cursor.id);
      return;
    }
    this.#statements
      .sql(WRITE_WORKFLOW)
      .run(
        cursor.revision,
        cursor.generation,
        cursor.seq,
        cursor.journalSeq,
        cursor.activeVersion,
        cursor.paused ? 1 : 0,
        cursor.archived ? 1 : 0,
        cursor.mode,
        cursor.consumerStreak,
        cursor.openRun,
        cursor.dueAtMs,
        change.atMs,
        cursor.id,
      );
  }

  #dueAt(change: Change, cursor: WorkflowCursor): number | null {
    const { paused, archived } = cursor;
    if (cursor.openRun !== null) {
      const openRun = this.#openRun(change, cursor.openRun);
      return workflowDueAt({ paused, archived, openRun }) ?? null;
    }
    return workflowDueAt({ paused, archived, earliestHandlerDueMs: this.#handlers.earliestDue() }) ?? null;
  }

  #openRun({ writes }: Change, id: RunId): OpenRunFacts {
    const created = writes.find((write) => write.do === "run.create" && write.run.id === id);
    if (created?.do === "run.create" && created.run.status === "active") return { id, active: true };
    const row = this.#statements.sql("SELECT status, ready_at FROM runs WHERE id = ?").get(id) as Row;
    const readyAtMs = row["ready_at"] as number | null;
    return { id, active: row["status"] === "active", ...(readyAtMs === null ? {} : { readyAtMs }) };
  }

  #journal(change: Change, cursor: WorkflowCursor, entries: readonly Entry[]): void {
    const write = this.#statements.sql(WRITE_JOURNAL);
    for (const { run, part } of byRun(entries)) {
      const first = cursor.journalSeq + 1;
      write.run(cursor.id, first, part.length, run ?? null, change.verb, change.atMs, JSON.stringify(part));
      cursor.journalSeq += part.length;
    }
  }
}

/** What all steps of the run at stake set, together. */
function patchOf({ writes }: Change): RunPatch | undefined {
  let patch: RunPatch | undefined;
  for (const write of writes)
    if (write.do === "run.set") patch = patch ? { ...patch, ...write.set } : write.set;
  return patch;
}

function setCursor(cursor: WorkflowCursor, set: WorkflowPatch): void {
  cursor.touched = true;
  if (set.openRun !== undefined) cursor.openRun = set.openRun;
  if (set.consumerStreak !== undefined) cursor.consumerStreak = set.consumerStreak;
  if (set.paused !== undefined) cursor.paused = set.paused;
  if (set.archived !== undefined) cursor.archived = set.archived;
  if (set.activeVersion !== undefined) cursor.activeVersion = set.activeVersion;
  if (set.mode !== undefined) cursor.mode = set.mode;
  if (set.deployed) cursor.generation++;
}

/** Consecutive entries of one run share a row; entries that name no run travel with their neighbours. */
function byRun(entries: readonly Entry[]): { run: RunId | undefined; part: Entry[] }[] {
  const parts: { run: RunId | undefined; part: Entry[] }[] = [];
  let last: (typeof parts)[number] | undefined;
  for (const entry of entries) {
    const run = "run" in entry ? entry.run : undefined;
    if (last && (run === undefined || last.run === undefined || last.run === run)) {
      last.part.push(entry);
      last.run ??= run;
    } else parts.push((last = { run, part: [entry] }));
  }
  return parts;
}
