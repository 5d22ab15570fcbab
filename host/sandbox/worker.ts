/**
 * One child process as the host sees it: its socket, the runs alive in it, and the watchdogs that may kill it.
 *
 * K1. The child works through sections in order; only the section at the head of the line can be to blame.
 * K2. A death ends the head's run with a verdict and gives every other run back, to be redone. A death that nothing
 *     in the process explains (SIGKILL from elsewhere, no start at all) has no verdict: all are given back.
 * K3. A limit is acted on only when it is still exceeded one tick later, after the socket had its turn: a busy host
 *     must not kill a child whose answer lies unread.
 * K4. The child may speak only in the section it is in, and only of that run: a process that broke out cannot buy
 *     itself time, flood the host, or answer for another.
 */
import { closeSync, openSync, readFileSync, readSync } from "node:fs";
import type { Socket } from "node:net";
import type { ErrorCode } from "../core/errors.ts";
import { type LaunchedChild, launch, type LaunchOptions } from "./launch.ts";
import { encodeFrame, FRAME, type Frame, FrameReader } from "./wire.ts";

const TICK_MS = 10;
const GRACE_MS = 250;
const PAGE_BYTES = 4_096;
const MAX_FRAME = 16 * 1_048_576;
const START_MS = 10_000;
/** SIGKILL, as seen directly and through a wrapper that reports its child's end. */
const KILLED = ["SIGKILL", "exit 137"];

/** What a run hears from the process it lives in. */
export interface Tenant {
  sectionMs: number;
  frame(frame: Frame): void;
  /** The process is gone; `code` is set for the run that is to blame. */
  gone(code: ErrorCode | undefined, why: string): void;
}

interface Verdict {
  slot: number | undefined;
  code: ErrorCode;
  why: string;
}

export interface WorkerOptions extends LaunchOptions {
  program: Buffer;
  rssBytes: number;
}

export class Worker {
  namespace: string | undefined;
  runs = 0;
  lastUsedMs = 0;
  /** When its namespace's turn began. */
  claimedMs = 0;
  /** Takes no more runs: it ends with its last one. */
  leaving = false;
  /** Isolates made in it so far, by its own count. */
  isolates = 0;
  /** The run at the head when the process was killed from elsewhere: not to blame, but not beyond doubt either. */
  suspect: number | undefined;
  readonly startedMs = performance.now();
  /** Script key → its live runs, the longest unused first; the child holds the code of exactly these. */
  readonly loaded = new Map<string, number>();
  readonly ready: Promise<void>;
  peakRss = 0;
  #launched: LaunchedChild;
  #socket: Socket;
  #tenants = new Map<number, Tenant>();
  #sections: number[] = [];
  #headSinceMs = 0;
  #overdue = false;
  #verdict: Verdict | undefined;
  #timer: NodeJS.Timeout | undefined;
  #statm: number | undefined;
  #dead = false;
  #started = false;
  readonly #rssBytes: number;
  readonly #exited: Promise<void>;
  #onExit: (() => void)[] = [];

  constructor(options: WorkerOptions) {
    this.#rssBytes = options.rssBytes;
    this.#launched = launch(options);
    const { process: child } = this.#launched;
    this.#socket = child.stdio[3] as Socket;
    this.#socket.on("error", () => {});
    const reader = new FrameReader(MAX_FRAME);
    let isReady: () => void;
    let notReady: (error: Error) => void;
    this.ready = new Promise((resolve, reject) => {
      isReady = resolve;
      notReady = reject;
    });
    this.ready.catch(() => {});
    const late = setTimeout(
      () => this.kill(undefined, "sandbox-start", "it did not start in time"),
      START_MS,
    );
    this.#socket.on("data", (chunk: Buffer) => {
      try {
        reader.push(chunk, (frame) => {
          if (frame.type === FRAME.ready && !this.#started) {
            clearTimeout(late);
            const inner = innermost(child.pid);
            this.#statm = openStatm(inner);
            this.#confine(inner);
            this.#started = true;
            this.#newHead();
            isReady();
          } else this.#hear(frame);
        });
      } catch {
        this.kill(this.#sections[0], "sandbox-protocol", "a frame over the size limit");
      }
    });
    this.#exited = new Promise((resolve) => {
      const ended = (why: string) => {
        clearTimeout(late);
        notReady(new Error(`a sandbox process could not be started: ${why}`));
        this.#buried(why);
        resolve();
      };
      child.once("error", (error) => ended(error.message));
      child.once("exit", (code, signal) => ended(signal ?? `exit ${code}`));
    });
    this.#socket.write(options.program);
  }

  get dead(): boolean {
    return this.#dead;
  }
  get started(): boolean {
    return this.#started;
  }
  get live(): number {
    return this.#tenants.size;
  }
  get pid(): number | undefined {
    return this.#launched.process.pid;
  }
  onExit(hook: () => void): void {
    this.#onExit.push(hook);
  }

  /** A run of this script begins. */
  open(key: string): void {
    const live = this.loaded.get(key) ?? 0;
    this.loaded.delete(key);
    this.loaded.set(key, live + 1);
    this.lastUsedMs = performance.now();
  }

  /** A run of this script has ended. */
  shut(key: string): void {
    this.loaded.set(key, (this.loaded.get(key) ?? 1) - 1);
    this.lastUsedMs = performance.now();
  }

  admit(slot: number, tenant: Tenant): void {
    this.#tenants.set(slot, tenant);
    this.runs++;
  }

  leave(slot: number): void {
    this.#tenants.delete(slot);
  }

  /** Sends a frame that makes the child work for this slot, and opens the section. */
  work(type: number, slot: number, call: number, body: string): void {
    if (this.#dead) return;
    this.#sections.push(slot);
    if (this.#sections.length === 1) this.#newHead();
    this.#socket.write(encodeFrame(type, slot, call, body));
    this.#timer ??= setInterval(() => this.#watch(), TICK_MS);
  }

  /** Is a section of this run still to be worked through? */
  owes(slot: number): boolean {
    return this.#sections.includes(slot);
  }

  tell(type: number, slot: number, body: string): void {
    if (!this.#dead) this.#socket.write(encodeFrame(type, slot, 0, body));
  }

  rss(): number {
    if (this.#statm === undefined) return 0;
    const text = Buffer.allocUnsafe(128);
    try {
      const bytes =
        Number(text.toString("latin1", 0, readSync(this.#statm, text, 0, 128, 0)).split(" ")[1]) * PAGE_BYTES;
      if (bytes > this.peakRss) this.peakRss = bytes;
      return bytes;
    } catch {
      return 0;
    }
  }

  kill(slot: number | undefined, code: ErrorCode, why: string): void {
    if (this.#dead) return; // Its number may belong to another process by now.
    this.#verdict ??= { slot, code, why };
    this.#launched.process.kill("SIGKILL");
    for (const pid of descendants(this.#launched.process.pid)) signalQuietly(pid);
  }

  async close(): Promise<void> {
    this.#socket.end();
    this.kill(undefined, "sandbox-closed", "shutting down");
    await this.#exited;
  }

  #hear(frame: Frame): void {
    if (this.#verdict) return;
    if (this.#sections[0] !== frame.slot)
      return this.kill(this.#sections[0], "sandbox-protocol", "an answer out of turn"); // (K4)
    if (frame.type !== FRAME.call) {
      this.#sections.shift();
      this.#newHead();
      if (this.#sections.length === 0) {
        clearInterval(this.#timer);
        this.#timer = undefined;
      }
    }
    this.#tenants.get(frame.slot)?.frame(frame);
  }

  /** A wrapper may have forked before it was put under the limit. */
  #confine(pid: number | undefined): void {
    try {
      if (pid !== undefined) this.#launched.cgroup?.add(pid);
    } catch {}
  }

  #newHead(): void {
    this.#headSinceMs = performance.now();
    this.#overdue = false;
  }

  #watch(): void {
    const head = this.#sections[0];
    if (head === undefined || !this.#started) return;
    const tenant = this.#tenants.get(head);
    const over = performance.now() - this.#headSinceMs > (tenant?.sectionMs ?? 500) + GRACE_MS;
    if (this.rss() > this.#rssBytes)
      return this.kill(head, "memory-limit", "the process grew past its limit");
    if (!over) return;
    if (this.#overdue) this.kill(head, "cpu-limit", "it could not be interrupted"); // (K3)
    this.#overdue = true;
  }

  #buried(why: string): void {
    if (this.#dead) return;
    this.#dead = true;
    clearInterval(this.#timer);
    if (this.#statm !== undefined) closeSync(this.#statm);
    this.#socket.destroy();
    const verdict = this.#verdict ?? this.#inquest(why);
    this.#launched.cgroup?.remove();
    const tenants = [...this.#tenants];
    this.#tenants.clear();
    for (const [slot, tenant] of tenants)
      tenant.gone(slot === verdict.slot ? verdict.code : undefined, verdict.why); // (K2)
    for (const hook of this.#onExit) hook();
  }

  /** What a death that the host did not order tells about the run at the head. */
  #inquest(why: string): Verdict {
    const slot = this.#sections[0];
    const { cgroup } = this.#launched;
    if (!this.#started) return { slot: undefined, code: "sandbox-start", why };
    if (cgroup?.outOfMemory()) return { slot, code: "memory-limit", why };
    if (!KILLED.includes(why)) return { slot, code: "sandbox-killed", why };
    if (!cgroup) this.suspect = slot; // The kernel's own OOM killer looks the same.
    return { slot: undefined, code: "sandbox-lost", why: "killed from outside" };
  }
}

/** A wrapper such as bwrap stays in front: the process that matters is the last of the line. */
function innermost(pid: number | undefined): number | undefined {
  return descendants(pid).at(-1) ?? pid;
}

function descendants(pid: number | undefined): number[] {
  const found: number[] = [];
  for (let next = pid; next !== undefined; ) {
    try {
      const child = readFileSync(`/proc/${next}/task/${next}/children`, "utf8").trim().split(" ")[0];
      next = child ? Number(child) : undefined;
    } catch {
      next = undefined;
    }
    if (next !== undefined) found.push(next);
  }
  return found;
}

function openStatm(pid: number | undefined): number | undefined {
  try {
    return openSync(`/proc/${pid}/statm`, "r");
  } catch {
    return undefined;
  }
}

function signalQuietly(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {}
}
