import { expect, test } from "vitest";
import {
  ANN,
  asking,
  DAY,
  HOUR,
  harness,
  MINUTE,
  MONDAY,
  nothing,
  post,
  SECOND,
  type Spec,
  take,
} from "../support/host-harness.ts";
import { applied, gate, ok } from "../support/test-world.ts";

const booking = (more: Partial<NonNullable<Spec["consumers"]>[string]> = {}): Spec => ({
  consumers: { book: { on: "order", prepare: take("order"), ...more } },
});

test("1.4 a consumer is triggered once by its deploy", async () => {
  await using h = await harness();
  await h.deploy("w", booking());
  await h.pass(HOUR);
  expect(h.runs("book").map((one) => one.trigger)).toEqual(["deploy"]);
});

test("1.4 a new event starts its consumer", async () => {
  await using h = await harness();
  await h.deploy("w", booking());
  await h.feed("order", "a");
  expect(h.runs("book").map((one) => one.trigger)).toEqual(["deploy", "event"]);
  expect(h.deliveries("book")).toEqual(["a consumed"]);
});

test("1.4 an event published between peek and commit triggers again", async () => {
  await using h = await harness();
  const answer = gate<ReturnType<typeof applied>>();
  h.world.onSend = (_, nth) => (nth === 1 ? answer.promise : applied());
  await h.deploy("w", booking({ mutate: post }));
  await h.feed("order", "a");
  await h.feed("order", "b");
  expect(h.deliveries("book")).toEqual(["a reserved", "b pending"]);
  answer.open(applied());
  await h.settle();
  expect(h.deliveries("book")).toEqual(["a consumed", "b consumed"]);
  expect(h.world.args).toEqual([{ ids: ["a"] }, { ids: ["b"] }]);
});

test("1.4 an event of the run's own next triggers again", async () => {
  await using h = await harness();
  await h.deploy(
    "w",
    booking({
      publishes: ["order"],
      next: (ctx, { data }) => {
        if (data.ids[0] === "a") ctx.publish("order", { messageId: "b", payload: {} });
      },
    }),
  );
  await h.feed("order", "a");
  expect(h.deliveries("book")).toEqual(["a consumed", "b consumed"]);
});

test("1.4 a changed payload of a pending delivery triggers, an unchanged one does not", async () => {
  await using h = await harness();
  await h.deploy("w", booking({ prepare: () => ({ reservations: [] }) }));
  await h.feed("order", "a", { n: 1 });
  await h.feed("order", "a", { n: 1 });
  expect(h.runs("book").length).toBe(2);
  await h.feed("order", "a", { n: 2 });
  expect(h.runs("book").length).toBe(3);
});

test("1.5 after a commit that consumed something the consumer runs for what is left", async () => {
  await using h = await harness();
  await h.deploy("w", booking());
  await h.act(h.operator.pause(h.id(), ANN));
  for (const id of ["a", "b", "c"]) await h.feed("order", id);
  await h.act(h.operator.resume(h.id(), ANN));
  expect(h.runs("book").map((one) => one.trigger)).toEqual(["deploy", "event", "more", "more"]);
});

test("1.5 the host never runs a consumer again for events it has declined", async () => {
  await using h = await harness();
  await h.deploy("w", booking({ prepare: () => ({ reservations: [] }) }));
  await h.feed("order", "a");
  await h.pass(DAY);
  expect(h.runs("book").length).toBe(2);
  expect(h.deliveries("book")).toEqual(["a pending"]);
});

test("1.6 wakeAt brings the consumer back, also after an empty reservation", async () => {
  await using h = await harness();
  const wakeAt = new Date(MONDAY + 10 * MINUTE).toISOString();
  await h.deploy("w", booking({ prepare: [{ reservations: [], wakeAt }, {}] }));
  await h.pass(HOUR);
  expect(h.runs("book").map((one) => [one.trigger, (one.startedAtMs - MONDAY) / MINUTE])).toEqual([
    ["deploy", 0],
    ["wake", 10],
  ]);
});

test("1.6 wakeAt is clamped: the past to 30 s, the far future to a day, nonsense to a day with a warning", async () => {
  await using h = await harness();
  const asked = ["2001-01-01T00:00:00Z", "2099-01-01T00:00:00Z", "soon"];
  await h.deploy("w", booking({ prepare: [...asked.map((wakeAt) => ({ wakeAt })), {}] }));
  expect(h.handler("book").wakeAtMs).toBe(MONDAY + 30 * SECOND);
  await h.feed("order", "a");
  expect(h.handler("book").wakeAtMs).toBe(MONDAY + DAY);
  await h.feed("order", "b");
  expect(h.handler("book").wakeAtMs).toBe(MONDAY + DAY);
  expect(h.warnings().join()).toContain("soon");
});

test("1.6 a committed run without a wakeAt clears it; a failed run leaves it", async () => {
  await using h = await harness();
  const wakeAt = new Date(MONDAY + HOUR).toISOString();
  await h.deploy("w", booking({ prepare: [{ wakeAt }, new Error("no"), {}] }));
  await h.feed("order", "a");
  expect(h.handler("book").wakeAtMs).toBe(MONDAY + HOUR);
  await h.decide("book", { action: "retry" });
  expect(h.handler("book").wakeAtMs).toBeNull();
});

test("1.7 a closed chain uses its wake up; what it released triggers nothing by itself", async () => {
  await using h = await harness();
  const wakeAt = new Date(MONDAY + MINUTE).toISOString();
  await h.deploy("w", booking({ prepare: [{ wakeAt }, {}, new Error("no"), {}] }));
  await h.feed("order", "a");
  await h.act(h.operator.runNow(h.id(), "book", ANN));
  expect(h.statuses("book").at(-1)).toBe("failed:logic");
  await h.decide("book", { action: "close", deliveries: "release" });
  await h.pass(DAY);
  expect(h.runs("book").length).toBe(3);
  expect(h.deliveries("book")).toEqual(["a pending"]);
});

test("1.7 an ending that skipped a delivery looks at what is left", async () => {
  await using h = await harness();
  h.world.onSend = (_, nth) =>
    nth === 1 ? { outcome: "failed", class: "logic", code: "no", message: "no", raw: "{}" } : applied();
  await h.deploy("w", booking({ mutate: post }));
  await h.act(h.operator.pause(h.id(), ANN));
  await h.feed("order", "a");
  await h.feed("order", "b");
  await h.act(h.operator.resume(h.id(), ANN));
  await h.decide("book", { action: "close", deliveries: "skip" });
  expect(h.deliveries("book")).toEqual(["a skipped", "b consumed"]);
});

test("1.8 consumers go before producers, the oldest pending delivery first", async () => {
  await using h = await harness({ slots: 1 });
  const spec: Spec = {
    producers: { tick: { every: "1m", handler: nothing } },
    consumers: {
      late: { on: "x", prepare: take("x") },
      early: { on: "y", prepare: take("y") },
    },
  };
  await h.deploy("w", spec);
  await h.act(h.operator.pause(h.id(), ANN));
  await h.feed("y", "1");
  await h.pass(SECOND);
  await h.feed("x", "2");
  await h.pass(2 * MINUTE);
  const before = h.runs().length;
  await h.act(h.operator.resume(h.id(), ANN));
  expect(
    h
      .runs()
      .slice(before)
      .map((one) => one.handler),
  ).toEqual(["early", "late", "tick"]);
});

test("1.8 after a hundred consumer runs in a row a waiting producer gets one", async () => {
  await using h = await harness();
  await h.deploy("w", { producers: { tick: { every: "1m", handler: nothing } }, ...booking() });
  await h.act(h.operator.pause(h.id(), ANN));
  for (let i = 0; i < 120; i++) await h.feed("order", `m${i}`);
  await h.pass(2 * MINUTE);
  await h.act(h.operator.resume(h.id(), ANN));
  const order = h.runs().map((one) => one.handler);
  expect(order.lastIndexOf("tick")).toBeLessThan(order.length - 10);
  expect(h.deliveries("book").every((one) => one.endsWith("consumed"))).toBe(true);
});

test("1.1 while a run is open nothing else of the workflow starts, and other workflows go on", async () => {
  await using h = await harness();
  const answer = gate<ReturnType<typeof ok>>();
  h.world.onRead = () => answer.promise;
  await h.deploy("w", {
    producers: { tick: { every: "1m", handler: asking(nothing) } },
    ...booking(),
  });
  await h.deploy("other", { producers: { tock: { every: "1m", handler: nothing } } });
  await h.feed("order", "a");
  await h.pass(10 * SECOND);
  expect(h.runs("book").length + h.runs("tick").length).toBe(2);
  expect(h.deliveries("book")).toEqual(["a pending"]);
  expect(h.runs("tock").length).toBe(1);
  answer.open(ok());
  await h.settle();
  expect(h.deliveries("book")).toEqual(["a consumed"]);
});
