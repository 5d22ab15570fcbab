/**
 * Payload against the JSON Schema that its topic declares (03): the part of the standard that data needs. No regular
 * expressions and no references: both come from the script's author and would run in the host.
 *
 * J1. A keyword that is not checked is refused when the schema is read, never ignored.
 * J2. The work is bounded, whatever schema and value: beyond MOST_STEPS the value is refused.
 */
import type { Json } from "./workflow.ts";

const ANNOTATIONS = [
  "$schema",
  "$id",
  "$comment",
  "title",
  "description",
  "default",
  "examples",
  "deprecated",
];
const TYPES = ["string", "number", "integer", "boolean", "null", "array", "object"];
const MOST_STEPS = 200_000;
const MOST_DEPTH = 64;

type Dict = { [key: string]: Json };
/** Where in the value, and why it does not fit. */
type Fault = string | undefined;
interface Walk {
  steps: number;
}

type Check = (limit: Json, value: Json, path: string, walk: Walk, schema: Dict) => Fault;

const count = (
  of: (value: Json) => number | undefined,
  fits: (n: number, limit: number) => boolean,
  what: string,
): Check => {
  return (limit, value, path) => {
    const n = of(value);
    return n === undefined || fits(n, limit as number) ? undefined : `${path} ${what} ${limit as number}`;
  };
};
const ofNumber = (value: Json) => (typeof value === "number" ? value : undefined);
const ofText = (value: Json) => (typeof value === "string" ? Array.from(value).length : undefined);
const ofList = (value: Json) => (Array.isArray(value) ? value.length : undefined);
const ofObject = (value: Json) => (isDict(value) ? Object.keys(value).length : undefined);
const listed = (value: Json): string[] => [value].flat() as string[];
const atLeast = (n: number, limit: number) => n >= limit;
const atMost = (n: number, limit: number) => n <= limit;

const CHECKS: Record<string, Check> = {
  type: (types, value, path) =>
    listed(types).some((type) => isOf(value, type))
      ? undefined
      : `${path} must be ${listed(types).join(" or ")}`,
  enum: (values, value, path, walk) => {
    walk.steps += (values as Json[]).length;
    const found = (values as Json[]).some((one) => isEqual(one, value));
    return found ? undefined : `${path} is none of the values allowed`;
  },
  const: (only, value, path) =>
    isEqual(only, value) ? undefined : `${path} must be ${JSON.stringify(only)}`,
  minimum: count(ofNumber, atLeast, "must be at least"),
  maximum: count(ofNumber, atMost, "must be at most"),
  exclusiveMinimum: count(ofNumber, (n, limit) => n > limit, "must be above"),
  exclusiveMaximum: count(ofNumber, (n, limit) => n < limit, "must be below"),
  multipleOf: count(ofNumber, (n, limit) => Number.isInteger(n / limit), "must be a multiple of"),
  minLength: count(ofText, atLeast, "is shorter than"),
  maxLength: count(ofText, atMost, "is longer than"),
  minItems: count(ofList, atLeast, "has fewer items than"),
  maxItems: count(ofList, atMost, "has more items than"),
  minProperties: count(ofObject, atLeast, "has fewer fields than"),
  maxProperties: count(ofObject, atMost, "has more fields than"),
  required: (names, value, path) => {
    const missing = isDict(value)
      ? (names as string[]).find((name) => !Object.hasOwn(value, name))
      : undefined;
    return missing === undefined ? undefined : `${path}.${missing} is missing`;
  },
  properties: (fields, value, path, walk) =>
    isDict(value)
      ? first(Object.entries(fields as Dict), ([name, schema]) =>
          Object.hasOwn(value, name)
            ? fault(schema, value[name] as Json, `${path}.${name}`, walk)
            : undefined,
        )
      : undefined,
  additionalProperties: (rest, value, path, walk, { properties = {} }) =>
    isDict(value)
      ? first(Object.entries(value), ([name, one]) =>
          Object.hasOwn(properties as Dict, name) ? undefined : fault(rest, one, `${path}.${name}`, walk),
        )
      : undefined,
  items: (schema, value, path, walk) =>
    Array.isArray(value)
      ? first(value.entries(), ([i, one]) => fault(schema, one, `${path}[${i}]`, walk))
      : undefined,
  allOf: (schemas, value, path, walk) => first(schemas as Json[], (one) => fault(one, value, path, walk)),
  anyOf: (schemas, value, path, walk) =>
    (schemas as Json[]).some((one) => fault(one, value, path, walk) === undefined)
      ? undefined
      : `${path} fits none of the alternatives`,
  oneOf: (schemas, value, path, walk) =>
    (schemas as Json[]).filter((one) => fault(one, value, path, walk) === undefined).length === 1
      ? undefined
      : `${path} must fit exactly one of the alternatives`,
  not: (schema, value, path, walk) =>
    fault(schema, value, path, walk) === undefined ? `${path} fits what is excluded` : undefined,
};

/** Why the value does not fit, or `undefined`. The schema is one that `schemaProblem` accepted. */
export function mismatch(schema: Json, value: Json): Fault {
  const walk = { steps: 0 };
  const found = fault(schema, value, "payload", walk);
  return walk.steps > MOST_STEPS ? "payload takes too long to check against its schema" : found; // (J2)
}

function fault(schema: Json, value: Json, path: string, walk: Walk): Fault {
  if (++walk.steps > MOST_STEPS) return "too many steps";
  if (typeof schema === "boolean") return schema ? undefined : `${path} is not allowed`;
  return first(Object.entries(schema as Dict), ([keyword, limit]) =>
    CHECKS[keyword]?.(limit, value, path, walk, schema as Dict),
  );
}

/** Why this is no schema that can be checked, or `undefined`. (J1) */
export function schemaProblem(schema: Json, path = "schema", depth = 0): string | undefined {
  if (typeof schema === "boolean") return undefined;
  if (!isDict(schema)) return `${path} must be an object, true or false`;
  if (depth > MOST_DEPTH) return `${path} nests more than ${MOST_DEPTH} levels deep`;
  return first(Object.entries(schema), ([keyword, value]) => {
    const at = `${path}.${keyword}`;
    if (ANNOTATIONS.includes(keyword)) return undefined;
    if (!Object.hasOwn(CHECKS, keyword)) return `${at} is not a keyword that is checked here`;
    return keywordProblem(keyword, value, at, depth + 1);
  });
}

function keywordProblem(keyword: string, value: Json, at: string, depth: number): string | undefined {
  switch (keyword) {
    case "type":
      return [value].flat().every((one) => TYPES.includes(one as string)) ? undefined : `${at} names no type`;
    case "const":
      return undefined;
    case "enum":
      return Array.isArray(value) ? undefined : `${at} must be a list`;
    case "required":
      return Array.isArray(value) && value.every((one) => typeof one === "string")
        ? undefined
        : `${at} must be a list of names`;
    case "properties":
      return isDict(value)
        ? first(Object.entries(value), ([name, one]) => schemaProblem(one, `${at}.${name}`, depth))
        : `${at} must be an object`;
    case "items":
    case "additionalProperties":
    case "not":
      return schemaProblem(value, at, depth);
    case "allOf":
    case "anyOf":
    case "oneOf":
      return Array.isArray(value) && value.length > 0
        ? first(value.entries(), ([i, one]) => schemaProblem(one, `${at}[${i}]`, depth))
        : `${at} must be a list that is not empty`;
    default:
      return typeof value === "number" && (keyword !== "multipleOf" || value > 0)
        ? undefined
        : `${at} must be a number`;
  }
}

function first<Item>(items: Iterable<Item>, find: (item: Item) => string | undefined): string | undefined {
  for (const item of items) {
    const found = find(item);
    if (found !== undefined) return found;
  }
  return undefined;
}

const isDict = (value: Json): value is Dict =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function isOf(value: Json, type: string): boolean {
  if (type === "integer") return Number.isInteger(value);
  if (type === "array") return Array.isArray(value);
  if (type === "null") return value === null;
  return type === "object" ? isDict(value) : typeof value === type;
}

function isEqual(a: Json, b: Json): boolean {
  if (Array.isArray(a))
    return Array.isArray(b) && a.length === b.length && a.every((one, i) => isEqual(one, b[i] as Json));
  if (!isDict(a)) return a === b;
  const keys = Object.keys(a);
  return (
    isDict(b) &&
    keys.length === Object.keys(b).length &&
    keys.every((key) => Object.hasOwn(b, key) && isEqual(a[key] as Json, b[key] as Json))
  );
}
