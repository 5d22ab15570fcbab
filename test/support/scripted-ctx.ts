/** `ctx` of the scripted sandbox: what each phase may ask, and what may be handed over, in the words of the port. */
import { decodeLogs } from "../../host/sandbox/decode.ts";
import type { ScriptedRun } from "./scripted-sandbox.ts";

type Dict = Record<string, unknown>;

const READS = ["get", "head", "query", "fetch", "read", "list"];
const MUTATIONS = ["post", "put", "patch", "delete", "send", "write", "publish"];
const MAX_DEPTH = 100;

export interface GivenCtx {
  ctx: Dict;
  /** JSON text of plain data, or the run's end. */
  text(value: unknown, path: string): string;
}

export function ctxFor(run: ScriptedRun): GivenCtx {
  const { call, limits } = run;
  const { manifest } = call.script;
  const handler = (call.unit === "producer" ? manifest.producers : manifest.consumers)[call.handler];
  const subscribes = (call.unit !== "producer" && manifest.consumers[call.handler]?.subscribes) || [];

  const only = (what: string, ...phases: string[]): void => {
    if (run.ended) throw new Error("the run that this ctx belonged to has ended");
    if (!phases.includes(run.phase)) run.refuse("phase-violation", `${what} is not allowed in ${run.phase}`);
  };
  const text = (value: unknown, path: string, max = Number.POSITIVE_INFINITY): string => {
    const problem = notData(value, path, []);
    if (problem !== undefined) run.refuse("bad-value", problem);
    const json = JSON.stringify(value);
    if (json.length > max)
      run.refuse("value-too-large", `${path} is ${json.length} characters long; the limit is ${max}`);
    return json;
  };
  const named = (value: unknown, what: string): string => {
    if (typeof value !== "string" || value === "")
      run.refuse("bad-call", `${what} must be a string that is not empty`);
    return value as string;
  };
  const declared = (what: string, topic: unknown, topics: readonly string[]): string => {
    const name = named(topic, `the topic of ${what}`);
    if (!topics.includes(name))
      run.refuse(
        "undeclared-topic",
        `${what}: this handler does not declare the topic ${JSON.stringify(name)}`,
      );
    return name;
  };
  const log = (level: string) => (message: unknown, data?: unknown) => {
    if (run.ended || run.logs.length > limits.logLines) return;
    const full = run.logs.length === limits.logLines;
    const line = full
      ? { level: "warn", message: `more than ${limits.logLines} lines; the rest is dropped`, atMs: run.nowMs }
      : { level, message, data: data === undefined ? undefined : JSON.stringify(data), atMs: run.nowMs };
    run.logs.push(...decodeLogs(JSON.stringify([line]), limits));
  };
  const events = (answer: unknown, limit: number) =>
    (answer as Dict[])
      .slice(0, limit)
      .map(({ messageId, payload, publishedAt }) => ({ messageId, id: messageId, payload, publishedAt }));
  const tool = (alias: string, connector: string, name: string) => (first?: unknown, second?: unknown) => {
    const label = `ctx.${alias}.${name}`;
    if (READS.includes(name)) only(label, "producer", "prepare");
    else if (MUTATIONS.includes(name)) only(label, "mutate");
    else only(label, "producer", "prepare", "mutate");
    const args =
      connector === "http"
        ? { ...(second as object), path: named(first, `the path of ${label}`) }
        : (first ?? {});
    const json = text(args, `the arguments of ${label}`, limits.messageBytes);
    if (run.phase !== "mutate") return run.ask(`${alias}.${name}`, json);
    if (run.intent) run.refuse("two-mutations", `${label} is the second outside change of this run`);
    run.intent = { alias, tool: name, args: JSON.parse(json) };
    return undefined;
  };

  const ctx: Dict = {
    log: { debug: log("debug"), info: log("info"), warn: log("warn"), error: log("error") },
    now: () => run.nowMs,
    params: call.params === undefined ? {} : JSON.parse(call.params),
    run: { ...call.run },
    peek: async (topic: unknown, options?: { limit?: number }) => {
      only("ctx.peek", "prepare");
      const name = declared("ctx.peek", topic, subscribes);
      const asked = options?.limit ?? 100;
      if (!(asked >= 1)) run.refuse("bad-call", "the limit of ctx.peek must be a number from 1 to 1000");
      const limit = Math.min(1_000, Math.floor(asked));
      const shipped = call.peek?.[name];
      const enough = shipped && (shipped.complete || shipped.count >= limit);
      return events(
        enough ? JSON.parse(shipped.events) : await run.ask("peek", JSON.stringify({ topic: name, limit })),
        limit,
      );
    },
    getByIds: async (topic: unknown, ids: unknown) => {
      only("ctx.getByIds", "prepare");
      const name = declared("ctx.getByIds", topic, subscribes);
      if (!Array.isArray(ids)) run.refuse("bad-call", "ctx.getByIds wants a list of messageIds");
      return events(
        await run.ask("getByIds", text({ topic: name, ids }, "the ids of ctx.getByIds", limits.messageBytes)),
        1_000,
      );
    },
    publish: (topic: unknown, event: Dict) => {
      only("ctx.publish", "producer", "next");
      const topics = [topic].flat().map((one) => declared("ctx.publish", one, handler?.publishes ?? []));
      if (typeof event !== "object" || event === null)
        run.refuse("bad-call", "ctx.publish wants { messageId, payload }");
      if (run.publishes.length >= limits.maxPublishes)
        run.refuse("publish-limit", `more than ${limits.maxPublishes} events published by one run`);
      if (event["input"] !== undefined && run.phase !== "producer")
        run.refuse("phase-violation", "only producers name the input of an event; here it is inherited");
      const payload = text(event["payload"] ?? null, "the payload of ctx.publish", limits.messageBytes);
      const messageId = named(event["messageId"], "the messageId of ctx.publish");
      run.publishes.push({ topics, messageId, payload: JSON.parse(payload), input: event["input"] });
    },
    registerInput: (input: Dict) => {
      only("ctx.registerInput", "producer");
      const part = (key: string) => named(input?.[key], `the ${key} of ctx.registerInput`);
      const key = { source: part("source"), type: part("type"), id: part("id") };
      run.inputs.push({ ...key, title: part("title") });
      return key;
    },
  };
  for (const [alias, connector] of Object.entries(manifest.connections))
    ctx[alias] = new Proxy({}, { get: (_, name) => tool(alias, connector, String(name)) });
  return { ctx, text };
}

/** Why a value is not plain JSON data, or nothing. */
function notData(value: unknown, path: string, above: unknown[]): string | undefined {
  if (value === null || typeof value === "string" || typeof value === "boolean") return undefined;
  if (typeof value === "number")
    return Number.isFinite(value) ? undefined : `${path} is ${value}, which JSON cannot carry`;
  if (typeof value !== "object") return `${path} is ${typeof value}, which is not plain data`;
  if (above.length >= MAX_DEPTH) return `${path} is nested more than ${MAX_DEPTH} levels deep`;
  if (above.includes(value)) return `${path} refers back to a value that contains it (a cycle)`;
  const inner = [...above, value];
  const proto: unknown = Object.getPrototypeOf(value);
  if (!Array.isArray(value) && proto !== null && proto !== Object.prototype)
    return `${path} is an instance of a class; hand over a plain object`;
  for (const [key, item] of Object.entries(value)) {
    const problem =
      item === undefined && !Array.isArray(value)
        ? undefined
        : notData(item, Array.isArray(value) ? `${path}[${key}]` : `${path}.${key}`, inner);
    if (problem !== undefined) return problem;
  }
  return undefined;
}
