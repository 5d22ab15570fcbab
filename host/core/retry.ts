/**
 * A ready chain is claimed → the same run goes on, or a successor is made (02 §3.1, 3.3, 3.4). Where a successor
 * starts is decided by the ledger row, never by the phase.
 *
 * N1. Row none, `failed` or `proposed`: from `preparing`, nothing copied. Row `applied` or `skipped`: from `emitting`,
 *     with byte-equal copies, deliveries taken over. Row unknown: no successor, but for crash recovery.
 * N2. A run keeps its version; a new run uses the active one; past the boundary the active one only if it still has
 *     that consumer's `next`.
 * N3. Whenever a successor would start at the beginning and the handler is gone, the chain is closed instead.
 */
import type { Change, Write } from "./change.ts";
import { close, settleSchedule } from "./close.ts";
import { type RunFacts, stateOf, step } from "./facts.ts";
import type { EpochMs } from "./ids.ts";
import { isUnknown, type MutationStatus } from "./mutation.ts";
import { isEnded, isPastBoundary, type Phase, type Run, type TriggerReason } from "./run.ts";
import { type Attempt, firstUnits, lookedAt } from "./start.ts";

/** Where a new run of a chain starts, by the ledger row of the last attempt (3.1). */
export function startsAt(run: Pick<Run, "kind">, row: MutationStatus | undefined): Phase | undefined {
  if (run.kind === "producer") return "executing";
  switch (row) {
    case undefined:
    case "failed":
    case "proposed":
      return "preparing";
    case "applied":
    case "skipped":
      return "emitting";
    case "in_flight":
    case "needs_reconcile":
    case "indeterminate":
      return undefined;
  }
}

/** The scheduler has a slot for a chain that is ready. */
export function claim(facts: RunFacts, attempt: Attempt, atMs: EpochMs): Change {
  const { run, mutation, workflow, handler } = facts;
  if (!isEnded(run.status) && run.version === workflow.activeVersion && !handler.orphaned)
    return resume(facts, attempt, atMs);
  const phase = startsAt(run, mutation?.status);
  if (phase === undefined) throw new Error(`run ${run.id} has an unknown outcome and cannot be claimed`); // (N1)
  if (phase !== "emitting" && handler.orphaned) return removed(facts, atMs); // (N3)
  return succeed(facts, attempt, { phase, reason: reasonOf(run), atMs });
}

/** The same run at its phase, from its checkpoint (3.4). */
function resume(facts: RunFacts, attempt: Attempt, atMs: EpochMs): Change {
  const { run, handler, workflow } = facts;
  const again = run.phase === "preparing" || run.phase === "executing";
  return step("resume", facts, atMs, [
    {
      do: "run.set",
      id: run.id,
      from: stateOf(run),
      set: {
        status: "active",
        pauseReason: null,
        readyAtMs: null,
        host: attempt.host,
        ...(again ? { startSeq: workflow.seq } : {}),
      },
    },
    ...(again ? lookedAt(run.kind, handler) : []),
    ...(again
      ? [{ do: "unit.dispatched" as const, run: run.id, units: firstUnits(handler, attempt.fused) }]
      : []),
  ]);
}

function removed(facts: RunFacts, atMs: EpochMs): Change {
  const change = close(
    facts,
    {
      deliveries: "release",
      resolution: { by: "host", action: "handler_removed", atMs },
      ending: settleSchedule(facts, "failed", [], "handler_removed"),
    },
    atMs,
  );
  return { ...change, verb: "handler-removed" };
}

export interface Succession {
  phase: Phase;
  reason: TriggerReason;
  atMs: EpochMs;
  /** Crash recovery with an unknown row: the successor waits for the check and needs no slot (3.3). */
  checking?: boolean;
}

/** A new attempt takes over from the last one. */
export function succeed(facts: RunFacts, attempt: Attempt, how: Succession): Change {
  const { run, mutation, workflow, handler } = facts;
  const next = successor(facts, attempt, how);
  const fresh = how.phase === "preparing" || how.phase === "executing";
  const writes: Write[] = [
    {
      do: "run.set",
      id: run.id,
      from: stateOf(run),
      set: { open: false, successor: next.id, readyAtMs: null },
    },
    { do: "run.create", run: next },
  ];
  if (mutation?.status === "proposed")
    writes.push({
      do: "mutation.set",
      id: mutation.id,
      from: "proposed",
      set: { status: "failed", notSent: true },
    });
  if (!fresh && mutation)
    writes.push({ do: "mutation.set", id: mutation.id, from: mutation.status, set: { ownerRun: next.id } });
  if (facts.reserved.length > 0)
    writes.push(
      fresh
        ? { do: "deliveries", ids: facts.reserved, to: "pending", run: run.id }
        : { do: "deliveries.handover", from: run.id, to: next.id },
    );
  if (fresh)
    writes.push(...lookedAt(run.kind, handler), {
      do: "unit.dispatched",
      run: next.id,
      units: firstUnits(handler, attempt.fused),
    });
  else if (how.phase === "emitting" && handler.hasNext)
    writes.push({ do: "unit.dispatched", run: next.id, units: ["next"] });
  writes.push({ do: "inbox.close", run: run.id }, { do: "workflow.set", set: { openRun: next.id } });
  const change = step(how.reason, facts, how.atMs, writes);
  return { ...change, expect: { ...change.expect, workflowRevision: workflow.revision } };
}

function successor(facts: RunFacts, attempt: Attempt, how: Succession): Run {
  const { run, mutation, workflow, handler } = facts;
  const fresh = how.phase === "preparing" || how.phase === "executing";
  const kept = how.checking || (isPastBoundary(mutation) && (handler.orphaned || !handler.hasNext));
  const crashed = run.status === "crashed" && run.error?.code !== "aborted" && !how.checking;
  const crashes = !crashed ? 0 : run.crashPhase === run.phase ? run.crashes + 1 : 1;
  return {
    id: attempt.id,
    workflow: run.workflow,
    version: kept ? run.version : workflow.activeVersion, // (N2)
    handler: run.handler,
    kind: run.kind,
    trigger: { ...run.trigger, reason: how.reason },
    rootId: run.rootId,
    retryOf: run.id,
    attempt: run.attempt + 1,
    phase: how.phase,
    status: how.checking ? "paused:reconciliation" : "active",
    open: true,
    retries: retriesOf(run),
    crashes,
    redos: 0,
    startSeq: fresh ? workflow.seq : run.startSeq,
    chainStartedAtMs: run.chainStartedAtMs,
    createdAtMs: how.atMs,
    host: attempt.host,
    revision: 1,
    ...(how.checking ? { pauseReason: "checking" as const } : {}),
    ...(crashes > 0 ? { crashPhase: run.phase } : {}),
    ...(fresh ? {} : copies(run)), // (N1)
    ...(attempt.policy === undefined ? {} : { policy: attempt.policy }),
    ...deadline(run, attempt, how.atMs),
  };
}

const copies = ({ prepared, result, outcome, wakeAtMs }: Run): Partial<Run> => ({
  ...(prepared === undefined ? {} : { prepared }),
  ...(result === undefined ? {} : { result }),
  ...(outcome === undefined ? {} : { outcome }),
  ...(wakeAtMs === undefined ? {} : { wakeAtMs }),
});

/** Automatic retries count; a person, a deploy or a free wait does not. */
function retriesOf(run: Run): number {
  if (run.resolution) return 0;
  const free =
    run.pauseReason === "limited" || run.pauseReason === "breaker_open" || run.status === "crashed";
  return free ? run.retries : run.retries + 1;
}

/** From the chain's start, its last human act or deploy, whichever is later. */
function deadline(run: Run, attempt: Attempt, atMs: EpochMs): { deadlineAtMs?: EpochMs } {
  if (run.resolution && attempt.deadlineMs !== undefined) return { deadlineAtMs: atMs + attempt.deadlineMs };
  return run.deadlineAtMs === undefined ? {} : { deadlineAtMs: run.deadlineAtMs };
}

function reasonOf(run: Run): TriggerReason {
  if (run.status === "crashed") return "recovery";
  return run.resolution ? "decision" : "retry";
}

/** Nobody may decide again what may already have happened. */
export function isClaimable({ run, mutation }: Pick<RunFacts, "run" | "mutation">): boolean {
  return run.open && run.status !== "active" && run.readyAtMs !== undefined && !isUnknown(mutation?.status);
}
