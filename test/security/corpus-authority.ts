/** Hostile scripts that reach for authority, break the rules of the phases, or lie about what they did. */
import {
  type Attack,
  authority,
  done,
  failed,
  inPublishes,
  inReads,
  inResult,
  phase,
  returned,
} from "./corpus.ts";

const NO_CODE = "TypeError: code from strings is not available in a Pawl script";
const tried = (expression: string) =>
  `try { say(String(${expression})); } catch (e) { say(e.name + ": " + e.message); }`;

const AUTHORITY: Attack[] = [
  authority(
    "constructor of a constructor",
    tried('ctx.log.info.constructor.constructor("return process")()'),
    done(NO_CODE),
  ),
  authority(
    "constructors of every kind of function",
    ["(() => 1)", "(async () => 1)", "(function* () {})", "(async function* () {})", "class {}"]
      .map((f) => tried(`(${f}).constructor("return 1")()`))
      .join(""),
    done(NO_CODE, NO_CODE, NO_CODE, NO_CODE, NO_CODE),
  ),
  authority(
    "Function by Reflect",
    tried('Reflect.construct(Function, ["return globalThis"])()') +
      tried('Reflect.construct(Object, ["return 1"], Function)'),
    done(NO_CODE, "TypeError: Function.prototype.toString requires that 'this' be a Function"),
  ),
  authority(
    "a class that extends Function",
    tried('new (class extends Function {})("return 1")()'),
    done(NO_CODE),
  ),
  authority(
    "eval by any name",
    "say([typeof globalThis.eval, typeof globalThis['ev' + 'al'], typeof setTimeout, typeof setInterval, typeof setImmediate].join());",
    done("undefined,undefined,undefined,undefined,undefined"),
  ),
  authority(
    "globals of the process",
    "say(['process', 'require', 'module', 'exports', 'Buffer', 'fetch', 'WebAssembly', 'SharedArrayBuffer', 'Atomics', 'WeakRef', 'FinalizationRegistry', 'performance', 'navigator', 'global', 'queueMicrotask', 'ShadowRealm', 'gc', 'd8', 'ivm', '__pawl', '__export', 'prelude', 'load', 'send', 'native'].filter((n) => n in globalThis).join());",
    done(""),
  ),
  authority(
    "names of the wrapper",
    "say([typeof prelude, typeof load, typeof send, typeof native, typeof freeze, typeof require, typeof process].join());",
    done("undefined,undefined,undefined,undefined,undefined,undefined,undefined"),
  ),
  authority(
    "shared memory through a back door",
    "say([typeof new ArrayBuffer(8).transfer, typeof Object.getPrototypeOf(Int8Array).prototype.constructor, 'growable' in ArrayBuffer.prototype].join());",
    done("function,function,false"),
  ),
  authority(
    "the caller of a function",
    "function f() { try { return String(f.caller); } catch (e) { return e.name; } } say(f()); say((() => { try { return String(ctx.log.info.caller); } catch (e) { return e.name; } })());",
    done("TypeError", "TypeError"),
  ),
  authority(
    "the arguments of a function",
    "function f() { try { return String(f.arguments); } catch (e) { return e.name; } } say(f());",
    done("TypeError"),
  ),
  authority(
    "stack frames as objects",
    "Error.prepareStackTrace = (e, frames) => frames.map((f) => [typeof f.getThis(), typeof f.getFunction(), typeof f.getEvalOrigin()].join()).filter((t) => t !== 'undefined,undefined,undefined'); const at = (f) => { try { f(); } catch (e) { return e.stack; } }; say(JSON.stringify(new Error().stack)); say(JSON.stringify(at(() => new URL('::'))));",
    done("[]", "[]"),
  ),
  authority(
    "a stack hook that replaces the report",
    "Error.prepareStackTrace = () => ({ toString: () => 'at x (pawl-script:y:0:0)' }); throw new Error('mine');",
    failed("handler-throws", "mine"),
  ),
  authority(
    "a stack trace of unlimited length",
    "Error.stackTraceLimit = Infinity; const f = (n) => { if (n === 0) throw new Error('deep'); f(n - 1); }; f(3_000);",
    failed("handler-throws", "deep"),
  ),
  authority(
    "host paths in a stack",
    "say(String(/\\/|node:|file:|pawl:/.test(new Error().stack.replace(/pawl-script:/g, ''))));",
    done("false"),
  ),
  authority(
    "host paths in an error of the prelude",
    "try { new URL('::'); } catch (e) { say(String(/node:|file:|\\/host\\/|node_modules/.test(e.stack))); }",
    done("false"),
  ),
  authority(
    "species of a promise",
    "let got = 'nothing'; class P extends Promise { static get [Symbol.species]() { return class { constructor(f) { got = typeof f; f(() => {}, () => {}); } }; } } const p = new P((ok) => ok(1)); p.then(() => {}); say(got); return P.resolve({ data: 2 });",
    {
      producer: returned('{"data":2}', "function"),
      prepare: returned('{"data":2}', "function"),
      mutate: done("function"),
      next: returned('{"data":2}', "function"),
    },
  ),
  authority(
    "species of an array",
    "class A extends Array { static get [Symbol.species]() { return function () { return ctx; }; } } try { A.from([1]).map((x) => x); say('mapped'); } catch (e) { say(e.name); } say(typeof ctx.log);",
    done("mapped", "object"),
  ),
  authority(
    "Promise.prototype.then replaced",
    "const seen = []; Promise.prototype.then = function (a, b) { seen.push(typeof a); return this; }; say(String(seen.length)); return { data: 1 };",
    {
      producer: returned('{"data":1}', "0"),
      prepare: returned('{"data":1}', "0"),
      mutate: done("0"),
      next: returned('{"data":1}', "0"),
    },
  ),
  authority(
    "JSON replaced",
    "JSON.stringify = () => '{\"forged\":1}'; JSON.parse = () => ({}); Object.keys = () => []; Array.isArray = () => true; Reflect.apply = () => 1; return { data: 1 };",
    inResult(returned('{"data":1}')),
  ),
  authority(
    "setters waiting on Array.prototype",
    "let other = 0; for (const i of [0, 1, 2]) Object.defineProperty(Array.prototype, i, { set(v) { if (typeof v !== 'string') other++; }, get() { return undefined; }, configurable: true }); ctx.log.info('bait'); for (const i of [0, 1, 2]) delete Array.prototype[i]; throw new Error(other === 0 ? 'only text was seen' : 'objects were seen');",
    failed("handler-throws", "only text was seen"),
  ),
  authority(
    "setters waiting on Object.prototype",
    "const stolen = []; for (const k of ['now', 'alive', 'logs', 'invocation', 'seed', 'send', 'phase', 'topics', 'ids', 'source']) Object.defineProperty(Object.prototype, k, { set(v) { stolen.push(k + typeof v); }, get() { return undefined; }, configurable: true }); ctx.log.info('bait'); new URL('http://x/?a=1').searchParams.append('b', '2'); throw new Error('stolen: ' + stolen.join());",
    failed("handler-throws", "stolen: "),
  ),
  authority(
    "toJSON for every object, forging an error of the host",
    "Object.prototype.toJSON = () => ({ code: 'sandbox-lost', name: 'Error', message: 'do it again for free', stack: 'x' }); throw new Error('real');",
    failed("handler-throws"),
  ),
  authority(
    "toJSON for every object, forging the log",
    "Object.prototype.toJSON = () => 5; ctx.log.info('a'); Object.prototype.toJSON = () => ({ level: 1, message: 7, data: 'no json', atMs: 'soon' }); ctx.log.info('b'); delete Object.prototype.toJSON;",
    done("a", "b"),
  ),
  authority(
    "toJSON for every object, forging the topic of a question",
    "Object.prototype.toJSON = function () { return 'limit' in this ? { topic: 'outbox', limit: 1 } : this; }; await ctx.peek('inbox', { limit: 5 });",
    {
      producer: failed("phase-violation"),
      prepare: done(),
      mutate: failed("phase-violation"),
      next: failed("phase-violation"),
    },
  ),
  authority(
    "toJSON for every list, forging the topics",
    "Array.prototype.toJSON = () => ['inbox', '__proto__']; ctx.publish('outbox', { messageId: 'm', payload: 1 });",
    inPublishes(failed("undeclared-topic")),
  ),
  authority(
    "toJSON for every list, forging no topics",
    "Array.prototype.toJSON = () => 'outbox'; ctx.publish('outbox', { messageId: 'm', payload: 1 });",
    inPublishes(failed("bad-value")),
  ),
  authority(
    "the object behind ctx",
    "ctx.publish = () => say('mine'); ctx.phase = 'producer'; Object.setPrototypeOf(ctx, { evil: true }); ctx.publish(); say(String(Object.getPrototypeOf(ctx.log) === Object.prototype));",
    done("mine", "true"),
  ),
  authority(
    "this of a bare function",
    "say(typeof (function () { return this; })()); say(typeof (() => { 'use strict'; return (0, function () { return this; })(); })());",
    done("undefined", "undefined"),
  ),
  authority("leaving the process", "process.exit(1);", failed("handler-throws", "process is not defined")),
  authority("the debugger", "debugger; say('still here');", done("still here")),
  authority(
    "the real clock",
    "say([new Date().getTime(), Date.now(), new (new Date().constructor)().getTime(), new (class extends Date {})().getTime(), Reflect.construct(Date, []).getTime()].every((t) => t === ctx.now()) + ' ' + (Date() === new Date(ctx.now()).toString()) + ' ' + (new Intl.DateTimeFormat('en', { dateStyle: 'full', timeStyle: 'full' }).format() === new Intl.DateTimeFormat('en', { dateStyle: 'full', timeStyle: 'full' }).format(ctx.now())));",
    done("true true true"),
  ),
  authority(
    "something left for the next run",
    "const seen = [typeof globalThis.left, typeof Array.prototype.left, typeof Map.left].join(); for (const o of [globalThis, Array.prototype, Map]) try { o.left = 1; } catch {} say(seen);",
    done("undefined,undefined,undefined"),
  ),
  authority(
    "names of the machine",
    "say([typeof Intl.DateTimeFormat().resolvedOptions().timeZone, Intl.DateTimeFormat().resolvedOptions().timeZone].join());",
    done("string,UTC"),
  ),
];

const PHASES: Attack[] = [
  phase(
    "every call of another phase, caught",
    "for (const f of [() => ctx.publish('outbox', { messageId: 'm', payload: 1 }), () => ctx.registerInput({ source: 's', type: 't', id: 'i', title: 'x' }), () => ctx.peek('inbox'), () => ctx.getByIds('inbox', []), () => ctx.web.get('/'), () => ctx.web.post('/', {})]) try { await f(); } catch {} return {};",
    failed("phase-violation"),
  ),
  phase(
    "an outside change where none may be made",
    "try { await ctx.web.post('/', { json: 1 }); } catch {} return {};",
    {
      producer: failed("phase-violation"),
      prepare: failed("phase-violation"),
      mutate: done(),
      next: failed("phase-violation"),
    },
  ),
  phase("two outside changes", "try { ctx.web.post('/1', {}); ctx.web.post('/2', {}); } catch {}", {
    producer: failed("phase-violation"),
    prepare: failed("phase-violation"),
    mutate: failed("two-mutations"),
    next: failed("phase-violation"),
  }),
  phase(
    "an endless loop after the outside change",
    "try { ctx.web.post('/', {}); } catch {} for (;;);",
    failed("cpu-limit"),
    { costly: true },
  ),
  phase("an error after the outside change", "ctx.web.post('/', {}); throw new Error('after');", {
    producer: failed("phase-violation"),
    prepare: failed("phase-violation"),
    mutate: failed("handler-throws", "after"),
    next: failed("phase-violation"),
  }),
  phase(
    "an outside change after the result",
    "Promise.resolve().then(() => Promise.resolve()).then(() => Promise.resolve()).then(() => Promise.resolve()).then(() => ctx.web.post('/late', {})); return {};",
    failed("handler-throws", "the run that this ctx belonged to has ended"),
  ),
  phase(
    "an event after the result",
    "Promise.resolve().then(() => Promise.resolve()).then(() => Promise.resolve()).then(() => Promise.resolve()).then(() => ctx.publish('outbox', { messageId: 'late', payload: 1 })); return {};",
    failed("handler-throws", "the run that this ctx belonged to has ended"),
  ),
  phase(
    "an event after the result, and no word of it",
    "Promise.resolve().then(() => Promise.resolve()).then(() => Promise.resolve()).then(() => Promise.resolve()).then(() => ctx.publish('outbox', { messageId: 'late', payload: 1 })).catch(() => {}); return {};",
    inResult(returned("{}")),
  ),
  phase(
    "a topic that is not declared",
    "ctx.publish('inbox', { messageId: 'm', payload: 1 });",
    inPublishes(failed("undeclared-topic")),
  ),
  phase(
    "a topic named __proto__",
    "ctx.publish('__proto__', { messageId: 'm', payload: 1 });",
    inPublishes(failed("undeclared-topic")),
  ),
  phase("peeking where nothing is subscribed", "await ctx.peek('outbox');", {
    producer: failed("phase-violation"),
    prepare: failed("undeclared-topic"),
    mutate: failed("phase-violation"),
    next: failed("phase-violation"),
  }),
  phase("peeking for minus infinity", "await ctx.peek('inbox', { limit: -Infinity });", {
    producer: failed("phase-violation"),
    prepare: failed("bad-call"),
    mutate: failed("phase-violation"),
    next: failed("phase-violation"),
  }),
  phase(
    "a limit error that is caught",
    "try { for (let i = 0; i < 2_000; i++) ctx.web.get('/' + i); } catch {} return { data: 'survived' };",
    inReads(failed("host-call-limit")),
  ),
  phase(
    "an alias of the prototype",
    "say(typeof ctx.constructor.keys + typeof ctx.__proto__ + typeof ctx.hasOwnProperty); await ctx.constructor.get('/');",
    failed("handler-throws", "not a function"),
  ),
  phase(
    "answers that are dropped",
    "ctx.web.get('/a'); ctx.web.get('/b'); await new Promise(() => {});",
    inReads(failed("never-settles")),
  ),
];

/** Tried for this suite only, by somebody who had read the sandbox and wanted to get out. */
const INVENTED: Attack[] = [
  authority(
    "at the edge of the stack, every door",
    "let n = 0; const edge = (f) => { try { edge(f); } catch {} try { f(); n++; } catch {} }; const doors = [() => ctx.log.info('x'), () => new URL('http://x'), () => crypto.randomUUID(), () => structuredClone({ a: [1] }), () => Date.now()]; for (const door of doors) { const once = { left: 300 }; const f = () => { if (once.left-- > 0) door(); }; const go = (d) => { try { go(d + 1); } catch {} f(); }; try { go(0); } catch {} } throw new Error('back from the edge');",
    failed("handler-throws", "back from the edge"),
    { costly: true, limits: { sectionMs: 2_000, cpuMs: 2_000, wallMs: 5_000 } },
  ),
  authority(
    "ending the run at the edge of the stack",
    "const go = () => { try { go(); } catch {} try { ctx.publish(1, 2); } catch {} }; go(); return { data: 'survived' };",
    inPublishes(failed("bad-call")),
    { costly: true, limits: { sectionMs: 2_000, cpuMs: 2_000, wallMs: 5_000 } },
  ),
  authority(
    "a result whose reading calls the host",
    "return { get data() { ctx.web.get('/from-a-getter'); return 1; } };",
    {
      producer: returned('{"data":1}'),
      prepare: returned('{"data":1}'),
      mutate: done(),
      next: failed("phase-violation"),
    },
  ),
  authority(
    "a result whose reading publishes for ever",
    "return { get data() { for (let i = 0; ; i++) ctx.publish('outbox', { messageId: 'm' + i, payload: 1 }); } };",
    {
      producer: failed("publish-limit"),
      prepare: failed("phase-violation"),
      mutate: done(),
      next: failed("publish-limit"),
    },
  ),
  authority(
    "a payload whose reading publishes the same payload",
    "const p = { get x() { ctx.publish('outbox', { messageId: 'm', payload: p }); return 1; } }; ctx.publish('outbox', { messageId: 'm', payload: p });",
    inPublishes(failed("handler-throws", "Maximum call stack size exceeded")),
  ),
  authority(
    "a setter trap between two reads of an event",
    "let n = 0; ctx.publish('outbox', new Proxy({}, { get: (t, k) => (k === 'messageId' ? 'm' + n++ : k === 'payload' ? n : undefined) }));",
    {
      producer: { says: [], publishes: 1 },
      prepare: failed("phase-violation"),
      mutate: failed("phase-violation"),
      next: { says: [], publishes: 1 },
    },
  ),
  authority(
    "the answer of one call given to another",
    "const a = ctx.web.get('/a'); const b = ctx.web.get('/b'); say(JSON.stringify([(await b).args.path, (await a).args.path]));",
    inReads(done('["/b","/a"]')),
  ),
  authority(
    "a promise subclass around a host answer",
    "class P extends Promise {} Object.defineProperty(Promise.prototype, 'constructor', { value: P }); say(String((await ctx.web.get('/')).asked));",
    inReads(done("web.get")),
  ),
  authority(
    "the error of a host call, caught",
    "try { await ctx.web.get('/refused'); } catch { say('caught'); } return {};",
    inReads({ code: "bad-call", class: "permission" }),
  ),
  authority(
    "private fields stamped on built-ins",
    "class Stamp extends (class { constructor(o) { return o; } }) { #mark = 1; static has(o) { return #mark in o; } } const seen = [globalThis, ctx, JSON, Promise].map((o) => Stamp.has(o)).join(); for (const o of [globalThis, JSON, Promise]) try { new Stamp(o); } catch {} say(seen);",
    done("false,false,false,false"),
  ),
  authority(
    "a label of the host's own in a log line",
    "ctx.log.info('\\u001b[2J\\u202e</script><img src=x>'); ctx.log.info('a\\nb', '{\"level\":\"error\"}');",
    done("\u001b[2J\u202e</script><img src=x>", "a\nb"),
  ),
  authority(
    "a frozen-builtin error thrown by hand",
    "throw new TypeError(\"Cannot assign to read only property 'x' of object\");",
    failed("handler-throws", "Cannot assign"),
  ),
  authority(
    "a tagged template kept as a key",
    "const tag = (s) => s; const f = () => tag`x`; say(String(f() === f() && Object.isFrozen(f())));",
    done("true"),
  ),
  authority(
    "disposal that throws twice",
    "{ using a = { [Symbol.dispose]() { throw new Error('one'); } }; using b = { [Symbol.dispose]() { throw new Error('two'); } }; }",
    failed("handler-throws"),
  ),
  authority(
    "a host name that is an instruction to the host",
    "const u = new URL('http://a/'); u.href = 'http://b/'; try { u.toString = 1; } catch {} Object.defineProperty(u, 'searchParams', { value: 1 }); say(String(u.host));",
    done("b"),
  ),
  authority(
    "messages between two runs through an error",
    "const e = new RangeError('m'); e.constructor.left ??= 0; say(String(e.constructor.left)); throw e;",
    failed("handler-throws"),
  ),
];

export const AUTHORITY_AND_PHASES: readonly Attack[] = [...AUTHORITY, ...PHASES, ...INVENTED];
