/**
 * The other ways to run the same consumer. All of them use the same compiled code and the same small runtime below;
 * text goes in and text comes out, because a checkpoint is text whoever runs the script.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { createContext, Script as VmScript } from "node:vm";
import { Worker } from "node:worker_threads";
import { getQuickJS, type QuickJSContext, type QuickJSHandle, type QuickJSRuntime } from "quickjs-emscripten";
import { EVENTS, NOW_MS, OUTCOME, PARAMS, type Product } from "./job.ts";

export interface Contender {
  name: string;
  run(): Promise<Product>;
  close?(): Promise<void>;
}

/** A ctx with what the consumer uses, and no protection at all. `(load, peek, publish) => (request) => reply`. */
const RUNTIME = `(function (load, peek, publish) {
  let definition;
  const tagged = (kind) => (given) => ({ pawl: kind, ...given });
  load({ workflow: tagged("workflow"), producer: tagged("producer"), consumer: tagged("consumer"), topic: tagged("topic") }, (given) => { definition = given; });
  return async (request) => {
    const { unit, now, params, prepared, outcome } = JSON.parse(request);
    const handler = definition.consumers.book;
    const log = { info() {}, warn() {}, debug() {}, error() {} };
    const base = { log, params, now: () => now, run: { id: "run_1", attempt: 1 } };
    if (unit === "next") {
      const next = { ...base, publish: (topic, { messageId, payload }) => publish(JSON.stringify({ topic, messageId, payload })) };
      return JSON.stringify({ state: await handler.next(next, prepared, outcome) });
    }
    const decided = await handler.prepare({ ...base, peek: async (topic) => JSON.parse(peek(topic)) });
    let intent;
    const ledger = { post: (path, options) => { intent = { alias: "ledger", tool: "post", args: { path, ...options } }; } };
    handler.mutate({ ...base, ledger }, JSON.parse(JSON.stringify(decided)));
    return JSON.stringify({ prepared: decided, intent });
  };
})`;

type Entry = (request: string) => Promise<string>;
type Bind = (peek: (topic: string) => string, publish: (event: string) => void) => Entry;

const FIRST = JSON.stringify({ unit: "prepare+mutate", now: NOW_MS, params: PARAMS });
const nextRequest = (prepared: unknown): string =>
  JSON.stringify({ unit: "next", now: NOW_MS, params: PARAMS, prepared, outcome: OUTCOME });
const peek = (): string => EVENTS;

async function bothCalls(call: Entry, publishes: string[]): Promise<Product> {
  const { prepared, intent } = JSON.parse(await call(FIRST)) as {
    prepared: unknown;
    intent: Product["intent"];
  };
  await call(nextRequest(prepared));
  return { intent, publishes: publishes.map((event) => JSON.parse(event) as Product["publishes"][number]) };
}

/** No sandbox: the functions are called. */
export function plainCalls(code: string): Contender {
  const bind = new VmScript(
    `(peek, publish) => ${RUNTIME}(${code}, peek, publish)`,
  ).runInThisContext() as Bind;
  let heard: string[] = [];
  const entry = bind(peek, (event) => heard.push(event));
  const run = async (): Promise<Product> => {
    heard = [];
    return bothCalls(entry, heard);
  };
  return { name: "plain function calls", run };
}

export function nodeVm(code: string): Contender {
  const script = new VmScript(`(peek, publish) => ${RUNTIME}(${code}, peek, publish)`);
  const run = async (): Promise<Product> => {
    const heard: string[] = [];
    const bind = script.runInContext(createContext({})) as Bind;
    return bothCalls(
      bind(peek, (event) => heard.push(event)),
      heard,
    );
  };
  return { name: "node:vm, new context per run", run };
}

export async function quickJs(code: string): Promise<Contender> {
  const engine = await getQuickJS();
  const text = `${RUNTIME}(${code}, peek, publish)`;
  const run = async (): Promise<Product> => {
    const heard: string[] = [];
    const runtime = engine.newRuntime();
    const context = runtime.newContext();
    try {
      provide(context, "peek", () => context.newString(EVENTS));
      provide(context, "publish", (event) => void heard.push(context.getString(event)));
      const entry = context.unwrapResult(context.evalCode(text, "consumer.js"));
      const product = await bothCalls(
        async (request) => callQuickJs(runtime, context, entry, request),
        heard,
      );
      entry.dispose();
      return product;
    } finally {
      context.dispose();
      runtime.dispose();
    }
  };
  return { name: "quickjs-emscripten, new runtime per run", run };
}

function provide(
  context: QuickJSContext,
  name: string,
  f: (arg: QuickJSHandle) => QuickJSHandle | void,
): void {
  const made = context.newFunction(name, f);
  context.setProp(context.global, name, made);
  made.dispose();
}

function callQuickJs(
  runtime: QuickJSRuntime,
  context: QuickJSContext,
  entry: QuickJSHandle,
  request: string,
): string {
  const argument = context.newString(request);
  const promise = context.unwrapResult(context.callFunction(entry, context.undefined, argument));
  argument.dispose();
  const jobs = runtime.executePendingJobs();
  if (jobs.error) throw new Error("a job failed in quickjs");
  jobs.dispose();
  const state = context.getPromiseState(promise);
  if (state.type !== "fulfilled") throw new Error(`quickjs: ${state.type}`);
  const reply = context.getString(state.value);
  state.value.dispose();
  promise.dispose();
  return reply;
}

export function workerThread(code: string): Contender {
  const text = `const { parentPort, workerData } = require("node:worker_threads");
const heard = [];
const entry = ${RUNTIME}(${code}, () => workerData, (event) => heard.push(event));
parentPort.on("message", async (request) => parentPort.postMessage({ reply: await entry(request), heard }));`;
  const run = async (): Promise<Product> => {
    const worker = new Worker(text, { eval: true, workerData: EVENTS });
    const heard: string[] = [];
    const call = async (request: string): Promise<string> => {
      worker.postMessage(request);
      const [message] = (await once(worker, "message")) as [{ reply: string; heard: string[] }];
      heard.push(...message.heard);
      return message.reply;
    };
    const product = await bothCalls(call, heard);
    await worker.terminate();
    return product;
  };
  return { name: "new worker thread per run", run };
}

export function freshProcess(code: string): Contender {
  const text = `const heard = [];
const entry = ${RUNTIME}(${code}, () => ${JSON.stringify(EVENTS)}, (event) => heard.push(event));
require("node:readline").createInterface({ input: process.stdin }).on("line", async (request) => {
  process.stdout.write(JSON.stringify({ reply: await entry(request), heard }) + "\\n");
});`;
  const run = async (): Promise<Product> => {
    const child: ChildProcess = spawn(process.execPath, ["-e", text], {
      stdio: ["pipe", "pipe", "inherit"],
      env: {},
    });
    const closed = once(child, "close");
    const heard: string[] = [];
    const { stdin, stdout } = child;
    if (!stdin || !stdout) throw new Error("no pipes");
    const lines = createInterface({ input: stdout })[Symbol.asyncIterator]();
    const call = async (request: string): Promise<string> => {
      stdin.write(`${request}\n`);
      const message = JSON.parse((await lines.next()).value as string) as { reply: string; heard: string[] };
      heard.push(...message.heard);
      return message.reply;
    };
    const product = await bothCalls(call, heard);
    stdin.end();
    await closed;
    return product;
  };
  return { name: "new process per run", run };
}
