/** How much one caller may ask in a short time: a bucket for each, which fills up again. */
import { Refusal } from "./problems.ts";

const MOST_CALLERS = 10_000;

export class Pace {
  readonly #perSecond: number;
  readonly #most: number;
  readonly #callers = new Map<string, { left: number; atMs: number }>();

  constructor(perSecond: number, most = 2 * perSecond) {
    this.#perSecond = perSecond;
    this.#most = most;
  }

  /** Takes one, or throws. */
  take(caller: string, nowMs: number): void {
    const left = this.#left(caller, nowMs);
    if (left < 1) throw tooMany((1 - left) / this.#perSecond);
    this.#keep(caller, left - 1, nowMs);
  }

  /** Throws when there is none left, and takes none. */
  assert(caller: string, nowMs: number): void {
    const left = this.#left(caller, nowMs);
    if (left < 1) throw tooMany((1 - left) / this.#perSecond);
  }

  #left(caller: string, nowMs: number): number {
    const known = this.#callers.get(caller);
    if (!known) return this.#most;
    return Math.min(this.#most, known.left + (Math.max(0, nowMs - known.atMs) / 1_000) * this.#perSecond);
  }

  #keep(caller: string, left: number, atMs: number): void {
    this.#callers.delete(caller);
    if (this.#callers.size >= MOST_CALLERS) {
      const oldest = this.#callers.keys().next().value;
      if (oldest !== undefined) this.#callers.delete(oldest);
    }
    this.#callers.set(caller, { left, atMs });
  }
}

const tooMany = (waitS: number): Refusal =>
  new Refusal(
    "too-many-requests",
    "more was asked in a short time than is allowed",
    {},
    {
      "retry-after": String(Math.max(1, Math.ceil(waitS))),
    },
  );
