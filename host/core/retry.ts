/**
 * A ready chain is claimed → the same run goes on, or a successor is made (02 §3.1, 3.3, 3.4). Where a successor
 * starts is decided by the ledger row, never by the phase.
 *
 * N1. Row none, `failed` or `proposed`: from `preparing`, nothing copied. Row `applied` or `skipped`: from `emitting`,
 *     with byte-equal copies, deliveries taken over. Row unknown: no successor, but for crash recovery.
 * N2. A run keeps its version; a new run uses the active one; past the boundary the active one only if it still has
 *     that consumer's `next`.
 * N3. Whenever a successor would start at the beginning and the handler is gone, the chain is closed instead.
 * N4. An approved call is on record as leaving in the Change that claims it: a crash cannot lose an approval.
 * N5. Budgets and deadlines count from the last human act or deploy.
 * N6. What goes on does so only in the workflow as it was read: a pause in between holds it.
 */
import { sending } from "./advance.ts";
import { after, type Change, fuse, type Write } from "./change.ts";
import { close, settleSchedule } from "./close.ts";
import { activeHandler, type RunFacts, stateOf, step } from "./facts.ts";
import { isFree } from "./failure.ts";
import type { EpochMs, InboxId } from "./ids.ts";
import { isUnknown, type Mutation, type MutationStatus, type Send } from "./mutation.ts";
import { isApproved, isEnded, isPastBoundary, type Phase, type Run, type TriggerReason } from "./run.ts";
import { type Attempt, lookedAt, question, unitsAt } from "./start.ts";

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

/** The scheduler has a slot for a chain that is ready. An approved call is claimed by `claimApproved`. */
export function claim(facts: RunFacts, attempt: Attempt, atMs: EpochMs): Change {
  const { run } = facts;
  if (isApproved(run)) throw new Error(`run ${run.id} holds an approved call: it is claimed with its send`); // (N4)
  if (isOverdue(facts, atMs)) return overdue(facts, attempt.id as number, atMs);
  return goesOnInPlace(facts) ? resume(facts, attempt, atMs) : startAgain(facts, attempt, atMs);
}

/** What an approval depends on, as it is now; and the send that would leave. */
export interface ApprovedCall {
  send: Send;
  isGranted: boolean;
  grantVersion: number;
  connection: string;
  configVersion: number;
}

/** An approved call leaves exactly as it was shown, or not at all; claim and `in_flight` are one Change (3.3, 3.4). */
export function claimApproved(
  facts: RunFacts & { mutation: Mutation },
  attempt: Attempt,
  call: ApprovedCall,
  atMs: EpochMs,
): Change {
  const { run, mutation } = facts;
  if (!isApproved(run)) throw new Error(`run ${run.id} has no approved call`);
  const same =
    call.isGranted &&
    call.grantVersion === (run.resolution?.grantVersion ?? call.grantVersion) &&
    call.connection === mutation.connection &&
    call.configVersion === mutation.configVersion;
  if (!same) return { ...startAgain(facts, attempt, atMs), verb: "approval-void" };
  const resumed = resume(facts, attempt, atMs);
  return fuse(resumed, sending({ ...facts, run: after(run, resumed) }, call.send, atMs)); // (N4)
}

/** A limit or a breaker holds up an approved call: run and approval stay (04). */
export function postpone(facts: RunFacts, readyAtMs: EpochMs, atMs: EpochMs): Change {
  const { run } = facts;
  return step("postpone", facts, atMs, [
    { do: "run.set", id: run.id, from: stateOf(run), set: { readyAtMs } },
  ]);
}

/** 3.4: reconnected, granted, stepped, or settled by a check or a person. Otherwise it is a new run by 3.1. */
function goesOnInPlace({ run, workflow, handler }: RunFacts): boolean {
  if (run.status === "paused:reconciliation") return true;
  if (isEnded(run.status) || run.version !== workflow.activeVersion || handler.orphaned) return false;
  return run.pauseReason !== "precondition" && run.pauseReason !== "binding";
}

function startAgain(facts: RunFacts, attempt: Attempt, atMs: EpochMs): Change {
  const { run, mutation, handler } = facts;
  const phase = startsAt(run, mutation?.status);
  if (phase === undefined) throw new Error(`run ${run.id} has an unknown outcome and cannot be claimed`); // (N1)
  if (phase !== "emitting" && handler.orphaned) return removed(facts, attempt.id as number, atMs); // (N3)
  return succeed(facts, attempt, { phase, reason: reasonOf(run), atMs });
}

/** The same run at its phase, from its checkpoint (3.4). */
function resume(facts: RunFacts, attempt: Attempt, atMs: EpochMs): Change {
  const { run, mutation, handler, workflow, reserved } = facts;
  if (isUnknown(mutation?.status)) throw new Error(`run ${run.id} has an unknown outcome and cannot go on`); // (N1)
  const looks = run.phase === "preparing" || run.phase === "executing";
  const units = unitsAt(run.phase, handler, { reserved, fused: attempt.fused });
  const change = step("resume", facts, atMs, [
    {
      do: "run.set",
      id: run.id,
      from: stateOf(run),
      set: {
        status: "active",
        pauseReason: null,
        readyAtMs: null,
        host: attempt.host,
        ...(looks ? { startSeq: workflow.seq } : {}),
        ...(run.resolution ? { retries: 0, deadlineAtMs: deadline(run, attempt) ?? null } : {}), // (N5)
      },
    },
    ...(looks ? lookedAt(run.kind, handler) : []),
    ...(units.length > 0 ? [{ do: "unit.dispatched" as const, run: run.id, units }] : []),
  ]);
  return { ...change, expect: { ...change.expect, workflowRevision: workflow.revision } }; // (N6)
}

function removed(facts: RunFacts, inbox: InboxId, atMs: EpochMs): Change {
  const change = close(
    facts,
    {
      deliveries: "release",
      resolution: { by: "host", action: "handler_removed", atMs },
      ending: settleSchedule(facts, "failed", [], "handler_removed"),
      inbox,
    },
    atMs,
  );
  return { ...change, verb: "handler-removed" };
}

/** The deadline passed while the chain waited for its turn; a person's act or a deploy would have moved it (04). */
function isOverdue({ run, mutation }: RunFacts, atMs: EpochMs): boolean {
  const late = run.deadlineAtMs !== undefined && run.deadlineAtMs <= atMs;
  return late && isEnded(run.status) && run.resolution === undefined && !isPastBoundary(mutation);
}

function overdue(facts: RunFacts, inbox: InboxId, atMs: EpochMs): Change {
  const { run } = facts;
  return step("overdue", facts, atMs, [
    { do: "run.set", id: run.id, from: stateOf(run), set: { pauseReason: "deadline", readyAtMs: null } },
    { do: "inbox.open", id: inbox, kind: "retries_exhausted", run: run.id },
  ]);
}

export interface Succession {
  phase: Phase;
  reason: TriggerReason;
  atMs: EpochMs;
  /** Crash recovery with an unknown row: the successor waits for a check or a person and needs no slot (3.3). */
  waits?: "checking" | "indeterminate";
}

/** A new attempt takes over from the last one. */
export function succeed(facts: RunFacts, attempt: Attempt, how: Succession): Change {
  const { run, mutation, workflow } = facts;
  const next = successor(facts, attempt, how);
  const fresh = isFirst(how.phase);
  const writes: Write[] = [
    {
      do: "run.set",
      id: run.id,
      from: stateOf(run),
      set: {
        open: false,
        successor: next.id,
        readyAtMs: null,
        ...(isEnded(run.status) ? {} : { endedAtMs: how.atMs }),
      },
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
  if (fresh) writes.push(...lookedAt(run.kind, facts.handler));
  writes.push(...begins(facts, next, attempt), { do: "inbox.close", run: run.id });
  if (next.pauseReason === "step") writes.push(question(next, attempt));
  const consumerStreak = run.kind === "consumer" ? workflow.consumerStreak + 1 : 0;
  writes.push({ do: "workflow.set", set: { openRun: next.id, consumerStreak } });
  const change = step(how.reason, facts, how.atMs, writes);
  return { ...change, expect: { ...change.expect, workflowRevision: workflow.revision } };
}

const isFirst = (phase: Phase): boolean => phase === "preparing" || phase === "executing";

/** The dispatch of the successor's first unit, by the version it is pinned to. */
function begins(facts: RunFacts, next: Run, { fused }: Attempt): Write[] {
  if (next.status !== "active") return [];
  const handler = next.version === facts.run.version ? facts.handler : activeHandler(facts);
  const units = unitsAt(next.phase, handler, { reserved: facts.reserved, fused });
  return units.length > 0 ? [{ do: "unit.dispatched", run: next.id, units }] : [];
}

function successor(facts: RunFacts, attempt: Attempt, how: Succession): Run {
  const { run, workflow } = facts;
  const fresh = isFirst(how.phase);
  const deadlineAtMs = deadline(run, attempt);
  return {
    id: attempt.id,
    workflow: run.workflow,
    version: versionOf(facts, how),
    handler: run.handler,
    kind: run.kind,
    trigger: { ...run.trigger, reason: how.reason },
    rootId: run.rootId,
    retryOf: run.id,
    attempt: run.attempt + 1,
    phase: how.phase,
    ...statusOf(facts, how),
    open: true,
    retries: retriesOf(run),
    ...crashesOf(run, how),
    redos: 0,
    startSeq: fresh ? workflow.seq : run.startSeq,
    chainStartedAtMs: run.chainStartedAtMs,
    createdAtMs: how.atMs,
    host: attempt.host,
    revision: 1,
    ...(fresh ? {} : copies(run)), // (N1)
    ...(attempt.policy === undefined ? {} : { policy: attempt.policy }),
    ...(deadlineAtMs === undefined ? {} : { deadlineAtMs }),
  };
}

function statusOf({ workflow }: RunFacts, { waits }: Succession): Pick<Run, "status" | "pauseReason"> {
  if (waits) return { status: "paused:reconciliation", pauseReason: waits };
  if (workflow.mode === "step") return { status: "paused:approval", pauseReason: "step" };
  return { status: "active" };
}

/** (N2) */
function versionOf(facts: RunFacts, { waits }: Succession): number {
  const { run, mutation, workflow } = facts;
  if (waits) return run.version;
  const { orphaned, hasNext } = activeHandler(facts);
  return isPastBoundary(mutation) && (orphaned || !hasNext) ? run.version : workflow.activeVersion;
}

const copies = ({ prepared, result, outcome, wakeAtMs }: Run): Partial<Run> => ({
  ...(prepared === undefined ? {} : { prepared }),
  ...(result === undefined ? {} : { result }),
  ...(outcome === undefined ? {} : { outcome }),
  ...(wakeAtMs === undefined ? {} : { wakeAtMs }),
});

/** Automatic retries count; a person, a deploy, a crash or a free wait does not. (N5) */
function retriesOf(run: Run): number {
  if (run.resolution) return 0;
  return run.status === "crashed" || isFree(run) ? run.retries : run.retries + 1;
}

/** Crashes in a row at one phase: an abort neither adds nor breaks the row, a person's act begins a new one. */
function crashesOf(run: Run, { waits }: Succession): Pick<Run, "crashes" | "crashPhase"> {
  if (run.status !== "crashed" || run.resolution || waits) return { crashes: 0 };
  const before = { crashes: run.crashes, ...(run.crashPhase ? { crashPhase: run.crashPhase } : {}) };
  if (run.error?.code === "aborted") return before;
  return { crashes: run.crashPhase === run.phase ? run.crashes + 1 : 1, crashPhase: run.phase };
}

/** From the chain's start, its last human act or deploy, whichever is later (04). (N5) */
function deadline(run: Run, { deadlineMs }: Attempt): EpochMs | undefined {
  if (!run.resolution) return run.deadlineAtMs;
  return deadlineMs === undefined ? undefined : run.resolution.atMs + deadlineMs;
}

function reasonOf(run: Run): TriggerReason {
  if (run.resolution) return "decision";
  return run.status === "crashed" ? "recovery" : "retry";
}

/** Nobody may decide again what may already have happened. */
export function isClaimable({ run, mutation }: Pick<RunFacts, "run" | "mutation">): boolean {
  return run.open && run.status !== "active" && run.readyAtMs !== undefined && !isUnknown(mutation?.status);
}
