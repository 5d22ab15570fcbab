// What a request may look like, what is made of it twice, and what a host that stops still answers.
import { once } from "node:events";
import { connect } from "node:net";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { createHost } from "../../host/index.ts";
import { worlds } from "../../host/host.ts";
import { ADMIN, closeStands, orders, type Stand, stand, ticks } from "../support/api-stand.ts";

afterEach(closeStands);

describe("an Idempotency-Key", () => {
  const publish = (api: Stand, key: string, id: string) =>
    api.ask("POST /workflows/orders/topics/order/events", {
      headers: { "idempotency-key": key },
      body: { messageId: id, payload: { id } },
    });

  test("makes a request once: the same bytes get the first answer again, other bytes 409 (O2)", async () => {
    const api = await stand();
    await api.ask("PUT /workflows/orders", { body: { source: orders() } });
    const first = await publish(api, "k1", "a");
    const again = await publish(api, "k1", "a");
    expect([again.status, again.body]).toEqual([first.status, first.body]);
    expect(again.body).toMatchObject({ created: 1, unchanged: 0 });
    const other = await publish(api, "k1", "b");
    expect([other.status, other.body.error.code]).toEqual([409, "key_reused"]);
    expect((await publish(api, "k2", "a")).body).toMatchObject({ created: 0, unchanged: 1 });
  });

  test("a refusal is an answer, too; what failed on the host's side may be tried again (O5)", async () => {
    const api = await stand();
    const first = await publish(api, "k", "a");
    expect(first.status).toBe(404);
    await api.ask("PUT /workflows/orders", { body: { source: orders() } });
    expect((await publish(api, "k", "a")).body).toEqual(first.body);
    expect((await publish(api, "k\u00e9", "a")).status).toBe(422);
  });

  test("(O3) two at once are one, and of another principal it is another key", async () => {
    const api = await stand();
    await api.ask("PUT /workflows/ticks", { body: { source: ticks() } });
    await api.until(async () => (await api.ask("GET /runs?status=committed")).body.items[0]);
    const runNow = (token: string) =>
      api.ask("POST /workflows/ticks/run-now", { token, headers: { "idempotency-key": "now" } });
    const answers = await Promise.all([runNow(ADMIN), runNow(ADMIN), runNow(ADMIN)]);
    expect(answers.map((one) => one.status)).toEqual([202, 202, 202]);
    const audit = (await api.ask("GET /audit")).body.items;
    expect(audit.filter((one: { action: string }) => one.action === "run-now")).toHaveLength(1);
    const made = await api.ask("POST /tokens", { body: { name: "other", role: "operator" } });
    await api.until(async () => (await api.ask("GET /workflows/ticks")).body.openRun === null);
    expect((await runNow(made.body.token)).status).toBe(202);
    const after = (await api.ask("GET /audit")).body.items;
    expect(after.filter((one: { action: string }) => one.action === "run-now")).toHaveLength(2);
  });

  test("(O4) an answer that shows a token is not kept", async () => {
    const api = await stand();
    const make = () =>
      api.ask("POST /tokens", { headers: { "idempotency-key": "t" }, body: { name: "ci", role: "viewer" } });
    expect((await make()).status).toBe(201);
    const again = await make();
    expect([again.status, again.body.error.code]).toEqual([409, "key_lost"]);
    expect((await api.ask("GET /tokens")).body.items).toHaveLength(2);
  });

  test("(O1) is known after a restart; one whose answer was lost is told so instead of being made again", async () => {
    const data = mkdtempSync(join(tmpdir(), "pawl-once-"));
    const listen = { port: 0, adminToken: ADMIN };
    const ask = async (url: string, key: string) =>
      (
        await fetch(`${url}/api/v1/workflows/orders/pause`, {
          method: "POST",
          headers: { authorization: `Bearer ${ADMIN}`, "idempotency-key": key },
        })
      ).status;
    try {
      const first = createHost({ data, world: worlds.memory() });
      await first.start();
      await first.deploy({ source: orders() });
      expect(await ask((await first.listen(listen)).url, "kept")).toBe(200);
      await first.stop();
      const { openStore } = await import("../../host/store/open.ts");
      const store = openStore({ data, nowMs: Date.now });
      await store.maintain(() =>
        store.db
          .prepare(
            "INSERT INTO answers SELECT principal, 'lost', request_hash, NULL, NULL, begun_at, expires_at FROM answers",
          )
          .run(),
      );
      await store[Symbol.asyncDispose]();
      await using second = createHost({ data, world: worlds.memory() });
      await second.start();
      const { url } = await second.listen(listen);
      await second.resume("orders");
      expect([await ask(url, "kept"), (await second.workflow("orders"))?.paused]).toEqual([200, false]);
      expect([await ask(url, "lost"), (await second.workflow("orders"))?.paused]).toEqual([409, false]);
    } finally {
      rmSync(data, { recursive: true });
    }
  });
});

describe("a body", () => {
  test.each([
    ["no type", { "content-type": "" }],
    ["a form", { "content-type": "application/x-www-form-urlencoded" }],
    ["text that is JSON", { "content-type": "text/plain" }],
    ["another charset", { "content-type": "application/json; charset=latin1" }],
    ["an encoding", { "content-type": "application/json", "content-encoding": "gzip" }],
  ])("with %s is 415", async (_, headers) => {
    const api = await stand();
    const asked = await api.ask("POST /validate", { raw: '{"source":""}', headers });
    expect([asked.status, asked.body.error.code]).toEqual([415, "media_type"]);
  });

  test("(B1) too large is 413, too deep 422, no JSON 400, no UTF-8 400, and nothing is repeated of it", async () => {
    const api = await stand();
    const post = (raw: string | Uint8Array<ArrayBuffer>) => api.ask("POST /tokens", { raw });
    expect((await post("x".repeat(1_200_000))).status).toBe(413);
    expect((await post(`${"[".repeat(200_000)}`)).body.error.code).toBe("body_too_deep");
    expect((await post('{"name": secret-of-mine')).body.error.code).toBe("json_invalid");
    expect((await post(new Uint8Array([0x22, 0xff, 0x22]))).status).toBe(400);
    const typo = await post('{"name":"x","role":"viewer","nmae":"secret-of-mine"}');
    expect([typo.status, typo.body.error.path, typo.text.includes("secret-of-mine")]).toEqual([
      422,
      "/nmae",
      false,
    ]);
  });

  test("without a length is counted as it comes, and cut off", async () => {
    const api = await stand();
    const socket = connect(api.listening.port, "127.0.0.1");
    socket.on("error", () => {});
    let said = "";
    socket.on("data", (piece) => (said += piece.toString("latin1")));
    await once(socket, "connect");
    socket.write(
      `POST /api/v1/tokens HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${ADMIN}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n`,
    );
    const piece = `10000\r\n${" ".repeat(65_536)}\r\n`;
    const closed = once(socket, "close");
    for (let n = 0; n < 40 && socket.writable && said === ""; n++) {
      socket.write(piece);
      await new Promise((resolve) => setImmediate(resolve));
    }
    socket.end();
    await closed;
    expect(said).toMatch(/^HTTP\/1\.1 413 /);
  });
});

describe("a query", () => {
  test("(B2) with a field that means nothing, or the same twice, is refused", async () => {
    const api = await stand();
    for (const query of [
      "?statu=failed",
      "?open=yes",
      "?limit=0",
      "?limit=201",
      "?limit=a",
      "?open=true&open=true",
      "?since=soon",
    ]) {
      const asked = await api.ask(`GET /runs${query}`);
      expect([query, asked.status, asked.body.error.code]).toEqual([query, 422, "request_invalid"]);
    }
    expect((await api.ask("GET /runs?cursor=nonsense")).body.error.code).toBe("cursor_invalid");
    expect((await api.ask("GET /runs?limit=200&open=true")).status).toBe(200);
  });

  test("goes on by its cursor, neither twice nor leaving out", async () => {
    const api = await stand();
    await api.ask("PUT /workflows/orders", { body: { source: orders() } });
    await api.ask("POST /workflows/orders/pause");
    const events = Array.from({ length: 25 }, (_, n) => ({ messageId: `m${n}`, payload: { id: `m${n}` } }));
    const published = await api.ask("POST /workflows/orders/topics/order/events", { body: events });
    expect(published.body.created).toBe(25);
    const seen: string[] = [];
    let cursor: string | null = "";
    while (cursor !== null) {
      const page: { body: { items: { messageId: string }[]; nextCursor: string | null } } = await api.ask(
        `GET /workflows/orders/topics/order/events?limit=10${cursor === "" ? "" : `&cursor=${cursor}`}`,
      );
      seen.push(...page.body.items.map((one) => one.messageId));
      cursor = page.body.nextCursor;
    }
    expect(seen).toEqual(events.map((one) => one.messageId).toReversed());
  });
});

test("runs and events are exported to their end, a line each", async () => {
  const api = await stand();
  await api.ask("PUT /workflows/orders", { body: { source: orders() } });
  await api.ask("POST /workflows/orders/pause");
  const events = Array.from({ length: 450 }, (_, n) => ({ messageId: `m${n}`, payload: { id: `m${n}` } }));
  await api.ask("POST /workflows/orders/topics/order/events", { body: events });
  const lines = (text: string) =>
    text
      .split("\n")
      .slice(0, -1)
      .map((line) => JSON.parse(line) as { messageId: string });
  const whole = await api.ask(
    "GET /export/workflows/orders/topics/order/events?status=pending&consumer=book",
  );
  expect(whole.headers.get("content-type")).toBe("application/x-ndjson");
  expect(lines(whole.text).map((one) => one.messageId)).toEqual(
    events.map((one) => one.messageId).toReversed(),
  );
  const runs = (await api.ask("GET /runs")).body.items;
  expect(lines((await api.ask("GET /export/runs?workflow=orders")).text)).toEqual(runs);
  expect((await api.ask("GET /export/runs?workflow=nothing")).text).toBe("");
});

test("an array of events is taken in whole or not at all", async () => {
  const api = await stand();
  await api.ask("PUT /workflows/orders", { body: { source: orders() } });
  const wrong = [
    { messageId: "a", payload: { id: "a" } },
    { messageId: "b", payload: { id: "b".repeat(1_100_000) } },
  ];
  const refused = await api.ask("POST /workflows/orders/topics/order/events", { body: wrong });
  expect([refused.status, refused.body.error]).toMatchObject([413, { code: "value_too_large", path: "/1" }]);
  expect((await api.ask("GET /workflows/orders/topics/order/events")).body.items).toEqual([]);
});

test("unknown paths are 404, other methods 405 with those that exist, and every answer has the request's id", async () => {
  const api = await stand();
  expect((await api.ask("GET /nothing")).body.error.code).toBe("not_found");
  const wrong = await api.ask("DELETE /runs");
  expect([wrong.status, wrong.headers.get("allow"), wrong.body.error.code]).toEqual([
    405,
    "GET",
    "method_not_allowed",
  ]);
  const named = await api.ask("GET /runs", { headers: { "x-request-id": "mine-1" } });
  expect(named.headers.get("x-request-id")).toBe("mine-1");
  const odd = await api.ask("GET /nothing", { headers: { "x-request-id": "<script>" } });
  expect(odd.body.error.requestId).toMatch(/^req_/);
});

test("more than a token may ask in a second is 429, with how long to wait", async () => {
  const api = await stand({ listen: { perSecond: 5 } });
  const statuses = [];
  for (let n = 0; n < 40; n++) statuses.push(await api.ask("GET /me"));
  const refused = statuses.filter((one) => one.status === 429);
  expect(refused.length).toBeGreaterThan(0);
  expect(Number(refused[0]?.headers.get("retry-after"))).toBeGreaterThanOrEqual(1);
});

test("health, readiness and metrics; nothing of a namespace is in the metrics", async () => {
  const api = await stand();
  await api.ask("PUT /workflows/ticks", { body: { source: ticks() } });
  await api.until(async () => (await api.ask("GET /runs?status=committed")).body.items[0]);
  expect((await api.ask("GET !/healthz", { token: null })).body).toEqual({ status: "ok" });
  expect((await api.ask("GET !/readyz", { token: null })).body).toEqual({ status: "ready" });
  expect((await api.ask("GET !/metrics", { token: null })).status).toBe(401);
  const metrics = await api.ask("GET !/metrics");
  expect(metrics.text).toMatch(/^pawl_runs_total\{status="committed",type="producer"\} 1$/m);
  expect(metrics.text).not.toContain("ticks");
});

test("(V2) a host that stops answers what it has begun, and takes nothing new", async () => {
  const api = await stand();
  await api.ask("PUT /workflows/orders", { body: { source: orders() } });
  const { port } = api.listening;
  const socket = connect(port, "127.0.0.1");
  let said = "";
  socket.on("data", (piece) => (said += piece.toString("latin1")));
  socket.on("error", () => {});
  await once(socket, "connect");
  const body = JSON.stringify({ source: orders() });
  socket.write(
    `POST /api/v1/validate HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${ADMIN}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body.slice(0, 10)}`,
  );
  // Both have been read in this order: the next answer tells that the first is being read, too.
  await api.ask("GET /me");
  const stopped = api.host.stop();
  socket.write(body.slice(10));
  await once(socket, "close");
  await stopped;
  expect(said).toMatch(/^HTTP\/1\.1 (200|503) /);
  await expect(fetch(`http://127.0.0.1:${port}/healthz`)).rejects.toThrow("fetch failed");
});

test("backup and verify: a copy in the host's own folder, and the proof that journal and tables agree", async () => {
  const data = mkdtempSync(join(tmpdir(), "pawl-upkeep-"));
  try {
    const api = await stand({ data });
    await api.ask("PUT /workflows/orders", { body: { source: orders() } });
    const made = await api.ask("POST /backup");
    expect([made.status, made.body.file]).toEqual([201, expect.stringMatching(/^backups\/pawl-[\w-]+\.db$/)]);
    expect(made.body.bytes).toBeGreaterThan(1_000);
    expect((await api.ask("POST /verify")).body).toEqual({ ok: true, findings: [] });
    expect((await api.ask("GET /hosts")).body.items).toMatchObject([{ current: true, endedAt: null }]);
    await closeStands();
  } finally {
    rmSync(data, { recursive: true });
  }
  const api = await stand();
  expect((await api.ask("POST /backup")).body.error.code).toBe("no_data_folder");
});
