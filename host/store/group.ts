/**
 * Group commit: Changes join one open transaction; it commits on the next turn of the loop, when it is full, or when it
 * is old; then one `fdatasync` of the write-ahead log, off the loop, makes everything committed before it durable.
 *
 * G1. `committed` resolves after COMMIT; `durable` after an fdatasync that began after that COMMIT.
 * G2. One barrier at a time; whoever commits while it runs waits for the next.
 * G3. A failed COMMIT or barrier breaks the store for good: what was applied may be lost, so nobody may go on.
 */
import { fdatasync } from "node:fs";
import type { Database, Statement } from "better-sqlite3";
import type { Level } from "../ports/store.ts";

export interface GroupOptions {
  maxChanges?: number;
  maxMs?: number;
  /** The write-ahead log; absent for a database in memory. */
  logFd?: number;
  /** Tests and benches: stands in for `fs.fdatasync`. */
  sync?: (fd: number, done: (error: Error | null) => void) => void;
  onBroken?: (error: Error) => void;
}

interface Waiter {
  resolve: () => void;
  reject: (error: Error) => void;
}

export class Group {
  readonly #begin: Statement;
  readonly #commit: Statement;
  readonly #rollback: Statement;
  readonly #options: Required<Pick<GroupOptions, "maxChanges" | "maxMs" | "sync">> & GroupOptions;
  #open = false;
  #changes = 0;
  #openedMs = 0;
  #scheduled: NodeJS.Immediate | undefined;
  #forCommit: Waiter[] = [];
  #forDisk: Waiter[] = [];
  #nextBarrier: Waiter[] = [];
  #syncing = false;
  #unsynced = false;
  broken: Error | undefined;

  constructor(db: Database, options: GroupOptions) {
    this.#begin = db.prepare("BEGIN IMMEDIATE");
    this.#commit = db.prepare("COMMIT");
    this.#rollback = db.prepare("ROLLBACK");
    this.#options = { maxChanges: 64, maxMs: 4, sync: fdatasync, ...options };
  }

  /** Runs `work` inside the open transaction. If it throws, the store is broken: it may have written half a Change. */
  run<Result>(work: () => Result): Result {
    if (this.broken) throw this.broken;
    try {
      if (!this.#open) this.#start();
      const result = work();
      this.#changes++;
      return result;
    } catch (error) {
      throw this.#break(error as Error);
    }
  }

  /** Resolves when what has been run so far has reached `level`. */
  reached(level: Level): Promise<void> {
    if (this.broken) return Promise.reject(this.broken);
    if (level !== "applied" && this.#open && this.#isFull()) this.commit();
    if (level === "applied") return Promise.resolve();
    if (level === "committed") return this.#open ? this.#wait(this.#forCommit) : Promise.resolve();
    return this.#open ? this.#wait(this.#forDisk) : this.#barrier();
  }

  commit(): void {
    if (!this.#open || this.broken) return;
    clearImmediate(this.#scheduled);
    this.#open = false;
    try {
      this.#commit.run();
    } catch (error) {
      this.#break(error as Error);
      return;
    }
    this.#unsynced = true;
    const committed = this.#forCommit;
    this.#forCommit = [];
    for (const waiter of committed) waiter.resolve();
    if (this.#forDisk.length === 0) return;
    this.#nextBarrier.push(...this.#forDisk); // (G1)
    this.#forDisk = [];
    this.#sync();
  }

  #start(): void {
    this.#begin.run();
    this.#open = true;
    this.#changes = 0;
    this.#openedMs = performance.now();
    this.#scheduled = setImmediate(() => this.commit());
  }

  #isFull(): boolean {
    return (
      this.#changes >= this.#options.maxChanges || performance.now() - this.#openedMs >= this.#options.maxMs
    );
  }

  #wait(list: Waiter[]): Promise<void> {
    return new Promise((resolve, reject) => list.push({ resolve, reject }));
  }

  #barrier(): Promise<void> {
    if (!this.#unsynced && !this.#syncing) return Promise.resolve();
    const waited = this.#wait(this.#nextBarrier);
    this.#sync();
    return waited;
  }

  #sync(): void {
    if (this.#syncing || this.#nextBarrier.length === 0) return; // (G2)
    const waiters = this.#nextBarrier;
    this.#nextBarrier = [];
    this.#unsynced = false;
    const { logFd } = this.#options;
    if (logFd === undefined) {
      for (const waiter of waiters) waiter.resolve();
      return;
    }
    this.#syncing = true;
    this.#options.sync(logFd, (error) => {
      this.#syncing = false;
      if (error) {
        this.#break(error);
        for (const waiter of waiters) waiter.reject(this.broken as Error);
        return;
      }
      for (const waiter of waiters) waiter.resolve();
      this.#sync();
    });
  }

  #break(error: Error): Error {
    if (this.broken) return this.broken;
    this.broken = error; // (G3)
    clearImmediate(this.#scheduled);
    if (this.#open) {
      this.#open = false;
      try {
        this.#rollback.run();
      } catch {
        // SQLite has rolled back by itself.
      }
    }
    const waiters = [...this.#forCommit, ...this.#forDisk, ...this.#nextBarrier];
    this.#forCommit = [];
    this.#forDisk = [];
    this.#nextBarrier = [];
    for (const waiter of waiters) waiter.reject(error);
    this.#options.onBroken?.(error);
    return error;
  }
}
