/**
 * The real SQLite adapter's rows over a disk that forgets: what is applied, committed and durable are three different
 * states of it. Groups, barriers and faults are the simulation's; reading and writing rows is the host's own code.
 */
import { assertChange, type Change, type Fence } from "../../host/core/change.ts";
import type { Applied, Level, Refused, Store } from "../../host/ports/store.ts";
import { Reads } from "../../host/store/sqlite/reads.ts";
import type { Disk } from "./disk.ts";
import { HostDied, type Kernel } from "./kernel.ts";

/** Where a host can die: before a Change, within it, after it; after its commit; after its barrier; all unknown to the caller. */
export type Moment = "before" | "inside" | "after" | "committed" | "synced";

export interface StoreHooks {
  /** True ends the host here. */
  dies(moment: Moment): boolean;
  /** How the disk fails this Change, if it does: the store is broken from then on. */
  breaks(): "disk full" | "I/O error" | undefined;
  /** How long the disk, or whoever holds its lock, keeps a Change or a barrier waiting. */
  delayMs(what: "apply" | "fsync"): number;
  onDeath(): void;
  onBroken(): void;
  /** Looks at a Change before it is applied; what it returns looks at the rows after. */
  watch(change: Change): (applied: Applied, write: number) => void;
  problem(message: string): void;
}

const ID_BLOCK = 1_000_000;
const LINGER_MS = 50;

interface Waiter {
  write: number;
  resolve: () => void;
  reject: (error: Error) => void;
}

class SimStore {
  readonly fence: Fence;
  readonly #kernel: Kernel;
  readonly #disk: Disk;
  readonly #reads: Reads;
  readonly #hooks: StoreHooks;
  #nextId = 0;
  #broken: Error | undefined;
  #forCommit: Waiter[] = [];
  #forDisk: Waiter[] = [];
  #committing = false;
  #syncing = false;
  #lingering = false;

  constructor(kernel: Kernel, disk: Disk, hooks: StoreHooks) {
    this.#kernel = kernel;
    this.#disk = disk;
    this.#hooks = hooks;
    disk.newId = () => this.newId();
    this.fence = this.#incarnate();
    this.#reads = new Reads(disk.db);
    this.#readAsTasks();
  }

  /** Whatever the adapter can read, each read a task of its own. */
  #readAsTasks(): void {
    const reads = this.#reads as unknown as Record<string, (...args: unknown[]) => unknown>;
    for (const name of Object.getOwnPropertyNames(Reads.prototype)) {
      if (name === "constructor" || name in this) continue;
      const value = (...args: unknown[]) => this.#read(name, () => reads[name]?.(...args));
      Object.defineProperty(this, name, { value });
    }
  }

  /** As the real store does: a block of ids on record before the first of them is used. */
  #incarnate(): Fence {
    const { db } = this.#disk;
    this.#disk.write();
    const from = Number(db.prepare("SELECT value FROM meta WHERE key = 'next_id'").pluck().get() ?? 0);
    db.prepare("INSERT OR REPLACE INTO meta (key, value) VALUES ('next_id', ?), ('epoch', '1')").run(
      String(from + ID_BLOCK),
    );
    this.#nextId = from;
    const incarnation = this.newId();
    const nowMs = this.#kernel.nowMs();
    db.prepare(
      "INSERT INTO hosts (incarnation, name, epoch, started_at, heartbeat_at) VALUES (?, 'sim', 1, ?, ?)",
    ).run(incarnation, nowMs, nowMs);
    this.#disk.commit();
    return { incarnation, epoch: 1 };
  }

  newId(): number {
    return ++this.#nextId;
  }

  async apply(change: Change, { level, fence }: { level: Level; fence: Fence }): Promise<Applied | Refused> {
    assertChange(change);
    const { result, write } = await this.#kernel.later(
      this.#hooks.delayMs("apply"),
      `apply ${change.verb} (${level})`,
      () => this.#apply(change, fence),
    );
    if (result.ok) await this.#reached(level, write);
    else this.#kernel.note(`refused ${change.verb}: ${result.because}`);
    return result;
  }

  #apply(change: Change, fence: Fence): { result: Applied | Refused; write: number } {
    this.#assertUsable();
    if (fence.incarnation !== this.fence.incarnation || fence.epoch !== this.fence.epoch)
      return { result: { ok: false, because: "stale-fence" }, write: 0 };
    const fault = this.#hooks.breaks();
    if (fault) throw this.#break(new Error(`the store stopped: ${fault}`));
    this.#moment("before");
    const write = this.#disk.write();
    const look = this.#hooks.watch(change);
    let result: Applied | Refused;
    try {
      if (this.#hooks.dies("inside")) this.#dieInside(change);
      result = this.#disk.applier.apply(change);
    } catch (error) {
      if (error instanceof HostDied) throw error;
      this.#hooks.problem(`${change.verb} cannot be written: ${(error as Error).message}`);
      throw this.#break(error as Error);
    }
    if (result.ok) look(result, write);
    this.#moment("after");
    this.#commitSoon();
    return { result, write };
  }

  /** Some of its statements were executed; the transaction goes with the process. */
  #dieInside(change: Change): never {
    const half = Math.ceil(change.writes.length / 2);
    try {
      this.#disk.applier.apply({ ...change, writes: change.writes.slice(0, half) });
    } catch {
      // Half a Change need not fit the schema.
    }
    this.#die();
  }

  async #reached(level: Level, write: number): Promise<void> {
    if (level === "applied") return;
    if (this.#disk.committedTo < write) await this.#wait(this.#forCommit, write);
    if (level === "durable" && this.#disk.durableTo < write) {
      const waited = this.#wait(this.#forDisk, write);
      this.#sync();
      await waited;
    }
  }

  #wait(list: Waiter[], write: number): Promise<void> {
    if (this.#broken) return Promise.reject(this.#broken);
    return new Promise((resolve, reject) => list.push({ write, resolve, reject }));
  }

  #commitSoon(): void {
    if (this.#committing) return;
    this.#committing = true;
    void this.#kernel.task("commit", () => {
      this.#committing = false;
      if (this.#broken) return;
      this.#disk.commit();
      this.#moment("committed");
      for (const waiter of this.#forCommit.splice(0)) waiter.resolve();
      if (this.#lingering) return;
      this.#lingering = true;
      this.#kernel.at(this.#kernel.nowMs() + LINGER_MS, () => {
        this.#lingering = false;
        this.#sync();
      });
    });
  }

  /** One barrier at a time; it covers what was committed when it began. */
  #sync(): void {
    if (this.#syncing || this.#broken || this.#disk.durableTo >= this.#disk.committedTo) return;
    this.#syncing = true;
    const upTo = this.#disk.committedTo;
    void this.#kernel.later(this.#hooks.delayMs("fsync"), "fsync", () => {
      this.#syncing = false;
      if (this.#broken) return;
      this.#disk.sync(upTo);
      this.#moment("synced");
      const waiting = this.#forDisk.splice(0);
      for (const waiter of waiting)
        if (waiter.write <= upTo) waiter.resolve();
        else this.#forDisk.push(waiter);
      if (this.#forDisk.length > 0) this.#sync();
    });
  }

  #moment(moment: Moment): void {
    if (this.#hooks.dies(moment)) this.#die();
  }

  #die(): never {
    this.#hooks.onDeath();
    throw new HostDied("the host died");
  }

  #break(error: Error): Error {
    this.#broken = error;
    this.#disk.lose(0);
    for (const waiter of [...this.#forCommit.splice(0), ...this.#forDisk.splice(0)]) waiter.reject(error);
    this.#hooks.onBroken();
    return error;
  }

  #assertUsable(): void {
    if (this.#broken) throw this.#broken;
  }

  async workflowId(namespace: string, name: string, atMs: number): Promise<number> {
    const { db } = this.#disk;
    const { id, write } = await this.#kernel.task("apply workflow", () => {
      this.#assertUsable();
      const known = db.prepare("SELECT id FROM workflows WHERE name = ?").pluck().get(name) as
        | number
        | undefined;
      if (known !== undefined) return { id: known, write: 0 };
      this.#moment("before");
      const made = this.#disk.write();
      db.prepare(
        "INSERT INTO namespaces (id, name, created_at) VALUES (?, ?, ?) ON CONFLICT (name) DO NOTHING",
      ).run(this.newId(), namespace, atMs);
      const workflow = this.newId();
      db.prepare(
        "INSERT INTO workflows (id, namespace, name, created_at, updated_at) VALUES (?, (SELECT id FROM namespaces WHERE name = ?), ?, ?, ?)",
      ).run(workflow, namespace, name, atMs, atMs);
      this.#commitSoon();
      return { id: workflow, write: made };
    });
    if (write > 0) await this.#reached("committed", write);
    return id;
  }

  interrupted(limit: number) {
    return this.#read("interrupted", () => this.#reads.interrupted(this.fence.incarnation, limit));
  }

  #read<Result>(what: string, read: () => Result): Promise<Result> {
    return this.#kernel.task(`read ${what}`, () => {
      this.#assertUsable();
      return read();
    });
  }

  async flush(): Promise<void> {
    await this.#reached("durable", this.#disk.written);
  }
  async [Symbol.asyncDispose](): Promise<void> {}
}

/** The store of one life of the host. */
export function simStore(kernel: Kernel, disk: Disk, hooks: StoreHooks): Store {
  return new SimStore(kernel, disk, hooks) as unknown as Store;
}
