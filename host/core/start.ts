/**
 * A handler's trigger → the first run of a new chain (02 §1.4, 1.7, 2). Successors are `retry.ts`.
 *
 * S1. Triggers are used up when a run starts, never at commit: what arrives in between triggers again.
 * S2. The dispatch is on record before the unit executes.
 */
import type { Change, UnitName, Write } from "./change.ts";
import type { HandlerFacts, WorkflowFacts } from "./facts.ts";
import type { EpochMs, Incarnation, RunId } from "./ids.ts";
import type { Kind, Run, Trigger } from "./run.ts";
import type { JsonText } from "./workflow.ts";

/** What the engine adds to a start: an id, who runs it, and the policy that was in force. */
export interface Attempt {
  id: RunId;
  host: Incarnation;
  policy?: JsonText;
  deadlineMs?: number;
  /** `prepare` and the intent of `mutate` in one round trip (07, Fusing). */
  fused: boolean;
}

export function start(
  workflow: WorkflowFacts,
  handler: HandlerFacts,
  trigger: Trigger,
  attempt: Attempt,
  atMs: EpochMs,
): Change {
  const run: Run = {
    id: attempt.id,
    workflow: workflow.id,
    version: workflow.activeVersion,
    handler: handler.id,
    kind: handler.kind,
    trigger,
    rootId: attempt.id,
    attempt: 1,
    phase: handler.kind === "producer" ? "executing" : "preparing",
    status: "active",
    open: true,
    retries: 0,
    crashes: 0,
    redos: 0,
    startSeq: workflow.seq,
    chainStartedAtMs: atMs,
    createdAtMs: atMs,
    host: attempt.host,
    revision: 1,
    ...(attempt.policy === undefined ? {} : { policy: attempt.policy }),
    ...(attempt.deadlineMs === undefined ? {} : { deadlineAtMs: atMs + attempt.deadlineMs }),
  };
  return {
    verb: "start",
    workflow: workflow.id,
    atMs,
    expect: { workflowRevision: workflow.revision },
    writes: [
      { do: "run.create", run },
      ...lookedAt(handler.kind, handler),
      { do: "unit.dispatched", run: run.id, units: firstUnits(handler, attempt.fused) }, // (S2)
      {
        do: "workflow.set",
        set: {
          openRun: run.id,
          consumerStreak: handler.kind === "consumer" ? workflow.consumerStreak + 1 : 0,
        },
      },
    ],
  };
}

/** Starting at the first phase is what "having seen" an event means (1.4). */
export function lookedAt(kind: Kind, handler: Pick<HandlerFacts, "id">): Write[] {
  const set = kind === "consumer" ? { seenSeq: "now" as const, triggered: null } : { queued: null };
  return [{ do: "handler.set", id: handler.id, set }]; // (S1)
}

export function firstUnits(handler: Pick<HandlerFacts, "kind" | "hasMutate">, fused: boolean): UnitName[] {
  if (handler.kind === "producer") return ["producer"];
  return fused && handler.hasMutate ? ["prepare", "mutate"] : ["prepare"];
}
