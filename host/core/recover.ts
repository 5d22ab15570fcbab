/**
 * A run was active in a host that is gone, or was aborted by a person → crashed, and what follows (02 §7, 3.3, 1.11).
 *
 * C1. With an unknown ledger row the successor is made in the same transaction and waits for the check; it needs no slot
 *     and does not count among the crashes.
 * C2. Three crashes in a row at the same phase, aborts not counted, wait for a person.
 * C3. Recovery is idempotent: a run that is not active is left as it is.
 */
import type { Change, Write } from "./change.ts";
import { after } from "./change.ts";
import { type RunFacts, stateOf, step, unanswered } from "./facts.ts";
import type { EpochMs, InboxId } from "./ids.ts";
import { isUnknown, type Mutation } from "./mutation.ts";
import { succeed } from "./retry.ts";
import { isPastBoundary, type Run, type RunError } from "./run.ts";
import type { Attempt } from "./start.ts";

const CRASHES_IN_A_ROW = 3;

export interface Crash {
  error: RunError;
  inbox: InboxId;
  /** For the successor that an unknown row needs at once. */
  attempt: Attempt;
  canCheck: boolean;
}

export function recover(facts: RunFacts, crash: Crash, atMs: EpochMs): Change | undefined {
  const { run, mutation } = facts;
  if (run.status !== "active") return undefined; // (C3)
  return mutation && isUnknown(mutation.status)
    ? recoverUnknown({ ...facts, mutation }, crash, atMs)
    : recoverKnown(facts, crash, atMs);
}

const ABORTED: RunError = { class: "transient", code: "aborted", message: "a person ended the run early" };

/** `pause { abort: true }`: ends a unit early, never a call in flight; that one is awaited to its end (1.11). */
export function abort(
  facts: RunFacts,
  crash: Omit<Crash, "error" | "canCheck">,
  atMs: EpochMs,
): Change | undefined {
  if (isUnknown(facts.mutation?.status)) return undefined;
  return recover(facts, { ...crash, error: ABORTED, canCheck: false }, atMs);
}

function recoverUnknown(facts: RunFacts & { mutation: Mutation }, crash: Crash, atMs: EpochMs): Change {
  const { mutation } = facts;
  const marked = step("crashed", facts, atMs, [
    crashedRun(facts.run, crash, atMs),
    { do: "unit.ended", run: facts.run.id, units: "open", end: "lost" },
  ]);
  const run = after(facts.run, marked);
  const waits = crash.canCheck ? "checking" : "indeterminate";
  const next = succeed({ ...facts, run }, crash.attempt, {
    phase: "mutating",
    reason: "recovery",
    atMs,
    waits,
  }); // (C1)
  const row: Write[] = [
    {
      do: "mutation.set",
      id: mutation.id,
      from: mutation.status,
      set: {
        ...(mutation.status === "in_flight" ? { status: "needs_reconcile" as const } : {}),
        endedAtMs: atMs,
        nextCheckAtMs: crash.canCheck ? atMs : null,
      },
    },
  ];
  if (!crash.canCheck && mutation.status !== "indeterminate")
    row.push(
      { do: "mutation.set", id: mutation.id, from: "needs_reconcile", set: { status: "indeterminate" } },
      { do: "inbox.open", id: crash.inbox, kind: "unknown_outcome", run: crash.attempt.id },
    );
  return {
    ...marked,
    verb: "recover-unknown",
    expect: { ...next.expect, ...marked.expect },
    writes: [...marked.writes, ...next.writes, ...row],
  };
}

function recoverKnown(facts: RunFacts, crash: Crash, atMs: EpochMs): Change {
  const { run, mutation, reserved } = facts;
  const aborted = crash.error.code === ABORTED.code;
  const inARow = (run.crashPhase === run.phase ? run.crashes : 0) + 1;
  const looping = !aborted && inARow >= CRASHES_IN_A_ROW; // (C2)
  const set = looping ? { pauseReason: "crash_loop" as const } : { readyAtMs: atMs };
  const crashed = crashedRun(run, crash, atMs);
  const writes: Write[] = [
    { ...crashed, set: { ...crashed.set, ...set } },
    { do: "unit.ended", run: run.id, units: "open", end: "lost" },
  ];
  if (mutation?.status === "proposed")
    writes.push({
      do: "mutation.set",
      id: mutation.id,
      from: "proposed",
      set: { status: "failed", notSent: true },
    });
  if (reserved.length > 0 && !isPastBoundary(mutation))
    writes.push({ do: "deliveries", ids: reserved, to: "pending", run: run.id });
  if (looping) writes.push({ do: "inbox.open", id: crash.inbox, kind: "crash_loop", run: run.id });
  return step(aborted ? "abort" : "recover", facts, atMs, writes);
}

function crashedRun(run: Run, { error }: Crash, atMs: EpochMs): Extract<Write, { do: "run.set" }> {
  return {
    do: "run.set",
    id: run.id,
    from: stateOf(run),
    set: { status: "crashed", error, endedAtMs: atMs, ...unanswered(run) },
  };
}
