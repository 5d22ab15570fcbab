/**
 * One batch off the old end of one workflow's journal, together with the rows that it was the last to speak of. What
 * stays in the tables stays in the digest of `journal.pruned`, from which `rebuild` starts (02 §10).
 *
 * Z1. Only what the journal will never speak of again is deleted: the rest of the journal still replays to the tables.
 * Z2. A chain goes whole or not at all, and only when it is closed and nobody is asked about it.
 * Z3. The entry that replaces the others has the sequence of the last of them: no gap.
 */
import type { Database } from "better-sqlite3";
import type { Entry } from "../core/journal.ts";
import { digestOf, rebuild, type Rebuilt } from "../core/rebuild.ts";
import type { Row } from "./rows.ts";

export interface Batch {
  counts: { runs: number; mutations: number; deliveries: number; journal: number };
  /** Whether another batch may find something. */
  more: boolean;
}

export interface Cut {
  workflow: number;
  /** Entries made before this are old. */
  before: number;
  nowMs: number;
  /** About how many rows the batch may touch. */
  rows: number;
}

const PRUNED = "journal.pruned";
/** More that is old and still here than this, and the journal is left as it is: its digest would grow too large. */
const MOST_CARRIED = 1_000;
const ROWS_PER_ENTRY = 2;

export function journalBatch(db: Database, cut: Cut): Batch {
  const none = { counts: { runs: 0, mutations: 0, deliveries: 0, journal: 0 }, more: false };
  const limit = Math.max(8, Math.floor(cut.rows / ROWS_PER_ENTRY));
  const rows = db
    .prepare(
      "SELECT first, count, at, verb, entries_json FROM journal WHERE workflow = ?+0 ORDER BY first LIMIT ?",
    )
    .all(cut.workflow, limit) as Row[];
  const young = rows.findIndex((row) => (row["at"] as number) >= cut.before && row["verb"] !== PRUNED);
  const old = young < 0 ? rows : rows.slice(0, young);
  const last = old.at(-1);
  if (last === undefined || last["verb"] === PRUNED) return none;
  const upTo = (last["first"] as number) + (last["count"] as number) - 1;
  const state = rebuild(old.flatMap((row) => JSON.parse(row["entries_json"] as string) as Entry[]));
  const forgettable = new Forgettable(db, state, cut, upTo);
  if (forgettable.left > MOST_CARRIED) return none;
  const gone = forgettable.forget();
  db.prepare("INSERT OR REPLACE INTO meta (key, value) VALUES ('pruning', '1')").run();
  db.prepare("DELETE FROM journal WHERE workflow = ?+0 AND first <= ?").run(cut.workflow, upTo);
  db.prepare("DELETE FROM meta WHERE key = 'pruning'").run();
  const entry: Entry = { kind: PRUNED, digest: digestOf(state), upTo };
  db.prepare(
    "INSERT INTO journal (workflow, first, count, run, verb, at, entries_json) VALUES (?, ?, 1, NULL, ?, ?, ?)",
  ).run(cut.workflow, upTo, PRUNED, cut.nowMs, JSON.stringify([entry])); // (Z3)
  return { counts: { ...gone, journal: old.length }, more: young < 0 && rows.length === limit };
}

/** What of a replayed state may go: from the tables and from the state alike. */
class Forgettable {
  readonly #db: Database;
  readonly #state: Rebuilt;
  readonly #cut: Cut;
  readonly #upTo: number;
  readonly #runs: { id: number; handler: number; endedAt: number }[] = [];
  readonly #mutations: number[] = [];
  readonly #deliveries: number[] = [];

  constructor(db: Database, state: Rebuilt, cut: Cut, upTo: number) {
    this.#db = db;
    this.#state = state;
    this.#cut = cut;
    this.#upTo = upTo;
    this.#findChains();
    this.#findDeliveries();
  }

  /** How much of the state stays. */
  get left(): number {
    const { runs, deliveries, mutations } = this.#state;
    const gone = this.#runs.length + this.#deliveries.length + this.#mutations.length;
    return runs.size + deliveries.size + mutations.size - gone;
  }

  forget(): { runs: number; mutations: number; deliveries: number } {
    const remove = (...tables: string[]) => {
      const statements = tables.map((what) => this.#db.prepare(`DELETE FROM ${what} = ?`));
      return (id: number) => {
        for (const statement of statements) statement.run(id);
      };
    };
    const { runs, mutations, deliveries, pending } = this.#state;
    const removeRun = remove("logs WHERE run", "transcripts WHERE run", "runs WHERE id");
    const removeSlots = this.#db.prepare(
      "DELETE FROM slots WHERE handler = ?+0 AND from_at <= ? AND run = ?",
    );
    for (const { id, handler, endedAt } of this.#runs) {
      removeSlots.run(handler, endedAt, id);
      removeRun(id);
      runs.delete(id);
      pending.delete(id);
    }
    const removeRow = remove(
      "sends WHERE mutation",
      "evidence WHERE mutation",
      "output_causes WHERE mutation",
      "mutations WHERE id",
    );
    for (const id of this.#mutations) {
      removeRow(id);
      mutations.delete(id);
    }
    const removeDelivery = remove("deliveries WHERE id");
    for (const id of this.#deliveries) {
      removeDelivery(id);
      deliveries.delete(id);
    }
    return {
      runs: this.#runs.length,
      mutations: this.#mutations.length,
      deliveries: this.#deliveries.length,
    };
  }

  #findChains(): void {
    const read = this.#db.prepare(
      "SELECT id, root_id, retry_of, successor, open, ended_at, handler FROM runs WHERE id = ?",
    );
    const seen = new Set<number>();
    for (const [id, face] of this.#state.runs) {
      if (face.open) continue;
      const root = (read.get(id) as Row | undefined)?.["root_id"] as number | undefined;
      if (root === undefined || seen.has(root)) continue;
      seen.add(root);
      const chain: Row[] = [];
      for (let next: number | null = root; next !== null; ) {
        const run = read.get(next) as Row | undefined;
        if (!run) break;
        chain.push(run);
        next = run["successor"] as number | null;
      }
      this.#consider(chain);
    }
  }

  /** (Z2) */
  #consider(chain: readonly Row[]): void {
    const { workflow, before } = this.#cut;
    const mentioned = this.#db
      .prepare("SELECT 1 FROM journal WHERE run = ?+0 AND first > ? AND run IS NOT NULL LIMIT 1")
      .pluck();
    const asked = this.#db
      .prepare("SELECT 1 FROM inbox WHERE workflow = ?+0 AND run = ? AND closed_at IS NULL LIMIT 1")
      .pluck();
    const ledger = this.#db.prepare("SELECT id, status FROM mutations WHERE owner_run = ?+0");
    const mutations: number[] = [];
    for (const { id, open, ended_at: endedAt } of chain) {
      const known = this.#state.runs.has(id as number);
      if (!known || open === 1 || endedAt === null || (endedAt as number) >= before) return;
      if (mentioned.get(id, this.#upTo) !== undefined) return; // (Z1)
      if (asked.get(workflow, id) !== undefined) return;
      for (const row of ledger.all(id) as Row[]) {
        if (!SETTLED.includes(row["status"] as string)) return;
        mutations.push(row["id"] as number);
      }
    }
    for (const { id, handler, ended_at: endedAt } of chain)
      this.#runs.push({ id: id as number, handler: handler as number, endedAt: endedAt as number });
    this.#mutations.push(...mutations);
  }

  /** Consumed or skipped, long ago, and as the replayed part of the journal left it (Z1). */
  #findDeliveries(): void {
    const read = this.#db.prepare("SELECT status, attempts, settled_at FROM deliveries WHERE id = ?");
    for (const [id, face] of this.#state.deliveries) {
      if (face.status !== "consumed" && face.status !== "skipped") continue;
      const row = read.get(id) as Row | undefined;
      if (row?.["status"] !== face.status || row["attempts"] !== face.attempts) continue;
      if ((row["settled_at"] as number) < this.#cut.before) this.#deliveries.push(id);
    }
  }
}

const SETTLED: readonly string[] = ["applied", "failed", "skipped"];
