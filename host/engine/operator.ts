/**
 * A person's decisions, made on the facts of the moment and refused when those have changed (02 §6). The rules are the
 * core's; this file reads, asks, applies, and says who was first.
 *
 * P1. What is acknowledged is durable, with its audit row.
 * P2. Of concurrent decisions one wins; the others are told who was first, with what and when.
 */
import { acknowledge } from "../core/acknowledge.ts";
import { archive, unarchive } from "../core/archive.ts";
import type { Change, InboxKind } from "../core/change.ts";
import { type Consequences, consequencesOf, refusalOf } from "../core/consequences.ts";
import type { HandlerFacts, RunFacts, WorkflowFacts } from "../core/facts.ts";
import type { DeliveryId, InboxId, InputId, RunId, WorkflowId } from "../core/ids.ts";
import {
  type DeliveryFacts,
  editState,
  pause,
  type Operator as Person,
  type Refused,
  renewDelivery,
  resume,
  runNow,
  skipDelivery,
  skipInput,
} from "../core/operate.ts";
import { settleOrphans } from "../core/orphans.ts";
import { type Decision, decide, type Deciding, unblocked } from "../core/resolve.ts";
import type { Kind } from "../core/run.ts";
import { setMode, stepOnce } from "../core/stepping.ts";
import type { JsonText } from "../core/workflow.ts";
import type { LastWord } from "../ports/store.ts";
import type { Parts } from "./parts.ts";
import { canCheck, toolOf } from "./tools.ts";

export type Decided =
  | { ok: true }
  | {
      ok: false;
      code: string;
      message: string;
      /** Who was first, where somebody was. */
      first?: LastWord;
    };
export type By = Omit<Person, "atMs">;

/** What the person was looking at when they decided. */
export interface Expectation {
  status?: string;
  ledger?: string;
  revision?: number;
}

export interface RunNow {
  /** Where a producer and a consumer share the name. */
  kind?: Kind;
  /** The same key again is the same request: it is answered, not repeated. */
  key?: string;
}

export interface Hooks {
  poke(): void;
  abort(workflow: WorkflowId): void;
}

const KEPT_KEYS = 1_000;
const NOT_FOUND: Decided = { ok: false, code: "not_found", message: "there is no such thing" };

export class Operator {
  readonly #parts: Parts;
  readonly #hooks: Hooks;
  readonly #keys = new Map<string, Promise<Decided>>();

  constructor(parts: Parts, hooks: Hooks) {
    this.#parts = parts;
    this.#hooks = hooks;
  }

  async decide(run: RunId, decision: Decision, by: By, expect: Expectation = {}): Promise<Decided> {
    const facts = await this.#parts.store.run(run);
    if (!facts) return NOT_FOUND;
    if (isStale(facts, expect)) return this.#tooLate(facts);
    const deciding = await this.#deciding(facts, by);
    const why = refusalOf(facts, decision, deciding);
    return why === undefined
      ? this.#apply(decide(facts, decision, deciding), run)
      : this.#tooLate(facts, why);
  }

  /** What a decision would do, read off the very Change that it would be (02 §6). */
  async consequences(run: RunId, decision: Decision, by: By): Promise<Consequences | Decided> {
    const facts = await this.#parts.store.run(run);
    if (!facts) return NOT_FOUND;
    const told = consequencesOf(facts, decision, await this.#deciding(facts, by));
    return "refused" in told ? this.#tooLate(facts, told.refused) : told;
  }

  async #deciding(facts: RunFacts, by: By): Promise<Deciding> {
    const { store, clock, downtime } = this.#parts;
    const { mutation } = facts;
    const atMs = clock.nowMs();
    const tool = mutation && (await toolOf(this.#parts, facts, mutation));
    const { grantVersion } = tool && "kind" in tool ? tool : {};
    return {
      ...by,
      atMs,
      down: downtime,
      canCheck: mutation !== undefined && tool !== undefined && canCheck(tool, mutation, atMs),
      inbox: store.newId(),
      ...(grantVersion === undefined ? {} : { grantVersion }),
    };
  }

  /** (P2) What is so now, and who made it so. */
  async #tooLate({ run, mutation }: RunFacts, why?: string): Promise<Decided> {
    const { last: first } = await this.#parts.store.told(run.id);
    const now = mutation ? `${run.status}, its outside change ${mutation.status}` : run.status;
    const message = why ?? `the run has changed since you looked: it is ${now}`;
    const refused = { ok: false as const, code: why === undefined ? "changed" : "wrong_state", message };
    if (!first) return refused;
    const when = new Date(first.atMs).toISOString();
    return { ...refused, message: `${message} (${first.by}: ${first.action}, ${when})`, first };
  }

  /** Queues every producer, or runs or wakes one handler. */
  runNow(
    workflow: WorkflowId,
    handler: string | undefined,
    by: By,
    { kind, key }: RunNow = {},
  ): Promise<Decided> {
    const once = () =>
      this.#on(workflow, by, (facts, person) => {
        const named = handler === undefined ? undefined : handlerOf(facts, handler, kind);
        if (handler !== undefined && !named) return noHandler(handler);
        return runNow(facts, named, person);
      });
    return key === undefined ? once() : this.#once(`${workflow}/${key}`, once);
  }

  /** Drains; with `abort` the script that runs now is ended early, but never a call in flight. */
  async pause(workflow: WorkflowId, by: By, { abort = false } = {}): Promise<Decided> {
    const decided = await this.#on(workflow, by, pause);
    if (decided.ok && abort) this.#hooks.abort(workflow);
    return decided;
  }

  resume(workflow: WorkflowId, by: By): Promise<Decided> {
    return this.#on(workflow, by, resume);
  }

  archive(workflow: WorkflowId, by: By): Promise<Decided> {
    const { store, downtime: down } = this.#parts;
    return this.#on(workflow, by, (facts, person, open) =>
      archive(facts, open, person, { down, inbox: store.newId() }),
    );
  }

  unarchive(workflow: WorkflowId, by: By): Promise<Decided> {
    return this.#on(workflow, by, unarchive);
  }

  orphans(
    workflow: WorkflowId,
    consumer: string,
    action: "keep" | "skip" | { moveTo: string },
    by: By,
  ): Promise<Decided> {
    return this.#on(workflow, by, (facts, person) => {
      const named = handlerOf(facts, consumer, "consumer");
      return named ? settleOrphans(facts, named, action, person) : noHandler(consumer);
    });
  }

  editState(
    workflow: WorkflowId,
    handler: { name: string; kind?: Kind },
    state: JsonText | null,
    by: By,
  ): Promise<Decided> {
    return this.#on(workflow, by, (facts, person) => {
      const named = handlerOf(facts, handler.name, handler.kind);
      return named ? editState(facts, named, state, person) : noHandler(handler.name);
    });
  }

  setMode(workflow: WorkflowId, mode: "auto" | "step", by: By): Promise<Decided> {
    return this.#on(workflow, by, (facts, person, open) => setMode(facts, open, mode, person));
  }

  step(workflow: WorkflowId, by: By): Promise<Decided> {
    return this.#on(workflow, by, (_, person, open) => stepOnce(open, person));
  }

  /** A person has seen it, and lets it rest. */
  acknowledge(workflow: WorkflowId, item: { id: InboxId; kind: InboxKind }, by: By): Promise<Decided> {
    return this.#on(workflow, by, (facts, person) => acknowledge(facts, item, person));
  }

  /** What a run of this workflow waited for is there again: reconnected, granted, bound. */
  unblock(workflow: WorkflowId, what: "auth" | "permission" | "binding", by: By): Promise<Decided> {
    return this.#on(workflow, by, (_, person, open) => {
      const change = open && unblocked(open, what, person);
      return change ?? { refused: "no run waits for that", code: "wrong_state" };
    });
  }

  skipDelivery(delivery: DeliveryId, by: By): Promise<Decided> {
    return this.#onDelivery(delivery, by, skipDelivery);
  }

  requeue(delivery: DeliveryId, by: By, priorOutcome?: "not-applied"): Promise<Decided> {
    return this.#onDelivery(delivery, by, (facts, person) =>
      renewDelivery(facts, "requeue", priorOutcome, person),
    );
  }

  reprocess(delivery: DeliveryId, by: By): Promise<Decided> {
    return this.#onDelivery(delivery, by, (facts, person) =>
      renewDelivery(facts, "reprocess", undefined, person),
    );
  }

  /** All that an input caused; what is not in an allowed state is left, and named. */
  async skipInput(
    workflow: WorkflowId,
    input: InputId,
    by: By,
  ): Promise<Decided & { left?: { delivery: DeliveryId; why: string }[] }> {
    const { store, clock } = this.#parts;
    const facts = await store.workflow(workflow);
    if (!facts) return NOT_FOUND;
    const caused = (await store.caused(input)).filter((one) => one.workflow.id === workflow);
    const { change, left } = skipInput(facts, input, caused, { ...by, atMs: clock.nowMs() });
    return { ...(change ? await this.#apply(change) : { ok: true as const }), left };
  }

  async #onDelivery(
    delivery: DeliveryId,
    by: By,
    act: (facts: DeliveryFacts, person: Person) => Change | Refused,
  ): Promise<Decided> {
    const facts = await this.#parts.store.delivery(delivery);
    return facts ? this.#attempt(act(facts, { ...by, atMs: this.#parts.clock.nowMs() })) : NOT_FOUND;
  }

  async #on(
    workflow: WorkflowId,
    by: By,
    act: (facts: WorkflowFacts, person: Person, open: RunFacts | undefined) => Change | Refused,
  ): Promise<Decided> {
    const { store, clock } = this.#parts;
    const facts = await store.workflow(workflow);
    if (!facts) return NOT_FOUND;
    const open = facts.openRun && (await store.run(facts.openRun.id));
    return this.#attempt(act(facts, { ...by, atMs: clock.nowMs() }, open));
  }

  /** The first request with a key is made; a refused one may be tried again. */
  #once(key: string, act: () => Promise<Decided>): Promise<Decided> {
    const known = this.#keys.get(key);
    if (known) return known;
    const made = act().then((decided) => {
      if (!decided.ok) this.#keys.delete(key);
      return decided;
    });
    if (this.#keys.size >= KEPT_KEYS) this.#keys.delete(this.#keys.keys().next().value as string);
    this.#keys.set(key, made);
    return made;
  }

  async #attempt(change: Change | Refused): Promise<Decided> {
    if ("refused" in change) return { ok: false, code: change.code, message: change.refused };
    return this.#apply(change);
  }

  async #apply(change: Change, run: RunId | undefined = change.expect.run?.id): Promise<Decided> {
    const { store } = this.#parts;
    const result = await store.apply(change, { level: "durable", fence: store.fence }); // (P1)
    this.#hooks.poke();
    if (result.ok) return { ok: true };
    if (result.because === "not-idle")
      return { ok: false, code: "run_active", message: "a run of it is open" };
    const now = run === undefined ? undefined : await store.run(run);
    if (now) return this.#tooLate(now); // (P2)
    return { ok: false, code: "changed", message: "somebody or something was faster: look again" };
  }
}

function handlerOf({ handlers }: WorkflowFacts, name: string, kind?: Kind): HandlerFacts | undefined {
  return handlers.find((one) => one.name === name && (kind === undefined || one.kind === kind));
}

const noHandler = (name: string): Refused => ({
  refused: `there is no handler ${name}`,
  code: "wrong_state",
});

function isStale({ run, mutation }: RunFacts, expect: Expectation): boolean {
  const { status = run.status, ledger = mutation?.status ?? "none", revision = run.revision } = expect;
  return status !== run.status || ledger !== (mutation?.status ?? "none") || revision !== run.revision;
}
