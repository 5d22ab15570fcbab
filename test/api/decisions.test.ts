// What people decide over HTTP: one run at a time and many at once, deliveries, inputs, the inbox; and what comes in by hooks.
import { afterEach, describe, expect, test } from "vitest";
import { signHook } from "../../host/connectors/webhook.ts";
import { worlds } from "../../host/host.ts";
import { closeStands, type Loose, orders, type Stand, stand } from "../support/api-stand.ts";

afterEach(closeStands);

const failing = () =>
  worlds.memory({
    send: () => ({
      outcome: "failed",
      class: "logic",
      code: "tool-input-invalid",
      message: "no",
      raw: "null",
    }),
  });
const asking = () => worlds.memory({ grant: "approve" });

async function deploy(api: Stand, ...names: string[]): Promise<void> {
  for (const name of names) {
    expect((await api.ask(`PUT /workflows/${name}`, { body: { source: orders(name) } })).status).toBe(201);
    const body = { messageId: "a", payload: { id: "a" } };
    expect((await api.ask(`POST /workflows/${name}/topics/order/events`, { body })).status).toBe(202);
  }
}

const waiting = (api: Stand, kind: string, count = 1): Promise<Loose[]> =>
  api.until(async () => {
    const { items } = (await api.ask(`GET /inbox?kind=${kind}`)).body;
    return items.length >= count ? items : undefined;
  });

describe("one run", () => {
  test("that asks for approval is approved once, and what the person looked at is checked", async () => {
    const world = asking();
    const api = await stand({ world });
    await deploy(api, "orders");
    const [item] = await waiting(api, "approval");
    expect(item.actions.map((one: Loose) => one.name)).toEqual(["approve", "reject-skip", "reject-release"]);
    const { revision } = (await api.ask(`GET /runs/${item.run}`)).body;
    const stale = await api.ask(`POST /runs/${item.run}/approve`, {
      body: { expect: { revision: revision + 1 } },
    });
    expect([stale.status, stale.body.error.code]).toEqual([409, "changed"]);
    const both = await api.ask(`POST /runs/${item.run}/approve`, { body: { once: true, next: 3 } });
    expect(both.status).toBe(422);
    const approved = await api.ask(`POST /runs/${item.run}/approve`, {
      body: { expect: { revision, ledger: "proposed" } },
    });
    expect(approved.status).toBe(200);
    await api.until(async () => (await api.ask(`GET /runs/${item.run}`)).body.status === "committed");
    expect(world.sent).toHaveLength(1);
    const again = await api.ask(`POST /runs/${item.run}/approve`);
    expect([again.status, again.body.error.code, again.body.error.first.action]).toEqual([
      409,
      "wrong_state",
      "run.approve",
    ]);
  });

  test("that is rejected goes on without its change", async () => {
    const world = asking();
    const api = await stand({ world });
    await deploy(api, "orders");
    const [item] = await waiting(api, "approval");
    expect(
      (await api.ask(`POST /runs/${item.run}/reject`, { body: { deliveries: "skip", note: "no" } })).status,
    ).toBe(200);
    const run = await api.until(async () => {
      const { body } = await api.ask(`GET /runs/${item.run}`);
      return body.status === "committed" ? body : undefined;
    });
    expect([run.mutation.outcome, run.resolution.note, world.sent.length]).toEqual(["skipped", "no", 0]);
  });

  test("that failed is retried with a policy of its own, or closed; a policy that cannot be read is named by its path", async () => {
    const api = await stand({ world: failing() });
    await deploy(api, "orders");
    const [item] = await waiting(api, "script_error");
    const odd = await api.ask(`POST /runs/${item.run}/retry`, {
      body: { policy: [{ match: "default", policy: { maxRetrys: 1 } }] },
    });
    expect([odd.status, odd.body.error.path]).toEqual([422, "/policy/0/policy/maxRetrys"]);
    const retry = await api.ask(`POST /runs/${item.run}/retry`, {
      body: { policy: [{ match: "default", policy: { maxRetries: 0 } }] },
    });
    expect(retry.status).toBe(200);
    const next = await api.until(async () => {
      const items = (await api.ask("GET /inbox?kind=script_error")).body.items as Loose[];
      return items.find((one) => one.run !== item.run);
    });
    expect((await api.ask(`GET /runs/${next.run}`)).body).toMatchObject({ retryOf: item.run, attempt: 2 });
    const told = await api.ask(`POST /runs/${next.run}/consequences`, {
      body: { action: "close", deliveries: "dead" },
    });
    expect(told.body.words).toContain("The chain ends here.");
    expect((await api.ask(`POST /runs/${next.run}/close`, { body: { deliveries: "dead" } })).status).toBe(
      422,
    );
    expect(
      (await api.ask(`POST /runs/${next.run}/close`, { body: { deliveries: "dead", note: "broken" } }))
        .status,
    ).toBe(200);
    const [event] = (await api.ask("GET /workflows/orders/topics/order/events?status=dead")).body.items;
    const [delivery] = event.deliveries;
    expect((await api.ask("POST /workflows/orders/pause")).status).toBe(200);
    expect((await api.ask(`POST /deliveries/${delivery.id}/requeue`)).status).toBe(200);
    expect((await api.ask(`POST /deliveries/${delivery.id}/skip`, { body: { note: "old" } })).status).toBe(
      200,
    );
    expect((await api.ask(`POST /deliveries/${delivery.id}/skip`)).body.error.code).toBe("wrong_state");
  });
});

describe("many runs", () => {
  test("are decided about by a filter: shown first, then one by one, with how far it has come", async () => {
    const api = await stand({ world: failing() });
    await deploy(api, "one", "two", "three");
    await waiting(api, "script_error", 3);
    const shown = await api.ask("POST /bulk/close", {
      body: { filter: { error: "tool-input-invalid" }, preview: true },
    });
    expect([shown.status, shown.body.status, shown.body.total]).toEqual([200, "preview", 3]);
    expect(shown.body.runs[0].words).toContain("The chain ends here.");
    expect((await api.ask("GET /runs?open=true")).body.items).toHaveLength(3);
    const begun = await api.ask("POST /bulk/close", {
      body: { filter: { status: "failed:logic" }, preview: false, deliveries: "skip", note: "all of them" },
    });
    expect(begun.status).toBe(202);
    for (;;) {
      const { body } = await api.ask(`GET /bulk/${begun.body.id}`);
      if (body.status !== "done") continue;
      expect([body.done, body.total, body.refused]).toEqual([3, 3, []]);
      break;
    }
    expect((await api.ask("GET /runs?open=true")).body.items).toEqual([]);
    expect((await api.ask("POST /bulk/explode", { body: { filter: {}, preview: true } })).status).toBe(404);
    expect((await api.ask(`GET /bulk/${begun.body.id}`, { namespace: "acme" })).status).toBe(404);
  });
});

describe("what came in", () => {
  test("is followed from its input to what it changed, and back", async () => {
    const api = await stand();
    await deploy(api, "orders");
    await api.until(
      async () => (await api.ask("GET /workflows/orders/outputs")).body.items[0]?.status === "applied",
    );
    const [input] = (await api.ask("GET /workflows/orders/inputs")).body.items;
    const detail = (await api.ask(`GET /inputs/${input.id}`)).body;
    expect(detail).toMatchObject({ workflow: "orders", title: "order a", outputs: [{ outcome: "applied" }] });
    const runs = (await api.ask(`GET /runs?input=${input.id}`)).body.items;
    expect(runs.map((one: Loose) => one.handler)).toEqual(["book"]);
    const run = (await api.ask(`GET /runs/${runs[0].id}`)).body;
    expect(run.causedBy.map((one: Loose) => one.id)).toEqual([input.id]);
    expect((await api.ask("GET /runs?error=nothing")).body.items).toEqual([]);
    expect((await api.ask(`POST /inputs/${input.id}/skip`)).body.left).toHaveLength(1);
  });

  test("by a hook is believed with its signature alone, and needs no token", async () => {
    const api = await stand({ world: undefined as never });
    const key = "a-signing-key-of-the-tests-0123456789";
    await api.ask("PUT /connections/shop", {
      namespace: "acme",
      body: { connector: "webhook", config: { scheme: "hmac-sha256" }, secrets: { signingKey: key } },
    });
    const source = `import { consumer, topic, workflow } from "pawl";
export default workflow({ name: "hooked", connections: { shop: "webhook" }, topics: { order: topic() },
  hooks: { sold: { alias: "shop", topic: "order", messageId: "$.id" } },
  consumers: { take: consumer({ subscribes: ["order"], async prepare() { return { reservations: [] }; } }) } });`;
    const made = await api.ask("PUT /workflows/hooked", { namespace: "acme", body: { source } });
    expect(made.body.error ?? made.status).toBe(201);
    const body = JSON.stringify({ id: "s-1" });
    const unsigned = await api.ask("POST /hooks/acme/hooked/sold", { token: null, raw: body });
    expect([unsigned.status, unsigned.body.error.code]).toEqual([401, "hook_signature"]);
    const headers = signHook(key, "delivery-1", Date.now(), body);
    const signed = await api.ask("POST /hooks/acme/hooked/sold", { token: null, raw: body, headers });
    expect([signed.status, signed.body]).toMatchObject([202, { messageId: "s-1", outcome: "created" }]);
    expect(
      (await api.ask("POST /hooks/globex/hooked/sold", { token: null, raw: body, headers })).status,
    ).toBe(404);
  });
});

describe("settings", () => {
  test("a namespace that is full takes no new workflow", async () => {
    const api = await stand();
    const put = await api.ask("PUT /namespaces/acme", {
      body: { quotas: { workflows: 1 }, defaultGrant: "deny" },
    });
    expect(put.body).toEqual({ name: "acme", quotas: { workflows: 1 }, defaultGrant: "deny" });
    const deployTo = (name: string) =>
      api.ask(`PUT /workflows/${name}`, { namespace: "acme", body: { source: orders(name) } });
    expect((await deployTo("one")).status).toBe(201);
    expect((await deployTo("two")).body.error.code).toBe("quota_reached");
    expect((await deployTo("one")).status).toBe(200);
    await api.ask("PUT /namespaces/acme", { body: { quotas: { workflows: null } } });
    expect((await deployTo("two")).status).toBe(201);
    expect((await api.ask("GET /namespaces/nowhere")).status).toBe(404);
    expect((await api.ask("PUT /namespaces/no%20name", { body: {} })).status).toBe(422);
  });

  test("who is told, and a connection's health, are set and read", async () => {
    const api = await stand({ world: undefined as never });
    await api.ask("PUT /connections/desk", {
      body: { connector: "http", config: { baseUrl: "http://127.0.0.1:1", allowPrivateNetwork: true } },
    });
    const targets = [{ name: "team", connection: "desk", kinds: ["approval"] }];
    expect((await api.ask("PUT /notifications", { body: { targets } })).body).toEqual({ targets });
    expect((await api.ask("GET /notifications")).body).toEqual({ targets });
    const wrong = await api.ask("PUT /notifications", {
      body: { targets: [{ name: "x", connection: "nothing" }] },
    });
    expect(wrong.body.error.code).toBe("target_invalid");
    const checked = await api.ask("POST /connections/desk/check");
    expect([checked.status, typeof checked.body.health.status]).toEqual([200, "string"]);
    const misfit = await api.ask("PUT /connections/odd", {
      body: { connector: "http", config: { baseUrl: "x" } },
    });
    expect([misfit.status, misfit.body.error]).toMatchObject([
      422,
      { code: "connection_invalid", path: "/config/baseUrl" },
    ]);
  });
});
