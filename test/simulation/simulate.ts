/**
 * One seed: generated workflows, a host that dies and comes back, a world that misbehaves, people who meddle; then
 * everything heals, and what should have happened is compared with what did.
 */
import { createHash } from "node:crypto";
import { Engine } from "../../host/engine/engine.ts";
import { policiesOf } from "../../host/engine/policies.ts";
import { scriptsOf } from "../../host/engine/scripts.ts";
import { blankDisk, type Disk } from "./disk.ts";
import { judge } from "./judge.ts";
import { Chance, Kernel } from "./kernel.ts";
import { type Act, ACTS, People, RESTLESS_ACTS, uploadOf } from "./people.ts";
import { compile, generate, type Program } from "./programs.ts";
import { SANDBOX_FAULTS, SimSandbox } from "./sim-sandbox.ts";
import { type Moment, simStore, type StoreHooks } from "./sim-store.ts";
import { SimAccess } from "./sim-access.ts";
import { RESTLESS, SimWorld, WORLD_FAULTS } from "./sim-world.ts";
import { Watch } from "./watch.ts";

export type CrashMode = "kill" | "power cut";

export interface SimulationOptions {
  seed: number;
  workflows?: number;
  /** Virtual time with faults, before everything heals. */
  stormMs?: number;
  /** Given programs, instead of generated ones; then nothing goes wrong but what is asked for. */
  programs?: Program[];
  fused?: boolean;
  /** Ends the host at these moments, counted from 0, and nowhere else. */
  crashAt?: readonly number[];
  crashMode?: CrashMode;
  /** Nobody touches connections and grants, and no two people act at once: the ground of the older seeds. */
  steady?: boolean;
  /** Faults and acts that are left out, whatever the seed says. */
  without?: readonly string[];
}

export interface Simulated {
  problems: string[];
  trace: string[];
  /** Fingerprint of everything that happened. */
  hash: string;
  /** Moments at which a crash was possible. */
  moments: number;
  /** Of those, before everything healed. */
  stormMoments: number;
  lives: number;
  commits: number;
  effects: number;
  tally: Map<string, number>;
}

/** Steps without time going on: a loop that never ends. */
const STEPS = 20_000;
const HEALING_MS = 120_000;
const MOST_HEALING = 100;
const STORE_FAULTS = ["crash", "power cut", "disk full", "I/O error", "slow apply", "slow fsync"] as const;
export const FAULTS: readonly string[] = [...WORLD_FAULTS, ...RESTLESS, ...SANDBOX_FAULTS, ...STORE_FAULTS];

export async function simulate(options: SimulationOptions): Promise<Simulated> {
  return new Simulation(options).run();
}

class Simulation {
  readonly #options: SimulationOptions;
  readonly #kernel: Kernel;
  readonly #disk: Disk;
  readonly #world: SimWorld;
  readonly #watch: Watch;
  readonly #people: People;
  /** What the authors want to have deployed. */
  readonly #programs: Map<string, Program>;
  readonly #problems: string[] = [];
  /** Chance of each fault while the storm lasts. */
  readonly #weather: Map<string, number>;
  readonly #down: { fromMs: number; toMs: number }[] = [];
  readonly #slots: number;
  #died = false;
  #brokenAt: number | undefined;
  #moments = 0;
  #lives = 0;
  #commits = 0;
  #storm = true;
  #sandbox: SimSandbox | undefined;

  constructor(options: SimulationOptions) {
    this.#options = options;
    const { seed, programs } = options;
    this.#slots = 1 + (seed % 3);
    this.#kernel = new Kernel(seed);
    this.#disk = blankDisk();
    // A generator of its own: leaving a fault out, or a workflow, leaves the others as they are.
    const plan = new Chance(seed ^ 0x51ed270b);
    // Another one, so that the older seeds stay what they were.
    const steady = options.steady ?? (programs === undefined && new Chance(seed ^ 0x2545f491).hits(0.2));
    const mood = { grudging: plan.hits(0.08), patient: plan.hits(0.08), steady };
    this.#weather = programs ? new Map() : forecast(plan, options.without ?? [], mood);
    const workflows = options.workflows ?? plan.between(1, 4);
    const made =
      programs ??
      Array.from({ length: workflows }, (_, i) => generate(plan, `w${i}`, { ...mood, keyed: mood.grudging }));
    this.#programs = new Map(made.map((program) => [program.name, program]));
    const say = (message: string) => this.#problem(message);
    this.#world = new SimWorld(this.#kernel, new SimAccess(this.#disk));
    this.#world.problem = say;
    this.#watch = new Watch(this.#disk, this.#world, this.#slots, say);
    this.#world.onSend = (call) => this.#watch.send(call);
    const possible = steady ? ACTS : [...ACTS, ...RESTLESS_ACTS];
    const acts = programs ? [] : possible.filter((one) => this.#weather.has(one));
    this.#people = new People(this.#kernel, this.#disk, this.#world, this.#programs, acts as Act[]);
    this.#people.problem = say;
    this.#people.onAcknowledged = (fact) => this.#watch.acknowledged(fact);
  }

  async run(): Promise<Simulated> {
    const kernel = this.#kernel;
    const stormEndMs = kernel.nowMs() + (this.#options.stormMs ?? 1_500_000);
    await this.#live(() => kernel.nowMs() >= stormEndMs, stormEndMs);
    this.#storm = false;
    const stormMoments = this.#moments;
    await this.#heal();
    this.#problems.push(
      ...judge({
        kernel,
        disk: this.#disk,
        world: this.#world,
        people: this.#people,
        programs: this.#programs,
      }),
    );
    const { trace, tally } = kernel;
    return {
      problems: this.#problems,
      trace,
      hash: createHash("sha256").update(trace.join("\n")).digest("hex"),
      moments: this.#moments,
      stormMoments,
      lives: this.#lives,
      commits: this.#commits,
      effects: [...this.#world.decisions.values()].reduce((sum, one) => sum + one.effects, 0),
      tally,
    };
  }

  /** Lives, one after the other, until `over` or until nothing is left to do before `untilMs`. */
  async #live(over: () => boolean, untilMs: number): Promise<void> {
    if (this.#lives === 0) this.#boot();
    while (!over()) {
      const state = await this.#kernel.run(() => this.#died, untilMs, STEPS);
      if (state === "busy") this.#problem(`invariant 18: busy without end at ${this.#kernel.nowMs()}`);
      if (state !== "done") return;
      await this.#restart();
    }
  }

  async #heal(): Promise<void> {
    this.#setWeather();
    // People who tell the truth come with a host that stays up.
    if (!this.#died) this.#end("kill");
    await this.#restart();
    const least = this.#options.programs ? 0 : 1;
    for (let i = 0; i < MOST_HEALING && this.#problems.length === 0; i++) {
      await this.#live(() => false, this.#kernel.nowMs() + HEALING_MS);
      if (i >= least && this.#isQuiet()) return;
    }
  }

  #isQuiet(): boolean {
    const { n } = this.#disk.statement("SELECT count(*) AS n FROM runs WHERE open = 1").get() as {
      n: number;
    };
    return n === 0 && this.#people.areDone;
  }

  async #restart(): Promise<void> {
    const { dice } = this.#kernel;
    const fromMs = this.#kernel.nowMs();
    if (this.#storm && dice.hits(0.4))
      await this.#kernel.run(() => false, fromMs + dice.between(1_000, 1_200_000), STEPS);
    this.#down.push({ fromMs, toMs: this.#kernel.nowMs() });
    this.#boot();
  }

  /** A new life: from the disk as the last one left it, or as a power cut left it. */
  #boot(): void {
    const kernel = this.#kernel;
    this.#died = false;
    this.#lives++;
    kernel.note(`life ${this.#lives}`);
    const store = simStore(kernel, this.#disk, this.#hooks());
    this.#watch.incarnation = store.fence.incarnation;
    const sandbox = new SimSandbox(kernel);
    sandbox.problem = (message) => this.#problem(message);
    sandbox.onUnit = (call) => this.#watch.unit(call);
    this.#sandbox = sandbox;
    this.#setWeather();
    const broken = { at: this.#lives };
    const engine = new Engine(
      {
        store,
        sandbox,
        world: this.#world,
        clock: kernel,
        policies: policiesOf([]),
        scripts: scriptsOf(store),
        downtime: this.#down,
        fused: this.#options.fused ?? this.#options.seed % 4 !== 0,
        hash: (text) => createHash("sha256").update(text).digest("base64url"),
        tell: (event) => {
          if (event.kind === "run.ended" && event.facts.run.status === "committed") this.#commits++;
          if (event.kind === "engine.warning") this.#warned(event.message, broken.at);
        },
      },
      { slots: this.#slots, compile: async (upload) => compile(upload) },
    );
    const watched = (work: Promise<void>, what: string) =>
      work.catch((error: Error) => this.#warned(`${what}: ${error.stack ?? error.message}`, broken.at));
    void watched(this.#begin(engine), "start");
    const life = { engine, store };
    // Where only the crash is asked for, people are sensible from the beginning.
    const meddles = this.#storm && !this.#options.programs;
    const people = meddles ? this.#people.meddle(life, () => this.#storm) : this.#people.mend(life);
    void watched(people, "people");
  }

  async #begin(engine: Engine): Promise<void> {
    for (const program of this.#programs.values()) await engine.deploys.deploy(uploadOf(program));
    await engine.start();
  }

  /** A store that is broken, and a check that threw, are the only things worth a warning. */
  #warned(message: string, life: number): void {
    if (this.#brokenAt === life || message.includes("the check threw")) return;
    this.#problem(`warning: ${message}`);
  }

  #hooks(): StoreHooks {
    const life = this.#lives;
    return {
      dies: (moment) => this.#dies(moment),
      breaks: () =>
        this.#happens("disk full") ? "disk full" : this.#happens("I/O error") ? "I/O error" : undefined,
      delayMs: (what) => (this.#happens(`slow ${what}`) ? this.#kernel.dice.between(1, 8_000) : 0),
      onDeath: () => this.#end(this.#options.crashMode),
      onBroken: () => {
        this.#brokenAt = life;
        // The process sees that its store is gone and ends, a moment later.
        this.#kernel.at(this.#kernel.nowMs() + 200, () => {
          if (this.#lives === life && !this.#died) this.#end("kill");
        });
      },
      watch: (change) => this.#watch.change(change),
      problem: (message) => this.#problem(message),
    };
  }

  #dies(moment: Moment): boolean {
    const now = this.#moments++;
    const { crashAt } = this.#options;
    const dies = crashAt ? crashAt.includes(now) : this.#happens("crash");
    if (dies) {
      this.#kernel.count(`crash ${moment}`);
      this.#kernel.note(`the host dies: ${moment}`);
    }
    return dies;
  }

  #end(mode?: CrashMode): void {
    const { dice } = this.#kernel;
    const power = mode === undefined ? this.#happens("power cut") : mode === "power cut";
    const { unsynced } = this.#disk;
    const lost = power ? (this.#options.crashAt ? unsynced : dice.below(unsynced + 1)) : 0;
    this.#kernel.note(power ? `power cut: ${lost} of ${unsynced} groups lost` : "killed");
    this.#kernel.crash();
    this.#world.hostDied();
    this.#disk.lose(lost);
    this.#died = true;
    this.#watch.died();
  }

  #happens(fault: string): boolean {
    if (!this.#storm || !this.#kernel.dice.hits(this.#weather.get(fault) ?? 0)) return false;
    this.#kernel.count(fault);
    return true;
  }

  #setWeather(): void {
    const weather = this.#storm ? Object.fromEntries(this.#weather) : {};
    this.#world.weather = weather;
    if (this.#sandbox) this.#sandbox.weather = weather;
  }

  #problem(message: string): void {
    if (this.#problems.length === 0) this.#kernel.note(`PROBLEM ${message}`);
    if (this.#problems.length < 20) this.#problems.push(message);
  }
}

/** Each seed has its own weather: some faults often, some rarely, some not at all. */
function forecast(
  dice: Chance,
  without: readonly string[],
  { grudging, patient, steady }: { grudging: boolean; patient: boolean; steady: boolean },
): Map<string, number> {
  const weather = new Map<string, number>();
  const add = (fault: string, share: number, most: number) => {
    const [comes, chance] = [dice.hits(share), most * (0.2 + 0.8 * dice.next())];
    if (comes && !without.includes(fault)) weather.set(fault, chance);
  };
  for (const fault of WORLD_FAULTS) add(fault, 0.4, 0.2);
  for (const fault of SANDBOX_FAULTS) add(fault, 0.35, fault === "takes long" ? 0.5 : 0.1);
  add("crash", 0.7, 0.02);
  add("power cut", 0.7, 0.6);
  add("disk full", 0.1, 0.004);
  add("I/O error", 0.1, 0.004);
  add("slow apply", 0.3, 0.1);
  add("slow fsync", 0.3, 0.3);
  // Some services answer late, and say no after all.
  if (grudging && !without.includes("late refusal")) weather.set("late refusal", 0.5);
  // Some scripts are long at work, and are lost when they are nearly done.
  if (patient)
    for (const fault of ["takes long", "dies after"]) if (!without.includes(fault)) weather.set(fault, 0.5);
  const meddling = dice.hits(0.6) || patient;
  for (const act of new Set(ACTS)) add(act, meddling ? 0.7 : 0, 1);
  if (!steady) {
    for (const fault of RESTLESS) add(fault, 0.4, 0.3);
    for (const act of new Set(RESTLESS_ACTS)) add(act, meddling ? 0.6 : 0, 1);
  }
  return weather;
}
