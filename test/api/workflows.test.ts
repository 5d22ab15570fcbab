// Scripts and workflows over HTTP: deployed, looked at, run, paused; every answer is held to the contract's shape.
import { afterEach, describe, expect, test } from "vitest";
import { closeStands, type Loose, orders, stand, ticks } from "../support/api-stand.ts";

afterEach(closeStands);

describe("deploying", () => {
  test("a new script is 201, the same again 200, an older one comes back, and each is a version", async () => {
    const api = await stand();
    const first = await api.ask("PUT /workflows/orders", {
      body: { source: orders(), labels: { team: "books" } },
    });
    expect(first.status).toBe(201);
    expect(first.body).toMatchObject({
      outcome: "created",
      version: { number: 1, active: true },
      workflow: { name: "orders", activeVersion: 1, labels: { team: "books" }, description: "books orders" },
      adds: [],
    });
    const again = await api.ask("PUT /workflows/orders", { body: { source: orders() } });
    expect([again.status, again.body.outcome]).toEqual([200, "unchanged"]);
    const changed = orders().replace('"Book"', '"Book it"');
    const second = await api.ask("PUT /workflows/orders", { body: { source: changed, note: "words" } });
    expect([second.status, second.body.version]).toMatchObject([201, { number: 2, note: "words" }]);
    const back = await api.ask("PUT /workflows/orders", { body: { source: orders() } });
    expect([back.status, back.body.outcome, back.body.version.number]).toEqual([200, "activated", 1]);
    const versions = await api.ask("GET /workflows/orders/versions");
    expect(versions.body.items.map((one: Loose) => [one.number, one.active])).toEqual([
      [2, false],
      [1, true],
    ]);
    const diff = await api.ask("GET /workflows/orders/versions/1/diff/2");
    expect(diff.body.lines.filter((one: Loose) => one.op !== " ").map((one: Loose) => one.op)).toEqual([
      "-",
      "+",
    ]);
    const forward = await api.ask("POST /workflows/orders/activate", { body: { version: 2 } });
    expect([forward.status, forward.body.workflow.activeVersion]).toEqual([200, 2]);
    expect((await api.ask("GET /workflows/orders/versions/2")).body.source).toBe(changed);
  });

  test("?activate=false stores a version and leaves the active one", async () => {
    const api = await stand();
    await api.ask("PUT /workflows/orders", { body: { source: orders() } });
    const stored = await api.ask("PUT /workflows/orders?activate=false", {
      body: { source: `${orders()}\n` },
    });
    expect([stored.status, stored.body.outcome, stored.body.version]).toMatchObject([
      201,
      "stored",
      { number: 2, active: false },
    ]);
    expect(stored.body.workflow.activeVersion).toBe(1);
  });

  test("a script that is refused says where, with what to do, and leaves no workflow", async () => {
    const api = await stand();
    const refused = await api.ask("PUT /workflows/orders", {
      body: { source: "export default workflow({\n  name: 1" },
    });
    expect(refused.status).toBe(422);
    expect(refused.body.error).toMatchObject({ code: "script_invalid", location: { line: 2 } });
    expect(refused.body.error.problems[0]).toMatchObject({ code: "script-syntax", severity: "error" });
    expect(refused.body.error.requestId).toBe(refused.headers.get("x-request-id"));
    expect((await api.ask("GET /workflows/orders")).status).toBe(404);
    const checked = await api.ask("POST /validate", { body: { source: orders() } });
    expect(checked.body).toMatchObject({ ok: true, manifest: { name: "orders" } });
  });

  test("with real connections, an alias that nothing stands behind is 409", async () => {
    const api = await stand({ world: undefined as never });
    const refused = await api.ask("PUT /workflows/orders", { body: { source: orders() } });
    expect([refused.status, refused.body.error.code]).toEqual([409, "binding_missing"]);
    const put = await api.ask("PUT /connections/ledger", {
      body: {
        connector: "http",
        config: { baseUrl: "http://127.0.0.1:1", allowPrivateNetwork: true },
        secrets: null,
      },
    });
    expect([put.status, put.body.connection.name]).toEqual([200, "ledger"]);
    const grants = [{ alias: "ledger", tool: "post", mode: "deny" }];
    const made = await api.ask("PUT /workflows/orders", { body: { source: orders(), grants } });
    expect([made.status, made.body.workflow.grants]).toMatchObject([201, [{ tool: "post", mode: "deny" }]]);
    const bound = await api.ask("GET /workflows/orders/bindings");
    expect(bound.body.bindings).toEqual([
      { alias: "ledger", connector: "http", connection: "ledger", explicit: false },
    ]);
    const put2 = await api.ask("PUT /workflows/orders/grants", {
      body: { grants: [{ alias: "ledger", mode: "allow" }] },
    });
    expect(put2.body.grants).toHaveLength(2);
    expect((await api.ask("DELETE /connections/ledger")).body.error.code).toBe("connection_in_use");
  });

  test("params are set if the script declares them; else 422", async () => {
    const api = await stand();
    await api.ask("PUT /workflows/orders", { body: { source: orders() } });
    const set = await api.ask("PATCH /workflows/orders", {
      body: { params: { account: "costs" }, labels: { a: "b" } },
    });
    expect(set.body).toMatchObject({ params: { account: "costs" }, labels: { a: "b" } });
    const wrong = await api.ask("PATCH /workflows/orders", { body: { params: { acount: "costs" } } });
    expect([wrong.status, wrong.body.error.code]).toEqual([422, "param_invalid"]);
  });
});

describe("running", () => {
  test("run now is 202, and the run can be read with its journal, logs and trace", async () => {
    const api = await stand();
    await api.ask("PUT /workflows/ticks", { body: { source: ticks() } });
    await api.until(async () => (await api.ask("GET /runs?status=committed")).body.items[0]);
    expect((await api.ask("POST /workflows/ticks/run-now", { body: { handler: "tick" } })).status).toBe(202);
    const run = await api.until(async () => {
      const { items } = (await api.ask("GET /runs?workflow=ticks&handler=tick&status=committed")).body;
      return items.length > 1 ? items[0] : undefined;
    });
    expect(run).toMatchObject({ workflow: "ticks", type: "producer", sentence: "Done", open: false });
    const detail = await api.ask(`GET /runs/${run.id}`);
    expect(detail.body.chain).toHaveLength(1);
    const journal = await api.ask(`GET /runs/${run.id}/journal`);
    expect(journal.body.items.length).toBeGreaterThan(0);
    expect((await api.ask(`GET /runs/${run.id}/trace`)).body.spans[0].kind).toBe("run");
    expect((await api.ask("GET /workflows/ticks/topics/tick/events")).body.items).toHaveLength(2);
    const [handler] = (await api.ask("GET /workflows/ticks/handlers")).body.items;
    expect(handler).toMatchObject({ name: "tick", schedule: "every day", state: 2 });
    const rewound = await api.ask("PUT /workflows/ticks/handlers/tick/state", { body: { state: 0 } });
    expect(rewound.status).toBe(200);
    expect((await api.ask("GET /workflows/ticks/handlers")).body.items[0].state).toBe(0);
    expect((await api.ask("GET /workflows/ticks/slots?handler=tick")).status).toBe(200);
  });

  test("paused and archived workflows say so, and refuse to run", async () => {
    const api = await stand();
    await api.ask("PUT /workflows/ticks", { body: { source: ticks() } });
    await api.until(async () => (await api.ask("GET /runs?status=committed")).body.items[0]);
    await api.ask("POST /workflows/ticks/pause");
    expect((await api.ask("POST /workflows/ticks/run-now")).body.error.code).toBe("workflow_paused");
    const paused = await api.ask("GET /workflows/ticks");
    expect(paused.body).toMatchObject({ status: "stopped", sentence: "Paused", paused: true });
    await api.ask("POST /workflows/ticks/resume");
    expect((await api.ask("DELETE /workflows/ticks")).status).toBe(200);
    expect((await api.ask("GET /workflows")).body.items).toEqual([]);
    expect((await api.ask("GET /workflows?archived=true")).body.items).toHaveLength(1);
    expect((await api.ask("POST /workflows/ticks/unarchive")).status).toBe(200);
    expect((await api.ask("GET /workflows/ticks/snapshot")).body.workflow.sentence).toMatch(/^Next at/);
  });

  test("step mode holds a run until it is stepped", async () => {
    const api = await stand();
    await api.ask("PUT /workflows/orders", { body: { source: orders() } });
    await api.ask("POST /workflows/orders/mode", { body: { mode: "step" } });
    expect((await api.ask("POST /workflows/orders/step")).body.error.code).toBe("nothing_held");
    await api.ask("POST /workflows/orders/topics/order/events", {
      body: { messageId: "a", payload: { id: "a" } },
    });
    const [item] = await api.until(async () => {
      const { items } = (await api.ask("GET /inbox?kind=step")).body;
      return items.length > 0 ? items : undefined;
    });
    expect(item).toMatchObject({ kind: "step", workflow: "orders", question: "Shall it go on?" });
    expect((await api.ask("POST /workflows/orders/step")).status).toBe(200);
    await api.ask("POST /workflows/orders/mode", { body: { mode: "auto" } });
    await api.until(
      async () => (await api.ask("GET /workflows/orders/outputs")).body.items[0]?.status === "applied",
    );
  });

  test("a preview says what a consumer would do, and does nothing of it", async () => {
    const api = await stand();
    await api.ask("PUT /workflows/orders", { body: { source: orders() } });
    await api.ask("POST /workflows/orders/pause");
    await api.ask("POST /workflows/orders/topics/order/events", {
      body: { messageId: "a", payload: { id: "a" } },
    });
    const before = (await api.ask("GET /runs")).body.items.length;
    const seen = await api.ask("POST /workflows/orders/preview/book");
    expect(seen.body).toMatchObject({
      reservations: [{ topic: "order", ids: ["a"] }],
      title: "Book",
      intent: { alias: "ledger", tool: "post", description: "ledger.post" },
      error: null,
      logs: [{ level: "info", message: "looking" }],
    });
    expect([api.world.sent.length, (await api.ask("GET /runs")).body.items.length]).toEqual([0, before]);
    expect(
      (await api.ask("GET /workflows/orders/topics/order/events?status=pending")).body.items,
    ).toHaveLength(1);
  });
});
