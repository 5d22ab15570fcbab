/** Calls on their way to the outside, and how long the last of them may take: what a stop waits for (02 §7). */
import type { Clock } from "../ports/clock.ts";

interface Call {
  /** Monotonic. */
  untilMs: number;
  done: Promise<unknown>;
}

export class InFlight {
  readonly #clock: Pick<Clock, "monotonicMs">;
  readonly #calls = new Set<Call>();

  constructor(clock: Pick<Clock, "monotonicMs">) {
    this.#clock = clock;
  }

  /** From now until `done` has settled; `timeoutMs` is how long its policy lets it take. */
  track<Result>(timeoutMs: number, done: Promise<Result>): Promise<Result> {
    const call = { untilMs: this.#clock.monotonicMs() + timeoutMs, done };
    this.#calls.add(call);
    return done.finally(() => this.#calls.delete(call));
  }

  /** 0 when there are none. */
  get leftMs(): number {
    const nowMs = this.#clock.monotonicMs();
    return Math.max(0, ...[...this.#calls].map((call) => call.untilMs - nowMs));
  }

  async idle(): Promise<void> {
    while (this.#calls.size > 0) await Promise.allSettled([...this.#calls].map((call) => call.done));
  }
}
