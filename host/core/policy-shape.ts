/**
 * The shapes a policy field may have, and reading one from unknown data. Decides whether a value fits its own shape;
 * what fits a unit, a rule or the other fields is decided in policy-rules.ts.
 *
 * H1. What is read is a fresh copy made of own, named properties only: nothing of the given object lives on.
 * H2. Every refusal names the place (JSON pointer), and the nearest valid name where one is close.
 */
import { ERRORS, type ErrorClass, type ErrorCode, unreachable } from "./errors.ts";
import { nearestName } from "./nearest.ts";
import type { Json } from "./workflow.ts";

export type Measure = "ms" | "bytes" | "MB" | "times";

/** `Given`: as a rule may say it; `Effective`: as the engine finds it, merged over the default. */
export type Shape<Given = unknown, Effective = Given> = ShapeData & {
  readonly __given?: Given;
  readonly __effective?: Effective;
};

interface WholeShape {
  kind: "whole";
  min: number;
  max: number;
  unit: Measure;
  /** Words that stand beside the numbers, such as "none". */
  words: readonly string[];
  /** A sibling that this number may not exceed. */
  notAbove?: string;
  /** The host's own maximum replaces `max`, and decides whether "infinity" is allowed. */
  cappedByHost?: boolean;
}

interface ObjectShape {
  kind: "object";
  fields: Readonly<Record<string, Shape>>;
  /** `all`: each must be given. `some`: at least one; merged field by field. `one`: exactly one. */
  needs: "all" | "some" | "one";
  words: readonly string[];
}

type ShapeData =
  | WholeShape
  | ObjectShape
  | { kind: "choice"; of: readonly string[] }
  | { kind: "flag" }
  | { kind: "text"; pattern: RegExp; what: string }
  | { kind: "errors"; automatic: boolean }
  | { kind: "tags" }
  | { kind: "json" }
  | { kind: "policy" };

type GivenOf<F> = F extends Shape<infer G, unknown> ? G : never;
type Fields = Readonly<Record<string, Shape>>;
type Range = Pick<WholeShape, "min" | "max" | "notAbove" | "cappedByHost">;
type Tags = Readonly<Record<string, string | number | boolean>>;

export function whole(unit: Measure, range: Range): Shape<number> {
  return { kind: "whole", unit, ...range, words: [] };
}
/** A number, or one of the words. */
export function wholeOr<const W extends string>(unit: Measure, range: Range, words: readonly W[]) {
  return { kind: "whole", unit, ...range, words } as Shape<number | W>;
}
export function choice<const C extends string>(...of: readonly C[]): Shape<C> {
  return { kind: "choice", of };
}
export const flag: Shape<boolean> = { kind: "flag" };
export const json: Shape<Json> = { kind: "json" };
/** Small facts for logs, traces and metrics; merged key by key. */
export const tags: Shape<Tags> = { kind: "tags" };
export function text(what: string, pattern: RegExp): Shape<string> {
  return { kind: "text", pattern, what };
}
/** Error classes or codes; `automatic`: only those that a retry without a person may follow. */
export function errors(automatic: boolean): Shape<readonly string[]> {
  return { kind: "errors", automatic };
}
/** A policy inside a policy. Its type is left open here: it would be circular. */
export const innerPolicy: Shape<Readonly<Record<string, Json>>> = { kind: "policy" };

/** Each field must be given; the whole replaces the whole. */
export function record<F extends Fields, const W extends string>(fields: F, words: readonly W[]) {
  return { kind: "object", fields, needs: "all", words } as Shape<
    { readonly [K in keyof F]: GivenOf<F[K]> } | W
  >;
}
/** Any of the fields, merged over what lies below. */
export function partial<F extends Fields>(fields: F) {
  return { kind: "object", fields, needs: "some", words: [] } as Shape<
    { readonly [K in keyof F]?: GivenOf<F[K]> },
    { readonly [K in keyof F]: GivenOf<F[K]> }
  >;
}
/** Exactly one of the fields. */
export function oneOf<F extends Fields, const W extends string = never>(fields: F, words: readonly W[]) {
  type One = { [K in keyof F]: { readonly [P in K]: GivenOf<F[P]> } }[keyof F];
  return { kind: "object", fields, needs: "one", words } as Shape<One | W>;
}

type PolicyProblemCode = Extract<
  ErrorCode,
  | "policy-invalid"
  | "policy-bad-match"
  | "policy-unmatched"
  | "policy-unsafe-pattern"
  | "policy-contradiction"
  | "policy-wrong-unit"
  | "unknown-policy-field"
  | "fallback-on-mutation"
  | "not-yet-enforced"
>;

export interface PolicyProblem {
  /** JSON pointer into the data that was given. */
  path: string;
  code: PolicyProblemCode;
  message: string;
  /** The valid name that was probably meant. */
  nearest?: string;
}

export type Say = (code: PolicyProblemCode, path: string, message: string, nearest?: string) => void;

/** What reading a value needs besides the value. */
export interface Reading {
  say: Say;
  maxTimeoutMs?: number | "infinity";
  /** Codes of connectors, beside the catalogue's. */
  errorCodes?: readonly string[];
  readInner: (value: unknown, path: string) => Record<string, Json> | undefined;
}

export function pointer(path: string, key: string | number): string {
  return `${path}/${String(key).replaceAll("~", "~0").replaceAll("/", "~1")}`;
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The value in words short enough for a message. */
export function shown(value: unknown): string {
  let written: string;
  try {
    written = JSON.stringify(value) ?? typeof value;
  } catch {
    written = `a ${typeof value}`; // a cycle, a bigint
  }
  return written.length > 60 ? `${written.slice(0, 57)}…` : written;
}

/** The value as its shape has it, or `undefined` after saying what is wrong (H2). */
export function readShape(shape: Shape, value: unknown, path: string, reading: Reading): Json | undefined {
  switch (shape.kind) {
    case "whole":
      return readWhole(shape, value, path, reading);
    case "choice":
      return readWord(shape.of, value, path, reading.say);
    case "flag":
      if (typeof value === "boolean") return value;
      return refuse(reading, path, `${shown(value)} is neither true nor false`);
    case "text":
      if (typeof value === "string" && shape.pattern.test(value)) return value;
      return refuse(reading, path, `${shown(value)} is not ${shape.what}`);
    case "errors":
      return readErrors(shape.automatic, value, path, reading);
    case "tags":
      return readTags(value, path, reading);
    case "json":
      return readJson(value, path, reading);
    case "policy":
      return reading.readInner(value, path);
    case "object":
      return readObject(shape, value, path, reading);
    default:
      return unreachable(shape);
  }
}

function refuse({ say }: Pick<Reading, "say">, path: string, message: string, nearest?: string): undefined {
  say("policy-invalid", path, message, nearest);
  return undefined;
}

function readWhole(shape: WholeShape, value: unknown, path: string, reading: Reading): Json | undefined {
  const hostMax = shape.cappedByHost ? reading.maxTimeoutMs : undefined;
  const max = hostMax === "infinity" ? 2 ** 31 - 1 : (hostMax ?? shape.max);
  const words = shape.cappedByHost && hostMax !== "infinity" ? [] : shape.words;
  if (typeof value === "string") {
    if (words.includes(value)) return value;
    if (shape.words.includes(value))
      return refuse(
        reading,
        path,
        `"${value}" is allowed only where the host's maximum is; here it is ${max}`,
      );
  }
  const wanted = `a whole number of ${shape.unit}, ${shape.min} to ${max}${words.map((word) => ` or "${word}"`).join("")}`;
  if (typeof value !== "number" || !Number.isSafeInteger(value) || value < shape.min || value > max)
    return refuse(
      reading,
      path,
      `${shown(value)} is not ${wanted}`,
      typeof value === "string" ? nearestName(value, words) : undefined,
    );
  return value;
}

/** One of the words, or `undefined` after saying so with the nearest. */
export function readWord<W extends string>(
  words: readonly W[],
  value: unknown,
  path: string,
  say: Say,
): W | undefined {
  const found = words.find((word) => word === value);
  if (found !== undefined) return found;
  const close = typeof value === "string" ? nearestName(value, words) : undefined;
  return refuse({ say }, path, `${shown(value)} is not one of ${words.join(", ")}`, close);
}

const CLASSES: readonly ErrorClass[] = [
  "transient",
  "auth",
  "permission",
  "precondition",
  "logic",
  "internal",
];
/** The others wait for a person, whatever a policy says (02 §3). */
const AUTOMATIC: readonly string[] = ["transient", "logic"];

function readErrors(automatic: boolean, value: unknown, path: string, reading: Reading): Json | undefined {
  if (!Array.isArray(value))
    return refuse(reading, path, `${shown(value)} is not a list of classes or codes`);
  const names: string[] = [];
  for (const [i, one] of value.entries()) {
    const at = pointer(path, i);
    const known = [...CLASSES, ...Object.keys(ERRORS), ...(reading.errorCodes ?? [])];
    const name = known.find((candidate) => candidate === one);
    if (name === undefined) {
      const close = typeof one === "string" ? nearestName(one, known) : undefined;
      return refuse(reading, at, `${shown(one)} is neither an error class nor an error code`, close);
    }
    const kind = errorClassOf(name);
    if (automatic && kind !== undefined && !AUTOMATIC.includes(kind))
      return refuse(reading, at, `${name} is never retried without a person: its class is ${kind}`);
    if (names.includes(name)) return refuse(reading, at, `${name} stands twice in this list`);
    names.push(name);
  }
  return names;
}

/** The class itself, or the class of a code of the catalogue; a connector's own code has none here. */
export function errorClassOf(name: string): string | undefined {
  if (CLASSES.some((one) => one === name)) return name;
  return Object.hasOwn(ERRORS, name) ? ERRORS[name as ErrorCode].class : undefined;
}

const MAX_TAGS = 32;
const TAG_CHARS = 256;
export const TAG_PATTERN = /^[a-zA-Z][a-zA-Z0-9_.-]{0,63}$/;

function readTags(value: unknown, path: string, reading: Reading): Json | undefined {
  if (!isRecord(value)) return refuse(reading, path, `${shown(value)} is not an object`);
  const entries = Object.entries(value);
  if (entries.length === 0 || entries.length > MAX_TAGS)
    return refuse(reading, path, `has ${entries.length} entries; 1 to ${MAX_TAGS}`);
  for (const [key, one] of entries) {
    const at = pointer(path, key);
    if (!TAG_PATTERN.test(key)) return refuse(reading, at, `${shown(key)} cannot be a key here`);
    const isSmall = typeof one === "string" ? one.length <= TAG_CHARS : typeof one === "boolean";
    if (!isSmall && !(typeof one === "number" && Number.isFinite(one)))
      return refuse(reading, at, `${shown(one)} is not a short text, a number, true or false`);
  }
  return Object.fromEntries(entries) as Record<string, Json>;
}

const MAX_JSON_DEPTH = 32;
const MAX_JSON_CHARS = 65_536;

function readJson(value: unknown, path: string, reading: Reading): Json | undefined {
  const copy = copyJson(value, MAX_JSON_DEPTH);
  if (copy === undefined) return refuse(reading, path, "is not plain JSON data, or nests too deeply");
  const chars = JSON.stringify(copy).length;
  if (chars > MAX_JSON_CHARS)
    return refuse(reading, path, `has ${chars} characters; at most ${MAX_JSON_CHARS}`);
  return copy;
}

/** (H1) A cycle ends at the depth limit like anything else too deep. */
function copyJson(value: unknown, depth: number): Json | undefined {
  if (value === null || typeof value === "string" || typeof value === "boolean") return value;
  if (typeof value === "number") return Number.isFinite(value) ? value : undefined;
  if (typeof value !== "object" || depth === 0) return undefined;
  if (Array.isArray(value)) {
    const list: Json[] = [];
    for (const one of value) {
      const copy = copyJson(one, depth - 1);
      if (copy === undefined) return undefined;
      list.push(copy);
    }
    return list;
  }
  const entries: [string, Json][] = [];
  for (const [key, one] of Object.entries(value)) {
    const copy = copyJson(one, depth - 1);
    if (copy === undefined || key === "__proto__") return undefined;
    entries.push([key, copy]);
  }
  return Object.fromEntries(entries);
}

function readObject(shape: ObjectShape, value: unknown, path: string, reading: Reading): Json | undefined {
  const names = Object.keys(shape.fields);
  if (typeof value === "string" && shape.words.includes(value)) return value;
  if (!isRecord(value)) {
    const close = typeof value === "string" ? nearestName(value, shape.words) : undefined;
    const words = shape.words.map((word) => `"${word}" or `).join("");
    return refuse(reading, path, `${shown(value)} is not ${words}an object with ${names.join(", ")}`, close);
  }
  const copy: Record<string, Json> = {};
  let isSound = true;
  for (const [key, one] of Object.entries(value)) {
    const at = pointer(path, key);
    const field = Object.hasOwn(shape.fields, key) ? shape.fields[key] : undefined;
    if (field === undefined)
      reading.say(
        "unknown-policy-field",
        at,
        `there is no ${shown(key)} here; only ${names.join(", ")}`,
        nearestName(key, names),
      );
    const read = field === undefined ? undefined : readShape(field, one, at, reading);
    if (read === undefined) isSound = false;
    else copy[key] = read;
  }
  if (!isSound) return undefined;
  const given = Object.keys(copy);
  const missing = names.filter((name) => !given.includes(name));
  if (shape.needs === "all" && missing.length > 0)
    return refuse(reading, path, `${missing.join(" and ")} must be given too`);
  if (shape.needs === "some" && given.length === 0)
    return refuse(reading, path, `says nothing; give ${names.join(", ")}`);
  if (shape.needs === "one" && given.length !== 1)
    return refuse(reading, path, `must say exactly one of ${names.join(", ")}`);
  return copy;
}
