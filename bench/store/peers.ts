/**
 * Who we are measured against.
 *
 * P1. The raw loop replays what the store wrote, statement by statement with the same parameters and the same groups,
 *     onto a copy of the same database. Only writes: nothing is decided, read, hashed or waited for.
 * P2. The naive way decides, reads and writes as we do, through the same code, but commits each transition by itself, at
 *     FULL, before it goes on.
 * P3. plainjob is left as it comes; only its log is silenced.
 */
import { join } from "node:path";
import { better, defineQueue, defineWorker } from "plainjob";
import Sqlite, { type Database, type Statement } from "better-sqlite3";
import type { Change } from "../../host/core/change.ts";
import { Applier } from "../../host/store/sqlite/apply.ts";
import { Reads } from "../../host/store/sqlite/reads.ts";
import { allRuns, type Ground, type OneByOne } from "./job.ts";

export interface Step {
  sql: string;
  /** In the form in which they were given: a list, or by name. */
  cells: unknown;
}

/** What the store did, in order; one entry per Change, and where its transactions ended. */
export interface Recording {
  transitions: { steps: Step[]; endsGroup: boolean }[];
  runs: number;
}

type Run = (...cells: unknown[]) => unknown;

/** Makes every run once, with an ear at the statements. */
export async function record(ground: Ground, runsEach: number): Promise<Recording> {
  await using store = ground.open();
  const transitions: Recording["transitions"] = [];
  const statement = Object.getPrototypeOf(store.db.prepare("SELECT 1")) as { run: Run };
  const { run } = statement;
  statement.run = function heard(this: Statement, ...cells) {
    const last = transitions.at(-1);
    if (this.source === "COMMIT" && last) last.endsGroup = true;
    if (!/^(BEGIN|COMMIT)/.test(this.source))
      last?.steps.push({
        sql: this.source,
        cells: typeof cells[0] === "object" && cells[0] ? cells[0] : cells,
      }); // (P1)
    return run.apply(this, cells);
  };
  try {
    await allRuns(store, ground, runsEach, {
      watch: () => transitions.push({ steps: [], endsGroup: false }),
    });
  } finally {
    statement.run = run;
  }
  return { transitions, runs: ground.workflows.length * runsEach };
}

/** A rate, and how many rows one of what it counts has changed. */
interface Rate {
  perSecond: number;
  rows: number;
}

const rowsChanged = (db: Database): number => db.prepare("SELECT total_changes()").pluck().get() as number;

/** Runs per second without us (P1): NORMAL, no fsync at all. */
export function replay(ground: Ground, { transitions, runs }: Recording): Rate {
  const db = openRaw(join(ground.copy(), "pawl.db"), "NORMAL");
  const prepared = new Map<string, Statement>();
  const statementOf = (sql: string): Statement => {
    const known = prepared.get(sql) ?? db.prepare(sql);
    prepared.set(sql, known);
    return known;
  };
  const script = transitions.map(({ steps, endsGroup }) => ({
    steps: steps.map(({ sql, cells }) => ({ statement: statementOf(sql), cells })),
    endsGroup,
  }));
  const [begin, end] = [db.prepare("BEGIN IMMEDIATE"), db.prepare("COMMIT")];
  const startMs = performance.now();
  let open = false;
  for (const { steps, endsGroup } of script) {
    if (!open) begin.run();
    for (const { statement, cells } of steps) statement.run(cells);
    if (endsGroup) end.run();
    open = !endsGroup;
  }
  if (open) end.run();
  const tookMs = performance.now() - startMs;
  const rows = rowsChanged(db) / runs;
  db.close();
  return { perSecond: (runs / tookMs) * 1000, rows };
}

/** Runs per second the naive way (P2). */
export async function naive(ground: Ground, runsEach: number): Promise<number> {
  const db = openRaw(join(ground.copy(), "pawl.db"), "FULL");
  const reads = new Reads(db);
  let lastId = 1_000_000_000;
  const newId = (): number => ++lastId;
  const applier = new Applier(db, newId);
  const transition = db.transaction((change: Change) => applier.apply(change));
  const store: OneByOne = {
    fence: { incarnation: 1, epoch: 1 },
    newId,
    apply: async (change) => transition.immediate(change),
    workflow: async (id) => reads.workflow(id),
    pending: async (handler, topic, options) => reads.pending(handler, topic, options),
  };
  const startMs = performance.now();
  await allRuns(store, ground, runsEach, { apart: true });
  const tookMs = performance.now() - startMs;
  db.close();
  return ((ground.workflows.length * runsEach) / tookMs) * 1000;
}

function openRaw(file: string, synchronous: "NORMAL" | "FULL"): Database {
  const db = new Sqlite(file);
  for (const pragma of [
    "cache_size = -65536",
    "temp_store = MEMORY",
    "foreign_keys = ON",
    "journal_mode = WAL",
    "wal_autocheckpoint = 16000",
    `synchronous = ${synchronous}`,
  ])
    db.pragma(pragma);
  return db;
}

const SILENT = { error() {}, warn() {}, info() {}, debug() {} };

/** Jobs added one by one, then taken, done and marked by its worker: jobs per second over both (P3). */
export async function plainjob(
  folder: string,
  jobs: number,
  synchronous?: "FULL",
): Promise<Rate & { setting: string }> {
  const db = new Sqlite(join(folder, "jobs.db"));
  const queue = defineQueue({ connection: better(db), logger: SILENT });
  if (synchronous) db.pragma(`synchronous = ${synchronous}`);
  const setting = ["journal_mode", "synchronous"]
    .map((name) => `${name}=${String(db.pragma(name, { simple: true }))}`)
    .join(", ");
  let done = 0;
  const finished = Promise.withResolvers<void>();
  const worker = defineWorker("order", async () => {}, {
    queue,
    logger: SILENT,
    onCompleted: () => {
      if (++done === jobs) finished.resolve();
    },
  });
  const startMs = performance.now();
  for (let n = 0; n < jobs; n++) queue.add("order", { messageId: `order-${n}` });
  const stopped = worker.start();
  await finished.promise;
  const tookMs = performance.now() - startMs;
  await worker.stop();
  await stopped;
  const rows = rowsChanged(db) / jobs;
  queue.close();
  return { perSecond: (jobs / tookMs) * 1000, rows, setting };
}
