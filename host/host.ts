/**
 * Composition root: the only file that names every adapter, and the order in which they start and stop. `createHost` is
 * what the library exports; several hosts may live in one process, each with a store of its own.
 *
 * Start: store, sandbox, engine (which recovers before it schedules). Stop: the engine drains, then sandbox, then store.
 */
import { createHash } from "node:crypto";
import { Desk, type PublishAnswer, type ScriptUpload } from "./api/desk.ts";
import type { Acting, Open } from "./api/open.ts";
import type { Connector } from "./connectors/define.ts";
import { type Fixture, fixtureShape, FixtureWorld } from "./connectors/fixtures.ts";
import { Keys, type Rotated } from "./connectors/key-rotation.ts";
import { KnownConnectors } from "./connectors/known-connectors.ts";
import { LoopbackWorld } from "./connectors/loopback.ts";
import { MemoryWorld, type MemoryWorldOptions } from "./connectors/memory.ts";
import type { Opening } from "./connectors/opening.ts";
import { Registry } from "./connectors/registry.ts";
import { ConnectionTeller } from "./connectors/teller.ts";
import { verifyStored } from "./connectors/webhook.ts";
import { workflowConnector } from "./connectors/workflow.ts";
import { ConnectorWorld } from "./connectors/world.ts";
import type { Change, GrantMode } from "./core/change.ts";
import { PawlError } from "./core/errors.ts";
import type { WorkflowId } from "./core/ids.ts";
import type { Published } from "./core/journal.ts";
import type { PolicyLayer } from "./core/policy-resolve.ts";
import type { Json } from "./core/workflow.ts";
import type { Deployed } from "./engine/deploys.ts";
import { Engine, type EngineOptions } from "./engine/engine.ts";
import type { Decided, Expectation } from "./engine/operator.ts";
import type { EngineEvent, Parts } from "./engine/parts.ts";
import { policiesOf } from "./engine/policies.ts";
import { scriptsOf } from "./engine/scripts.ts";
import type { Clock } from "./ports/clock.ts";
import type { ConnectionRow } from "./ports/connections.ts";
import type { World } from "./ports/connector.ts";
import type { Teller } from "./ports/notices.ts";
import type { Compilation, Problem, Sandbox, Upload } from "./ports/sandbox.ts";
import { compileOnce } from "./sandbox/compile-once.ts";
import { withParams } from "./sandbox/params.ts";
import { openPool } from "./sandbox/pool.ts";
import type { Finding } from "./store/doctor.ts";
import { examine } from "./store/examine.ts";
import type { Durability, SqliteStore } from "./store/open.ts";
import { examineOpenWork, openSettled, type Restored } from "./store/restored.ts";
import { tidyUp } from "./store/retention.ts";
import { SqliteConnections } from "./store/sqlite/connections.ts";
import { SqliteNotices } from "./store/sqlite/notices.ts";
import { Pages } from "./store/sqlite/pages.ts";
import { SqliteSiblings } from "./store/sqlite/siblings.ts";
import { findStale } from "./store/stale.ts";
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
  Problem,
  PublishAnswer,
  ScriptUpload,
  Upload,
};
export * from "./connectors/define.ts";
export { frame, inspectHardening, openWorkbench, type Workbench } from "./sandbox/workbench.ts";
export type { PhaseTelemetry, RunTelemetry, StoreTelemetry } from "./system/telemetry.ts";

const NAMESPACE = "default";

export interface HostOptions {
  /** A folder; without it the host keeps everything in memory and forgets it with its end. */
  data?: string;
  /** Runs at once. */
  slots?: number;
  minIntervalMs?: number;
  durability?: Durability;
  policies?: PolicyLayer[];
  /** Instead of connectors and connections: a world that is made up. */
  world?: World;
  /** Further connectors, beside those built in. */
  connectors?: readonly Connector[];
  /** What a mutation may do that nobody granted, where its namespace does not say: `approve` unless told. */
  defaultGrant?: GrantMode;
  /** Opens stored secrets; behind a comma, older ones. Without it the host keeps one in a file. */
  masterKey?: string;
  /** Where it keeps it, instead of `<data>.key`. */
  keyFile?: string;
  /** Start although the keys of stored secrets are lost: they have to be entered again. */
  withoutLostKeys?: boolean;
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
  #running: Running | undefined;
  #examined: Promise<void> | undefined;
  #starting: Promise<Started> | undefined;
  #stopping: Promise<void> | undefined;

  constructor(options: HostOptions) {
    super(NAMESPACE, () => this.#open);
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
    const outside = await this.#outside(store).catch(async (error: unknown) => {
      await store[Symbol.asyncDispose]();
      throw error;
    });
    const observed = observedStore(store, (change, { published }) => this.#applied(change, published), point);
    const sandbox = withParams(openPool(), this.#options.params);
    const parts: Parts = {
      store: observed,
      sandbox,
      world: observedWorld(redactedWorld(outside.world, this.#redactor), point),
      ...(outside.known ? { outside: outside.known } : {}),
      clock,
      policies: policiesOf(policies),
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
    const open = { engine, parts, records, notices, compile: this.#compile, ...(teller ? { teller } : {}) };
    this.#running = { ...open, store, sandbox, ...(keys ? { keys } : {}) };
    const broken = (message: string) => this.#told({ kind: "engine.warning", message, atMs: clock.nowMs() });
    this.#examined = examineOpenWork(store.db, broken, isOver).catch((error: unknown) =>
      broken(String(error)),
    );
    if (keys && keys.found.foreign.length > 0)
      broken(`no key opens the secrets of ${keys.found.foreign.join(", ")}: enter them again`);
    return { ...(await engine.start()), ...(restored ? { restored } : {}) };
  }

  /** Connectors and connections, unless a world was given. */
  async #outside(store: SqliteStore): Promise<Outside> {
    const { data, world, connectors = [], defaultGrant = "approve", clock = systemClock } = this.#options;
    if (world) return { world, engine: () => ({}) };
    const connections = new SqliteConnections(store);
    const hide = (value: unknown, owner: string) => this.#redactor.registerAll(value, owner);
    const keys = await Keys.open(connections, {
      ...keyOptions(this.#options),
      ...(data === undefined ? {} : { data }),
      onSecrets: hide,
    });
    const passing = () => this.#running?.engine.passingOn;
    const registry = new Registry([
      ...connectors,
      workflowConnector({
        publish: async (origin, event) => (await passing()?.publish(origin, event)) ?? STOPPED,
        find: async (from, event) => (await passing()?.find(from, event)) ?? "other",
      }),
    ]);
    const opening: Opening = {
      open: (row) => keys.vault.open({ ...row, sealed: row.sealed ?? "" }),
      hide: (value, row) => this.#redactor.register(value, `${ownerOf(row)} obtained`),
      replace: async (row, secrets) => {
        const sealed = (version: number) => ({
          text: keys.vault.seal({ ...row, version, secrets }),
          version,
        });
        if (!(await connections.reseal(row.id, row.sealedVersion, sealed(row.sealedVersion + 1))))
          throw new Error(`the secrets of ${row.name} were changed meanwhile`);
      },
    };
    const known = { connections, connectors: new KnownConnectors(registry, keys.vault, opening) };
    const teller: Teller = new ConnectionTeller({ connections, registry, ...opening });
    return {
      world: new ConnectorWorld({ connections, registry, defaultGrant, ...opening }),
      known,
      keys,
      teller,
      engine: (notices) => ({
        notifying: { notices, teller },
        verifyHook: (row, request, nowMs) =>
          verifyStored(row, request, { nowMs: nowMs ?? clock.nowMs(), opening }),
      }),
    };
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

  /** The desk of another namespace, which is made with the first thing that is put into it. */
  namespace(name: string): Desk {
    return name === NAMESPACE ? this : new Desk(name, () => this.#open);
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

/** What a host reaches the outside by. */
interface Outside {
  world: World;
  known?: NonNullable<Parts["outside"]>;
  keys?: Keys;
  teller?: Teller;
  engine: (notices: SqliteNotices) => Partial<EngineOptions>;
}

const STOPPED = { ok: false, why: "busy", message: "the host is stopping" } as const;
const ownerOf = ({ namespace, name }: ConnectionRow): string => `${namespace}/${name}`;

function keyOptions({ masterKey, keyFile, withoutLostKeys }: HostOptions) {
  return {
    ...(masterKey === undefined ? {} : { masterKey }),
    ...(keyFile === undefined ? {} : { keyFile }),
    ...(withoutLostKeys === undefined ? {} : { withoutLostKeys }),
  };
}

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
