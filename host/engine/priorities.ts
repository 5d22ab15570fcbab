/**
 * The class of each workflow that waits, by the policy of the handler that would run (02 §1.8, 04). Where no rule speaks of
 * priorities nothing is read; where one does, each workflow is looked at once for each thing it waits for.
 */
import type { WorkflowFacts } from "../core/facts.ts";
import type { WorkflowId } from "../core/ids.ts";
import { choose } from "../core/trigger.ts";
import type { Priority, Waiting } from "../core/turns.ts";
import type { DueWorkflow } from "../ports/store.ts";
import type { Parts, PolicyOwner } from "./parts.ts";

export class Priorities {
  readonly #parts: Parts;
  #known = new Map<WorkflowId, { dueAtMs: number; priority: Priority }>();

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** It gets its turn: next it waits for something else, perhaps since the same moment. */
  forget(workflow: WorkflowId): void {
    this.#known.delete(workflow);
  }

  async of(due: DueWorkflow[], nowMs: number): Promise<Waiting[]> {
    if (!this.#parts.policies.hasPriorities) return due;
    const known = this.#known;
    this.#known = new Map();
    const waiting: Waiting[] = [];
    for (const one of due) {
      const before = known.get(one.workflow);
      const priority =
        before?.dueAtMs === one.dueAtMs ? before.priority : await this.#priority(one.workflow, nowMs);
      this.#known.set(one.workflow, { dueAtMs: one.dueAtMs, priority });
      waiting.push({ ...one, priority });
    }
    return waiting;
  }

  async #priority(id: WorkflowId, nowMs: number): Promise<Priority> {
    const { store, policies } = this.#parts;
    const workflow = await store.workflow(id);
    const owner = workflow && (await this.#next(workflow, nowMs));
    if (!owner) return "normal";
    return policies.effective(owner.handler.kind === "producer" ? "producer" : "prepare", owner).priority;
  }

  async #next(workflow: WorkflowFacts, nowMs: number): Promise<PolicyOwner | undefined> {
    const choice = choose(workflow, nowMs);
    if (choice.next === "start") return { workflow, handler: choice.handler };
    return choice.next === "chain" ? this.#parts.store.run(choice.run) : undefined;
  }
}
