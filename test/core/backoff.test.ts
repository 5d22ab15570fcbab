import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Backoff, backoffDelayMs } from "../../host/core/backoff.ts";

const delays = (backoff: Backoff, base: number, max: number, random = 0.5) =>
  [0, 1, 2, 3, 10].map((n) => backoffDelayMs({ backoff, baseDelayMs: base, maxDelayMs: max }, n, random));

describe("backoff", () => {
  test.each<[Backoff, number, number[]]>([
    ["none", 0, [0, 0, 0, 0, 0]],
    ["linear", 0, [100, 200, 300, 400, 1_100]],
    ["exponential", 0, [100, 200, 400, 800, 5_000]],
    ["jitter", 0, [1, 1, 1, 1, 1]],
    ["jitter", 0.5, [51, 101, 201, 401, 2_501]],
    ["jitter", 1 - 2 ** -53, [100, 200, 400, 800, 5_000]],
  ])("%s with chance %d waits %j", (backoff, random, expected) => {
    expect(delays(backoff, 100, 5_000, random)).toEqual(expected);
  });

  test("linear is capped too", () => {
    expect(delays("linear", 2_000, 5_000)).toEqual([2_000, 4_000, 5_000, 5_000, 5_000]);
  });

  test("a base of 0 never waits, however late the attempt", () => {
    for (const backoff of ["none", "linear", "exponential", "jitter"] as const)
      for (const n of [0, 1_023, 1_024, 1_000_000])
        expect(backoffDelayMs({ backoff, baseDelayMs: 0, maxDelayMs: 5_000 }, n, 0.9)).toBe(0);
  });

  test("a base above the cap waits the cap", () => {
    expect(backoffDelayMs({ backoff: "exponential", baseDelayMs: 9_000, maxDelayMs: 500 }, 0, 0)).toBe(500);
  });

  test.each([
    [-1, 0],
    [0.5, 0],
    [Number.NaN, 0],
    [Number.POSITIVE_INFINITY, 0],
    [0, 1],
    [0, -0.1],
    [0, Number.NaN],
  ])("retry %d with chance %d is a programmer's error", (retry, random) => {
    expect(() => backoffDelayMs({ backoff: "jitter", baseDelayMs: 1, maxDelayMs: 1 }, retry, random)).toThrow(
      RangeError,
    );
  });

  const policies = fc.record({
    backoff: fc.constantFrom<Backoff>("none", "linear", "exponential", "jitter"),
    baseDelayMs: fc.nat(86_400_000),
    maxDelayMs: fc.nat(604_800_000),
  });
  const chance = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });

  test("B1: a whole number within the cap for every attempt up to a million", () => {
    fc.assert(
      fc.property(policies, fc.oneof(fc.nat(100), fc.nat(1_000_000)), chance, (policy, n, random) => {
        const delay = backoffDelayMs(policy, n, random);
        expect(Number.isSafeInteger(delay)).toBe(true);
        expect(delay).toBeGreaterThanOrEqual(0);
        expect(delay).toBeLessThanOrEqual(policy.maxDelayMs);
      }),
      { numRuns: 2_000 },
    );
  });

  test("B1: no later attempt waits less, chance being equal", () => {
    fc.assert(
      fc.property(policies, fc.nat(2_000), chance, (policy, n, random) => {
        expect(backoffDelayMs(policy, n + 1, random)).toBeGreaterThanOrEqual(
          backoffDelayMs(policy, n, random),
        );
      }),
      { numRuns: 1_000 },
    );
  });

  test("B2: jitter draws from the whole range and nothing else decides", () => {
    const policy = { backoff: "jitter", baseDelayMs: 3, maxDelayMs: 100 } as const;
    const drawn = new Set(Array.from({ length: 600 }, (_, i) => backoffDelayMs(policy, 1, i / 600)));
    expect([...drawn].toSorted((a, b) => a - b)).toEqual([1, 2, 3, 4, 5, 6]);
  });
});
