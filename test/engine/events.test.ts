import { expect, test } from "vitest";
import { Pages } from "../../host/store/sqlite/pages.ts";
import { feed } from "../../host/engine/feed.ts";
import { TRANSCRIPT_BODY } from "../../host/store/sqlite/records.ts";
import {
  ANN,
  asking,
  harness,
  HOUR,
  MINUTE,
  nothing,
  post,
  publishing,
  type Harness,
  type Spec,
  take,
} from "../support/host-harness.ts";
import type { Play } from "../support/scripted-sandbox.ts";
import { applied, gate } from "../support/test-world.ts";

type Consumer = NonNullable<Spec["consumers"]>[string];
const booking = (more: Partial<Consumer> = {}): Spec => ({
  consumers: { book: { on: "order", prepare: take("order"), mutate: post, next: nothing, ...more } },
});
const inputs = (h: Harness) => h.store.db.prepare("SELECT key FROM inputs ORDER BY id").pluck().all();

test("8 one delivery per event and subscribed consumer, each with its own state", async () => {
  await using h = await harness();
  await h.deploy("w", {
    producers: { tick: { every: "1d", publishes: ["order"], handler: publishing("order", "a") } },
    consumers: {
      book: { on: "order", prepare: take("order") },
      keep: { on: "order", prepare: () => ({}) },
    },
  });
  expect(h.deliveries("book")).toEqual(["a consumed"]);
  expect(h.deliveries("keep")).toEqual(["a pending"]);
});

test("8 publishing the same again writes nothing and revives nothing", async () => {
  await using h = await harness();
  await h.deploy("w", {
    producers: { tick: { every: "1m", publishes: ["order"], handler: publishing("order", "a") } },
    consumers: { book: { on: "order", prepare: take("order") } },
  });
  await h.pass(5 * MINUTE);
  expect(h.events("order")).toMatchObject([{ messageId: "a", revision: 1 }]);
  expect(h.deliveries("book")).toEqual(["a consumed"]);
});

test("8 a changed payload is a new revision for what is pending", async () => {
  await using h = await harness();
  await h.deploy("w", booking({ prepare: [{}, {}, take("order")] }));
  await h.feed("order", "a", { n: 1 });
  await h.feed("order", "a", { n: 2 });
  expect(h.events("order")).toMatchObject([{ revision: 2, payload: { n: 2 } }]);
  expect(h.deliveries("book")).toEqual(["a consumed"]);
});

test("8 a reserved delivery keeps its payload and is marked late when its run commits", async () => {
  await using h = await harness();
  const answer = gate<ReturnType<typeof applied>>();
  const seen: unknown[] = [];
  h.world.onSend = () => answer.promise;
  await h.deploy("w", booking({ next: (_, { data }) => void seen.push(data.payloads) }));
  await h.feed("order", "a", { n: 1 });
  const fed = await h.feed("order", "a", { n: 2 });
  expect(fed).toMatchObject({ ok: true, event: { outcome: "updated", late: [h.delivery("book", "a")] } });
  answer.open(applied());
  await h.settle();
  expect(seen.at(-1)).toEqual([{ n: 1 }]);
  expect(h.deliveries("book")).toEqual(["a consumed late"]);
});

test("8 if the run that held it is reset, the new revision is seen", async () => {
  await using h = await harness();
  h.world.tool_ = { grant: "approve" };
  await h.deploy("w", booking());
  await h.feed("order", "a", { n: 1 });
  await h.feed("order", "a", { n: 2 });
  await h.decide("book", { action: "reject", deliveries: "release" });
  await h.runNow("book");
  const prepared = h.store.db
    .prepare("SELECT prepared_json FROM runs WHERE id = ?")
    .pluck()
    .get(h.run("book").id);
  expect(prepared).toContain('"n":2');
});

test("8 a new subscriber gets what is published from then on", async () => {
  await using h = await harness();
  await h.deploy("w", { consumers: { book: { on: "order", prepare: () => ({}) } } });
  await h.feed("order", "a");
  await h.deploy("w", {
    consumers: { book: { on: "order", prepare: () => ({}) }, other: { on: "order", prepare: () => ({}) } },
  });
  await h.feed("order", "b");
  expect(h.deliveries("book")).toEqual(["a pending", "b pending"]);
  expect(h.deliveries("other")).toEqual(["b pending"]);
});

const registering = (messageId: string) => (ctx: Record<string, (...args: unknown[]) => unknown>) => {
  const input = ctx["registerInput"]?.({ source: "shop", type: "order", id: "7", title: "Order 7" });
  ctx["publish"]?.("order", { messageId, payload: {}, input });
};

test("8 an input registered twice is one, and both events point to it", async () => {
  await using h = await harness();
  await h.deploy("w", {
    producers: {
      tick: { every: "1m", publishes: ["order"], handler: [registering("a"), registering("b")] },
    },
    consumers: { book: { on: "order", prepare: () => ({}) } },
  });
  await h.pass(MINUTE);
  expect(inputs(h)).toEqual(["7"]);
  expect(h.events("order").map((one) => one.causes)).toEqual([["7"], ["7"]]);
});

test("8 what next publishes was caused by everything it reserved", async () => {
  await using h = await harness();
  const handler = (ctx: Record<string, (...args: unknown[]) => unknown>) => {
    for (const id of ["1", "2"]) {
      const input = ctx["registerInput"]?.({ source: "shop", type: "order", id, title: id });
      ctx["publish"]?.("order", { messageId: id, payload: {}, input });
    }
  };
  await h.deploy("w", {
    producers: { tick: { every: "1d", publishes: ["order"], handler } },
    consumers: {
      book: {
        on: "order",
        publishes: ["done"],
        prepare: take("order", 2),
        next: (ctx, { data }) => {
          if (data.ids.length > 0) ctx.publish("done", { messageId: "both", payload: {} });
        },
      },
    },
  });
  expect(h.events("done")).toMatchObject([{ messageId: "both", causes: ["1", "2"], hops: 1 }]);
});

test("6 skipping an input skips all it caused; the rest is left and listed", async () => {
  await using h = await harness();
  await h.deploy("w", {
    producers: { tick: { every: "1d", publishes: ["order"], handler: registering("a") } },
    consumers: {
      book: { on: "order", prepare: () => ({}) },
      done: { on: "order", prepare: take("order") },
    },
  });
  const id = h.store.db.prepare("SELECT id FROM inputs").pluck().get() as number;
  const skipped = await h.act(h.operator.skipInput(h.id(), id, ANN));
  expect(skipped).toMatchObject({
    ok: true,
    left: [{ delivery: h.delivery("done", "a"), why: "the delivery is consumed" }],
  });
  expect(h.deliveries("book")).toEqual(["a skipped"]);
});

const circle = (): Spec => ({
  consumers: {
    book: {
      on: "order",
      publishes: ["order"],
      prepare: take("order"),
      next: (ctx, { data }) => {
        if (data.ids.length > 0) ctx.publish("order", { messageId: `${data.ids[0]}x`, payload: {} });
      },
    },
  },
});

test("1.13 a circle of events ends as failed:logic loop", async () => {
  await using h = await harness({ policy: [{ match: "default", policy: { limits: { maxHops: 5 } } }] });
  await h.deploy("w", circle());
  await h.feed("order", "a");
  expect(h.events("order").map((one) => one.hops)).toEqual([0, 1, 2, 3, 4, 5]);
  expect(h.run("book")).toMatchObject({ status: "failed:logic", error: "loop", phase: "emitting" });
});

test("1.13 a run that reserves nothing counts the hops of what was pending at its start", async () => {
  await using h = await harness();
  let n = 0;
  await h.deploy("w", {
    consumers: {
      book: {
        on: "order",
        publishes: ["order", "other"],
        prepare: () => ({}),
        next: (ctx) => {
          if (++n < 4) ctx.publish(n > 1 ? "order" : "other", { messageId: `m${n}`, payload: {} });
        },
      },
    },
  });
  await h.feed("order", "a");
  expect(h.events("order").map((one) => one.hops)).toEqual([0, 1, 2]);
});

test("1.13 a circle that reserves nothing ends however much it has declined before", async () => {
  await using h = await harness({ policy: [{ match: "default", policy: { limits: { maxHops: 3 } } }] });
  await h.deploy("w", { consumers: { book: { on: "order", prepare: () => ({}) } } });
  const declined = Array.from({ length: 10_001 }, (_, n) => `old${n}`);
  for (const messageId of declined) await feed(h.parts, h.id(), { topic: "order", messageId, payload: "{}" });
  let n = 0;
  const next: Play = (ctx) => void ctx.publish("order", { messageId: `new${++n}`, payload: {} });
  await h.deploy("w", {
    consumers: { book: { on: "order", publishes: ["order"], prepare: () => ({}), next } },
  });
  expect(h.run("book")).toMatchObject({ status: "failed:logic", error: "loop" });
  expect(n).toBe(4);
});

test("1.13 what producers and clients publish begins at no hops", async () => {
  await using h = await harness();
  await h.deploy("w", {
    producers: { tick: { every: "1d", publishes: ["order"], handler: publishing("order", "a") } },
    consumers: { book: { on: "order", prepare: () => ({}) } },
  });
  await h.feed("order", "b");
  expect(h.events("order").map((one) => one.hops)).toEqual([0, 0]);
});

test("1.13 a run publishes no more than its limit", async () => {
  await using h = await harness({ policy: [{ match: "default", policy: { limits: { maxPublishes: 2 } } }] });
  const handler = publishing("order", "a", "b", "c");
  await h.deploy("w", { producers: { tick: { every: "1d", publishes: ["order"], handler } } });
  expect(h.run("tick")).toMatchObject({ status: "failed:logic", error: "publish-limit" });
  expect(h.events("order")).toEqual([]);
});

test("03 a payload is checked against its topic's schema, whoever publishes it", async () => {
  await using h = await harness();
  const schema = { type: "object", required: ["id"], properties: { id: { type: "string", maxLength: 3 } } };
  const handler = [publishing("order", "abc"), publishing("order", "much-too-long")];
  await h.deploy("w", {
    producers: { tick: { every: "1h", publishes: ["order"], handler } },
    topics: { order: { schema } },
  });
  await h.pass(HOUR);
  expect(h.run("tick")).toMatchObject({ status: "failed:logic", error: "bad-payload" });
  expect(h.run("tick").message).toContain("payload.id is longer than 3");
  expect(await h.feed("order", "x", {})).toMatchObject({ ok: false, code: "bad-payload" });
  expect(await h.feed("order", "y", { id: "y" })).toMatchObject({ ok: true });
});

test("03 a schema with what cannot be checked is refused at deploy", async () => {
  await using h = await harness();
  const made = await h.deploy("w", { ...booking(), topics: { order: { schema: { pattern: "(a+)+$" } } } });
  expect(made).toMatchObject({ ok: false });
});

test("8 an event for a topic that nobody declares is refused, and so is one for an archived workflow", async () => {
  await using h = await harness();
  await h.deploy("w", booking());
  expect(await h.feed("nowhere", "a")).toMatchObject({ ok: false, code: "undeclared-topic" });
  await h.act(h.operator.archive(h.id(), ANN));
  expect(await h.feed("order", "a")).toMatchObject({ ok: false, code: "archived" });
});

test("8 an acknowledged event is there after a crash", async () => {
  await using h = await harness({ file: true });
  await h.deploy("w", booking());
  await h.act(h.operator.pause(h.id(), ANN));
  expect(await h.feed("order", "a")).toMatchObject({ ok: true });
  await h.restart();
  expect(h.deliveries("book")).toEqual(["a pending"]);
});

test("03 params are the operator's, over the defaults that the script declares", async () => {
  await using h = await harness();
  const params = { region: { type: "string", default: "eu" }, size: { type: "number", default: 1 } } as const;
  await h.deploy("w", { producers: { tick: { every: "1h", handler: (ctx) => ctx.params } }, params });
  expect(h.handler("tick").state).toEqual({ region: "eu", size: 1 });
  h.store.db.prepare("UPDATE workflows SET params_json = ?").run('{"region":"us"}');
  await h.pass(HOUR);
  expect(h.handler("tick").state).toEqual({ region: "us", size: 1 });
});

test("10 every answer, the clock and the seed of a unit are recorded, and its logs", async () => {
  await using h = await harness();
  const handler = asking((ctx) => ctx.log.info("looked", { at: 1 }));
  await h.deploy("w", { producers: { tick: { every: "1d", handler } } });
  const body = h.store.db
    .prepare(`SELECT ${TRANSCRIPT_BODY} FROM transcripts t WHERE t.unit = 'producer'`)
    .pluck()
    .get() as string;
  expect(JSON.parse(body)).toMatchObject({
    nowMs: h.clock.nowMs(),
    seed: `${h.run("tick").id}:1:0`,
    answers: [{ call: 1, name: "shop.get", answer: { ok: true, value: "{}" } }],
  });
  const lines = h.store.db.prepare("SELECT lines_json FROM logs").pluck().get() as string;
  expect(JSON.parse(lines)).toMatchObject([{ level: "info", message: "looked" }]);
});

test("10 a transcript beyond its cap is kept without its answers", async () => {
  await using h = await harness({ parts: { transcriptChars: 200 } });
  h.world.onRead = () => ({ ok: true, value: JSON.stringify("x".repeat(1_000)) });
  await h.deploy("w", { producers: { tick: { every: "1d", handler: asking(nothing) } } });
  const body = h.store.db.prepare(`SELECT ${TRANSCRIPT_BODY} FROM transcripts t`).pluck().get() as string;
  expect(JSON.parse(body)).toMatchObject({ truncated: true, nowMs: h.clock.nowMs() });
  expect(body.length).toBeLessThan(300);
});

test("8 what was changed because of an input includes what followed from next", async () => {
  await using h = await harness();
  const register: Play = (ctx) => {
    const input = ctx.registerInput({
      source: "mail",
      type: "email",
      id: "7",
      title: "Email from alice: Q4",
    });
    ctx.publish("order", { messageId: "a", payload: {}, input });
  };
  const handOn: Play = (ctx, { data }: { data: { ids: string[] } }) => {
    for (const id of data.ids) ctx.publish("booked", { messageId: id, payload: {} });
  };
  await h.deploy("w", {
    producers: { mail: { every: "1d", publishes: ["order"], handler: register } },
    consumers: {
      book: { on: "order", publishes: ["booked"], prepare: take("order"), mutate: post, next: handOn },
      tell: { on: "booked", prepare: take("booked"), mutate: post },
    },
  });
  const pages = new Pages(h.store.db);
  const namespace = (await pages.namespace("default")) as number;
  const [input] = (await pages.inputs(namespace, h.id(), {})).items;
  const found = await pages.input(namespace, input?.id as number);
  expect(found?.became).toMatchObject({ consumed: 2 });
  expect(found?.outputs.map((one) => [one.handler, one.mutation.status])).toEqual([
    ["tell", "applied"],
    ["book", "applied"],
  ]);
  expect(found?.outputs[0]?.causedBy).toMatchObject([{ title: "Email from alice: Q4" }]);
});

test("S1 what travels with prepare is what its version has asked for before: a larger wish asks once", async () => {
  await using h = await harness({ slots: 1 });
  await h.deploy("w", booking({ prepare: take("order", 3) }));
  await Promise.all(Array.from({ length: 12 }, (_, n) => h.feed("order", `o${n}`, { n })));
  await h.pass(MINUTE);
  expect(h.deliveries("book").every((one) => one.endsWith("consumed"))).toBe(true);
  const bodies = h.store.db
    .prepare(`SELECT ${TRANSCRIPT_BODY} FROM transcripts t WHERE t.unit LIKE 'prepare%' ORDER BY t.run`)
    .pluck()
    .all() as string[];
  const asked = bodies.map((body) => (JSON.parse(body) as { answers: { name: string }[] }).answers.length);
  expect(asked.filter((count) => count > 0)).toHaveLength(1);
});
