/**
 * The pool: which child runs which call. Children are warm, belong to one namespace for life, and are replaced when
 * old, worn or grown. A script that keeps taking its process down is refused for a while.
 *
 * S1. A process that has served one namespace never serves another.
 * S2. A waiting namespace may take an idle child's place only after that child had its turn (50 runs or 250 ms).
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
import { limitError, located } from "./blame.ts";
import { hardeningReport } from "./launch.ts";
import { childProgram, encodeProgram } from "./program.ts";
import { type Answerer, Tenancy } from "./tenancy.ts";
import { FRAME } from "./wire.ts";
import { Worker } from "./worker.ts";

export interface PoolOptions {
  maxChildren?: number;
  childrenPerNamespace?: number;
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
  scope: "fresh" | "frozen" | "reused";
  limits: Limits;
  answer: Answerer;
  done: (result: SandboxResult) => void;
}

const TURN_RUNS = 50;
const TURN_MS = 250;
const DEATHS = 3;
const DEATH_WINDOW_MS = 600_000;
const IDLE_MS = 60_000;
const RSS_CHECK_EVERY = 50;
const UNLOADED_COST = 4;

export function openPool(options: PoolOptions = {}): Pool {
  return new Pool(options);
}

export class Pool implements Sandbox {
  readonly #options: Required<Omit<PoolOptions, "unsafe">> & Pick<PoolOptions, "unsafe">;
  readonly #program: Buffer;
  #workers: Worker[] = [];
  #standby: Worker | undefined;
  #queue: Job[] = [];
  #slot = 0;
  #closed = false;
  #freshOnly = new Set<string>();
  #deaths = new Map<string, number[]>();
  #retry: NodeJS.Timeout | undefined;
  #sweep: NodeJS.Timeout;
  #dispatching = false;
  spawned = 0;

  constructor(options: PoolOptions) {
    const cores = availableParallelism();
    const byMemory = Math.floor(totalmem() / (600 * 1_048_576));
    this.#options = {
      maxChildren: Math.max(4, Math.min(32, cores * 8, byMemory)),
      childrenPerNamespace: Math.max(2, cores),
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
    const result = await this.#enqueue(call, scope, answer);
    if (wanted !== "auto" || result.status !== "failed" || result.error.code !== "frozen-builtin")
      return result;
    this.#freshOnly.add(key);
    return this.#enqueue(call, "fresh", answer);
  }

  async hardening(): Promise<HardeningReport> {
    return hardeningReport(this.#options.maxLevel);
  }

  /** Figures for tests, benches and metrics. */
  stats(): {
    children: number;
    pids: number[];
    rssBytes: number[];
    peakRssBytes: number;
    queued: number;
    spawned: number;
  } {
    const all = [...this.#workers, ...(this.#standby ? [this.#standby] : [])].filter(
      (worker) => !worker.dead,
    );
    return {
      children: all.length,
      pids: all.map((worker) => worker.pid ?? 0),
      rssBytes: all.map((worker) => worker.rss()),
      peakRssBytes: Math.max(0, ...all.map((worker) => worker.peakRss)),
      queued: this.#queue.length,
      spawned: this.spawned,
    };
  }

  /** Tests only: runs Node code in a child, as a script that broke out of its isolate would. */
  async escape(code: string): Promise<string> {
    const worker = this.#spawn();
    await worker.ready;
    return new Promise((resolve) => {
      worker.admit(1, {
        sectionMs: 5_000,
        frame: (frame) => resolve(frame.body),
        gone: (_, why) => resolve(`gone: ${why}`),
      });
      worker.work(FRAME.escape, 1, 0, code);
    }).then(async (said) => {
      await worker.close();
      return said as string;
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true;
    clearInterval(this.#sweep);
    clearTimeout(this.#retry);
    const queued = this.#queue;
    this.#queue = [];
    for (const job of queued) job.done(this.#unstarted(job, "lost"));
    const all = [...this.#workers, ...(this.#standby ? [this.#standby] : [])];
    await Promise.all(all.map((worker) => worker.close()));
  }

  #enqueue(call: SandboxCall, scope: Job["scope"], answer: Answerer): Promise<SandboxResult> {
    const limits = { ...DEFAULT_LIMITS, ...call.limits };
    return new Promise((done) => {
      const job: Job = { call, scope, limits, answer, done };
      if (this.#closed) return done(this.#unstarted(job, "lost"));
      if (this.#recentDeaths(keyOf(call)) >= DEATHS) return done(this.#unstarted(job, "failed")); // (S3)
      this.#queue.push(job);
      this.#dispatch();
    });
  }

  #dispatch(): void {
    if (this.#dispatching || this.#closed) return;
    this.#dispatching = true;
    const waiting: Job[] = [];
    const full = new Set<string>();
    for (const job of this.#queue) {
      const { namespace } = job.call.script;
      const worker = full.has(namespace) ? undefined : this.#choose(namespace, keyOf(job.call));
      if (worker) void this.#start(worker, job);
      else {
        full.add(namespace);
        waiting.push(job);
      }
    }
    this.#queue = waiting;
    this.#dispatching = false;
    if (waiting.length > 0) this.#retry ??= setTimeout(() => this.#later(), TURN_MS / 5);
  }

  #later(): void {
    this.#retry = undefined;
    this.#dispatch();
  }

  #choose(namespace: string, key: string): Worker | undefined {
    const own = this.#workers.filter((worker) => worker.namespace === namespace && !worker.dead);
    const cost = (worker: Worker) => worker.live + (worker.loaded.has(key) ? 0 : UNLOADED_COST);
    const best = own
      .filter((worker) => worker.live < this.#options.runsPerChild)
      .sort((a, b) => cost(a) - cost(b))[0];
    const busy = own.every((worker) => worker.live > 0);
    if (own.length < this.#options.childrenPerNamespace && (own.length === 0 || busy)) {
      const added = this.#claim(namespace);
      if (added) return added;
    }
    return best;
  }

  /** A child for this namespace: the warm one, a new one, or the place of one that had its turn. */
  #claim(namespace: string): Worker | undefined {
    if (this.#workers.length >= this.#options.maxChildren) {
      const now = performance.now();
      const idle = this.#workers
        .filter(
          (worker) =>
            worker.live === 0 &&
            worker.namespace !== namespace &&
            (worker.runs >= TURN_RUNS || now - worker.lastUsedMs >= TURN_MS),
        )
        .sort((a, b) => a.lastUsedMs - b.lastUsedMs)[0]; // (S2)
      if (!idle) return undefined;
      this.#retire(idle);
    }
    const worker = this.#standby && !this.#standby.dead ? this.#standby : this.#spawn();
    this.#standby = undefined;
    worker.namespace = namespace; // (S1)
    worker.lastUsedMs = performance.now();
    this.#workers.push(worker);
    setImmediate(() => {
      if (!this.#closed) this.#standby ??= this.#spawn();
    });
    return worker;
  }

  async #start(worker: Worker, job: Job): Promise<void> {
    const key = keyOf(job.call);
    const { script } = job.call;
    worker.lastUsedMs = performance.now();
    if (!worker.loaded.has(key)) {
      this.#makeRoom(worker);
      worker.tell(
        FRAME.load,
        0,
        [key, script.file.replace(/[\r\n]/g, " "), String(job.limits.memoryMb), script.code].join("\n"),
      );
    }
    worker.loaded.delete(key);
    worker.loaded.set(key, worker.lastUsedMs);
    const tenancy = new Tenancy({
      worker,
      slot: ++this.#slot,
      key,
      scope: job.scope,
      call: job.call,
      limits: job.limits,
      answer: job.answer,
    });
    const result = await tenancy.result;
    worker.lastUsedMs = performance.now();
    if (worker.dead && result.status === "failed") this.#died(key);
    if (result.status === "failed" && !worker.dead && this.#tooOld(worker)) this.#retire(worker);
    else if (!worker.dead && worker.live === 0 && this.#tooOld(worker)) this.#retire(worker);
    job.done(result);
    if (this.#queue.length > 0) this.#dispatch();
  }

  #makeRoom(worker: Worker): void {
    const full = worker.loaded.size >= this.#options.isolatesPerChild;
    const grown =
      worker.live === 0 &&
      worker.loaded.size > 8 &&
      worker.rss() > this.#options.recycleRssMb * 0.85 * 1_048_576;
    if (!full && !grown) return;
    const oldest = [...worker.loaded.keys()].slice(0, Math.max(1, Math.ceil(worker.loaded.size / 4)));
    for (const key of worker.live === 0 ? oldest : oldest.slice(0, 1)) {
      worker.loaded.delete(key);
      worker.tell(FRAME.unload, 0, key);
    }
  }

  #tooOld(worker: Worker): boolean {
    const { recycleRuns, recycleMs, recycleRssMb } = this.#options;
    if (worker.live > 0) return false;
    if (worker.runs >= recycleRuns || performance.now() - worker.startedMs >= recycleMs) return true;
    return worker.runs % RSS_CHECK_EVERY === 0 && worker.rss() > recycleRssMb * 1_048_576;
  }

  #retire(worker: Worker): void {
    this.#workers = this.#workers.filter((one) => one !== worker);
    void worker.close();
  }

  #retireIdle(): void {
    const now = performance.now();
    for (const worker of this.#workers) {
      const spare = this.#workers.filter((one) => one.namespace === worker.namespace).length;
      if (worker.live === 0 && now - worker.lastUsedMs > IDLE_MS * (spare > 1 ? 1 : 10)) this.#retire(worker);
    }
  }

  #spawn(): Worker {
    this.spawned++;
    const rssBytes = this.#options.rssMb * 1_048_576;
    const worker = new Worker({
      program: this.#program,
      rssBytes,
      memoryBytes: rssBytes + 48 * 1_048_576,
      maxLevel: this.#options.maxLevel,
    });
    worker.onExit(() => {
      this.#workers = this.#workers.filter((one) => one !== worker);
      if (this.#standby === worker) this.#standby = undefined;
    });
    return worker;
  }

  #died(key: string): void {
    const now = performance.now();
    const recent = (this.#deaths.get(key) ?? []).filter((at) => now - at < DEATH_WINDOW_MS);
    this.#deaths.set(key, [...recent, now]);
  }

  #recentDeaths(key: string): number {
    const now = performance.now();
    return (this.#deaths.get(key) ?? []).filter((at) => now - at < DEATH_WINDOW_MS).length;
  }

  #unstarted(job: Job, status: "failed" | "lost"): SandboxResult {
    const usage = {
      cpuMs: 0,
      wallMs: 0,
      heapBytes: 0,
      hostCalls: 0,
      scope: job.scope === "fresh" ? ("fresh" as const) : ("frozen" as const),
    };
    const error =
      status === "failed"
        ? limitError(job.call, job.limits, "sandbox-death-budget")
        : located(job.call, "sandbox-closed", "the sandbox is shutting down", "");
    return { status, error, logs: [], usage, transcript: [] };
  }
}

function keyOf({ script, limits }: SandboxCall): string {
  return `${script.namespace}/${script.workflow}@${script.hash}:${limits?.memoryMb ?? DEFAULT_LIMITS.memoryMb}`;
}
