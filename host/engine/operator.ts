/**
 * A person's decisions, made on the facts of the moment and refused when those have changed (02 §6). The rules are the
 * core's; this file reads, asks, applies, and says who was first.
 */
import type { Change } from "../core/change.ts";
import type { RunFacts, WorkflowFacts } from "../core/facts.ts";
import type { DeliveryId, RunId, WorkflowId } from "../core/ids.ts";
import {
  type Operator as Person,
  pause,
  type Refused,
  resume,
  runNow,
  skipDelivery,
} from "../core/operate.ts";
import { type Decision, decide, refusal } from "../core/resolve.ts";
import type { Parts } from "./parts.ts";

export type Decided = { ok: true } | { ok: false; code: string; message: string };

/** What the person was looking at when they decided. */
export interface Expectation {
  status?: string;
  ledger?: string;
  revision?: number;
}

export class Operator {
  readonly #parts: Parts;
  readonly #poke: () => void;

  constructor(parts: Parts, poke: () => void) {
    this.#parts = parts;
    this.#poke = poke;
  }

  async decide(
    run: RunId,
    decision: Decision,
    by: Omit<Person, "atMs">,
    expect: Expectation = {},
  ): Promise<Decided> {
    const { store, clock, world, downtime } = this.#parts;
    const facts = await store.run(run);
    if (!facts) return { ok: false, code: "not_found", message: "there is no such run" };
    const stale = staleness(facts, expect);
    if (stale) return stale;
    const { mutation } = facts;
    const tool =
      mutation &&
      (await world.tool({ workflow: facts.workflow.id, alias: mutation.alias, tool: mutation.tool }));
    const canCheck = tool !== undefined && "kind" in tool && tool.canCheck;
    const why = refusal(facts, decision, canCheck);
    if (why) return { ok: false, code: "wrong_state", message: why };
    return this.#apply(decide(facts, decision, { ...by, atMs: clock.nowMs(), down: downtime, canCheck }));
  }

  runNow(workflow: WorkflowId, handler: string | undefined, by: Omit<Person, "atMs">): Promise<Decided> {
    return this.#on(
      workflow,
      (facts, person) => {
        const named = handler === undefined ? undefined : facts.handlers.find((one) => one.name === handler);
        if (handler !== undefined && !named)
          return { refused: `there is no handler ${handler}`, code: "wrong_state" };
        return runNow(facts, named, person);
      },
      by,
    );
  }

  pause(workflow: WorkflowId, by: Omit<Person, "atMs">): Promise<Decided> {
    return this.#on(workflow, pause, by);
  }

  resume(workflow: WorkflowId, by: Omit<Person, "atMs">): Promise<Decided> {
    return this.#on(workflow, resume, by);
  }

  async skipDelivery(delivery: DeliveryId, by: Omit<Person, "atMs">): Promise<Decided> {
    const facts = await this.#parts.store.delivery(delivery);
    if (!facts) return { ok: false, code: "not_found", message: "there is no such delivery" };
    return this.#attempt(skipDelivery(facts, { ...by, atMs: this.#parts.clock.nowMs() }));
  }

  async #on(
    workflow: WorkflowId,
    act: (facts: WorkflowFacts, person: Person) => Change | Refused,
    by: Omit<Person, "atMs">,
  ): Promise<Decided> {
    const facts = await this.#parts.store.workflow(workflow);
    if (!facts) return { ok: false, code: "not_found", message: "there is no such workflow" };
    return this.#attempt(act(facts, { ...by, atMs: this.#parts.clock.nowMs() }));
  }

  async #attempt(change: Change | Refused): Promise<Decided> {
    if ("refused" in change) return { ok: false, code: change.code, message: change.refused };
    return this.#apply(change);
  }

  async #apply(change: Change): Promise<Decided> {
    const { store } = this.#parts;
    const result = await store.apply(change, { level: "durable", fence: store.fence });
    this.#poke();
    if (result.ok) return { ok: true };
    return { ok: false, code: "changed", message: "somebody or something was faster: look again" };
  }
}

function staleness({ run, mutation }: RunFacts, expect: Expectation): Decided | undefined {
  const same =
    (expect.status === undefined || expect.status === run.status) &&
    (expect.ledger === undefined || expect.ledger === (mutation?.status ?? "none")) &&
    (expect.revision === undefined || expect.revision === run.revision);
  if (same) return undefined;
  const who = run.resolution ? ` by ${run.resolution.by} (${run.resolution.action})` : "";
  return { ok: false, code: "changed", message: `the run has changed since you looked${who}` };
}
