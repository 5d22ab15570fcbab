// Cron in time zones: what a pattern does on the days when clocks change, and which patterns are read at all.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { countFires, nextFire, nextFires, previousFire, shortestGapMs } from "../../host/core/cron.ts";
import { canonicalZone } from "../../host/core/zone.ts";

const MINUTE = 60_000;
const DAY = 86_400_000;
const at = (iso: string) => Date.parse(iso);
const iso = (ms: number) => new Date(ms).toISOString().replace(":00.000Z", "Z");
const fires = (pattern: string, zone: string, from: string, count: number): string[] => {
  const reading = nextFires(pattern, zone, at(from), count);
  if ("problem" in reading) throw new Error(reading.problem);
  return reading.fires.map(iso);
};

/** The clock of a zone, read another way than the code does. */
const clocks = new Map<string, Intl.DateTimeFormat>();
function wall(zone: string, ms: number): { minute: number; hour: number; date: string; weekday: number } {
  let format = clocks.get(zone);
  if (!format) {
    const parts = {
      year: "numeric",
      month: "2-digit",
      day: "2-digit",
      hour: "2-digit",
      minute: "2-digit",
    } as const;
    format = new Intl.DateTimeFormat("en-CA", { timeZone: zone, hourCycle: "h23", ...parts });
    clocks.set(zone, format);
  }
  const part = Object.fromEntries(format.formatToParts(ms).map(({ type, value }) => [type, value]));
  const date = `${part["year"]}-${part["month"]}-${part["day"]}`;
  return {
    minute: Number(part["minute"]),
    hour: Number(part["hour"]),
    date,
    weekday: new Date(date).getUTCDay(),
  };
}

describe("1.2 a pattern with one time a day, on days with a clock change", () => {
  it.each([
    // zone, pattern, day before, the three fires: before, on and after the change
    [
      "Europe/Zurich",
      "30 2 * * *",
      "2027-03-27T00:00Z",
      "2027-03-27T01:30Z",
      "2027-03-28T01:00Z",
      "2027-03-29T00:30Z",
    ],
    [
      "America/New_York",
      "15 2 * * *",
      "2027-03-13T00:00Z",
      "2027-03-13T07:15Z",
      "2027-03-14T07:00Z",
      "2027-03-15T06:15Z",
    ],
    [
      "Australia/Lord_Howe",
      "10 2 * * *",
      "2027-10-01T12:00Z",
      "2027-10-01T15:40Z",
      "2027-10-02T15:30Z",
      "2027-10-03T15:10Z",
    ],
    [
      "America/Santiago",
      "0 0 * * *",
      "2027-09-04T00:00Z",
      "2027-09-04T04:00Z",
      "2027-09-05T04:00Z",
      "2027-09-06T03:00Z",
    ],
    [
      "America/Scoresbysund",
      "30 23 * * *",
      "2027-03-27T00:00Z",
      "2027-03-27T01:30Z",
      "2027-03-28T01:00Z",
      "2027-03-29T00:30Z",
    ],
  ])(
    "1.2 (C1) %s: %s does not exist, so it fires at the next valid instant",
    (zone, pattern, from, ...expected) => {
      expect(fires(pattern, zone, from, 3)).toEqual(expected);
    },
  );

  it.each([
    [
      "Europe/Zurich",
      "30 2 * * *",
      "2027-10-30T00:00Z",
      "2027-10-30T00:30Z",
      "2027-10-31T00:30Z",
      "2027-11-01T01:30Z",
    ],
    [
      "America/New_York",
      "30 1 * * *",
      "2027-11-06T00:00Z",
      "2027-11-06T05:30Z",
      "2027-11-07T05:30Z",
      "2027-11-08T06:30Z",
    ],
    [
      "Australia/Lord_Howe",
      "45 1 * * *",
      "2027-04-02T12:00Z",
      "2027-04-02T14:45Z",
      "2027-04-03T14:45Z",
      "2027-04-04T15:15Z",
    ],
    [
      "America/Scoresbysund",
      "30 23 * * *",
      "2027-10-30T00:00Z",
      "2027-10-30T00:30Z",
      "2027-10-31T00:30Z",
      "2027-11-01T01:30Z",
    ],
  ])("1.2 (C1) %s: %s occurs twice, so it fires at the first", (zone, pattern, from, ...expected) => {
    expect(fires(pattern, zone, from, 3)).toEqual(expected);
  });

  it("1.2 (C1) between the two times that 02:30 is shown, the next fire is tomorrow's", () => {
    expect(iso(nextFire("30 2 * * *", "Europe/Zurich", at("2027-10-31T01:10Z")) as number)).toBe(
      "2027-11-01T01:30Z",
    );
    expect(iso(previousFire("30 2 * * *", "Europe/Zurich", at("2027-10-31T01:10Z")) as number)).toBe(
      "2027-10-31T00:30Z",
    );
  });

  it("1.2 (C1) one time a day is seen however it is written", () => {
    for (const pattern of ["*/60 */24 * * *", "0-0 0 * * *", "0,0 0 * * *", "@daily", "@midnight"])
      expect(fires(pattern, "America/Santiago", "2027-09-04T05:00Z", 2)).toEqual([
        "2027-09-05T04:00Z",
        "2027-09-06T03:00Z",
      ]);
  });

  it("1.2 (C1) a day that a zone left out fires with the day after it, once", () => {
    expect(fires("0 0 * * *", "Pacific/Apia", "2011-12-29T00:00Z", 3)).toEqual([
      "2011-12-29T10:00Z",
      "2011-12-30T10:00Z",
      "2011-12-31T10:00Z",
    ]);
    expect(fires("0 9 * * *", "Pacific/Apia", "2011-12-29T00:00Z", 3)).toEqual([
      "2011-12-29T19:00Z",
      "2011-12-30T10:00Z",
      "2011-12-30T19:00Z",
    ]);
  });

  const zones = [
    "Europe/Zurich",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Santiago",
    "America/Scoresbysund",
    "Africa/Casablanca",
    "Asia/Kathmandu",
  ];
  it("1.2 (C1) property: exactly one fire for each day of a year, at its time unless that does not exist", () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...zones),
        fc.nat(23),
        fc.nat(59),
        fc.integer({ min: 2025, max: 2036 }),
        (zone, hour, minute, year) => {
          const fired: number[] = [];
          for (
            let ms = nextFire(`${minute} ${hour} * * *`, zone, Date.UTC(year, 0, 1)) as number;
            ms < Date.UTC(year + 1, 0, 1);
          ) {
            fired.push(ms);
            ms = nextFire(`${minute} ${hour} * * *`, zone, ms) as number;
          }
          const shown = fired.map((ms) => wall(zone, ms));
          const odd = shown.filter((one) => one.hour !== hour || one.minute !== minute);
          expect(odd.length).toBeLessThanOrEqual(2);
          const dates = shown.filter((one) => !odd.includes(one)).map((one) => one.date);
          expect(new Set(dates).size).toBe(dates.length);
          for (const [i, ms] of fired.entries()) {
            if (i === 0) continue;
            expect(Math.abs(ms - (fired[i - 1] as number) - DAY)).toBeLessThanOrEqual(60 * MINUTE);
          }
        },
      ),
      { numRuns: 60 },
    );
  });
});

describe("1.2 other patterns follow croner (C2)", () => {
  it("1.2 the hour that is left out has no fires", () => {
    expect(fires("30 * * * *", "Europe/Zurich", "2027-03-28T00:00Z", 3)).toEqual([
      "2027-03-28T00:30Z",
      "2027-03-28T01:30Z",
      "2027-03-28T02:30Z",
    ]);
    expect(fires("30 2,14 * * *", "Europe/Zurich", "2027-03-27T02:00Z", 3)).toEqual([
      "2027-03-27T13:30Z",
      "2027-03-28T12:30Z",
      "2027-03-29T00:30Z",
    ]);
    expect(fires("0,15 2 * * *", "Australia/Lord_Howe", "2027-10-02T12:00Z", 2)).toEqual([
      "2027-10-03T15:00Z",
      "2027-10-03T15:15Z",
    ]);
  });

  it("1.2 the hour that is repeated has its fires twice", () => {
    expect(fires("30 * * * *", "Europe/Zurich", "2027-10-31T00:00Z", 3)).toEqual([
      "2027-10-31T00:30Z",
      "2027-10-31T01:30Z",
      "2027-10-31T02:30Z",
    ]);
    expect(fires("30 2,14 * * *", "Europe/Zurich", "2027-10-31T00:00Z", 3)).toEqual([
      "2027-10-31T00:30Z",
      "2027-10-31T01:30Z",
      "2027-10-31T13:30Z",
    ]);
    expect(fires("30 1,13 * * *", "America/New_York", "2027-11-07T05:00Z", 3)).toEqual([
      "2027-11-07T05:30Z",
      "2027-11-07T06:30Z",
      "2027-11-07T18:30Z",
    ]);
    // half an hour back: 01:30 to 01:59 twice
    expect(fires("15,45 1 * * *", "Australia/Lord_Howe", "2027-04-03T14:00Z", 4)).toEqual([
      "2027-04-03T14:15Z",
      "2027-04-03T14:45Z",
      "2027-04-03T15:15Z",
      "2027-04-04T14:45Z",
    ]);
  });

  // Around a change, and far from one.
  const moments = [
    ["Europe/Zurich", "2027-03-28T01:00Z"],
    ["Europe/Zurich", "2027-10-31T01:00Z"],
    ["America/New_York", "2027-03-14T07:00Z"],
    ["America/New_York", "2027-11-07T06:00Z"],
    ["Australia/Lord_Howe", "2027-10-02T15:30Z"],
    ["Australia/Lord_Howe", "2027-04-03T15:00Z"],
    ["America/Scoresbysund", "2027-03-28T01:00Z"],
    ["America/Scoresbysund", "2027-10-31T01:00Z"],
    ["America/Santiago", "2027-09-05T04:00Z"],
    ["Asia/Kathmandu", "2027-06-01T00:00Z"],
  ] as const;
  const someOf = (size: number) => fc.uniqueArray(fc.nat(size - 1), { minLength: 2, maxLength: 5 });

  it("1.2 property: it fires whenever the zone's clock shows a matching time, as a scan of every minute finds", () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...moments),
        someOf(60),
        someOf(24),
        fc.option(fc.nat(6)),
        fc.integer({ min: -720, max: 720 }),
        ([zone, change], minutes, hours, weekday, shift) => {
          const pattern = `${minutes.join(",")} ${hours.join(",")} * * ${weekday ?? "*"}`;
          const start = at(change) + (shift - 720) * MINUTE;
          const end = start + 30 * 60 * MINUTE;
          const scanned: number[] = [];
          for (let ms = start; ms <= end; ms += MINUTE) {
            const shown = wall(zone, ms);
            if (
              minutes.includes(shown.minute) &&
              hours.includes(shown.hour) &&
              (weekday === null || shown.weekday === weekday)
            )
              scanned.push(ms);
          }
          const found: number[] = [];
          for (
            let ms = nextFire(pattern, zone, start - 1) as number;
            ms <= end;
            ms = nextFire(pattern, zone, ms) as number
          )
            found.push(ms);
          expect(found).toEqual(scanned);
          expect(countFires(pattern, zone, start, end)).toEqual({ count: scanned.length, isFloor: false });
        },
      ),
      { numRuns: 150 },
    );
  });

  it("1.3 property: looking back agrees with looking forward, and counting with both, for any pattern", () => {
    const minute = fc.oneof(fc.nat(59).map(String), fc.constantFrom("*/7", "0,30", "10-12"));
    const hour = fc.oneof(fc.nat(23).map(String), fc.constantFrom("*", "*/6", "22,23,0"));
    const days = fc.constantFrom("* * *", "* * 1-5", "1 * *", "L * *", "* 3,10 0", "13 * FRI");
    fc.assert(
      fc.property(
        fc.constantFrom(...moments),
        minute,
        hour,
        days,
        fc.integer({ min: -3_000, max: 3_000 }),
        fc.nat(5_000),
        fc.nat(59_999),
        ([zone, change], m, h, d, shift, length, ms) => {
          const pattern = `${m} ${h} ${d}`;
          const from = at(change) + shift * MINUTE + ms;
          const to = from + length * MINUTE;
          const forward: number[] = [];
          for (
            let one = nextFire(pattern, zone, from - 1) as number;
            one <= to;
            one = nextFire(pattern, zone, one) as number
          )
            forward.push(one);
          expect(forward).toEqual([...new Set(forward)].sort((a, b) => a - b));
          const back: number[] = [];
          for (
            let one = previousFire(pattern, zone, to) as number;
            one >= from;
            one = previousFire(pattern, zone, one - 1) as number
          )
            back.unshift(one);
          expect(back).toEqual(forward);
          expect(countFires(pattern, zone, from, to).count).toBe(forward.length);
        },
      ),
      { numRuns: 200 },
    );
  });
});

describe("counting (C4)", () => {
  it("1.3 a year of a minutely pattern is counted to the point, changes of the clock included", () => {
    const [from, to] = [at("2027-01-01T00:00Z"), at("2027-12-31T23:59Z")];
    expect(countFires("* * * * *", "Europe/Zurich", from, to)).toEqual({ count: 365 * 1440, isFloor: false });
    // 02:00 to 02:29 is left out once; 01:30 to 01:59 is repeated, which has no full hour.
    expect(countFires("0 * * * *", "Australia/Lord_Howe", from, to).count).toBe(365 * 24 - 1);
    expect(countFires("0 9 * * *", "Europe/Zurich", from, to).count).toBe(365);
  });

  it("1.3 (C4) over more than eleven years the count is a floor, and says so", () => {
    const [from, to] = [at("1970-01-01T00:00Z"), at("2027-01-01T00:00Z")];
    for (const pattern of ["0 9 * * *", "0 9,17 * * *"]) {
      const counted = countFires(pattern, "Europe/Zurich", from, to);
      expect(counted.isFloor).toBe(true);
      expect(counted.count).toBeGreaterThanOrEqual(4_000);
    }
  });

  it("(C4) a long span with nothing left out is no floor", () => {
    expect(countFires("0 0 29 2 +1#5", "UTC", at("2017-01-01T00:00Z"), at("2044-03-01T00:00Z"))).toEqual({
      count: 1,
      isFloor: false,
    });
  });
});

describe("which patterns and zones are read", () => {
  it.each([
    "",
    "* * * *",
    "* * * * * *",
    "5* * * * *",
    "0 0 1 janfeb *",
    "2030-01-01T00:00:00",
    "0 22-2 * * *",
    "60 * * * *",
    "* 24 * * *",
    "0 0 32 * *",
    "0 0 0 * *",
    "0 0 * 13 *",
    "0 0 * * 8",
    "0 0 * * FRI#6",
    "/5 * * * *",
    "5/5 * * * *",
    "*/0 * * * *",
    "*/61 * * * *",
    "0 9 * * MONDAY",
    "@reboot",
    "0 0 L-3 * *",
    "1,,2 * * * *",
    `${"1,".repeat(200)}1 * * * *`,
  ])("1.2 refuses %j", (pattern) => {
    expect(nextFires(pattern, "UTC", 0, 1)).toEqual({ problem: "pattern" });
  });

  it.each(["0 0 30 2 *", "0 0 31 4,6,9,11 *"])("1.2 says that %j never fires", (pattern) => {
    expect(nextFires(pattern, "UTC", at("2027-01-01T00:00Z"), 3)).toEqual({ problem: "never" });
  });

  it.each([
    ["0 9 * * MON-FRI", "2027-01-01T09:00Z"],
    ["0 9 ? * fri", "2027-01-01T09:00Z"],
    ["0 0 L * *", "2027-01-31T00:00Z"],
    ["0 0 LW * *", "2027-01-29T00:00Z"],
    ["0 0 16W * *", "2027-01-15T00:00Z"],
    ["0 0 * * FRI#2", "2027-01-08T00:00Z"],
    ["0 0 * * 5L", "2027-01-29T00:00Z"],
    ["0 0 13 * FRI", "2027-01-08T00:00Z"],
    ["0 0 13 * +FRI", "2027-08-13T00:00Z"],
    ["0 0 1 jul,aug *", "2027-07-01T00:00Z"],
    ["@hourly", "2027-01-01T01:00Z"],
    ["@yearly", "2028-01-01T00:00Z"],
  ])("1.2 reads %j: next after 2027-01-01 00:00 is %s", (pattern, expected) => {
    expect(fires(pattern, "UTC", "2027-01-01T00:00Z", 1)).toEqual([expected]);
  });

  it("(Z1) zones are names in any case; offsets and inventions are none", () => {
    expect(canonicalZone("europe/ZURICH")).toBe("Europe/Zurich");
    expect(canonicalZone("utc")).toBe("UTC");
    for (const name of ["", "+02:00", "Mars/Olympus", "Europe/Zurich ", "Europe", `E${"u".repeat(70)}`])
      expect(canonicalZone(name)).toBeUndefined();
  });

  it("1.2 the shortest gap is found wherever it is in the day, and over midnight only where days follow each other", () => {
    expect(shortestGapMs("* * * * *")).toBe(MINUTE);
    expect(shortestGapMs("0,10,20,21 9 * * *")).toBe(MINUTE);
    expect(shortestGapMs("0,59 0,23 * * *")).toBe(MINUTE);
    expect(shortestGapMs("0,59 0,23 * * 1")).toBe(59 * MINUTE);
    expect(shortestGapMs("0,59 0,23 1,5,6 * *")).toBe(MINUTE);
    expect(shortestGapMs("0 9 * * *")).toBe(DAY);
  });

  it("(C3, Z3) a thousand patterns in many zones answer the same when asked again", () => {
    const zones = Intl.supportedValuesOf("timeZone").slice(0, 200);
    const ask = () =>
      Array.from({ length: 1_000 }, (_, i) =>
        nextFire(`${i % 60} ${i % 24} * * *`, zones[i % zones.length] as string, at("2027-01-01T00:00Z")),
      );
    expect(ask()).toEqual(ask());
  });
});
