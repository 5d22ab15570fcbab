// A schedule's points: when the next one is, which are due, and what becomes of each.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { parseInterval, readSchedule } from "../../host/core/schedule.ts";
import { describeSchedule } from "../../host/core/schedule-words.ts";
import {
  afterClockJump,
  duePoints,
  nextSlot,
  previousSlot,
  reanchor,
  type SlotRange,
  slotFates,
} from "../../host/core/slots.ts";
import type { Schedule } from "../../host/core/workflow.ts";

const MINUTE = 60_000;
const HOUR = 3_600_000;
const DAY = 86_400_000;
const at = (iso: string) => Date.parse(iso);
const every = (intervalMs: number): Schedule => ({ interval: `${intervalMs}ms`, intervalMs });
const fiveMinutes = every(5 * MINUTE);
const daily: Schedule = { cron: "0 9 * * *", timezone: "Europe/Zurich" };

describe("1.2 intervals keep their grid", () => {
  it("1.2 next = last slot + k·interval, the smallest that is > now", () => {
    expect(nextSlot(fiveMinutes, 1_000, 0)).toBe(5 * MINUTE);
    expect(nextSlot(fiveMinutes, 5 * MINUTE - 1, 0)).toBe(5 * MINUTE);
    expect(nextSlot(fiveMinutes, 5 * MINUTE, 0)).toBe(10 * MINUTE);
    expect(nextSlot(fiveMinutes, 61 * MINUTE, 2 * MINUTE)).toBe(62 * MINUTE);
  });

  it("1.2 (S1) no drift: a thousand late starts leave the grid where it was", () => {
    let slot = 0;
    for (let i = 1; i <= 1_000; i += 1) slot = nextSlot(fiveMinutes, slot + (i % 7) * 1_111, slot);
    expect(slot).toBe(1_000 * 5 * MINUTE);
  });

  it("1.2 (S1) no burst: after a year there is one next slot, within one interval", () => {
    const now = 365 * DAY + 1;
    expect(nextSlot(fiveMinutes, now, 0)).toBe(365 * DAY + 5 * MINUTE);
  });

  it("1.2 missed fires give exactly one catch-up run: one newest due point, and the next one is in the future", () => {
    const now = 3 * HOUR + 1_234;
    const due = duePoints(fiveMinutes, 5 * MINUTE, now, 0);
    expect(due).toEqual({ firstMs: 5 * MINUTE, newestMs: 3 * HOUR, count: 36, isFloor: false });
    const next = nextSlot(fiveMinutes, now, due?.newestMs as number);
    expect(next).toBeGreaterThan(now);
    expect(duePoints(fiveMinutes, next, now, due?.newestMs as number)).toBeUndefined();
  });

  it("1.2 cron is computed in its zone", () => {
    expect(nextSlot(daily, at("2027-01-04T00:00Z"), 0)).toBe(at("2027-01-04T08:00Z"));
    expect(nextSlot(daily, at("2027-07-04T00:00Z"), 0)).toBe(at("2027-07-04T07:00Z"));
    expect(previousSlot(daily, at("2027-07-04T07:00Z"), 0)).toBe(at("2027-07-04T07:00Z"));
    expect(duePoints(daily, at("2027-03-27T08:00Z"), at("2027-03-29T07:00Z"), 0)).toEqual({
      firstMs: at("2027-03-27T08:00Z"),
      newestMs: at("2027-03-29T07:00Z"),
      count: 3,
      isFloor: false,
    });
  });

  it("1.2 a stored time that is no longer a point of the pattern is not due by itself", () => {
    expect(duePoints(daily, at("2027-01-04T08:30Z"), at("2027-01-04T09:00Z"), 0)).toBeUndefined();
  });

  it("1.2 property: next is strictly later, previous is not later, both are on the grid, nothing lies between", () => {
    const ms = fc.integer({ min: -1e13, max: 1e13 });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 1e10 }), ms, ms, (intervalMs, anchor, now) => {
        const next = nextSlot(every(intervalMs), now, anchor);
        const previous = previousSlot(every(intervalMs), now, anchor);
        expect(next).toBeGreaterThan(now);
        expect(previous).toBeLessThanOrEqual(now);
        expect(next - previous).toBe(intervalMs);
        expect(Math.abs((next - anchor) % intervalMs)).toBe(0);
      }),
    );
  });
});

describe("1.2, 1.12 starting a grid anew", () => {
  it("1.2 a manual or deploy run re-anchors an interval and is not a slot", () => {
    expect(reanchor(fiveMinutes, 7 * MINUTE)).toEqual({ anchorMs: 7 * MINUTE, nextRunAtMs: 12 * MINUTE });
  });

  it("1.2 a manual run does not move cron", () => {
    expect(reanchor(daily, at("2027-01-04T07:30Z")).nextRunAtMs).toBe(at("2027-01-04T08:00Z"));
  });

  it("1.12 a nextRunAt further away than one interval is re-anchored", () => {
    const plan = { anchorMs: 10 * HOUR, nextRunAtMs: 10 * HOUR + 5 * MINUTE };
    expect(afterClockJump(fiveMinutes, plan, 7 * HOUR)).toEqual({
      anchorMs: 7 * HOUR,
      nextRunAtMs: 7 * HOUR + 5 * MINUTE,
    });
  });

  it("1.12 one within an interval, overdue, or moved by less than a second is kept", () => {
    const plan = { anchorMs: 10 * HOUR, nextRunAtMs: 10 * HOUR + 5 * MINUTE };
    for (const now of [10 * HOUR, 10 * HOUR - 40, 10 * HOUR + 4 * MINUTE, 300 * DAY])
      expect(afterClockJump(fiveMinutes, plan, now)).toBe(plan);
  });

  it("1.12 cron set back by days is planned again; set back by hours it does not run the same time twice", () => {
    const plan = { anchorMs: 0, nextRunAtMs: at("2027-01-05T08:00Z") };
    expect(afterClockJump(daily, plan, at("2027-01-04T05:00Z"))).toBe(plan);
    expect(afterClockJump(daily, plan, at("2027-01-01T05:00Z")).nextRunAtMs).toBe(at("2027-01-01T08:00Z"));
  });
});

describe("1.3 every schedule point gets a fate", () => {
  const base = {
    schedule: every(MINUTE),
    anchorMs: 0,
    firstDueMs: 1 * MINUTE,
    newestDueMs: 10 * MINUTE,
    run: 7,
    how: "ran" as const,
  };

  it("1.3 at a catch-up the newest due point is ran, older ones are coalesced; both name the run", () => {
    expect(slotFates({ ...base, down: [] })).toEqual([
      { fromMs: 1 * MINUTE, toMs: 9 * MINUTE, count: 9, fate: "coalesced", run: 7 },
      { fromMs: 10 * MINUTE, toMs: 10 * MINUTE, count: 1, fate: "ran", run: 7 },
    ]);
  });

  it("1.3 older ones are missed if the host was down then", () => {
    expect(slotFates({ ...base, down: [{ fromMs: 3 * MINUTE, toMs: 6 * MINUTE }] })).toEqual([
      { fromMs: 1 * MINUTE, toMs: 2 * MINUTE, count: 2, fate: "coalesced", run: 7 },
      { fromMs: 3 * MINUTE, toMs: 5 * MINUTE, count: 3, fate: "missed", run: 7 },
      { fromMs: 6 * MINUTE, toMs: 9 * MINUTE, count: 4, fate: "coalesced", run: 7 },
      { fromMs: 10 * MINUTE, toMs: 10 * MINUTE, count: 1, fate: "ran", run: 7 },
    ]);
  });

  it("1.3 (S5) the newest is ran even if the host was down at that point", () => {
    const fates = slotFates({ ...base, down: [{ fromMs: 0, toMs: 11 * MINUTE }] });
    expect(fates.map(({ count, fate }) => [count, fate])).toEqual([
      [9, "missed"],
      [1, "ran"],
    ]);
  });

  it("1.3 a point on time is one row", () => {
    expect(slotFates({ ...base, firstDueMs: 10 * MINUTE, down: [] })).toEqual([
      { fromMs: 10 * MINUTE, toMs: 10 * MINUTE, count: 1, fate: "ran", run: 7 },
    ]);
  });

  it("1.3 failed: its chain ended without commit, the older ones had been coalesced into it", () => {
    expect(slotFates({ ...base, how: "failed", why: "closed", down: [] }).at(-1)).toEqual({
      fromMs: 10 * MINUTE,
      toMs: 10 * MINUTE,
      count: 1,
      fate: "failed",
      run: 7,
      why: "closed",
    });
  });

  it("1.3 skipped by onFailure: skip names the run and why; the older ones are coalesced into it", () => {
    const fates = slotFates({ ...base, how: "skipped", why: "onFailure", down: [] });
    expect(fates.map(({ fate, run, why }) => [fate, run, why])).toEqual([
      ["coalesced", 7, undefined],
      ["skipped", 7, "onFailure"],
    ]);
  });

  it("1.3 skipped by archive: no run, so nothing is coalesced; the points of a stopped host are still missed", () => {
    const { run: _, ...archived } = { ...base, how: "skipped" as const, why: "archived" };
    expect(slotFates({ ...archived, down: [] })).toEqual([
      { fromMs: 1 * MINUTE, toMs: 10 * MINUTE, count: 10, fate: "skipped", why: "archived" },
    ]);
    expect(
      slotFates({ ...archived, down: [{ fromMs: 0, toMs: 5 * MINUTE }] }).map(({ fate, count }) => [
        fate,
        count,
      ]),
    ).toEqual([
      ["missed", 4],
      ["skipped", 6],
    ]);
  });

  it("1.3 (S4) stored as ranges: spans of downtime without a point between them are one", () => {
    const down = [
      { fromMs: 5.5 * MINUTE, toMs: 8.5 * MINUTE },
      { fromMs: 2.5 * MINUTE, toMs: 5.2 * MINUTE },
      { fromMs: 3 * MINUTE, toMs: 4 * MINUTE },
      { fromMs: 9 * MINUTE, toMs: 9 * MINUTE },
    ];
    expect(slotFates({ ...base, down }).map(({ count, fate }) => [count, fate])).toEqual([
      [2, "coalesced"],
      [6, "missed"],
      [1, "coalesced"],
      [1, "ran"],
    ]);
  });

  it("1.3 (S2) never a row per missed point: 30 s over a year down are two rows, and no loop over a million points", () => {
    const schedule = every(30_000);
    const newestDueMs = 365 * DAY;
    let fates: SlotRange[] = [];
    for (let i = 0; i < 10_000; i += 1)
      fates = slotFates({
        schedule,
        anchorMs: 0,
        firstDueMs: 30_000,
        newestDueMs,
        run: 7,
        how: "ran",
        down: [{ fromMs: 0, toMs: newestDueMs }],
      });
    expect(fates).toEqual([
      { fromMs: 30_000, toMs: 365 * DAY - 30_000, count: 365 * 2_880 - 1, fate: "missed", run: 7 },
      { fromMs: 365 * DAY, toMs: 365 * DAY, count: 1, fate: "ran", run: 7 },
    ]);
  });

  it("1.3 a cron count that is a floor is marked as one", () => {
    const schedule: Schedule = { cron: "0 */2 * * *", timezone: "Europe/Zurich" };
    const [older] = slotFates({
      schedule,
      anchorMs: 0,
      firstDueMs: at("2000-01-01T01:00Z"),
      newestDueMs: at("2027-01-01T01:00Z"),
      run: 7,
      how: "ran",
      down: [],
    });
    expect(older).toMatchObject({ fromMs: at("2000-01-01T01:00Z"), fate: "coalesced", countIsFloor: true });
  });

  it("1.3 a floor stays one when ranges of equal fate are joined", () => {
    const schedule: Schedule = { cron: "0 9 * * *", timezone: "UTC" };
    const [firstDueMs, newestDueMs] = [at("2000-01-01T09:00Z"), at("2027-01-01T09:00Z")];
    const down = [
      { fromMs: 0, toMs: at("2000-01-03T10:00Z") },
      { fromMs: at("2000-01-03T11:00Z"), toMs: newestDueMs },
    ];
    const fates = slotFates({ schedule, anchorMs: 0, firstDueMs, newestDueMs, run: 7, how: "ran", down });
    expect(fates.map(({ fate, countIsFloor }) => [fate, countIsFloor])).toEqual([
      ["missed", true],
      ["ran", undefined],
    ]);
  });

  it("a point without a run, and due points in the wrong order, are a programmer's error", () => {
    const { run: _, ...without } = base;
    expect(() => slotFates({ ...without, down: [] })).toThrow("names its run");
    expect(() => slotFates({ ...base, firstDueMs: 11 * MINUTE, down: [] })).toThrow("is after");
  });

  const schedules = fc.oneof(
    fc.integer({ min: 1, max: 40 }).map((minutes) => every(minutes * MINUTE)),
    fc.constantFrom<Schedule>(
      daily,
      { cron: "*/20 * * * *", timezone: "America/New_York" },
      { cron: "30 2 * * *", timezone: "Europe/Zurich" },
      { cron: "15,45 1,2 * * *", timezone: "Australia/Lord_Howe" },
    ),
  );
  const changes = fc.constantFrom(
    "2027-03-28T00:00Z",
    "2027-10-31T00:00Z",
    "2027-03-14T00:00Z",
    "2027-11-07T00:00Z",
    "2027-04-03T00:00Z",
    "2027-10-02T00:00Z",
  );
  const spans = fc.array(fc.tuple(fc.integer({ min: -100, max: 3_000 }), fc.nat(900)), { maxLength: 6 });

  it("1.3 (S3, S4) property: the fates partition the points exactly once, as naming each point alone would", () => {
    fc.assert(
      fc.property(schedules, changes, fc.nat(2_999), spans, (schedule, change, length, downMinutes) => {
        const start = at(change);
        const due = duePoints(schedule, start, start + length * MINUTE, start);
        const points: number[] = [];
        for (
          let ms = nextSlot(schedule, start - 1, start);
          ms <= start + length * MINUTE;
          ms = nextSlot(schedule, ms, start)
        )
          points.push(ms);
        expect(due?.count ?? 0).toBe(points.length);
        if (due === undefined) return;
        expect([due.firstMs, due.newestMs]).toEqual([points[0], points.at(-1)]);
        const down = downMinutes.map(([from, size]) => ({
          fromMs: start + from * MINUTE,
          toMs: start + (from + size) * MINUTE,
        }));
        const fates = slotFates({
          schedule,
          anchorMs: start,
          firstDueMs: due.firstMs,
          newestDueMs: due.newestMs,
          run: 7,
          how: "ran",
          down,
        });
        const naive = points.map((ms) => {
          if (ms === due.newestMs) return "ran";
          return down.some((span) => span.fromMs <= ms && ms < span.toMs) ? "missed" : "coalesced";
        });
        expect(fates.flatMap(({ fate, count }) => Array.from({ length: count }, () => fate))).toEqual(naive);
        for (const range of fates)
          expect(points.filter((ms) => range.fromMs <= ms && ms <= range.toMs).length).toBe(range.count);
        expect(fates.filter((range, i) => range.fate === fates[i - 1]?.fate)).toEqual([]);
      }),
      { numRuns: 300 },
    );
  });
});

describe("1.2 at deploy", () => {
  const now = at("2027-01-01T12:00Z");
  const read = (given: Parameters<typeof readSchedule>[0], min = 30_000) => readSchedule(given, now, min);

  it("1.2 the next three fires are computed", () => {
    expect(read({ interval: "5m" })).toEqual({
      schedule: { interval: "5m", intervalMs: 5 * MINUTE },
      firesMs: [1, 2, 3].map((k) => now + k * 5 * MINUTE),
    });
    expect(read({ cron: "0 9 * * *", timezone: "Europe/Zurich" })).toEqual({
      schedule: daily,
      firesMs: [at("2027-01-02T08:00Z"), at("2027-01-03T08:00Z"), at("2027-01-04T08:00Z")],
    });
  });

  it("1.2 zone default UTC", () => {
    expect(read({ cron: "0 9 * * *" })).toMatchObject({ schedule: { cron: "0 9 * * *", timezone: "UTC" } });
  });

  it.each([
    ["bad pattern", { cron: "0 9 * *" }, 30_000, "bad-cron", "cron"],
    ["bad zone", { cron: "0 9 * * *", timezone: "Mars/Olympus" }, 30_000, "bad-timezone", "timezone"],
    ["bad zone before bad pattern", { cron: "x", timezone: "" }, 30_000, "bad-timezone", "timezone"],
    ["never-firing pattern", { cron: "0 0 30 2 *" }, 30_000, "cron-never-fires", "cron"],
    ["spacing below the host minimum", { cron: "0,1 9 * * *" }, 120_000, "cron-too-often", "cron"],
    [
      "spacing below the minimum, only later in the day",
      { cron: "0,10,20,21 9 * * *" },
      120_000,
      "cron-too-often",
      "cron",
    ],
    ["interval below the host minimum", { interval: "29s" }, 30_000, "interval-too-short", "interval"],
    ["interval below the minimum in dev", { interval: "999ms" }, 1_000, "interval-too-short", "interval"],
    ["bad interval", { interval: "5 minutes" }, 30_000, "bad-interval", "interval"],
    ["interval beyond the calendar", { interval: "100000000d" }, 30_000, "bad-interval", "interval"],
  ] as const)("1.2 %s is refused", (_, given, min, code, field) => {
    expect(read(given, min)).toMatchObject({ code, field });
  });

  it("1.2 an interval is a whole number and one unit", () => {
    expect(["30s", " 5 m ", "2h", "1d", "500ms"].map(parseInterval)).toEqual([
      30_000,
      300_000,
      7_200_000,
      DAY,
      500,
    ]);
    for (const text of ["", "5", "0s", "-1m", "1.5h", "1h30m", "5M", "5 min", "1e3s"])
      expect(parseInterval(text)).toBeUndefined();
  });

  it("1.2 the minimum itself is accepted", () => {
    expect(read({ interval: "30s" })).toHaveProperty("schedule");
    expect(read({ interval: "1s" }, 1_000)).toHaveProperty("schedule");
    expect(read({ cron: "* * * * *" }, 60_000)).toHaveProperty("schedule");
  });
});

describe("the schedule in words", () => {
  it.each([
    [5 * MINUTE, "every 5 minutes"],
    [MINUTE, "every minute"],
    [90_000, "every 90 seconds"],
    [36 * HOUR, "every 36 hours"],
    [DAY, "every day"],
    [1_500, "every 1500 milliseconds"],
  ])("(P1) %d ms", (ms, words) => {
    expect(describeSchedule(every(ms))).toBe(words);
  });

  it.each([
    ["0 9 * * 1-5", "at 09:00 on weekdays"],
    ["0 9 * * MON-FRI", "at 09:00 on weekdays"],
    ["0 9 * * 6,7", "at 09:00 on weekends"],
    ["0 9 * * FRI-SUN", "at 09:00 on Fridays, Saturdays and Sundays"],
    ["0 9 * * *", "at 09:00 every day"],
    ["@daily", "at 00:00 every day"],
    ["0 9,17 * * 1", "at 09:00 and 17:00 on Mondays"],
    ["30 8,12,16 * * SUN,WED", "at 08:30, 12:30 and 16:30 on Wednesdays and Sundays"],
    ["* * * * *", "every minute"],
    ["*/5 * * * *", "every 5 minutes"],
    ["0 * * * *", "every hour"],
    ["15 * * * *", "every hour at 15 minutes past"],
    ["1 * * * *", "every hour at 1 minute past"],
    ["30 */2 * * *", "every 2 hours from 00:30"],
    ["*/15 9-17 * * 1-5", "every 15 minutes from 09:00 to 17:45 on weekdays"],
    ["0 0 1 * *", "at 00:00 on the 1st of every month"],
    ["0 6 1,15 * *", "at 06:00 on the 1st and 15th of every month"],
    ["0 6 2,3,12,22 * *", "at 06:00 on the 2nd, 3rd, 12th and 22nd of every month"],
    ["0 0 L * *", "at 00:00 on the last day of every month"],
    ["0 0 L 2 *", "at 00:00 on the last day of the month in February"],
    ["@yearly", "at 00:00 on the 1st in January"],
    ["0 9 * JUN-AUG *", "at 09:00 every day in June, July and August"],
    ["* * * 6 *", "every minute every day in June"],
  ])("(P2) %s", (cron, words) => {
    expect(describeSchedule({ cron, timezone: "Europe/Zurich" })).toBe(`${words}, Europe/Zurich`);
  });

  it.each([
    "0 0 13 * 5",
    "*/7 * * * *",
    "1,2,5 * * * *",
    "*/5 8-9,14 * * *",
    "0 0 15W * *",
    "0 0 * * 5#2",
    "0 0 */2 * *",
    "0 0 * */3 *",
    "0 0 13 * +5",
    "0 0 1-10 * *",
    "0 9 * * */2",
  ])("(P1) shows as written what it has no words for: %s", (cron) => {
    expect(describeSchedule({ cron, timezone: "UTC" })).toBe(`by the cron pattern "${cron}", UTC`);
  });
});
