/** Time that moves only when a test says so. Wall and monotonic time are two: a jump moves the first alone. */
import type { Clock } from "../../host/ports/clock.ts";

interface Timer {
  dueMs: number;
  order: number;
  wake: () => void;
}

export class TestClock implements Clock {
  #wallMs: number;
  #monotonicMs = 1_000;
  #timers: Timer[] = [];
  #order = 0;
  /** The next draws; 0.5 once they are used up. */
  draws: number[] = [];

  constructor(startMs: number) {
    this.#wallMs = startMs;
  }

  nowMs(): number {
    return this.#wallMs;
  }

  monotonicMs(): number {
    return this.#monotonicMs;
  }

  chance(): number {
    return this.draws.shift() ?? 0.5;
  }

  at(atMs: number, wake: () => void): () => void {
    const dueMs = this.#monotonicMs + Math.max(0, atMs - this.#wallMs);
    const timer = { dueMs, order: this.#order++, wake };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((one) => one !== timer);
    };
  }

  /** Somebody sets the wall clock. */
  jump(ms: number): void {
    this.#wallMs += ms;
  }

  /** Nobody is there to hear: the host that set them is dead. */
  forgetTimers(): void {
    this.#timers = [];
  }

  /** Lets `ms` pass, timer by timer; `settle` lets each of them have its effect first. */
  async pass(ms: number, settle: () => Promise<void>): Promise<void> {
    const untilMs = this.#monotonicMs + ms;
    for (;;) {
      const next = this.#timers.sort((a, b) => a.dueMs - b.dueMs || a.order - b.order)[0];
      if (!next || next.dueMs > untilMs) break;
      this.#timers.shift();
      this.#move(next.dueMs);
      next.wake();
      await settle();
    }
    this.#move(untilMs);
    await settle();
  }

  #move(toMs: number): void {
    this.#wallMs += Math.max(0, toMs - this.#monotonicMs);
    this.#monotonicMs = Math.max(this.#monotonicMs, toMs);
  }
}
