/**
 * A handler's trigger → the first run of a new chain (02 §1.4, 1.7, 2). Successors are `retry.ts`.
 *
 * S1. Triggers are used up when a run starts, never at commit: what arrives in between triggers again.
 * S2. The dispatch is on record before the unit executes.
 * S3. In step mode a run is held before its first unit, and units are never fused (04).
 */
import type { Change, UnitName, Write } from "./change.ts";
import type { HandlerFacts, RunFacts, WorkflowFacts } from "./facts.ts";
import type { EpochMs, Incarnation, InboxId, RunId } from "./ids.ts";
import type { Kind, Phase, Run, Trigger } from "./run.ts";
import type { JsonText } from "./workflow.ts";

/** What the engine adds to a start: an id, who runs it, and the policy that was in force. */
export interface Attempt {
  id: RunId;
  host: Incarnation;
  policy?: JsonText;
  deadlineMs?: number;
  /** `prepare` and the intent of `mutate` in one round trip (07, Fusing). */
  fused: boolean;
  /** Step mode: the id of the question that holds the run before its first unit. */
  hold?: InboxId;
}

export function start(
  workflow: WorkflowFacts,
  handler: HandlerFacts,
  trigger: Trigger,
  attempt: Attempt,
  atMs: EpochMs,
): Change {
  const { id, policy, deadlineMs } = attempt;
  const held = workflow.mode === "step";
  const run: Run = {
    id,
    workflow: workflow.id,
    version: workflow.activeVersion,
    handler: handler.id,
    kind: handler.kind,
    trigger,
    rootId: id,
    attempt: 1,
    phase: handler.kind === "producer" ? "executing" : "preparing",
    status: held ? "paused:approval" : "active",
    open: true,
    retries: 0,
    crashes: 0,
    redos: 0,
    startSeq: workflow.seq,
    chainStartedAtMs: atMs,
    createdAtMs: atMs,
    host: attempt.host,
    revision: 1,
    ...(held ? { pauseReason: "step" as const } : {}),
    ...(policy === undefined ? {} : { policy }),
    ...(deadlineMs === undefined ? {} : { deadlineAtMs: atMs + deadlineMs }),
  };
  return {
    verb: "start",
    workflow: workflow.id,
    atMs,
    expect: { workflowRevision: workflow.revision },
    writes: [
      { do: "run.create", run },
      ...lookedAt(handler.kind, handler),
      held ? question(run, attempt) : dispatch(run, handler, attempt), // (S3)
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

/**
 * The facts of the run that a start has begun, as they are once it is applied: nothing of it needs to be read again.
 * `now` is what the store says of the workflow then.
 */
export function begunBy(
  { workflow, handler }: Pick<RunFacts, "workflow" | "handler">,
  { writes }: Change,
  now: { workflowRevision: number; seq: number },
): RunFacts | undefined {
  const create = writes.find((write) => write.do === "run.create");
  const set = writes.find((write) => write.do === "workflow.set")?.set;
  if (!create || create.run.status !== "active") return undefined;
  const { run } = create;
  const own = seen(handler, now.seq);
  return {
    workflow: {
      ...workflow,
      revision: now.workflowRevision,
      seq: now.seq,
      consumerStreak: set?.consumerStreak ?? workflow.consumerStreak,
      openRun: { id: run.id, active: true },
      handlers: workflow.handlers.map((one) => (one.id === own.id ? own : one)),
    },
    handler: own,
    run,
    reserved: [],
    released: [],
  };
}

/** The handler after `lookedAt`. */
function seen(handler: HandlerFacts, seq: number): HandlerFacts {
  if (handler.kind === "producer") {
    const { queued: _, ...rest } = handler;
    return rest;
  }
  const { triggered: _, newPendingAtMs: __, ...rest } = handler;
  return { ...rest, seenSeq: seq };
}

/** (S2) */
const dispatch = (run: Run, handler: HandlerFacts, { fused }: Attempt): Write => ({
  do: "unit.dispatched",
  run: run.id,
  units: firstUnits(handler, fused),
});

export function question(run: Run, { hold }: Attempt): Write {
  if (hold === undefined) throw new Error(`run ${run.id} is held, but nobody would be asked`);
  return { do: "inbox.open", id: hold, kind: "step", run: run.id };
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

/** What has to be dispatched for a run to go on at this phase; a call and a commit are no units. */
export function unitsAt(
  phase: Phase,
  handler: HandlerFacts,
  holds: { reserved: readonly unknown[]; fused: boolean },
): UnitName[] {
  switch (phase) {
    case "executing":
    case "preparing":
      return firstUnits(handler, holds.fused);
    case "prepared":
      return handler.hasMutate && holds.reserved.length > 0 ? ["mutate"] : [];
    case "emitting":
      return handler.hasNext ? ["next"] : [];
    case "mutating":
    case "mutated":
    case "committed":
      return [];
  }
}
