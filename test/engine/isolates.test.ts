import { afterAll, beforeAll, expect, test } from "vitest";
import type { Sandbox } from "../../host/ports/sandbox.ts";
import { compileScript } from "../../host/sandbox/compile.ts";
import { openPool } from "../../host/sandbox/pool.ts";
import { ANN, harness, MINUTE } from "../support/host-harness.ts";
import { ok } from "../support/test-world.ts";

let sandbox: Sandbox;
beforeAll(() => {
  sandbox = openPool({ childrenPerNamespace: 1 });
});
afterAll(() => sandbox[Symbol.asyncDispose]());

const real = () => ({ real: { sandbox, compile: compileScript } });

const ORDERS = `
import { consumer, producer, topic, workflow } from "pawl";
export default workflow({
  name: "w",
  connections: { shop: "http", bank: "http" },
  topics: { order: topic<{ id: string }>(), booked: topic<{ id: string }>({ output: true }) },
  params: { prefix: { type: "string", default: "no-" } },
  producers: { poll: producer({ schedule: { interval: "5m" }, publishes: ["order"], async handler(ctx, state: { n: number } | undefined) {
    const { body } = await ctx.shop.get<string[]>("/orders");
    for (const id of body) {
      const input = ctx.registerInput({ source: "shop", type: "order", id, title: "Order " + id });
      ctx.publish("order", { messageId: id, payload: { id }, input });
    }
    return { n: (state?.n ?? 0) + 1 };
  } }) },
  consumers: { book: consumer({ subscribes: ["order"], publishes: ["booked"],
    async prepare(ctx) {
      const [event] = await ctx.peek("order", { limit: 1 });
      if (!event) return { reservations: [] };
      return { reservations: [{ topic: "order", ids: [event.messageId] }], data: event.payload };
    },
    mutate(ctx, prepared) { ctx.bank.post("/entries", { body: { id: prepared.data.id } }); },
    next(ctx, prepared, outcome) {
      if (outcome.status === "applied")
        ctx.publish("booked", { messageId: ctx.params.prefix + prepared.data.id, payload: { id: prepared.data.id } });
    },
  }) },
});`;

for (const fused of [true, false])
  test(`2 real scripts: every order is booked once, with its cause, ${fused ? "fused" : "unfused"}`, async () => {
    await using h = await harness({ ...real(), fused });
    h.world.onRead = () => ok({ status: 200, headers: {}, body: ["a", "b", "c"] });
    expect(await h.deploySource("w", ORDERS)).toMatchObject({ ok: true });
    await h.pass(6 * MINUTE);
    expect(h.world.args).toMatchObject([{ body: { id: "a" } }, { body: { id: "b" } }, { body: { id: "c" } }]);
    expect(h.events("booked").map((one) => [one.messageId, one.causes])).toEqual([
      ["no-a", ["a"]],
      ["no-b", ["b"]],
      ["no-c", ["c"]],
    ]);
    expect(h.handler("poll").state).toEqual({ n: 2 });
    expect(h.warnings()).toEqual([]);
  });

test("4 a real script that never ends is failed:logic, and a person's abort ends one that waits", async () => {
  await using h = await harness({
    ...real(),
    policy: [{ match: "default", policy: { limits: { cpuMs: 50 } } }],
  });
  const source = (body: string) => `
import { producer, workflow } from "pawl";
export default workflow({ name: "w", connections: { shop: "http" }, topics: {}, producers: { tick: producer({
  schedule: { interval: "1h" }, publishes: [], async handler(ctx) { ${body} } }) } });`;
  await h.deploySource("w", source("for (;;) {}"));
  expect(h.run("tick").status).toBe("failed:logic");
  h.world.onRead = () => new Promise(() => {});
  const waiting = h.deploySource("w", source('await ctx.shop.get("/");'));
  while (h.world.reads.length === 0) await new Promise((resolve) => setImmediate(resolve));
  await h.operator.pause(h.id(), ANN, { abort: true });
  await waiting;
  await h.settle();
  expect(h.run("tick")).toMatchObject({ status: "crashed", error: "aborted" });
});

const schedules = [
  ["bad-cron", '{ cron: "0 25 * * *" }'],
  ["bad-timezone", '{ cron: "0 9 * * *", timezone: "Mars/Olympus" }'],
  ["cron-never-fires", '{ cron: "0 0 30 2 *" }'],
  ["interval-too-short", '{ interval: "1s" }'],
] as const;

test.each(schedules)(
  "1.2 a schedule that can never be kept is refused at deploy: %s %s",
  async (code, schedule) => {
    await using h = await harness(real());
    const source = `import { producer, workflow } from "pawl";
export default workflow({ name: "w", producers: { p: producer({ schedule: ${schedule}, handler() {} }) } });`;
    const made = await h.deploySource("w", source);
    expect(made).toMatchObject({ ok: false, problems: [expect.objectContaining({ code })] });
    expect(h.runs()).toEqual([]);
  },
);
