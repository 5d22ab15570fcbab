/**
 * `ctx` and the world around one unit: what it may ask in which phase, what it has published, and how it ends.
 * Joined with `prelude.ts` as text; everything used here is captured before the author's code runs (P2).
 */
import type { Data } from "./prelude-data.ts";

export type Send = (kind: string, id: number, name: string, json: string) => void;
export type Fn = (...args: unknown[]) => unknown;
export type Dict = Record<string, unknown>;

export interface Invocation {
  unit: "producer" | "prepare" | "mutate" | "prepare+mutate" | "next";
  handler: string;
  runId: string;
  attempt: number;
  now: number;
  seed: string;
  params?: string;
  state?: string;
  prepared?: string;
  outcome?: string;
  peek: Record<string, { events: string; count: number; complete: boolean }>;
  connections: Record<string, string>;
  subscribes: string[];
  publishes: string[];
  logLines: number;
  logLineChars: number;
  maxPublishes: number;
  messageChars: number;
  stateChars: number;
  preparedChars: number;
}

export interface Run {
  now: number;
  seed: string;
  alive: boolean;
  phase: string;
  logs: string[];
  invocation: Invocation;
}

/** One unit of one run; `end` and `fail` count once, after which the whole world is dead. */
export interface World {
  mine: Run;
  ctx: Dict;
  fail: (code: string, message: string) => never;
  end: (kind: string, json: string) => void;
  intent: () => string | undefined;
  effects: () => string;
}

export interface Worlds {
  open: (invocation: Invocation) => World;
  answer: (id: number, json: string) => void;
  log: (owner: Run, level: string, message: unknown, data: unknown) => void;
}

export function worlds(send: Send, { report, describe, text, string }: Data): Worlds {
  const { stringify, parse } = JSON;
  const { create, keys, hasOwn } = Object;
  const { isArray } = Array;
  const { apply } = Reflect;
  const PromiseCtor = Promise;
  const ErrorCtor = Error;
  const ProxyCtor = Proxy;
  const slice = String.prototype.slice;
  const { floor } = Math;
  const cut = (text: string, max: number): string =>
    text.length > max ? apply(slice, text, [0, max]) : text;

  const READ = "read";
  const MUTATION = "mutation";
  const TOOLS: Record<string, Record<string, string>> = {
    http: {
      get: READ,
      head: READ,
      query: READ,
      post: MUTATION,
      put: MUTATION,
      patch: MUTATION,
      delete: MUTATION,
    },
    smtp: { send: MUTATION },
    feed: { fetch: READ },
    file: { read: READ, list: READ, write: MUTATION },
    workflow: { publish: MUTATION },
    webhook: {},
  };
  const READS_IN = ["producer", "prepare"];
  const has = (list: string[], item: string): boolean => {
    for (let i = 0; i < list.length; i++) if (list[i] === item) return true;
    return false;
  };

  let answers: Record<number, (json: string) => void> = create(null);
  let calls = 0;

  const log = (owner: Run, level: string, message: unknown, data: unknown): void => {
    const { logLines, logLineChars } = owner.invocation;
    if (!owner.alive || owner.logs.length > logLines) return;
    if (owner.logs.length === logLines) {
      owner.logs[logLines] = stringify({
        __proto__: null,
        level: "warn",
        message: `more than ${logLines} lines; the rest is dropped`,
        atMs: owner.now,
      });
      return;
    }
    let json: string | undefined;
    try {
      json = data === undefined ? undefined : cut(stringify(data) ?? describe(data), logLineChars);
    } catch {
      json = '"(data that cannot be written as JSON)"';
    }
    let line = "(a message that cannot be read)";
    try {
      line = cut(
        typeof message === "string" ? message : (stringify(message) ?? describe(message)),
        logLineChars,
      );
    } catch {}
    owner.logs[owner.logs.length] = stringify({
      __proto__: null,
      level,
      message: line,
      data: json,
      atMs: owner.now,
    });
  };

  /** One unit's world: its `ctx`, what it has asked for, and how it ends. */
  const open = (invocation: Invocation) => {
    const mine: Run = {
      now: invocation.now,
      seed: invocation.seed,
      alive: true,
      phase: "",
      logs: [],
      invocation,
    };
    const publishes: string[] = [];
    const inputs: string[] = [];
    let intent: string | undefined;
    const end = (kind: string, json: string): void => {
      if (!mine.alive) return;
      send(kind, 0, joined(mine.logs), json); // First: at the edge of the stack it throws, and the run is not over.
      mine.alive = false;
      answers = create(null);
    };
    const fail = (code: string, message: string): never => {
      const error = new ErrorCtor(message);
      end("fail", report(code, error));
      throw error;
    };
    const only = (what: string, ...phases: string[]): void => {
      if (!mine.alive) throw new ErrorCtor("the run that this ctx belonged to has ended");
      if (!has(phases, mine.phase)) fail("phase-violation", `${what} is not allowed in ${mine.phase}`);
    };
    const ask = (name: string, args: string): Promise<unknown> => {
      const id = ++calls;
      return new PromiseCtor((resolve) => {
        answers[id] = (json) => resolve(parse(json));
        send("call", id, name, args);
      });
    };
    const tool = (alias: string, connector: string, name: string, kind: string | undefined): Fn => {
      const label = `ctx.${alias}.${name}`;
      return (first?: unknown, second?: unknown) => {
        const reads = has(READS_IN, mine.phase);
        if (kind === READ) only(label, "producer", "prepare");
        else if (kind === MUTATION) only(label, "mutate");
        else only(label, "producer", "prepare", "mutate");
        const args =
          connector === "http"
            ? { ...(second as object), path: string(first, `the path of ${label}`) }
            : (first ?? {});
        const json = text(args, `the arguments of ${label}`, invocation.messageChars);
        if (reads) return ask(`${alias}.${name}`, json);
        if (intent !== undefined) fail("two-mutations", `${label} is the second outside change of this run`);
        intent = `{"alias":${stringify(alias)},"tool":${stringify(name)},"args":${json}}`;
        return undefined;
      };
    };
    const toolsOf = (alias: string, connector: string): object => {
      const known = hasOwn(TOOLS, connector) ? TOOLS[connector] : undefined;
      if (!known) {
        const tools: Dict = create(null);
        return new ProxyCtor(tools, {
          get: (_, name) =>
            typeof name !== "string" || name === "then" || name === "toJSON"
              ? undefined
              : tool(alias, connector, name, undefined),
        });
      }
      const tools: Dict = {};
      const names = keys(known);
      for (let i = 0; i < names.length; i++) {
        const name = names[i] as string;
        tools[name] = tool(alias, connector, name, known[name]);
      }
      return tools;
    };
    const inTopics = (what: string, topic: unknown, allowed: string[]): string => {
      const name = string(topic, `the topic of ${what}`);
      if (!has(allowed, name))
        fail(
          "undeclared-topic",
          `${what}: this handler does not declare the topic ${stringify(cut(name, 80))}`,
        );
      return name;
    };
    const ctx: Dict = {
      log: {
        debug: (m: unknown, d: unknown) => log(mine, "debug", m, d),
        info: (m: unknown, d: unknown) => log(mine, "info", m, d),
        warn: (m: unknown, d: unknown) => log(mine, "warn", m, d),
        error: (m: unknown, d: unknown) => log(mine, "error", m, d),
      },
      now: () => mine.now,
      params: invocation.params === undefined ? {} : parse(invocation.params),
      run: { id: invocation.runId, attempt: invocation.attempt },
      peek: async (topic: unknown, options?: { limit?: number }) => {
        only("ctx.peek", "prepare");
        const name = inTopics("ctx.peek", topic, invocation.subscribes);
        const asked = options?.limit ?? 100;
        if (typeof asked !== "number" || !(asked >= 1))
          fail("bad-call", "the limit of ctx.peek must be a number from 1 to 1000");
        const limit = asked > 1000 ? 1000 : floor(asked);
        const shipped = hasOwn(invocation.peek, name) ? invocation.peek[name] : undefined;
        const answer = (
          shipped && (shipped.complete || shipped.count >= limit)
            ? parse(shipped.events)
            : await ask("peek", stringify({ __proto__: null, topic: name, limit }))
        ) as Dict[];
        return events(answer, limit);
      },
      getByIds: async (topic: unknown, ids: unknown) => {
        only("ctx.getByIds", "prepare");
        const name = inTopics("ctx.getByIds", topic, invocation.subscribes);
        if (!isArray(ids)) fail("bad-call", "ctx.getByIds wants a list of messageIds");
        const json = text(ids, "the ids of ctx.getByIds", invocation.messageChars);
        return events((await ask("getByIds", `{"topic":${stringify(name)},"ids":${json}}`)) as Dict[], 1000);
      },
      publish: (topic: unknown, event: Dict) => {
        only("ctx.publish", "producer", "next");
        const list = isArray(topic) ? topic : [topic];
        if (list.length === 0) fail("bad-call", "ctx.publish wants at least one topic");
        const names: string[] = [];
        for (let i = 0; i < list.length; i++)
          names[i] = inTopics("ctx.publish", list[i], invocation.publishes);
        if (typeof event !== "object" || event === null)
          fail("bad-call", "ctx.publish wants { messageId, payload }");
        if (publishes.length >= invocation.maxPublishes)
          fail("publish-limit", `more than ${invocation.maxPublishes} events published by one run`);
        const { messageId, payload, input } = event;
        if (input !== undefined && mine.phase !== "producer")
          fail("phase-violation", "only producers name the input of an event; here it is inherited");
        publishes[publishes.length] =
          `{"topics":${stringify(names)},"messageId":${stringify(string(messageId, "the messageId of ctx.publish"))},"payload":${payload === undefined ? "null" : text(payload, "the payload of ctx.publish", invocation.messageChars)}${input === undefined ? "" : `,"input":${text(input, "the input of ctx.publish", 5000)}`}}`;
      },
      registerInput: (input: Dict) => {
        only("ctx.registerInput", "producer");
        if (typeof input !== "object" || input === null)
          fail("bad-call", "ctx.registerInput wants { source, type, id, title }");
        const key = {
          source: string(input["source"], "the source of ctx.registerInput"),
          type: string(input["type"], "the type of ctx.registerInput"),
          id: string(input["id"], "the id of ctx.registerInput"),
        };
        if (inputs.length >= invocation.maxPublishes)
          fail("publish-limit", `more than ${invocation.maxPublishes} inputs registered by one run`);
        inputs[inputs.length] = stringify({
          __proto__: null,
          ...key,
          title: cut(string(input["title"], "the title of ctx.registerInput"), 500),
        });
        return key;
      },
    };
    const aliases = keys(invocation.connections);
    for (let i = 0; i < aliases.length; i++) {
      const alias = aliases[i] as string;
      ctx[alias] = toolsOf(alias, invocation.connections[alias] as string);
    }
    return {
      mine,
      ctx,
      fail,
      end,
      intent: () => intent,
      effects: () => `"publishes":[${joined(publishes)}],"inputs":[${joined(inputs)}]`,
    };
  };
  const events = (list: Dict[], limit: number): Dict[] => {
    const given: Dict[] = [];
    for (let i = 0; i < list.length && i < limit; i++) {
      const { messageId, payload, publishedAt } = list[i] as Dict;
      given[i] = { messageId, id: messageId, payload, publishedAt };
    }
    return given;
  };
  const joined = (parts: string[]): string => {
    let out = "";
    for (let i = 0; i < parts.length; i++) out += i === 0 ? parts[i] : `,${parts[i]}`;
    return out;
  };

  const answer = (id: number, json: string): void => {
    const resolve = answers[id];
    delete answers[id];
    resolve?.(json);
  };
  return { open, answer, log };
}
