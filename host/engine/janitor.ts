/**
 * Housekeeping at quiet intervals, a piece at a time: what has outlived its retention goes, what nobody has looked at is
 * put before a person. What goes, and what never does, is the store's business.
 *
 * J1. When wall and monotonic time disagree by more than an hour, nothing is thrown away: the clock may be wrong by
 *     years (02 §1.12). It begins again once they have agreed for as long.
 */
import type { EpochMs } from "../core/ids.ts";
import type { Parts } from "./parts.ts";

const EVERY_MS = 600_000;
const BETWEEN_MS = 100;
const DISAGREE_MS = 3_600_000;

/** One small piece of work; true when there is more to do. */
export type Tidy = (nowMs: EpochMs) => Promise<boolean>;

export class Janitor {
  readonly #parts: Parts;
  readonly #chores: readonly Tidy[];
  /** Which of them is at work. */
  #at = 0;
  #forget: () => void = () => {};
  #working: Promise<void> | undefined;
  #stopped = true;
  #started: { wallMs: number; monotonicMs: number } = { wallMs: 0, monotonicMs: 0 };

  constructor(parts: Parts, chores: readonly Tidy[]) {
    this.#parts = parts;
    this.#chores = chores;
  }

  start(): void {
    this.#stopped = false;
    this.#agree();
    this.#wait(EVERY_MS);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#forget();
    await this.#working;
  }

  #wait(ms: number): void {
    if (this.#stopped) return;
    const { clock } = this.#parts;
    this.#forget = clock.at(clock.nowMs() + ms, () => {
      this.#working = this.#work();
    });
  }

  async #work(): Promise<void> {
    const { clock, tell } = this.#parts;
    let more = false;
    try {
      if (this.#disagrees())
        this.#agree(); // (J1)
      else more = await this.#piece(clock.nowMs());
    } catch (error) {
      this.#at = 0;
      tell({ kind: "engine.warning", message: `tidying: ${String(error)}`, atMs: clock.nowMs() });
    }
    this.#wait(more ? BETWEEN_MS : EVERY_MS);
  }

  /** One chore after the other; false when all are done for now. */
  async #piece(nowMs: EpochMs): Promise<boolean> {
    if (await this.#chores[this.#at]?.(nowMs)) return true;
    this.#at = (this.#at + 1) % Math.max(1, this.#chores.length);
    return this.#at !== 0;
  }

  #disagrees(): boolean {
    const { clock, tell } = this.#parts;
    const { wallMs, monotonicMs } = this.#started;
    const apartMs = Math.abs(clock.nowMs() - wallMs - (clock.monotonicMs() - monotonicMs));
    if (apartMs <= DISAGREE_MS) return false;
    const message = `the clock jumped by ${Math.round(apartMs / 60_000)} minutes: nothing is tidied up for now`;
    tell({ kind: "engine.warning", message, atMs: clock.nowMs() });
    return true;
  }

  #agree(): void {
    const { clock } = this.#parts;
    this.#started = { wallMs: clock.nowMs(), monotonicMs: clock.monotonicMs() };
  }
}
