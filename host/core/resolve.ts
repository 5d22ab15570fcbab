/**
 * What a person may do about a run, by its state (02 §6). One row per action: when it is allowed, what it does, and what
 * it will mean. Everything else is refused with the reason. Actions on deliveries and workflows are `operate.ts`.
 *
 * O1. Of concurrent decisions one wins: each carries the run's revision, and the row state it was shown.
 * O2. The audit row stands in the decision's own transaction.
 * O3. A decision makes a run ready, never active.
 */
import { mutated, ready } from "./advance.ts";
import { allow, type ApprovalScope } from "./approval.ts";
import type { Change, Write } from "./change.ts";
import { close, closeProblem, settleSchedule } from "./close.ts";
import { type RunFacts, stateOf, step } from "./facts.ts";
import type { EpochMs, InboxId } from "./ids.ts";
import { isUnknown, type Mutation } from "./mutation.ts";
import { isEnded, isPastBoundary, type PauseReason, type Resolution, type Status } from "./run.ts";
import { notApplied } from "./settle.ts";
import type { DownSpan } from "./slots.ts";
import type { JsonText } from "./workflow.ts";

export type Decision =
  | { action: "approve"; scope?: ApprovalScope }
  | { action: "reject"; deliveries: "skip" | "release" }
  | { action: "check" }
  | { action: "applied"; result?: JsonText }
  | { action: "not-applied" }
  | { action: "skip" }
  | { action: "retry"; policy?: JsonText }
  | { action: "close"; deliveries: "release" | "skip" | "dead"; force?: boolean };

export interface Deciding {
  by: string;
  note?: string;
  atMs: EpochMs;
  down: readonly DownSpan[];
  /** Whether the tool of the run's mutation can be checked. */
  canCheck: boolean;
  /** Of the grant behind the run's call, for an approval that goes beyond it. */
  grantVersion?: number;
  /** For the question that a close may raise: its consumer is gone, its deliveries are orphaned. */
  inbox?: InboxId;
}

const RETRYABLE: readonly Status[] = ["paused:transient", "failed:logic", "failed:internal", "crashed"];
const RETRYABLE_REASONS = ["auth", "permission", "precondition", "binding"];

/** Why this action is not allowed now, or `undefined`. */
export function refusal(facts: RunFacts, decision: Decision, canCheck: boolean): string | undefined {
  const { run, mutation } = facts;
  if (!run.open) return "this chain has ended";
  const row = mutation?.status;
  // A dead run that has a successor coming is not open; what is ended and open holds no unknown row.
  const unknownRow = isUnknown(row) && run.status !== "active" && !isEnded(run.status);
  switch (decision.action) {
    case "approve":
    case "reject":
      if (run.status !== "paused:approval" || run.pauseReason !== "approval" || row !== "proposed")
        return "nothing here waits for an approval";
      return run.readyAtMs === undefined ? undefined : "it is approved already";
    case "check":
      if (row !== "needs_reconcile" && row !== "indeterminate") return "the outcome is not unknown";
      return canCheck ? undefined : "this tool has no way to check its outcome";
    case "applied":
    case "not-applied":
    case "skip":
      if (mutation?.resending) return "the same call is being sent again, to find out: wait for its answer";
      return unknownRow ? undefined : "the outcome is not unknown";
    case "retry":
      if (isUnknown(row)) return "the outcome is unknown: say whether it happened, or check again";
      if (RETRYABLE.includes(run.status)) return undefined;
      if (run.status === "paused:approval" && RETRYABLE_REASONS.includes(run.pauseReason ?? ""))
        return undefined;
      return run.status === "active" ? "the run is active" : "this run does not wait for a retry";
    case "close":
      return closeRefusal(facts, decision.force ?? false);
  }
}

const CLOSE_REFUSALS = {
  active: "the run is active",
  "unknown-outcome": "the outcome is unknown: say whether it happened, or check again",
  "past-boundary": "the outside change was made; only a forced close abandons what follows from it",
} as const;

function closeRefusal(facts: RunFacts, force: boolean): string | undefined {
  const problem = closeProblem(facts, force);
  return problem && CLOSE_REFUSALS[problem];
}

/** The decision as one Change, audit included. The caller has asked `refusal` first. */
export function decide(facts: RunFacts, decision: Decision, deciding: Deciding): Change {
  const why = refusal(facts, decision, deciding.canCheck);
  if (why) throw new Error(`${decision.action} is not allowed: ${why}`);
  const { by, note, atMs } = deciding;
  const resolution: Resolution = {
    by,
    action: decision.action,
    atMs,
    ...(note === undefined ? {} : { note }),
    ...(decision.action === "retry" && decision.policy !== undefined ? { policy: decision.policy } : {}),
    ...(decision.action === "approve" ? { grantVersion: deciding.grantVersion ?? 0 } : {}),
  };
  const change = effect(facts, decision, resolution, deciding);
  const audit: Write = {
    do: "audit",
    actor: by,
    action: `run.${decision.action}`,
    run: facts.run.id,
    detail: JSON.stringify({ ...decision, from: { status: facts.run.status, row: facts.mutation?.status } }),
    ...(note === undefined ? {} : { note }),
  };
  const expect = facts.mutation
    ? { ...change.expect, mutation: { id: facts.mutation.id, status: facts.mutation.status } } // (O1)
    : change.expect;
  return { ...change, verb: decision.action, expect, writes: [...change.writes, audit] }; // (O2)
}

function effect(facts: RunFacts, decision: Decision, resolution: Resolution, deciding: Deciding): Change {
  const { atMs } = deciding;
  const row = () => ({ ...facts, mutation: facts.mutation as Mutation });
  switch (decision.action) {
    case "approve":
      return approved(row(), decision.scope, resolution, deciding);
    case "reject":
      return decision.deliveries === "skip"
        ? withResolution(ready(facts, mutated(row(), { status: "skipped" }, atMs)), facts, resolution)
        : closed(facts, "release", resolution, deciding);
    case "check":
      return checkNow(row(), resolution);
    case "applied": {
      const result = decision.result === undefined ? {} : { result: decision.result };
      return withResolution(
        ready(facts, mutated(row(), { status: "applied", ...result }, atMs)),
        facts,
        resolution,
      );
    }
    case "not-applied":
      return withResolution(notApplied(row(), atMs), facts, resolution);
    case "skip":
      return withResolution(ready(facts, mutated(row(), { status: "skipped" }, atMs)), facts, resolution);
    case "retry":
      return readyNow(facts, resolution);
    case "close":
      return closed(
        facts,
        isPastBoundary(facts.mutation) ? "consume" : decision.deliveries,
        resolution,
        deciding,
      );
  }
}

/** This call, and with a scope the next ones of the same tool. */
function approved(
  facts: RunFacts & { mutation: Mutation },
  scope: ApprovalScope | undefined,
  resolution: Resolution,
  { grantVersion = 0 }: Deciding,
): Change {
  const change = readyNow(facts, resolution);
  if (!scope) return change;
  change.writes.push(allow(facts, { ...facts.mutation, grantVersion }, scope, resolution));
  return { ...change, expect: { ...change.expect, workflowRevision: facts.workflow.revision } };
}

function readyNow(facts: RunFacts, resolution: Resolution): Change {
  const { run } = facts;
  return step(resolution.action, facts, resolution.atMs, [
    { do: "run.set", id: run.id, from: stateOf(run), set: { readyAtMs: resolution.atMs, resolution } }, // (O3)
    { do: "inbox.close", run: run.id },
  ]);
}

function checkNow(facts: RunFacts & { mutation: Mutation }, resolution: Resolution, checks = 0): Change {
  const { run, mutation } = facts;
  const set = { checks, nextCheckAtMs: resolution.atMs };
  return step("check", facts, resolution.atMs, [
    { do: "run.set", id: run.id, from: stateOf(run), set: { pauseReason: "checking", resolution } },
    {
      do: "mutation.set",
      id: mutation.id,
      from: mutation.status,
      set: mutation.status === "indeterminate" ? { status: "needs_reconcile", ...set } : set,
    },
    { do: "inbox.close", run: run.id },
  ]);
}

function closed(
  facts: RunFacts,
  deliveries: "release" | "skip" | "dead" | "consume",
  resolution: Resolution,
  { atMs, down, inbox }: Deciding,
): Change {
  const ending = settleSchedule(facts, "failed", down, "closed");
  return close(facts, { deliveries, resolution, ending, inbox }, atMs);
}

/** What a run waited for is there: the connection answers again, the tool is granted, the alias is bound. */
export function unblocked(
  facts: RunFacts,
  what: Extract<PauseReason, "auth" | "permission" | "binding">,
  { by, note, atMs }: Pick<Deciding, "by" | "note" | "atMs">,
): Change | undefined {
  const { run, mutation } = facts;
  if (run.pauseReason !== what || run.readyAtMs !== undefined || !run.open) return undefined;
  const action = { auth: "reconnect", permission: "grant", binding: "bind" }[what];
  const resolution: Resolution = { by, action, atMs, ...(note === undefined ? {} : { note }) };
  const audit: Write = {
    do: "audit",
    actor: by,
    action: `run.${action}`,
    run: run.id,
    detail: "{}",
    ...(note === undefined ? {} : { note }),
  };
  const change =
    run.status === "paused:reconciliation" && mutation
      ? checkNow({ ...facts, mutation }, resolution, mutation.checks)
      : readyNow(facts, resolution);
  return { ...change, writes: [...change.writes, audit] }; // (O2)
}

function withResolution(change: Change, { run }: RunFacts, resolution: Resolution): Change {
  const { phase, status } = lastState(change, run);
  change.writes.push({
    do: "run.set",
    id: run.id,
    from: { kind: run.kind, phase, status },
    set: { resolution },
  });
  return change;
}

function lastState(
  change: Change,
  run: RunFacts["run"],
): { phase: RunFacts["run"]["phase"]; status: Status } {
  let { phase, status } = run;
  for (const write of change.writes)
    if (write.do === "run.set" && write.id === run.id) {
      phase = write.set.phase ?? phase;
      status = write.set.status ?? status;
    }
  return { phase, status };
}
