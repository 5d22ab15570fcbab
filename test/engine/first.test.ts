import { expect, test } from "vitest";
import { MemoryWorld } from "../../host/connectors/memory.ts";
import { Engine } from "../../host/engine/engine.ts";
import { policiesOf } from "../../host/engine/policies.ts";
import { scriptsOf } from "../../host/engine/scripts.ts";
import { compileScript } from "../../host/sandbox/compile.ts";
import { openPool } from "../../host/sandbox/pool.ts";
import { openStore } from "../../host/store/open.ts";
import { systemClock } from "../../host/system/clock.ts";

const SOURCE = `
import { consumer, producer, topic, workflow } from "pawl";
export default workflow({
  name: "orders",
  connections: { shop: "http", ledger: "http" },
  topics: { order: topic<{ id: string }>(), booked: topic<{ id: string }>({ output: true }) },
  producers: { poll: producer({ schedule: { interval: "5m" }, publishes: ["order"], async handler(ctx) {
    const { body } = await ctx.shop.get<{ id: string }[]>("/orders");
    for (const order of body) ctx.publish("order", { messageId: order.id, payload: order });
    return { seen: body.length };
  } }) },
  consumers: { book: consumer({ subscribes: ["order"], publishes: ["booked"],
    async prepare(ctx) {
      const [event] = await ctx.peek("order", { limit: 1 });
      if (!event) return { reservations: [] };
      return { reservations: [{ topic: "order", ids: [event.messageId] }], data: event.payload, ui: { title: "Book " + event.messageId } };
    },
    mutate(ctx, prepared) { ctx.ledger.post("/entries", { body: prepared.data }); },
    next(ctx, prepared, outcome) { if (outcome.status === "applied") ctx.publish("booked", { messageId: prepared.data.id, payload: { id: prepared.data.id } }); },
  }) },
});`;

test("a producer's orders are each booked once", async () => {
  await using store = openStore({ data: ":memory:", nowMs: () => Date.now() });
  await using sandbox = openPool({ childrenPerNamespace: 1 });
  const world = new MemoryWorld({
    read: () => ({
      ok: true,
      value: JSON.stringify({ status: 200, headers: {}, body: [{ id: "a" }, { id: "b" }, { id: "c" }] }),
    }),
  });
  const warnings: string[] = [];
  let idle: () => void = () => {};
  const quiet = new Promise<void>((resolve) => {
    idle = resolve;
  });
  let commits = 0;
  const engine = new Engine(
    {
      store,
      sandbox,
      world,
      clock: systemClock,
      policies: policiesOf([]),
      scripts: scriptsOf(store),
      downtime: [],
      fused: true,
      hash: (text) => text.slice(0, 40),
      tell: (event) => {
        if (event.kind === "engine.warning") warnings.push(event.message);
        if (event.kind === "run.ended" && event.facts.run.status === "committed" && ++commits === 5) idle();
        if (event.kind === "run.ended" && event.facts.run.status !== "committed") {
          warnings.push(JSON.stringify(event.facts.run.error));
          idle();
        }
      },
    },
    { slots: 4, compile: compileScript },
  );
  const made = await engine.deploys.deploy({
    namespace: "default",
    name: "orders",
    upload: { source: SOURCE, language: "ts", file: "orders.ts" },
    by: "test",
  });
  expect(made).toMatchObject({ ok: true, outcome: "created", version: 1 });
  await engine.start();
  await quiet;
  await engine.stop();
  expect(warnings).toEqual([]);
  expect(world.sent.map((call) => JSON.parse(call.args).body.id)).toEqual(["a", "b", "c"]);
});
