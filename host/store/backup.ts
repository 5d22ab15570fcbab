/**
 * A copy of the store while it works, and a store from such a copy.
 *
 * P1. A backup holds everything acknowledged before it was asked for, and appears under its name only when it is whole.
 * P2. A restore never writes over anything; killed half-way it leaves no store, and can be started again.
 * P3. A restored store has a new epoch, and ids beyond any that the original can have handed out since: no id and no
 *     idempotency key is ever used for two things.
 */
import {
  closeSync,
  copyFileSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
} from "node:fs";
import { once } from "node:events";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import Sqlite, { type Database } from "better-sqlite3";
import type { Change } from "../core/change.ts";
import { PawlError } from "../core/errors.ts";
import type { RunFacts, WorkflowFacts } from "../core/facts.ts";
import { restoreRun, restoreWorkflow } from "../core/restore.ts";
import { workflowIds } from "./doctor.ts";
import { makeFolder } from "./folder.ts";
import { assertMigratable, migrations } from "./migrate.ts";
import { DATABASE, openStore, type SqliteStore, takeLock } from "./open.ts";

/** A thousand ids a second for thirty years. */
const LEAP = 2 ** 40;
const RESTORING = ".restoring";

export async function backup(
  store: Pick<SqliteStore, "db" | "flush">,
  toFile: string,
  nowMs: number,
): Promise<void> {
  if (existsSync(toFile)) throw new PawlError("backup-target-taken", `${toFile} exists`);
  await store.flush(); // (P1)
  const partial = `${toFile}.partial`;
  try {
    makeFolder(dirname(toFile));
    rmSync(partial, { force: true });
    const worker = new Worker(fileURLToPath(new URL("backup-worker.ts", import.meta.url)), {
      workerData: { from: store.db.name, to: partial, atMs: nowMs },
    });
    await once(worker, "exit");
    synced(partial);
    if (existsSync(toFile)) throw new PawlError("backup-target-taken", `${toFile} exists`);
    renameSync(partial, toFile); // (P1)
    synced(dirname(toFile));
  } catch (cause) {
    if (statSync(partial, { throwIfNoEntry: false })?.isFile()) rmSync(partial);
    if (cause instanceof PawlError) throw cause;
    throw new PawlError("backup-failed", `${toFile}: ${(cause as Error).message}`, { cause });
  }
}

/** What was found in the backup. */
export interface Restored {
  backedUpAtMs: number;
  workflows: number;
  epoch: number;
}

export async function restore(fromFile: string, dataFolder: string, nowMs: () => number): Promise<Restored> {
  const { backedUpAtMs } = assertBackup(fromFile);
  assertEmpty(dataFolder);
  const work = join(dataFolder, RESTORING);
  // The folder is taken from here on: a host or another restore that starts in it now is refused.
  using _lock = held(dataFolder);
  rmSync(work, { recursive: true, force: true });
  mkdirSync(work);
  const file = join(work, DATABASE);
  copyFileSync(fromFile, file);
  const epoch = leap(file);
  const workflows = await settle(work, backedUpAtMs, nowMs);
  synced(file);
  renameSync(file, join(dataFolder, DATABASE)); // (P2)
  synced(dataFolder);
  rmSync(work, { recursive: true, force: true });
  return { backedUpAtMs, workflows, epoch };
}

function held(dataFolder: string): Disposable {
  const lock = takeLock(dataFolder);
  return { [Symbol.dispose]: () => lock.close() };
}

function assertEmpty(folder: string): void {
  const found = existsSync(folder) ? readdirSync(folder) : [];
  const ours = [RESTORING, "pawl.lock", "pawl.lock-journal"];
  const foreign = found.find((name) => !ours.includes(name));
  if (foreign !== undefined)
    throw new PawlError("backup-target-taken", `${folder} is not empty: it holds ${foreign}`);
}

function assertBackup(file: string): { backedUpAtMs: number } {
  if (!existsSync(file)) throw new PawlError("backup-unusable", `${file} does not exist`);
  let db: Database | undefined;
  try {
    db = new Sqlite(file, { readonly: true });
    const check = db.pragma("quick_check(1)", { simple: true });
    if (check !== "ok") throw new Error(String(check));
    assertMigratable(db, migrations());
    const at = db.prepare("SELECT value FROM meta WHERE key = 'backed_up_at'").pluck().get();
    if (at === undefined) throw new Error("it was not made by a backup");
    return { backedUpAtMs: Number(at) };
  } catch (cause) {
    if (cause instanceof PawlError) throw cause;
    throw new PawlError("backup-unusable", `${file}: ${(cause as Error).message}`, { cause });
  } finally {
    db?.close();
  }
}

/** A new epoch, and ids far beyond the old ones (P3). */
function leap(file: string): number {
  const db = new Sqlite(file);
  try {
    return db.transaction(() => {
      db.prepare(
        "UPDATE meta SET value = CAST(CAST(value AS INTEGER) + @leap AS TEXT) WHERE key = 'next_id'",
      ).run({ leap: LEAP });
      db.prepare(
        "UPDATE meta SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT) WHERE key = 'epoch'",
      ).run();
      db.prepare("DELETE FROM meta WHERE key = 'backed_up_at'").run();
      return Number(db.prepare("SELECT value FROM meta WHERE key = 'epoch'").pluck().get());
    })();
  } finally {
    db.close();
  }
}

/** Every workflow as the core says: paused, its open run no longer believed blindly. */
async function settle(data: string, backedUpAtMs: number, nowMs: () => number): Promise<number> {
  await using store = openStore({ data, nowMs });
  const { fence } = store;
  let workflows = 0;
  for (const id of workflowIds(store.db)) {
    const atMs = nowMs();
    const facts = (await store.workflow(id)) as WorkflowFacts;
    const restoring = {
      backedUpAtMs,
      atMs,
      attempt: { id: store.newId(), host: fence.incarnation, fused: false },
    };
    if (facts.openRun) {
      const run = (await store.run(facts.openRun.id)) as RunFacts;
      const change = restoreRun(run, { ...restoring, inbox: store.newId() });
      if (change) await applied(store, change);
    }
    const now = (await store.workflow(id)) as WorkflowFacts;
    await applied(store, restoreWorkflow(now, { ...restoring, inbox: store.newId() }));
    workflows++;
  }
  return workflows;
}

async function applied(store: SqliteStore, change: Change): Promise<void> {
  const result = await store.apply(change, { level: "applied", fence: store.fence });
  if (!result.ok) throw new Error(`${change.verb} was refused while nobody else was here: ${result.because}`);
}

function synced(path: string): void {
  const fd = openSync(path, "r");
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}
