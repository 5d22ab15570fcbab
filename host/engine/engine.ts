/** The engine as one piece: its parts wired, started in order, stopped in order. */
import type { WorkflowId } from "../core/ids.ts";
import type { Compilation, Upload } from "../ports/sandbox.ts";
import type { VerifyHook } from "../ports/hooks.ts";
import type { Notices, Teller } from "../ports/notices.ts";
import type { Siblings } from "../ports/siblings.ts";
import { Access } from "./access.ts";
import { Connecting } from "./connecting.ts";
import { Deploys } from "./deploys.ts";
import { Executor } from "./executor.ts";
import { Hooks } from "./hooks.ts";
import { Janitor, type Tidy } from "./janitor.ts";
import { Notifier } from "./notifier.ts";
import { Operator } from "./operator.ts";
import type { Parts } from "./parts.ts";
import { PassingOn } from "./passing-on.ts";
import { Reconciler } from "./reconciler.ts";
import { recoverInterrupted } from "./recovery.ts";
import { Scheduler } from "./scheduler.ts";
import { type FindStale, staleInputs } from "./staleness.ts";

export interface EngineOptions {
  /** Runs at once. */
  slots: number;
  compile: (upload: Upload) => Promise<Compilation>;
  /** Retention, a piece at a time. */
  tidy?: Tidy;
  stale?: FindStale;
  /** Events from one workflow to another. */
  siblings?: Siblings;
  /** Who is told what waits for a person. */
  notifying?: { notices: Notices; teller: Teller };
  /** Checks who sent a webhook's request. */
  verifyHook?: VerifyHook;
}

export class Engine {
  readonly deploys: Deploys;
  readonly operator: Operator;
  readonly access: Access;
  /** Absent where the outside is made up. */
  readonly connecting: Connecting | undefined;
  readonly hooks: Hooks | undefined;
  readonly passingOn: PassingOn | undefined;
  readonly #notifier: Notifier | undefined;
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
    const { tidy, stale, siblings, notifying, verifyHook } = options;
    const { outside } = parts;
    this.connecting = outside && new Connecting(parts, outside, this.access);
    this.hooks = outside && verifyHook && new Hooks(parts, outside.connections, verifyHook, poke);
    this.passingOn = siblings && new PassingOn(parts, siblings, poke);
    this.#notifier = notifying && new Notifier(parts, notifying.notices, notifying.teller);
    const chores = [...(tidy ? [tidy] : []), ...(stale ? [staleInputs(parts, stale)] : [])];
    this.#janitor = chores.length > 0 ? new Janitor(parts, chores) : undefined;
  }

  /** Recovers what a dead host left, then begins to schedule. */
  async start(): Promise<{ recovered: number }> {
    const recovered = await recoverInterrupted(this.#parts);
    this.#scheduler.start();
    this.#janitor?.start();
    this.#notifier?.start();
    return { recovered };
  }

  /** Something became due by other means than the engine's own. */
  poke(): void {
    this.#scheduler.poke();
  }

  /** Somebody has to be told something. */
  notify(): void {
    this.#notifier?.poke();
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
    await this.#notifier?.stop();
    await this.#parts.store.flush();
  }
}
