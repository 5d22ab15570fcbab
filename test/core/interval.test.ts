import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { parseInterval } from "../../host/core/schedule.ts";

describe("an interval as authors write it", () => {
  test.each([
    ["1ms", 1],
    ["30s", 30_000],
    ["5m", 300_000],
    ["2h", 7_200_000],
    ["1d", 86_400_000],
    [" 5 m ", 300_000],
    ["007m", 420_000],
    ["100000000d", 8_640_000_000_000_000],
  ])("%j", (text, ms) => {
    expect(parseInterval(text)).toBe(ms);
  });

  test.each([
    "",
    " ",
    "m",
    "5",
    "0m",
    "-5m",
    "+5m",
    "5.5m",
    "5e3s",
    "0x5m",
    "5M",
    "5min",
    "5 minutes",
    "1h30m",
    "5m5m",
    "1000000000ms",
    "999999999d",
    "٥m",
    "5m\n5m",
    "Infinitys",
    "NaNs",
    "1w",
    "1y",
    "constructor",
    "5toString",
  ])("%j is none", (text) => {
    expect(parseInterval(text)).toBeUndefined();
  });

  test("whatever is written, the answer is a positive whole number of milliseconds or nothing", () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.stringMatching(/^\s?\d{0,12}\s?(ms|s|m|h|d)?$/)), (text) => {
        const ms = parseInterval(text);
        expect(ms === undefined || (Number.isSafeInteger(ms) && ms > 0)).toBe(true);
      }),
    );
  });
});
