/**
 * One request from its headers to its answer: the same steps in the same order for every call of the contract.
 *
 * E1. Nothing of a body is read before it is known who asks and that they may.
 * E2. Every answer has the request's id, and no answer holds anything of the host's inside.
 */
import { randomUUID } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { routeOf } from "./contract.ts";
import { type CallName, placeOf } from "./contract-paths.ts";
import type { Call, Reply, Routes } from "./call.ts";
import { DOCS_POLICY } from "./docs-page.ts";
import { addressOf, admit, type Gate } from "./gate.ts";
import type { Once, Said } from "./once.ts";
import type { Pace } from "./pace.ts";
import { authorize, namespaceOf, type Principal } from "./principal.ts";
import { problemBody, Refusal, refusalOf } from "./problems.ts";
import { readBody, readBytes, readQuery } from "./reading.ts";
import { adminRoutes } from "./routes-admin.ts";
import { eventRoutes } from "./routes-events.ts";
import { hostRoutes } from "./routes-host.ts";
import { runRoutes } from "./routes-runs.ts";
import { workflowRoutes } from "./routes-workflows.ts";
import type { Serving } from "./serving.ts";

type Route = (call: Call<CallName>) => Promise<Reply<unknown>>;

const EVERY: Routes<CallName> = {
  ...workflowRoutes,
  ...runRoutes,
  ...eventRoutes,
  ...adminRoutes,
  ...hostRoutes,
};
const ROUTES = EVERY as unknown as Record<CallName, Route>;

export interface Counter {
  serving: Serving;
  gate: Gate;
  once: Once;
  /** By token. */
  pace: Pace;
  /** Names that nobody has, by address. */
  strangers: Pace;
  /** Tests: an answer that does not have its shape is an error. */
  checkAnswers: boolean;
}

const JSON_POLICY = "default-src 'none'; frame-ancestors 'none'";

const COMMON = {
  "cache-control": "no-store",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
} as const;

export async function exchange(
  counter: Counter,
  name: CallName,
  incoming: IncomingMessage,
  { url, params, signal }: { url: URL; params: Record<string, string>; signal: AbortSignal },
): Promise<Response> {
  const requestId = idOf(incoming);
  try {
    const said = await steps(counter, name, incoming, { url, params, signal });
    counter.serving.counters.add("pawl_http_requests_total", { call: name, status: String(said.status) });
    return new Response(said.body, {
      status: said.status,
      headers: { ...COMMON, "x-request-id": requestId, ...said.headers },
    });
  } catch (thrown) {
    return refused(counter.serving, refusalFor(counter.serving, thrown, requestId), requestId, name);
  }
}

/** What is unknown is logged under the request's id; the client learns that id alone. (E2) */
function refusalFor({ warn, isStopping }: Serving, thrown: unknown, requestId: string): Refusal {
  const refusal = refusalOf(thrown);
  if (refusal.code !== "internal") return refusal;
  if (isStopping()) return new Refusal("stopping", "the host is shutting down");
  const said = thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown);
  warn(`request ${requestId} failed: ${said}`);
  return refusal;
}

export function refused(
  { counters }: Pick<Serving, "counters">,
  refusal: Refusal,
  requestId: string,
  call: string,
): Response {
  counters.add("pawl_http_requests_total", { call, status: String(refusal.status) });
  return new Response(JSON.stringify(problemBody(refusal, requestId)), {
    status: refusal.status,
    headers: {
      ...COMMON,
      "content-type": "application/json",
      "content-security-policy": JSON_POLICY,
      "x-request-id": requestId,
      ...refusal.headers,
    },
  });
}

interface Outgoing {
  status: number;
  body: string | ReadableStream;
  headers: Record<string, string>;
}

async function steps(
  counter: Counter,
  name: CallName,
  incoming: IncomingMessage,
  { url, params, signal }: { url: URL; params: Record<string, string>; signal: AbortSignal },
): Promise<Outgoing> {
  const { serving, gate } = counter;
  const route = routeOf(name);
  const { method } = placeOf(name);
  admit(incoming, gate, route.role === "nobody" && method === "GET");
  if (serving.isStopping() && name !== "getHealth" && name !== "getReadiness")
    throw new Refusal("stopping", "the host is shutting down", {}, { connection: "close" });
  const { clock } = serving.open().parts;
  const nowMs = clock.nowMs();
  const principal = route.role === "nobody" ? undefined : await whoAsks(counter, incoming, method, nowMs);
  // Whoever says no name yet is counted by where they come from.
  if (name === "login") counter.strangers.take(addressOf(incoming, gate), nowMs);
  const asked = incoming.headers["pawl-namespace"];
  const namespace = namespaceOf(principal, typeof asked === "string" ? asked : undefined);
  if (principal) authorize(principal, route);
  const query = readQuery(url.searchParams, route.query);
  const bytes = await readBytes(incoming, route); // (E1)
  const body = route.raw ? undefined : readBody(bytes, incoming, route.body);
  const call = { name, params, query, body, desk: serving.desk(namespace), principal, serving };
  const whole = { ...call, incoming, bytes, nowMs, signal } as unknown as Call<CallName>;
  const key = incoming.headers["idempotency-key"];
  if (method !== "POST" || typeof key !== "string" || !principal) return await answered(counter, name, whole);
  return once(counter, name, whole, { key, target: `${method} ${namespace} ${url.pathname}${url.search}` });
}

async function whoAsks(
  { serving, gate, pace, strangers }: Counter,
  incoming: IncomingMessage,
  method: string,
  nowMs: number,
): Promise<Principal> {
  const { authorization, cookie } = incoming.headers;
  const csrf = incoming.headers["pawl-csrf"];
  const address = addressOf(incoming, gate);
  strangers.assert(address, nowMs);
  try {
    const principal = await serving.principals.of({
      authorization,
      cookie,
      csrf: typeof csrf === "string" ? csrf : undefined,
      isChange: method !== "GET",
    });
    pace.take(String(principal.token), nowMs);
    return principal;
  } catch (error) {
    if (error instanceof Refusal && error.code === "unauthenticated") strangers.take(address, nowMs);
    throw error;
  }
}

/** A refusal is an answer, too: the same key gets it again. */
async function once(
  counter: Counter,
  name: CallName,
  call: Call<CallName>,
  { key, target }: { key: string; target: string },
): Promise<Outgoing> {
  const { principal, bytes, nowMs } = call;
  const isSecret = routeOf(name).secret === true;
  let headers: Record<string, string> = {
    "content-type": "application/json",
    "content-security-policy": JSON_POLICY,
  };
  const request = { principal: String(principal?.token), key, target, bytes, isSecret, nowMs };
  const said = await counter.once.make(request, async (): Promise<Said> => {
    try {
      const made = await answered(counter, name, call);
      headers = made.headers;
      return { status: made.status, text: typeof made.body === "string" ? made.body : "" };
    } catch (thrown) {
      const refusal = refusalOf(thrown);
      if (refusal.code === "internal" || refusal.status >= 500) throw thrown;
      headers = { ...headers, ...refusal.headers };
      return { status: refusal.status, text: JSON.stringify(problemBody(refusal, idOf(call.incoming))) };
    }
  });
  return { status: said.status, body: said.text, headers };
}

async function answered(counter: Counter, name: CallName, call: Call<CallName>): Promise<Outgoing> {
  const { media, answer, statuses = [200] } = routeOf(name);
  const { status = statuses[0] ?? 200, body, headers = {} } = await ROUTES[name](call);
  if (media !== undefined) {
    const policy = media.startsWith("text/html") ? DOCS_POLICY : JSON_POLICY;
    const said = { "content-type": media, "content-security-policy": policy, ...headers };
    return { status, body: body as string | ReadableStream, headers: said };
  }
  if (counter.checkAnswers) {
    const checked = answer.safeParse(body);
    if (!checked.success) throw new Error(`${name} answers another shape: ${checked.error.message}`);
    if (!statuses.includes(status)) throw new Error(`${name} answers ${status}`);
  }
  const said = { "content-type": "application/json", "content-security-policy": JSON_POLICY, ...headers };
  return { status, body: JSON.stringify(body), headers: said };
}

const GIVEN = new WeakMap<IncomingMessage, string>();

/** The client's own, if it is harmless. */
export function idOf(incoming: IncomingMessage): string {
  const known = GIVEN.get(incoming);
  if (known !== undefined) return known;
  const said = incoming.headers["x-request-id"];
  const id = typeof said === "string" && /^[\w.-]{1,64}$/.test(said) ? said : `req_${randomUUID()}`;
  GIVEN.set(incoming, id);
  return id;
}
