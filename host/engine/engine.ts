/** The engine as one piece: its parts wired, started in order, stopped in order. */
import type { WorkflowId } from "../core/ids.ts";
import type { Compilation, Upload } from "../ports/sandbox.ts";
import { Access } from "./access.ts";
import { Deploys } from "./deploys.ts";
import { Executor } from "./executor.ts";
import { Janitor, type Tidy } from "./janitor.ts";
import { Operator } from "./operator.ts";
import type { Parts } from "./parts.ts";
import { Reconciler } from "./reconciler.ts";
import { recoverInterrupted } from "./recovery.ts";
import { Scheduler } from "./scheduler.ts";

export interface EngineOptions {
  /** Runs at once. */
  slots: number;
  compile: (upload: Upload) => Promise<Compilation>;
  /** Retention, a piece at a time. */
  tidy?: Tidy;
}

export class Engine {
  readonly deploys: Deploys;
  readonly operator: Operator;
  readonly access: Access;
  readonly #scheduler: Scheduler;
  readonly #janitor: Janitor | undefined;
  readonly #parts: Parts;

  constructor(parts: Parts, options: EngineOptions) {
    this.#parts = parts;
    const poke = () => this.poke();
    const executor = new Executor(parts);
    const reconciler = new Reconciler(parts);
    this.#scheduler = new Scheduler(parts, executor, reconciler, options.slots);
    executor.mutator.onSettled(poke);
    reconciler.onSettled(poke);
    this.deploys = new Deploys(parts, options.compile, poke);
    this.operator = new Operator(parts, { poke, abort: (workflow) => this.abort(workflow) });
    this.access = new Access(parts, this.operator);
    this.#janitor = options.tidy && new Janitor(parts, options.tidy);
  }

  /** Recovers what a dead host left, then begins to schedule. */
  async start(): Promise<{ recovered: number }> {
    const recovered = await recoverInterrupted(this.#parts);
    this.#scheduler.start();
    this.#janitor?.start();
    return { recovered };
  }

  /** Something became due by other means than the engine's own. */
  poke(): void {
    this.#scheduler.poke();
  }

  get active(): number {
    return this.#scheduler.active;
  }

  abort(workflow: WorkflowId): void {
    this.#scheduler.abort(workflow);
  }

  /** Claims nothing more, lets calls in flight finish, ends the rest; the store is closed by its owner, last. */
  async stop(): Promise<void> {
    await this.#scheduler.stop();
    await this.#janitor?.stop();
    await this.#parts.store.flush();
  }
}
