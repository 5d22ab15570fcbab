/**
 * The wall clock was set back → plans that now lie more than one interval ahead begin anew (02 §1.12). A clock set
 * forward needs nothing: what is due is caught up, once.
 */
import type { Write } from "../core/change.ts";
import type { WorkflowFacts } from "../core/facts.ts";
import { afterClockJump } from "../core/slots.ts";
import type { Parts } from "./parts.ts";

const ALL = 1_000_000;

/** Every workflow that waits for a time of its own. */
export async function reanchorAll(parts: Parts): Promise<void> {
  const { store } = parts;
  for (const { workflow: id } of await store.due(Number.MAX_SAFE_INTEGER, ALL)) {
    const workflow = await store.workflow(id);
    if (workflow) await reanchor(parts, workflow);
  }
}

/** One workflow, as it was just read. */
export async function reanchor({ store, clock }: Parts, workflow: WorkflowFacts): Promise<void> {
  const atMs = clock.nowMs();
  const writes = workflow.handlers.flatMap((handler): Write[] => {
    const { schedule, nextRunAtMs, anchorMs, id, orphaned } = handler;
    if (!schedule || orphaned || nextRunAtMs === undefined) return [];
    const plan = { anchorMs: anchorMs ?? nextRunAtMs, nextRunAtMs };
    const kept = afterClockJump(schedule, plan, atMs);
    return kept === plan ? [] : [{ do: "handler.set", id, set: kept }];
  });
  if (writes.length === 0) return;
  const expect = { workflowRevision: workflow.revision };
  const change = { verb: "reanchor", workflow: workflow.id, atMs, expect, writes };
  await store.apply(change, { level: "committed", fence: store.fence });
}
