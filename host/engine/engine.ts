/** The engine as one piece: its parts wired, started in order, stopped in order. */
import type { WorkflowId } from "../core/ids.ts";
import type { Compilation, Upload } from "../ports/sandbox.ts";
import { Deploys } from "./deploys.ts";
import { Executor } from "./executor.ts";
import { Operator } from "./operator.ts";
import type { Parts } from "./parts.ts";
import { recoverInterrupted } from "./recovery.ts";
import { Reconciler } from "./reconciler.ts";
import { Scheduler } from "./scheduler.ts";

export interface EngineOptions {
  /** Runs at once. */
  slots: number;
  compile: (upload: Upload) => Promise<Compilation>;
}

export class Engine {
  readonly deploys: Deploys;
  readonly operator: Operator;
  readonly #scheduler: Scheduler;
  readonly #parts: Parts;

  constructor(parts: Parts, options: EngineOptions) {
    this.#parts = parts;
    const reconciler = new Reconciler(parts);
    this.#scheduler = new Scheduler(parts, new Executor(parts), reconciler, options.slots);
    reconciler.onSettled(() => this.#scheduler.poke());
    this.deploys = new Deploys(parts, options.compile);
    this.operator = new Operator(parts, () => this.#scheduler.poke());
  }

  /** Recovers what a dead host left, then begins to schedule. */
  async start(): Promise<{ recovered: number }> {
    const recovered = await recoverInterrupted(this.#parts);
    this.#scheduler.start();
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

  async stop(): Promise<void> {
    await this.#scheduler.stop();
    await this.#parts.store.flush();
  }
}
