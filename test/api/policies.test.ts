// Stored policy rules: refused with a place, in force from the next unit on, explained.
import { afterEach, expect, test } from "vitest";
import { worlds } from "../../host/host.ts";
import { closeStands, orders, stand } from "../support/api-stand.ts";

afterEach(closeStands);

const failing = () =>
  worlds.memory({
    send: () => ({
      outcome: "failed",
      class: "transient",
      code: "tool-unavailable",
      message: "busy",
      raw: "null",
    }),
  });

test("rules of a workflow take effect with the next run, over those of the namespace and the host", async () => {
  const api = await stand({ world: failing() });
  await api.ask("PUT /workflows/orders", { body: { source: orders() } });
  const never = { match: "default", policy: { maxRetries: 0, neverRetryOn: ["transient"] } };
  const put = await api.ask("PUT /policies?scope=workflow:orders", { body: { rules: [never] } });
  expect([put.status, put.body.rules]).toEqual([200, [never]]);
  await api.ask("POST /workflows/orders/topics/order/events", {
    body: { messageId: "a", payload: { id: "a" } },
  });
  const item = await api.until(async () => (await api.ask("GET /inbox")).body.items[0]);
  expect(item).toMatchObject({ kind: "retries_exhausted", workflow: "orders" });
  const explained = await api.ask("POST /policies/explain", {
    body: { workflow: "orders", handler: "book", unit: "mutate" },
  });
  const field = explained.body.fields.find((one: { field: string }) => one.field === "maxRetries");
  expect(field).toMatchObject({ value: 0, source: { level: "workflow" }, because: "rule 1 of workflow" });
  expect((await api.ask("GET /workflows/orders/handlers")).body.items[0].policy.mutate.maxRetries).toBe(0);
});

test("a set that is refused says where, changes nothing, and is not half stored", async () => {
  const api = await stand();
  await api.ask("PUT /workflows/orders", { body: { source: orders() } });
  const typo = { match: "default", policy: { maxRetrys: 1 } };
  const refused = await api.ask("PUT /policies?scope=namespace", { body: { rules: [typo] } });
  expect([refused.status, refused.body.error]).toMatchObject([
    422,
    { code: "unknown_policy_field", path: "/0/policy/maxRetrys", hint: "Did you mean maxRetries?" },
  ]);
  const early = {
    match: "default",
    policy: { circuitBreaker: { name: "x", failures: 3, windowMs: 1000, openMs: 1000 } },
  };
  expect((await api.ask("PUT /policies", { body: { rules: [early] } })).status).toBe(422);
  expect((await api.ask("GET /policies?scope=namespace")).body).toMatchObject({ rules: [], updatedAt: null });
  expect((await api.ask("GET /policies?scope=workflow:nothing")).status).toBe(404);
});

test("rules are put before and behind the others, also several at once, and survive a restart's reading", async () => {
  const api = await stand();
  const rule = (maxRetries: number) => ({ rule: { match: "default", policy: { maxRetries } } });
  await Promise.all([1, 2, 3].map((n) => api.ask("POST /policies/append", { body: rule(n) })));
  await api.ask("POST /policies/prepend", { body: rule(9) });
  const { rules } = (await api.ask("GET /policies")).body as { rules: { policy: { maxRetries: number } }[] };
  expect(rules.map((one) => one.policy.maxRetries)).toEqual([
    9,
    expect.any(Number),
    expect.any(Number),
    expect.any(Number),
  ]);
  const made = await api.ask("POST /tokens", { body: { name: "a", role: "admin", namespace: "acme" } });
  const ofHost = await api.ask("PUT /policies?scope=host", { token: made.body.token, body: { rules: [] } });
  expect(ofHost.status).toBe(403);
});
