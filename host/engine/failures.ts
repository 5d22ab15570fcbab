/** A failure with what its policy says about it: what `core/fail.ts` needs to decide. */
import { backoffDelayMs } from "../core/backoff.ts";
import type { UnitName } from "../core/change.ts";
import type { FailedStep } from "../core/fail.ts";
import type { RunFacts } from "../core/facts.ts";
import type { FailurePolicy } from "../core/failure.ts";
import { type RunError, unitAt } from "../core/run.ts";
import type { JsonText } from "../core/workflow.ts";
import type { Parts } from "./parts.ts";

export interface Failing {
  error: RunError;
  /** Units that were dispatched and have not ended. */
  units: UnitName[];
  /** The call itself failed: its own budget, and `onFailure` of its `mutate`. */
  ofCall?: boolean;
  retryAfterMs?: number;
  answer?: JsonText;
}

export function failedStep(parts: Parts, facts: RunFacts, failing: Failing): FailedStep {
  const { error, units, retryAfterMs, answer } = failing;
  return {
    units,
    inbox: parts.store.newId(),
    down: parts.downtime,
    failure: {
      error,
      ...budget(parts, facts, failing),
      retries: facts.run.retries,
      pastBoundary: false,
      ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    },
    ...(answer === undefined ? {} : { answer }),
  };
}

/** How often, and how long from now; of a call when it has one. */
export function budget(
  { policies, clock }: Parts,
  facts: RunFacts,
  { ofCall, error }: Pick<Failing, "ofCall" | "error">,
): { policy: FailurePolicy; delayMs: number } {
  const unit = unitAt(facts.run.phase);
  const { onFailure } = policies.effective(unit, facts);
  const policy = ofCall ? policies.effective("mutation", facts, error.tool) : policies.effective(unit, facts);
  return {
    policy: { ...policy, onFailure: onFailure === "fallback" ? "halt" : onFailure },
    delayMs: backoffDelayMs(policy, facts.run.retries, clock.chance()),
  };
}
