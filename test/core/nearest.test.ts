import { describe, expect, test } from "vitest";
import { nearestName } from "../../host/core/nearest.ts";

describe("the nearest name", () => {
  const known = ["maxRetries", "maxDelayMs", "backoff", "check", "io"];

  test.each([
    ["maxRetrys", "maxRetries"],
    ["max_retries", "maxRetries"],
    ["MAXRETRIES", "maxRetries"],
    ["backof", "backoff"],
    ["bakcoff", "backoff"],
    ["chekc", "check"],
    ["oi", "io"],
    ["back", "backoff"],
    ["maxRetry", "maxRetries"],
  ])("%s was meant as %s", (given, meant) => {
    expect(nearestName(given, known)).toBe(meant);
  });

  test.each(["colour", "", "zz", "max", "ba", "x".repeat(10_000)])("%s is like none", (given) => {
    expect(nearestName(given, known)).toBeUndefined();
  });

  test("two swapped letters count once: ab is nearer to ba than to xyz", () => {
    expect(nearestName("ab", ["ba"])).toBe("ba");
    expect(nearestName("abc", ["cba"])).toBeUndefined();
  });

  test("the first of equals is taken, and an exact one before all", () => {
    expect(nearestName("cat", ["bat", "hat"])).toBe("bat");
    expect(nearestName("hat", ["bat", "hat"])).toBe("hat");
  });
});
