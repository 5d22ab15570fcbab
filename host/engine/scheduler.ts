/**
 * What is due → which run starts, and in which order across workflows (02 §1.8, 1.12, 3.3). One timer for the earliest
 * due time, a slow sweep behind it, a bounded number of slots. Which handler of a workflow runs is `core/trigger.ts`.
 *
 * H1. A run is active only while it holds a slot.
 * H2. Round robin over namespaces, then longest waiting.
 * H3. Between due times the store is not asked, but for the sweep.
 */
import type { Change } from "../core/change.ts";
import type { RunFacts, WorkflowFacts } from "../core/facts.ts";
import type { NamespaceId, RunId, WorkflowId } from "../core/ids.ts";
import { claim } from "../core/retry.ts";
import { type Attempt, start } from "../core/start.ts";
import { choose } from "../core/trigger.ts";
import type { DueWorkflow } from "../ports/store.ts";
import type { Executor } from "./executor.ts";
import type { Parts } from "./parts.ts";
import type { Reconciler } from "./reconciler.ts";

const SWEEP_MS = 30_000;
const LOOK_AHEAD = 4;

export class Scheduler {
  readonly #parts: Parts;
  readonly #executor: Executor;
  readonly #reconciler: Reconciler;
  readonly #slots: number;
  readonly #running = new Map<WorkflowId, { done: Promise<void>; abort: AbortController; run?: RunId }>();
  readonly #lastServed = new Map<NamespaceId, number>();
  #served = 0;
  #forget: () => void = () => {};
  #ticking = false;
  #again = false;
  #stopped = true;

  constructor(parts: Parts, executor: Executor, reconciler: Reconciler, slots: number) {
    this.#parts = parts;
    this.#executor = executor;
    this.#reconciler = reconciler;
    this.#slots = slots;
  }

  start(): void {
    this.#stopped = false;
    this.poke();
  }

  /** Something may have become due. */
  poke(): void {
    if (this.#stopped) return;
    this.#again = true;
    if (!this.#ticking) void this.#tick();
  }

  /** Ends a run early, but never a call in flight: the engine only stops waiting for the script. */
  abort(workflow: WorkflowId): void {
    this.#running.get(workflow)?.abort.abort();
  }

  /** Claims nothing more and waits for what runs. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#forget();
    await Promise.all([...this.#running.values()].map((one) => one.done));
    await this.#reconciler.idle();
  }

  get active(): number {
    return this.#running.size;
  }

  async #tick(): Promise<void> {
    this.#ticking = true;
    this.#forget();
    while (this.#again && !this.#stopped) {
      this.#again = false;
      await this.#reconciler.checkDue();
      const free = this.#slots - this.#running.size;
      if (free <= 0) break;
      const due = await this.#parts.store.due(this.#parts.clock.nowMs(), this.#slots * LOOK_AHEAD);
      const waiting = this.#inTurn(due.filter((one) => !this.#running.has(one.workflow)));
      for (const one of waiting.slice(0, free)) this.#serve(one);
    }
    this.#ticking = false;
    if (!this.#stopped) await this.#sleep();
  }

  /** Until the next due time; whoever makes something due earlier pokes (H3). */
  async #sleep(): Promise<void> {
    const nowMs = this.#parts.clock.nowMs();
    const next = (await this.#parts.store.nextDueAt()) ?? Number.POSITIVE_INFINITY;
    if (this.#stopped || this.#ticking) return;
    this.#forget();
    const atMs = next > nowMs ? Math.min(next, nowMs + SWEEP_MS) : nowMs + SWEEP_MS;
    this.#forget = this.#parts.clock.at(atMs, () => this.poke());
  }

  #inTurn(due: DueWorkflow[]): DueWorkflow[] {
    const served = (one: DueWorkflow) => this.#lastServed.get(one.namespace) ?? 0;
    return due.sort((a, b) => served(a) - served(b) || a.dueAtMs - b.dueAtMs); // (H2)
  }

  #serve({ workflow, namespace }: DueWorkflow): void {
    this.#lastServed.set(namespace, ++this.#served);
    const abort = new AbortController();
    const done = this.#run(workflow, abort.signal)
      .catch((error: unknown) => {
        const message = `workflow ${workflow}: ${error instanceof Error ? error.message : String(error)}`;
        this.#parts.tell({ kind: "engine.warning", message, atMs: this.#parts.clock.nowMs() });
      })
      .finally(() => {
        this.#running.delete(workflow);
        this.poke();
      });
    this.#running.set(workflow, { done, abort }); // (H1)
  }

  async #run(id: WorkflowId, signal: AbortSignal): Promise<void> {
    const { store, clock } = this.#parts;
    const workflow = await store.workflow(id);
    if (!workflow) return;
    const begun = await this.#begin(workflow, clock.nowMs());
    if (!begun) return;
    const result = await store.apply(begun.change, { level: "committed", fence: store.fence });
    if (!result.ok || begun.run === undefined) return;
    const facts = await store.run(begun.run);
    if (facts) this.#parts.tell({ kind: "run.started", facts });
    await this.#executor.drive(begun.run, signal);
  }

  async #begin(workflow: WorkflowFacts, nowMs: number): Promise<{ change: Change; run?: RunId } | undefined> {
    const choice = choose(workflow, nowMs);
    if (choice.next === "nothing") return undefined;
    const { store, fused } = this.#parts;
    const attempt: Attempt = { id: store.newId(), host: store.fence.incarnation, fused };
    if (choice.next === "start")
      return { change: start(workflow, choice.handler, choice.trigger, attempt, nowMs), run: attempt.id };
    const facts = (await store.run(choice.run)) as RunFacts;
    const change = claim(facts, attempt, nowMs);
    const created = change.writes.find((write) => write.do === "run.create");
    const resumed = change.writes.some((write) => write.do === "run.set" && write.set.status === "active");
    const run = created?.do === "run.create" ? created.run.id : resumed ? facts.run.id : undefined;
    return { change, ...(run === undefined ? {} : { run }) };
  }
}
