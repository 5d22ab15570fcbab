/** The policy in force for a unit of a run, resolved once per handler and unit. */
import type { RunFacts } from "../core/facts.ts";
import type { EffectivePolicy, Unit } from "../core/policy.ts";
import { type PolicyLayer, resolvePolicy } from "../core/policy-resolve.ts";
import type { Policies } from "./parts.ts";

export function policiesOf(layers: readonly PolicyLayer[]): Policies {
  const known = new Map<string, EffectivePolicy<Unit>>();
  return {
    effective<U extends Unit>(unit: U, { workflow, handler }: RunFacts, tool?: string): EffectivePolicy<U> {
      const key = `${workflow.id}/${handler.id}/${unit}/${tool ?? ""}`;
      let policy = known.get(key) as EffectivePolicy<U> | undefined;
      if (!policy) {
        const subject = {
          scope: unit,
          workflow: workflow.name,
          labels: {},
          handler: handler.name,
          type: handler.kind,
          ...(tool === undefined ? {} : { tool }),
        };
        policy = resolvePolicy([...layers], subject).policy;
        known.set(key, policy as EffectivePolicy<Unit>);
      }
      return policy;
    },
  };
}
