/**
 * Hostile scripts, each with the one outcome that is right for it. Every body runs in all four handler positions, as
 * `async (ctx, phase) => { body }`; `say(text)` writes a log line and is the only way a finding gets out of `mutate`,
 * whose return value means nothing.
 */
import type { ErrorClass, ErrorCode } from "../../host/core/errors.ts";
import type { Limits, Scope } from "../../host/ports/sandbox.ts";

export const POSITIONS = ["producer", "prepare", "mutate", "next"] as const;
export type Position = (typeof POSITIONS)[number];

export interface FailedOutcome {
  code: ErrorCode;
  class?: ErrorClass;
  /** Part of the message the author reads. */
  message?: string;
}

export interface DoneOutcome {
  /** Exactly these log lines. */
  says: string[];
  /** The state (producer, next) or the whole prepare result, as JSON text. Absent: none in the first two, `{}`. */
  json?: string;
  publishes?: number;
}

export type Outcome = FailedOutcome | DoneOutcome;

export interface Attack {
  name: string;
  group: "time" | "memory" | "boundary" | "authority" | "phase";
  body: string;
  outcome: Outcome | Record<Position, Outcome>;
  limits?: Partial<Limits>;
  scope?: Scope;
  /** When the run must be over, not counting the 500 ms; the section limit unless stated. */
  deadlineMs?: number;
  /** Takes long on purpose: a normal test run tries it in one position only, another for each script. */
  costly?: true;
}

const failed = (code: ErrorCode, message?: string): FailedOutcome =>
  message === undefined ? { code } : { code, message };
const done = (...says: string[]): DoneOutcome => ({ says });
const returned = (json: string, ...says: string[]): DoneOutcome => ({ says, json });

/** Everything `mutate` returns is dropped unread, so what is wrong with a result cannot be wrong there. */
const inResult = (outcome: Outcome): Record<Position, Outcome> => ({
  producer: outcome,
  prepare: outcome,
  mutate: done(),
  next: outcome,
});
/** Reading the outside is for producers and prepare. */
const inReads = (outcome: Outcome): Record<Position, Outcome> => ({
  producer: outcome,
  prepare: outcome,
  mutate: failed("phase-violation"),
  next: failed("phase-violation"),
});
/** Publishing is for producers and next. */
const inPublishes = (outcome: Outcome): Record<Position, Outcome> => ({
  producer: outcome,
  prepare: failed("phase-violation"),
  mutate: failed("phase-violation"),
  next: outcome,
});

const time = (
  name: string,
  body: string,
  outcome: Attack["outcome"],
  more: Partial<Attack> = {},
): Attack => ({
  name,
  group: "time",
  body,
  outcome,
  costly: true,
  ...more,
});
const memory = (
  name: string,
  body: string,
  outcome: Attack["outcome"],
  more: Partial<Attack> = {},
): Attack => ({
  name,
  group: "memory",
  body,
  outcome,
  costly: true,
  limits: { sectionMs: 3_000, cpuMs: 3_000, wallMs: 6_000, memoryMb: 24 },
  ...more,
});
const boundary = (
  name: string,
  body: string,
  outcome: Attack["outcome"],
  more: Partial<Attack> = {},
): Attack => ({ name, group: "boundary", body, outcome, ...more });
const authority = (
  name: string,
  body: string,
  outcome: Attack["outcome"],
  more: Partial<Attack> = {},
): Attack => ({ name, group: "authority", body, outcome, ...more });
const phase = (
  name: string,
  body: string,
  outcome: Attack["outcome"],
  more: Partial<Attack> = {},
): Attack => ({
  name,
  group: "phase",
  body,
  outcome,
  ...more,
});

const CPU = failed("cpu-limit");
const MEMORY = failed("memory-limit");
const SLOW = { sectionMs: 3_000, cpuMs: 3_000, wallMs: 6_000 };

const TIME: Attack[] = [
  time("endless loop", "for (;;);", CPU),
  time("endless loop after an await", "await null; for (;;);", CPU),
  time(
    "endless loop that catches everything",
    "for (;;) try { for (;;) ; } catch {} finally { continue; }",
    CPU,
  ),
  time("endless finally", "try { throw 1; } finally { for (;;); }", CPU),
  time("endless generator", "for (const _ of (function* () { for (;;) yield 1; })());", CPU),
  time(
    "endless async generator",
    "for await (const _ of (async function* () { for (;;) yield 1; })());",
    CPU,
  ),
  time(
    "microtask loop",
    "const again = () => { Promise.resolve().then(again); }; again(); await new Promise(() => {});",
    CPU,
  ),
  time("promise storm", "for (;;) Promise.resolve().then(() => {});", CPU),
  time(
    "async functions that call each other for ever",
    "const a = async () => { await null; b(); }; const b = async () => { await null; a(); }; a(); await new Promise(() => {});",
    CPU,
  ),
  time("a promise that never settles", "await new Promise(() => {});", failed("never-settles")),
  time("a race nobody wins", "await Promise.race([]);", failed("never-settles")),
  time("a thenable that never calls back", "return { then() {} };", failed("never-settles")),
  time("a thenable that loops", "return { then() { for (;;); } };", CPU),
  time("a thenable that resolves to itself for ever", "const t = { then(ok) { ok(t); } }; return t;", CPU),
  time(
    "a thenable that settles twice",
    "return { then(ok, no) { ok({ data: 1 }); ok({ data: 2 }); no(new Error('x')); } };",
    {
      producer: returned('{"data":1}'),
      prepare: returned('{"data":1}'),
      mutate: done(),
      next: returned('{"data":1}'),
    },
  ),
  time("regular expression backtracking", 'return { data: /^(a+)+$/.test("a".repeat(60) + "!") };', CPU),
  time(
    "regular expression with lookbehind backtracking",
    'return { data: /(?<=b(a+)+)c/.test("a".repeat(60) + "c") };',
    CPU,
  ),
  time(
    "regular expression in replace",
    'return { data: "a".repeat(5000).replace(/(.*a){12}b$/, "").length };',
    CPU,
  ),
  time("a comparator that never answers", "[3, 2, 1].sort(() => { for (;;); });", CPU),
  time(
    "recursion without end",
    "const f = () => 1 + f(); f();",
    failed("handler-throws", "Maximum call stack size exceeded"),
  ),
  time(
    "recursion that grows like a tree",
    "const f = () => { try { f(); } catch {} try { f(); } catch {} }; f();",
    CPU,
  ),
  time(
    "search through an array of 2^53 holes",
    "Array.prototype.indexOf.call({ length: 2 ** 53 - 1 }, 1);",
    CPU,
  ),
  time("turning round a sparse array", "const a = []; a.length = 2 ** 32 - 1; a[5] = 1; a.reverse();", CPU),
  time("big integers that never end", "let x = 3n ** 4_000_000n; for (;;) x = (x * x) >> 6_000_000n;", CPU),
  time("printing a giant integer", "return { data: String(7n ** 9_000_000n).length };", CPU),
  time(
    "host names with a million letters",
    'for (;;) try { new URL("http://" + "\\u00fc".repeat(300_000)); } catch {}',
    CPU,
  ),
  time(
    "paths with a million dots",
    'for (;;) new URL("../".repeat(300_000), "http://x/" + "a/".repeat(300_000));',
    CPU,
  ),
  time(
    "digests of megabytes",
    'const b = new Uint8Array(8_000_000); for (;;) await crypto.subtle.digest("SHA-512", b);',
    CPU,
  ),
  time("a getter that never returns", "return { get data() { for (;;); } };", inResult(CPU)),
  time("a proxy whose keys never end", "return new Proxy({}, { ownKeys() { for (;;); } });", inResult(CPU)),
  time("a thrown value whose message never ends", "throw { get message() { for (;;); } };", CPU),
  time("a log line whose text never ends", "ctx.log.info({ toJSON() { for (;;); } });", CPU),
  time(
    "work left behind after the result",
    "Promise.resolve().then(() => Promise.resolve().then(() => { for (;;); })); return {};",
    CPU,
  ),
  time(
    "a host that never answers",
    'await ctx.web.get("/silent");',
    inReads({ code: "wall-limit", class: "transient" }),
    {
      limits: { wallMs: 300 },
      deadlineMs: 300,
    },
  ),
  time(
    "host calls in a storm",
    'const all = []; for (let i = 0; i < 5_000; i++) all.push(ctx.web.get("/" + i)); await Promise.all(all);',
    inReads(failed("host-call-limit")),
  ),
  time(
    "host calls one after the other for ever",
    'for (;;) await ctx.web.get("/");',
    inReads(failed("host-call-limit")),
    {
      limits: { hostCalls: 200, ...SLOW },
      deadlineMs: 3_000,
    },
  ),
  time(
    "processor time taken in slices",
    'for (;;) { await ctx.web.get("/"); for (let i = 0; i < 200_000; i++) Math.sqrt(i); }',
    inReads(CPU),
    {
      limits: { sectionMs: 150, cpuMs: 250, wallMs: 6_000 },
      deadlineMs: 3_000,
    },
  ),
];

const MEMORY_BOMBS: Attack[] = [
  memory("arrays without end", "const a = []; for (;;) a.push(new Array(1_000).fill(1.5));", MEMORY),
  memory("objects without end", "let o = null; for (;;) o = { o, a: 1, b: 2 };", MEMORY),
  memory("one array filled to the brim", "new Array(100_000_000).fill(0);", MEMORY),
  memory(
    "one array grown by its length",
    "const a = [1]; for (;;) { a.push(...a.slice(0, 10_000)); }",
    MEMORY,
  ),
  memory(
    "byte buffers without end",
    "const a = []; for (;;) a.push(new Uint8Array(1 << 20).fill(1));",
    failed("handler-throws", "Array buffer allocation failed"),
  ),
  memory(
    "byte buffers, every refusal caught",
    "const a = []; for (;;) try { a.push(new Uint8Array(1 << 20).fill(1)); } catch { a.push(new Array(10_000).fill(1.5)); }",
    MEMORY,
  ),
  memory(
    "one buffer of two gigabytes",
    "new ArrayBuffer(2 ** 31);",
    failed("handler-throws", "Array buffer allocation failed"),
  ),
  memory(
    "a buffer that grows in place",
    "const b = new ArrayBuffer(8, { maxByteLength: 2 ** 32 }); for (let n = 1 << 20; ; n += 1 << 20) { b.resize(n); new Uint8Array(b, n - (1 << 20)).fill(1); }",
    MEMORY,
  ),
  memory(
    "a text that doubles",
    'let s = "x"; for (;;) s += s;',
    failed("handler-throws", "Invalid string length"),
  ),
  memory(
    "a text that doubles and is then read",
    'let s = "xy"; for (let i = 0; i < 27; i++) s += s; return { data: s.indexOf("z") };',
    MEMORY,
  ),
  memory(
    "texts without end",
    "const a = []; for (let i = 0; ; i++) a.push(String(i).padStart(10_000, '0') + i);",
    MEMORY,
  ),
  memory(
    "a map without end",
    "const m = new Map(); for (let i = 0; ; i++) m.set(i, { i });",
    failed("sandbox-killed"),
  ),
  memory(
    "a set of symbols without end",
    "const m = new Set(); for (let i = 0; ; i++) m.add(Symbol('s' + i));",
    failed("sandbox-killed"),
  ),
  memory(
    "closures without end",
    "let f = () => 0; for (;;) { const g = f; const pad = [1, 2, 3]; f = () => g() + pad.length; }",
    MEMORY,
  ),
  memory(
    "promises kept for ever",
    "const a = []; for (;;) a.push(new Promise(() => {}).then(() => {}));",
    MEMORY,
  ),
  memory(
    "patterns without end",
    "const a = []; for (let i = 0; ; i++) { const r = new RegExp('(?:a|b){50}c' + i); r.test('abab'); a.push(r); }",
    MEMORY,
    { limits: { sectionMs: 6_000, cpuMs: 6_000, wallMs: 9_000, memoryMb: 16 }, deadlineMs: 6_000 },
  ),
  memory(
    "an argument list of a million",
    "Math.max(...new Array(1_000_000));",
    failed("handler-throws", "Maximum call stack size exceeded"),
    { limits: { ...SLOW, memoryMb: 64 } },
  ),
  memory("a text parsed into more than it says", 'JSON.parse("[" + "[],".repeat(5_000_000) + "1]");', MEMORY),
  memory(
    "a value that is small until it is written out",
    "let a = [1]; for (let i = 0; i < 40; i++) a = [a, a]; return { data: a };",
    inResult(CPU),
    { limits: { sectionMs: 100 } },
  ),
  memory(
    "a proxy that claims four billion items",
    "return { data: new Proxy([], { get: (t, k) => (k === 'length' ? 2 ** 32 - 1 : 1) }) };",
    inResult(CPU),
    { limits: { sectionMs: 100 } },
  ),
  memory("a giant return", 'return { data: "x".repeat(8_000_000) };', inResult(failed("value-too-large"))),
  memory(
    "a return that is small in characters and large in bytes",
    'return { data: "\\u20ac".repeat(100_000) };',
    {
      producer: failed("value-too-large"),
      prepare: returned(JSON.stringify({ data: "\u20ac".repeat(100_000) })),
      mutate: done(),
      next: failed("value-too-large"),
    },
  ),
  memory(
    "a return with a hundred thousand keys",
    "const o = {}; for (let i = 0; i < 100_000; i++) o['k' + i] = i; return { data: o };",
    inResult(failed("value-too-large")),
    { limits: { ...SLOW, memoryMb: 64 } },
  ),
  memory(
    "an error message of eight megabytes",
    'throw new Error("x".repeat(8_000_000));',
    failed("handler-throws"),
  ),
  memory(
    "a log that never stops",
    'for (let i = 0; i < 20_000; i++) ctx.log.info("x".repeat(10_000), "y".repeat(10_000)); say("unheard");',
    {
      says: [
        ...Array.from({ length: 200 }, () => "x".repeat(2_000)),
        "more than 200 lines; the rest is dropped",
      ],
    },
  ),
  memory(
    "a log of things that cannot be written",
    "const loop = {}; loop.loop = loop; ctx.log.info('a', loop); ctx.log.info(loop); ctx.log.info(1n, 1n); ctx.log.info(Symbol('s'));",
    done("a", "(a message that cannot be read)", "(a message that cannot be read)", "a symbol"),
  ),
  memory(
    "a message of two megabytes",
    'await ctx.web.get("/", { query: { q: "x".repeat(2_000_000) } });',
    inReads(failed("value-too-large")),
  ),
  memory(
    "messages that add up",
    'for (let i = 0; i < 10; i++) await ctx.web.get("/", { query: { q: "x".repeat(900_000) } });',
    inReads(failed("output-limit")),
  ),
  memory(
    "events without end",
    "for (let i = 0; ; i++) ctx.publish('outbox', { messageId: 'm' + i, payload: i });",
    inPublishes(failed("publish-limit")),
  ),
  memory(
    "events that add up",
    "for (let i = 0; i < 100; i++) ctx.publish('outbox', { messageId: 'm' + i, payload: 'x'.repeat(100_000) });",
    inPublishes(failed("output-limit")),
  ),
  memory(
    "one event for a million topics",
    "ctx.publish(new Array(1_000_000).fill('outbox'), { messageId: 'm', payload: 1 });",
    inPublishes(failed("output-limit")),
  ),
  memory(
    "inputs without end",
    "for (let i = 0; ; i++) ctx.registerInput({ source: 's', type: 't', id: String(i), title: 'x' });",
    {
      producer: failed("publish-limit"),
      prepare: failed("phase-violation"),
      mutate: failed("phase-violation"),
      next: failed("phase-violation"),
    },
  ),
  memory(
    "events that cost the host most to read",
    "for (let i = 0; i < 1_000; i++) { const o = {}; for (let j = 0; j < 240; j++) o[4_000_000_000 - j * 7919 - i] = []; ctx.publish('outbox', { messageId: 'm' + i, payload: o }); }",
    {
      producer: { says: [], publishes: 1_000 },
      prepare: failed("phase-violation"),
      mutate: failed("phase-violation"),
      next: { says: [], publishes: 1_000 },
    },
    { limits: { ...SLOW, memoryMb: 128 } },
  ),
  memory("a result that costs the host most to read", "return { data: new Array(80_000).fill([]) };", {
    producer: returned(`{"data":[${"[],".repeat(79_999)}[]]}`),
    prepare: returned(`{"data":[${"[],".repeat(79_999)}[]]}`),
    mutate: done(),
    next: returned(`{"data":[${"[],".repeat(79_999)}[]]}`),
  }),
];

const BOUNDARY: Attack[] = [
  boundary(
    "a __proto__ key",
    `return JSON.parse('{"data":{"__proto__":{"polluted":true}}}');`,
    inResult(returned('{"data":{"__proto__":{"polluted":true}}}')),
  ),
  boundary(
    "a __proto__ key at the top",
    `return JSON.parse('{"__proto__":{"polluted":true},"reservations":[]}');`,
    inResult(returned('{"__proto__":{"polluted":true},"reservations":[]}')),
  ),
  boundary(
    "a constructor key",
    "return { data: { constructor: { prototype: { polluted: true } } } };",
    inResult(returned('{"data":{"constructor":{"prototype":{"polluted":true}}}}')),
  ),
  boundary(
    "keys that look like the host's own",
    `return JSON.parse('{"publishes":[{"topics":["outbox"],"messageId":"m","payload":1}],"inputs":[],"intent":{"alias":"web","tool":"post","args":{}},"prepared":{},"state":1,"kept":true}');`,
    inResult(
      returned(
        '{"publishes":[{"topics":["outbox"],"messageId":"m","payload":1}],"inputs":[],"intent":{"alias":"web","tool":"post","args":{}},"prepared":{},"state":1,"kept":true}',
      ),
    ),
  ),
  boundary(
    "a toJSON function",
    'return { data: { toJSON() { return "lie"; } } };',
    inResult(failed("bad-value")),
  ),
  boundary(
    "a hidden toJSON function",
    "return Object.defineProperty({ data: 1 }, 'toJSON', { value: () => ({ data: 'other' }) });",
    inResult(returned('{"data":"other"}')),
  ),
  boundary(
    "a toJSON function that returns nothing",
    "return Object.defineProperty({ data: 1 }, 'toJSON', { value: () => undefined });",
    inResult(failed("bad-value")),
  ),
  boundary(
    "a toJSON function that turns the result into a list",
    "return Object.defineProperty({ data: 1 }, 'toJSON', { value: () => [1] });",
    {
      producer: returned("[1]"),
      prepare: failed("bad-result"),
      mutate: done(),
      next: returned("[1]"),
    },
  ),
  boundary("a cycle", "const o = {}; o.data = { o }; return o;", inResult(failed("bad-value"))),
  boundary(
    "a value nested a hundred thousand deep",
    "let o = 1; for (let i = 0; i < 100_000; i++) o = [o]; return { data: o };",
    inResult(failed("bad-value")),
  ),
  boundary(
    "a depth that only shows when written",
    "const deep = (n) => Object.defineProperty({}, 'toJSON', { value: () => (n === 0 ? 1 : [deep(n - 1)]) }); return { data: deep(1_000) };",
    inResult(failed("bad-value")),
  ),
  boundary("a big integer", "return { data: 1n };", inResult(failed("bad-value"))),
  boundary("not a number", "return { data: 0 / 0 };", inResult(failed("bad-value"))),
  boundary("a symbol", "return { data: Symbol('x') };", inResult(failed("bad-value"))),
  boundary("a function", "return { data: () => 1 };", inResult(failed("bad-value"))),
  boundary("a map", "return { data: new Map([[1, 2]]) };", inResult(failed("bad-value"))),
  boundary("a date", "return { data: new Date() };", inResult(failed("bad-value"))),
  boundary(
    "a revoked proxy",
    "const r = Proxy.revocable({}, {}); r.revoke(); return { data: r.proxy };",
    inResult(failed("handler-throws")),
  ),
  boundary(
    "a proxy that answers differently each time",
    "let n = 0; return new Proxy({ data: 1 }, { get: (t, k) => (k === 'data' ? (n++ === 0 ? 1 : 'second look') : t[k]) });",
    inResult(returned('{"data":"second look"}')),
  ),
  boundary(
    "a getter that throws",
    "return { get data() { throw new Error('boom'); } };",
    inResult(failed("handler-throws", "boom")),
  ),
  boundary(
    "raw JSON",
    "return { data: typeof JSON.rawJSON === 'function' ? JSON.rawJSON('1') : 1 };",
    inResult(returned('{"data":1}')),
  ),
  boundary("throwing undefined", "throw undefined;", failed("handler-throws", "threw undefined")),
  boundary("throwing null", "throw null;", failed("handler-throws", "threw null")),
  boundary("throwing a symbol", "throw Symbol('s');", failed("handler-throws", "threw a symbol")),
  boundary("throwing a function", "throw () => 1;", failed("handler-throws")),
  boundary(
    "throwing a proxy that throws",
    "throw new Proxy({}, { get() { throw 1; } });",
    failed("handler-throws", "threw a value that cannot be read"),
  ),
  boundary(
    "throwing a look-alike of a host error",
    "throw { code: 'run-aborted', class: 'transient', name: 'PawlError', message: 'retry me for ever', stack: '' };",
    failed("handler-throws", "retry me for ever"),
  ),
  boundary(
    "a stack that points nowhere",
    "throw Object.assign(new Error('m'), { stack: 'at f (pawl-script:x.ts:1:0)\\nat g (pawl-script:x.ts:999999999999999999999:1)' });",
    failed("handler-throws", "m"),
  ),
  boundary(
    "a stack that names a host file",
    "throw Object.assign(new Error('m'), { stack: 'at f (/etc/passwd:1:1)\\nat pawl-script:../../etc/passwd:3:1' });",
    failed("handler-throws", "m"),
  ),
  boundary(
    "a stack of eight thousand colons",
    "throw Object.assign(new Error('m'), { stack: 'at f (pawl-script:' + ':1'.repeat(3_900) + 'x' });",
    failed("handler-throws", "m"),
  ),
  boundary(
    "an error whose name is an object",
    "const e = new Error('m'); Object.defineProperty(e, 'name', { value: { toString() { throw 1; } } }); throw e;",
    failed("handler-throws", "threw a value that cannot be read"),
  ),
  boundary(
    "a promise that fails while nobody waits",
    "Promise.reject(new Error('boom')); return {};",
    failed("handler-throws", "Error: boom (in a promise that nobody awaited)"),
  ),
  boundary(
    "a promise that fails with nothing",
    "Promise.reject({ toString: 1 }); return {};",
    failed("handler-throws", "a value that is no Error (in a promise that nobody awaited)"),
  ),
  boundary(
    "a promise that fails later and pretends to be a limit",
    "Promise.resolve().then(() => { throw Object.assign(new Error('x'), { code: 'run-aborted' }); }); return {};",
    failed("handler-throws", "x"),
  ),
  time(
    "a promise that fails with something unreadable",
    "Promise.reject(new Proxy({}, { get() { for (;;); } })); return {};",
    CPU,
  ),
  boundary(
    "errors nested as causes of each other",
    "const e = new Error('m'); e.cause = e; throw new AggregateError([e, e], 'many', { cause: e });",
    failed("handler-throws", "many"),
  ),
  boundary(
    "a lone surrogate and a NUL in ids",
    "if (phase === 'prepare') return { reservations: [{ topic: 'inbox', ids: ['\\ud800'] }] }; ctx.publish('outbox', { messageId: 'a\\0b', payload: 1 });",
    {
      producer: failed("bad-call"),
      prepare: failed("bad-reservation"),
      mutate: failed("phase-violation"),
      next: failed("bad-call"),
    },
  ),
  boundary(
    "an id of a million characters",
    "if (phase === 'prepare') return { reservations: [{ topic: 'inbox', ids: ['x'.repeat(900_000)] }] }; ctx.publish('outbox', { messageId: 'x'.repeat(1_000_000), payload: 1 });",
    {
      producer: failed("bad-call"),
      prepare: failed("bad-reservation"),
      mutate: failed("phase-violation"),
      next: failed("bad-call"),
    },
  ),
  boundary(
    "a messageId that turns into text when asked",
    "ctx.publish('outbox', { messageId: { toString: () => 'm' }, payload: 1 });",
    inPublishes(failed("bad-call")),
  ),
  boundary("a foreign reservation", "return { reservations: [{ topic: 'outbox', ids: ['1'] }] };", {
    producer: returned('{"reservations":[{"topic":"outbox","ids":["1"]}]}'),
    prepare: failed("bad-reservation"),
    mutate: done(),
    next: returned('{"reservations":[{"topic":"outbox","ids":["1"]}]}'),
  }),
  boundary("a reservation of __proto__", "return { reservations: [{ topic: '__proto__', ids: ['1'] }] };", {
    producer: returned('{"reservations":[{"topic":"__proto__","ids":["1"]}]}'),
    prepare: failed("bad-reservation"),
    mutate: done(),
    next: returned('{"reservations":[{"topic":"__proto__","ids":["1"]}]}'),
  }),
  boundary(
    "the same event reserved twice",
    "return { reservations: [{ topic: 'inbox', ids: ['1', '1'] }, { topic: 'inbox', ids: ['1'] }] };",
    inResult(returned('{"reservations":[{"topic":"inbox","ids":["1","1"]},{"topic":"inbox","ids":["1"]}]}')),
  ),
  boundary(
    "reservations that are no list",
    "return { reservations: { length: 1, 0: { topic: 'inbox', ids: ['1'] } } };",
    {
      producer: returned('{"reservations":{"0":{"topic":"inbox","ids":["1"]},"length":1}}'),
      prepare: failed("bad-result"),
      mutate: done(),
      next: returned('{"reservations":{"0":{"topic":"inbox","ids":["1"]},"length":1}}'),
    },
  ),
  boundary("a wakeAt that is no text", "return { wakeAt: { valueOf: 1 } };", {
    producer: returned('{"wakeAt":{"valueOf":1}}'),
    prepare: failed("bad-result"),
    mutate: done(),
    next: returned('{"wakeAt":{"valueOf":1}}'),
  }),
  boundary("a result that is no object", "return 'text';", {
    producer: returned('"text"'),
    prepare: failed("bad-result"),
    mutate: done(),
    next: returned('"text"'),
  }),
  boundary("a tool name with a line break", 'ctx.acme["a\\n{\\"x\\":1}"]({});', {
    producer: failed("bad-call"),
    prepare: failed("bad-call"),
    mutate: failed("bad-call"),
    next: failed("phase-violation"),
  }),
  boundary("a tool name of a million characters", 'ctx.acme["a".repeat(1_000_000)]({});', {
    producer: failed("bad-call"),
    prepare: failed("bad-call"),
    mutate: failed("bad-call"),
    next: failed("phase-violation"),
  }),
  boundary(
    "a proxy as the path of a host call",
    "await ctx.web.get(new Proxy({}, { get: () => () => '/x' }));",
    inReads(failed("bad-call")),
  ),
  boundary(
    "a proxy as the options of a host call",
    "await ctx.web.get('/', new Proxy({}, { ownKeys: () => ['a'], getOwnPropertyDescriptor: () => ({ value: () => 1, enumerable: true, configurable: true }), get: () => () => 1 }));",
    inReads(failed("bad-value")),
  ),
  boundary(
    "the path overridden by the options",
    "say(JSON.stringify(await ctx.web.get('/mine', { path: '/other' })));",
    inReads(done('{"asked":"web.get","args":{"path":"/mine"}}')),
  ),
];

export const LIMITS_AND_BOUNDARY: readonly Attack[] = [...TIME, ...MEMORY_BOMBS, ...BOUNDARY];
export { authority, done, failed, inPublishes, inReads, inResult, phase, returned };
