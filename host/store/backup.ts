/**
 * A copy of the store while it works, and a store from such a copy.
 *
 * P1. A backup holds everything acknowledged before it was asked for, and appears under its name only when it is whole.
 * P2. A restore never writes over anything; killed half-way it leaves no store, and can be started again.
 * P3. A backup becomes a store by `leap.ts` and `restored.ts`, also where somebody puts it into a data folder by hand.
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
import { PawlError } from "../core/errors.ts";
import { makeFolder } from "./folder.ts";
import { assertMigratable, migrations } from "./migrate.ts";
import { DATABASE, type SqliteStore, takeLock } from "./open.ts";
import { openSettled, type Restored } from "./restored.ts";

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

export async function restore(fromFile: string, dataFolder: string, nowMs: () => number): Promise<Restored> {
  assertBackup(fromFile);
  assertEmpty(dataFolder);
  const work = join(dataFolder, RESTORING);
  // The folder is taken from here on: a host or another restore that starts in it now is refused.
  using _lock = held(dataFolder);
  rmSync(work, { recursive: true, force: true });
  mkdirSync(work);
  const file = join(work, DATABASE);
  copyFileSync(fromFile, file);
  const { store, restored } = await openSettled({ data: work, nowMs });
  await store[Symbol.asyncDispose]();
  if (!restored) throw new Error(`${fromFile} was settled already`);
  synced(file);
  renameSync(file, join(dataFolder, DATABASE)); // (P2)
  synced(dataFolder);
  rmSync(work, { recursive: true, force: true });
  return restored;
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

function assertBackup(file: string): void {
  if (!existsSync(file)) throw new PawlError("backup-unusable", `${file} does not exist`);
  let db: Database | undefined;
  try {
    db = new Sqlite(file, { readonly: true });
    const check = db.pragma("quick_check(1)", { simple: true });
    if (check !== "ok") throw new Error(String(check));
    assertMigratable(db, migrations());
    const at = db.prepare("SELECT value FROM meta WHERE key = 'backed_up_at'").pluck().get();
    if (at === undefined) throw new Error("it was not made by a backup");
  } catch (cause) {
    if (cause instanceof PawlError) throw cause;
    throw new PawlError("backup-unusable", `${file}: ${(cause as Error).message}`, { cause });
  } finally {
    db?.close();
  }
}

function synced(path: string): void {
  const fd = openSync(path, "r");
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}
