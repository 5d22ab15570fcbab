/**
 * The other ways to run the same consumer, one scope per run for both of its calls (the pool makes one per call).
 *
 * - plain function calls: the module is loaded once; a `ctx` of a dozen lines; no scope of its own, no protection.
 * - `same scope`: the script finds the same documented globals, the same `ctx` with its checks and the same clock and
 *   chance as in the pool, because the same prelude runs first. This is what the limits are about.
 * - `bare`: quickjs with the dozen lines instead of the prelude. A floor for orientation: what it costs to have an
 *   empty engine and no product in it.
 *
 * quickjs has no `Intl`; it gets an empty one, for the prelude to wrap. Code is compiled once wherever the contender can
 * keep it: node:vm can; quickjs, threads and processes start from text. A thread's or process's run lasts until it is gone.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { createContext, Script as VmScript } from "node:vm";
import { Worker } from "node:worker_threads";
import { getQuickJS, type QuickJSContext, type QuickJSHandle, type QuickJSRuntime } from "quickjs-emscripten";
import type { Script } from "../../host/ports/sandbox.ts";
import { childProgram } from "../../host/sandbox/program.ts";
import { type Enter, type Product, runThrough } from "./job.ts";

export interface Contender {
  name: string;
  run(): Promise<Product>;
  close?(): Promise<void>;
}

type Send = (kind: string, call: number, logs: string, json: string) => void;
type Realm = (op: string, call: number, json: string, nowMs: number) => void;

/** `(send, native) => enter`, with the script in the scope that the pool gives it. */
const sameScope = ({ code }: Script): string =>
  `((send, native) => ${childProgram("pool").prelude.text}(\n${code}\n)(send, native, false))`;

/** `(send, native) => enter`, with a `ctx` of a dozen lines and whatever globals are there. */
const bare = ({ code }: Script): string => `((send) => {
  let definition;
  const tagged = (kind) => (given) => ({ pawl: kind, ...given });
  (${code})({ workflow: tagged("workflow"), producer: tagged("producer"), consumer: tagged("consumer"), topic: tagged("topic") }, (given) => { definition = given; });
  return async (op, call, json) => {
    const { unit, now, params, peek, prepared, outcome, handler, runId, attempt } = JSON.parse(json);
    const logs = [], publishes = [];
    const log = { info: (message, data) => logs.push(JSON.stringify({ level: "info", message, data: JSON.stringify(data), atMs: now })) };
    const base = { log, params: JSON.parse(params), now: () => now, run: { id: runId, attempt } };
    const { prepare, mutate, next } = definition.consumers[handler];
    const done = (result) => send("done", 0, logs.join(), JSON.stringify({ publishes, inputs: [], ...result }));
    if (unit === "next") {
      const publish = (topic, { messageId, payload }) => publishes.push({ topics: [topic], messageId, payload });
      return done({ state: await next({ ...base, publish }, JSON.parse(prepared), JSON.parse(outcome)) });
    }
    const decided = await prepare({ ...base, peek: async (topic) => JSON.parse(peek[topic].events) });
    let intent;
    const post = (path, options) => { intent = { alias: "ledger", tool: "post", args: { path, ...options } }; };
    mutate({ ...base, ledger: { post } }, JSON.parse(JSON.stringify(decided)));
    done({ prepared: decided, intent });
  };
})`;

const noNative = (): string => "";

/** Turns an `enter` that reports through `send` into one that returns. */
function inThisProcess(make: (send: Send, native: () => string) => Realm): Enter {
  let heard = Promise.withResolvers<{ logs: string; json: string }>();
  const enter = make((kind, _, logs, json) => {
    if (kind === "done") heard.resolve({ logs, json });
    else heard.reject(new Error(`${kind} ${json}`));
  }, noNative);
  return (request) => {
    heard = Promise.withResolvers();
    enter("invoke", 0, request, 0);
    return heard.promise;
  };
}

type Make = (send: Send, native: () => string) => Realm;

export function plainCalls(script: Script): Contender {
  const enter = inThisProcess(new VmScript(bare(script)).runInThisContext() as Make);
  return { name: "plain function calls", run: () => runThrough(enter, script) };
}

export function nodeVm(script: Script): Contender {
  const compiled = new VmScript(sameScope(script));
  const run = () => {
    const enter = inThisProcess(compiled.runInContext(createContext({})) as Make);
    return runThrough(enter, script);
  };
  return { name: "node:vm, new context per run, same scope", run };
}

export async function quickJs(script: Script, what: "same scope" | "bare"): Promise<Contender> {
  const engine = await getQuickJS();
  const intl = "globalThis.Intl = { DateTimeFormat: class { get format() {} formatToParts() {} } };";
  const text = what === "bare" ? bare(script) : `${intl}${sameScope(script)}`;
  const run = async (): Promise<Product> => {
    const runtime = engine.newRuntime();
    const context = runtime.newContext();
    try {
      return await quickJsRun(runtime, context, text, script);
    } finally {
      context.dispose();
      runtime.dispose();
    }
  };
  return { name: `quickjs-emscripten, new runtime per run, ${what}`, run };
}

async function quickJsRun(
  runtime: QuickJSRuntime,
  context: QuickJSContext,
  text: string,
  script: Script,
): Promise<Product> {
  let heard: { kind: string; logs: string; json: string } | undefined;
  const send = context.newFunction("send", (kind, _, logs, json) => {
    heard = {
      kind: context.getString(kind),
      logs: context.getString(logs),
      json: context.getString(json),
    };
  });
  const native = context.newFunction("native", () => context.newString(""));
  const make = context.unwrapResult(context.evalCode(text, "consumer.js"));
  const enter = context.unwrapResult(context.callFunction(make, context.undefined, send, native));
  const call: Enter = async (request) => {
    const args: QuickJSHandle[] = [
      context.newString("invoke"),
      context.newNumber(0),
      context.newString(request),
      context.newNumber(0),
    ];
    context.unwrapResult(context.callFunction(enter, context.undefined, ...args)).dispose();
    for (const one of args) one.dispose();
    const jobs = runtime.executePendingJobs();
    if (jobs.error) throw new Error("a job failed in quickjs");
    jobs.dispose();
    if (heard?.kind !== "done") throw new Error(`quickjs: ${heard?.kind} ${heard?.json}`);
    return heard;
  };
  const product = await runThrough(call, script);
  for (const one of [enter, make, native, send]) one.dispose();
  return product;
}

export function workerThread(script: Script): Contender {
  const text = `const { parentPort } = require("node:worker_threads");
const enter = ${sameScope(script)}((kind, call, logs, json) => parentPort.postMessage({ logs, json }), () => "");
parentPort.on("message", (request) => enter("invoke", 0, request, 0));`;
  const run = async (): Promise<Product> => {
    const worker = new Worker(text, { eval: true });
    const product = await runThrough(async (request) => {
      worker.postMessage(request);
      const [reply] = (await once(worker, "message")) as [{ logs: string; json: string }];
      return reply;
    }, script);
    await worker.terminate();
    return product;
  };
  return { name: "new worker thread per run, same scope", run };
}

export function freshProcess(script: Script): Contender {
  const text = `const { stdin, stdout } = process;
const say = JSON.stringify;
const enter = ${sameScope(script)}((kind, call, logs, json) => stdout.write(say({ logs, json }) + "\\n"), () => "");
let held = "";
stdin.on("data", (chunk) => {
  held += chunk;
  for (let at; (at = held.indexOf("\\n")) >= 0; held = held.slice(at + 1)) enter("invoke", 0, held.slice(0, at), 0);
});`;
  const run = async (): Promise<Product> => {
    const child = spawn(process.execPath, ["-e", text], { stdio: ["pipe", "pipe", "inherit"], env: {} });
    const closed = once(child, "close");
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const product = await runThrough(async (request) => {
      child.stdin.write(`${request}\n`);
      return JSON.parse((await lines.next()).value as string) as { logs: string; json: string };
    }, script);
    child.stdin.end();
    await closed;
    return product;
  };
  return { name: "new process per run, same scope", run };
}
