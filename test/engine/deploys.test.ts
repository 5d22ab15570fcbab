import { expect, test } from "vitest";
import {
  ANN,
  asking,
  harness,
  HOUR,
  MINUTE,
  nothing,
  post,
  SECOND,
  type Harness,
  type Spec,
  take,
} from "../support/host-harness.ts";
import { applied, failed, gate, ok, readFails, unknown } from "../support/test-world.ts";

type Consumer = NonNullable<Spec["consumers"]>[string];
const booking = (more: Partial<Consumer> = {}): Spec => ({
  consumers: { book: { on: "order", prepare: take("order"), mutate: post, next: nothing, ...more } },
});
const gone: Spec = { consumers: { other: { on: "order", prepare: () => ({}) } } };

test("1.10 a deploy makes every producer due and triggers every consumer once", async () => {
  await using h = await harness();
  const spec = (): Spec => ({ producers: { tick: { every: "1d", handler: nothing } }, ...booking() });
  await h.deploy("w", spec());
  await h.deploy("w", spec());
  expect(h.runs("tick").map((one) => [one.trigger, one.version])).toEqual([
    ["deploy", 1],
    ["deploy", 2],
  ]);
  expect(h.runs("book").map((one) => one.version)).toEqual([1, 2]);
});

test("1.10 identical content is no new version and starts nothing", async () => {
  await using h = await harness();
  const spec = booking();
  await h.deploy("w", spec);
  expect(await h.deploy("w", spec)).toMatchObject({ ok: true, outcome: "unchanged", version: 1 });
  expect(h.runs("book").length).toBe(1);
});

test("1.10 rolling back activates the stored version", async () => {
  await using h = await harness();
  await h.deploy("w", booking());
  await h.deploy("w", booking());
  const back = await h.act(h.engine.deploys.activate({ workflow: h.id(), version: 1, ...ANN }));
  expect(back).toMatchObject({ ok: true, outcome: "activated", version: 1 });
  expect(h.runs("book").map((one) => one.version)).toEqual([1, 2, 1]);
  expect(await h.engine.deploys.activate({ workflow: h.id(), version: 9, ...ANN })).toMatchObject({
    ok: false,
  });
});

test("1.10 a kept name keeps its state, its deliveries and its wake", async () => {
  await using h = await harness();
  const wakeAt = new Date(h.clock.nowMs() + HOUR).toISOString();
  await h.deploy("w", booking({ prepare: () => ({ wakeAt }), next: () => ({ n: 1 }) }));
  await h.feed("order", "a");
  await h.act(h.operator.pause(h.id(), ANN));
  await h.deploy("w", booking({ prepare: () => ({ wakeAt }), next: nothing }));
  expect(h.handler("book")).toMatchObject({ state: { n: 1 }, wakeAtMs: h.clock.nowMs() + HOUR });
  expect(h.deliveries("book")).toEqual(["a pending"]);
});

test("1.10 a deploy during an active run takes effect with the next run", async () => {
  await using h = await harness();
  const answer = gate<ReturnType<typeof applied>>();
  h.world.onSend = () => answer.promise;
  await h.deploy("w", booking({ next: () => ({ by: 1 }) }));
  await h.feed("order", "a");
  await h.deploy("w", booking({ next: () => ({ by: 2 }) }));
  answer.open(applied());
  await h.settle();
  expect(h.runs("book").map((one) => [one.version, one.status])).toEqual([
    [1, "committed"],
    [1, "committed"],
    [2, "committed"],
  ]);
});

test("1.10 a deploy between publish and commit is noticed: the new subscriber gets the event", async () => {
  await using h = await harness();
  const answer = gate<ReturnType<typeof ok>>();
  h.world.onRead = (_, nth) => (nth === 1 ? answer.promise : ok());
  const tick = asking((ctx) => ctx.publish("order", { messageId: "a", payload: 1 }));
  await h.deploy("w", { producers: { tick: { every: "1d", publishes: ["order"], handler: tick } } });
  await h.deploy("w", {
    producers: { tick: { every: "1d", publishes: ["order"], handler: nothing } },
    consumers: { book: { on: "order", prepare: take("order") } },
  });
  answer.open(ok());
  await h.settle();
  expect(h.deliveries("book")).toEqual(["a consumed"]);
});

const freed: [state: string, prepare: (h: Harness) => Promise<void>, from: string][] = [
  [
    "paused:transient",
    async (h) => {
      h.world.onSend = (_, nth) => (nth === 1 ? failed("transient") : applied());
      await h.deploy("w", booking());
    },
    "paused:transient retrying",
  ],
  [
    "exhausted",
    async (h) => {
      h.world.onSend = (_, nth) => (nth <= 2 ? failed("transient") : applied());
      await h.deploy("w", booking());
    },
    "paused:transient retries_exhausted",
  ],
  [
    "failed:logic",
    (h) =>
      h
        .deploy(
          "w",
          booking({
            mutate: () => {
              throw new Error("typo");
            },
          }),
        )
        .then(() => {}),
    "failed:logic",
  ],
  [
    "paused:approval precondition",
    async (h) => {
      h.world.onSend = (_, nth) => (nth === 1 ? failed("precondition") : applied());
      await h.deploy("w", booking());
    },
    "paused:approval precondition",
  ],
];
for (const [state, prepare, from] of freed)
  test(`1.10 a deploy while ${state} makes the chain ready at once, on the new version`, async () => {
    await using h = await harness({
      policy: [
        {
          match: "default",
          policy: { maxRetries: state === "exhausted" ? 1 : 5, backoff: "none" as const, baseDelayMs: 0 },
        },
      ],
    });
    await prepare(h);
    if (state === "paused:transient") {
      // A wait that the deploy cuts short.
      h.world.onSend = (_, nth) => (nth === 1 ? failed("transient", { retryAfterMs: HOUR }) : applied());
    }
    await h.feed("order", "a");
    await h.pass(SECOND);
    expect(h.statuses("book").at(-1)).toBe(from);
    await h.deploy("w", booking());
    expect(h.run("book")).toMatchObject({ version: 2, status: "committed" });
    expect(h.deliveries("book")).toEqual(["a consumed"]);
  });

const waiting: [state: string, set: (h: Harness) => void, from: string][] = [
  ["an approval", (h) => (h.world.tool_ = { grant: "approve" }), "paused:approval approval"],
  [
    "a reconciliation",
    (h) => {
      h.world.tool_ = { canCheck: false };
      h.world.onSend = () => unknown();
    },
    "paused:reconciliation indeterminate",
  ],
  ["failed:internal", (h) => (h.world.onSend = () => failed("internal")), "failed:internal"],
];
for (const [state, set, from] of waiting)
  test(`1.10 a deploy while ${state} waits goes on waiting for the person`, async () => {
    await using h = await harness();
    set(h);
    await h.deploy("w", booking());
    await h.feed("order", "a");
    expect(h.statuses("book").at(-1)).toBe(from);
    await h.deploy("w", booking());
    await h.pass(HOUR);
    expect(h.statuses("book").at(-1)).toBe(from);
    expect(h.run("book").version).toBe(1);
  });

test("3.4 an approved call is executed as shown, on its pinned version, after a deploy", async () => {
  await using h = await harness();
  h.world.tool_ = { grant: "approve" };
  await h.deploy("w", booking({ next: () => ({ by: 1 }) }));
  await h.feed("order", "a");
  await h.deploy("w", booking({ mutate: nothing, next: () => ({ by: 2 }) }));
  await h.decide("book", { action: "approve" });
  expect(h.world.args).toEqual([{ ids: ["a"] }]);
  expect(h.runs("book").find((one) => one.outcome === "applied")).toMatchObject({ version: 1 });
});

test("3.4 past the boundary a new attempt uses the active version's next", async () => {
  await using h = await harness();
  await h.deploy("w", booking({ next: [nothing, new Error("typo")] }));
  await h.feed("order", "a");
  await h.deploy("w", booking({ next: () => ({ by: 2 }) }));
  const attempt = h.runs("book").find((one) => one.attempt === 2);
  expect(attempt).toMatchObject({ version: 2, status: "committed", outcome: "applied" });
  expect(h.world.sent.length).toBe(1);
});

test("3.4 past the boundary the pinned version is used when the active one has no next", async () => {
  await using h = await harness();
  await h.deploy("w", booking({ next: [nothing, new Error("typo"), { by: 1 }] }));
  await h.feed("order", "a");
  await h.deploy("w", { consumers: { book: { on: "order", prepare: () => ({}) } } });
  expect(h.runs("book").find((one) => one.attempt === 2)).toMatchObject({ version: 1, status: "committed" });
  expect(h.handler("book").state).toEqual({ by: 1 });
});

test("1.10 a chain whose handler is gone is closed and its deliveries are orphaned", async () => {
  await using h = await harness();
  await h.deploy(
    "w",
    booking({
      mutate: () => {
        throw new Error("typo");
      },
    }),
  );
  await h.feed("order", "a");
  await h.deploy("w", gone);
  expect(h.run("book")).toMatchObject({ status: "failed:logic", open: false });
  expect(h.deliveries("book")).toEqual(["a pending"]);
  expect(h.inbox()).toEqual(["orphaned"]);
  expect(h.handler("book").orphaned).toBe(true);
});

test("1.10 a dropped consumer's deliveries are kept, skipped or moved, as the deploy says", async () => {
  for (const [orphans, mine, theirs] of [
    ["keep", ["a pending"], ["a pending"]],
    ["skip", ["a skipped"], ["a pending"]],
    [{ moveTo: "third" }, [], ["a pending"]],
  ] as const) {
    await using h = await harness();
    const idle = () => ({ on: "order", prepare: () => ({}) });
    await h.deploy("w", { consumers: { book: idle(), other: idle() } });
    await h.feed("order", "a");
    await h.deploy("w", { consumers: { other: idle(), third: idle() } }, { orphans });
    expect(h.deliveries("book")).toEqual(mine);
    expect(h.deliveries("other")).toEqual(theirs);
    expect(h.deliveries("third")).toEqual(typeof orphans === "object" ? ["a pending"] : []);
    expect(h.inbox()).toEqual(orphans === "keep" ? ["orphaned"] : []);
  }
});

test("1.10 orphans may be settled later, by a person", async () => {
  await using h = await harness();
  await h.deploy("w", { consumers: { book: { on: "order", prepare: () => ({}) } } });
  await h.feed("order", "a");
  await h.deploy("w", { consumers: { other: { on: "order", prepare: take("order") } } });
  expect(await h.act(h.operator.orphans(h.id(), "book", { moveTo: "nobody" }, ANN))).toMatchObject({
    ok: false,
  });
  expect(await h.act(h.operator.orphans(h.id(), "book", { moveTo: "other" }, ANN))).toEqual({ ok: true });
  expect(h.deliveries("other")).toEqual(["a consumed"]);
  expect(h.inbox()).toEqual([]);
});

test("1.10 moving orphans to a consumer that does not exist is refused", async () => {
  await using h = await harness();
  await h.deploy("w", booking());
  const made = await h.deploy("w", gone, { orphans: { moveTo: "nobody" } });
  expect(made).toMatchObject({ ok: false });
});

test("1.10 a consumer that comes back finds its deliveries", async () => {
  await using h = await harness();
  await h.deploy("w", { consumers: { book: { on: "order", prepare: () => ({}) } } });
  await h.feed("order", "a");
  await h.deploy("w", gone);
  await h.deploy("w", { consumers: { book: { on: "order", prepare: take("order") } } });
  expect(h.deliveries("book")).toEqual(["a consumed"]);
});

test("1.10 a new schedule counts from its deploy", async () => {
  await using h = await harness();
  await h.deploy("w", { producers: { tick: { every: "1h", handler: nothing } } });
  await h.pass(10 * MINUTE);
  await h.deploy("w", { producers: { tick: { every: "2m", handler: nothing } } });
  await h.pass(5 * MINUTE);
  expect(h.runs("tick").map((one) => (one.startedAtMs - h.clock.nowMs()) / MINUTE)).toEqual([
    -15, -5, -3, -1,
  ]);
});

test("4 a new version is tried at once after the script failed, with a new budget", async () => {
  await using h = await harness();
  h.world.onRead = () => readFails("logic");
  await h.deploy("w", { producers: { tick: { every: "1d", handler: asking(nothing) } } });
  await h.deploy("w", { producers: { tick: { every: "1d", handler: nothing } } });
  expect(h.runs("tick").map((one) => [one.status, one.version, one.attempt])).toEqual([
    ["failed:logic", 1, 1],
    ["committed", 2, 2],
  ]);
});
