/**
 * A whole engine for one test: real store, virtual clock, scripted sandbox, a world whose answers the test writes. When
 * the test ends, the laws of the database and the journal against the tables are checked (`doctor`, `verify`).
 *
 * Time stands still until `pass`. After every act the engine is left alone until nothing moves any more.
 */
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { PolicyRule } from "../../host/core/policy-resolve.ts";
import type { Decision } from "../../host/core/resolve.ts";
import { parseInterval } from "../../host/core/schedule.ts";
import type { DownSpan } from "../../host/core/slots.ts";
import type { Json, Manifest, Schedule, TopicDeclaration } from "../../host/core/workflow.ts";
import type { Deployed } from "../../host/engine/deploys.ts";
import { Engine, type EngineOptions } from "../../host/engine/engine.ts";
import { type Fed, feed } from "../../host/engine/feed.ts";
import type { Decided } from "../../host/engine/operator.ts";
import type { EngineEvent, Parts } from "../../host/engine/parts.ts";
import { policiesOf } from "../../host/engine/policies.ts";
import { scriptsOf } from "../../host/engine/scripts.ts";
import type { Compilation, Sandbox, SandboxCall } from "../../host/ports/sandbox.ts";
import { restore } from "../../host/store/backup.ts";
import { inspect } from "../../host/store/doctor.ts";
import { DATABASE, type SqliteStore } from "../../host/store/open.ts";
import { openSettled } from "../../host/store/restored.ts";
import { verify } from "../../host/store/verify.ts";
import { openScripted, type Play, type ScriptedSandbox } from "./scripted-sandbox.ts";
import { TestClock } from "./test-clock.ts";
import { TestWorld } from "./test-world.ts";
import * as view from "./host-view.ts";

export const SECOND = 1_000;
export const MINUTE = 60 * SECOND;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;
/** A Monday. */
export const MONDAY = Date.UTC(2026, 0, 5, 8);
export const ANN = { by: "ann" };

/** More than any scenario needs before it comes to rest. */
const MOST_MOVES = 50_000;

type Plays = Play | readonly unknown[];

/** A workflow as a test writes it. */
export interface Spec {
  producers?: Record<
    string,
    { every?: string; cron?: string; timezone?: string; publishes?: string[]; handler: Plays }
  >;
  consumers?: Record<
    string,
    { on: string | string[]; publishes?: string[]; prepare: Plays; mutate?: Plays; next?: Plays }
  >;
  topics?: Record<string, Partial<TopicDeclaration>>;
  params?: Manifest["params"];
}

export interface HarnessOptions {
  slots?: number;
  fused?: boolean;
  policy?: PolicyRule[];
  startMs?: number;
  /** On a disk, so that it can be started again. */
  file?: boolean;
  engine?: Partial<EngineOptions>;
  parts?: Partial<Parts>;
  /** Real scripts in real isolates. */
  real?: { sandbox: Sandbox; compile: EngineOptions["compile"] };
  /** For tests that break the laws on purpose, or end in the middle of something. */
  lawless?: boolean;
}

/** `prepare`: reserves the oldest events of a topic, as many as told. */
export const take =
  (topic: string, count = 1): Play =>
  async (ctx) => {
    const events = (await ctx.peek(topic, { limit: count })) as { messageId: string; payload: unknown }[];
    return {
      reservations: [{ topic, ids: events.map((one) => one.messageId) }],
      data: { ids: events.map((one) => one.messageId), payloads: events.map((one) => one.payload) },
    };
  };
/** `mutate`: one call with the ids that were reserved. */
export const post: Play = (ctx, prepared: { data: { ids: string[] } }) => {
  ctx.bank.post({ ids: prepared.data.ids });
};
/** `prepare` or a producer that waits for an answer of the world first. */
export const asking =
  (then: Play): Play =>
  async (ctx, ...rest) => {
    await ctx.shop.get({});
    return then(ctx, ...rest);
  };
/** A producer that publishes the same ids on every run. */
export const publishing =
  (topic: string, ...ids: string[]): Play =>
  (ctx) => {
    for (const id of ids) ctx.publish(topic, { messageId: id, payload: { id } });
  };
export const nothing: Play = () => undefined;

export async function harness(options: HarnessOptions = {}): Promise<Harness> {
  const made = new Harness(options);
  await made.begin([]);
  return made;
}

export class Harness {
  readonly clock: TestClock;
  readonly world = new TestWorld();
  /** Everything the engine has told, in order. */
  readonly told: EngineEvent[] = [];
  engine!: Engine;
  store!: SqliteStore;
  parts!: Parts;
  readonly #options: HarnessOptions;
  readonly #folder: string | undefined;
  readonly #versions = new Map<Spec, { hash: string; manifest: Manifest; sandbox: ScriptedSandbox }>();
  readonly #workflows = new Map<string, number>();
  #moves = 0;
  #pending = 0;

  constructor(options: HarnessOptions) {
    this.#options = options;
    this.clock = new TestClock(options.startMs ?? MONDAY);
    this.#folder = options.file ? mkdtempSync(join(tmpdir(), "pawl-engine-")) : undefined;
  }

  async begin(downtime: DownSpan[]): Promise<void> {
    const { slots = 4, fused = true, policy = [], engine = {}, parts = {}, real } = this.#options;
    const { store: opened } = await openSettled({
      data: this.#folder ?? ":memory:",
      nowMs: () => this.clock.nowMs(),
      checkpoints: false,
    });
    this.store = opened;
    const store = this.#watched(this.store);
    this.parts = {
      store,
      sandbox: real?.sandbox ?? this.#sandbox(),
      world: this.world,
      clock: this.clock,
      policies: policiesOf([{ level: "host", rules: policy }]),
      scripts: scriptsOf(store),
      downtime,
      fused,
      hash: (text) => createHash("sha256").update(text).digest("base64url"),
      tell: (event) => {
        this.#moves++;
        this.told.push(event);
      },
      ...parts,
    };
    if (real) this.parts.sandbox = this.#watched(real.sandbox);
    const compile = real?.compile ?? (async ({ source, file }) => this.#compiled(source, file));
    this.engine = new Engine(this.parts, { slots, compile, ...engine });
    await this.engine.start();
    await this.settle();
  }

  /** Acts, then lets everything that follows from it happen. */
  async act<Result>(work: Promise<Result>): Promise<Result> {
    const result = await work;
    await this.settle();
    return result;
  }

  async pass(ms: number): Promise<void> {
    await this.settle();
    await this.clock.pass(ms, () => this.settle());
  }

  /** Until nothing moves any more; fails when something never stops. */
  async settle(): Promise<void> {
    let seen = -1;
    const mostMoves = this.#moves + MOST_MOVES;
    for (let quiet = 0; quiet < 10; ) {
      await new Promise((resolve) => setImmediate(resolve));
      if (this.#pending === 0 && seen === this.#moves) quiet++;
      else quiet = 0;
      seen = this.#moves;
      if (seen > mostMoves) throw new Error("the engine does not come to rest");
    }
  }

  /** How often the engine has asked its seams for something. */
  get moves(): number {
    return this.#moves;
  }

  async deploy(
    name: string,
    spec: Spec,
    {
      namespace = "default",
      ...more
    }: { namespace?: string; orphans?: "keep" | "skip" | { moveTo: string } } = {},
  ): Promise<Deployed> {
    this.#version(name, spec);
    const upload = { source: this.#hash(spec), language: "js" as const, file: `${name}.js` };
    const made = await this.act(this.engine.deploys.deploy({ namespace, name, upload, ...ANN, ...more }));
    if (made.ok) this.#workflows.set(name, made.workflow);
    return made;
  }

  async deploySource(name: string, source: string): Promise<Deployed> {
    const upload = { source, language: "ts" as const, file: `${name}.ts` };
    const made = await this.act(this.engine.deploys.deploy({ namespace: "default", name, upload, ...ANN }));
    if (made.ok) this.#workflows.set(name, made.workflow);
    return made;
  }

  id(workflow = "w"): number {
    const id = this.#workflows.get(workflow);
    if (id === undefined) throw new Error(`no workflow ${workflow} was deployed`);
    return id;
  }

  /** An event from outside. */
  feed(topic: string, messageId: string, payload: Json = {}, workflow = "w"): Promise<Fed> {
    const event = { topic, messageId, payload: JSON.stringify(payload) };
    return this.act(
      feed(this.parts, this.id(workflow), event).then((fed) => {
        this.engine.poke();
        return fed;
      }),
    );
  }

  /** A decision about the newest run of a handler. */
  decide(handler: string, decision: Decision): Promise<Decided> {
    return this.act(this.engine.operator.decide(this.run(handler).id, decision, ANN));
  }

  get operator(): Engine["operator"] {
    return this.engine.operator;
  }

  runNow(handler?: string, key?: string): Promise<Decided> {
    return this.act(this.operator.runNow(this.id(), handler, ANN, key === undefined ? {} : { key }));
  }

  /** The host dies where it stands, and another one starts `downMs` later; meanwhile somebody may set the clock. */
  async restart(downMs = 0, jumpMs = 0): Promise<void> {
    this.clock.forgetTimers();
    await this.store[Symbol.asyncDispose]();
    const fromMs = this.clock.nowMs();
    await this.clock.pass(downMs, async () => {});
    this.clock.jump(jumpMs);
    await this.begin([{ fromMs, toMs: this.clock.nowMs() }]);
  }

  /** The folder is lost and made anew from a backup: by `restore`, or by hand. Nobody was there for `downMs`. */
  async restore(backup: string, how: "by command" | "by hand", downMs = 0): Promise<void> {
    if (this.#folder === undefined) throw new Error("only what is on a disk can be lost");
    this.clock.forgetTimers();
    await this.store[Symbol.asyncDispose]();
    const fromMs = this.clock.nowMs();
    await this.clock.pass(downMs, async () => {});
    rmSync(this.#folder, { recursive: true });
    if (how === "by command") await restore(backup, this.#folder, () => this.clock.nowMs());
    else {
      mkdirSync(this.#folder);
      copyFileSync(backup, join(this.#folder, DATABASE));
    }
    await this.begin([{ fromMs, toMs: this.clock.nowMs() }]);
  }

  runs(handler?: string): view.RunView[] {
    return view.runs(this.store.db, handler);
  }

  /** The newest run of a handler. */
  run(handler: string): view.RunView {
    const last = this.runs(handler).at(-1);
    if (!last) throw new Error(`no run of ${handler}`);
    return last;
  }

  /** Status, and what it waits for, of each run of a handler. */
  statuses(handler: string): string[] {
    return this.runs(handler).map((one) => (one.reason ? `${one.status} ${one.reason}` : one.status));
  }

  deliveries(consumer: string): string[] {
    return view.deliveries(this.store.db, consumer).map((one) => `${one.messageId} ${one.status}`);
  }

  delivery(consumer: string, messageId: string): number {
    const found = view.deliveries(this.store.db, consumer).findLast((one) => one.messageId === messageId);
    if (!found) throw new Error(`${consumer} has no delivery ${messageId}`);
    return found.id;
  }

  events(topic: string): view.EventView[] {
    return view.events(this.store.db, topic);
  }

  slots(producer: string): string[] {
    return view.slots(this.store.db, producer);
  }

  inbox(): string[] {
    return view.inbox(this.store.db);
  }

  handler(name: string): view.HandlerView {
    return view.handler(this.store.db, name);
  }

  warnings(): string[] {
    return this.told.flatMap((one) => (one.kind === "engine.warning" ? [one.message] : []));
  }

  /** Calls that the sandbox got, as "handler unit". */
  units(): string[] {
    return this.calls.map((call) => `${call.handler} ${call.unit}`);
  }

  readonly calls: SandboxCall[] = [];

  async [Symbol.asyncDispose](): Promise<void> {
    this.clock.forgetTimers();
    const problems = this.#options.lawless
      ? []
      : [...inspect(this.store.db), ...verify(this.store.db)].map((one) => one.message);
    await this.store[Symbol.asyncDispose]();
    if (this.#folder !== undefined) rmSync(this.#folder, { recursive: true, force: true });
    if (problems.length > 0) throw new Error(`laws are broken:\n${problems.join("\n")}`);
  }

  #hash(spec: Spec): string {
    return this.#versions.get(spec)?.hash as string;
  }

  #version(name: string, spec: Spec): void {
    if (this.#versions.has(spec)) return;
    const hash = `${name}#${this.#versions.size + 1}`;
    const sandbox = openScripted({ [name]: spec as never });
    this.#versions.set(spec, { hash, manifest: manifestOf(name, spec), sandbox });
  }

  #compiled(hash: string, file: string): Compilation {
    const found = [...this.#versions.values()].find((one) => one.hash === hash);
    if (!found) throw new Error(`nothing is known of ${hash}`);
    const { manifest } = found;
    const script = {
      workflow: manifest.name,
      hash,
      file,
      source: hash,
      code: "",
      manifest,
      scope: "frozen" as const,
    };
    return { ok: true, problems: [], script };
  }

  /** Each version runs its own functions. */
  #sandbox(): Sandbox {
    return {
      run: async (call, answer) => {
        this.#moves++;
        this.calls.push(call);
        const version = [...this.#versions.values()].find((one) => one.hash === call.script.hash);
        if (!version) throw new Error(`nothing is scripted for ${call.script.hash}`);
        const result = await version.sandbox.run(call, answer);
        this.#moves++;
        return result;
      },
      hardening: async () => ({ level: 1, layers: [] }),
      [Symbol.asyncDispose]: async () => {},
    };
  }

  /** Counts what the engine asks for, so that `settle` knows when it has stopped. */
  #watched<Seam extends object>(seam: Seam): Seam {
    return new Proxy(seam, {
      get: (target, name) => {
        const value = Reflect.get(target, name, target) as unknown;
        if (typeof value !== "function") return value;
        return (...args: unknown[]) => {
          const result = (value as (...args: unknown[]) => unknown).apply(target, args);
          this.#moves++;
          if (!(result instanceof Promise)) return result;
          this.#pending++;
          const done = () => {
            this.#pending--;
            this.#moves++;
          };
          result.then(done, done);
          return result;
        };
      },
    });
  }
}

function manifestOf(
  name: string,
  { producers = {}, consumers = {}, topics = {}, params = {} }: Spec,
): Manifest {
  const named = new Set(Object.keys(topics));
  for (const one of Object.values(producers)) for (const topic of one.publishes ?? []) named.add(topic);
  for (const one of Object.values(consumers))
    for (const topic of [one.on, one.publishes ?? []].flat()) named.add(topic);
  return {
    name,
    description: "",
    connections: { shop: "memory", bank: "memory" },
    topics: Object.fromEntries([...named].map((topic) => [topic, { output: true, ...topics[topic] }])),
    params,
    hooks: {},
    producers: Object.fromEntries(
      Object.entries(producers).map(([key, one]) => [
        key,
        { schedule: scheduleOf(one), publishes: one.publishes ?? [] },
      ]),
    ),
    consumers: Object.fromEntries(
      Object.entries(consumers).map(([key, one]) => [
        key,
        {
          subscribes: [one.on].flat(),
          publishes: one.publishes ?? [],
          hasMutate: one.mutate !== undefined,
          hasNext: one.next !== undefined,
        },
      ]),
    ),
  };
}

function scheduleOf({
  every,
  cron,
  timezone = "UTC",
}: {
  every?: string;
  cron?: string;
  timezone?: string;
}): Schedule {
  if (cron !== undefined) return { cron, timezone };
  const interval = every ?? "1h";
  return { interval, intervalMs: parseInterval(interval) as number };
}
