/**
 * A Change → rows, inside the open transaction. Checks every expectation before the first write, so that a refused
 * Change has written nothing and needs no savepoint.
 *
 * Q1. Expectations first, then writes; a refusal leaves no trace.
 * Q2. Sequences are taken under the workflow's row: events, changes and journal have no gap and no double.
 * Q3. The journal entries of a Change are written with it.
 * Q4. `due_at` of a handler and of a workflow is what the core says it is, after everything else is written.
 */
import type { Database } from "better-sqlite3";
import type { Change, HandlerPatch, RunPatch, Write } from "../../core/change.ts";
import type { HandlerId, RunId } from "../../core/ids.ts";
import { type Effect, type Entry, journalOf, type Published } from "../../core/journal.ts";
import { handlerDueAt, workflowDueAt } from "../../core/trigger.ts";
import type { Applied, Refused } from "../../ports/store.ts";
import { type Cell, handlerFromRow, MUTATION_COLUMNS, type Row, RUN_COLUMNS } from "../rows.ts";
import { Events } from "./events.ts";
import { refusalOf } from "./expect.ts";
import { hash, Records } from "./records.ts";
import { Statements } from "./statements.ts";

/** The workflow's own row while a Change is applied: read once, written once. */
export interface WorkflowCursor {
  id: number;
  namespace: number;
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
  touched: boolean;
  generationRaised: boolean;
}

export class Applier {
  readonly #statements: Statements;
  readonly #events: Events;
  readonly #records: Records;
  readonly #newId: () => number;

  constructor(db: Database, newId: () => number) {
    this.#statements = new Statements(db);
    this.#newId = newId;
    this.#events = new Events(this.#statements, newId);
    this.#records = new Records(this.#statements, newId);
  }

  apply(change: Change): Applied | Refused {
    const cursor = this.#cursor(change.workflow);
    if (!cursor) return { ok: false, because: "stale-workflow" };
    const refused = refusalOf(change, cursor, this.#statements); // (Q1)
    if (refused) return refused;
    const effects = new Map<Write, Effect>();
    const handlers = new Set<HandlerId>();
    this.#runs(change);
    for (const write of change.writes) this.#write(change, write, cursor, effects, handlers);
    for (const write of change.writes)
      if (write.do === "handler.set" || write.do === "handler.create") this.#retrigger(write, change.atMs);
    for (const id of handlers) this.#handlerDue(id);
    this.#journal(change, cursor, journalOf(change, effects, hash)); // (Q3)
    this.#workflow(change, cursor);
    const published: Published[] = [];
    for (const effect of effects.values()) if (effect.of === "publish") published.push(effect.published);
    const { run } = change.expect;
    return {
      ok: true,
      workflowRevision: cursor.revision,
      seq: cursor.seq,
      published,
      ...(run ? { runRevision: run.revision + 1 } : {}),
    };
  }

  #cursor(id: number): WorkflowCursor | undefined {
    const row = this.#statements
      .sql(
        "SELECT namespace, revision, generation, seq, journal_seq, paused, archived, open_run, consumer_streak, active_version, mode FROM workflows WHERE id = ?",
      )
      .get(id) as Row | undefined;
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
      touched: false,
      generationRaised: false,
    };
  }

  /** All steps of one run in one Change are one UPDATE and one revision; the old run gives way before the new one opens. */
  #runs(change: Change): void {
    const patches = new Map<RunId, RunPatch>();
    if (change.expect.run) patches.set(change.expect.run.id, {});
    for (const write of change.writes)
      if (write.do === "run.set") patches.set(write.id, { ...patches.get(write.id), ...write.set });
    for (const [id, patch] of patches) {
      const rows = this.#statements.update(
        "runs",
        RUN_COLUMNS,
        patch,
        "revision = revision + 1 WHERE id = ?",
        [id],
      );
      if (rows !== 1) throw new Error(`a Change for run ${id}, which does not exist`);
    }
    for (const write of change.writes)
      if (write.do === "run.create") this.#statements.insert("runs", RUN_COLUMNS, write.run);
  }

  #write(
    { atMs }: Change,
    write: Write,
    cursor: WorkflowCursor,
    effects: Map<Write, Effect>,
    handlers: Set<HandlerId>,
  ): void {
    switch (write.do) {
      case "run.set":
      case "run.create":
      case "unit.dispatched":
      case "unit.ended":
        return;
      case "mutation.create":
      case "mutation.set":
      case "send.create":
      case "send.end":
      case "evidence":
        return this.#ledger(write, cursor.id, atMs);
      case "deliveries":
      case "deliveries.handover":
      case "delivery.renew":
      case "orphans.move":
      case "orphans.skip":
      case "publish":
      case "input": {
        const effect = this.#events.write(write, cursor, atMs, handlers); // (Q2)
        if (effect) effects.set(write, effect);
        return;
      }
      case "handler.create":
        this.#createHandler(write, cursor);
        handlers.add(write.id);
        return;
      case "handler.set":
        this.#setHandler(write.id, write.set, cursor);
        handlers.add(write.id);
        return;
      case "workflow.set":
        return this.#setCursor(cursor, write.set);
      case "slot":
      case "version.create":
      case "inbox.open":
      case "inbox.close":
      case "audit":
      case "outbox":
      case "transcript":
      case "logs":
        return this.#records.write(write, { workflow: cursor.id, namespace: cursor.namespace }, atMs);
    }
  }

  #ledger(
    write: Extract<
      Write,
      { do: "mutation.create" | "mutation.set" | "send.create" | "send.end" | "evidence" }
    >,
    workflow: number,
    atMs: number,
  ): void {
    const statements = this.#statements;
    switch (write.do) {
      case "mutation.create":
        return statements.insert("mutations", MUTATION_COLUMNS, write.mutation, { workflow });
      case "mutation.set":
        if (
          statements.update("mutations", MUTATION_COLUMNS, write.set, "id = id WHERE id = ?", [write.id]) !==
          1
        )
          throw new Error(`a Change for ledger row ${write.id}, which does not exist`);
        return;
      case "send.create": {
        const { n, atMs: sentAtMs, bytesHash, idempotencyKey } = write.send;
        statements
          .sql(
            "INSERT INTO sends (mutation, n, run, at, bytes_hash, idempotency_key) VALUES (?, ?, ?, ?, ?, ?)",
          )
          .run(write.mutation, n, write.run, sentAtMs, bytesHash, idempotencyKey);
        return;
      }
      case "send.end":
        statements
          .sql("UPDATE sends SET ended_at = ?, answer_json = ? WHERE mutation = ? AND n = ?")
          .run(write.endedAtMs, write.answer, write.mutation, write.n);
        return;
      case "evidence":
        statements
          .sql("INSERT INTO evidence (id, mutation, run, what, detail_json, at) VALUES (?, ?, ?, ?, ?, ?)")
          .run(this.#newId(), write.mutation, write.run, write.what, write.detail, atMs);
    }
  }

  #createHandler(write: Extract<Write, { do: "handler.create" }>, cursor: WorkflowCursor): void {
    this.#statements
      .sql("INSERT INTO handlers (id, workflow, kind, name, ord, seen_seq) VALUES (?, ?, ?, ?, ?, ?)")
      .run(write.id, cursor.id, write.kind, write.name, write.order, cursor.seq);
    this.#setHandler(write.id, write.set, cursor);
  }

  #setHandler(id: HandlerId, set: HandlerPatch, cursor: WorkflowCursor): void {
    const columns: string[] = [];
    const cells: Cell[] = [];
    const put = (column: string, cell: Cell) => {
      columns.push(`${column} = ?`);
      cells.push(cell);
    };
    if (set.state !== undefined) put("state_json", set.state);
    if (set.seenSeq !== undefined) put("seen_seq", cursor.seq);
    if (set.queued !== undefined) {
      put("queued_reason", set.queued?.reason ?? null);
      put("queued_at", set.queued?.atMs ?? null);
    }
    if (set.triggered !== undefined) {
      put("triggered_reason", set.triggered?.reason ?? null);
      put("triggered_at", set.triggered?.atMs ?? null);
    }
    if (set.wakeAtMs !== undefined) put("wake_at", set.wakeAtMs);
    if (set.nextRunAtMs !== undefined) put("next_run_at", set.nextRunAtMs);
    if (set.anchorMs !== undefined) put("anchor_at", set.anchorMs);
    if (set.orphaned !== undefined) put("orphaned", set.orphaned ? 1 : 0);
    if (set.order !== undefined) put("ord", set.order);
    if (columns.length === 0) return;
    this.#statements.sql(`UPDATE handlers SET ${columns.join(", ")} WHERE id = ?`).run([...cells, id]);
  }

  #retrigger(write: Extract<Write, { do: "handler.set" | "handler.create" }>, atMs: number): void {
    if (!write.set.triggerIfPending) return;
    this.#statements
      .sql(
        "UPDATE handlers SET triggered_reason = 'more', triggered_at = @at WHERE id = @id AND triggered_at IS NULL AND EXISTS (SELECT 1 FROM deliveries WHERE handler = @id AND status = 'pending')",
      )
      .run({ at: atMs, id: write.id });
  }

  #handlerDue(id: HandlerId): void {
    const row = this.#statements
      .sql(
        `SELECT *, (SELECT e.updated_at FROM deliveries d JOIN events e ON e.id = d.event
           WHERE d.handler = handlers.id AND d.status = 'pending' AND d.change_seq > handlers.seen_seq
           ORDER BY d.change_seq LIMIT 1) AS new_at FROM handlers WHERE id = ?`,
      )
      .get(id) as Row;
    const dueAtMs = handlerDueAt(handlerFromRow(row, { hasMutate: false, hasNext: false })) ?? null; // (Q4)
    if (dueAtMs !== row["due_at"])
      this.#statements.sql("UPDATE handlers SET due_at = ? WHERE id = ?").run(dueAtMs, id);
  }

  #setCursor(cursor: WorkflowCursor, set: Extract<Write, { do: "workflow.set" }>["set"]): void {
    cursor.touched = true;
    if (set.openRun !== undefined) cursor.openRun = set.openRun;
    if (set.consumerStreak !== undefined) cursor.consumerStreak = set.consumerStreak;
    if (set.paused !== undefined) cursor.paused = set.paused;
    if (set.archived !== undefined) cursor.archived = set.archived;
    if (set.activeVersion !== undefined) cursor.activeVersion = set.activeVersion;
    if (set.mode !== undefined) cursor.mode = set.mode;
    if (set.deployed) cursor.generation++;
  }

  #workflow(change: Change, cursor: WorkflowCursor): void {
    if (cursor.touched) cursor.revision++;
    const open =
      cursor.openRun === null
        ? undefined
        : (this.#statements
            .sql("SELECT id, status, ready_at FROM runs WHERE id = ?")
            .get(cursor.openRun) as Row);
    const earliest = open
      ? undefined
      : (this.#statements.sql("SELECT min(due_at) FROM handlers WHERE workflow = ?").pluck().get(cursor.id) as
          | number
          | null);
    const dueAtMs = workflowDueAt({
      paused: cursor.paused,
      archived: cursor.archived,
      openRun: open && {
        id: open["id"] as number,
        active: open["status"] === "active",
        ...(open["ready_at"] === null ? {} : { readyAtMs: open["ready_at"] as number }),
      },
      earliestHandlerDueMs: earliest ?? undefined,
    }); // (Q4)
    this.#statements
      .sql(
        "UPDATE workflows SET revision = ?, generation = ?, seq = ?, journal_seq = ?, active_version = ?, paused = ?, archived = ?, mode = ?, consumer_streak = ?, open_run = ?, due_at = ?, updated_at = ? WHERE id = ?",
      )
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
        dueAtMs ?? null,
        change.atMs,
        cursor.id,
      );
  }

  #journal(change: Change, cursor: WorkflowCursor, entries: Entry[]): void {
    for (const { run, part } of byRun(entries)) {
      this.#statements
        .sql(
          "INSERT INTO journal (workflow, first, count, run, verb, at, entries_json) VALUES (?, ?, ?, ?, ?, ?, ?)",
        )
        .run(
          cursor.id,
          cursor.journalSeq + 1,
          part.length,
          run ?? null,
          change.verb,
          change.atMs,
          JSON.stringify(part),
        );
      cursor.journalSeq += part.length;
    }
  }
}

/** Consecutive entries of one run share a row; entries that name no run travel with their neighbours. */
function byRun(entries: readonly Entry[]): { run: RunId | undefined; part: Entry[] }[] {
  const parts: { run: RunId | undefined; part: Entry[] }[] = [];
  for (const entry of entries) {
    const run = "run" in entry ? entry.run : undefined;
    const last = parts.at(-1);
    if (last && (run === undefined || last.run === undefined || last.run === run)) {
      last.part.push(entry);
      last.run ??= run;
    } else parts.push({ run, part: [entry] });
  }
  return parts;
}
