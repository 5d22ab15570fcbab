/**
 * The pool: which child runs which call. Children are warm, belong to one namespace for life, and are replaced when
 * old, worn or grown. A script that keeps taking its process down is refused for a while.
 *
 * S1. A process that has served one namespace never serves another.
 * S2. A namespace that waits without a child takes the place of another's once that had its turn (50 runs or 250 ms):
 *     the child gets no more runs and ends with its last. So nobody starves, and nobody starts a process per run.
 * S3. Three deaths by one version within ten minutes end its runs without starting them.
 */
import { availableParallelism, totalmem } from "node:os";
import {
  DEFAULT_LIMITS,
  type HardeningReport,
  type Limits,
  type Sandbox,
  type SandboxCall,
  type SandboxResult,
} from "../ports/sandbox.ts";
import { limitError } from "./blame.ts";
import { DeathBudget } from "./deaths.ts";
import { hardeningReport } from "./launch.ts";
import { childProgram, encodeProgram } from "./program.ts";
import { type Answerer, Tenancy } from "./tenancy.ts";
import { FRAME } from "./wire.ts";
import { Worker } from "./worker.ts";

export interface PoolOptions {
  maxChildren?: number;
  childrenPerNamespace?: number;
  /** The same, once those hold so many scripts that they would have to forget some. */
  crowdedPerNamespace?: number;
  /** Live runs in one child; waiting for an answer counts. */
  runsPerChild?: number;
  rssMb?: number;
  recycleRuns?: number;
  recycleRssMb?: number;
  recycleMs?: number;
  isolatesPerChild?: number;
  maxLevel?: 1 | 2 | 3;
  /** Tests only: an unfrozen, shared scope (the leak suite's canary), and code run with an escaped script's rights. */
  unsafe?: { reuseScope?: boolean; escapeHook?: boolean };
}

interface Job {
  call: SandboxCall;
  key: string;
  scope: "fresh" | "frozen" | "reused";
  limits: Limits;
  answer: Answerer;
  done: (result: SandboxResult) => void;
  /** Ends it while it still waits for a child. */
  withdraw: () => void;
}

/** Figures for tests, benches and metrics. */
export interface PoolStats {
  children: number;
  pids: number[];
  /** Whom each of them serves; `undefined` is the one that stands by. */
  namespaces: (string | undefined)[];
  rssBytes: number[];
  peakRssBytes: number;
  queued: number;
  /** Since the pool opened: processes started, scripts sent to them, isolates made in them. */
  spawned: number;
  loads: number;
  isolates: number;
}

const TURN_RUNS = 50;
const TURN_MS = 250;
const IDLE_MS = 60_000;
const LOAD_COST = 4;
const CROWDED_COST = 100;
/** Isolates in a child before the namespace spreads over another: at some 5 MB each, more would outgrow it in use. */
const CROWDED_FROM = 32;
/** Of the recycling limit: from here on a child takes no further isolates. */
const FULL_SHARE = 0.9;
const MB = 1_048_576;

export function openPool(options: PoolOptions = {}): Pool {
  return new Pool(options);
}

export class Pool implements Sandbox {
  readonly #options: Required<Omit<PoolOptions, "unsafe">> & Pick<PoolOptions, "unsafe">;
  readonly #program: Buffer;
  /** Every process that has not ended, whoever it serves. */
  readonly #all = new Set<Worker>();
  /** Those that serve a namespace. */
  #workers: Worker[] = [];
  #standby: Worker | undefined;
  /** Namespace → its waiting jobs; the one that was served longest ago comes first. */
  readonly #lines = new Map<string, Job[]>();
  readonly #freshOnly = new Set<string>();
  readonly #deaths = new DeathBudget();
  readonly #sweep: NodeJS.Timeout;
  #retry: NodeJS.Timeout | undefined;
  #slot = 0;
  #closed = false;
  #spawned = 0;
  #loads = 0;
  #isolatesOfEnded = 0;

  constructor(options: PoolOptions) {
    const cores = availableParallelism();
    const byMemory = Math.floor(totalmem() / (600 * MB));
    this.#options = {
      maxChildren: Math.max(4, Math.min(32, cores * 8, byMemory)),
      childrenPerNamespace: Math.max(2, cores),
      crowdedPerNamespace: options.childrenPerNamespace ?? 2 * Math.max(2, cores),
      runsPerChild: 16,
      rssMb: 400,
      recycleRuns: 20_000,
      recycleRssMb: 300,
      recycleMs: 3_600_000,
      isolatesPerChild: 128,
      maxLevel: 3,
      ...options,
    };
    this.#program = encodeProgram(childProgram("pool", options.unsafe?.escapeHook));
    this.#standby = this.#spawn();
    this.#sweep = setInterval(() => this.#retireIdle(), IDLE_MS / 4);
    this.#sweep.unref();
  }

  async run(call: SandboxCall, answer: Answerer): Promise<SandboxResult> {
    const key = keyOf(call);
    const wanted = call.scope ?? "auto";
    const fresh =
      wanted === "fresh" ||
      (wanted === "auto" && (call.script.scope === "fresh" || this.#freshOnly.has(key)));
    const scope = this.#options.unsafe?.reuseScope ? "reused" : fresh ? "fresh" : "frozen";
    const result = await this.#enqueue(call, key, scope, answer);
    if (wanted !== "auto" || result.status !== "failed" || result.error.code !== "frozen-builtin")
      return result;
    this.#freshOnly.add(key);
    return this.#enqueue(call, key, "fresh", answer);
  }

  async hardening(): Promise<HardeningReport> {
    return hardeningReport(this.#options.maxLevel);
  }

  stats(): PoolStats {
    const all = [...this.#all];
    const queued = [...this.#lines.values()].reduce((sum, line) => sum + line.length, 0);
    return {
      children: all.length,
      pids: all.map((worker) => worker.pid ?? 0),
      namespaces: all.map((worker) => worker.namespace),
      rssBytes: all.map((worker) => worker.rss()),
      peakRssBytes: Math.max(0, ...all.map((worker) => worker.peakRss)),
      queued,
      spawned: this.#spawned,
      loads: this.#loads,
      isolates: all.reduce((sum, worker) => sum + worker.isolates, this.#isolatesOfEnded),
    };
  }

  /** Tests only: runs Node code in a child, as a script that broke out of its isolate would. */
  async escape(code: string): Promise<string> {
    const worker = this.#spawn();
    await worker.ready;
    const said = await new Promise<string>((resolve) => {
      worker.admit(1, {
        sectionMs: 5_000,
        frame: (frame) => resolve(frame.body),
        gone: (_, why) => resolve(`gone: ${why}`),
      });
      worker.work(FRAME.escape, 1, 0, code);
    });
    await worker.close();
    return said;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true;
    clearInterval(this.#sweep);
    clearTimeout(this.#retry);
    const queued = [...this.#lines.values()].flat();
    this.#lines.clear();
    for (const job of queued) this.#turnAway(job, "sandbox-closed");
    await Promise.all([...this.#all].map((worker) => worker.close()));
  }

  #enqueue(call: SandboxCall, key: string, scope: Job["scope"], answer: Answerer): Promise<SandboxResult> {
    return new Promise((done) => {
      const limits = { ...DEFAULT_LIMITS, ...call.limits };
      const job: Job = { call, key, scope, limits, answer, done, withdraw: () => this.#withdraw(job) };
      if (this.#closed) return this.#turnAway(job, "sandbox-closed");
      if (call.signal?.aborted) return this.#turnAway(job, "run-aborted");
      if (this.#deaths.spent(key)) return this.#turnAway(job, "sandbox-death-budget"); // (S3)
      call.signal?.addEventListener("abort", job.withdraw, { once: true });
      const line = this.#lines.get(call.script.namespace);
      if (line) line.push(job);
      else this.#lines.set(call.script.namespace, [job]);
      this.#dispatch();
    });
  }

  #withdraw(job: Job): void {
    const { namespace } = job.call.script;
    const rest = (this.#lines.get(namespace) ?? []).filter((one) => one !== job);
    if (rest.length > 0) this.#lines.set(namespace, rest);
    else this.#lines.delete(namespace);
    this.#turnAway(job, "run-aborted");
  }

  #dispatch(): void {
    if (this.#closed) return;
    const starving: string[] = [];
    for (const [namespace, line] of Array.from(this.#lines)) {
      let started = 0;
      for (const job of line) {
        const worker = this.#choose(namespace, job.key);
        if (!worker) break;
        started++;
        void this.#start(worker, job);
      }
      if (started > 0) this.#lines.delete(namespace); // To the end of the map: who was served stands back.
      if (started === line.length) continue;
      if (started > 0) this.#lines.set(namespace, line.slice(started));
      if (!this.#workers.some((worker) => worker.namespace === namespace)) starving.push(namespace);
    }
    if (starving.length > 0) this.#makeWay(starving.length);
  }

  /** Ends the turns of as many children as namespaces wait without one (S2). */
  #makeWay(wanted: number): void {
    const now = performance.now();
    const coming = this.#workers.filter((worker) => worker.leaving).length;
    const over = this.#workers
      .filter((worker) => !worker.leaving)
      .filter((worker) => worker.runs >= TURN_RUNS || now - worker.claimedMs >= TURN_MS)
      .sort((a, b) => a.live - b.live || a.lastUsedMs - b.lastUsedMs)
      .slice(0, Math.max(0, wanted - coming));
    for (const worker of over) worker.leaving = true;
    const idle = over.filter((worker) => worker.live === 0);
    for (const worker of idle) this.#retire(worker);
    if (idle.length > 0) return this.#dispatch();
    this.#retry ??= setTimeout(() => {
      this.#retry = undefined;
      this.#dispatch();
    }, TURN_MS / 5);
  }

  #choose(namespace: string, key: string): Worker | undefined {
    let [own, idle] = [0, 0];
    let best: Worker | undefined;
    let bestCost = Number.POSITIVE_INFINITY;
    for (const worker of this.#workers) {
      if (worker.namespace !== namespace || worker.leaving) continue;
      own++;
      if (worker.live === 0) idle++;
      const cost = worker.live + (worker.loaded.has(key) ? 0 : this.#costOfLoading(worker));
      if (worker.live >= this.#options.runsPerChild || cost >= bestCost) continue;
      [best, bestCost] = [worker, cost];
    }
    const crowded = bestCost >= CROWDED_COST;
    const cold = best !== undefined && !crowded && !this.#standby?.started;
    const { childrenPerNamespace, crowdedPerNamespace } = this.#options;
    const room = own < (crowded ? crowdedPerNamespace : childrenPerNamespace);
    const more = room && (idle === 0 || crowded) && !cold; // A warm child now beats a cold one soon.
    return more ? (this.#claim(namespace) ?? best) : best;
  }

  /** In live runs: what sending a script to a child weighs against waiting for one that has it. */
  #costOfLoading(worker: Worker): number {
    const crowded = worker.loaded.size >= CROWDED_FROM || this.#full(worker);
    return LOAD_COST + worker.loaded.size / CROWDED_FROM + (crowded ? CROWDED_COST : 0);
  }

  /** A child for this namespace, the warm one if it stands by; none when all places are taken. */
  #claim(namespace: string): Worker | undefined {
    if (this.#workers.length >= this.#options.maxChildren) return undefined;
    const worker = this.#standby ?? this.#spawn();
    this.#standby = undefined;
    worker.namespace = namespace; // (S1)
    worker.claimedMs = performance.now();
    this.#workers.push(worker);
    setImmediate(() => {
      if (!this.#closed) this.#standby ??= this.#spawn();
    });
    return worker;
  }

  async #start(worker: Worker, job: Job): Promise<void> {
    const { key, call, scope, limits, answer } = job;
    call.signal?.removeEventListener("abort", job.withdraw);
    if (!worker.loaded.has(key)) this.#load(worker, job);
    worker.open(key);
    const slot = ++this.#slot;
    const result = await new Tenancy({ worker, slot, key, scope, call, limits, answer }).result;
    worker.shut(key);
    if (worker.dead && (result.status === "failed" || worker.suspect === slot)) this.#deaths.record(key);
    worker.leaving ||= worker.dead || this.#worn(worker);
    if (worker.leaving && worker.live === 0) this.#retire(worker);
    job.done(result);
    if (this.#lines.size > 0) this.#dispatch();
  }

  #load(worker: Worker, { key, call, limits }: Job): void {
    if (this.#full(worker)) this.#makeRoom(worker);
    const file = call.script.file.replace(/[\r\n]/g, " ");
    worker.tell(FRAME.load, 0, [key, file, String(limits.memoryMb), call.script.code].join("\n"));
    this.#loads++;
  }

  /** Holds as many isolates as it may, or isolates as heavy. */
  #full(worker: Worker): boolean {
    const { isolatesPerChild, recycleRssMb } = this.#options;
    if (worker.loaded.size >= isolatesPerChild) return true;
    return worker.loaded.size > 8 && worker.rss() > recycleRssMb * FULL_SHARE * MB;
  }

  /** Takes leave of the scripts that were unused for longest. */
  #makeRoom(worker: Worker): void {
    const unused = [...worker.loaded].filter(([, live]) => live === 0).map(([key]) => key);
    for (const key of unused.slice(0, Math.ceil(worker.loaded.size / 4))) {
      worker.loaded.delete(key);
      worker.tell(FRAME.unload, 0, key);
    }
  }

  #worn(worker: Worker): boolean {
    const { recycleRuns, recycleMs, recycleRssMb } = this.#options;
    return (
      worker.runs >= recycleRuns ||
      performance.now() - worker.startedMs >= recycleMs ||
      worker.rss() > recycleRssMb * MB
    );
  }

  #retire(worker: Worker): void {
    this.#workers = this.#workers.filter((one) => one !== worker);
    void worker.close();
  }

  #retireIdle(): void {
    this.#deaths.sweep();
    const now = performance.now();
    for (const worker of this.#workers) {
      const spare = this.#workers.filter((one) => one.namespace === worker.namespace).length > 1;
      if (worker.live === 0 && now - worker.lastUsedMs > IDLE_MS * (spare ? 1 : 10)) this.#retire(worker);
    }
  }

  #spawn(): Worker {
    this.#spawned++;
    const rssBytes = this.#options.rssMb * MB;
    const worker = new Worker({
      program: this.#program,
      rssBytes,
      memoryBytes: rssBytes + 48 * MB,
      maxLevel: this.#options.maxLevel,
    });
    this.#all.add(worker);
    worker.onExit(() => {
      this.#all.delete(worker);
      this.#isolatesOfEnded += worker.isolates;
      this.#workers = this.#workers.filter((one) => one !== worker);
      if (this.#standby === worker) this.#standby = undefined;
    });
    return worker;
  }

  /** Ends a job that never started. */
  #turnAway(job: Job, code: "sandbox-closed" | "sandbox-death-budget" | "run-aborted"): void {
    const scope = job.scope === "fresh" ? "fresh" : "frozen";
    job.done({
      status: code === "sandbox-closed" ? "lost" : "failed",
      error: limitError(job.call, job.limits, code),
      logs: [],
      usage: { cpuMs: 0, wallMs: 0, heapBytes: 0, hostCalls: 0, scope },
      transcript: [],
    });
  }
}

function keyOf({ script, limits }: SandboxCall): string {
  return `${script.namespace}/${script.workflow}@${script.hash}:${limits?.memoryMb ?? DEFAULT_LIMITS.memoryMb}`;
}
