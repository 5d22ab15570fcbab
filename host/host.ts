/**
 * Composition root: the only file that names every adapter, and the order in which they start and stop. `createHost` is
 * what the library exports; several hosts may live in one process, each with a store of its own.
 *
 * Start: store, sandbox, engine (which recovers before it schedules). Stop: the engine drains, then sandbox, then store.
 */
import { createHash } from "node:crypto";
import { type Fixture, fixtureShape, FixtureWorld } from "./connectors/fixtures.ts";
import { LoopbackWorld } from "./connectors/loopback.ts";
import { MemoryWorld, type MemoryWorldOptions } from "./connectors/memory.ts";
import type { Change } from "./core/change.ts";
import type { WorkflowId } from "./core/ids.ts";
import { formatId, parseId } from "./core/ids.ts";
import type { Published } from "./core/journal.ts";
import type { PolicyLayer } from "./core/policy-resolve.ts";
import type { Decision } from "./core/resolve.ts";
import type { Json } from "./core/workflow.ts";
import type { Deployed } from "./engine/deploys.ts";
import { Engine } from "./engine/engine.ts";
import { feed } from "./engine/feed.ts";
import type { Decided, Expectation } from "./engine/operator.ts";
import type { EngineEvent, Parts } from "./engine/parts.ts";
import { policiesOf } from "./engine/policies.ts";
import { scriptsOf } from "./engine/scripts.ts";
import type { Clock } from "./ports/clock.ts";
import type { World } from "./ports/connector.ts";
import type { Page, PageRequest, RunDetail, RunFilter, RunRecord, WorkflowRecord } from "./ports/records.ts";
import type { Compilation, Problem, Sandbox, Upload } from "./ports/sandbox.ts";
import { compileOnce } from "./sandbox/compile-once.ts";
import { withParams } from "./sandbox/params.ts";
import { openPool } from "./sandbox/pool.ts";
import type { Finding } from "./store/doctor.ts";
import { examine } from "./store/examine.ts";
import type { Durability, SqliteStore } from "./store/open.ts";
import { examineOpenWork, openSettled, type Restored } from "./store/restored.ts";
import { tidyUp } from "./store/retention.ts";
import { Pages } from "./store/sqlite/pages.ts";
import { systemClock } from "./system/clock.ts";
import { failpointOf } from "./system/failpoints.ts";
import { type LogLevel, logEvent, openLog } from "./system/log.ts";
import { observedStore, observedWorld } from "./system/observed.ts";
import { redactedWorld } from "./system/redacted-world.ts";
import { Redactor } from "./system/redactor.ts";
import { eventNames, runEnded, runStarted } from "./system/telemetry.ts";

export { eventNames, examine, fixtureShape };
export type { Compilation, Decided, Deployed, Expectation, Finding, Fixture, Problem, Upload };
export { frame, inspectHardening, openWorkbench, type Workbench } from "./sandbox/workbench.ts";
export type { PhaseTelemetry, RunTelemetry, StoreTelemetry } from "./system/telemetry.ts";

const DAY_MS = 86_400_000;
const NAMESPACE = "default";

export interface HostOptions {
  /** A folder; without it the host keeps everything in memory and forgets it with its end. */
  data?: string;
  /** Runs at once. */
  slots?: number;
  minIntervalMs?: number;
  durability?: Durability;
  policies?: PolicyLayer[];
  /** The outside. Without it every tool answers, and nothing happens. */
  world?: World;
  /** Values of a workflow's params over the defaults that its script declares. */
  params?: (workflow: string) => Record<string, Json>;
  clock?: Clock;
  log?: { level: LogLevel; write: (line: string) => void };
  /** Values that must not appear in any log line. */
  secrets?: readonly string[];
  /** Told what happened, after it did. What it throws changes nothing. */
  observe?: (event: HostEvent) => void;
  /** The disk refused a write: nothing is acknowledged any more, stop and start again. */
  onBroken?: (error: Error) => void;
  /** Tests only. */
  failpoint?: string;
}

/** What a run published comes with its end. */
export type HostEvent =
  | Exclude<EngineEvent, { kind: "run.ended" }>
  | (EngineEvent & { kind: "run.ended" } & { published: Published[] });

/** Who acts; `by` is written into the audit. */
export interface Acting {
  by?: string;
  note?: string;
}

export interface ScriptUpload extends Acting {
  source: string;
  file?: string;
  language?: "ts" | "js";
  /** The name it is deployed under; without it, the script's own. */
  name?: string;
  sourceMap?: string;
  orphans?: "keep" | "skip" | { moveTo: string };
}

export type PublishAnswer =
  | {
      ok: true;
      outcome: "created" | "updated" | "unchanged";
      event: string;
      /** Deliveries that a run works on: they keep the payload they were reserved with. */
      late: number;
    }
  | { ok: false; code: string; message: string };

export interface Started {
  /** Runs that a dead host had left active. */
  recovered: number;
  /** The data came from a backup: every workflow is paused until a person lets it go on. */
  restored?: Restored;
}

export function createHost(options: HostOptions = {}): Host {
  return new Host(options);
}

interface Running {
  store: SqliteStore;
  sandbox: Sandbox;
  engine: Engine;
  parts: Parts;
  records: Pages;
}

export class Host implements AsyncDisposable {
  readonly #options: HostOptions;
  readonly #redactor = new Redactor();
  readonly #tell: (event: HostEvent) => void;
  /** Of each workflow's newest run; a workflow has one at a time. */
  readonly #published = new Map<WorkflowId, Published[]>();
  readonly #compile: (upload: Upload) => Promise<Compilation>;
  #running: Running | undefined;
  #examined: Promise<void> | undefined;
  #starting: Promise<Started> | undefined;
  #stopping: Promise<void> | undefined;

  constructor(options: HostOptions) {
    this.#options = options;
    for (const secret of options.secrets ?? []) this.#redactor.register(secret);
    this.#tell = listeners(options, this.#redactor);
    this.#compile = compileOnce(options.minIntervalMs ?? 30_000);
  }

  /** Opens everything, recovers what a dead host left, begins to schedule. A second call waits for the first. */
  start(): Promise<Started> {
    this.#starting ??= this.#start().catch(async (error: unknown) => {
      await this.#close().catch(() => {});
      throw error;
    });
    return this.#starting;
  }

  async #start(): Promise<Started> {
    const { data = ":memory:", clock = systemClock, durability, failpoint, policies = [] } = this.#options;
    const point = failpointOf(failpoint);
    const { store, restored } = await openSettled({
      data,
      nowMs: () => clock.nowMs(),
      onBroken: (error) => this.#options.onBroken?.(error),
      ...(durability ? { durability } : {}),
    });
    const observed = observedStore(store, (change, { published }) => this.#applied(change, published), point);
    const sandbox = withParams(openPool(), this.#options.params);
    const parts: Parts = {
      store: observed,
      sandbox,
      world: observedWorld(redactedWorld(this.#options.world ?? new MemoryWorld(), this.#redactor), point),
      clock,
      policies: policiesOf(policies),
      scripts: scriptsOf(store),
      downtime: store.downtime,
      fused: true,
      hash: (text) => createHash("sha256").update(text).digest("base64url"),
      tell: (event) => this.#told(event),
    };
    const isOver = () => this.#running?.store !== store;
    const tidy = (nowMs: number) => tidyUp(store, nowMs, isOver);
    const engine = new Engine(parts, { slots: this.#options.slots ?? 16, compile: this.#compile, tidy });
    this.#running = { store, sandbox, engine, parts, records: new Pages(store.db) };
    const broken = (message: string) => this.#told({ kind: "engine.warning", message, atMs: clock.nowMs() });
    this.#examined = examineOpenWork(store.db, broken, isOver).catch((error: unknown) =>
      broken(String(error)),
    );
    return { ...(await engine.start()), ...(restored ? { restored } : {}) };
  }

  /** Claims nothing more, lets what runs finish, closes everything. */
  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  async #stop(): Promise<void> {
    await this.#starting?.catch(() => {});
    await this.#close();
  }

  async #close(): Promise<void> {
    const running = this.#running;
    this.#running = undefined;
    if (!running) return;
    try {
      await running.engine.stop();
    } finally {
      await this.#examined;
      await running.sandbox[Symbol.asyncDispose]();
      await running.store[Symbol.asyncDispose]();
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async deploy(upload: ScriptUpload): Promise<Deployed & { name: string }> {
    const { engine } = this.#open;
    const { source, file = "script.ts", language = "ts", sourceMap, by = "library", note, orphans } = upload;
    const given = { source, file, language, ...(sourceMap === undefined ? {} : { sourceMap }) };
    let { name } = upload;
    if (name === undefined) {
      const compiled = await this.check(given);
      if (!compiled.ok) return { ok: false, problems: compiled.problems, name: "" };
      name = compiled.script.workflow;
    }
    const made = await engine.deploys.deploy({
      namespace: NAMESPACE,
      name,
      upload: given,
      by,
      ...(note === undefined ? {} : { note }),
      ...(orphans === undefined ? {} : { orphans }),
    });
    engine.poke();
    return { ...made, name };
  }

  runNow(workflow: string, { handler, ...acting }: Acting & { handler?: string } = {}): Promise<Decided> {
    const { operator } = this.#open.engine;
    return this.#on(workflow, (id) => operator.runNow(id, handler, person(acting)));
  }

  /** Drains. With `abort` a script that runs now is ended early, but never a call in flight. */
  pause(workflow: string, { abort = false, ...acting }: Acting & { abort?: boolean } = {}): Promise<Decided> {
    return this.#on(workflow, (id) => this.#open.engine.operator.pause(id, person(acting), { abort }));
  }

  resume(workflow: string, acting: Acting = {}): Promise<Decided> {
    return this.#on(workflow, (id) => this.#open.engine.operator.resume(id, person(acting)));
  }

  /** Acknowledged when it is on disk. The same `messageId` again is recognised, not doubled. */
  async publish(
    workflow: string,
    event: { topic: string; messageId: string; payload: Json },
  ): Promise<PublishAnswer> {
    const { engine, parts } = this.#open;
    const id = await this.#id(workflow);
    if (id === undefined) return notFound(workflow);
    const fed = await feed(parts, id, { ...event, payload: JSON.stringify(event.payload) });
    if (!fed.ok) return fed;
    engine.poke();
    const { outcome, late } = fed.event;
    return { ok: true, outcome, event: formatId("event", fed.event.event), late: late.length };
  }

  /** A person's answer about a run that waits; `expect` is what they were looking at. */
  async decide(
    run: string,
    decision: Decision,
    { expect, ...acting }: Acting & { expect?: Expectation } = {},
  ): Promise<Decided> {
    const id = parseId("run", run);
    if (id === undefined) return { ok: false, code: "not_found", message: `${run} is no run` };
    return this.#open.engine.operator.decide(id, decision, person(acting), expect);
  }

  async workflows(page: PageRequest & { archived?: boolean } = {}): Promise<Page<WorkflowRecord>> {
    const { records, parts } = this.#open;
    const namespace = await records.namespace(NAMESPACE);
    if (namespace === undefined) return { items: [] };
    const options = { archived: page.archived ?? false, sinceMs: parts.clock.nowMs() - DAY_MS };
    return records.workflows(namespace, options, page);
  }

  async workflow(name: string): Promise<WorkflowRecord | undefined> {
    const { records, parts } = this.#open;
    const [namespace, id] = [await records.namespace(NAMESPACE), await this.#id(name)];
    if (namespace === undefined || id === undefined) return undefined;
    return records.workflow(namespace, id, { sinceMs: parts.clock.nowMs() - DAY_MS });
  }

  /** Newest first. */
  async runs(
    filter: Omit<RunFilter, "workflow"> & { workflow?: string } = {},
    page: PageRequest = {},
  ): Promise<Page<RunRecord>> {
    const { records } = this.#open;
    const namespace = await records.namespace(NAMESPACE);
    const { workflow: name, ...rest } = filter;
    const workflow = name === undefined ? undefined : await this.#id(name);
    if (namespace === undefined || (name !== undefined && workflow === undefined)) return { items: [] };
    return records.runs(namespace, { ...rest, ...(workflow === undefined ? {} : { workflow }) }, page);
  }

  async run(id: string): Promise<RunDetail | undefined> {
    const { records } = this.#open;
    const [namespace, run] = [await records.namespace(NAMESPACE), parseId("run", id)];
    return namespace === undefined || run === undefined ? undefined : records.run(namespace, run);
  }

  /** Everything acknowledged so far is on disk. */
  async checkpoint(): Promise<void> {
    await this.#open.store.flush();
  }

  /** From now on this value is hidden in every log line. */
  hide(secret: string): void {
    this.#redactor.register(secret);
  }

  get #open(): Running {
    if (!this.#running || this.#stopping)
      throw new Error("the host is not running: await host.start() first");
    return this.#running;
  }

  async #id(workflow: string): Promise<WorkflowId | undefined> {
    const { records } = this.#open;
    const namespace = await records.namespace(NAMESPACE);
    return namespace === undefined ? undefined : records.workflowNamed(namespace, workflow);
  }

  async #on(workflow: string, act: (id: WorkflowId) => Promise<Decided>): Promise<Decided> {
    const id = await this.#id(workflow);
    return id === undefined ? notFound(workflow) : act(id);
  }

  /** What an upload of this source would say. */
  check(upload: Pick<ScriptUpload, "source" | "file" | "language">): Promise<Compilation> {
    const { source, file = "script.ts", language = "ts" } = upload;
    return this.#compile({ source, file, language, nowMs: (this.#options.clock ?? systemClock).nowMs() });
  }

  #applied(change: Change, published: Published[]): void {
    if (change.expect.run && published.length > 0)
      this.#published.set(change.workflow, [...(this.#published.get(change.workflow) ?? []), ...published]);
  }

  #told(event: EngineEvent): void {
    if (event.kind === "run.started") this.#published.delete(event.facts.workflow.id);
    if (event.kind !== "run.ended") return this.#tell(event);
    const published = this.#published.get(event.facts.workflow.id) ?? [];
    this.#published.delete(event.facts.workflow.id);
    this.#tell({ ...event, published });
  }
}

const person = ({ by = "library", note }: Acting): { by: string; note?: string } => ({
  by,
  ...(note === undefined ? {} : { note }),
});

const notFound = (workflow: string) =>
  ({ ok: false, code: "not_found", message: `there is no workflow ${workflow}` }) as const;

function listeners(options: HostOptions, redactor: Redactor): (event: HostEvent) => void {
  const { observe, clock = systemClock } = options;
  const log = options.log && openLog({ ...options.log, redactor });
  return (event) => {
    const atMs = clock.nowMs();
    if (event.kind === "run.started") runStarted(event.facts, atMs);
    if (event.kind === "run.ended") runEnded(event.facts, atMs);
    if (log) logEvent(log, event, atMs);
    try {
      observe?.(event);
    } catch {
      // Whoever looks on cannot stop the host.
    }
  };
}

/** The worlds that exist so far. */
export const worlds = {
  memory: (options?: MemoryWorldOptions) => new MemoryWorld(options),
  fixtures: () => new FixtureWorld(),
  loopback: (url: string) => new LoopbackWorld(url),
};
export type { FixtureWorld };
