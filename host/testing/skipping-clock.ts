/** The real clock, but for the time that a test does not want to sit through: that is skipped, timer by timer. */
import type { Clock } from "../ports/clock.ts";

const LONGEST_TIMER_MS = 2_147_000_000;

interface Timer {
  atMs: number;
  wake: () => void;
  real: NodeJS.Timeout;
}

export class SkippingClock implements Clock {
  readonly #timers = new Set<Timer>();
  #skippedMs = 0;

  nowMs(): number {
    return Date.now() + this.#skippedMs;
  }

  monotonicMs(): number {
    return performance.now() + this.#skippedMs;
  }

  /** Always the middle: nothing here depends on chance. */
  chance(): number {
    return 0.5;
  }

  at(atMs: number, wake: () => void): () => void {
    const delayMs = Math.min(Math.max(0, atMs - this.nowMs()), LONGEST_TIMER_MS);
    const timer: Timer = { atMs, wake, real: setTimeout(() => this.#fire(timer), delayMs) };
    this.#timers.add(timer);
    return () => this.#forget(timer);
  }

  /** To the moment of the next timer, which fires. */
  skip(): void {
    const [next] = [...this.#timers].sort((one, other) => one.atMs - other.atMs);
    if (!next) return;
    this.#skippedMs += Math.max(0, next.atMs - this.nowMs());
    this.#fire(next);
  }

  #fire(timer: Timer): void {
    if (!this.#timers.has(timer)) return;
    this.#forget(timer);
    timer.wake();
  }

  #forget(timer: Timer): void {
    clearTimeout(timer.real);
    this.#timers.delete(timer);
  }
}
