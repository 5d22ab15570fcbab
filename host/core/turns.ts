/**
 * Who is next, across workflows (02 §1.8): round robin over namespaces, then priority, then who has waited longest. Which
 * handler of a workflow runs is `trigger.ts`.
 *
 * Q1. Of two namespaces that wait, the one served longer ago is first, however much the other has waiting.
 * Q2. Every AGE_MS of waiting count as one class of priority: nobody waits for ever.
 */
import type { EpochMs, NamespaceId, WorkflowId } from "./ids.ts";

export interface Waiting {
  workflow: WorkflowId;
  namespace: NamespaceId;
  dueAtMs: EpochMs;
  /** Normal, unless a policy says otherwise. */
  priority?: Priority;
}

export type Priority = "high" | "normal" | "low";

const CLASS: Record<Priority, number> = { high: 2, normal: 1, low: 0 };
const AGE_MS = 60_000;

/** The first `count` in turn. `served` says when a namespace last got a slot, as a count that only grows. */
export function inTurn<One extends Waiting>(
  waiting: readonly One[],
  served: (namespace: NamespaceId) => number,
  nowMs: EpochMs,
  count: number,
): One[] {
  const queues = new Map<NamespaceId, One[]>();
  for (const one of waiting) {
    const queue = queues.get(one.namespace);
    if (queue) queue.push(one);
    else queues.set(one.namespace, [one]);
  }
  for (const queue of queues.values())
    queue.sort((a, b) => classOf(b, nowMs) - classOf(a, nowMs) || a.dueAtMs - b.dueAtMs); // (Q2)
  const order = [...queues.keys()].sort((a, b) => served(a) - served(b) || a - b);
  const next: One[] = [];
  while (next.length < count && queues.size > 0)
    for (const namespace of order) {
      const one = queues.get(namespace)?.shift();
      if (one && next.length < count) next.push(one); // (Q1)
      if (queues.get(namespace)?.length === 0) queues.delete(namespace);
    }
  return next;
}

function classOf({ priority = "normal", dueAtMs }: Waiting, nowMs: EpochMs): number {
  return CLASS[priority] + Math.floor(Math.max(0, nowMs - dueAtMs) / AGE_MS);
}
