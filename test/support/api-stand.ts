/** A host that listens on this machine, and whoever asks it. Every answer is held to the contract's shape. */
import { once } from "node:events";
import { connect } from "node:net";
import { createHost, type Host, type HostEvent, type HostOptions } from "../../host/index.ts";
import { worlds } from "../../host/host.ts";
import type { ListenOptions, Listening } from "../../host/api/server.ts";

export const ADMIN = "admin-token-of-the-tests-0123456789abcdef";

// Answers are held to their schema by the server; a test looks at what it is about.
// oxlint-disable-next-line typescript/no-explicit-any
export type Loose = any;

export interface Asked {
  status: number;
  body: Loose;
  text: string;
  headers: Headers;
}

export interface Ask {
  body?: unknown;
  token?: string | null;
  namespace?: string;
  headers?: Record<string, string>;
  /** Sent as it is. */
  raw?: string | Uint8Array<ArrayBuffer>;
}

const open: { host: Host }[] = [];

export async function closeStands(): Promise<void> {
  for (const { host } of open.splice(0)) await host.stop();
}

export class Stand {
  readonly host: Host;
  readonly listening: Listening;
  readonly world: ReturnType<typeof worlds.memory>;
  readonly warnings: string[];
  readonly events: HostEvent[];
  readonly #waiting: Set<() => void>;

  constructor(
    parts: Pick<Stand, "host" | "listening" | "world" | "warnings" | "events"> & { waiting: Set<() => void> },
  ) {
    this.host = parts.host;
    this.listening = parts.listening;
    this.world = parts.world;
    this.warnings = parts.warnings;
    this.events = parts.events;
    this.#waiting = parts.waiting;
  }

  /** `"GET /workflows"`; below `/api/v1` unless the path says `/`-something else with a leading `!`. */
  async ask(call: string, { body, token = ADMIN, namespace, headers = {}, raw }: Ask = {}): Promise<Asked> {
    const [method = "GET", path = "/"] = call.split(" ", 2);
    const url = `http://127.0.0.1:${this.listening.port}${path.startsWith("!") ? path.slice(1) : `/api/v1${path}`}`;
    const response = await fetch(url, {
      method,
      headers: {
        ...(token === null ? {} : { authorization: `Bearer ${token}` }),
        ...(body === undefined && raw === undefined ? {} : { "content-type": "application/json" }),
        ...(namespace === undefined ? {} : { "pawl-namespace": namespace }),
        ...headers,
      },
      ...(raw !== undefined ? { body: raw } : body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    const isJson = response.headers.get("content-type") === "application/json";
    return {
      status: response.status,
      body: isJson ? JSON.parse(text) : undefined,
      text,
      headers: response.headers,
    };
  }

  /** Asks until it is so; every event of the host is a reason to ask again. */
  async until<Found>(look: () => Promise<Found | undefined | false>): Promise<Found> {
    for (;;) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#waiting.add(resolve);
      const found = await look();
      if (found) return found;
      await promise;
      this.#waiting.delete(resolve);
    }
  }

  /** Bytes as they are; resolves with what came back until the other side has closed. */
  async send(bytes: string): Promise<string> {
    const socket = connect(this.listening.port, "127.0.0.1");
    let said = "";
    socket.setEncoding("latin1").on("data", (piece: string) => (said += piece));
    socket.on("error", () => {});
    await once(socket, "connect");
    const { promise: closed, resolve } = Promise.withResolvers<void>();
    socket.on("close", () => resolve());
    socket.end(bytes);
    await closed;
    return said;
  }
}

export async function stand(options: HostOptions & { listen?: ListenOptions } = {}): Promise<Stand> {
  const { listen = {}, ...rest } = options;
  const warnings: string[] = [];
  const events: HostEvent[] = [];
  const waiting = new Set<() => void>();
  const world = worlds.memory();
  const host = createHost({
    world,
    minIntervalMs: 1_000,
    ...rest,
    observe: (event) => {
      events.push(event);
      if (event.kind === "engine.warning") warnings.push(event.message);
      for (const go of waiting) go();
      rest.observe?.(event);
    },
  });
  open.push({ host });
  await host.start();
  const listening = await host.listen({
    port: 0,
    adminToken: ADMIN,
    checkAnswers: true,
    perSecond: 100_000,
    ...listen,
  });
  return new Stand({ host, listening, world, warnings, events, waiting });
}

/** A consumer that changes something outside, fed by events from outside; its outcome is what the world says. */
export const orders = (name = "orders") => `import { consumer, topic, workflow } from "pawl";
export default workflow({
  name: ${JSON.stringify(name)},
  description: "books orders",
  connections: { ledger: "http" },
  params: { account: { type: "string", default: "revenue" } },
  topics: { order: topic<{ id: string }>(), booked: topic<{ id: string }>({ output: true }) },
  consumers: { book: consumer({ subscribes: ["order"], publishes: ["booked"],
    async prepare(ctx) {
      ctx.log.info("looking");
      const [event] = await ctx.peek("order", { limit: 1 });
      if (!event) return { reservations: [] };
      return { reservations: [{ topic: "order", ids: [event.messageId] }], data: event.payload, ui: { title: "Book" } };
    },
    mutate(ctx, prepared) { ctx.ledger.post("/entries", { body: { id: prepared.data.id } }); },
    next(ctx, prepared, outcome) { if (outcome.status === "applied") ctx.publish("booked", { messageId: prepared.data.id, payload: prepared.data }); },
  }) },
});`;

/** A producer on a schedule that only a person ever starts. */
export const ticks = (name = "ticks") => `import { producer, topic, workflow } from "pawl";
export default workflow({
  name: ${JSON.stringify(name)},
  topics: { tick: topic<{ n: number }>({ output: true }) },
  producers: { tick: producer({ schedule: { interval: "1d" }, publishes: ["tick"], handler(ctx, state) {
    const n = (state ?? 0) + 1;
    ctx.publish("tick", { messageId: "t" + n, payload: { n } });
    return n;
  } }) },
});`;
