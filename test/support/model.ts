/**
 * Plays commands on a real store by the core's verbs, and on the oracle, and compares the two after every command;
 * then asks the doctor. Commands are plain numbers that find their meaning in the state they meet, so that a sequence
 * that fails can be shortened and still means something.
 */
import {
  awaitApproval,
  commit,
  emitting,
  intended,
  mutated,
  prepared,
  redo,
  sending,
  withoutCall,
} from "../../host/core/advance.ts";
import type { Change, UnitName } from "../../host/core/change.ts";
import { settleSchedule } from "../../host/core/close.ts";
import { deploy } from "../../host/core/deploy.ts";
import type { ErrorClass } from "../../host/core/errors.ts";
import type { HandlerFacts, RunFacts, WorkflowFacts } from "../../host/core/facts.ts";
import { fail } from "../../host/core/fail.ts";
import type { Mutation } from "../../host/core/mutation.ts";

import {
  type DeliveryFacts,
  editState,
  pause,
  renewDelivery,
  resume,
  runNow,
  skipDelivery,
} from "../../host/core/operate.ts";
import { settleOrphans } from "../../host/core/orphans.ts";
import { abort, recover } from "../../host/core/recover.ts";
import { type Decision, decide, refusal, unblocked } from "../../host/core/resolve.ts";
import { claim, claimApproved } from "../../host/core/retry.ts";
import type { RunError } from "../../host/core/run.ts";
import { checked, late, unknown } from "../../host/core/settle.ts";
import { start } from "../../host/core/start.ts";
import { choose } from "../../host/core/trigger.ts";
import type { Manifest } from "../../host/core/workflow.ts";
import { inspect } from "../../host/store/doctor.ts";
import type { SqliteStore } from "../../host/store/open.ts";
import { verify } from "../../host/store/verify.ts";
import { viewOfOracle, viewOfStore } from "./model-view.ts";
import {
  CHECK_DELAY_MS,
  MOST_CHECKS,
  Oracle,
  type OracleDelivery,
  type OracleRun,
  type OracleVersion,
  type Publishing,
  RETRY_DELAY_MS,
  SETTLE_MS,
} from "./oracle.ts";

export const OPS = {
  work: 14,
  tick: 8,
  fail: 4,
  publish: 4,
  time: 4,
  check: 4,
  decide: 7,
  deploy: 2,
  crash: 2,
  late: 1,
  skip: 2,
  renew: 2,
  pause: 1,
  now: 1,
  state: 1,
  redo: 1,
  stale: 1,
  abort: 1,
  unblock: 2,
  orphans: 1,
} as const;
export type Op = keyof typeof OPS;
export interface Command {
  op: Op;
  a: number;
  b: number;
}

/** Who noticed: the oracle (a difference), the doctor, `verify`, or the code itself by throwing. */
export class Caught extends Error {
  readonly by: "oracle" | "doctor" | "verify" | "throw";
  constructor(by: Caught["by"], message: string, trace: readonly string[]) {
    super(`${by}: ${message}\n  ${trace.join("\n  ")}`);
    this.by = by;
  }
}

const consumer = (subscribes: string[], mutate: boolean, next: boolean) => ({ subscribes, mutate, next });
const MINUTE = 60_000;
const VERSIONS: readonly OracleVersion[] = [
  {
    producers: { poll: MINUTE },
    consumers: { book: consumer(["order"], true, true), mail: consumer(["order", "booked"], false, true) },
  },
  { producers: { poll: MINUTE }, consumers: { book: consumer(["order", "booked"], true, false) } },
  { producers: { poll: MINUTE, sweep: 3 * MINUTE }, consumers: { book: consumer(["order"], true, true) } },
  {
    producers: {},
    consumers: { mail: consumer(["order", "booked"], true, true), book: consumer(["order"], false, false) },
  },
  { producers: { poll: 2 * MINUTE }, consumers: { mail: consumer(["booked"], true, false) } },
];

function manifestOf({ producers, consumers }: OracleVersion): Manifest {
  return {
    name: "model",
    description: "",
    connections: { bank: "http" },
    topics: { order: { output: false }, booked: { output: false } },
    params: {},
    hooks: {},
    producers: Object.fromEntries(
      Object.entries(producers).map(([name, intervalMs]) => [
        name,
        { schedule: { interval: `${intervalMs / MINUTE}m`, intervalMs }, publishes: ["order"] },
      ]),
    ),
    consumers: Object.fromEntries(
      Object.entries(consumers).map(([name, { subscribes, mutate, next }]) => [
        name,
        { subscribes, publishes: ["order", "booked"], hasMutate: mutate, hasNext: next },
      ]),
    ),
  };
}

const of = (op: Op, a: number, b = 0): Command => ({ op, a, b });
/** A run of `book` that reserves one delivery and states its intent. */
const INTENT = [of("tick", 0), of("work", 0), of("work", 1)];
/** A consumer that looks and finds nothing to do. */
const IDLE = [of("tick", 0), of("work", 2), of("work", 1), of("work", 0)];

/** Where a sequence begins, so that what lies deep is reached often. */
const PROLOGUES: readonly (readonly Command[])[] = [
  [],
  [...INTENT, of("work", 1)],
  [...INTENT, of("work", 1), of("work", 0, 1)],
  [...INTENT, of("work", 0)],
  [...IDLE, ...IDLE, of("tick", 0), of("work", 0), of("time", 4), of("tick", 0)],
  [
    of("tick", 0),
    of("work", 0),
    of("crash", 1),
    of("tick", 0),
    of("crash", 1),
    of("tick", 0),
    of("crash", 1),
  ],
];

const CLASSES = ["transient", "logic", "auth", "permission", "precondition", "internal"] as const;
const TIMES = [1_000, 6_000, 31_000, 61_000, 200_000] as const;
const pick = <T>(list: readonly T[], n: number): T => list[n % list.length] as T;
const errorOf = (kind: ErrorClass): RunError => ({ class: kind, code: `model-${kind}`, message: kind });
const AT_START_MS = 1_000_000;

export class Model {
  store: SqliteStore;
  readonly oracle = new Oracle();
  readonly trace: string[] = [];
  /** How often each kind of thing was done: a model that never gets anywhere finds nothing. */
  readonly seen: Map<string, number>;
  workflow = 0;
  #texts = 0;

  /** A new host on the same file: what a crash leaves behind is found by it, as it would be. */
  readonly #reopen: ((store: SqliteStore) => Promise<SqliteStore>) | undefined;

  constructor(
    store: SqliteStore,
    seen: Map<string, number> = new Map(),
    reopen?: (store: SqliteStore) => Promise<SqliteStore>,
  ) {
    this.store = store;
    this.#reopen = reopen;
    this.seen = seen;
    this.oracle.now = AT_START_MS;
  }

  /** Plays them all; throws `Caught` at the first thing that is not as it should be. */
  async play(commands: readonly Command[]): Promise<void> {
    const name = `model-${this.store.newId()}`;
    this.workflow = await this.store.workflowId(name, name, this.oracle.now);
    try {
      await this.#deploy(commands[0]?.a ?? 0, 0);
      for (const topic of [0, 1, 2]) await this.#publish(topic, topic);
      this.#compare();
      for (const command of [...pick(PROLOGUES, commands[0]?.b ?? 0), ...commands]) {
        const said = await this.#do(command);
        if (said === undefined) continue;
        this.trace.push(`${this.oracle.now - AT_START_MS}: ${said}`);
        this.#compare();
      }
    } catch (error) {
      if (error instanceof Caught) throw error;
      throw new Caught("throw", (error as Error).message, this.trace);
    }
    const [finding] = [
      ...inspect(this.store.db, { workflow: this.workflow }),
      ...verify(this.store.db, { workflow: this.workflow }),
    ];
    if (finding) throw new Caught("verify", `${finding.invariant}: ${finding.message}`, this.trace);
  }

  #compare(): void {
    const expected = viewOfOracle(this.oracle);
    const found = viewOfStore(this.store.db, this.workflow, this.oracle.now);
    for (const key of new Set([...expected.keys(), ...found.keys()]))
      if (expected.get(key) !== found.get(key))
        throw this.#caught(
          "oracle",
          `${key}\n  should be ${expected.get(key)}\n  but is    ${found.get(key)}`,
        );
    const [finding] = inspect(this.store.db, { workflow: this.workflow, quick: true });
    if (finding) throw this.#caught("doctor", `${finding.invariant}: ${finding.message}`);
  }
  #caught(by: Caught["by"], message: string): Caught {
    return new Caught(by, message, this.trace);
  }
  #agree(what: string, oracle: boolean, store: boolean): void {
    if (oracle !== store)
      throw this.#caught(
        "oracle",
        `${what}: ${oracle ? "allowed" : "refused"} by 02, ${store ? "allowed" : "refused"} by the core`,
      );
  }

  /** What was done, in words; `undefined` when the command means nothing here. */
  #do({ op, a, b }: Command): Promise<string | undefined> | string | undefined {
    switch (op) {
      case "work":
        return this.#work(a, b);
      case "tick":
        return this.#tick();
      case "fail":
        return this.#fail(a, b);
      case "publish":
        return this.#publish(a, b);
      case "time":
        this.oracle.now += pick(TIMES, a);
        return `${pick(TIMES, a)} ms pass`;
      case "check":
        return this.#check(a, b);
      case "decide":
        return this.#decide(a, b);
      case "deploy":
        return this.#deploy(a, b);
      case "crash":
        return this.#crash(a);
      case "late":
        return this.#late(a);
      case "skip":
        return this.#skip(a);
      case "renew":
        return this.#renew(a, b);
      case "pause":
        return this.#pause();
      case "now":
        return this.#runNow(a);
      case "state":
        return this.#editState(a, b);
      case "redo":
        return this.#redo();
      case "stale":
        return this.#stale(a);
      case "abort":
        return this.#abort();
      case "unblock":
        return this.#unblock(a);
      case "orphans":
        return this.#orphans(a, b);
    }
  }

  #saw(what: string, said: string = what): string {
    this.seen.set(what, (this.seen.get(what) ?? 0) + 1);
    return said;
  }
  async #apply(change: Change): Promise<void> {
    const result = await this.store.apply(change, { level: "applied", fence: this.store.fence });
    if (!result.ok) throw this.#caught("oracle", `${change.verb} was refused: ${result.because}`);
  }
  async #facts(): Promise<WorkflowFacts> {
    return (await this.store.workflow(this.workflow)) as WorkflowFacts;
  }
  async #run(run: OracleRun): Promise<RunFacts> {
    return (await this.store.run(this.#id("runs", run.n))) as RunFacts;
  }
  async #row(run: OracleRun): Promise<RunFacts & { mutation: Mutation }> {
    const facts = await this.#run(run);
    if (!facts.mutation) throw new Error(`run ${run.n} has no ledger row`);
    return { ...facts, mutation: facts.mutation };
  }
  #id(table: "runs" | "mutations" | "deliveries", n: number): number {
    const sql = {
      runs: "SELECT id FROM runs WHERE workflow = ?+0 ORDER BY id LIMIT 1 OFFSET ?",
      mutations: "SELECT id FROM mutations WHERE workflow = ?+0 ORDER BY id LIMIT 1 OFFSET ?",
      deliveries:
        "SELECT d.id FROM events e JOIN deliveries d ON d.event = e.id WHERE e.workflow = ?+0 ORDER BY d.id LIMIT 1 OFFSET ?",
    }[table];
    return this.store.db.prepare(sql).pluck().get(this.workflow, n) as number;
  }
  #text(what: string): string {
    return JSON.stringify({ [what]: ++this.#texts });
  }
  get #now(): number {
    return this.oracle.now;
  }
  get #active(): OracleRun | undefined {
    const open = this.oracle.open;
    return open?.status === "active" ? open : undefined;
  }
  #attempt() {
    return { id: this.store.newId(), host: this.store.fence.incarnation, fused: true };
  }
  get #operator() {
    return { by: "person", atMs: this.#now };
  }

  async #deploy(a: number, b: number): Promise<string> {
    const version = pick(VERSIONS, a);
    const consumers = Object.keys(version.consumers);
    const orphans = pick(["keep", "skip", { moveTo: pick(consumers, b) }] as const, b);
    const facts = await this.#facts();
    const open = facts.openRun && (await this.store.run(facts.openRun.id));
    const number = this.oracle.active + 1;
    const manifest = manifestOf(version);
    const row = {
      number,
      hash: `h${number}`,
      language: "ts",
      source: "",
      code: "",
      manifest,
      scope: "frozen",
    } as const;
    const deployment = {
      number,
      manifest,
      by: "person",
      orphans,
      newId: () => this.store.newId(),
      version: row,
    };
    await this.#apply(deploy(facts, open, deployment, this.#now));
    this.oracle.deploy(version, orphans);
    return this.#saw(
      "deploy",
      `deploy version ${number}: ${Object.keys(version.producers).join()} | ${consumers.join()}, orphans ${JSON.stringify(orphans)}`,
    );
  }

  async #tick(): Promise<string | undefined> {
    const facts = await this.#facts();
    const choice = choose(facts, this.#now);
    const right = this.oracle.choose();
    const chosen =
      choice.next === "start" ? `start ${choice.handler.name} ${choice.trigger.reason}` : choice.next;
    const expected = !right ? "nothing" : "start" in right ? `start ${right.start} ${right.reason}` : "chain";
    if (chosen !== expected) throw this.#caught("oracle", `next should be ${expected}, is ${chosen}`);
    if (choice.next === "nothing" || !right) return undefined;
    if (choice.next === "chain" && "claim" in right)
      return this.#claim(this.oracle.runs[right.claim] as OracleRun);
    if (choice.next !== "start" || !("start" in right)) return undefined;
    await this.#apply(start(facts, choice.handler, choice.trigger, this.#attempt(), this.#now));
    this.oracle.start(right.start);
    return this.#saw("start", chosen);
  }

  async #claim(run: OracleRun): Promise<string> {
    const facts = await this.#run(run);
    const { mutation } = facts;
    const how = this.oracle.claim(run);
    const attempt = this.#attempt();
    const change =
      how === "sends" && mutation
        ? claimApproved({ ...facts, mutation }, attempt, this.#approved(mutation), this.#now)
        : claim(facts, attempt, this.#now);
    await this.#apply(change);
    return this.#saw(`claim ${how}`, `claim run ${run.n}: ${how}`);
  }

  #approved(mutation: Mutation) {
    const { connection, configVersion } = mutation;
    return { send: this.#send(mutation), isGranted: true, grantVersion: 0, connection, configVersion };
  }
  #send({ sends, idempotencyKey }: Mutation) {
    return { n: sends + 1, atMs: this.#now, bytesHash: "b", idempotencyKey };
  }

  /** Whatever the engine would do next. */
  async #work(a: number, b: number): Promise<string | undefined> {
    const run = this.#active;
    if (!run) return (await this.#tick()) ?? this.#check(a, b);
    switch (run.phase) {
      case "executing":
      case "emitting":
        return this.#commit(run, a, b);
      case "preparing":
        return this.#prepared(run, a, b);
      case "prepared":
        return this.#mutate(run, a);
      case "mutating":
        return this.#call(run, a, b);
      case "mutated":
        return this.#emit(run);
      default:
        return undefined;
    }
  }
  async #prepared(run: OracleRun, a: number, b: number): Promise<string> {
    if (b % 4 === 1) await this.#reserveTaken();
    const chosen = this.oracle.pendingOf(run.handler).slice(0, pick([1, 2, 0, 3], a));
    const wake = pick([null, null, 30_000, 90_000], b);
    const json = this.#text("prepared");
    const wakeAtMs = wake === null ? {} : { wakeAtMs: this.#now + wake };
    const reservations = chosen.map((one) => this.#id("deliveries", one.n));
    await this.#apply(prepared(await this.#run(run), { json, reservations, ...wakeAtMs }, this.#now));
    this.oracle.prepared(run, json, chosen, wake === null ? null : this.#now + wake);
    return this.#saw(
      "prepared",
      `prepared ${chosen.map((one) => one.n).join()}${wake === null ? "" : `, wake in ${wake}`}`,
    );
  }
  async #mutate(run: OracleRun, a: number): Promise<string> {
    if (this.oracle.held(run).length === 0) return this.#emit(run);
    const facts = await this.#run(run);
    const declared = this.oracle.version(run.version).consumers[run.handler];
    if (!declared?.mutate || a % 5 === 0) {
      await this.#apply(withoutCall(facts, this.#now));
      this.oracle.withoutCall(run);
      return this.#saw("no call");
    }
    const mutation: Mutation = {
      id: this.store.newId(),
      originRun: facts.run.id,
      ownerRun: facts.run.id,
      status: "proposed",
      alias: "bank",
      connection: "bank",
      configVersion: 1,
      tool: "http.post",
      args: this.#text("args"),
      description: "Post",
      proof: "lookup",
      idempotencyKey: `key-${facts.run.id}`,
      n: 0,
      sends: 0,
      settleMs: SETTLE_MS,
      checks: 0,
      createdAtMs: this.#now,
    };
    await this.#apply(intended(facts, mutation, this.#now));
    this.oracle.intend(run);
    return this.#saw("intent");
  }
  async #call(run: OracleRun, a: number, b: number): Promise<string> {
    const facts = await this.#row(run);
    const { mutation } = facts;
    if (this.oracle.row(run)?.status === "proposed") {
      if (a % 3 === 0 && mutation.sends === 0) {
        await this.#apply(awaitApproval(facts, this.store.newId(), this.#now));
        this.oracle.awaitApproval(run);
        return this.#saw("wait for approval");
      }
      await this.#apply(sending(facts, this.#send(mutation), this.#now));
      this.oracle.send(run);
      return this.#saw("send");
    }
    if (a % 2 === 0) {
      const canCheck = b % 3 !== 0;
      const end = { error: errorOf("internal"), answer: "{}", canCheck, inbox: this.store.newId() };
      await this.#apply(unknown(facts, end, this.#now));
      this.oracle.unknown(run, canCheck);
      return this.#saw("unknown", `unknown${canCheck ? "" : ", no check"}`);
    }
    const result = this.#text("result");
    await this.#apply(mutated(facts, { status: "applied", result }, this.#now, "{}"));
    this.oracle.settled(run, "applied", result);
    return this.#saw("applied");
  }
  async #emit(run: OracleRun): Promise<string> {
    await this.#apply(emitting(await this.#run(run), this.#now));
    this.oracle.emit(run);
    return this.#saw("emitting");
  }
  async #commit(run: OracleRun, a: number, b: number): Promise<string> {
    const facts = await this.#run(run);
    const publishing = Array.from({ length: a % 3 }, (_, i) => publishingOf(a + i, b + i));
    const state = pick([undefined, undefined, null, this.#text("state")], b);
    const publications = publishing.map((one) => this.#publication(one, facts.workflow));
    const emission = { publications, inputs: [], ...(state === undefined ? {} : { state }) };
    await this.#apply(commit(facts, emission, settleSchedule(facts, "ran", []), this.#now));
    this.oracle.commit(run, publishing, state);
    return this.#saw(
      "commit",
      `commit run ${run.n}, publish ${publishing.map((one) => `${one.topic}/${one.id}=${one.payload}`).join()}, state ${state}`,
    );
  }
  #publication({ topic, id, payload }: Publishing, { handlers }: WorkflowFacts) {
    const subscribed = Object.entries(this.oracle.version(this.oracle.active).consumers).filter(([, one]) =>
      one.subscribes.includes(topic),
    );
    const subscribers = subscribed.map(([name]) => handlers.find((one) => one.name === name)?.id as number);
    return { publication: { topic, messageId: id, payload, inputs: [], hops: 0 }, subscribers };
  }
  async #publish(a: number, b: number): Promise<string> {
    const one = publishingOf(a, b);
    const facts = await this.#facts();
    const { workflow } = this;
    const expect = { generation: facts.generation };
    const writes = [{ do: "publish" as const, ...this.#publication(one, facts) }];
    await this.#apply({ verb: "publish", workflow, atMs: this.#now, expect, writes });
    this.oracle.publish(one);
    return this.#saw("publish", `publish ${one.topic}/${one.id} = ${one.payload}`);
  }

  async #fail(a: number, b: number): Promise<string | undefined> {
    const run = this.#active;
    const failing = run && this.#failingUnit(run);
    if (!run || !failing) return undefined;
    const { unit, units, may } = failing;
    const kind = pick(CLASSES, a);
    const onFailure = kind === "internal" ? "halt" : pick(may, b);
    const retries = b % 3;
    const facts = await this.#run(run);
    const policy = { maxRetries: retries, retryOn: ["transient"], neverRetryOn: [], onFailure };
    const failure = {
      error: errorOf(kind),
      policy,
      retries: facts.run.retries,
      delayMs: RETRY_DELAY_MS,
      pastBoundary: false,
    };
    const step = { units, failure, inbox: this.store.newId(), down: [] };
    await this.#apply(fail(facts, step, this.#now));
    this.oracle.fail(run, unit, kind, { retries, onFailure });
    return this.#saw(`fail ${unit}`, `fail in ${unit}: ${kind}, ${retries} retries, ${onFailure}`);
  }
  #failingUnit(run: OracleRun) {
    const declared = this.oracle.version(run.version).consumers[run.handler];
    const mutate: UnitName[] = declared?.mutate ? ["mutate"] : [];
    const ways = <Unit extends string>(
      unit: Unit,
      units: UnitName[],
      ...may: ("halt" | "skip" | "deadLetter")[]
    ) => ({
      unit,
      units,
      may,
    });
    switch (run.phase) {
      case "executing":
        return ways("producer", ["producer"], "halt", "skip");
      case "preparing":
        return ways("prepare", ["prepare", ...mutate], "halt", "skip");
      case "prepared":
        if (!declared?.mutate || this.oracle.held(run).length === 0) return undefined;
        return ways("mutate", mutate, "halt", "skip", "deadLetter");
      case "mutating":
        return ways("call", [], "halt", "skip", "deadLetter");
      case "emitting":
        return declared?.next ? ways("next", ["next"], "halt") : undefined;
      default:
        return undefined;
    }
  }

  async #check(a: number, b: number): Promise<string | undefined> {
    const run = this.oracle.open;
    const row = run && this.oracle.row(run);
    if (!run || row?.status !== "needs_reconcile" || row.nextCheck === null) return undefined;
    if (row.nextCheck > this.#now) return undefined;
    const says = pick(["applied", "notApplied", "unsure", "auth"] as const, a);
    const result = says === "applied" ? this.#text("result") : undefined;
    const answer = says === "applied" && result !== undefined ? { says, result } : { says };
    const retries = b % 3;
    const onFailure = pick(["halt", "skip", "deadLetter"] as const, b);
    const proven = {
      policy: { maxRetries: retries, retryOn: ["transient"], neverRetryOn: [], onFailure },
      delayMs: RETRY_DELAY_MS,
      down: [],
    };
    const policy = {
      maxAttempts: MOST_CHECKS,
      delayMs: CHECK_DELAY_MS,
      maxElapsedMs: 1e9,
      configVersion: 1,
      proven,
    };
    const change = checked(
      await this.#row(run),
      answer as { says: "unsure" },
      policy,
      this.store.newId(),
      this.#now,
    );
    await this.#apply(change);
    this.oracle.check(run, says, result ?? null, { retries, onFailure });
    return this.#saw(`check ${says}`, `check says ${says}, ${retries} retries, ${onFailure}`);
  }
  async #late(a: number): Promise<string | undefined> {
    const row = this.oracle.rows[a % Math.max(1, this.oracle.rows.length)];
    const owner = row && this.oracle.runs[row.owner];
    if (!row || !owner || row.sends === 0 || ["proposed", "in_flight"].includes(row.status)) return undefined;
    const result = this.#text("result");
    const change = late(await this.#row(owner), { result, raw: "{}" }, this.store.newId(), this.#now);
    this.#agree("a late answer to a settled row writes", row.status !== "applied", change !== undefined);
    if (change) await this.#apply(change);
    if (["needs_reconcile", "indeterminate"].includes(row.status))
      this.oracle.settled(owner, "applied", result);
    return this.#saw("late", `late answer to row ${row.n} (${row.status})`);
  }
  async #crash(a: number): Promise<string | undefined> {
    const run = this.#active;
    if (!run) return undefined;
    const canCheck = a % 3 !== 0;
    if (this.#reopen) {
      const { fence } = this.store;
      this.store = await this.#reopen(this.store);
      const found = await this.store.interrupted(1_000_000);
      this.#agree("the run is found after the restart", true, found.includes(this.#id("runs", run.n)));
      const late = pause(await this.#facts(), this.#operator);
      this.#agree("the dead host", false, (await this.store.apply(late, { level: "applied", fence })).ok);
    }
    const facts = await this.#run(run);
    const crash = () => ({
      error: errorOf("internal"),
      inbox: this.store.newId(),
      attempt: this.#attempt(),
      canCheck,
    });
    const change = recover(facts, crash(), this.#now);
    if (!change) throw new Error("an active run was not recovered");
    await this.#apply(change);
    this.oracle.crash(run, canCheck);
    this.#agree("a second recovery", false, recover(await this.#run(run), crash(), this.#now) !== undefined);
    return this.#saw("crash", `crash and recover run ${run.n}`);
  }
  async #abort(): Promise<string | undefined> {
    const run = this.#active;
    if (!run) return undefined;
    const crash = { inbox: this.store.newId(), attempt: this.#attempt() };
    const change = abort(await this.#run(run), crash, this.#now);
    this.#agree("abort", this.oracle.abort(run), change !== undefined);
    if (change) await this.#apply(change);
    return this.#saw("abort", `abort run ${run.n}${change ? "" : ": refused"}`);
  }
  async #unblock(a: number): Promise<string | undefined> {
    const run = this.oracle.open;
    if (!run) return undefined;
    const what = a % 5 === 4 ? "permission" : run.reason === "permission" ? "permission" : "auth";
    const change = unblocked(await this.#run(run), what, this.#operator);
    this.#agree(`unblock ${what}`, this.oracle.unblock(run, what), change !== undefined);
    if (!change) return undefined;
    await this.#apply(change);
    return this.#saw("unblock", `${what} is there again for run ${run.n}`);
  }
  async #orphans(a: number, b: number): Promise<string | undefined> {
    const facts = await this.#facts();
    const gone = this.oracle.handlers.filter((one) => one.gone);
    const handler = b % 5 === 4 || gone.length === 0 ? pick(this.oracle.handlers, a) : pick(gone, a);
    const to = this.oracle.consumers()[0];
    const action = to ? pick(["keep", "skip", { moveTo: to.name }] as const, b) : "skip";
    const consumer = facts.handlers.find((one) => one.name === handler.name) as HandlerFacts;
    const change = settleOrphans(facts, consumer, action, this.#operator);
    this.#agree("settle orphans", this.oracle.settleOrphans(handler, action), !("refused" in change));
    if (!("refused" in change)) await this.#apply(change);
    return this.#told("orphans", `orphans of ${handler.name}: ${JSON.stringify(action)}`, "orphans", change);
  }
  async #redo(): Promise<string | undefined> {
    const run = this.#active;
    if (run?.phase !== "preparing") return undefined;
    const units = this.#failingUnit(run)?.units ?? [];
    await this.#apply(redo(await this.#run(run), units, this.#now));
    this.oracle.redo(run);
    return this.#saw("redo", "prepare once more");
  }

  async #decide(a: number, b: number): Promise<string | undefined> {
    const { runs, open } = this.oracle;
    const run = b % 7 === 6 || !open ? runs[b % Math.max(1, runs.length)] : open;
    if (!run) return undefined;
    const actions = [
      "retry",
      "approve",
      "reject",
      "check",
      "applied",
      "not-applied",
      "skip",
      "close",
    ] as const;
    const fitting = actions.filter((one) => this.oracle.mayDecide(run, one, true, true));
    // Mostly something that is allowed; now and then anything.
    const action = b % 5 === 4 || fitting.length === 0 ? pick(actions, a) : pick(fitting, a);
    const canCheck = b % 6 !== 5;
    const force = b % 2 === 0;
    const deliveries = pick(["release", "skip", "dead"] as const, b);
    const result = action === "applied" && b % 2 === 0 ? this.#text("result") : undefined;
    const rejected = deliveries === "dead" ? "release" : deliveries;
    const decision = {
      action,
      ...(action === "reject" ? { deliveries: rejected } : {}),
      ...(action === "close" ? { deliveries, force } : {}),
      ...(result === undefined ? {} : { result }),
    } as Decision;
    const facts = await this.#run(run);
    const allowed = refusal(facts, decision, canCheck) === undefined;
    this.#agree(action, this.oracle.mayDecide(run, action, canCheck, force), allowed);
    const said = `${action} run ${run.n}${"deliveries" in decision ? ` ${decision.deliveries}` : ""}`;
    if (!allowed) return this.#saw("decide refused", `${said}: refused`);
    const change = decide(facts, decision, {
      by: "person",
      atMs: this.#now,
      down: [],
      canCheck,
      inbox: this.store.newId(),
    });
    await this.#apply(change);
    this.oracle.decide(run, action, action === "reject" ? rejected : deliveries, result ?? null);
    const again = await this.store.apply(change, { level: "applied", fence: this.store.fence });
    this.#agree("the same decision twice", false, again.ok);
    return this.#saw(`decide ${action}`, said);
  }

  #told(op: string, said: string, done: string, change: Change | { refused: string }): string {
    return "refused" in change ? this.#saw(`${op} refused`, `${said}: refused`) : this.#saw(done, said);
  }
  #delivery(n: number): OracleDelivery | undefined {
    return this.oracle.deliveries[n % Math.max(1, this.oracle.deliveries.length)];
  }
  async #deliveryFacts(one: OracleDelivery): Promise<DeliveryFacts> {
    return (await this.store.delivery(this.#id("deliveries", one.n))) as DeliveryFacts;
  }
  async #skip(a: number): Promise<string | undefined> {
    const one = this.#delivery(a);
    if (!one) return undefined;
    const change = skipDelivery(await this.#deliveryFacts(one), this.#operator);
    this.#agree(`skip delivery ${one.n}`, this.oracle.skipDelivery(one), !("refused" in change));
    if (!("refused" in change)) await this.#apply(change);
    return this.#told("skip", `skip delivery ${one.n}`, "skip delivery", change);
  }
  async #renew(a: number, b: number): Promise<string | undefined> {
    const one = this.#delivery(a);
    if (!one) return undefined;
    const how = pick(["requeue", "reprocess"] as const, b);
    const change = renewDelivery(await this.#deliveryFacts(one), how, undefined, this.#operator);
    this.#agree(`${how} delivery ${one.n}`, this.oracle[how](one), !("refused" in change));
    if (!("refused" in change)) await this.#apply(change);
    return this.#told("renew", `${how} delivery ${one.n}`, `${how} delivery`, change);
  }
  async #pause(): Promise<string> {
    const facts = await this.#facts();
    const on = !this.oracle.paused;
    await this.#apply(on ? pause(facts, this.#operator) : resume(facts, this.#operator));
    this.oracle.paused = on;
    return this.#saw(on ? "pause" : "resume");
  }
  async #runNow(a: number): Promise<string> {
    const facts = await this.#facts();
    const named = a % 2 === 0 ? undefined : pick(facts.handlers, a >> 1);
    const change = runNow(facts, named, this.#operator);
    this.#agree(`run ${named?.name ?? "all"} now`, this.oracle.runNow(named?.name), !("refused" in change));
    if (!("refused" in change)) await this.#apply(change);
    return this.#told("run now", `run ${named?.name ?? "all"} now`, "run now", change);
  }
  async #editState(a: number, b: number): Promise<string> {
    const facts = await this.#facts();
    const handler = pick(facts.handlers, a);
    const state = pick([null, this.#text("state")], b);
    const change = editState(facts, handler, state, this.#operator);
    const result = await this.store.apply(change, { level: "applied", fence: this.store.fence });
    this.#agree(`edit state of ${handler.name}`, this.oracle.editState(handler.name, state), result.ok);
    return this.#saw("edit state", `edit state of ${handler.name}${result.ok ? "" : ": refused"}`);
  }

  /** Changes that were decided on what no longer holds: refused, and nothing of them stays. */
  async #stale(a: number): Promise<string> {
    const facts = await this.#facts();
    const { fence } = this.store;
    const way = pick(["fence", "epoch", "twice", "start", "reserve"] as const, a);
    const toggle = () => (this.oracle.paused ? resume : pause)(facts, this.#operator);
    const refused = async (change: Change, signed = fence) =>
      this.#agree(way, false, (await this.store.apply(change, { level: "applied", fence: signed })).ok);
    if (way === "fence") await refused(toggle(), { ...fence, incarnation: fence.incarnation - 1 });
    else if (way === "epoch") await refused(toggle(), { ...fence, epoch: fence.epoch - 1 });
    else if (way === "twice") {
      const change = toggle();
      await this.#apply(change);
      this.oracle.paused = !this.oracle.paused;
      await refused(change);
    } else if (way === "start") {
      const handler = pick(facts.handlers, a);
      const change = start(facts, handler, { reason: "queued", atMs: this.#now }, this.#attempt(), this.#now);
      if (this.oracle.open) await refused(change);
    } else await this.#reserveTaken();
    return this.#saw("stale", `stale: ${way}`);
  }
  async #reserveTaken(): Promise<void> {
    const run = this.#active;
    const taken = this.oracle.deliveries.find((one) => one.status !== "pending");
    if (run?.phase !== "preparing" || !taken) return;
    const reservations = [this.#id("deliveries", taken.n)];
    const change = prepared(await this.#run(run), { json: "{}", reservations }, this.#now);
    const { ok } = await this.store.apply(change, { level: "applied", fence: this.store.fence });
    this.#agree("a reservation of what is not pending", false, ok);
  }
}

const publishingOf = (a: number, b: number): Publishing => ({
  topic: pick(["order", "order", "booked"], a),
  id: pick(["m0", "m1", "m2", "m3", "m4"], b),
  payload: JSON.stringify({ v: (a >> 2) % 2 }),
});
