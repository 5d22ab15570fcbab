/**
 * The world's clock and dice. Every awaited call of a seam is a task in one queue; a seeded generator picks the next one;
 * when nothing can run, virtual time jumps to the next timer. The same seed gives the same trace.
 */
import type { Clock } from "../../host/ports/clock.ts";

export class Chance {
  #state: number;

  constructor(seed: number) {
    this.#state = Math.imul(seed ^ 0x9e3779b9, 0x85ebca6b) >>> 0;
  }

  /** In [0, 1). */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let t = this.#state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  }

  below(n: number): number {
    return Math.floor(this.next() * n);
  }

  /** In [from, to). */
  between(from: number, to: number): number {
    return from + this.below(to - from);
  }

  hits(probability: number): boolean {
    return probability > 0 && this.next() < probability;
  }

  pick<Item>(items: readonly Item[]): Item {
    return items[this.below(items.length)] as Item;
  }
}

/** Thrown inside a task that ends the host: whoever waits for that task waits for ever. */
export class HostDied extends Error {
  override readonly name = "HostDied";
}

/** What outlives the host: bytes that have left, people. */
const OUTSIDE = -1;

interface Task {
  label: string;
  generation: number;
  run: () => void;
}

interface Timer {
  atMs: number;
  order: number;
  generation: number;
  wake: () => void;
}

export class Kernel implements Clock {
  readonly dice: Chance;
  /** What happened, one line each; its hash is the seed's fingerprint. */
  readonly trace: string[] = [];
  /** How often each fault and act occurred. */
  readonly tally = new Map<string, number>();
  #tasks: Task[] = [];
  #timers: Timer[] = [];
  #order = 0;
  #nowMs: number;
  /** Raised by a crash: tasks and timers of the dead host never run. */
  #generation = 0;

  constructor(seed: number, startMs = Date.UTC(2026, 0, 5, 8)) {
    this.dice = new Chance(seed);
    this.#nowMs = startMs;
  }

  /** Which life of the host this is: what one began, the next does not hear the end of. */
  get life(): number {
    return this.#generation;
  }

  nowMs(): number {
    return this.#nowMs;
  }

  monotonicMs(): number {
    return this.#nowMs;
  }

  chance(): number {
    return this.dice.next();
  }

  at(atMs: number, wake: () => void, outside = false): () => void {
    const timer = { atMs, order: this.#order++, generation: outside ? OUTSIDE : this.#generation, wake };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((one) => one !== timer);
    };
  }

  note(line: string): void {
    this.trace.push(`${this.#nowMs} ${line}`);
  }

  count(what: string): void {
    this.tally.set(what, (this.tally.get(what) ?? 0) + 1);
  }

  /** A seam call: `work` happens when its turn comes, in this host's life or, if `outside`, after it too. */
  task<Result>(label: string, work: () => Result, outside = false): Promise<Result> {
    return new Promise((resolve, reject) => {
      const run = () => {
        try {
          resolve(work());
        } catch (error) {
          if (!(error instanceof HostDied)) reject(error as Error);
        }
      };
      this.#tasks.push({ label, generation: outside ? OUTSIDE : this.#generation, run });
    });
  }

  /** The same, but not before `delayMs` have passed. */
  async later<Result>(delayMs: number, label: string, work: () => Result, outside = false): Promise<Result> {
    if (delayMs > 0)
      await new Promise<void>((resolve) => {
        this.at(this.#nowMs + delayMs, resolve, outside);
      });
    return this.task(label, work, outside);
  }

  /** Ends this host's life: whatever it awaited never comes. */
  crash(): void {
    this.#generation++;
    const alive = (one: { generation: number }) =>
      one.generation === OUTSIDE || one.generation === this.#generation;
    this.#tasks = this.#tasks.filter(alive);
    this.#timers = this.#timers.filter(alive);
  }

  /** Runs until `done`, or until nothing is left to do before `untilMs`; "busy" if time stands still for too long. */
  async run(done: () => boolean, untilMs: number, maxSteps: number): Promise<"done" | "idle" | "busy"> {
    let atMs = this.#nowMs;
    for (let step = 0; step < maxSteps; step++) {
      await settle();
      if (done()) return "done";
      if (!this.#step(untilMs)) {
        this.#nowMs = Math.max(this.#nowMs, untilMs);
        return "idle";
      }
      if (this.#nowMs !== atMs) [atMs, step] = [this.#nowMs, 0];
    }
    return "busy";
  }

  #step(untilMs: number): boolean {
    const count = this.#tasks.length;
    if (count > 0) {
      const at = count === 1 ? 0 : this.dice.below(count);
      const task = this.#tasks[at] as Task;
      this.#tasks.splice(at, 1);
      this.note(task.label);
      task.run();
      return true;
    }
    let next: Timer | undefined;
    for (const one of this.#timers)
      if (!next || one.atMs < next.atMs || (one.atMs === next.atMs && one.order < next.order)) next = one;
    if (!next || next.atMs > untilMs) return false;
    this.#timers.splice(this.#timers.indexOf(next), 1);
    this.#nowMs = Math.max(this.#nowMs, next.atMs);
    next.wake();
    return true;
  }
}

/** Lets every promise that can settle do so; nothing in a simulation waits for the real world. */
function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
