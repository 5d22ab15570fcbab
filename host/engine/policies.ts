/**
 * The policy in force for a unit of a run. Resolved once per handler and unit; what a person said for one chain is
 * resolved each time, over the rest. Rules that an operator stored lie over the host's own, and hold from the next unit on.
 */
import type { EffectivePolicy, Unit } from "../core/policy.ts";
import {
  type CallPolicy,
  type PolicyLayer,
  type PolicyRule,
  resolvePolicy,
  spelledOut,
} from "../core/policy-resolve.ts";
import type { HandlerId } from "../core/ids.ts";
import type { JsonText } from "../core/workflow.ts";
import type { Policies, PolicyOwner } from "./parts.ts";

/** `policy` of a run: the call-time rules of its chain, and what its units have that is not the default. */
interface Recorded {
  call?: CallPolicy;
  units?: Partial<Record<Unit, Record<string, unknown>>>;
}

const OF_PRODUCER: readonly Unit[] = ["producer"];
const OF_CONSUMER: readonly Unit[] = ["prepare", "mutate", "next"];

/** Rules that operators change while the host runs. */
export interface StoredLayers {
  /** Another one after each change. */
  readonly revision: number;
  readonly rules: readonly PolicyRule[];
  /** Of the workflow, of its namespace, of the host: in this order. */
  of(workflow: Pick<PolicyOwner["workflow"], "id" | "namespace">): PolicyLayer[];
}

const NOTHING_STORED: StoredLayers = { revision: 0, rules: [], of: () => [] };

export interface KnownPolicies extends Policies {
  /** All of the layers that speak for a workflow, strongest first. */
  layersOf(workflow: Pick<PolicyOwner["workflow"], "id" | "namespace">): PolicyLayer[];
}

export function policiesOf(
  layers: readonly PolicyLayer[],
  stored: StoredLayers = NOTHING_STORED,
): KnownPolicies {
  const known = new Map<HandlerId, Map<string, EffectivePolicy<Unit>>>();
  const recorded = new Map<string, JsonText | undefined>();
  let revision = stored.revision;
  const fixed = layers.some(({ rules }) => rules.some(setsPriority));
  let hasPriorities = fixed || stored.rules.some(setsPriority);

  const renew = () => {
    if (revision === stored.revision) return;
    revision = stored.revision;
    hasPriorities = fixed || stored.rules.some(setsPriority);
    known.clear();
    recorded.clear();
  };
  const layersOf: KnownPolicies["layersOf"] = (workflow) => [...stored.of(workflow), ...layers];

  const resolve = <U extends Unit>(unit: U, of: PolicyOwner, call: CallPolicy | undefined, tool?: string) =>
    resolved(layersOf(of.workflow), unit, of, call, tool);

  return {
    layersOf,
    get hasPriorities() {
      renew();
      return hasPriorities;
    },
    effective<U extends Unit>(unit: U, of: PolicyOwner, tool?: string): EffectivePolicy<U> {
      renew();
      const call = callOf(of);
      if (call) return resolve(unit, of, call, tool).policy;
      let own = known.get(of.handler.id);
      if (!own) known.set(of.handler.id, (own = new Map()));
      const key = tool === undefined ? unit : `${unit} ${tool}`;
      let policy = own.get(key) as EffectivePolicy<U> | undefined;
      if (!policy) {
        policy = resolve(unit, of, undefined, tool).policy;
        own.set(key, policy as EffectivePolicy<Unit>);
      }
      return policy;
    },
    recorded(of) {
      renew();
      const call = callOf(of);
      const key = `${of.workflow.id}/${of.handler.id}`;
      if (!call && recorded.has(key)) return recorded.get(key);
      const units = unitsOf(layersOf(of.workflow), of, call);
      const all: Recorded = { ...(call ? { call } : {}), ...(units ? { units } : {}) };
      const text = call || units ? JSON.stringify(all) : undefined;
      if (!call) recorded.set(key, text);
      return text;
    },
  };
}

function resolved<U extends Unit>(
  layers: readonly PolicyLayer[],
  unit: U,
  { workflow, handler }: PolicyOwner,
  call: CallPolicy | undefined,
  tool?: string,
) {
  const subject = {
    scope: unit,
    workflow: workflow.name,
    labels: {},
    handler: handler.name,
    type: handler.kind,
    ...(tool === undefined ? {} : { tool }),
  };
  const own: PolicyLayer[] = call ? [{ level: "call", rules: call.rules }] : [];
  return resolvePolicy(call?.replace ? own : [...own, ...layers], subject);
}

function unitsOf(
  layers: readonly PolicyLayer[],
  of: PolicyOwner,
  call: CallPolicy | undefined,
): Recorded["units"] {
  const units: NonNullable<Recorded["units"]> = {};
  for (const unit of of.handler.kind === "producer" ? OF_PRODUCER : OF_CONSUMER) {
    const { policy, sources } = resolved(layers, unit, of, call);
    const set = Object.entries(policy).filter(([field]) =>
      Object.entries(sources).some(
        ([leaf, source]) => (leaf === field || leaf.startsWith(`${field}.`)) && source.level !== "default",
      ),
    );
    if (set.length > 0) units[unit] = Object.fromEntries(set);
  }
  return Object.keys(units).length > 0 ? units : undefined;
}

const setsPriority = ({ policy }: PolicyRule): boolean => spelledOut(policy).priority !== undefined;

/** The newest word of a person counts for the chain from there on. */
function callOf({ run }: PolicyOwner): CallPolicy | undefined {
  if (run?.resolution?.policy !== undefined) return JSON.parse(run.resolution.policy) as CallPolicy;
  return run?.policy === undefined ? undefined : (JSON.parse(run.policy) as Recorded).call;
}
