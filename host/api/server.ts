/**
 * The HTTP server of a host: it listens, finds the call that a request means, and drains when the host stops.
 *
 * V1. Headers, bodies and idle connections have limits of their own, before any code of ours sees a request.
 * V2. When it closes, nothing new is taken in, what is being answered is answered, and streams end.
 * V3. The first admin's token is made and shown once, unless the operator gives one.
 */
import { randomBytes } from "node:crypto";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { createAdaptorServer, type HttpBindings } from "@hono/node-server";
import { Hono } from "hono";
import { PawlError } from "../core/errors.ts";
import { Broadcast } from "./broadcast.ts";
import { Counters } from "./counters.ts";
import { type CallName, placeOf } from "./contract-paths.ts";
import { type Counter, exchange, idOf, refused } from "./exchange.ts";
import { gateOf } from "./gate.ts";
import { Once } from "./once.ts";
import { CALLS } from "./openapi.ts";
import { Pace } from "./pace.ts";
import { hashOf, newSecret, Principals } from "./principal.ts";
import { Refusal } from "./problems.ts";
import type { Served, Serving } from "./serving.ts";

export interface ListenOptions {
  /** 7420 unless told; 0 takes any that is free. */
  port?: number;
  /** 127.0.0.1 unless told. Any other address needs `publicUrl` or `allowedHosts`. */
  listen?: string;
  /** Where clients reach it, for example behind a proxy. */
  publicUrl?: string;
  /** Further names that it answers to. */
  allowedHosts?: readonly string[];
  /** Believe what a proxy says about who asks, and by which name. */
  trustProxy?: boolean;
  /** The first admin's token; without it one is made when there is none. */
  adminToken?: string;
  /** Requests of one token in a second; twice as many at once. */
  perSecond?: number;
  /** Tests: an answer that does not have its shape is an error. */
  checkAnswers?: boolean;
}

export interface Listening {
  url: string;
  port: number;
  /** Made now, and never shown again. */
  adminToken?: string;
  close(): Promise<void>;
}

const PORT = 7_420;
const PER_SECOND = 2_000;
const STRANGERS_PER_SECOND = 20;
const MOST_HEADER_BYTES = 16_384;
const HEADERS_MS = 10_000;
const REQUEST_MS = 60_000;
const IDLE_MS = 65_000;
const DRAIN_MS = 10_000;
const LOOPBACK = /^(127(\.\d{1,3}){3}|::1|localhost)$/;
const LEAST_TOKEN_CHARS = 32;

type Bindings = { Bindings: HttpBindings };

export async function openServer(served: Served, options: ListenOptions = {}): Promise<Listening> {
  const { port = PORT, listen = "127.0.0.1", publicUrl, perSecond = PER_SECOND } = options;
  if (!LOOPBACK.test(listen) && publicUrl === undefined && (options.allowedHosts ?? []).length === 0)
    throw new PawlError(
      "listen-unsafe",
      `listening on ${listen} needs --public-url or --allowed-hosts: by which names may it be asked?`,
    );
  const state = { isStopping: false };
  const serving = servingOf(served, state, publicUrl?.startsWith("https:") ?? false);
  const adminToken = await firstAdmin(served, options.adminToken); // (V3)
  const counter: Counter = {
    serving,
    gate: gateOf({ ...options, listen }),
    once: new Once(() => served.open().kept.answers),
    pace: new Pace(perSecond),
    strangers: new Pace(STRANGERS_PER_SECOND, 10 * STRANGERS_PER_SECOND),
    checkAnswers: options.checkAnswers ?? false,
  };
  const server = createAdaptorServer({
    fetch: appOf(counter).fetch,
    overrideGlobalObjects: false,
    serverOptions: {
      maxHeaderSize: MOST_HEADER_BYTES,
      headersTimeout: HEADERS_MS,
      requestTimeout: REQUEST_MS,
      keepAliveTimeout: IDLE_MS,
      connectionsCheckingInterval: 1_000,
      noDelay: true,
    }, // (V1)
  }) as Server;
  const unwatch = served.watch((happening) => {
    serving.counters.saw(happening);
    serving.broadcast.saw(happening);
  });
  await listening(server, port, listen);
  const { port: actual } = server.address() as AddressInfo;
  const name = listen.includes(":") ? `[${listen}]` : listen;
  return {
    url: publicUrl ?? `http://${name}:${actual}`,
    port: actual,
    ...(adminToken === undefined ? {} : { adminToken }),
    close: async () => {
      state.isStopping = true;
      unwatch();
      serving.broadcast.close();
      await drained(server);
    },
  };
}

function servingOf(served: Served, state: { isStopping: boolean }, isSecure: boolean): Serving {
  const { open, desk, hide, warn } = served;
  const nowMs = () => open().parts.clock.nowMs();
  const principals = new Principals(() => open().kept.tokens, nowMs);
  const counters = new Counters();
  const broadcast = new Broadcast({
    life: open().parts.store.fence.incarnation.toString(36) + randomBytes(4).toString("hex"),
    nameOf: (workflow) => open().records.nameOf(workflow),
    holds: (token) => principals.holds(token),
  });
  counters.gauge("pawl_streams", () => broadcast.size);
  return {
    open,
    desk,
    hide,
    warn,
    principals,
    counters,
    broadcast,
    isSecure,
    isStopping: () => state.isStopping,
  };
}

function appOf(counter: Counter): Hono<Bindings> {
  const app = new Hono<Bindings>();
  for (const name of CALLS) {
    const { method, path } = placeOf(name);
    app.on(method, path.replaceAll(/\{(\w+)\}/g, ":$1"), async (c) => {
      const incoming = c.env.incoming;
      const answer = await exchange(counter, name, incoming, {
        url: new URL(incoming.url ?? "/", "http://host"),
        params: c.req.param() as Record<string, string>,
        signal: c.req.raw.signal,
      });
      return answer;
    });
  }
  app.notFound((c) => {
    const { incoming } = c.env;
    const allowed = methodsAt(c.req.path);
    const refusal =
      allowed.length > 0
        ? new Refusal("method-not-allowed", "this path has other methods", {}, { allow: allowed.join(", ") })
        : new Refusal("not-found", "there is no such path");
    return refused(counter.serving, refusal, idOf(incoming), "none");
  });
  app.onError((error, c) => {
    counter.serving.warn(`a request failed: ${error.stack ?? error.message}`);
    const refusal = new Refusal("internal", "the host failed");
    return refused(counter.serving, refusal, idOf(c.env.incoming), "none");
  });
  return app;
}

const PATTERNS = CALLS.map((name: CallName) => {
  const { method, path } = placeOf(name);
  return { method, pattern: new RegExp(`^${path.replaceAll(".", "\\.").replaceAll(/\{\w+\}/g, "[^/]+")}$`) };
});

const methodsAt = (path: string): string[] => [
  ...new Set(PATTERNS.filter(({ pattern }) => pattern.test(path)).map(({ method }) => method)),
];

/** (V3) */
async function firstAdmin({ open, hide }: Served, given: string | undefined): Promise<string | undefined> {
  const { kept, parts } = open();
  const nowMs = parts.clock.nowMs();
  const make = async (secret: string) => {
    hide(secret);
    const token = { hash: hashOf(secret), name: "first admin", role: "admin" } as const;
    await kept.tokens.create(token, { actor: "host", atMs: nowMs });
  };
  if (given !== undefined) {
    if (given.length < LEAST_TOKEN_CHARS || !/^[\w-]+$/.test(given))
      throw new PawlError(
        "admin-token-weak",
        `PAWL_ADMIN_TOKEN is shorter than ${LEAST_TOKEN_CHARS} characters, or has others than letters, digits, _ and -`,
      );
    hide(given);
    if (!(await kept.tokens.hashed(hashOf(given)))) await make(given);
    return undefined;
  }
  if (await kept.tokens.hasAdmin(nowMs)) return undefined;
  const secret = newSecret("pawl");
  await make(secret);
  return secret;
}

function listening(server: Server, port: number, host: string): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  server.once("error", (error: NodeJS.ErrnoException) => {
    const why = error.code === "EADDRINUSE" ? "another program listens there" : error.message;
    reject(new PawlError("listen-failed", `${host}:${port}: ${why}`, { cause: error }));
  });
  server.listen(port, host, () => resolve());
  return promise;
}

/** (V2) */
async function drained(server: Server): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  server.close(() => resolve());
  server.closeIdleConnections();
  const impatient = setTimeout(() => server.closeAllConnections(), DRAIN_MS);
  // A connection that falls idle while others are answered is let go at once, too.
  const sweeping = setInterval(() => server.closeIdleConnections(), 50);
  await promise;
  clearTimeout(impatient);
  clearInterval(sweeping);
}
