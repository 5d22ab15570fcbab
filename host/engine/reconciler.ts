/**
 * Unknown outcomes, checked: at once, then with backoff, until a proof or a person (02 §5.2). Never sends a new decision.
 */
import { backoffDelayMs } from "../core/backoff.ts";
import type { RunFacts } from "../core/facts.ts";
import type { RunId } from "../core/ids.ts";
import { isUnknown, type Mutation } from "../core/mutation.ts";
import { checked } from "../core/settle.ts";
import { recordedCall } from "./mutator.ts";
import type { Parts } from "./parts.ts";

const AT_ONCE = 8;

export class Reconciler {
  readonly #parts: Parts;
  readonly #checking = new Map<RunId, Promise<void>>();
  #poke: () => void = () => {};

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  onSettled(poke: () => void): void {
    this.#poke = poke;
  }

  /** Starts the checks that are due; does not wait for them. */
  async checkDue(): Promise<void> {
    const { store, clock } = this.#parts;
    const free = AT_ONCE - this.#checking.size;
    if (free <= 0) return;
    for (const run of await store.checksDue(clock.nowMs(), AT_ONCE)) {
      if (this.#checking.has(run)) continue;
      const done = this.#check(run)
        .catch((error: unknown) => {
          const message = `check of run ${run}: ${error instanceof Error ? error.message : String(error)}`;
          this.#parts.tell({ kind: "engine.warning", message, atMs: clock.nowMs() });
        })
        .finally(() => {
          this.#checking.delete(run);
          this.#poke();
        });
      this.#checking.set(run, done);
    }
  }

  async idle(): Promise<void> {
    await Promise.all(this.#checking.values());
  }

  async #check(run: RunId): Promise<void> {
    const { store, clock, world, policies } = this.#parts;
    const facts = await store.run(run);
    if (!facts?.mutation || !isUnknown(facts.mutation.status) || facts.run.status === "active") return;
    const { mutation } = facts;
    const answer = await world.check(recordedCall(facts, mutation));
    const policy = policies.effective("mutation", facts, `${mutation.alias}.${mutation.tool}`).check;
    const delay = {
      backoff: "exponential" as const,
      baseDelayMs: policy.baseDelayMs,
      maxDelayMs: policy.maxDelayMs,
    };
    const delayMs = backoffDelayMs(delay, mutation.checks, clock.chance());
    const withRow: RunFacts & { mutation: Mutation } = { ...facts, mutation };
    const budget = { maxAttempts: policy.maxAttempts, delayMs };
    const change = checked(withRow, answer, budget, store.newId(), clock.nowMs());
    await store.apply(change, { level: "durable", fence: store.fence });
  }
}
