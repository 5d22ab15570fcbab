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
  type Harness,
  SECOND,
  type Spec,
} from "../support/host-harness.ts";
import { gate, ok, readFails } from "../support/test-world.ts";

const ticking = (every = "5m"): Spec => ({ producers: { tick: { every, handler: nothing } } });
const starts = (h: Harness, unitMs = MINUTE) =>
  h.runs("tick").map((one) => (one.startedAtMs - MONDAY) / unitMs);

test("1.2 an interval keeps its grid from slot to slot", async () => {
  await using h = await harness();
  await h.deploy("w", ticking());
  await h.pass(17 * MINUTE);
  expect(starts(h)).toEqual([0, 5, 10, 15]);
  expect(h.runs("tick").map((one) => one.trigger)).toEqual(["deploy", "due", "due", "due"]);
});

test("1.2 a run that outlasts its slots gives one catch-up run and returns to the grid", async () => {
  await using h = await harness({ policy: [{ match: "default", policy: { timeoutMs: HOUR } }] });
  const answer = gate<ReturnType<typeof ok>>();
  h.world.onRead = (_, nth) => (nth === 2 ? answer.promise : ok());
  await h.deploy("w", { producers: { tick: { every: "5m", handler: asking(nothing) } } });
  await h.pass(22 * MINUTE);
  answer.open(ok());
  await h.settle();
  await h.pass(9 * MINUTE);
  expect(starts(h)).toEqual([0, 5, 22, 25, 30]);
});

test("1.2 a manual run starts an interval anew", async () => {
  await using h = await harness();
  await h.deploy("w", ticking());
  await h.pass(2 * MINUTE);
  await h.runNow();
  await h.pass(11 * MINUTE);
  expect(starts(h)).toEqual([0, 2, 7, 12]);
  expect(h.runs("tick")[1]?.trigger).toBe("queued");
});

test("1.2 cron fires at its times, in its zone", async () => {
  await using h = await harness();
  await h.deploy("w", {
    producers: { tick: { cron: "0 9 * * *", timezone: "Asia/Tokyo", handler: nothing } },
  });
  await h.pass(2 * DAY);
  expect(starts(h, HOUR)).toEqual([0, 16, 40]);
});

test("1.2 missed fires give exactly one catch-up run after a pause", async () => {
  await using h = await harness();
  await h.deploy("w", ticking());
  await h.act(h.operator.pause(h.id(), ANN));
  await h.pass(23 * MINUTE);
  await h.act(h.operator.resume(h.id(), ANN));
  await h.pass(3 * MINUTE);
  expect(starts(h)).toEqual([0, 23, 25]);
});

test("1.3 at a catch-up the newest point ran and the older ones are coalesced into it", async () => {
  await using h = await harness();
  await h.deploy("w", ticking());
  await h.act(h.operator.pause(h.id(), ANN));
  await h.pass(23 * MINUTE);
  await h.act(h.operator.resume(h.id(), ANN));
  expect(h.slots("tick")).toEqual(["3 coalesced", "1 ran"]);
});

test("1.3 points while the host was down are missed, as one range", async () => {
  await using h = await harness({ file: true });
  await h.deploy("w", ticking());
  await h.pass(6 * MINUTE);
  await h.restart(7 * DAY);
  await h.pass(5 * MINUTE);
  expect(h.slots("tick")).toEqual(["1 ran", "2015 missed", "1 ran", "1 ran"]);
});

test("1.3 a point whose chain ends without commit has failed", async () => {
  await using h = await harness();
  await h.deploy("w", { producers: { tick: { every: "5m", handler: [null, new Error("no")] } } });
  await h.pass(6 * MINUTE);
  await h.decide("tick", { action: "close", deliveries: "release" });
  expect(h.slots("tick")).toEqual(["1 failed"]);
  expect(h.handler("tick").nextRunAtMs).toBe(MONDAY + 10 * MINUTE);
});

test("1.3 onFailure skip records the point as skipped and goes on", async () => {
  await using h = await harness({ policy: [{ match: { type: "producer" }, policy: { onFailure: "skip" } }] });
  await h.deploy("w", { producers: { tick: { every: "5m", handler: [null, new Error("no"), null] } } });
  await h.pass(11 * MINUTE);
  expect(h.slots("tick")).toEqual(["1 skipped", "1 ran"]);
  expect(h.statuses("tick")).toEqual(["committed", "failed:logic", "committed"]);
});

test("1.3 archiving skips the points that were due", async () => {
  await using h = await harness();
  await h.deploy("w", ticking());
  await h.act(h.operator.pause(h.id(), ANN));
  await h.pass(11 * MINUTE);
  expect(await h.act(h.operator.archive(h.id(), ANN))).toEqual({ ok: true });
  expect(h.slots("tick")).toEqual(["2 skipped"]);
  expect(h.handler("tick").nextRunAtMs).toBeNull();
});

test("1.12 a clock set back by a day does not silence an interval", async () => {
  await using h = await harness();
  await h.deploy("w", ticking());
  h.clock.jump(-DAY);
  await h.pass(11 * MINUTE);
  expect(h.runs("tick").length).toBe(3);
});

test("1.12 a clock set back while a run is open is noticed once the run has ended", async () => {
  // Its last slot lies in what is now the future, which `doctor` would report.
  await using h = await harness({
    lawless: true,
    policy: [{ match: "default", policy: { timeoutMs: HOUR } }],
  });
  const answer = gate<ReturnType<typeof ok>>();
  h.world.onRead = (_, nth) => (nth === 2 ? answer.promise : ok());
  await h.deploy("w", { producers: { tick: { every: "5m", handler: asking(nothing) } } });
  await h.pass(5 * MINUTE);
  h.clock.jump(-DAY);
  await h.pass(MINUTE);
  answer.open(ok());
  await h.pass(6 * MINUTE);
  expect(h.runs("tick").length).toBe(3);
});

test("1.12 a clock set forward by a week gives one catch-up run", async () => {
  await using h = await harness();
  await h.deploy("w", ticking());
  h.clock.jump(7 * DAY);
  await h.pass(MINUTE);
  expect(h.runs("tick").length).toBe(2);
});

test("1.12 a clock that was set back while the host was down does not silence an interval", async () => {
  await using h = await harness({ file: true });
  await h.deploy("w", ticking());
  await h.restart(MINUTE, -DAY);
  await h.pass(6 * MINUTE);
  expect(h.runs("tick").length).toBe(2);
});

test("1.12 between due times the store is asked by the sweep alone", async () => {
  await using h = await harness();
  for (let i = 0; i < 5; i++) await h.deploy(`w${i}`, ticking("1d"));
  const before = h.moves;
  await h.pass(10 * MINUTE);
  const perSweep = (h.moves - before) / 20;
  expect(perSweep).toBeLessThanOrEqual(8);
});

test("1.12 a workflow that seems due and has nothing to do is not asked over and over", async () => {
  await using h = await harness({ lawless: true });
  await h.deploy("w", ticking("1d"));
  h.store.db.prepare("UPDATE workflows SET due_at = 1").run();
  const before = h.moves;
  h.engine.poke();
  await h.pass(10 * SECOND);
  expect(h.moves - before).toBeLessThan(30);
  expect(h.runs("tick").length).toBe(1);
});

test("1.12 the janitor stops when the clock jumped by more than an hour", async () => {
  let tidied = 0;
  await using h = await harness({
    engine: { tidy: async () => ++tidied < 0 },
  });
  await h.pass(11 * MINUTE);
  expect(tidied).toBe(1);
  h.clock.jump(3 * HOUR);
  await h.pass(10 * MINUTE);
  expect(tidied).toBe(1);
  await h.pass(10 * MINUTE);
  expect(tidied).toBe(2);
});

test("4 a producer's failure blocks its workflow", async () => {
  await using h = await harness();
  h.world.onRead = () => readFails("logic");
  await h.deploy("w", { producers: { tick: { every: "5m", handler: asking(nothing) } } });
  await h.pass(HOUR);
  expect(h.statuses("tick")).toEqual(["failed:logic"]);
  expect(h.inbox()).toEqual(["script_error"]);
});

const summer: [zone: string, before: number, fires: number[]][] = [
  // 2026-03-29 02:30 does not exist in Zurich: at the next valid instant, 03:00 local.
  ["Europe/Zurich", Date.UTC(2026, 2, 28, 0), [1.5, 25, 48.5]],
  // 2026-03-08 02:30 does not exist in New York.
  ["America/New_York", Date.UTC(2026, 2, 7, 5), [2.5, 26, 49.5]],
  // 2026-10-04: Lord Howe moves by half an hour, 02:00 to 02:30.
  ["Australia/Lord_Howe", Date.UTC(2026, 9, 2, 14), [2, 25.5, 49.5]],
];
for (const [zone, startMs, hours] of summer)
  test(`1.2 a local time that does not exist runs once, at the next valid instant: ${zone}`, async () => {
    await using h = await harness({ startMs });
    await h.deploy("w", { producers: { tick: { cron: "30 2 * * *", timezone: zone, handler: nothing } } });
    await h.pass(51 * HOUR);
    const fired = h.runs("tick").filter((one) => one.trigger === "due");
    expect(fired.map((one) => (one.startedAtMs - startMs) / HOUR)).toEqual(hours);
  });

const winter: [zone: string, before: number, fires: number[]][] = [
  ["Europe/Zurich", Date.UTC(2026, 9, 23, 22), [2.5, 26.5, 51.5]],
  ["America/New_York", Date.UTC(2026, 9, 31, 4), [1.5, 25.5, 50.5]],
  ["Australia/Lord_Howe", Date.UTC(2026, 3, 3, 13), [1.75, 25.75, 50.25]],
];
for (const [zone, startMs, hours] of winter)
  test(`1.2 a local time that occurs twice runs once, the first time: ${zone}`, async () => {
    await using h = await harness({ startMs });
    const minute = zone === "Europe/Zurich" ? "30 2" : zone === "America/New_York" ? "30 1" : "45 1";
    await h.deploy("w", {
      producers: { tick: { cron: `${minute} * * *`, timezone: zone, handler: nothing } },
    });
    await h.pass(55 * HOUR);
    const fired = h.runs("tick").filter((one) => one.trigger === "due");
    expect(fired.map((one) => (one.startedAtMs - startMs) / HOUR)).toEqual(hours);
  });
