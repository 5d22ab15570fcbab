// A host with real connections, as whoever embeds it uses them: put, bind, grant, reconnect, consent, be told. The outside is
// a small service on this machine that counts.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { verifyHook, signHook, webhook } from "../../host/connectors/webhook.ts";
import { formatId } from "../../host/core/ids.ts";
import { createHost, type Host, type HostEvent, type HostOptions } from "../../host/index.ts";
import { Canaries } from "../support/canaries.ts";

const TOKEN = "a-token-nobody-may-see";

interface Request {
  method: string;
  path: string;
  authorization: string | undefined;
  headers: NodeJS.Dict<string | string[]>;
  body: string;
}

/** Answers what the test says, and remembers what it was asked. */
class Service implements AsyncDisposable {
  readonly requests: Request[] = [];
  token = TOKEN;
  onRequest: (request: Request) => number = () => 200;
  readonly #server = createServer((incoming, response) => {
    let body = "";
    incoming.setEncoding("utf8").on("data", (text: string) => (body += text));
    incoming.on("end", () => {
      const { method = "", url = "", headers } = incoming;
      const request = { method, path: url, authorization: headers.authorization, headers, body };
      this.requests.push(request);
      const known = headers.authorization === `Bearer ${this.token}`;
      const status = known ? this.onRequest(request) : 401;
      response.writeHead(status, { "content-type": "application/json" }).end('{"id":"e-1"}');
    });
  });

  async open(): Promise<this> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return this;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  changes(): string[] {
    return this.requests.filter(({ method }) => method === "POST").map(({ path }) => path);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

const script = (name: string, { alias = "ledger", mutates = true, more = "" } = {}) => `
import { consumer, topic, workflow } from "pawl";
export default workflow({
  name: ${JSON.stringify(name)},
  connections: { ${alias}: "http"${more === "" ? "" : `, ${more}: "http"`} },
  topics: { order: topic<{ id: string }>() },
  consumers: {
    book: consumer({
      subscribes: ["order"],
      async prepare(ctx) {
        const [event] = await ctx.peek("order", { limit: 1 });
        if (!event) return { reservations: [] };
        return { reservations: [{ topic: "order", ids: [event.messageId] }], data: event.payload, ui: { title: "book" } };
      },
      ${mutates ? `mutate(ctx, prepared) { ctx.${alias}.post("/entries", { body: prepared.data }); },` : ""}
    }),
  },
});`;

let service: Service;
const opened: Host[] = [];
beforeEach(async () => {
  service = await new Service().open();
});
afterEach(async () => {
  for (const host of opened.splice(0)) await host.stop();
  await service[Symbol.asyncDispose]();
});

async function open(options: HostOptions = {}) {
  const events: HostEvent[] = [];
  const waiting: { fits: (event: HostEvent) => boolean; done: () => void }[] = [];
  const host = createHost({
    ...options,
    observe: (event) => {
      events.push(event);
      for (const one of waiting) if (one.fits(event)) one.done();
    },
  });
  opened.push(host);
  await host.start();
  /** A run of this handler ends in this status; those before it do not count. */
  const ended = (status: string, handler = "book") =>
    new Promise<void>((done) => {
      const fits = (event: HostEvent) =>
        event.kind === "run.ended" &&
        event.facts.handler.name === handler &&
        event.facts.run.status === status &&
        (status !== "committed" || event.facts.run.outcome !== undefined);
      waiting.push({ fits, done });
    });
  return { host, ended, events };
}

const connection = (name = "ledger", token = TOKEN) => ({
  name,
  connector: "http",
  config: { baseUrl: service.url, allowPrivateNetwork: true, auth: { scheme: "bearer" } },
  secrets: { token },
});
const order = (id: string) => ({ topic: "order", messageId: id, payload: { id } });
const openRun = async (host: Host) => (await host.runs({ open: true })).items[0]?.run;

describe("a connection", () => {
  test("(C1) that does not fit is refused with what is wrong and where, and no answer holds a secret", async () => {
    const { host } = await open();
    const { connections } = host;
    const wrong = await connections.put({ ...connection(), config: { baseUrl: "nonsense", colour: "red" } });
    expect(wrong).toMatchObject({ ok: false, code: "connection-invalid" });
    expect(wrong.ok ? [] : wrong.misfits?.map((one) => one.path)).toEqual([
      "config.baseUrl",
      "config.colour",
    ]);
    expect(await connections.put({ ...connection(), secrets: null })).toMatchObject({
      ok: false,
      misfits: [{ path: "secrets.token", message: "is missing: the scheme bearer needs it" }],
    });
    expect(await connections.put({ ...connection(), connector: "htp" })).toMatchObject({
      ok: false,
      message: "this host has no connector htp; did you mean http?",
    });
    expect(await connections.put({ ...connection(), name: "no name" })).toMatchObject({ ok: false });
    const put = await connections.put(connection());
    expect(put).toMatchObject({
      ok: true,
      connection: { name: "ledger", hasSecrets: true, configVersion: 1 },
    });
    const told = JSON.stringify([wrong, put, await connections.list(), await connections.get("ledger")]);
    expect(new Canaries(TOKEN).in(told)).toEqual([]);
  });

  test("(C3) put again is left alone; new secrets alone keep the config's version", async () => {
    const { host } = await open();
    await host.connections.put(connection());
    const { updatedAtMs } = (await host.connections.get("ledger")) as { updatedAtMs: number };
    await host.connections.put(connection());
    expect(await host.connections.get("ledger")).toMatchObject({ updatedAtMs, configVersion: 1 });
    await host.connections.put(connection("ledger", "another-token"));
    expect(await host.connections.get("ledger")).toMatchObject({ configVersion: 1 });
    const { config } = connection();
    await host.connections.put({ ...connection(), config: { ...config, settleMs: 1 } });
    expect(await host.connections.get("ledger")).toMatchObject({ configVersion: 2 });
  });

  test("is checked at its service, and one in use is not removed", async () => {
    const { host } = await open();
    await host.connections.put(connection());
    expect(await host.connections.check("ledger")).toMatchObject({ ok: true, health: { status: "ok" } });
    service.token = "changed";
    expect(await host.connections.check("ledger")).toMatchObject({ ok: true, health: { status: "auth" } });
    expect(await host.connections.get("ledger")).toMatchObject({ lastCheck: { status: "auth" } });
    await host.deploy({ source: script("orders") });
    expect(await host.connections.remove("ledger")).toMatchObject({ ok: false, code: "connection-in-use" });
    expect(await host.connections.check("nobody")).toMatchObject({ ok: false, code: "not_found" });
  });

  test("of one namespace is not there for another", async () => {
    const { host } = await open();
    await host.connections.put(connection());
    const acme = host.namespace("acme");
    expect(await acme.connections.list()).toEqual([]);
    expect(await acme.deploy({ source: script("orders") })).toMatchObject({
      ok: false,
      problems: [{ code: "binding-missing" }],
    });
    expect(await acme.workflows()).toMatchObject({ items: [] });
  });
});

describe("a workflow", () => {
  test("is not activated with an alias that nothing stands behind; bound, it is", async () => {
    const { host } = await open();
    const refused = await host.deploy({ source: script("orders") });
    expect(refused).toMatchObject({
      ok: false,
      problems: [{ code: "binding-missing", message: "ledger is bound to no connection of http" }],
    });
    await host.connections.put(connection("books"));
    expect(await host.deploy({ source: script("orders"), bindings: { ledger: "books" } })).toMatchObject({
      ok: true,
      outcome: "created",
    });
    expect(await host.bindings("orders")).toEqual([
      { alias: "ledger", connector: "http", connection: "books", explicit: true },
    ]);
  });

  test("asks a person before its first change; approved, it is made once, exactly as shown", async () => {
    const { host, ended } = await open();
    await host.connections.put(connection());
    await host.deploy({ source: script("orders") });
    const held = ended("paused:approval");
    await host.publish("orders", order("o-1"));
    await held;
    expect(service.changes()).toEqual([]);
    const [item] = (await host.inbox.list()).items;
    expect(item).toMatchObject({
      kind: "approval",
      workflow: "orders",
      question: expect.stringContaining("/entries"),
    });
    const done = ended("committed");
    expect(await host.decide(item?.run as string, { action: "approve" })).toEqual({ ok: true });
    await done;
    expect(service.changes()).toEqual(["/entries"]);
    expect(await host.inbox.count()).toBe(0);
    expect((await host.outputs("orders")).items).toMatchObject([{ mutation: { status: "applied" } }]);
  });

  test("goes on by itself once somebody has reconnected what it waits for", async () => {
    const { host, ended } = await open({ defaultGrant: "allow" });
    await host.connections.put(connection("ledger", "an-old-token"));
    await host.deploy({ source: script("orders") });
    const waits = ended("paused:approval");
    await host.publish("orders", order("o-1"));
    await waits;
    expect(await openRun(host)).toMatchObject({ pauseReason: "auth" });
    expect((await host.inbox.list()).items).toMatchObject([
      { kind: "reconnect", question: "Please reconnect ledger" },
    ]);
    const done = ended("committed");
    expect(await host.connections.put(connection())).toMatchObject({ ok: true, freed: 1 });
    await done;
    expect(service.requests.filter((one) => one.authorization === `Bearer ${TOKEN}`)).toHaveLength(1);
  });

  test("that is denied a tool waits for a grant, and goes on with it", async () => {
    const { host, ended } = await open({ defaultGrant: "allow" });
    await host.connections.put(connection());
    await host.deploy({
      source: script("orders"),
      grants: [{ alias: "ledger", tool: "post", mode: "deny" }],
    });
    const waits = ended("paused:approval");
    await host.publish("orders", order("o-1"));
    await waits;
    expect(await openRun(host)).toMatchObject({ pauseReason: "permission" });
    const done = ended("committed");
    expect(await host.grant("orders", [{ alias: "ledger", tool: "post", mode: "allow" }])).toEqual({
      ok: true,
    });
    await done;
    expect(service.changes()).toEqual(["/entries"]);
    expect(await host.grant("orders", [{ alias: "ledger", tool: "pots", mode: "allow" }])).toMatchObject({
      ok: false,
      code: "grant-invalid",
    });
  });

  test("whose next version can change more is held until somebody consents; the old one goes on", async () => {
    const { host } = await open({ defaultGrant: "allow" });
    await host.connections.put(connection());
    await host.connections.put(connection("mail"));
    await host.deploy({ source: script("orders", { mutates: false }) });
    const held = await host.deploy({ source: script("orders") });
    expect(held).toMatchObject({ ok: true, outcome: "held", version: 2, adds: [{ alias: "ledger" }] });
    expect(await host.workflow("orders")).toMatchObject({ activeVersion: 1 });
    expect((await host.inbox.list({ kind: "capability" })).items).toHaveLength(1);
    expect(await host.consent("orders", 2, { by: "ann" })).toMatchObject({ ok: true, outcome: "activated" });
    expect(await host.workflow("orders")).toMatchObject({ activeVersion: 2 });
    expect(await host.inbox.count()).toBe(0);
    expect(await host.activate("orders", 1)).toMatchObject({ ok: true, outcome: "activated" });
    expect(await host.activate("orders", 2)).toMatchObject({ ok: true, outcome: "activated" });
  });
});

describe("from one workflow to another", () => {
  const sender = `import { consumer, topic, workflow } from "pawl";
export default workflow({
  name: "sender",
  connections: { next: "workflow" },
  topics: { go: topic<{ to: string }>() },
  consumers: { pass: consumer({ subscribes: ["go"],
    async prepare(ctx) {
      const [event] = await ctx.peek("go", { limit: 1 });
      if (!event) return { reservations: [] };
      return { reservations: [{ topic: "go", ids: [event.messageId] }], data: { ...event.payload, id: event.messageId } };
    },
    mutate(ctx, { data }) { ctx.next.publish({ workflow: data.to, topic: "order", messageId: data.id, payload: { id: data.id } }); },
  }) },
});`;
  const go = (id: string, to: string) => ({ topic: "go", messageId: id, payload: { to } });

  test("an event is passed on, once; what is not there is a person's business", async () => {
    const { host, ended } = await open({ defaultGrant: "allow" });
    await host.connections.put(connection());
    await host.connections.put({ name: "next", connector: "workflow", config: {} });
    await host.deploy({ source: script("orders") });
    await host.deploy({ source: sender });
    const booked = ended("committed");
    await host.publish("sender", go("o-7", "orders"));
    await booked;
    expect(JSON.parse(service.requests[0]?.body ?? "")).toEqual({ id: "o-7" });
    expect((await host.outputs("sender")).items).toMatchObject([
      { mutation: { status: "applied", proof: "lookup", result: '{"messageId":"o-7"}' } },
    ]);
    const waits = ended("paused:approval", "pass");
    await host.publish("sender", go("o-8", "nobody"));
    await waits;
    expect((await host.runs({ open: true })).items).toMatchObject([{ run: { pauseReason: "precondition" } }]);
  });

  test("1.13 a circle over two workflows ends at the most hops that are allowed", async () => {
    const rules = [{ match: "default", policy: { limits: { maxHops: 5 } } }];
    const { host, ended } = await open({
      defaultGrant: "allow",
      policies: [{ level: "host", rules: rules as never }],
    });
    await host.connections.put({ name: "next", connector: "workflow", config: {} });
    const ring = (name: string, to: string) =>
      sender
        .replace('name: "sender"', `name: "${name}"`)
        .replaceAll('"go"', '"order"')
        .replace("topics: { go:", "topics: { order:")
        .replace(
          "messageId: data.id, payload: { id: data.id }",
          `messageId: data.id + "x", payload: { to: "${name}" }`,
        )
        .replace("workflow: data.to", `workflow: "${to}"`);
    await host.deploy({ source: ring("ping", "pong") });
    await host.deploy({ source: ring("pong", "ping") });
    const looped = ended("failed:logic", "pass");
    await host.publish("ping", { topic: "order", messageId: "m", payload: { to: "" } });
    await looped;
    expect((await host.runs({ status: "failed:logic" })).items[0]?.run.error).toMatchObject({ code: "loop" });
  });
});

describe("a webhook", () => {
  const hooked = `import { consumer, topic, workflow } from "pawl";
export default workflow({
  name: "shop",
  connections: { shopHook: "webhook" },
  hooks: { orders: { alias: "shopHook", topic: "order", messageId: "$.id" } },
  topics: { order: topic<{ id: string }>() },
  consumers: { see: consumer({ subscribes: ["order"], async prepare(ctx) {
    const events = await ctx.peek("order");
    return { reservations: [{ topic: "order", ids: events.map((one) => one.messageId) }], ui: { title: "see" } };
  } }) },
});`;

  test("that is signed becomes an event with its input; one that is not, does not", async () => {
    const { host, ended } = await open();
    const key = "whsec_c2lnbmluZy1rZXktb2YtdGhlLXNob3A=";
    await host.connections.put({
      name: "shopHook",
      connector: "webhook",
      config: { scheme: "hmac-sha256" },
      secrets: { signingKey: key },
    });
    await host.deploy({ source: hooked });
    const body = Buffer.from('{"id":"o-1"}');
    const headers = signHook(key, "msg-1", Date.now(), body.toString());
    expect(await host.receive("shop", "orders", { headers: {}, body })).toMatchObject({ status: 401 });
    expect(await host.receive("shop", "nope", { headers, body })).toMatchObject({ status: 404 });
    const seen = ended("committed", "see");
    expect(await host.receive("shop", "orders", { headers, body })).toMatchObject({
      status: 202,
      outcome: "created",
      messageId: "o-1",
    });
    expect(await host.receive("shop", "orders", { headers, body })).toMatchObject({ status: 202 });
    await seen;
    expect((await host.inputs("shop")).items).toMatchObject([
      { source: "shopHook", type: "orders", key: "o-1" },
    ]);
  });
});

describe("people are told", () => {
  const hook = { name: "ops-key", connector: "webhook", config: { scheme: "hmac-sha256" } };
  const toldOf = (path: string) => service.requests.filter((one) => one.path === path);

  test("of each item, through a connection, signed, at least once", async () => {
    const { host, ended } = await open();
    const key = "whsec_a2V5LW9mLXRoZS1vcHMtdGVhbQ==";
    await host.connections.put({ ...hook, secrets: { signingKey: key } });
    await host.connections.put(connection("pager"));
    await host.connections.put(connection());
    expect(await host.inbox.setTargets([{ name: "ops", connection: "nobody" }])).toMatchObject({
      ok: false,
      code: "target-invalid",
      message: "ops: there is no connection nobody",
    });
    const target = { name: "ops", connection: "pager", path: "/page", signedWith: "ops-key" };
    expect(await host.inbox.setTargets([target])).toEqual({ ok: true });
    const asked = arrival("/page");
    await host.deploy({ source: script("orders") });
    const held = ended("paused:approval");
    await host.publish("orders", order("o-1"));
    await held;
    const request = await asked;
    const verdict = verifyHook(
      { config: webhook.config.parse(hook.config) as never, secrets: { signingKey: key } },
      { headers: request.headers, body: Buffer.from(request.body) },
      Date.now(),
    );
    expect(verdict).toMatchObject({ ok: true });
    const [item] = (await host.inbox.list()).items;
    expect(JSON.parse(request.body)).toMatchObject({
      namespace: "default",
      items: [
        {
          id: item?.id,
          kind: "approval",
          workflow: "orders",
          run: formatId("run", Number((await openRun(host))?.id)),
        },
      ],
    });
  });

  test("of the kinds they asked for, and not of others", async () => {
    const { host, ended } = await open();
    await host.connections.put(connection("pager"));
    await host.connections.put(connection());
    await host.inbox.setTargets([
      { name: "all", connection: "pager", path: "/all" },
      { name: "few", connection: "pager", path: "/few", kinds: ["unknown_outcome"] },
    ]);
    const asked = arrival("/all");
    await host.deploy({ source: script("orders") });
    const held = ended("paused:approval");
    await host.publish("orders", order("o-1"));
    await held;
    await asked;
    expect(toldOf("/few")).toEqual([]);
  });

  /** The next request to this path. */
  function arrival(path: string): Promise<Request> {
    return new Promise((resolve) => {
      service.onRequest = (request) => {
        if (request.path === path) resolve(request);
        return 200;
      };
    });
  }
});
