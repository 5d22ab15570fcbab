/**
 * Composition root: the only file that names every adapter, and the order in which they start and stop. `createHost` is
 * what the library exports; several hosts may live in one process, each with a store of its own.
 *
 * Start: store, sandbox, engine (which recovers before it schedules). Stop: the engine drains, then sandbox, then store.
 */
import { createHash } from "node:crypto";
import type { Bulk } from "./api/bulk-desk.ts";
import { Desk, type PublishAnswer, type ScriptUpload } from "./api/desk.ts";
import type { Acting, Happening, Open } from "./api/open.ts";
import type { Listening, ListenOptions } from "./api/server.ts";
import { type Fixture, fixtureShape, FixtureWorld } from "./connectors/fixtures.ts";
import type { Keys, Rotated } from "./connectors/key-rotation.ts";
import { LoopbackWorld } from "./connectors/loopback.ts";
import { MemoryWorld, type MemoryWorldOptions } from "./connectors/memory.ts";
import type { Change } from "./core/change.ts";
import { PawlError } from "./core/errors.ts";
import type { WorkflowId } from "./core/ids.ts";
import type { Published } from "./core/journal.ts";
import type { PolicyLayer } from "./core/policy-resolve.ts";
import type { Json } from "./core/workflow.ts";
import type { openOutside, OutsideOptions } from "./host-outside.ts";
import type { Deployed } from "./engine/deploys.ts";
import { Engine } from "./engine/engine.ts";
import type { Decided, Expectation } from "./engine/operator.ts";
import type { EngineEvent, Parts } from "./engine/parts.ts";
import { policiesOf } from "./engine/policies.ts";
import { StoredRules } from "./engine/stored-rules.ts";
import { scriptsOf } from "./engine/scripts.ts";
import type { Compilation, Problem, Sandbox, Upload } from "./ports/sandbox.ts";
import { compileOnce } from "./sandbox/compile-once.ts";
import { withParams } from "./sandbox/params.ts";
import { openPool } from "./sandbox/pool.ts";
import type { Finding } from "./store/doctor.ts";
import { examine } from "./store/examine.ts";
import type { Durability, SqliteStore } from "./store/open.ts";
import { examineOpenWork, openSettled, type Restored } from "./store/restored.ts";
import { tidyUp } from "./store/retention.ts";
import { openKept } from "./store/sqlite/kept.ts";
import { SqliteNotices } from "./store/sqlite/notices.ts";
import { Pages } from "./store/sqlite/pages.ts";
import { SqliteSiblings } from "./store/sqlite/siblings.ts";
import { findStale } from "./store/stale.ts";
import { Upkeep } from "./store/upkeep.ts";
import { systemClock } from "./system/clock.ts";
import { failpointOf } from "./system/failpoints.ts";
import { type LogLevel, logEvent, openLog } from "./system/log.ts";
import { observedStore, observedWorld } from "./system/observed.ts";
import { redactedWorld } from "./system/redacted-world.ts";
import { Redactor } from "./system/redactor.ts";
import { eventNames, runEnded, runStarted } from "./system/telemetry.ts";

export { eventNames, examine, fixtureShape };
export type {
  Acting,
  Compilation,
  Decided,
  Deployed,
  Expectation,
  Finding,
  Fixture,
  Listening,
  ListenOptions,
  Problem,
  PublishAnswer,
  ScriptUpload,
  Upload,
};
export * from "./connectors/define.ts";
export { frame, inspectHardening, openWorkbench, type Workbench } from "./sandbox/workbench.ts";
export type { PhaseTelemetry, RunTelemetry, StoreTelemetry } from "./system/telemetry.ts";

const NAMESPACE = "default";

export interface HostOptions extends OutsideOptions {
  /** Runs at once. */
  slots?: number;
  minIntervalMs?: number;
  durability?: Durability;
  policies?: PolicyLayer[];
  /** Values of a workflow's params over the defaults that its script declares. */
  params?: (workflow: string) => Record<string, Json>;
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

export interface Started {
  /** Runs that a dead host had left active. */
  recovered: number;
  /** The data came from a backup: every workflow is paused until a person lets it go on. */
  restored?: Restored;
}

export function createHost(options: HostOptions = {}): Host {
  return new Host(options);
}

interface Running extends Open {
  store: SqliteStore;
  sandbox: Sandbox;
  /** Absent where the outside is made up. */
  keys?: Keys;
}

/** The desk of its namespace `default`, and what it takes to run. */
export class Host extends Desk implements AsyncDisposable {
  readonly #options: HostOptions;
  readonly #redactor = new Redactor();
  readonly #tell: (event: HostEvent) => void;
  /** Of each workflow's newest run; a workflow has one at a time. */
  readonly #published = new Map<WorkflowId, Published[]>();
  readonly #compile: (upload: Upload) => Promise<Compilation>;
  readonly #lookers = new Set<(happening: Happening) => void>();
  readonly #bulks: Map<string, Bulk>;
  #listening: Listening | undefined;
  #running: Running | undefined;
  #examined: Promise<void> | undefined;
  #starting: Promise<Started> | undefined;
  #stopping: Promise<void> | undefined;

  constructor(options: HostOptions) {
    const bulks = new Map<string, Bulk>();
    super(NAMESPACE, () => this.#open, bulks);
    this.#bulks = bulks;
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
    const outside = await outsideOf(this.#options, store, {
      redactor: this.#redactor,
      passing: () => this.#running?.engine.passingOn,
    }).catch(async (error: unknown) => {
      await store[Symbol.asyncDispose]();
      throw error;
    });
    const observed = observedStore(store, (change, { published }) => this.#applied(change, published), point);
    const sandbox = withParams(openPool(), this.#options.params);
    const kept = openKept(store);
    const stored = new StoredRules(kept.rules);
    const known = policiesOf(policies, stored);
    const parts: Parts = {
      store: observed,
      sandbox,
      world: observedWorld(redactedWorld(outside.world, this.#redactor), point),
      ...(outside.known ? { outside: outside.known } : {}),
      clock,
      policies: known,
      scripts: scriptsOf(store),
      downtime: store.downtime,
      fused: true,
      hash: (text) => createHash("sha256").update(text).digest("base64url"),
      tell: (event) => this.#told(event),
    };
    const isOver = () => this.#running?.store !== store;
    const notices = new SqliteNotices(store);
    const engine = new Engine(parts, {
      slots: this.#options.slots ?? 16,
      compile: this.#compile,
      tidy: (nowMs) => tidyUp(store, nowMs, isOver),
      stale: (after, beforeMs) => findStale(store, after, beforeMs),
      siblings: new SqliteSiblings(store.db),
      ...outside.engine(notices),
    });
    const { keys, teller } = outside;
    const records = new Pages(store.db);
    const open: Open = {
      engine,
      parts,
      records,
      notices,
      compile: this.#compile,
      kept,
      rules: {
        get: (scope) => stored.get(scope),
        change: (scope, make, namespace, by) => stored.change(scope, make, namespace, by),
        layersOf: (workflow) => known.layersOf(workflow),
      },
      upkeep: new Upkeep(store, this.#options.data, () => clock.nowMs()),
      ...(teller ? { teller } : {}),
    };
    this.#running = { ...open, store, sandbox, ...(keys ? { keys } : {}) };
    const broken = (message: string) => this.#told({ kind: "engine.warning", message, atMs: clock.nowMs() });
    this.#examined = examineOpenWork(store.db, broken, isOver).catch((error: unknown) =>
      broken(String(error)),
    );
    if (keys && keys.found.foreign.length > 0)
      broken(`no key opens the secrets of ${keys.found.foreign.join(", ")}: enter them again`);
    return { ...(await engine.start()), ...(restored ? { restored } : {}) };
  }

  /** Answers HTTP requests from now on, until the host stops. */
  async listen(options: ListenOptions = {}): Promise<Listening> {
    if (this.#listening) throw new Error("the host listens already");
    // Whoever embeds a host without HTTP loads nothing of it.
    const { openServer } = await import("./api/server.ts");
    this.#listening = await openServer(
      {
        open: () => this.#open,
        desk: (name) => this.namespace(name),
        watch: (look) => {
          this.#lookers.add(look);
          return () => this.#lookers.delete(look);
        },
        hide: (secret) => this.hide(secret),
        warn: (message) => {
          const { clock = systemClock } = this.#options;
          this.#told({ kind: "engine.warning", message, atMs: clock.nowMs() });
        },
      },
      options,
    );
    return this.#listening;
  }

  /** Claims nothing more, lets what runs finish, closes everything. */
  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  async #stop(): Promise<void> {
    await this.#starting?.catch(() => {});
    await this.#listening?.close();
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

  /** The desk of another namespace, which is made with the first thing that is put into it. */
  namespace(name: string): Desk {
    return name === NAMESPACE ? this : new Desk(name, () => this.#open, this.#bulks);
  }

  /** A new master key, under which every data key is wrapped; with `renewDataKeys` the secrets are encrypted anew, too. */
  async rotateKeys({ renewDataKeys = false } = {}): Promise<Rotated> {
    const { keys } = this.#open;
    if (!keys) throw new PawlError("no-connections", "this host has no secrets whose key could change");
    const rotated = await keys.rotateMaster();
    if (!renewDataKeys) return rotated;
    return { ...rotated, ...(await keys.renewDataKeys()) };
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

  #applied(change: Change, published: Published[]): void {
    if (change.writes.some((write) => write.do === "inbox.open")) this.#running?.engine.notify();
    for (const look of this.#lookers) look({ kind: "applied", change, published });
    if (change.expect.run && published.length > 0)
      this.#published.set(change.workflow, [...(this.#published.get(change.workflow) ?? []), ...published]);
  }

  #told(event: EngineEvent): void {
    if (event.kind !== "engine.warning") for (const look of this.#lookers) look(event);
    if (event.kind === "run.started") this.#published.delete(event.facts.workflow.id);
    if (event.kind !== "run.ended") return this.#tell(event);
    const published = this.#published.get(event.facts.workflow.id) ?? [];
    this.#published.delete(event.facts.workflow.id);
    this.#tell({ ...event, published });
  }
}

/** Loaded by those who start a host, not by those who check a script. */
const outsideOf: typeof openOutside = async (...given) =>
  (await import("./host-outside.ts")).openOutside(...given);

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
