/**
 * Which units a rule is about: reading a `match`, what it could ever match, and whether it matches one subject (04).
 * Decides nothing about the policy behind it.
 *
 * M1. Several keys in one object must all hold.
 * M2. A handler's facts hold for the calls it makes: `{ type: "producer" }` matches the read tools a producer uses.
 *     `{ unit: … }` and `workflow/handler.unit` single out one unit.
 * M3. A registered function that throws, is missing, or does not answer true or false matches nothing, and is told.
 */
import { unreachable } from "./errors.ts";
import { compileNamePattern, namePatternProblem } from "./name-pattern.ts";
import { nearestName } from "./nearest.ts";
import { SCOPES, type Scope, type Unit, UNITS } from "./policy.ts";
import { isRecord, pointer, readWord, type Say, shown, TAG_PATTERN } from "./policy-shape.ts";
import type { Kind } from "./run.ts";
import { NAME_PATTERN } from "./workflow.ts";

type OneOrMore<T> = T | readonly T[];

/** What a rule names, as data: it is stored as it was given. */
export type PolicyMatch =
  | string
  | {
      readonly nameRegex?: string;
      readonly type?: OneOrMore<Kind>;
      readonly unit?: OneOrMore<Unit>;
      readonly connector?: OneOrMore<string>;
      readonly tool?: OneOrMore<string>;
      readonly connection?: OneOrMore<string>;
      readonly label?: Readonly<Record<string, string>>;
      /** Name of a function that the library has registered. */
      readonly function?: string;
    };

/** What a policy is resolved for. */
export interface PolicySubject<S extends Scope = Scope> {
  readonly scope: S;
  readonly workflow: string;
  readonly labels: Readonly<Record<string, string>>;
  /** All but the scope "workflow". */
  readonly handler?: string;
  readonly type?: Kind;
  /** Calls and checks. `tool` with its connector: "http.post". */
  readonly tool?: string;
  readonly connector?: string;
  readonly connection?: string;
}

export type Predicate = (subject: PolicySubject) => boolean;

/** Names that exist, to refuse those that do not; what is left out is not checked. */
export interface KnownNames {
  workflows?: Readonly<
    Record<string, { readonly producers: readonly string[]; readonly consumers: readonly string[] }>
  >;
  tools?: Readonly<Record<string, "read" | "mutation">>;
  connectors?: readonly string[];
  connections?: readonly string[];
  labels?: readonly string[];
  functions?: readonly string[];
}

const MATCH_KEYS = [
  "nameRegex",
  "type",
  "unit",
  "connector",
  "tool",
  "connection",
  "label",
  "function",
] as const;
type MatchKey = (typeof MATCH_KEYS)[number];
const KINDS: readonly Kind[] = ["producer", "consumer"];
const TOOL_PATTERN = /^[a-zA-Z][a-zA-Z0-9_-]{0,63}(?:\.[a-zA-Z][a-zA-Z0-9_-]{0,63})+$/;
const SEGMENT_PATTERN = /^[a-zA-Z*][a-zA-Z0-9_.*-]{0,63}$/;

interface HandlerPattern {
  workflow: string;
  handler: string;
  unit?: Unit;
}

/** Names may hold dots, so only the name of a unit after the last dot is a unit. */
function parsePattern(text: string): HandlerPattern | undefined {
  const [workflow = "", rest = "", ...more] = text.split("/");
  const dot = rest.lastIndexOf(".");
  const unit = dot > 0 ? UNITS.find((one) => one === rest.slice(dot + 1)) : undefined;
  const handler = unit === undefined ? rest : rest.slice(0, dot);
  if (more.length > 0 || !SEGMENT_PATTERN.test(workflow) || !SEGMENT_PATTERN.test(handler)) return undefined;
  return { workflow, handler, ...(unit && { unit }) };
}

/** `*` stands for any characters, none included. Never slower than the product of the two lengths. */
export function matchesGlob(pattern: string, name: string): boolean {
  let p = 0;
  let n = 0;
  let star = -1;
  let resume = 0;
  while (n < name.length) {
    if (pattern[p] === "*") {
      star = p++;
      resume = n;
    } else if (pattern[p] === name[n]) {
      p++;
      n++;
    } else if (star >= 0) {
      p = star + 1;
      n = ++resume;
    } else return false;
  }
  while (pattern[p] === "*") p++;
  return p === pattern.length;
}

const listOf = <T>(value: OneOrMore<T> | undefined): readonly T[] =>
  value === undefined ? [] : Array.isArray(value) ? (value as readonly T[]) : [value as T];

/** `tell` is called with why a registered function could not be asked (M3). */
export function matchesSubject(
  match: PolicyMatch,
  subject: PolicySubject,
  predicates: ReadonlyMap<string, Predicate>,
  tell: (warning: string) => void,
): boolean {
  if (typeof match === "string") return match === "default" || matchesPattern(match, subject);
  for (const key of MATCH_KEYS)
    if (match[key] !== undefined && key !== "function" && !holds(key, match, subject)) return false; // (M1)
  return match.function === undefined || asksPredicate(match.function, subject, predicates, tell);
}

function matchesPattern(text: string, subject: PolicySubject): boolean {
  const pattern = parsePattern(text);
  if (pattern === undefined) throw new Error(`the match ${shown(text)} was never parsed`);
  if (!matchesGlob(pattern.workflow, subject.workflow)) return false;
  if (pattern.unit !== undefined && pattern.unit !== subject.scope) return false;
  return subject.handler === undefined
    ? pattern.handler === "*"
    : matchesGlob(pattern.handler, subject.handler);
}

type ObjectMatch = Exclude<PolicyMatch, string>;

function holds(key: Exclude<MatchKey, "function">, match: ObjectMatch, subject: PolicySubject): boolean {
  switch (key) {
    case "nameRegex":
      return subject.handler !== undefined && compileNamePattern(match.nameRegex ?? "").test(subject.handler);
    case "unit":
      return listOf(match.unit).some((unit) => unit === subject.scope);
    case "label":
      return Object.entries(match.label ?? {}).every(([name, value]) => subject.labels[name] === value);
    case "type":
    case "connector":
    case "tool":
    case "connection":
      return listOf<string>(match[key]).some((one) => one === subject[key]);
    default:
      return unreachable(key);
  }
}

function asksPredicate(
  name: string,
  subject: PolicySubject,
  predicates: ReadonlyMap<string, Predicate>,
  tell: (warning: string) => void,
): boolean {
  const predicate = predicates.get(name);
  if (predicate === undefined) {
    tell(`the function ${shown(name)} is not registered: no match`);
    return false;
  }
  try {
    const answer: unknown = predicate(subject);
    if (typeof answer === "boolean") return answer;
    tell(`the function ${shown(name)} answered ${shown(answer)}, not true or false: no match`);
  } catch (error) {
    tell(
      `the function ${shown(name)} threw (${error instanceof Error ? error.message : shown(error)}): no match`,
    );
  }
  return false;
}

const UNITS_OF_KIND: Record<Kind, readonly Scope[]> = {
  producer: ["producer", "read"],
  consumer: ["prepare", "mutate", "next", "read", "mutation", "check"],
};
const CALL_SCOPES: readonly Scope[] = ["read", "mutation", "check"];

/** Everything the match could ever match: a field that acts on none of it would be without effect. */
export function scopesOf(match: PolicyMatch, known: KnownNames = {}): readonly Scope[] {
  if (match === "default") return SCOPES;
  if (typeof match === "string") {
    const pattern = parsePattern(match);
    if (pattern === undefined) throw new Error(`the match ${shown(match)} was never parsed`);
    if (pattern.unit !== undefined) return [pattern.unit];
    if (pattern.handler === "*") return SCOPES;
    const kinds =
      known.workflows === undefined ? KINDS : new Set(namedHandlers(pattern, known).map(([, kind]) => kind));
    return UNITS.filter((unit) => [...kinds].some((kind) => UNITS_OF_KIND[kind].includes(unit)));
  }
  let scopes = match.nameRegex === undefined ? SCOPES : UNITS;
  const keep = (allowed: readonly Scope[]) => {
    scopes = scopes.filter((scope) => allowed.includes(scope));
  };
  if (match.type !== undefined) keep(listOf(match.type).flatMap((kind) => UNITS_OF_KIND[kind]));
  if (match.unit !== undefined) keep(listOf(match.unit));
  if (match.connector !== undefined || match.connection !== undefined) keep(CALL_SCOPES);
  if (match.tool !== undefined)
    keep(
      listOf(match.tool).flatMap((tool) => {
        const kind =
          known.tools !== undefined && Object.hasOwn(known.tools, tool) ? known.tools[tool] : undefined;
        return kind === undefined ? CALL_SCOPES : kind === "read" ? ["read"] : ["mutation", "check"];
      }),
    );
  return scopes;
}

function handlersOf(known: KnownNames): [name: string, kind: Kind][] {
  return Object.entries(known.workflows ?? {}).flatMap(([workflow, { producers, consumers }]) => [
    ...producers.map((name): [string, Kind] => [`${workflow}/${name}`, "producer"]),
    ...consumers.map((name): [string, Kind] => [`${workflow}/${name}`, "consumer"]),
  ]);
}

function namedHandlers(pattern: HandlerPattern, known: KnownNames): [name: string, kind: Kind][] {
  return handlersOf(known).filter(([name, kind]) => {
    const [workflow = "", handler = ""] = name.split("/");
    if (!matchesGlob(pattern.workflow, workflow) || !matchesGlob(pattern.handler, handler)) return false;
    return pattern.unit === undefined || UNITS_OF_KIND[kind].includes(pattern.unit);
  });
}

/** The match as data, or `undefined` after saying what is wrong with it. */
export function readMatch(
  value: unknown,
  path: string,
  known: KnownNames,
  say: Say,
): PolicyMatch | undefined {
  if (typeof value === "string") return readPatternMatch(value, path, known, say);
  if (!isRecord(value)) {
    say("policy-bad-match", path, `${shown(value)} is neither a text nor an object of matchers`);
    return undefined;
  }
  const given: Partial<Record<MatchKey, unknown>> = {};
  let isSound = true;
  for (const [key, one] of Object.entries(value)) {
    const at = pointer(path, key);
    const name = MATCH_KEYS.find((candidate) => candidate === key);
    if (name === undefined)
      say(
        "policy-bad-match",
        at,
        `there is no matcher ${shown(key)}; only ${MATCH_KEYS.join(", ")}`,
        nearestName(key, MATCH_KEYS),
      );
    const read = name === undefined ? undefined : readMatcher(name, one, at, known, say);
    if (name === undefined || read === undefined) isSound = false;
    else given[name] = read;
  }
  if (!isSound) return undefined;
  const match = given as ObjectMatch;
  if (Object.keys(match).length === 0)
    say("policy-bad-match", path, 'names nothing; write "default" for everything');
  else if (scopesOf(match, known).length === 0)
    say("policy-bad-match", path, `${Object.keys(match).join(" and ")} can never hold together`);
  else return match;
  return undefined;
}

function readPatternMatch(text: string, path: string, known: KnownNames, say: Say): PolicyMatch | undefined {
  if (text === "default") return text;
  const pattern = parsePattern(text);
  if (pattern === undefined) {
    const message = `${shown(text)} is neither "default" nor workflow/handler nor workflow/handler.unit`;
    say("policy-bad-match", path, message, nearestName(text, ["default"]));
    return undefined;
  }
  if (known.workflows === undefined || namedHandlers(pattern, known).length > 0) return text;
  const names = handlersOf(known).flatMap(([name, kind]) => [
    name,
    ...UNITS_OF_KIND[kind].map((unit) => `${name}.${unit}`),
  ]);
  say("policy-unmatched", path, `no handler is called ${shown(text)}`, nearestName(text, names));
  return undefined;
}

const badMatch =
  (say: Say): Say =>
  (_code, path, message, nearest) =>
    say("policy-bad-match", path, message, nearest);

function readMatcher(key: MatchKey, value: unknown, path: string, known: KnownNames, say: Say): unknown {
  switch (key) {
    case "nameRegex": {
      const problem = typeof value === "string" ? namePatternProblem(value) : "is not a text";
      if (problem === undefined) return value;
      say("policy-unsafe-pattern", path, `nameRegex ${shown(value)} ${problem}`);
      return undefined;
    }
    case "type":
      return readMany(value, path, say, (one, at) => readWord(KINDS, one, at, badMatch(say)));
    case "unit":
      return readMany(value, path, say, (one, at) => readWord(UNITS, one, at, badMatch(say)));
    case "label":
      return readLabels(value, path, known, say);
    case "tool":
      return readMany(value, path, say, (one, at) =>
        readName(
          one,
          at,
          'a tool like "http.post"',
          TOOL_PATTERN,
          known.tools && Object.keys(known.tools),
          say,
        ),
      );
    case "connector":
      return readMany(value, path, say, (one, at) =>
        readName(one, at, "a connector's name", NAME_PATTERN, known.connectors, say),
      );
    case "connection":
      return readMany(value, path, say, (one, at) =>
        readName(one, at, "a connection's name", NAME_PATTERN, known.connections, say),
      );
    case "function":
      return readName(value, path, "a function's name", NAME_PATTERN, known.functions, say);
    default:
      return unreachable(key);
  }
}

function readMany<T>(
  value: unknown,
  path: string,
  say: Say,
  read: (one: unknown, path: string) => T | undefined,
): OneOrMore<T> | undefined {
  if (!Array.isArray(value)) return read(value, path);
  if (value.length === 0) say("policy-bad-match", path, "an empty list matches nothing");
  const found = value.map((one, i) => read(one, pointer(path, i)));
  const sound = found.filter((one) => one !== undefined);
  return sound.length === 0 || sound.length < found.length ? undefined : sound;
}

function readName(
  value: unknown,
  path: string,
  what: string,
  pattern: RegExp,
  known: readonly string[] | undefined,
  say: Say,
): string | undefined {
  if (typeof value !== "string" || !pattern.test(value)) {
    say("policy-bad-match", path, `${shown(value)} is not ${what}`);
    return undefined;
  }
  if (known === undefined || known.includes(value)) return value;
  say("policy-unmatched", path, `there is no ${shown(value)} here`, nearestName(value, known));
  return undefined;
}

function readLabels(
  value: unknown,
  path: string,
  known: KnownNames,
  say: Say,
): Record<string, string> | undefined {
  if (!isRecord(value) || Object.keys(value).length === 0) {
    say("policy-bad-match", path, `${shown(value)} is not an object of label names and values`);
    return undefined;
  }
  const labels: [string, string][] = [];
  for (const [name, one] of Object.entries(value)) {
    const at = pointer(path, name);
    if (typeof one !== "string" || one.length > 256)
      say("policy-bad-match", at, `${shown(one)} is not a label's value`);
    else if (readName(name, at, "a label's name", TAG_PATTERN, known.labels, say) !== undefined)
      labels.push([name, one]);
  }
  return labels.length === Object.keys(value).length ? Object.fromEntries(labels) : undefined;
}
