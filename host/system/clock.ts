/** The real clock. */
import type { Clock } from "../ports/clock.ts";

const LONGEST_TIMER_MS = 2_147_000_000;

export const systemClock: Clock = {
  nowMs: () => Date.now(),
  monotonicMs: () => performance.now(),
  at(atMs, wake) {
    const timer = setTimeout(wake, Math.min(Math.max(0, atMs - Date.now()), LONGEST_TIMER_MS));
    return () => clearTimeout(timer);
  },
  chance: () => Math.random(),
};
