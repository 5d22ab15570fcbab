/**
 * Forgets what is old (02 §10, 10): payloads, then records with their journal, then the memory of messageIds; logs and
 * transcripts on their own clocks. In small batches between the turns of the loop, each by a cursor on a key.
 *
 * X1. Nothing open is forgotten: no open chain, no delivery that is pending, reserved or dead, nothing an open inbox
 *     item is about. The audit stays for good.
 * X2. A batch is small, and smaller after one that took long: whoever writes never waits for long.
 * X3. A messageId outlives its payload: published again, it is still recognised.
 */
import { type Batch, journalBatch } from "./prune-journal.ts";
import type { SqliteStore } from "./open.ts";
import type { Row } from "./rows.ts";

export interface RetentionPolicy {
  /** Runs, their journal, and the settled ledger. */
  recordsMs: number;
  /** Payloads of events that everybody is done with. */
  payloadsMs: number;
  /** How long a messageId is recognised after it was last seen. */
  tombstonesMs: number;
  logsMs: number;
  transcriptsMs: number;
}

const DAY_MS = 86_400_000;

export const RETENTION: RetentionPolicy = {
  recordsMs: 90 * DAY_MS,
  payloadsMs: 30 * DAY_MS,
  tombstonesMs: 365 * DAY_MS,
  logsMs: 14 * DAY_MS,
  transcriptsMs: 7 * DAY_MS,
};

export interface Pruned {
  runs: number;
  mutations: number;
  deliveries: number;
  journal: number;
  payloads: number;
  tombstones: number;
  logs: number;
  transcripts: number;
  blobs: number;
  inbox: number;
  pages: number;
  /** The longest that one batch held the writer. */
  longestMs: number;
}

type Kind = Exclude<keyof Pruned, "longestMs">;

const ROWS = 500;
const FEWEST_ROWS = 25;
const AIM_MS = 15;
const VACUUM_PAGES = 500;

/** One cursor's walk: a batch from where it stands; `undefined` when it is through. */
type Step<Cursor> = (from: Cursor, rows: number) => { counts: Partial<Record<Kind, number>>; next?: Cursor };

export async function prune(
  store: Pick<SqliteStore, "db" | "maintain">,
  policy: RetentionPolicy,
  nowMs: number,
): Promise<Pruned> {
  const pruner = new Pruner(store);
  const { recordsMs, payloadsMs, logsMs, transcriptsMs } = policy;
  // A messageId is recognised at least as long as the journal speaks of it.
  const tombstonesMs = Math.max(policy.tombstonesMs, recordsMs, payloadsMs);
  await pruner.payloads(nowMs - payloadsMs);
  await pruner.records(nowMs - recordsMs, nowMs);
  await pruner.tombstones(nowMs - tombstonesMs);
  await pruner.logs(nowMs - logsMs);
  await pruner.transcripts(nowMs - transcriptsMs);
  await pruner.blobs(nowMs - transcriptsMs);
  await pruner.inbox(nowMs - recordsMs);
  await pruner.vacuum();
  return pruner.done;
}

/** For a host's quiet hours: everything that is too old, unless the host is over. True when it was cut short. */
export async function tidyUp(store: SqliteStore, nowMs: number, isOver: () => boolean): Promise<boolean> {
  class Over extends Error {}
  const maintain: SqliteStore["maintain"] = (work, level) => {
    if (isOver()) throw new Over();
    return store.maintain(work, level);
  };
  try {
    await prune({ db: store.db, maintain }, RETENTION, nowMs);
    return false;
  } catch (error) {
    if (error instanceof Over) return true;
    throw error;
  }
}

class Pruner {
  readonly #store: Pick<SqliteStore, "db" | "maintain">;
  #rows = ROWS;
  readonly done: Pruned = {
    runs: 0,
    mutations: 0,
    deliveries: 0,
    journal: 0,
    payloads: 0,
    tombstones: 0,
    logs: 0,
    transcripts: 0,
    blobs: 0,
    inbox: 0,
    pages: 0,
    longestMs: 0,
  };

  constructor(store: Pick<SqliteStore, "db" | "maintain">) {
    this.#store = store;
  }

  /** Emptied, not deleted (X3); with them the payloads that newer ones had replaced. */
  payloads(before: number): Promise<void> {
    const { db } = this.#store;
    const page = db.prepare(
      "SELECT id, payload_json IS NULL AS empty, updated_at AS at FROM events WHERE id > ? ORDER BY id LIMIT ?",
    );
    const held = db
      .prepare(
        "SELECT 1 FROM deliveries WHERE event = ?+0 AND (status IN ('pending', 'reserved', 'dead') OR settled_at >= ?) LIMIT 1",
      )
      .pluck();
    const empty = db.prepare("UPDATE events SET payload_json = NULL WHERE id = ?");
    const forget = db.prepare("DELETE FROM revisions WHERE event = ?");
    return this.#walk(0, (from, rows) => {
      const events = page.all(from, rows) as Row[];
      let payloads = 0;
      for (const { id, empty: already, at } of events) {
        if (already === 1 || (at as number) >= before || held.get(id, before) !== undefined) continue; // (X1)
        empty.run(id);
        forget.run(id);
        payloads++;
      }
      return { counts: { payloads }, ...nextOf(events, rows, "id") };
    });
  }

  /** Workflow by workflow, the oldest entries of the journal first, with the rows that they were about. */
  async records(before: number, nowMs: number): Promise<void> {
    const { db } = this.#store;
    const page = db.prepare("SELECT id FROM workflows WHERE id > ? ORDER BY id LIMIT ?").pluck();
    const oldest = db
      .prepare(
        "SELECT at FROM journal WHERE workflow = ?+0 AND verb <> 'journal.pruned' ORDER BY first LIMIT 1",
      )
      .pluck();
    for (let after = 0; ; ) {
      const ids = page.all(after, ROWS) as number[];
      for (const workflow of ids) {
        const at = oldest.get(workflow) as number | undefined;
        if (at !== undefined && at < before)
          await this.#walk<number>(0, (_, rows) =>
            progress(journalBatch(db, { workflow, before, nowMs, rows })),
          );
      }
      if (ids.length < ROWS) return;
      after = ids.at(-1) as number;
    }
  }

  /** Events without payload and deliveries that nobody has published for the whole horizon. */
  tombstones(before: number): Promise<void> {
    const { db } = this.#store;
    const page = db.prepare(
      "SELECT id, workflow, payload_json IS NULL AS empty, updated_at AS updated, seen_at AS seen FROM events WHERE id > ? ORDER BY id LIMIT ?",
    );
    const held = db.prepare("SELECT 1 FROM deliveries WHERE event = ?+0 LIMIT 1").pluck();
    const told = db
      .prepare(
        "SELECT at FROM journal WHERE workflow = ?+0 AND verb <> 'journal.pruned' ORDER BY first LIMIT 1",
      )
      .pluck();
    const forget = ["causes WHERE event", "revisions WHERE event", "events WHERE id"].map((what) =>
      db.prepare(`DELETE FROM ${what} = ?`),
    );
    return this.#walk(0, (from, rows) => {
      const events = page.all(from, rows) as Row[];
      let tombstones = 0;
      for (const { id, workflow, empty, updated, seen } of events) {
        if (empty !== 1 || (seen as number) >= before || held.get(id) !== undefined) continue;
        const journalFrom = told.get(workflow) as number | undefined;
        if (journalFrom !== undefined && journalFrom <= (updated as number)) continue;
        for (const statement of forget) statement.run(id);
        tombstones++;
      }
      return { counts: { tombstones }, ...nextOf(events, rows, "id") };
    });
  }

  logs(before: number): Promise<void> {
    const { db } = this.#store;
    const page = db.prepare(
      `SELECT id, at, ${ABOUT_OPEN_WORK} AS open FROM logs o WHERE id > ? ORDER BY id LIMIT ?`,
    );
    const forget = db.prepare("DELETE FROM logs WHERE id = ?");
    return this.#walk(0, (from, rows) => {
      const lines = page.all(from, rows) as Row[];
      const old = lines.filter(({ at, open }) => (at as number) < before && open === 0); // (X1)
      for (const { id } of old) forget.run(id);
      const { next } = nextOf(lines, rows, "id");
      // Ids rise with time: a page of nothing but young lines ends the walk.
      const some = lines.some(({ at }) => (at as number) < before);
      return { counts: { logs: old.length }, ...(next !== undefined && some ? { next } : {}) };
    });
  }

  transcripts(before: number): Promise<void> {
    const { db } = this.#store;
    const page = db.prepare(
      `SELECT run, unit, at, ${ABOUT_OPEN_WORK} AS open FROM transcripts o
       WHERE at < @before AND (at, run, unit) > (@at, @run, @unit) ORDER BY at, run, unit LIMIT @rows`,
    );
    const forget = db.prepare("DELETE FROM transcripts WHERE run = ? AND unit = ?");
    return this.#walk({ at: 0, run: 0, unit: "" }, (from, rows) => {
      const found = page.all({ ...from, before, rows }) as Row[];
      const old = found.filter(({ open }) => open === 0); // (X1)
      for (const { run, unit } of old) forget.run(run, unit);
      const last = found.length < rows ? undefined : (found.at(-1) as typeof from | undefined);
      return {
        counts: { transcripts: old.length },
        ...(last ? { next: { at: last.at, run: last.run, unit: last.unit } } : {}),
      };
    });
  }

  /** Bodies that no transcript names any more. What is left of old transcripts is about open work. */
  blobs(before: number): Promise<void> {
    const { db } = this.#store;
    const kept = new Set(db.prepare("SELECT blob FROM transcripts WHERE at < ?").pluck().all(before));
    const page = db.prepare(
      "SELECT used_at AS at, hash FROM blobs WHERE used_at < @before AND (used_at, hash) > (@at, @hash) ORDER BY used_at, hash LIMIT @rows",
    );
    const forget = db.prepare("DELETE FROM blobs WHERE hash = ?");
    return this.#walk({ at: 0, hash: "" }, (from, rows) => {
      const found = page.all({ ...from, before, rows }) as { at: number; hash: string }[];
      const orphans = found.filter(({ hash }) => !kept.has(hash));
      for (const { hash } of orphans) forget.run(hash);
      const last = found.length < rows ? undefined : found.at(-1);
      return { counts: { blobs: orphans.length }, ...(last ? { next: last } : {}) };
    });
  }

  inbox(before: number): Promise<void> {
    const { db } = this.#store;
    const page = db.prepare("SELECT id, closed_at AS at FROM inbox WHERE id > ? ORDER BY id LIMIT ?");
    const forget = db.prepare("DELETE FROM inbox WHERE id = ?");
    return this.#walk(0, (from, rows) => {
      const items = page.all(from, rows) as Row[];
      const old = items.filter(({ at }) => at !== null && (at as number) < before);
      for (const { id } of old) forget.run(id);
      return { counts: { inbox: old.length }, ...nextOf(items, rows, "id") };
    });
  }

  /** Gives free pages back to the file system. */
  vacuum(): Promise<void> {
    const { db } = this.#store;
    const free = () => db.pragma("freelist_count", { simple: true }) as number;
    return this.#walk(free(), (before) => {
      if (before === 0) return { counts: {} };
      db.pragma(`incremental_vacuum(${VACUUM_PAGES})`);
      const left = free();
      return { counts: { pages: before - left }, ...(left > 0 && left < before ? { next: left } : {}) };
    });
  }

  async #walk<Cursor>(from: Cursor, step: Step<Cursor>): Promise<void> {
    for (let cursor: Cursor | undefined = from; cursor !== undefined; ) {
      const at: Cursor = cursor;
      const { counts, next, ms } = await this.#store.maintain(() => {
        const startedMs = performance.now();
        const made = step(at, this.#rows);
        return { ...made, ms: performance.now() - startedMs };
      });
      for (const kind in counts) this.done[kind as Kind] += counts[kind as Kind] ?? 0;
      this.done.longestMs = Math.max(this.done.longestMs, ms);
      if (ms > AIM_MS)
        this.#rows = Math.max(FEWEST_ROWS, Math.floor(this.#rows / 2)); // (X2)
      else if (ms < AIM_MS / 4) this.#rows = Math.min(ROWS, this.#rows * 2);
      cursor = next;
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
  }
}

const ABOUT_OPEN_WORK = "EXISTS (SELECT 1 FROM runs r WHERE r.id = o.run AND r.open = 1)";

function nextOf(rows: readonly Row[], asked: number, key: string): { next?: number } {
  return rows.length < asked ? {} : { next: rows.at(-1)?.[key] as number };
}

const progress = ({ counts, more }: Batch) => ({ counts, ...(more ? { next: 0 } : {}) });
