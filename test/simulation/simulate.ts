/**
 * One seed: generated workflows, a host that dies and comes back, a world that misbehaves; then everything heals, and
 * what should have happened is compared with what did.
 */
import { createHash } from "node:crypto";
import type { Manifest } from "../../host/core/workflow.ts";
import { Engine } from "../../host/engine/engine.ts";
import { policiesOf } from "../../host/engine/policies.ts";
import { scriptsOf } from "../../host/engine/scripts.ts";
import type { RecordedCall } from "../../host/ports/connector.ts";
import type { Compilation, Upload } from "../../host/ports/sandbox.ts";
import { inspect } from "../../host/store/doctor.ts";
import { verify } from "../../host/store/verify.ts";
import { Kernel } from "./kernel.ts";
import { type ConsumerProgram, type Program, SimSandbox } from "./sim-sandbox.ts";
import { Disk, SimStore, type StoreFaults } from "./sim-store.ts";
import { HEALTHY, SimWorld } from "./sim-world.ts";

export interface SimulationOptions {
  seed: number;
  workflows?: number;
  /** Virtual time with faults, before everything heals. */
  stormMs?: number;
  /** Probability that a durable step ends the host. */
  crashes?: number;
  /** Ends the host at the n-th moment a crash is possible, once. */
  crashAt?: number;
  faulty?: boolean;
  fused?: boolean;
  programs?: Map<string, Program>;
}

export interface Simulated {
  problems: string[];
  trace: string[];
  /** Fingerprint of everything that happened. */
  hash: string;
  /** Moments at which a crash was possible. */
  moments: number;
  lives: number;
  commits: number;
  effects: number;
}

const STEPS = 200_000;
const HEALING_MS = 2 * 3_600_000;

export async function simulate(options: SimulationOptions): Promise<Simulated> {
  const simulation = new Simulation(options);
  return simulation.run();
}

class Simulation {
  readonly #options: SimulationOptions;
  readonly #kernel: Kernel;
  readonly #disk = new Disk();
  readonly #world: SimWorld;
  readonly #programs: Map<string, Program>;
  readonly #problems: string[] = [];
  #store: SimStore | undefined;
  #sandbox: SimSandbox | undefined;
  #down: { fromMs: number; toMs: number }[] = [];
  #died = false;
  #moments = 0;
  #lives = 0;
  #commits = 0;
  #storm = true;

  constructor(options: SimulationOptions) {
    this.#options = options;
    this.#kernel = new Kernel(options.seed);
    this.#world = new SimWorld(this.#kernel);
    this.#world.isDurable = (call) => this.#inFlightOnDisk(call);
    this.#programs = options.programs ?? generate(this.#kernel, options.workflows ?? 2);
  }

  async run(): Promise<Simulated> {
    const { stormMs = 1_800_000 } = this.#options;
    const kernel = this.#kernel;
    const stormEndMs = kernel.nowMs() + stormMs;
    this.#weather(this.#options.faulty ?? true);
    await this.#boot();
    while (kernel.nowMs() < stormEndMs) {
      const state = await kernel.run(() => this.#died, stormEndMs, STEPS);
      if (state === "busy") this.#problems.push(`still busy after ${STEPS} steps at ${kernel.nowMs()}`);
      if (state !== "done") break;
      await this.#boot();
    }
    this.#storm = false;
    this.#weather(false);
    for (;;) {
      const state = await kernel.run(() => this.#died, kernel.nowMs() + HEALING_MS, STEPS);
      if (state !== "done") break;
      await this.#boot();
    }
    this.#judge();
    const { trace } = kernel;
    return {
      problems: this.#problems,
      trace,
      hash: createHash("sha256").update(trace.join("\n")).digest("hex"),
      moments: this.#moments,
      lives: this.#lives,
      commits: this.#commits,
      effects: [...this.#world.effects.values()].reduce((sum, one) => sum + one, 0),
    };
  }

  #weather(bad: boolean): void {
    this.#world.faults = bad
      ? {
          refused: 0.1,
          lostBefore: 0.08,
          lostAfter: 0.08,
          late: 0.05,
          unauthorised: 0,
          readFails: 0.1,
          checkUnsure: 0.3,
        }
      : HEALTHY;
    if (this.#sandbox) this.#sandbox.faults = bad ? { lost: 0.05, throws: 0.05 } : { lost: 0, throws: 0 };
  }

  /** A new life: from the disk as the last one left it, or as a power cut left it. */
  async #boot(): Promise<void> {
    const kernel = this.#kernel;
    if (this.#died) {
      kernel.crash();
      if (kernel.dice.hits(0.3)) this.#disk.committed = this.#disk.durable;
      const fromMs = kernel.nowMs();
      this.#down.push({ fromMs, toMs: fromMs });
    }
    this.#died = false;
    this.#lives++;
    kernel.note(`life ${this.#lives}`);
    const store = new SimStore(kernel, this.#disk, this.#faults(), () => {
      this.#died = true;
      kernel.note("the host dies");
    });
    this.#store = store;
    this.#sandbox = new SimSandbox(kernel, this.#programs);
    this.#weather(this.#storm && (this.#options.faulty ?? true));
    const engine = new Engine(
      {
        store,
        sandbox: this.#sandbox,
        world: this.#world,
        clock: kernel,
        policies: policiesOf([]),
        scripts: scriptsOf(store),
        downtime: this.#down,
        fused: this.#options.fused ?? true,
        hash: (text) => createHash("sha256").update(text).digest("base64url"),
        tell: (event) => {
          if (event.kind === "run.ended" && event.facts.run.status === "committed") this.#commits++;
          if (event.kind === "engine.warning" && !event.message.endsWith("the host died"))
            this.#problems.push(`warning: ${event.message}`);
        },
      },
      { slots: 3, compile: async (upload) => this.#compile(upload) },
    );
    void this.#begin(engine).catch((error: Error) => {
      if (error.name !== "HostDied") this.#problems.push(`start: ${error.stack ?? error.message}`);
    });
  }

  async #begin(engine: Engine): Promise<void> {
    for (const name of this.#programs.keys())
      await engine.deploys.deploy({
        namespace: "default",
        name,
        upload: { source: name, language: "js", file: `${name}.js` },
        by: "simulation",
      });
    await engine.start();
  }

  #faults(): StoreFaults {
    return {
      crashNow: () => {
        const moment = this.#moments++;
        if (this.#options.crashAt !== undefined) return moment === this.#options.crashAt;
        return this.#storm && this.#kernel.dice.hits(this.#options.crashes ?? 0.01);
      },
    };
  }

  #compile(upload: Upload): Compilation {
    const name = upload.source;
    const program = this.#programs.get(name) as Program;
    return {
      ok: true,
      problems: [],
      script: {
        workflow: name,
        hash: name,
        file: upload.file,
        source: name,
        code: "",
        manifest: manifestOf(name, program),
        scope: "frozen",
      },
    };
  }

  #inFlightOnDisk({ idempotencyKey }: RecordedCall): boolean {
    const { durable } = this.#disk;
    return durable?.includes(Buffer.from(idempotencyKey)) ?? false;
  }

  #judge(): void {
    const { db } = this.#store as SimStore;
    const say = (problem: string) => this.#problems.push(problem);
    for (const finding of inspect(db)) say(`invariant ${finding.invariant}: ${finding.message}`);
    for (const finding of verify(db)) say(`verify: ${finding.message}`);
    for (const key of this.#world.early) say(`a call left before its row was durable: ${key}`);
    for (const [key, times] of this.#world.effects)
      if (times > 1) say(`decision ${key} happened ${times} times`);
    const open = db
      .prepare("SELECT id, status, pause_reason, phase, error_json FROM runs WHERE open = 1")
      .all();
    for (const run of open) say(`still open: ${JSON.stringify(run)}`);
    if (this.#commits === 0) say("no work was done");
    this.#judgeEvents(say);
  }

  /** What the programs must have brought about, computed without the engine. */
  #judgeEvents(say: (problem: string) => void): void {
    const { db } = this.#store as SimStore;
    const changed = new Map<string, number>();
    for (const call of this.#world.sends)
      if (this.#world.effects.has(call.idempotencyKey))
        changed.set(`${call.workflow} ${call.args} ${call.idempotencyKey}`, 1);
    const perEvent = new Map<string, number>();
    for (const one of changed.keys()) {
      const [workflow, args] = one.split(" ") as [string, string];
      const { ids } = (JSON.parse(args) as { data: { ids: string[] } }).data;
      for (const id of ids) perEvent.set(`${workflow}/${id}`, (perEvent.get(`${workflow}/${id}`) ?? 0) + 1);
    }
    for (const [name, program] of this.#programs) {
      const workflow = db.prepare("SELECT id FROM workflows WHERE name = ?").pluck().get(name) as number;
      const made = db
        .prepare("SELECT message_id FROM events WHERE workflow = ? AND topic = ?")
        .pluck()
        .all(workflow, program.produces.topic) as string[];
      for (const [consumer, { topic, mutates, publishes }] of Object.entries(program.consumers)) {
        if (topic !== program.produces.topic) continue;
        const waiting = db
          .prepare(
            "SELECT count(*) FROM deliveries d JOIN handlers h ON h.id = d.handler WHERE h.workflow = ? AND h.name = ? AND d.status <> 'consumed'",
          )
          .pluck()
          .get(workflow, consumer) as number;
        if (waiting > 0) say(`${name}/${consumer}: ${waiting} events were never consumed`);
        for (const id of made) {
          const times = perEvent.get(`${workflow}/${id}`) ?? 0;
          if (mutates && times !== 1) say(`${name}/${consumer}: ${id} had ${times} effects`);
          const follows =
            publishes === undefined ||
            db
              .prepare("SELECT 1 FROM events WHERE workflow = ? AND topic = ? AND message_id = ?")
              .get(workflow, publishes, `${id}'`);
          if (!follows) say(`${name}/${consumer}: nothing followed from ${id}`);
        }
      }
    }
  }
}

function generate(kernel: Kernel, count: number): Map<string, Program> {
  const { dice } = kernel;
  const programs = new Map<string, Program>();
  for (let i = 0; i < count; i++) {
    const first: ConsumerProgram = {
      topic: "made",
      batch: 1 + dice.below(3),
      mutates: dice.hits(0.7),
      ...(dice.hits(0.6) ? { publishes: "followed" } : {}),
    };
    const consumers: Record<string, ConsumerProgram> = { first };
    if (first.publishes !== undefined) consumers["second"] = { topic: "followed", batch: 5, mutates: false };
    programs.set(`w${i}`, { produces: { topic: "made", count: 1 + dice.below(4) }, consumers });
  }
  return programs;
}

function manifestOf(name: string, program: Program): Manifest {
  const topics = new Set([program.produces.topic]);
  for (const one of Object.values(program.consumers)) {
    topics.add(one.topic);
    if (one.publishes !== undefined) topics.add(one.publishes);
  }
  return {
    name,
    description: "",
    connections: { shop: "http", bank: "http" },
    topics: Object.fromEntries([...topics].map((topic) => [topic, { output: true }])),
    params: {},
    hooks: {},
    producers: {
      poll: { schedule: { interval: "10m", intervalMs: 600_000 }, publishes: [program.produces.topic] },
    },
    consumers: Object.fromEntries(
      Object.entries(program.consumers).map(([consumer, one]) => [
        consumer,
        {
          subscribes: [one.topic],
          publishes: one.publishes === undefined ? [] : [one.publishes],
          hasMutate: one.mutates,
          hasNext: one.publishes !== undefined,
        },
      ]),
    ),
  };
}
