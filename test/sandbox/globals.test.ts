import { readFileSync, writeFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Script } from "../../host/ports/sandbox.ts";
import { openPool, type Pool } from "../../host/sandbox/pool.ts";
import { callFor, compiled, noAnswers } from "../support/scripts.ts";

/** The global names that authors are promised: the standard library without what is taken away, and the additions. */
const VALUES = "globalThis Infinity NaN undefined";
const FUNCTIONS =
  "parseFloat parseInt isFinite isNaN decodeURI decodeURIComponent encodeURI encodeURIComponent escape unescape";
const CLASSES =
  "Object Function Array Number Boolean String Symbol BigInt Date Promise RegExp Map Set WeakMap WeakSet Proxy Iterator " +
  "ArrayBuffer DataView Int8Array Uint8Array Uint8ClampedArray Int16Array Uint16Array Int32Array Uint32Array " +
  "BigInt64Array BigUint64Array Float16Array Float32Array Float64Array DisposableStack AsyncDisposableStack";
const ERRORS =
  "Error AggregateError EvalError RangeError ReferenceError SyntaxError SuppressedError TypeError URIError";
const NAMESPACES = "JSON Math Reflect Intl";
const ADDED = "URL URLSearchParams TextEncoder TextDecoder atob btoa structuredClone crypto console";
const DOCUMENTED = [VALUES, FUNCTIONS, CLASSES, ERRORS, NAMESPACES, ADDED].join(" ").split(" ").sort();

/** What gives authority, real time, code from text, shared memory or a view of the garbage collector. */
const ABSENT =
  "fetch require process module exports __dirname Buffer global window self setTimeout setInterval setImmediate " +
  "clearTimeout queueMicrotask performance navigator WebSocket Worker MessageChannel BroadcastChannel eval " +
  "WebAssembly SharedArrayBuffer Atomics WeakRef FinalizationRegistry ShadowRealm Temporal gc ivm send native";

type Listing = Record<string, Record<string, string>>;

const SOURCE = `import { workflow, producer } from "pawl";
const named = (key) => (typeof key === "symbol" ? "@@" + String(key.description).replace("Symbol.", "") : key);
const kind = (own) => {
  const marks = (own.writable === false ? " readonly" : "") + (own.configurable ? "" : " fixed") + (own.enumerable ? " listed" : "");
  if (!("value" in own)) return (own.set ? "get set" : "get") + (own.configurable ? "" : " fixed") + (own.enumerable ? " listed" : "");
  return (own.value === null ? "null" : typeof own.value) + marks;
};
const keysOf = (object) => {
  const keys = {};
  for (const key of Reflect.ownKeys(object)) keys[named(key)] = kind(Object.getOwnPropertyDescriptor(object, key));
  return keys;
};
const proto = Object.getPrototypeOf;
const bySyntax = () => ({
  "global's prototype": proto(globalThis),
  "global's prototype's prototype": proto(proto(globalThis)),
  AsyncFunction: proto(async () => {}),
  GeneratorFunction: proto(function* () {}),
  AsyncGeneratorFunction: proto(async function* () {}),
  Generator: proto(function* () {}).prototype,
  AsyncGenerator: proto(async function* () {}).prototype,
  AsyncIterator: proto(proto(async function* () {}).prototype),
  TypedArray: proto(Int8Array),
  "TypedArray.prototype": proto(Int8Array.prototype),
  ArrayIterator: proto([].values()),
  MapIterator: proto(new Map().values()),
  SetIterator: proto(new Set().values()),
  StringIterator: proto(""[Symbol.iterator]()),
  RegExpStringIterator: proto("".matchAll(/a/g)),
  IteratorHelper: proto([].values().map((x) => x)),
  WrappedIterator: proto(Iterator.from({ next() {} })),
  Segments: proto(new Intl.Segmenter().segment("")),
  SegmentIterator: proto(new Intl.Segmenter().segment("")[Symbol.iterator]()),
  "an error": new Error("x"),
  arguments: (function () { return arguments; })(),
});
export default workflow({ name: "globals", topics: {}, connections: { shop: "http", other: "custom" }, producers: {
  list: producer({ schedule: { interval: "1h" }, publishes: [], handler(ctx) {
    const listing = { globalThis: keysOf(globalThis) };
    for (const name of Object.getOwnPropertyNames(globalThis)) {
      const value = globalThis[name];
      if ((typeof value !== "object" && typeof value !== "function") || value === null || value === globalThis) continue;
      listing[name] = keysOf(value);
      if (typeof value.prototype === "object") listing[name + ".prototype"] = keysOf(value.prototype);
      if (name !== "Intl") continue;
      for (const inner of Object.getOwnPropertyNames(Intl)) {
        listing["Intl." + inner] = keysOf(Intl[inner]);
        if (Intl[inner].prototype) listing["Intl." + inner + ".prototype"] = keysOf(Intl[inner].prototype);
      }
    }
    listing["crypto.subtle"] = keysOf(crypto.subtle);
    for (const [name, value] of Object.entries(bySyntax())) listing["syntax: " + name] = keysOf(value);
    listing.ctx = keysOf(ctx);
    for (const name of ["log", "run", "shop"]) listing["ctx." + name] = keysOf(ctx[name]);
    return listing;
  } }),
  absent: producer({ schedule: { interval: "1h" }, publishes: [], handler(ctx) {
    return Object.fromEntries(${JSON.stringify(ABSENT)}.split(" ").map((name) => [name, name in globalThis]));
  } }),
  code: producer({ schedule: { interval: "1h" }, publishes: [], handler(ctx) {
    const makers = [Function, (() => {}).constructor, (async () => {}).constructor, (function* () {}).constructor,
      (async function* () {}).constructor, Object.getPrototypeOf(globalThis).constructor.constructor, ctx.log.info.constructor,
      ctx.peek.constructor, URL.constructor, Date.constructor, crypto.subtle.digest.constructor, workflow.constructor];
    return makers.map((Maker) => {
      const tries = [() => Maker("return 1"), () => new Maker("return 1"), () => Reflect.construct(Maker, ["return 1"], Object)];
      return tries.map((make) => { try { make(); return "made code"; } catch (error) { return error.message; } });
    }).flat();
  } }),
} });`;

let script: Script;
let pool: Pool;
beforeAll(async () => {
  script = await compiled(SOURCE, { language: "js", file: "globals.js" });
  pool = openPool({ childrenPerNamespace: 1, maxChildren: 1 });
});
afterAll(() => pool[Symbol.asyncDispose]());

async function returned(handler: string, scope: "fresh" | "frozen"): Promise<unknown> {
  const result = await pool.run(callFor(script, "producer", handler, { scope }), noAnswers);
  if (result.status !== "done") throw new Error(result.error.message);
  expect(result.usage.scope).toBe(scope);
  return JSON.parse(result.state ?? "null");
}

const sorted = (listing: Listing): Listing =>
  Object.fromEntries(
    Object.entries(listing)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, keys]) => [
        name,
        Object.fromEntries(Object.entries(keys).sort(([a], [b]) => (a < b ? -1 : 1))),
      ]),
  );

describe.each(["fresh", "frozen"] as const)("the %s scope", (scope) => {
  it("has exactly the documented global names", async () => {
    const listing = (await returned("list", scope)) as Listing;
    expect(Object.keys(listing["globalThis"] ?? {}).sort()).toEqual(DOCUMENTED);
  });

  it("has exactly the members of the golden file (PAWL_GOLDEN=write rewrites it)", async () => {
    const listing = sorted((await returned("list", scope)) as Listing);
    const golden = new URL(`golden/globals-${scope}.json`, import.meta.url);
    if (process.env["PAWL_GOLDEN"] === "write")
      writeFileSync(golden, `${JSON.stringify(listing, null, 1)}\n`);
    expect(listing).toEqual(JSON.parse(readFileSync(golden, "utf8")));
  });

  it("has nothing that gives authority", async () => {
    const present = (await returned("absent", scope)) as Record<string, boolean>;
    expect(Object.keys(present).length).toBeGreaterThan(30);
    expect(Object.entries(present).filter(([, here]) => here)).toEqual([]);
  });

  it("turns no text into code", async () => {
    const said = (await returned("code", scope)) as string[];
    expect(said).toHaveLength(36);
    expect([...new Set(said)]).toEqual(["code from strings is not available in a Pawl script"]);
  });
});

it("freezing changes no name: both scopes list the same members", async () => {
  const names = (listing: Listing) =>
    Object.entries(listing).map(([name, keys]) => [name, Object.keys(keys).sort()]);
  expect(names(sorted((await returned("list", "frozen")) as Listing))).toEqual(
    names(sorted((await returned("list", "fresh")) as Listing)),
  );
});

it("in the frozen scope nothing listed can be written, removed or redefined", async () => {
  const listing = (await returned("list", "frozen")) as Listing;
  const open = Object.entries(listing)
    .filter(([name]) => !name.startsWith("ctx") && !/an error|arguments/.test(name))
    .flatMap(([name, keys]) => Object.entries(keys).map(([key, kind]) => ({ at: `${name}.${key}`, kind })))
    .filter(({ kind }) => !kind.includes("fixed") || !/^get|readonly/.test(kind));
  expect(open).toEqual([]);
});
