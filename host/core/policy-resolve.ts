/**
 * Rules and a subject → the one policy that holds for it, and for each field the rule it came from (04).
 *
 * V1. Layers are asked in order: call, workflow, namespace, host. The first matching rule wins, over the built-in
 *     default of its unit; `inherit` puts it over the next matching rule instead, in whatever layer that is.
 * V2. The result has every field of that unit and no other, and is data: it is stored on the run as it stands.
 * V3. What a unit cannot carry out is its default there, and the source keeps what was given.
 * V4. Bounds that contradict each other only once layers meet are settled for the stronger rule, and told.
 */
import {
  type EffectivePolicy,
  FIELD_NAMES,
  isMerged,
  isPolicyField,
  type Policy,
  type PolicyField,
  PRESETS,
  type PresetName,
  rowOf,
  SCOPES,
  type Scope,
} from "./policy.ts";
import { matchesSubject, type PolicyMatch, type PolicySubject, type Predicate } from "./policy-match.ts";
import { isRecord, type Shape } from "./policy-shape.ts";
import type { Json } from "./workflow.ts";

/** A preset, and what is said over it. */
export type RulePolicy = Policy & { readonly preset?: PresetName };

export interface PolicyRule {
  readonly match: PolicyMatch;
  readonly policy: RulePolicy;
  readonly inherit?: boolean;
}

type Level = "call" | "workflow" | "namespace" | "host";

export interface PolicyLayer {
  readonly level: Level;
  /** Of the workflow or the namespace, for people. */
  readonly name?: string;
  readonly rules: readonly PolicyRule[];
}

/** For one run and its chain. */
export interface CallPolicy {
  readonly rules: readonly PolicyRule[];
  /** Drop the other layers. */
  readonly replace?: boolean;
}

interface RuleSource {
  level: Level;
  name?: string;
  /** Counts from 0 within its layer. */
  rule: number;
  /** The registered function that chose the rule. */
  function?: string;
  preset?: PresetName;
}

/** Where a field's value comes from; `given` is what was said there, where another value holds (V3, V4). */
type FieldSource = ({ level: "default" } | RuleSource) & { given?: Json };

interface PolicyWarning {
  level: Level;
  rule: number;
  message: string;
}

export interface ResolvedPolicy<S extends Scope> {
  scope: S;
  policy: EffectivePolicy<S>;
  /** By field, and `field.entry` for fields that are merged entry by entry. */
  sources: Readonly<Record<string, FieldSource>>;
  warnings: readonly PolicyWarning[];
}

type Values = Record<string, Json>;
type Sources = Record<string, FieldSource>;

/** Two numbers of one policy of which the first may not exceed the second. */
export interface Bound {
  low: readonly [field: PolicyField, entry?: string];
  high: readonly [field: PolicyField, entry?: string];
}

const aboveOf = (shape: Shape): string | undefined => (shape.kind === "whole" ? shape.notAbove : undefined);

export const BOUNDS: readonly Bound[] = FIELD_NAMES.flatMap((name): Bound[] => {
  const { shape } = rowOf(name);
  if (shape.kind === "object")
    return Object.entries(shape.fields).flatMap(([entry, one]) => {
      const above = aboveOf(one);
      return above === undefined ? [] : [{ low: [name, entry], high: [name, above] }];
    });
  const above = aboveOf(shape);
  return above !== undefined && isPolicyField(above) ? [{ low: [name], high: [above] }] : [];
});

/** "none" and "infinity" are above every number. */
export function boundValue(values: Readonly<Values>, [field, entry]: Bound["low"]): number | undefined {
  const whole = values[field];
  const value = entry === undefined ? whole : isRecord(whole) ? whole[entry] : undefined;
  return typeof value === "string" ? Number.POSITIVE_INFINITY : typeof value === "number" ? value : undefined;
}

const DEFAULTS = Object.fromEntries(SCOPES.map((scope) => [scope, defaultsOn(scope)])) as Record<
  Scope,
  Values
>;
const DEFAULT_SOURCES = Object.fromEntries(
  SCOPES.map((scope) => [
    scope,
    Object.freeze(
      Object.fromEntries(
        leavesOf(DEFAULTS[scope]).map(([leaf]) => [leaf, { level: "default" } as FieldSource]),
      ),
    ),
  ]),
) as Record<Scope, Sources>;

function defaultsOn(scope: Scope): Values {
  const fields = FIELD_NAMES.filter((name) => rowOf(name).appliesTo.includes(scope));
  return frozen(
    Object.fromEntries(fields.map((name) => [name, rowOf(name).defaultOn?.[scope] ?? rowOf(name).default])),
  );
}

function frozen<T extends Json>(value: T): T {
  if (typeof value === "object" && value !== null)
    for (const one of Object.values(value)) frozen(one as Json);
  return Object.freeze(value);
}

/** The built-in policy of a unit, shared and frozen. */
export function defaultPolicy<S extends Scope>(scope: S): EffectivePolicy<S> {
  return DEFAULTS[scope] as unknown as EffectivePolicy<S>;
}

/** `[name, value]` of each field, and `[name.entry, value]` of those merged entry by entry. */
function leavesOf(values: Readonly<Values>): [leaf: string, value: Json][] {
  return Object.entries(values).flatMap(([name, value]): [string, Json][] =>
    isPolicyField(name) && isMerged(name) && isRecord(value)
      ? Object.entries(value).map(([entry, one]): [string, Json] => [`${name}.${entry}`, one])
      : [[name, value]],
  );
}

export function policyLayers(given: {
  call?: CallPolicy;
  workflow?: Omit<PolicyLayer, "level">;
  namespace?: Omit<PolicyLayer, "level">;
  host?: Omit<PolicyLayer, "level">;
}): PolicyLayer[] {
  const call: PolicyLayer[] = given.call ? [{ level: "call", rules: given.call.rules }] : [];
  if (given.call?.replace === true) return call;
  const below = (["workflow", "namespace", "host"] as const).flatMap((level): PolicyLayer[] => {
    const layer = given[level];
    return layer === undefined ? [] : [{ level, ...layer }];
  });
  return [...call, ...below];
}

/** The rule becomes the first to be asked. */
export function prependRule(rules: readonly PolicyRule[], rule: PolicyRule): PolicyRule[] {
  return [rule, ...rules];
}

/** The rule becomes the last to be asked. */
export function appendRule(rules: readonly PolicyRule[], rule: PolicyRule): PolicyRule[] {
  return [...rules, rule];
}

/** `overrides` over `base`, entry by entry where a field is merged so. */
export function mergePolicies(base: Policy, overrides: Policy): Policy {
  const merged: Values = { ...(base as Values) };
  for (const [name, value] of Object.entries(overrides as Values)) put(merged, name, value);
  return merged as Policy;
}

function put(values: Values, name: string, value: Json): void {
  const below = values[name];
  const entries = isPolicyField(name) && isMerged(name) && isRecord(value) && isRecord(below);
  values[name] = entries ? { ...below, ...value } : value;
}

/** What a rule says in all, its preset spelt out. */
export function spelledOut({ preset, ...own }: RulePolicy): Policy {
  return preset === undefined ? own : mergePolicies(PRESETS[preset], own);
}

const NO_PREDICATES: ReadonlyMap<string, Predicate> = new Map();

export function resolvePolicy<S extends Scope>(
  layers: readonly PolicyLayer[],
  subject: PolicySubject<S>,
  predicates: ReadonlyMap<string, Predicate> = NO_PREDICATES,
): ResolvedPolicy<S> {
  const { scope } = subject;
  const warnings: PolicyWarning[] = [];
  const chosen = chooseRules(layers, subject, predicates, warnings);
  if (chosen.length === 0)
    return { scope, policy: defaultPolicy(scope), sources: DEFAULT_SOURCES[scope], warnings };
  const values: Values = { ...DEFAULTS[scope] };
  const sources: Sources = { ...DEFAULT_SOURCES[scope] };
  for (const { rule, source } of chosen.toReversed()) {
    const said = Object.entries(spelledOut(rule.policy) as Values);
    const fields = said.filter(([name]) => isPolicyField(name) && rowOf(name).appliesTo.includes(scope)); // (V2)
    for (const [name, value] of fields) put(values, name, value);
    for (const [leaf] of leavesOf(Object.fromEntries(fields))) sources[leaf] = sourceOf(rule, source, leaf);
  }
  settleValues(scope, values, sources);
  settleBounds(values, sources, chosen, warnings);
  return { scope, policy: values as unknown as EffectivePolicy<S>, sources, warnings };
}

interface Chosen {
  rule: PolicyRule;
  source: RuleSource;
}

/** Strongest first (V1). */
function chooseRules(
  layers: readonly PolicyLayer[],
  subject: PolicySubject,
  predicates: ReadonlyMap<string, Predicate>,
  warnings: PolicyWarning[],
): Chosen[] {
  const chosen: Chosen[] = [];
  for (const { level, name, rules } of layers)
    for (const [i, rule] of rules.entries()) {
      const tell = (message: string) => warnings.push({ level, rule: i, message });
      if (!matchesSubject(rule.match, subject, predicates, tell)) continue;
      const asked = typeof rule.match === "string" ? undefined : rule.match.function;
      const named = { ...(name !== undefined && { name }), ...(asked !== undefined && { function: asked }) };
      chosen.push({ rule, source: { level, rule: i, ...named } });
      if (rule.inherit !== true) return chosen;
    }
  return chosen;
}

function sourceOf(
  { policy: { preset, ...own } }: PolicyRule,
  source: Chosen["source"],
  leaf: string,
): FieldSource {
  const isOwn = leavesOf(own as Values).some(([one]) => one === leaf);
  return preset === undefined || isOwn ? source : { ...source, preset };
}

/** The value itself, or the one key of an object that has exactly one. */
export function formOf(value: Json): string {
  if (isRecord(value)) return Object.keys(value)[0] ?? "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

function settleValues(scope: Scope, values: Values, sources: Sources): void {
  const stand = (name: string, value: Json) => {
    sources[name] = { ...(sources[name] ?? { level: "default" }), given: values[name] ?? null };
    values[name] = value;
  };
  for (const [name, value] of Object.entries(values)) {
    const row = isPolicyField(name) ? rowOf(name) : undefined;
    const possible = row?.valuesOn?.[scope];
    if (row && possible && !possible.includes(formOf(value))) stand(name, row.default); // (V3)
  }
  // A fallback that is missing here, or impossible, leaves nothing to fall back to.
  if (values["onFailure"] === "fallback" && values["fallback"] === "none") stand("onFailure", "halt");
}

function settleBounds(
  values: Values,
  sources: Sources,
  chosen: readonly Chosen[],
  warnings: PolicyWarning[],
): void {
  const rank = (source: FieldSource | undefined) =>
    chosen.findIndex(
      (one) =>
        source && "rule" in source && one.source.level === source.level && one.source.rule === source.rule,
    );
  for (const { low, high } of BOUNDS) {
    const [least, most] = [boundValue(values, low), boundValue(values, high)];
    if (least === undefined || most === undefined || least <= most) continue;
    const ranks = [low, high].map((leaf) => rank(sources[leaf.join(".")])) as [number, number];
    const isLowStronger = ranks[1] === -1 || (ranks[0] !== -1 && ranks[0] < ranks[1]);
    const [moved, limit] = isLowStronger ? [high, least] : [low, most];
    const leaf = moved.join(".");
    sources[leaf] = { ...(sources[leaf] ?? { level: "default" }), given: isLowStronger ? most : least };
    const [field, entry] = moved;
    put(values, field, entry === undefined ? limit : { [entry]: limit }); // (V4)
    const winner = chosen[Math.max(0, ranks[isLowStronger ? 0 : 1])]?.source;
    const message = `${low.join(".")} ${least} is above ${high.join(".")} ${most}: ${leaf} is ${limit}`;
    if (winner) warnings.push({ level: winner.level, rule: winner.rule, message });
  }
}

export interface ExplainedField {
  /** `field`, or `field.entry`. */
  field: string;
  value: Json;
  source: FieldSource;
  /** In words: "rule 2 of namespace acme". */
  because: string;
}

/** Every field of a resolved policy with where it comes from; also of one that was stored with a run. */
export function explainPolicy<S extends Scope>({
  scope,
  policy,
  sources,
}: ResolvedPolicy<S>): ExplainedField[] {
  return leavesOf(policy as unknown as Values).map(([field, value]) => {
    const source = sources[field] ?? { level: "default" };
    return { field, value, source, because: inWords(scope, source) };
  });
}

function inWords(scope: Scope, source: FieldSource): string {
  const given = source.given === undefined ? "" : `, which says ${JSON.stringify(source.given)}`;
  if (!("rule" in source)) return `default of ${scope}${given}`;
  const owner = source.level === "call" ? "this call" : [source.level, source.name].filter(Boolean).join(" ");
  const preset = source.preset === undefined ? "" : `preset ${source.preset} in `;
  const asked = source.function === undefined ? "" : ` (function ${source.function})`;
  return `${preset}rule ${source.rule + 1} of ${owner}${asked}${given}`;
}
