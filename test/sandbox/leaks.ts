/**
 * Attempts to carry something from one run to the next run of the same script. Each looks first and leaves its mark
 * afterwards; what a run sees goes out as a log line before the mark is tried, so that a refusal cannot hide it. A leak
 * is a later run that shows the host anything the first did not.
 */
export interface Attempt {
  name: string;
  /** Code outside the handlers. */
  top?: string;
  /** An expression: what this run sees. */
  see: string;
  /** Statements that try to leave something behind. */
  leave: string;
}

const attempt = (name: string, see: string, leave: string, top?: string): Attempt =>
  top === undefined ? { name, see, leave } : { name, see, leave, top };

/** A property put on an object that the realm owns; the object is given by an expression. */
const marked = (name: string, object: string): Attempt =>
  attempt(`a property on ${name}`, `String(${object}.mark)`, `${object}.mark = "left";`);

/** The same on an object that is frozen everywhere, so that even the fresh scope refuses. */
const markedQuietly = (name: string, object: string): Attempt =>
  attempt(`a property on ${name}`, `String(${object}.mark)`, `try { ${object}.mark = "left"; } catch {}`);

const onTheGlobal: Attempt[] = [
  marked("the global", "globalThis"),
  attempt(
    "a global under a registered symbol",
    `String(globalThis[Symbol.for("mark")])`,
    `globalThis[Symbol.for("mark")] = 1;`,
  ),
  attempt(
    "a permanent global",
    "typeof globalThis.kept",
    `Object.defineProperty(globalThis, "kept", { value: 1, configurable: false });`,
  ),
  attempt(
    "a global accessor over a closure",
    "String(globalThis.counter)",
    `let n = 0; Object.defineProperty(globalThis, "counter", { get: () => ++n, configurable: true });`,
  ),
  attempt("a deleted global", `"escape" in globalThis`, "delete globalThis.escape;"),
  attempt(
    "a replaced constructor",
    "new Map().constructor === Map && Map.name",
    "globalThis.Map = class Marked extends Map {};",
  ),
  attempt(
    "a global wrapped in a Proxy",
    "JSON.stringify(Math.max(1, 2))",
    "globalThis.Math = new Proxy(Math, { get: () => () => 99 });",
  ),
  attempt(
    "the prototype of the global",
    "String(globalThis.inherited)",
    `Object.setPrototypeOf(globalThis, Object.create(Object.getPrototypeOf(globalThis), { inherited: { value: 1 } }));`,
  ),
  marked("the global's own prototype", "Object.getPrototypeOf(globalThis)"),
  marked("the constructor behind the global", "Object.getPrototypeOf(globalThis).constructor"),
  attempt(
    "the extensibility of the global",
    "Object.isExtensible(globalThis)",
    "Object.preventExtensions(globalThis);",
  ),
  attempt("a frozen global", "Object.isFrozen(globalThis)", "Object.freeze(globalThis);"),
  attempt(
    "a replaced lazy global",
    "typeof atob",
    `Object.defineProperty(globalThis, "atob", { value: "left", configurable: true });`,
  ),
  attempt("an assigned lazy global", "typeof btoa", `globalThis.btoa = "left";`),
];

const onPrototypes: Attempt[] = [
  ...[
    "Object",
    "Function",
    "Array",
    "String",
    "Number",
    "Boolean",
    "Symbol",
    "BigInt",
    "Promise",
    "RegExp",
    "Date",
    "Map",
    "WeakMap",
    "ArrayBuffer",
    "DataView",
    "Iterator",
    "DisposableStack",
  ].map((name) => marked(`${name}.prototype`, `${name}.prototype`)),
  attempt(
    "a replaced method",
    "[1, 2].map(String).join()",
    `Array.prototype.map = function () { return ["left"]; };`,
  ),
  attempt("a deleted method", "typeof [].findLast", "delete Array.prototype.findLast;"),
  attempt("elements of Array.prototype", "String([][0])", `Array.prototype.push("left");`),
  attempt(
    "a setter for an index",
    `Object.hasOwn(Object.prototype, "7")`,
    `Object.defineProperty(Object.prototype, "7", { set() {}, get: () => "left", configurable: true });`,
  ),
  attempt(
    "an old-style getter",
    "String({}.left)",
    `({}).__defineGetter__.call(Object.prototype, "left", () => 1);`,
  ),
  attempt(
    "a quiet Reflect.defineProperty",
    "String({}.quiet)",
    `Reflect.defineProperty(Object.prototype, "quiet", { value: 1, configurable: true });`,
  ),
  attempt(
    "a quiet Reflect.set with a receiver",
    "String([].quiet)",
    `Reflect.set({}, "quiet", 1, Array.prototype);`,
  ),
  attempt(
    "Object.assign over a prototype",
    "String(new Set().assigned)",
    "Object.assign(Set.prototype, { assigned: 1 });",
  ),
  attempt(
    "the prototype of a prototype, through __proto__",
    "String([].below)",
    "Array.prototype.__proto__ = { below: 1 };",
  ),
  attempt("the prototype of a namespace", "String(Math.below)", "Object.setPrototypeOf(Math, { below: 1 });"),
  attempt("a frozen prototype", "Object.isFrozen(Map.prototype)", "Object.freeze(Map.prototype);"),
  attempt("a sealed constructor", "Object.isSealed(Promise)", "Object.seal(Promise);"),
  attempt(
    "an overridden name on a prototype that allows overriding",
    "Error.prototype.name",
    `Error.prototype.name = "Left";`,
  ),
  attempt(
    "a setter lent to another built-in",
    "String(Array.prototype.isPrototypeOf === Object.prototype.isPrototypeOf)",
    `const { set } = Object.getOwnPropertyDescriptor(Object.prototype, "isPrototypeOf");
     if (set) set.call(Array.prototype, 1); else Array.prototype.isPrototypeOf = 1;`,
  ),
  attempt("toString of all functions", "`${parseInt}`.length", `Function.prototype.toString = () => "left";`),
];

const thrower = `Object.getOwnPropertyDescriptor((function () { return arguments; })(), "callee").get`;

const reachedBySyntax: Attempt[] = [
  marked("async functions' prototype", "Object.getPrototypeOf(async () => {})"),
  marked("generator functions' prototype", "Object.getPrototypeOf(function* () {})"),
  marked("generators' prototype", "Object.getPrototypeOf(Object.getPrototypeOf((function* () {})()))"),
  marked("async generators' prototype", "Object.getPrototypeOf(async function* () {}).prototype"),
  marked(
    "async iterators' prototype",
    "Object.getPrototypeOf(Object.getPrototypeOf(async function* () {}).prototype)",
  ),
  marked("array iterators' prototype", "Object.getPrototypeOf([][Symbol.iterator]())"),
  marked("map iterators' prototype", "Object.getPrototypeOf(new Map().keys())"),
  marked("string iterators' prototype", `Object.getPrototypeOf(""[Symbol.iterator]())`),
  marked("matchAll's iterators", `Object.getPrototypeOf("a".matchAll(/a/g))`),
  marked("iterator helpers", "Object.getPrototypeOf([].values().map((x) => x))"),
  marked("wrapped iterators", "Object.getPrototypeOf(Iterator.from({ next: () => ({ done: true }) }))"),
  marked("segments", `Object.getPrototypeOf(new Intl.Segmenter().segment("a"))`),
  marked("segment iterators", `Object.getPrototypeOf(new Intl.Segmenter().segment("a")[Symbol.iterator]())`),
  marked("typed arrays' shared prototype", "Object.getPrototypeOf(Uint8Array.prototype)"),
  markedQuietly("the thrower of arguments.callee", thrower),
  attempt(
    "a next() of array iterators",
    "[...[1, 2]].length",
    "Object.getPrototypeOf([].values()).next = () => ({ done: true });",
  ),
  attempt(
    "a template literal's object",
    "same(site().mark)",
    "try { site().mark = 1; } catch {} try { site().raw.push(1); } catch {}",
    "const site = () => ((strings) => strings)`a${1}b`; const same = (x) => String(x);",
  ),
  attempt(
    "a private field stamped on a built-in",
    "stamped()",
    "try { new Stamp(Object.prototype); } catch {}",
    `const Same = function (object) { return object; };
     class Stamp extends Same { #mark = 1; static has(object) { return #mark in object; } }
     const stamped = () => { try { return String(Stamp.has(Object.prototype)); } catch (error) { return error.message; } };`,
  ),
];

const inBuiltIns: Attempt[] = [
  marked("JSON", "JSON"),
  marked("Reflect", "Reflect"),
  marked("Intl", "Intl"),
  marked("console", "console"),
  marked("crypto.subtle", "crypto.subtle"),
  marked("a built-in method", "Array.prototype.map"),
  marked("Symbol.unscopables of arrays", "Array.prototype[Symbol.unscopables]"),
  marked("Intl.NumberFormat.prototype", "Intl.NumberFormat.prototype"),
  marked("URL.prototype", "URL.prototype"),
  marked("the class of searchParams", `new URL("https://a.example/?b").searchParams.constructor`),
  marked(
    "the prototype of searchParams",
    `Object.getPrototypeOf(new URL("https://a.example/").searchParams)`,
  ),
  marked(
    "the iterator prototype of searchParams",
    `Object.getPrototypeOf(new URL("https://a.example/").searchParams.entries())`,
  ),
  marked("TextDecoder.prototype", "TextDecoder.prototype"),
  marked("what TextEncoder makes", `Object.getPrototypeOf(new TextEncoder().encode("a"))`),
  marked(
    "the promise of a digest",
    `Object.getPrototypeOf(crypto.subtle.digest("SHA-256", new Uint8Array()))`,
  ),
  marked("what a formatter's getter gives", "Object.getPrototypeOf(new Intl.DateTimeFormat().format)"),
  marked(
    "the getter of format",
    `Object.getOwnPropertyDescriptor(Intl.DateTimeFormat.prototype, "format").get`,
  ),
  attempt(
    "a function's name",
    "parseFloat.name",
    `Object.defineProperty(parseFloat, "name", { value: "left", configurable: true });`,
  ),
  attempt("a patched Date.now", "Date.now() % 2", "Date.now = () => 1;"),
  attempt("a patched Math.random", "Math.random() < 2", "Math.random = () => 3;"),
  attempt("a patched stringify", "JSON.stringify([1])", `JSON.stringify = () => "left";`),
  attempt("a patched console", "typeof console.info", `console.info = "left";`),
  attempt("a patched randomUUID", "crypto.randomUUID().length", `crypto.randomUUID = () => "left";`),
  attempt("the place in the stream of chance", "Math.random()", "Math.random();"),
  attempt(
    "the place in the stream of bytes",
    "crypto.randomUUID()",
    "crypto.getRandomValues(new Uint8Array(9));",
  ),
  attempt(
    "a regular expression's statics",
    "[RegExp.$1, RegExp.lastMatch, RegExp.input, RegExp['$`']].map(String).join()",
    "/(l)eft/.exec('so left');",
  ),
  attempt(
    "a literal's lastIndex",
    "String(pattern().lastIndex)",
    `pattern().test("aaa"); pattern().lastIndex = 2;`,
    "const pattern = () => /a/g;",
  ),
  attempt(
    "the species of arrays",
    `Object.getOwnPropertyDescriptor(Array, Symbol.species).get.name`,
    "Object.defineProperty(Array, Symbol.species, { get: function left() { return Array; } });",
  ),
  attempt(
    "the species of typed arrays",
    `Object.getOwnPropertyDescriptor(Object.getPrototypeOf(Int8Array), Symbol.species).get.name`,
    `Object.defineProperty(Object.getPrototypeOf(Int8Array), Symbol.species, { get: function left() { return Int8Array; } });`,
  ),
  attempt(
    "the constructor of arrays",
    "[].constructor.name",
    "Array.prototype.constructor = class Left extends Array {};",
  ),
  attempt(
    "Symbol.toPrimitive of dates",
    "String(new Date(0)).length",
    `Object.defineProperty(Date.prototype, Symbol.toPrimitive, { value: () => "left" });`,
  ),
  attempt(
    "an iterator on numbers",
    "typeof (5)[Symbol.iterator]",
    "Number.prototype[Symbol.iterator] = function* () {};",
  ),
  attempt(
    "an isConcatSpreadable of objects",
    "String({}[Symbol.isConcatSpreadable])",
    "Object.prototype[Symbol.isConcatSpreadable] = true;",
  ),
  attempt(
    "the registry of symbols",
    `typeof Symbol.for("left").mark + Symbol.keyFor(Symbol.for("left"))`,
    `try { Symbol.for("left").mark = 1; } catch {}`,
  ),
  attempt(
    "a symbol from the registry as a weak key",
    `(() => { try { return String(weak.get(Symbol.for("weak"))); } catch { return "refused"; } })()`,
    `try { weak.set(Symbol.for("weak"), 1); } catch {}`,
    "const weak = new WeakMap();",
  ),
  attempt(
    "the built-in as a weak key",
    "String(cache.get(Object))",
    "cache.set(Object, 1);",
    "const cache = new WeakMap();",
  ),
];

const inErrors: Attempt[] = [
  attempt(
    "prepareStackTrace",
    "typeof new Error().stack",
    "Error.prepareStackTrace = (error, sites) => sites.length;",
  ),
  attempt("stackTraceLimit", "String(Error.stackTraceLimit)", "Error.stackTraceLimit = 3;"),
  attempt("captureStackTrace", "typeof Error.captureStackTrace", "Error.captureStackTrace = 1;"),
  attempt(
    "the prototype of call sites",
    "String(sites()?.mark)",
    "const found = sites(); if (found) found.mark = 1;",
    `const sites = () => {
       try { Error.prepareStackTrace = (_, list) => list; } catch { return undefined; }
       const [first] = new Error().stack;
       delete Error.prepareStackTrace;
       return Object.getPrototypeOf(first);
     };`,
  ),
  attempt(
    "the accessors of a stack",
    `String(Object.getOwnPropertyDescriptor(new Error(), "stack")?.get?.mark)`,
    `const own = Object.getOwnPropertyDescriptor(new Error(), "stack");
     if (own.get) own.get.mark = 1; else globalThis.stackIsData = 1;`,
  ),
  attempt("TypeError's message", "new TypeError().message", `TypeError.prototype.message = "left";`),
  marked("AggregateError.prototype", "AggregateError.prototype"),
  marked(
    "the error of a stack overflow",
    "(() => { const deep = () => deep() + 1; try { return deep(); } catch (error) { return error.constructor; } })()",
  ),
  marked(
    "the error of a URL that cannot be read",
    `(() => { try { return new URL("no"); } catch (error) { return Object.getPrototypeOf(error); } })()`,
  ),
];

const inWhatTheHostGives: Attempt[] = [
  marked("ctx", "ctx"),
  marked("ctx.log", "ctx.log"),
  marked("ctx.log.info", "ctx.log.info"),
  marked("ctx.run", "ctx.run"),
  marked("ctx.params", "ctx.params"),
  marked("a connector", "ctx.shop"),
  marked("a connector's tool", "ctx.shop.get"),
  marked("the prototype of a connector's tool", "Object.getPrototypeOf(ctx.shop.get)"),
  marked("the prototype of ctx", "Object.getPrototypeOf(ctx)"),
  marked("the constructor of ctx.peek", "ctx.peek.constructor"),
  marked("a handed-over state", "state"),
  marked("a handed-over list", "state.list"),
  attempt("an order in the state", "state.list.join()", "state.list.reverse();"),
  attempt("a number in the params", "ctx.params.n", "ctx.params.n += 1;"),
  markedQuietly("the module pawl", "pawl"),
  markedQuietly("workflow()", "workflow"),
  attempt("a replaced ctx.publish", "typeof ctx.publish", "ctx.publish = 1;"),
  marked("an answer's prototype", `Object.getPrototypeOf(await ctx.shop.get("/"))`),
  attempt(
    "an answer kept for the next run",
    `typeof globalThis.answer`,
    `globalThis.answer = await ctx.shop.get("/");`,
  ),
];

const inTheModule: Attempt[] = [
  attempt("a module variable", "count", "count++;", "let count = 0;"),
  attempt("a closure", "next()", "next();", "const next = ((n) => () => n++)(0);"),
  attempt("a class's static field", "Held.n", "Held.n = 7;", "class Held { static n = 0; }"),
  attempt(
    "a private static field",
    "Sealed.bump()",
    "Sealed.bump();",
    "class Sealed { static #n = 0; static bump() { return Sealed.#n++; } }",
  ),
  attempt("a memo in a Map", "memo.size", "memo.set(1, 1);", "const memo = new Map();"),
  attempt(
    "a generator at rest",
    "ids.next().value",
    "ids.next();",
    "const ids = (function* () { for (let i = 0; ; i++) yield i; })();",
  ),
  attempt(
    "a property of the script's own function",
    "String(own.mark)",
    "own.mark = 1;",
    "function own() {}",
  ),
  attempt("bytes in a buffer", "bytes[0]", "bytes[0] = 9;", "const bytes = new Uint8Array(4);"),
  attempt(
    "a detached buffer",
    "String(spent.byteLength)",
    "spent.transfer();",
    "const spent = new ArrayBuffer(8);",
  ),
  attempt("a variable of a sticky pattern", "sticky.lastIndex", `sticky.test("aa");`, "const sticky = /a/y;"),
  attempt(
    "a settled promise",
    "String(box.value)",
    "box.value = await Promise.resolve(1);",
    "const box = {};",
  ),
];

const late: Attempt[] = [
  attempt(
    "a microtask after the end",
    "String(globalThis.late)",
    "let p = Promise.resolve(); for (let i = 0; i < 50; i++) p = p.then(() => {}); p.then(() => { globalThis.late = 1; }).catch(() => {});",
  ),
  attempt(
    "an answer that comes after the end",
    "String(globalThis.lateAnswer)",
    `ctx.shop.get("/slow").then(() => { globalThis.lateAnswer = 1; }, () => {}); globalThis.lateAnswer ??= undefined;`,
  ),
  attempt(
    "a log line after the end",
    `"quiet"`,
    `ctx.shop.get("/slow").then(() => { console.log("late"); ctx.log.info("late"); });`,
  ),
  attempt(
    "a ctx kept for later",
    `globalThis.oldCtx ? (() => { try { globalThis.oldCtx.publish("t", { messageId: "x", payload: 1 }); return "published"; } catch (error) { return error.message; } })() : "none"`,
    "globalThis.oldCtx = ctx;",
  ),
  attempt(
    "an async function asleep",
    "String(globalThis.awake)",
    `(async () => { await ctx.shop.get("/slow"); globalThis.awake = 1; })().catch(() => {}); globalThis.awake ??= undefined;`,
  ),
  attempt(
    "host functions called at the edge of the stack",
    "[Math.random(), Date.now(), new URL('https://a.example/b').pathname]",
    `const deep = () => { try { deep(); } catch {} crypto.randomUUID(); };
     try { deep(); } catch {}
     const deeper = () => { try { deeper(); } catch {} new URL("https://a.example/c").searchParams.append("d", "e"); };
     try { deeper(); } catch {}`,
  ),
  attempt(
    "a late rejection",
    "String(globalThis.rejected)",
    `Promise.reject(new Error("left")).finally(() => { globalThis.rejected = 1; }).catch(() => {});`,
  ),
];

export const ATTEMPTS: readonly Attempt[] = [
  ...onTheGlobal,
  ...onPrototypes,
  ...reachedBySyntax,
  ...inBuiltIns,
  ...inErrors,
  ...inWhatTheHostGives,
  ...inTheModule,
  ...late,
];

/** One script with a producer per attempt: `a0`, `a1`, … */
export function leakScript(attempts: readonly Attempt[]): string {
  const producers = attempts.map(
    ({ see, leave, top }, i) => `a${i}: (() => {
  ${top ?? ""}
  return producer({ schedule: { interval: "1h" }, publishes: [], async handler(ctx, state) {
    ctx.log.info("sees", ${see});
    ${leave}
    return 1;
  } });
})(),`,
  );
  return `import * as pawl from "pawl";
import { workflow, producer } from "pawl";
export default workflow({
  name: "leaks",
  connections: { shop: "http" },
  topics: {},
  params: { n: { type: "number", default: 1 } },
  producers: {
${producers.join("\n")}
  },
});
`;
}
