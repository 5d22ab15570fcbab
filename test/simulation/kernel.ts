/**
 * The world's clock and dice. Every awaited call of a seam is a task in one queue; a seeded generator picks the next one;
 * when nothing can run, virtual time jumps to the next timer. The same seed gives the same trace.
 */
import type { Clock } from "../../host/ports/clock.ts";

export class Chance {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
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

  hits(probability: number): boolean {
    return this.next() < probability;
  }

  pick<Item>(items: readonly Item[]): Item {
    return items[this.below(items.length)] as Item;
  }
}

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
  #tasks: Task[] = [];
  #timers: Timer[] = [];
  #order = 0;
  #nowMs: number;
  /** Raised by a crash: tasks and timers of the dead host never run. */
  generation = 0;
  steps = 0;

  constructor(seed: number, startMs = Date.UTC(2026, 0, 5, 8)) {
    this.dice = new Chance(seed);
    this.#nowMs = startMs;
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

  at(atMs: number, wake: () => void): () => void {
    const timer = { atMs, order: this.#order++, generation: this.generation, wake };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((one) => one !== timer);
    };
  }

  note(line: string): void {
    this.trace.push(`${this.#nowMs} ${line}`);
  }

  /** A seam call: `work` happens when its turn comes, in this host's life or, if `survives`, after it too. */
  task<Result>(label: string, work: () => Result, survives = false): Promise<Result> {
    return new Promise((resolve, reject) => {
      this.#tasks.push({
        label,
        generation: survives ? -1 : this.generation,
        run: () => {
          try {
            resolve(work());
          } catch (error) {
            reject(error as Error);
          }
        },
      });
    });
  }

  /** Ends this host's life: whatever it awaited never comes. */
  crash(): void {
    this.generation++;
    const alive = (one: { generation: number }) =>
      one.generation === -1 || one.generation === this.generation;
    this.#tasks = this.#tasks.filter(alive);
    this.#timers = this.#timers.filter(alive);
  }

  /** Runs until `done`, or until nothing is left to do before `untilMs`. */
  async run(done: () => boolean, untilMs: number, maxSteps: number): Promise<"done" | "idle" | "busy"> {
    for (let step = 0; step < maxSteps; step++) {
      await settle();
      if (done()) return "done";
      this.steps++;
      if (!this.#step(untilMs)) return "idle";
    }
    return "busy";
  }

  #step(untilMs: number): boolean {
    if (this.#tasks.length > 0) {
      const [task] = this.#tasks.splice(this.dice.below(this.#tasks.length), 1);
      if (task) {
        this.note(task.label);
        task.run();
      }
      return true;
    }
    const next = this.#timers.sort((a, b) => a.atMs - b.atMs || a.order - b.order)[0];
    if (!next || next.atMs > untilMs) return false;
    this.#timers.shift();
    this.#nowMs = Math.max(this.#nowMs, next.atMs);
    next.wake();
    return true;
  }
}

/** Lets every promise that can settle do so; nothing in a simulation waits for the real world. */
function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
