/**
 * Unknown data → a list of rules, or everything that is wrong with it (04). Nothing that can be saved is without
 * effect: what no unit acts on, what contradicts itself and what nothing enforces yet is refused.
 *
 * L1. Either rules or problems, never both; each problem has a path, a code and a message, and a nearest name if any.
 * L2. What was parsed parses again to the same.
 * L3. A field nobody enforces yet is read like the others; that it is refused is said after all that is wrong with it.
 */
import { nearestName } from "./nearest.ts";
import {
  FIELD_NAMES,
  isPolicyField,
  type Policy,
  PRESET_NAMES,
  type PresetName,
  rowOf,
  type Scope,
} from "./policy.ts";
import { type KnownNames, readMatch, scopesOf } from "./policy-match.ts";
import {
  BOUNDS,
  boundValue,
  type CallPolicy,
  defaultPolicy,
  formOf,
  mergePolicies,
  type PolicyRule,
  type RulePolicy,
  spelledOut,
} from "./policy-resolve.ts";
import {
  errorClassOf,
  isRecord,
  type PolicyProblem,
  pointer,
  type Reading,
  readShape,
  readWord,
  type Say,
  shown,
} from "./policy-shape.ts";
import type { Json } from "./workflow.ts";

export interface ParseOptions {
  /** Accept what is parsed but not enforced yet: for tests, and for the engine that enforces it. */
  allowUnenforced?: boolean;
  known?: KnownNames;
  /** The host's longest timeout; "infinity" allows `timeoutMs: "infinity"`. */
  maxTimeoutMs?: number | "infinity";
  /** Codes of connectors, beside the catalogue's. */
  errorCodes?: readonly string[];
}

export type ParsedRules = { rules: PolicyRule[] } | { problems: PolicyProblem[] };
export type ParsedCall = { call: CallPolicy } | { problems: PolicyProblem[] };

const MAX_RULES = 500;
const MAX_PROBLEMS = 100;
const RULE_KEYS = ["match", "policy", "inherit"] as const;

type Values = Record<string, Json>;

interface Parsing extends Reading {
  known: KnownNames;
  /** Says what is not enforced yet, once all else is said. */
  sayLast: Say;
}

/** A saved policy set: a list of `{ match, policy, inherit? }`. */
export function parsePolicySet(data: unknown, options: ParseOptions = {}): ParsedRules {
  const { context, problems } = parsing(options);
  const rules = readRules(data, "", context);
  return rules && problems().length === 0 ? { rules } : { problems: problems() }; // (L1)
}

/** Overrides given with one call: a list of rules, or `{ rules, replace? }`. */
export function parseCallPolicy(data: unknown, options: ParseOptions = {}): ParsedCall {
  const { context, problems } = parsing(options);
  const given = isRecord(data) ? data : { rules: data };
  unknownKeys(given, ["rules", "replace"], "", context.say);
  const replace = readFlag(given, "replace", "", context.say);
  const rules = readRules(given["rules"], isRecord(data) ? "/rules" : "", context);
  return rules && problems().length === 0
    ? { call: { rules, ...(replace && { replace }) } }
    : { problems: problems() };
}

function parsing(options: ParseOptions): { context: Parsing; problems: () => PolicyProblem[] } {
  const found: PolicyProblem[] = [];
  const last: PolicyProblem[] = [];
  const sayInto =
    (list: PolicyProblem[]): Say =>
    (code, path, message, nearest) => {
      if (list.length < MAX_PROBLEMS)
        list.push({ path, code, message, ...(nearest !== undefined && { nearest }) });
    };
  const context: Parsing = {
    say: sayInto(found),
    sayLast: options.allowUnenforced === true ? () => {} : sayInto(last),
    known: options.known ?? {},
    readInner: (value, path) => readInner(value, path, context),
    ...(options.maxTimeoutMs !== undefined && { maxTimeoutMs: options.maxTimeoutMs }),
    ...(options.errorCodes !== undefined && { errorCodes: options.errorCodes }),
  };
  return { context, problems: () => [...found, ...last].slice(0, MAX_PROBLEMS) }; // (L3)
}

function unknownKeys(given: Record<string, unknown>, keys: readonly string[], path: string, say: Say): void {
  for (const key of Object.keys(given).filter((one) => !keys.includes(one))) {
    const isMisplaced = isPolicyField(key) && keys.includes("policy");
    const message = isMisplaced
      ? "belongs into `policy`"
      : `there is no ${shown(key)} here; only ${keys.join(", ")}`;
    const close = isMisplaced ? `policy.${key}` : nearestName(key, keys);
    say("unknown-policy-field", pointer(path, key), message, close);
  }
}

function readFlag(given: Record<string, unknown>, key: string, path: string, say: Say): boolean {
  const value = given[key];
  if (value !== undefined && typeof value !== "boolean")
    say("policy-invalid", pointer(path, key), `${shown(value)} is neither true nor false`);
  return value === true;
}

function readRules(data: unknown, path: string, context: Parsing): PolicyRule[] | undefined {
  const { say } = context;
  if (!Array.isArray(data)) say("policy-invalid", path, `${shown(data)} is not a list of rules`);
  else if (data.length > MAX_RULES)
    say("policy-invalid", path, `has ${data.length} rules; at most ${MAX_RULES}`);
  else {
    const rules = data.map((one: unknown, i) => readRule(one, pointer(path, i), context));
    const sound = rules.filter((rule) => rule !== undefined);
    if (sound.length < rules.length) return undefined;
    sharedSettings(sound, path, say);
    return sound;
  }
  return undefined;
}

function readRule(data: unknown, path: string, context: Parsing): PolicyRule | undefined {
  const { say } = context;
  if (!isRecord(data)) {
    say("policy-invalid", path, `${shown(data)} is not a rule { match, policy, inherit? }`);
    return undefined;
  }
  unknownKeys(data, RULE_KEYS, path, say);
  const at = pointer(path, "policy");
  const match = readMatch(data["match"], pointer(path, "match"), context.known, say);
  const policy = readRulePolicy(data["policy"], at, context);
  const inherit = readFlag(data, "inherit", path, say);
  if (policy === undefined) return undefined;
  if (inherit && Object.keys(policy).length === 0)
    say("policy-contradiction", at, "inherits all and says nothing: the rule would have no effect");
  const scopes = match === undefined ? undefined : scopesOf(match, context.known);
  if (scopes !== undefined) {
    checkUnits(policy, scopes, at, say);
    checkBounds(policy, scopes, inherit, at, say);
  }
  checkSense(policy, inherit, at, say);
  const presetAt = typeof data["policy"] === "string" ? at : pointer(at, "preset");
  sayUnenforced(policy, at, presetAt, context.sayLast);
  return match === undefined ? undefined : { match, policy, ...(inherit && { inherit }) };
}

function readRulePolicy(data: unknown, path: string, context: Parsing): RulePolicy | undefined {
  if (typeof data === "string") {
    const preset = readWord(PRESET_NAMES, data, path, context.say);
    return preset && { preset };
  }
  if (!isRecord(data)) {
    context.say("policy-invalid", path, `${shown(data)} is neither a policy nor the name of a preset`);
    return undefined;
  }
  const { preset, ...fields } = data;
  const policy = readFields(fields, path, FIELD_NAMES, context);
  if (preset === undefined) return policy;
  const name: PresetName | undefined = readWord(PRESET_NAMES, preset, pointer(path, "preset"), context.say);
  return policy && name && { preset: name, ...policy };
}

function readFields(
  data: Record<string, unknown>,
  path: string,
  allowed: readonly string[],
  context: Parsing,
): Policy | undefined {
  const policy: Values = {};
  let isSound = true;
  for (const [name, value] of Object.entries(data)) {
    const at = pointer(path, name);
    if (!isPolicyField(name) || !allowed.includes(name)) {
      const message = isPolicyField(name)
        ? `${name} has no effect here`
        : `there is no policy field ${shown(name)}`;
      context.say("unknown-policy-field", at, message, nearestName(name, [...allowed, "preset"]));
      isSound = false;
      continue;
    }
    const read = readShape(rowOf(name).shape, value, at, context);
    if (read === undefined) isSound = false;
    else policy[name] = read;
  }
  return isSound ? (policy as Policy) : undefined;
}

/** `retryWith.policy`: one more try, which keeps timeout, deadline and the count of retries. */
function readInner(data: unknown, path: string, context: Parsing): Values | undefined {
  if (!isRecord(data) || Object.keys(data).length === 0) {
    context.say("policy-invalid", path, `${shown(data)} is not a policy that says something`);
    return undefined;
  }
  const allowed = FIELD_NAMES.filter((name) => rowOf(name).inRetryWith === true);
  return readFields(data, path, allowed, context) as Values | undefined;
}

/** What the rule itself says must act on something it matches; of a preset, what does not act is left out. */
function checkUnits(policy: RulePolicy, scopes: readonly Scope[], path: string, say: Say): void {
  for (const [name, value] of Object.entries(policy as Values)) {
    const row = isPolicyField(name) ? rowOf(name) : undefined;
    if (row === undefined) continue;
    const at = pointer(path, name);
    const form = formOf(value);
    if (
      name === "fallback" &&
      form === "value" &&
      (scopes.includes("mutate") || scopes.includes("mutation"))
    ) {
      say(
        "fallback-on-mutation",
        at,
        "the rule also matches mutations, where a value would claim an effect that never happened",
      );
      continue;
    }
    const acting = scopes.filter((scope) => row.appliesTo.includes(scope));
    const meant = acting.filter((scope) => row.valuesOn?.[scope]?.includes(form) ?? true);
    if (acting.length === 0) {
      const wanted = row.appliesTo.includes("workflow")
        ? 'a whole workflow: match "default", "name/*" or a label'
        : row.appliesTo.join(", ");
      say("policy-wrong-unit", at, `${name} has no effect on ${scopes.join(", ")}; it acts on ${wanted}`);
    } else if (meant.length === 0) {
      const possible = [...new Set(acting.flatMap((scope) => row.valuesOn?.[scope] ?? []))];
      say(
        "policy-wrong-unit",
        at,
        `${name} ${form} has no effect on ${acting.join(", ")}; there: ${possible.join(", ")}`,
      );
    }
  }
}

/** A rule that inherits is judged by what it says itself: what lies below it is not known here. */
function checkBounds(
  policy: RulePolicy,
  scopes: readonly Scope[],
  inherit: boolean,
  path: string,
  say: Say,
): void {
  const said = spelledOut(policy);
  for (const { low, high } of BOUNDS)
    for (const scope of scopes) {
      if (![low, high].every(([field]) => rowOf(field).appliesTo.includes(scope))) continue;
      const whole = inherit ? said : mergePolicies(defaultPolicy(scope) as Policy, said);
      const [least, most] = [boundValue(whole as Values, low), boundValue(whole as Values, high)];
      if (least === undefined || most === undefined || least <= most) continue;
      const isSaid = boundValue(policy as Values, low) !== undefined;
      const at = (isSaid ? low : high).filter((part) => part !== undefined).reduce(pointer, path);
      say("policy-contradiction", at, `${low.join(".")} ${least} is above ${high.join(".")} ${most}`);
      break;
    }
}

function checkSense(policy: RulePolicy, inherit: boolean, path: string, say: Say): void {
  const said = spelledOut(policy);
  if (said.backoff === "none")
    for (const name of ["baseDelayMs", "maxDelayMs"] as const)
      if (policy[name] !== undefined)
        say("policy-contradiction", pointer(path, name), `${name} has no effect without a backoff`);
  for (const [i, name] of (said.retryOn ?? []).entries()) {
    const clash = said.neverRetryOn?.find((never) => never === name || never === errorClassOf(name));
    if (clash !== undefined)
      say(
        "policy-contradiction",
        pointer(pointer(path, "retryOn"), i),
        `${name} is also in neverRetryOn, as ${clash}`,
      );
  }
  if (inherit) return;
  const hasFallback = said.fallback !== undefined && said.fallback !== "none";
  if (said.onFailure === "fallback" && !hasFallback)
    say("policy-contradiction", pointer(path, "onFailure"), "falls back, but there is no fallback");
  if (hasFallback && said.onFailure !== "fallback")
    say("policy-contradiction", pointer(path, "fallback"), "has no effect without onFailure: fallback");
}

function sayUnenforced(policy: RulePolicy, path: string, presetPath: string, say: Say): void {
  for (const [name, value] of Object.entries(spelledOut(policy) as Values)) {
    const row = isPolicyField(name) ? rowOf(name) : undefined;
    if (row === undefined || (row.enforced && !row.notYet?.includes(formOf(value)))) continue;
    const at = Object.hasOwn(policy, name) ? pointer(path, name) : presetPath;
    const what = row.enforced ? `${name} ${formOf(value)}` : name;
    say("not-yet-enforced", at, `nothing acts on ${what} yet`);
  }
}

/** Breakers and limits are shared by name: two rules may not give one name two settings. */
function sharedSettings(rules: readonly PolicyRule[], path: string, say: Say): void {
  const seen = new Map<string, string>();
  for (const [i, { policy }] of rules.entries())
    for (const field of ["circuitBreaker", "rateLimit", "concurrencyLimit"] as const) {
      const value = policy[field];
      if (value === undefined || value === "none") continue;
      const name = "name" in value ? value.name : value.key;
      const settings = JSON.stringify(value, Object.keys(value).toSorted());
      const before = seen.get(`${field} ${name}`) ?? settings;
      seen.set(`${field} ${name}`, before);
      const at = ["policy", field].reduce(pointer, pointer(path, i));
      if (before !== settings)
        say(
          "policy-contradiction",
          at,
          `${name} has other settings in an earlier rule; it is shared by name`,
        );
    }
}
