/**
 * Hostile uploads: whatever the file does or says, reading it ends with a problem that has a code and a place in the
 * file, or with a script that is what it claims; never with a hang, a crash or a rejected promise.
 */
import { describe, expect, it } from "vitest";
import { ERRORS, type ErrorCode } from "../../host/core/errors.ts";
import { openPool } from "../../host/sandbox/pool.ts";
import type { Compilation } from "../../host/ports/sandbox.ts";
import { compileScript } from "../../host/sandbox/compile.ts";
import { callFor, compiled, noAnswers, NOW_MS } from "../support/scripts.ts";

const PROOF = process.env["PAWL_PROOF"] === "1";
const GAP_MS = 250 * 5;
const DEADLINE_MS = (5_000 + 500) * 5;

/** A good workflow with a hostile line 2 and a hostile last field. */
const file = (top: string, field = "") => `import { workflow, producer } from "pawl";
${top}
export default workflow({ name: "x", producers: { p: producer({ schedule: { interval: "1h" }, handler: () => {} }) }${field} });`;

type Case = [what: string, source: string, code: ErrorCode | ErrorCode[]];

const LOADING: Case[] = [
  ["a loop at the top", file("for (;;);"), "load-limit"],
  ["a loop at the top that catches", file("for (;;) try { for (;;); } catch {}"), "load-limit"],
  ["microtasks at the top", file("const f = () => { Promise.resolve().then(f); }; f();"), "load-limit"],
  ["a regular expression at the top", file('/^(a+)+$/.test("a".repeat(60) + "!");'), "load-limit"],
  ["memory at the top", file("const a = []; for (;;) a.push(new Array(1_000).fill(1.5));"), "load-limit"],
  [
    "memory that takes the process down",
    file("const m = new Map(); for (let i = 0; ; i++) m.set(i, { i });"),
    // Whichever comes first: time, or the process.
    ["script-too-deep", "load-limit"],
  ],
  ["recursion at the top", file("const f = () => f(); f();"), "load-failed"],
  ["a throw", file("throw new Error('x');"), "load-failed"],
  ["a throw of null", file("throw null;"), "load-failed"],
  ["a throw that cannot be read", file("throw new Proxy({}, { get() { throw 1; } });"), "load-failed"],
  ["a throw whose reading never ends", file("throw { get message() { for (;;); } };"), "load-limit"],
  [
    "a stack that points nowhere",
    file("throw Object.assign(new Error('x'), { stack: 'at pawl-script:x:999999999:0' });"),
    "load-failed",
  ],
  ["a promise that fails", file("Promise.reject(new Error('x'));"), "load-failed"],
  ["leaving", file("process.exit(0);"), "load-failed"],
  ["eval", file("eval('1');"), "load-failed"],
  ["Function", file("Function('return 1')();"), "load-failed"],
  ["a constructor chain", file("(() => {}).constructor('return process')();"), "load-failed"],
  ["the callee", file("arguments.callee;"), "load-failed"],
];

const DECLARATIONS: Case[] = [
  ["a description of thirty megabytes", file("", ', description: "x".repeat(30_000_000)'), "script-too-deep"],
  [
    "fifty thousand topics",
    file("const t = {}; for (let i = 0; i < 50_000; i++) t['t' + i] = { pawl: 'topic' };", ", topics: t"),
    "manifest-invalid",
  ],
  [
    "fifteen thousand mistakes",
    file("const t = {}; for (let i = 0; i < 15_000; i++) t['-' + i] = 1;", ", topics: t"),
    "manifest-invalid",
  ],
  [
    "a value that is small until it is written out",
    file("let a = [1]; for (let i = 0; i < 38; i++) a = [a, a];", ", topics: a"),
    "manifest-invalid",
  ],
  ["a cycle", file("const c = {}; c.c = c;", ", topics: { a: c }"), "manifest-invalid"],
  ["a getter that never returns", file("", ", get topics() { for (;;); }"), "load-limit"],
  ["a getter that throws", file("", ", get topics() { throw new Error('g'); }"), "load-failed"],
  [
    "a proxy",
    'export default new Proxy({}, { get: (t, k) => (k === "pawl" ? "workflow" : "x"), ownKeys: () => ["pawl", "name"], getOwnPropertyDescriptor: () => ({ enumerable: true, configurable: true, value: 1 }) });',
    "no-handlers",
  ],
  [
    "a proxy whose keys never end",
    "export default new Proxy({}, { ownKeys() { for (;;); } });",
    "load-limit",
  ],
  [
    "a proxy that claims four billion items",
    file("", ", topics: new Proxy([], { get: (t, k) => (k === 'length' ? 2 ** 32 - 1 : t[k]) })"),
    "manifest-invalid",
  ],
  ["a thenable", 'export default { then(ok) { ok(1); }, pawl: "workflow" };', "manifest-invalid"],
  ["a promise", 'export default Promise.resolve({ pawl: "workflow" });', "not-a-workflow"],
  ["a function", "export default () => {};", "not-a-workflow"],
  ["a class", "export default class {}", "not-a-workflow"],
  ["null", "export default null;", "not-a-workflow"],
  ["a name of the wrapper taken", file("function __out() {}"), "not-a-workflow"],
  ["a symbol", "export default Symbol('x');", "not-a-workflow"],
  ["a big integer", "export default 5n;", "not-a-workflow"],
  ["the name __proto__", file("", "").replace('name: "x"', 'name: "__proto__"'), "bad-name"],
  ["a name with control characters", file("").replace('name: "x"', 'name: "a\\u0000\\u001b[2J"'), "bad-name"],
  ["a name of five megabytes", file("").replace('name: "x"', 'name: "x".repeat(5_000_000)'), "bad-name"],
  ["a topic named __proto__", file("", ", topics: { ['__proto__']: { pawl: 'topic' } }"), "bad-name"],
  ["an alias named __proto__", file("", ", connections: { ['__proto__']: 'http' }"), "bad-name"],
  ["a connector named __proto__", file("", ", connections: { a: '__proto__' }"), "bad-name"],
  ["a consumer named __proto__", file("", ", consumers: { ['__proto__']: {} }"), "bad-name"],
  ["a field named __proto__", file("", ", ['__proto__']: 1"), "unknown-field"],
  ["a field named constructor", file("", ", constructor: 1"), "unknown-field"],
  [
    "a schedule of a hundred thousand parts",
    file("").replace('{ interval: "1h" }', `{ cron: "${"0-59/1,".repeat(15_000)}0 * * * *" }`),
    "bad-cron",
  ],
  [
    "a time zone that is a path",
    file("").replace('{ interval: "1h" }', '{ cron: "0 0 * * *", timezone: "../../etc/passwd" }'),
    "bad-timezone",
  ],
  [
    "an interval of four hundred thousand digits",
    file("").replace('"1h"', `"${"9".repeat(400_000)}d"`),
    "bad-interval",
  ],
  [
    "a toJSON for every object, and a throw",
    file("Object.prototype.toJSON = () => null; throw new Error('x');"),
    "load-failed",
  ],
];

const SYNTAX: Case[] = [
  ["a bracket that is not closed", file("{"), "script-syntax"],
  ["a bracket too many", file("}"), "script-syntax"],
  ["closing the wrapper and opening another", file("}); evil(); (function () {"), "script-syntax"],
  ["closing the wrapper as a call", file("})(1, 2); (function (a, b) {"), "script-syntax"],
  ["the end of a comment", file("*/"), "script-syntax"],
  ["a comment that is not closed", file("/*"), "script-syntax"],
  ["a template that is not closed", file("`"), "script-syntax"],
  ["an HTML comment", file("<!-- x"), "script-syntax"],
  ["the end of an HTML comment", file("--> x"), "script-syntax"],
  ["an HTML comment inside an expression", file("let x = 1, y = 2; x<!--y;"), "script-syntax"],
  ["line separators around brackets", file("const a = 1\u2028}\u2029); evil(); ({"), "script-syntax"],
  ["a hashbang on line 2", file("#!/x"), "script-syntax"],
  ["return", file("return 1;"), "script-syntax"],
  ["new.target", file("new.target;"), "script-syntax"],
  ["super", file("super.x;"), "script-syntax"],
  ["yield", file("yield 1;"), "script-syntax"],
  ["with", file("with ({}) {}"), "script-syntax"],
  ["an old octal number", file("010;"), "script-syntax"],
  ["import.meta", file("import.meta.url;"), "import-meta"],
  ["await", file("await 1;"), "top-level-await"],
  ["for await", file("for await (const x of []) ;"), "top-level-await"],
  ["import()", file("import('fs');"), "dynamic-import"],
  ["import() inside a function", file("const f = () => import('fs');"), "dynamic-import"],
  ["import() written with an escape", file("\\u0069mport('fs');"), "script-syntax"],
  ["another module", `import fs from "fs"; ${file("")}`, "foreign-import"],
  ["another module passed on", `export * from "node:fs"; ${file("")}`, "foreign-import"],
  ["a name that may not be bound", `import { workflow as eval } from "pawl"; ${file("")}`, "script-syntax"],
  ["a NUL", file("\0"), "script-encoding"],
  ["half a character", file("'\ud800'"), "script-encoding"],
  ["nothing but space", " \n\t", "script-empty"],
  ["more than a megabyte", `//${"x".repeat(1_100_000)}`, "script-too-large"],
  [
    "two hundred thousand parentheses",
    `export default ${"(".repeat(200_000)}1${")".repeat(200_000)}`,
    "script-too-deep",
  ],
  [
    "a hundred thousand brackets",
    `export default ${"[".repeat(100_000)}${"]".repeat(100_000)}`,
    "script-too-deep",
  ],
  [
    "a hundred thousand blocks",
    `${"{".repeat(100_000)}${"}".repeat(100_000)}export default 1`,
    "script-too-deep",
  ],
  [
    "fifty thousand templates",
    `export default ${"`${".repeat(50_000)}1${"}`".repeat(50_000)}`,
    "script-too-deep",
  ],
  ["three hundred thousand members", `export default a${".b".repeat(300_000)}`, "script-too-deep"],
  ["three hundred thousand sums", `export default 1${"+1".repeat(300_000)}`, "script-too-deep"],
  ["two hundred thousand arrows", `export default ${"a=>".repeat(200_000)}1`, "script-too-deep"],
  [
    "a hundred thousand type brackets",
    `type A = ${"[".repeat(100_000)}${"]".repeat(100_000)}; export default 1`,
    "script-too-deep",
  ],
];

/** Each needs the whole time that reading a file may take. */
const SLOW: Case[] = [
  [
    "a built-in that cannot be interrupted",
    file("Array.prototype.indexOf.call({ length: 2 ** 53 - 1 }, 1);"),
    "script-too-deep",
  ],
  ["one array filled to the brim", file("new Array(100_000_000).fill(0);"), "script-too-deep"],
  ["eighty thousand branches", `${"if(1){}else ".repeat(80_000)};export default 1`, "script-too-deep"],
  [
    "paths of positions that multiply",
    file("", `, topics: { ${"k".repeat(200_000)}: { ${"l".repeat(200_000)}: [${"0,".repeat(100_000)}] } }`),
    "script-too-deep",
  ],
];

/** Looks hostile, and is a workflow all the same. */
const HARMLESS: [what: string, source: string][] = [
  ["an HTML comment in a text", file('const html = "<!-- hello -->";')],
  ["a line separator in a text", file('const s = "a\u2028b";')],
  ["a hashbang on line 1", `#!/usr/bin/env node\n${file("")}`],
  ["a byte order mark", `\ufeff${file("")}`],
  ["the wrapper's arguments called", file("arguments[1]({ pawl: 'workflow', name: 'other' });")],
  ["names of the wrapper declared", file("var __pawl = 1, __export = 2;")],
  ["a name of the wrapper imported", `import { workflow as __export } from "pawl"; ${file("")}`],
  [
    "an import between two lines that could grow together",
    file("").replace(
      'import { workflow, producer } from "pawl";',
      'var a = Number\nimport { workflow, producer } from "pawl"\n(a)',
    ),
  ],
  ["a comment that renames the file", file("//# sourceURL=/etc/passwd\n//# sourceMappingURL=data:,x")],
  [
    "topics named like methods",
    file("", ", topics: { constructor: { pawl: 'topic' }, toString: { pawl: 'topic' } }"),
  ],
  ["aliases named like methods", file("", ", connections: { then: 'http', constructor: 'http' }")],
  ["topics from a literal prototype", file("", ", topics: { __proto__: { a: 1 } }")],
  ["JSON replaced by something else", file("JSON.stringify = () => '{';")],
  ["JSON replaced by nothing", file("JSON.stringify = () => undefined;")],
  ["Object.keys that never returns", file("Object.keys = () => { for (;;); };")],
  ["a toJSON for every object", file("Object.prototype.toJSON = () => 1;")],
  [
    "built-ins replaced while loading",
    file("Array.prototype.map = function () { return this; }; Number.isFinite = () => true;"),
  ],
];

describe("hostile uploads", () => {
  const cases = [...LOADING, ...DECLARATIONS, ...SYNTAX, ...(PROOF ? SLOW : SLOW.slice(0, 1))];

  it.each(cases)("%s", async (_, source, code) => {
    const { made, gapMs, tookMs } = await watched(source);
    const first = made.problems.find((one) => one.severity === "error");
    expect(made.ok).toBe(false);
    expect([code].flat()).toContain(first?.code);
    expect(made.problems.length).toBeLessThanOrEqual(100);
    const lines = source.split(/\r\n|[\n\r\u2028\u2029]/);
    for (const { location, hint, message, code: each } of made.problems) {
      expect(location.line).toBeGreaterThanOrEqual(1);
      expect(location.line).toBeLessThanOrEqual(lines.length);
      expect(location.column).toBeGreaterThanOrEqual(1);
      expect(hint).not.toBe("");
      expect(Object.keys(ERRORS)).toContain(each);
      expect(message).not.toMatch(/node_modules|node:internal|isolated-vm|acorn|pawl-script/);
      expect(message).not.toContain(process.cwd());
    }
    expect(gapMs).toBeLessThanOrEqual(GAP_MS);
    expect(tookMs).toBeLessThanOrEqual(DEADLINE_MS);
  });

  it.each(HARMLESS)("%s is no harm", async (_, source) => {
    const { made } = await watched(source);
    expect(made.problems.filter((one) => one.severity === "error")).toEqual([]);
    expect(made).toMatchObject({ ok: true, script: { workflow: "x", manifest: { producers: { p: {} } } } });
  });

  it("a hundred warnings are enough", async () => {
    const { made } = await watched(file(`let x = 0; const f = () => { ${"x=1;".repeat(30_000)} };`));
    expect(made).toMatchObject({ ok: true });
    expect(made.problems.length).toBe(100);
  });

  it("ten hostile uploads at once leave the next one alone", async () => {
    const many = Array.from({ length: 10 }, (_, i) => compile(LOADING[i]?.[1] ?? ""));
    const good = await compile(file(""));
    expect(good.ok).toBe(true);
    expect((await Promise.all(many)).map((made) => made.ok)).not.toContain(true);
  });
});

describe("a hostile source map", () => {
  const map = (mappings: string, sources = ["a.ts"]) =>
    JSON.stringify({ version: 3, sources, names: [], mappings });

  it.each([
    ["that points before the file", map(`${";AADD".repeat(9)}`)],
    ["that is no JSON", "{"],
    ["that is null", "null"],
    ["whose mappings are no text", '{"version":3,"sources":[],"names":[],"mappings":5}'],
    ["without sources", map(";;AAAA", [])],
    [
      "nested in itself",
      `${'{"version":3,"sections":[{"offset":{"line":0,"column":0},"map":'.repeat(2_000)}null${"}]}".repeat(2_000)}`,
    ],
  ])("%s leaves the error where it was", async (_, sourceMap) => {
    await using pool = openPool({ maxChildren: 1 });
    const script = await compiled(file("").replace("() => {}", "() => { throw new Error('mine'); }"), {
      sourceMap,
    });
    const result = await pool.run(callFor(script, "producer", "p"), noAnswers);
    expect(result).toMatchObject({
      status: "failed",
      error: { code: "handler-throws", message: "Error: mine" },
    });
  });

  it("is refused when it is too large", async () => {
    const made = await compileScript({
      source: file(""),
      language: "ts",
      file: "x.ts",
      nowMs: NOW_MS,
      sourceMap: " ".repeat(9_000_000),
    });
    expect(made.problems.map((one) => one.code)).toEqual(["script-too-large"]);
  });
});

function compile(source: string): Promise<Compilation> {
  return compileScript({ source, language: "ts", file: "hostile.ts", nowMs: NOW_MS });
}

async function watched(source: string): Promise<{ made: Compilation; gapMs: number; tookMs: number }> {
  const startedMs = performance.now();
  let last = startedMs;
  let gapMs = 0;
  const beat = () => {
    const now = performance.now();
    gapMs = Math.max(gapMs, now - last);
    last = now;
  };
  const timer = setInterval(beat, 10);
  const made = await compile(source);
  beat();
  clearInterval(timer);
  return { made, gapMs, tookMs: performance.now() - startedMs };
}
