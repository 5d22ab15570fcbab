/**
 * Group commit: Changes join one open transaction; it commits on the next turn of the loop, when it is full, or when it
 * is old; then one `fdatasync` of the write-ahead log, off the loop, makes everything committed before it durable.
 *
 * G1. `committed` resolves after COMMIT; `durable` after an fdatasync that began after that COMMIT.
 * G2. One barrier at a time; whoever commits while it runs waits for the next.
 * G3. A failed COMMIT or barrier breaks the store for good: what was applied may be lost, so nobody may go on.
 * G4. A group never grows beyond its limits, whoever waits or does not; who fills one waits for the next turn of the
 *     loop, so that a loop of `applied` Changes starves nobody.
 * G5. What nobody waits for reaches the disk within LINGER_MS all the same.
 * G6. Those who may go on are let go a few at a time, each few in a turn of the loop of their own: however many there are,
 *     timers and sockets get theirs in between. The transaction stays open for them while it is neither full nor old.
 */
import { fdatasync } from "node:fs";
import type { Database, Statement } from "better-sqlite3";
import { PawlError } from "../core/errors.ts";
import type { Level } from "../ports/store.ts";

export interface GroupOptions {
  maxChanges?: number;
  maxMs?: number;
  /** The write-ahead log; absent for a database in memory, or one that writes through by itself. */
  logFd?: number;
  /** Tests and benches: stands in for `fs.fdatasync`. */
  sync?: (fd: number, done: (error: Error | null) => void) => void;
  onBroken?: (error: Error) => void;
}

/** How many go on in one turn: each will apply two Changes or so before it waits again. */
const FEW = 16;

interface Waiter {
  resolve: () => void;
  reject: (error: Error) => void;
}

const LINGER_MS = 50;

export class Group {
  readonly #db: Database;
  readonly #begin: Statement;
  readonly #commit: Statement;
  readonly #options: Required<Pick<GroupOptions, "maxChanges" | "maxMs" | "sync">> & GroupOptions;
  #open = false;
  #changes = 0;
  #openedMs = 0;
  #scheduled = false;
  #lingering: NodeJS.Timeout | undefined;
  #filled = false;
  #forCommit: Waiter[] = [];
  #forDisk: Waiter[] = [];
  #nextBarrier: Waiter[] = [];
  #free: Waiter[] = [];
  /** Those whom the barrier in flight covers. */
  #inFlight: Waiter[] | undefined;
  #unsynced = false;
  #closed = false;
  broken: PawlError | undefined;

  constructor(db: Database, options: GroupOptions) {
    this.#db = db;
    this.#begin = db.prepare("BEGIN IMMEDIATE");
    this.#commit = db.prepare("COMMIT");
    this.#options = { maxChanges: 64, maxMs: 4, sync: fdatasync, ...options };
  }

  /** Throws what everybody gets once the store is broken or closed. */
  assertUsable(): void {
    if (this.broken) throw this.broken;
    if (this.#closed) throw new PawlError("store-closed", "the store is closed");
  }

  /** Runs `work` inside the open transaction. If it throws, the store is broken: it may have written half a Change. */
  run<Result>(work: () => Result): Result {
    this.assertUsable();
    let result: Result;
    try {
      if (!this.#open) this.#start();
      result = work();
    } catch (error) {
      throw this.break(error as Error);
    }
    this.#changes++;
    if (this.#isFull()) {
      this.commit(); // (G4)
      this.#filled = true;
    }
    if (this.broken) throw this.broken;
    return result;
  }

  /** Resolves when what has been run so far has reached `level`. */
  reached(level: Level): Promise<void> {
    if (this.broken) return Promise.reject(this.broken);
    if (level === "durable") return this.#open ? this.#wait(this.#forDisk) : this.#barrier();
    if (level === "committed" && this.#open) return this.#wait(this.#forCommit);
    return level === "applied" && !this.#filled ? Promise.resolve() : this.#behind();
  }

  commit(): void {
    if (!this.#open || this.broken) return;
    this.#open = false;
    try {
      this.#commit.run();
    } catch (error) {
      this.break(error as Error);
      return;
    }
    this.#unsynced = true;
    this.#letGo(this.#forCommit);
    this.#forCommit = [];
    this.#nextBarrier.push(...this.#forDisk); // (G1)
    this.#forDisk = [];
    if (this.#nextBarrier.length > 0) this.#sync();
    else this.#linger();
  }

  /** Refuses whatever comes from now on, and resolves when everything before it is on disk and no barrier runs. */
  async close(): Promise<void> {
    const flushed = this.broken ? undefined : this.reached("durable");
    this.#closed = true;
    try {
      await flushed;
    } finally {
      clearTimeout(this.#lingering);
      const { promise, resolve } = Promise.withResolvers<void>();
      if (this.#inFlight) this.#inFlight.push({ resolve, reject: () => resolve() });
      else resolve();
      await promise;
    }
  }

  /** From here on nobody may write (G3). The error that everybody gets is returned. */
  break(cause: Error): PawlError {
    if (this.broken) return this.broken;
    const error = new PawlError("store-broken", `the store stopped: ${cause.message}`, { cause });
    this.broken = error;
    clearTimeout(this.#lingering);
    this.#open = false;
    try {
      if (this.#db.inTransaction) this.#db.exec("ROLLBACK");
    } catch {
      // The transaction dies with the connection.
    }
    const waiters = [...this.#forCommit, ...this.#forDisk, ...this.#nextBarrier];
    this.#forCommit = [];
    this.#forDisk = [];
    this.#nextBarrier = [];
    for (const waiter of waiters) waiter.reject(error);
    this.#options.onBroken?.(error);
    return error;
  }

  #start(): void {
    this.#begin.run();
    this.#open = true;
    this.#changes = 0;
    this.#openedMs = performance.now();
    this.#schedule();
  }

  /** At once, unless others were let go before and have not gone, or this one has filled a group (G4). */
  #behind(): Promise<void> {
    if (!this.#filled && this.#free.length === 0) return Promise.resolve();
    this.#filled = false;
    this.#schedule();
    return this.#wait(this.#free);
  }

  #letGo(waiters: readonly Waiter[]): void {
    this.#free.push(...waiters);
    this.#schedule();
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => this.#onTurn());
  }

  /** (G6) */
  #onTurn(): void {
    this.#scheduled = false;
    if (this.#open && (this.#free.length === 0 || this.#isFull())) this.commit();
    for (const waiter of this.#free.splice(0, FEW)) waiter.resolve();
    if (this.#open || this.#free.length > 0) this.#schedule();
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
    // A barrier in flight began after the last COMMIT, or there would be something unsynced.
    if (!this.#unsynced) return this.#inFlight ? this.#wait(this.#inFlight) : this.#behind();
    const waited = this.#wait(this.#nextBarrier);
    this.#sync();
    return waited;
  }

  #linger(): void {
    if (this.#options.logFd === undefined || this.#inFlight) return;
    this.#lingering ??= setTimeout(() => this.#sync(), LINGER_MS).unref(); // (G5)
  }

  #sync(): void {
    if (this.#inFlight || !this.#unsynced || this.broken) return; // (G2)
    clearTimeout(this.#lingering);
    this.#lingering = undefined;
    const waiters = this.#nextBarrier;
    this.#nextBarrier = [];
    this.#unsynced = false;
    const { logFd } = this.#options;
    if (logFd === undefined) return this.#letGo(waiters);
    this.#inFlight = waiters;
    this.#options.sync(logFd, (error) => {
      this.#inFlight = undefined;
      if (error) {
        const broken = this.break(error);
        for (const waiter of waiters) waiter.reject(broken);
        return;
      }
      this.#letGo(waiters);
      if (this.#nextBarrier.length > 0) this.#sync();
      else if (this.#unsynced) this.#linger();
    });
  }
}
