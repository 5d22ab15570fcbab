/**
 * Opens the store: one file, one host. Takes the lock, brings the schema up to date, sets the durability mode and checks
 * that it is in force, writes down this incarnation.
 *
 * K1. A second host on the same file is refused before it has touched anything.
 * K2. The durability mode is set and read back on every open: SQLite falls back to NORMAL by itself on a WAL file.
 * K3. An incarnation that is not the current one writes nothing.
 */
import { closeSync, openSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import Sqlite, { type Database } from "better-sqlite3";
import type { Change, Fence } from "../core/change.ts";
import { PawlError } from "../core/errors.ts";
import type { Applied, Level, Refused, Store } from "../ports/store.ts";
import { Group, type GroupOptions } from "./group.ts";
import { migrate, migrations } from "./migrate.ts";
import { Applier } from "./sqlite/apply.ts";
import { Reads } from "./sqlite/reads.ts";

export interface StoreOptions {
  /** A folder, or `:memory:`. */
  data: string;
  nowMs: () => number;
  /** `barrier`: NORMAL and our own fdatasync before anything durable is acknowledged. `full`: SQLite's own. */
  durability?: "barrier" | "full";
  group?: Omit<GroupOptions, "logFd" | "onBroken">;
  onBroken?: (error: Error) => void;
}

const SYNCHRONOUS = { barrier: 1, full: 2 } as const;
const ID_BLOCK = 1_000_000;

export function openStore(options: StoreOptions): SqliteStore {
  return new SqliteStore(options);
}

export class SqliteStore implements Store {
  readonly fence: Fence;
  readonly db: Database;
  readonly #lock: Database | undefined;
  readonly #group: Group;
  readonly #applier: Applier;
  readonly #reads: Reads;
  readonly #logFd: number | undefined;
  readonly #checkpoints: Worker | undefined;
  #nextId: number;
  #lastId: number;

  constructor(options: StoreOptions) {
    const inMemory = options.data === ":memory:";
    const file = inMemory ? ":memory:" : join(options.data, "pawl.db");
    this.#lock = inMemory ? undefined : takeLock(join(options.data, "pawl.lock")); // (K1)
    const nowMs = options.nowMs();
    try {
      this.db = new Sqlite(file);
      configure(this.db, inMemory ? undefined : (options.durability ?? "barrier"));
      migrate(this.db, migrations(), nowMs);
      this.#nextId = this.#lastId = 0;
      this.fence = this.#incarnate(nowMs);
      if (!inMemory) this.#logFd = openSync(`${file}-wal`, "r+");
    } catch (error) {
      this.#lock?.close();
      throw error;
    }
    this.#group = new Group(this.db, {
      ...options.group,
      ...(this.#logFd === undefined || options.durability === "full" ? {} : { logFd: this.#logFd }),
      ...(options.onBroken ? { onBroken: options.onBroken } : {}),
    });
    this.#applier = new Applier(this.db, () => this.newId());
    this.#reads = new Reads(this.db);
    if (!inMemory)
      this.#checkpoints = new Worker(fileURLToPath(new URL("checkpoint-worker.ts", import.meta.url)), {
        workerData: { file },
      });
    this.#checkpoints?.unref();
  }

  async apply(change: Change, { level, fence }: { level: Level; fence: Fence }): Promise<Applied | Refused> {
    if (fence.incarnation !== this.fence.incarnation || fence.epoch !== this.fence.epoch)
      return { ok: false, because: "stale-fence" }; // (K3)
    const result = this.#group.run(() => this.#applier.apply(change));
    if (!result.ok) return result;
    await this.#group.reached(level);
    return result;
  }

  newId(): number {
    if (this.#nextId >= this.#lastId) this.#takeIds();
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
    return this.#reads.due(nowMs, limit);
  }
  async nextDueAt() {
    return this.#reads.nextDueAt();
  }
  async workflow(id: number) {
    return this.#reads.workflow(id);
  }
  async run(id: number) {
    return this.#reads.run(id);
  }
  async delivery(id: number) {
    return this.#reads.delivery(id);
  }
  async pending(handler: number, topic: string, options: Parameters<Store["pending"]>[2]) {
    return this.#reads.pending(handler, topic, options);
  }
  async causes(deliveries: readonly number[]) {
    return this.#reads.causes(deliveries);
  }
  async version(workflow: number, number: number) {
    return this.#reads.version(workflow, number);
  }
  async interrupted(limit: number) {
    return this.#reads.interrupted(this.fence.incarnation, limit);
  }
  async checksDue(nowMs: number, limit: number) {
    return this.#reads.checksDue(nowMs, limit);
  }

  async flush(): Promise<void> {
    await this.#group.reached("durable");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#group.broken) {
      await this.flush();
      this.db
        .prepare("UPDATE hosts SET ended_at = heartbeat_at WHERE incarnation = ?")
        .run(this.fence.incarnation);
    }
    await this.#checkpoints?.terminate();
    if (this.#logFd !== undefined) closeSync(this.#logFd);
    this.db.close();
    this.#lock?.close();
  }

  #incarnate(nowMs: number): Fence {
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

const metaOf = (db: Database, key: string): string | undefined =>
  db.prepare("SELECT value FROM meta WHERE key = ?").pluck().get(key) as string | undefined;

function configure(db: Database, durability: "barrier" | "full" | undefined): void {
  const fresh = db.prepare("SELECT count(*) FROM sqlite_schema").pluck().get() === 0;
  if (fresh) db.pragma("auto_vacuum = INCREMENTAL");
  db.pragma("cache_size = -65536");
  db.pragma("temp_store = MEMORY");
  db.pragma("busy_timeout = 5000");
  if (durability === undefined) return;
  db.pragma("journal_mode = WAL");
  db.pragma("journal_size_limit = 67108864");
  db.pragma("wal_autocheckpoint = 16000");
  db.pragma(`synchronous = ${SYNCHRONOUS[durability]}`); // (K2)
  const mode = db.pragma("journal_mode", { simple: true });
  const sync = db.pragma("synchronous", { simple: true });
  if (mode !== "wal" || sync !== SYNCHRONOUS[durability])
    throw new PawlError(
      "store-durability",
      `the database refused its durability mode: journal ${String(mode)}, synchronous ${String(sync)}`,
    );
}

/** Held for life; the system frees it when the process dies, however it dies. */
function takeLock(file: string): Database {
  const lock = new Sqlite(file, { timeout: 0 });
  try {
    lock.pragma("locking_mode = EXCLUSIVE");
    lock.exec("BEGIN EXCLUSIVE");
    return lock;
  } catch {
    lock.close();
    throw new PawlError("store-locked", `another host has ${file} open; one host per folder`);
  }
}
