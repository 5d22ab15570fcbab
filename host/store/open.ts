/**
 * Opens the store: one file, one host. Takes the lock, brings the schema up to date, sets the durability mode and checks
 * that it is in force, writes down this incarnation.
 *
 * K1. A second host on the same file is refused before it has touched anything.
 * K2. The durability mode is set and read back on every open: SQLite falls back to NORMAL by itself on a WAL file.
 * K3. An incarnation that is not the current one writes nothing.
 * K4. A database of a newer or another program is refused before a byte of it is written.
 */
import { closeSync, existsSync, fdatasyncSync, openSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import Sqlite, { type Database } from "better-sqlite3";
import { assertChange, type Change, type Fence } from "../core/change.ts";
import { PawlError } from "../core/errors.ts";
import type { EpochMs } from "../core/ids.ts";
import type { DownSpan } from "../core/slots.ts";
import type { Applied, Level, Refused, Store } from "../ports/store.ts";
import { makeFolder } from "./folder.ts";
import { Group, type GroupOptions } from "./group.ts";
import { leap } from "./leap.ts";
import { assertMigratable, migrate, migrations } from "./migrate.ts";
import { Applier } from "./sqlite/apply.ts";
import { Reads } from "./sqlite/reads.ts";

export interface StoreOptions {
  /** A folder, or `:memory:`. */
  data: string;
  nowMs: () => number;
  /** `barrier`: NORMAL and our own fdatasync before anything durable is acknowledged. `full`: SQLite's own. */
  durability?: Durability;
  group?: Omit<GroupOptions, "logFd" | "onBroken">;
  onBroken?: (error: Error) => void;
  /** Tests: another folder of migrations. */
  migrations?: string;
  /** Tests: `false` leaves the write-ahead log to the writer. */
  checkpoints?: boolean;
}

export type Durability = "barrier" | "full";

export const DATABASE = "pawl.db";
const SYNCHRONOUS = { barrier: 1, full: 2 } as const;
const ID_BLOCK = 1_000_000;
const HEARTBEAT_MS = 10_000;
/** Older gaps have met their slots long ago. */
const GAPS_KEPT = 100;

export function openStore(options: StoreOptions): SqliteStore {
  return new SqliteStore(options);
}

export class SqliteStore implements Store {
  readonly fence: Fence;
  /** For what stands beside the engine: backup, retention, doctor. Writes of theirs go through `maintain`. */
  readonly db: Database;
  readonly #lock: Database | undefined;
  readonly #group: Group;
  readonly #applier: Applier;
  readonly #reads: Reads;
  readonly #logFd: number | undefined;
  readonly #checkpoints: Worker | undefined;
  readonly #nowMs: () => number;
  /** When no host had this store open: what slots were missed by. */
  readonly downtime: readonly DownSpan[];
  /** When the backup was made that this store comes from, until `restored.ts` has settled it. */
  readonly restoring: EpochMs | undefined;
  readonly #heartbeat: NodeJS.Timeout;
  #disposed: Promise<void> | undefined;
  #nextId: number;
  #lastId: number;

  constructor(options: StoreOptions) {
    const inMemory = options.data === ":memory:";
    const durability = options.durability ?? "barrier";
    const file = inMemory ? ":memory:" : join(options.data, DATABASE);
    this.#nowMs = options.nowMs;
    this.#lock = inMemory ? undefined : takeLock(options.data); // (K1)
    let opened: Database | undefined;
    try {
      const known = migrations(options.migrations);
      if (!inMemory) assertOurs(file, known); // (K4)
      this.db = opened = new Sqlite(file);
      configure(this.db, inMemory ? undefined : durability);
      migrate(this.db, known, this.#nowMs());
      this.#nextId = this.#lastId = 0;
      this.restoring = leap(this.db);
      this.downtime = downtimeOf(this.db, this.#nowMs());
      this.fence = this.#incarnate();
      if (!inMemory && durability === "barrier") {
        this.#logFd = openSync(`${file}-wal`, "r+");
        // An incarnation or an id that a power cut takes back would be handed out twice.
        fdatasyncSync(this.#logFd);
      }
      this.#group = new Group(this.db, {
        ...options.group,
        ...(this.#logFd === undefined ? {} : { logFd: this.#logFd }),
        ...(options.onBroken ? { onBroken: options.onBroken } : {}),
      });
      this.#applier = new Applier(this.db, () => this.newId());
      this.#reads = new Reads(this.db);
    } catch (error) {
      opened?.close();
      this.#lock?.close();
      throw error;
    }
    this.#heartbeat = setInterval(() => this.#beat(), HEARTBEAT_MS).unref();
    if (!inMemory && options.checkpoints !== false) this.#checkpoints = checkpointing(file, this.db);
  }

  async apply(change: Change, { level, fence }: { level: Level; fence: Fence }): Promise<Applied | Refused> {
    assertChange(change);
    if (fence.incarnation !== this.fence.incarnation || fence.epoch !== this.fence.epoch)
      return { ok: false, because: "stale-fence" }; // (K3)
    const result = this.#group.run(() => this.#applier.apply(change));
    if (!result.ok) return result;
    await this.#group.reached(level);
    return result;
  }

  newId(): number {
    if (this.#nextId >= this.#lastId)
      try {
        this.#takeIds();
      } catch (error) {
        throw this.#group.break(error as Error);
      }
    return ++this.#nextId;
  }

  async workflowId(namespace: string, name: string, atMs: number): Promise<number> {
    const found = this.db
      .prepare(
        "SELECT w.id FROM workflows w JOIN namespaces n ON n.id = w.namespace WHERE n.name = ? AND w.name = ?",
      )
      .pluck()
      .get(namespace, name) as number | undefined;
    if (found !== undefined) return found;
    const id = this.#group.run(() => {
      this.db
        .prepare(
          "INSERT INTO namespaces (id, name, created_at) VALUES (?, ?, ?) ON CONFLICT (name) DO NOTHING",
        )
        .run(this.newId(), namespace, atMs);
      const made = this.newId();
      this.db
        .prepare(
          "INSERT INTO workflows (id, namespace, name, created_at, updated_at) VALUES (?, (SELECT id FROM namespaces WHERE name = ?), ?, ?, ?)",
        )
        .run(made, namespace, name, atMs, atMs);
      return made;
    });
    await this.#group.reached("committed");
    return id;
  }

  async due(nowMs: number, limit: number) {
    return this.#read.due(nowMs, limit);
  }
  async nextDueAt() {
    return this.#read.nextDueAt();
  }
  async workflow(id: number) {
    return this.#read.workflow(id);
  }
  async run(id: number) {
    return this.#read.run(id);
  }
  async delivery(id: number) {
    return this.#read.delivery(id);
  }
  async pending(handler: number, topic: string, options: Parameters<Store["pending"]>[2]) {
    return this.#read.pending(handler, topic, options);
  }
  async caused(input: number) {
    return this.#read.caused(input);
  }
  async told(run: number) {
    return this.#read.told(run);
  }
  async causes(deliveries: readonly number[], otherwise?: Parameters<Store["causes"]>[1]) {
    return this.#read.causes(deliveries, otherwise);
  }
  async version(workflow: number, which: Parameters<Store["version"]>[1]) {
    return this.#read.version(workflow, which);
  }
  async interrupted(limit: number) {
    return this.#read.interrupted(this.fence.incarnation, limit);
  }
  async checksDue(nowMs: number, limit: number) {
    return this.#read.checksDue(nowMs, limit);
  }

  async flush(): Promise<void> {
    this.#group.assertUsable();
    await this.#group.reached("durable");
  }

  /** Housekeeping inside the group's transaction: small, because whoever writes next waits for it. */
  async maintain<Result>(work: () => Result, level: Level = "committed"): Promise<Result> {
    const result = this.#group.run(work);
    this.#applier.forget();
    await this.#group.reached(level);
    return result;
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#disposed ??= this.#dispose();
    return this.#disposed;
  }

  /** How a later host learns until when this one was there, however it ended. */
  #beat(): void {
    if (this.#group.broken || this.#disposed) return;
    this.#group.run(() =>
      this.db
        .prepare("UPDATE hosts SET heartbeat_at = ? WHERE incarnation = ?")
        .run(this.#nowMs(), this.fence.incarnation),
    );
  }

  async #dispose(): Promise<void> {
    clearInterval(this.#heartbeat);
    try {
      if (!this.#group.broken)
        this.#group.run(() =>
          this.db
            .prepare("UPDATE hosts SET ended_at = @now, heartbeat_at = @now WHERE incarnation = @incarnation")
            .run({ now: this.#nowMs(), incarnation: this.fence.incarnation }),
        );
      await this.#group.close();
    } finally {
      await ended(this.#checkpoints);
      if (this.#logFd !== undefined) closeSync(this.#logFd);
      this.db.close();
      this.#lock?.close();
    }
  }

  get #read(): Reads {
    this.#group.assertUsable();
    return this.#reads;
  }

  #incarnate(): Fence {
    const nowMs = this.#nowMs();
    this.#takeIds();
    const incarnation = this.newId();
    const epoch = Number(metaOf(this.db, "epoch") ?? this.#setMeta("epoch", "1"));
    this.db
      .prepare(
        "INSERT INTO hosts (incarnation, name, epoch, started_at, heartbeat_at) VALUES (?, ?, ?, ?, ?)",
      )
      .run(incarnation, hostname(), epoch, nowMs, nowMs);
    return { incarnation, epoch };
  }

  /** A block of ids at a time, on record before the first of them is used. */
  #takeIds(): void {
    const from = Number(metaOf(this.db, "next_id") ?? 0);
    this.#setMeta("next_id", String(from + ID_BLOCK));
    this.#nextId = from;
    this.#lastId = from + ID_BLOCK;
  }

  #setMeta(key: string, value: string): string {
    this.db
      .prepare(
        "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
      )
      .run(key, value);
    return value;
  }
}

/** From the last sign of each incarnation to the start of the next. */
function downtimeOf(db: Database, nowMs: number): DownSpan[] {
  const lives = db
    .prepare("SELECT started_at AS fromMs, heartbeat_at AS toMs FROM hosts ORDER BY incarnation DESC LIMIT ?")
    .all(GAPS_KEPT) as DownSpan[];
  let nextMs = nowMs;
  const gaps: DownSpan[] = [];
  for (const life of lives) {
    if (life.toMs < nextMs) gaps.push({ fromMs: life.toMs, toMs: nextMs });
    nextMs = life.fromMs;
  }
  return gaps.reverse();
}

const metaOf = (db: Database, key: string): string | undefined =>
  db.prepare("SELECT value FROM meta WHERE key = ?").pluck().get(key) as string | undefined;

/** Sets how the database writes, and reads back what is in force. */
export function configure(db: Database, durability: Durability | undefined): void {
  const fresh = db.prepare("SELECT count(*) FROM sqlite_schema").pluck().get() === 0;
  if (fresh) db.pragma("auto_vacuum = INCREMENTAL");
  db.pragma("cache_size = -65536");
  db.pragma("temp_store = MEMORY");
  db.pragma("busy_timeout = 5000");
  if (durability === undefined) return;
  const mode = db.pragma("journal_mode = WAL", { simple: true });
  db.pragma("journal_size_limit = 67108864");
  db.pragma("wal_autocheckpoint = 16000");
  db.pragma(`synchronous = ${SYNCHRONOUS[durability]}`); // (K2)
  const sync = db.pragma("synchronous", { simple: true });
  if (mode !== "wal" || sync !== SYNCHRONOUS[durability])
    throw new PawlError(
      "store-durability",
      `the database refused its durability mode: journal ${String(mode)}, synchronous ${String(sync)}`,
    );
}

/** Held for life; the system frees it when the process dies, however it dies. */
export function takeLock(folder: string): Database {
  const file = join(folder, "pawl.lock");
  let lock: Database | undefined;
  try {
    makeFolder(folder);
    lock = new Sqlite(file, { timeout: 0 });
    lock.pragma("locking_mode = EXCLUSIVE");
    lock.exec("BEGIN EXCLUSIVE");
    return lock;
  } catch (cause) {
    lock?.close();
    const { code, message } = cause as Error & { code?: string };
    throw code === "SQLITE_BUSY"
      ? new PawlError("store-locked", `another host has ${file} open; one host per folder`)
      : new PawlError("store-unreadable", `${folder}: ${message}`, { cause });
  }
}

function assertOurs(file: string, known: ReturnType<typeof migrations>): void {
  if (!existsSync(file)) return;
  // Read-only leaves a killed host's log as it is; without a log it would leave an empty one behind.
  const db = new Sqlite(file, { readonly: existsSync(`${file}-wal`) });
  try {
    assertMigratable(db, known);
  } catch (cause) {
    if (cause instanceof PawlError) throw cause;
    throw new PawlError("store-unreadable", `${file}: ${(cause as Error).message}`, { cause });
  } finally {
    db.close();
  }
}

function checkpointing(file: string, db: Database): Worker {
  const worker = new Worker(fileURLToPath(new URL("checkpoint-worker.ts", import.meta.url)), {
    workerData: { file },
  });
  // Without its thread the writer does the work itself, in smaller pieces.
  worker.once("error", () => {
    if (db.open) db.pragma("wal_autocheckpoint = 1000");
  });
  worker.unref();
  return worker;
}

async function ended(worker: Worker | undefined): Promise<void> {
  if (!worker || worker.threadId < 0) return;
  worker.ref();
  const { promise, resolve } = Promise.withResolvers<void>();
  worker.once("exit", () => resolve());
  worker.postMessage("end");
  await promise;
}
