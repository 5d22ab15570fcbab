/**
 * The stored policy rules of a namespace, its workflows and the host. What fits is the core's word; what is stored holds
 * from the next unit on.
 *
 * R1. A rule set that is refused changes nothing, and every problem of it has a path.
 */
import type { PolicyProblem } from "../core/policy-shape.ts";
import { parsePolicySet } from "../core/policy-rules.ts";
import {
  appendRule,
  type ExplainedField,
  explainPolicy,
  type PolicyRule,
  prependRule,
  resolvePolicy,
} from "../core/policy-resolve.ts";
import type { Unit } from "../core/policy.ts";
import { type Acting, person } from "./open.ts";
import type { Place } from "./place.ts";

/** `host`, `namespace`, or `workflow:` and its name. */
export type RuleScope = string;

export interface RuleSet {
  rules: readonly PolicyRule[];
  updatedAtMs?: number;
}

export type RulesPut = ({ ok: true } & RuleSet) | { ok: false; problems: readonly PolicyProblem[] };

export class RulesDesk {
  readonly #place: Place;

  constructor(place: Place) {
    this.#place = place;
  }

  /** `undefined`: there is no such scope. */
  async get(scope: RuleScope): Promise<RuleSet | undefined> {
    const key = await this.#key(scope);
    return key === undefined ? undefined : this.#place.open.rules.get(key);
  }

  /** All of a scope's rules. */
  put(scope: RuleScope, rules: unknown, acting: Acting = {}): Promise<RulesPut | undefined> {
    return this.#change(scope, rules, (_, given) => given, acting);
  }

  /** One rule, before or behind the others. */
  add(
    scope: RuleScope,
    rule: unknown,
    where: "first" | "last",
    acting: Acting = {},
  ): Promise<RulesPut | undefined> {
    const place = where === "first" ? prependRule : appendRule;
    return this.#change(scope, [rule], (known, [one]) => (one ? place(known, one) : known), acting);
  }

  async #change(
    scope: RuleScope,
    given: unknown,
    make: (known: readonly PolicyRule[], given: readonly PolicyRule[]) => readonly PolicyRule[],
    acting: Acting,
  ): Promise<RulesPut | undefined> {
    const key = await this.#key(scope);
    if (key === undefined) return undefined;
    const parsed = parsePolicySet(given);
    if ("problems" in parsed) return { ok: false, problems: parsed.problems }; // (R1)
    const { rules: stored, kept, parts } = this.#place.open;
    const atMs = parts.clock.nowMs();
    const { by: actor, note } = person(acting);
    const namespace = await kept.settings.namespace(this.#place.name, atMs);
    const by = { actor, atMs, ...(note === undefined ? {} : { note }) };
    await stored.change(key, (known) => make(known, parsed.rules), namespace, by);
    return { ok: true, ...stored.get(key) };
  }

  /** `undefined`: there is no such handler. */
  async explain(of: {
    workflow: string;
    handler: string;
    unit: Unit;
    tool?: string;
  }): Promise<ExplainedField[] | undefined> {
    const id = await this.#place.workflow(of.workflow);
    const { parts, rules } = this.#place.open;
    const facts = id === undefined ? undefined : await parts.store.workflow(id);
    const handler = facts?.handlers.find((one) => one.name === of.handler);
    if (!facts || !handler) return undefined;
    const subject = {
      scope: of.unit,
      workflow: facts.name,
      labels: {},
      handler: handler.name,
      type: handler.kind,
      ...(of.tool === undefined ? {} : { tool: of.tool }),
    };
    return explainPolicy(resolvePolicy(rules.layersOf(facts), subject));
  }

  async #key(scope: RuleScope): Promise<string | undefined> {
    if (scope === "host") return "host";
    const { kept, parts } = this.#place.open;
    if (scope === "namespace")
      return `namespace:${await kept.settings.namespace(this.#place.name, parts.clock.nowMs())}`;
    const id = scope.startsWith("workflow:")
      ? await this.#place.workflow(scope.slice("workflow:".length))
      : undefined;
    return id === undefined ? undefined : `workflow:${id}`;
  }
}
