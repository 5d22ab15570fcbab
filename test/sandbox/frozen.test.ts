import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { SandboxResult, Script } from "../../host/ports/sandbox.ts";
import { openPool, type Pool } from "../../host/sandbox/pool.ts";
import { callFor, compiled, noAnswers } from "../support/scripts.ts";
import { FORBIDDEN } from "./forbidden.ts";

/** What looks alike and works in both scopes. Each throws when it does not. */
const ALLOWED: string[] = [
  'class Refused extends Error { constructor(m) { super(m); this.name = "Refused"; this.message = "b"; } } check(`${new Refused("a")}` === "Refused: b");',
  'function Old() {} Old.prototype = Object.create(Error.prototype); Old.prototype.constructor = Old; Old.prototype.name = "Old"; check(new Old().name === "Old");',
  'const e = new TypeError("x"); e.name = "Mine"; e.toString = () => "z"; e.cause = 1; check(`${e}` === "z" && e.name === "Mine");',
  'const o = {}; o.toString = () => "o"; o.constructor = 1; o.hasOwnProperty = 2; check(`${o}` === "o" && Object.keys(o).length === 3);',
  "const o = { valueOf: () => 1 }; o.valueOf = () => 2; check(o + 1 === 3);",
  "const f = () => 1; f.call = 2; f.extra = 3; check(f.call === 2 && f.extra === 3);",
  'class A { toString() { return "a"; } } const a = new A(); a.toString = () => "b"; check(`${a}` === "b");',
  "class List extends Array { map() { return 7; } } check(List.of(1).map() === 7);",
  "class Known extends Map { get() { return 7; } } check(new Known().get(1) === 7);",
  "const list = [1]; Object.defineProperty(list, 'map', { value: () => 7 }); check(list.map() === 7);",
  'const o = JSON.parse(\'{"constructor":1,"toString":2}\'); check(o.constructor === 1 && { ...o }.toString === 2);',
  "const o = Object.assign({}, { toString: () => 'c' }); check(`${o}` === 'c');",
  "Object.freeze(Array.prototype); Object.preventExtensions(globalThis); check(true);",
  "const counts = {}; for (const word of ['constructor', 'valueOf']) counts[word] = 1; check(counts.valueOf === 1);",
];

const PLACE = ": built-in objects cannot be changed in the frozen scope";
const handlers = (kind: string, bodies: string[]) =>
  bodies
    .map(
      (body, i) =>
        `${kind}${i}: producer({ schedule: { interval: "1h" }, publishes: [], handler() { ${body} } }),`,
    )
    .join("\n");
const SOURCE = `import { workflow, producer } from "pawl";
const check = (holds) => { if (!holds) throw new Error("it did not hold"); };
export default workflow({ name: "frozen", topics: {}, producers: {
${handlers(
  "no",
  FORBIDDEN.map(([code]) => code),
)}
${handlers("yes", ALLOWED)}
} });`;

let script: Script;
let pool: Pool;
beforeAll(async () => {
  script = await compiled(SOURCE, { language: "js", file: "frozen.js" });
  pool = openPool({ childrenPerNamespace: 1, maxChildren: 1 });
});
afterAll(() => pool[Symbol.asyncDispose]());

const run = (handler: string, scope: "auto" | "fresh" | "frozen", own = script): Promise<SandboxResult> =>
  pool.run(callFor(own, "producer", handler, { scope }), noAnswers);
const said = (result: SandboxResult): string =>
  result.status === "done" ? "done" : `${result.error.code}: ${result.error.message}`;

describe("what the frozen scope forbids, and the fresh one allows", () => {
  it.each(FORBIDDEN.map(([code, message], i) => ({ code, message, i })))("$code", async ({ message, i }) => {
    const frozen = await run(`no${i}`, "frozen");
    expect(said(frozen)).toBe(`frozen-builtin: ${message}${PLACE}`);
    expect(frozen.status === "failed" && frozen.error.class).toBe("logic");
    expect(frozen.status === "failed" && frozen.error.location?.line).toBe(4 + i);
    expect(said(await run(`no${i}`, "fresh"))).toBe("done");
  });

  it("with `auto` the author sees none of it: the run is made again in a fresh scope, and later ones start there", async () => {
    const own = { ...script, hash: `${script.hash}-auto` };
    const before = await run("yes0", "auto", own);
    const first = await run("no0", "auto", own);
    const after = await run("yes0", "auto", own);
    expect([before, first, after].map(said)).toEqual(["done", "done", "done"]);
    expect([before, first, after].map((result) => result.usage.scope)).toEqual(["frozen", "fresh", "fresh"]);
  });
});

describe("what works in both scopes", () => {
  it.each(ALLOWED.map((code, i) => ({ code, i })))("$code", async ({ i }) => {
    expect(said(await run(`yes${i}`, "frozen"))).toBe("done");
    expect(said(await run(`yes${i}`, "fresh"))).toBe("done");
  });
});

describe("memory that a run leaves pinned in the shared realm", () => {
  // A private field can be put even on a frozen object. Nothing can read it later, but it keeps what it holds.
  const PIN = `import { workflow, producer } from "pawl";
const Same = function (object) { return object; };
export default workflow({ name: "pin", topics: {}, producers: { pin: producer({
  schedule: { interval: "1h" }, publishes: [],
  handler(ctx) {
    class Stamp extends Same { #held = new Array(1_000_000).fill(ctx.run.attempt + 0.5); }
    new Stamp(Object.prototype);
  },
}) } });`;

  it("is not charged to later runs: 25 runs of 8 MB each pass within 64 MB", async () => {
    const pin = await compiled(PIN, { language: "js", file: "pin.js" });
    const verdicts: string[] = [];
    for (let i = 0; i < 25; i++) verdicts.push(said(await run("pin", "frozen", pin)));
    expect(verdicts).toEqual(Array(25).fill("done"));
  });
});

describe("the frozen scope has no loose end", () => {
  // Uses every member of many values, and looks at what stands behind each thing that comes back: a prototype or a
  // class that is not frozen there would be shared by all runs of the realm.
  const REACH = `import { workflow, producer } from "pawl";
const isObject = (x) => (typeof x === "object" && x !== null) || typeof x === "function";
const reach = (root, start, known) => {
  const seen = new Map();
  const todo = [[root, start]];
  while (todo.length > 0) {
    const [item, path] = todo.pop();
    if (!isObject(item) || seen.has(item) || known?.has(item)) continue;
    seen.set(item, path);
    todo.push([Object.getPrototypeOf(item), path + ".__proto__"]);
    for (const key of Reflect.ownKeys(item)) {
      const own = Object.getOwnPropertyDescriptor(item, key);
      for (const part of ["value", "get", "set"]) todo.push([own[part], path + "." + String(key)]);
    }
  }
  return seen;
};
const generate = function* () {};
const generateLater = async function* () {};
Object.freeze(generate.prototype);
Object.freeze(generateLater.prototype);
const plain = Object.freeze({});
const one = Object.freeze(() => 1);
const samples = {
  array: () => [1, 2], map: () => new Map([[1, 2]]), set: () => new Set([1]), date: () => new Date(0),
  regexp: () => /a/g, url: () => new URL("https://a.example/?x=1"), params: () => new URLSearchParams("a=1"),
  encoder: () => new TextEncoder(), decoder: () => new TextDecoder(), bytes: () => new Uint8Array(4),
  buffer: () => new ArrayBuffer(8), view: () => new DataView(new ArrayBuffer(8)), promise: () => Promise.resolve(1),
  dates: () => new Intl.DateTimeFormat(), numbers: () => new Intl.NumberFormat(), segmenter: () => new Intl.Segmenter(),
  segments: () => new Intl.Segmenter().segment("a b"), locale: () => new Intl.Locale("en"),
  collator: () => new Intl.Collator(), plurals: () => new Intl.PluralRules(), ago: () => new Intl.RelativeTimeFormat("en"),
  lists: () => new Intl.ListFormat(), names: () => new Intl.DisplayNames("en", { type: "region" }),
  generator: () => generate(), later: () => generateLater(), iterator: () => [1].values(),
  helper: () => [1].values().map((x) => x), error: () => new Error("x"), stack: () => new DisposableStack(),
  weak: () => new WeakMap(), text: () => Object("text"), number: () => Object(1), symbol: () => Object(Symbol()),
  big: () => Object(5n), call: () => () => 1, wait: () => async () => {}, global: () => globalThis,
};
for (const name of ["crypto", "JSON", "Math", "Reflect", "Intl", "Object", "Array", "String", "Promise", "Symbol", "Map",
  "Uint8Array", "Proxy", "Iterator", "Error", "Number", "BigInt", "URL", "Date", "ArrayBuffer"])
  samples[name] = () => globalThis[name];
export default workflow({ name: "reach", topics: {}, producers: { walk: producer({
  schedule: { interval: "1h" }, publishes: [],
  async handler() {
    const known = reach(globalThis, "globalThis");
    const loose = new Set();
    let made = 0;
    const judge = (item, label) => {
      if (!isObject(item) || known.has(item)) return;
      made++;
      for (const [found, path] of reach(Object.getPrototypeOf(item), label + ".__proto__", known))
        if (!Object.isFrozen(found)) loose.add(path);
    };
    for (const [name, sample] of Object.entries(samples)) {
      const keys = new Set();
      for (let level = sample(); isObject(level); level = Object.getPrototypeOf(level))
        for (const key of Reflect.ownKeys(level)) keys.add(key);
      for (const key of keys)
        for (const args of [[], ["https://a.example/?x=1"], [plain], [one], ["SHA-256", new Uint8Array(2)]]) {
          const label = name + "." + String(key);
          const self = sample();
          try {
            const member = self[key];
            judge(member, label);
            if (typeof member !== "function") continue;
            const result = member.apply(self, args);
            judge(result, label + "()");
            if (result instanceof Promise) judge(await Promise.race([result, 1]), label + "() later");
          } catch (error) { judge(error, label + " throws"); }
          try { judge(Reflect.construct(self[key], args), "new " + label); } catch (error) { judge(error, label + " throws"); }
        }
    }
    return { made, known: known.size, loose: [...loose].slice(0, 50) };
  },
}) } });`;

  it("whatever a built-in makes has only frozen objects behind it", async () => {
    const reaching = await compiled(REACH, { language: "js", file: "reach.js" });
    const result = await pool.run(
      callFor(reaching, "producer", "walk", {
        scope: "frozen",
        limits: { sectionMs: 20_000, cpuMs: 20_000, memoryMb: 256 },
      }),
      noAnswers,
    );
    expect(said(result)).toBe("done");
    const found = JSON.parse((result.status === "done" && result.state) || "{}");
    expect(found.made).toBeGreaterThan(5_000);
    expect(found.known).toBeGreaterThan(500);
    expect(found.loose).toEqual([]);
  });
});
