/**
 * Attempt → how long to wait before the next one (04 `backoff`). Decides nothing about whether there is a next one.
 *
 * B1. The delay is a whole number of milliseconds in [0, maxDelayMs] for every attempt, however large.
 * B2. Chance is passed in: the same number gives the same delay.
 */
import { unreachable } from "./errors.ts";

export type Backoff = "none" | "linear" | "exponential" | "jitter";

export interface BackoffPolicy {
  backoff: Backoff;
  baseDelayMs: number;
  maxDelayMs: number;
}

/** `retry` counts from 0: the wait before the first retry. `random` is in [0, 1). */
export function backoffDelayMs(policy: BackoffPolicy, retry: number, random: number): number {
  if (!Number.isSafeInteger(retry) || retry < 0) throw new RangeError(`retry ${retry} is not a count`);
  if (!(random >= 0 && random < 1)) throw new RangeError(`random ${random} is not in [0, 1)`);
  const { backoff, baseDelayMs, maxDelayMs } = policy;
  switch (backoff) {
    case "none":
      return 0;
    case "linear":
      return Math.min(baseDelayMs * (retry + 1), maxDelayMs);
    case "exponential":
      return doubled(baseDelayMs, retry, maxDelayMs);
    case "jitter": {
      // Capped before drawing, not after: else every late attempt would wait exactly the cap, all at the same time.
      const most = doubled(baseDelayMs, retry, maxDelayMs);
      return most === 0 ? 0 : 1 + Math.floor(random * most); // (B2)
    }
    default:
      return unreachable(backoff);
  }
}

/** 2^n becomes Infinity, which the cap absorbs; only 0 · Infinity would be NaN (B1). */
function doubled(baseDelayMs: number, times: number, maxDelayMs: number): number {
  return baseDelayMs === 0 ? 0 : Math.min(baseDelayMs * 2 ** times, maxDelayMs);
}
