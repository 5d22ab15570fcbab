import { describe, expect, test } from "vitest";
import { nextFires } from "../../host/core/cron.ts";

function fires(pattern: string, zone: string, from: string, count: number): string[] {
  const reading = nextFires(pattern, zone, Date.parse(from), count);
  if ("problem" in reading) throw new Error(`${pattern}: ${reading.problem}`);
  return reading.fires.map((ms) => new Date(ms).toISOString());
}

const dates = (all: string[], zone: string) =>
  all.map((iso) =>
    new Intl.DateTimeFormat("en-CA", { timeZone: zone, dateStyle: "short" }).format(new Date(iso)),
  );

describe("a daily pattern keeps its local hour when the clocks change", () => {
  test("Europe/Zurich, forward on 29 March 2026 and back on 25 October", () => {
    expect(fires("0 9 * * *", "Europe/Zurich", "2026-03-28T00:00:00Z", 3)).toEqual([
      "2026-03-28T08:00:00.000Z",
      "2026-03-29T07:00:00.000Z",
      "2026-03-30T07:00:00.000Z",
    ]);
    expect(fires("0 9 * * *", "Europe/Zurich", "2026-10-24T00:00:00Z", 3)).toEqual([
      "2026-10-24T07:00:00.000Z",
      "2026-10-25T08:00:00.000Z",
      "2026-10-26T08:00:00.000Z",
    ]);
  });

  test("America/New_York, forward on 8 March 2026 and back on 1 November", () => {
    expect(fires("30 7 * * *", "America/New_York", "2026-03-07T00:00:00Z", 2)).toEqual([
      "2026-03-07T12:30:00.000Z",
      "2026-03-08T11:30:00.000Z",
    ]);
    expect(fires("30 7 * * *", "America/New_York", "2026-10-31T00:00:00Z", 2)).toEqual([
      "2026-10-31T11:30:00.000Z",
      "2026-11-01T12:30:00.000Z",
    ]);
  });

  test("Australia/Lord_Howe, where half an hour is moved, in the southern summer", () => {
    expect(fires("0 12 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z", 2)).toEqual([
      "2026-04-04T01:00:00.000Z",
      "2026-04-05T01:30:00.000Z",
    ]);
    expect(fires("0 12 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", 2)).toEqual([
      "2026-10-03T01:30:00.000Z",
      "2026-10-04T01:00:00.000Z",
    ]);
  });
});

describe("a daily pattern inside the hour that is left out or repeated fires once a day", () => {
  test.each([
    ["Europe/Zurich", "30 2 * * *", "2026-03-27T12:00:00Z", ["2026-03-28", "2026-03-29", "2026-03-30"]],
    ["Europe/Zurich", "30 2 * * *", "2026-10-23T12:00:00Z", ["2026-10-24", "2026-10-25", "2026-10-26"]],
    ["America/New_York", "15 2 * * *", "2026-03-06T12:00:00Z", ["2026-03-07", "2026-03-08", "2026-03-09"]],
    ["America/New_York", "15 1 * * *", "2026-10-30T12:00:00Z", ["2026-10-31", "2026-11-01", "2026-11-02"]],
    ["Australia/Lord_Howe", "15 2 * * *", "2026-10-02T12:00:00Z", ["2026-10-03", "2026-10-04", "2026-10-05"]],
    ["Australia/Lord_Howe", "45 1 * * *", "2026-04-03T12:00:00Z", ["2026-04-04", "2026-04-05", "2026-04-06"]],
  ])("%s %s from %s", (zone, pattern, from, days) => {
    expect(dates(fires(pattern, zone, from, 3), zone)).toEqual(days);
  });
});

test("UTC knows no summer", () => {
  expect(fires("30 2 29 3 *", "UTC", "2026-01-01T00:00:00Z", 2)).toEqual([
    "2026-03-29T02:30:00.000Z",
    "2027-03-29T02:30:00.000Z",
  ]);
});

test("a fire at the very moment of asking is over", () => {
  expect(fires("0 0 * * *", "UTC", "2026-01-01T00:00:00Z", 1)).toEqual(["2026-01-02T00:00:00.000Z"]);
});

test("a leap day is found years ahead", () => {
  expect(fires("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", 2)).toEqual([
    "2028-02-29T00:00:00.000Z",
    "2032-02-29T00:00:00.000Z",
  ]);
});

test.each([
  "",
  "every day",
  "* * * *",
  "* * * * * *",
  "60 * * * *",
  "* 24 * * *",
  "* * 0 * *",
  "* * 32 * *",
  "* * * 13 *",
  "* * * * 9",
  "5-1-2 * * * *",
  "*/0 * * * *",
])("%j cannot be read", (pattern) => {
  expect(nextFires(pattern, "UTC", 0, 1)).toEqual({ problem: "pattern" });
});

test.each(["0 0 30 2 *", "0 0 31 4,6,9,11 *"])("%j never comes", (pattern) => {
  expect(nextFires(pattern, "UTC", 0, 1)).toEqual({ problem: "never" });
});
