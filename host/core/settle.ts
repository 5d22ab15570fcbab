/**
 * Unknown outcomes (02 §5.2, 5.3): what a missing answer, a check, or a late answer does to the ledger row and its run.
 *
 * U1. Unknown is checked, never repeated: `notApplied` counts only `settleMs` after the call ended on our side.
 * U2. Without a check, or with its attempts used up, a person decides.
 * U3. A late answer settles a row that is still open; on a settled one it is evidence of a contradiction.
 */
import { mutated } from "./advance.ts";
import type { Change, Write } from "./change.ts";
import { type RunFacts, stateOf, step } from "./facts.ts";
import type { EpochMs, InboxId } from "./ids.ts";
import { isUnknown, type Mutation } from "./mutation.ts";
import type { RunError } from "./run.ts";
import type { JsonText } from "./workflow.ts";

type WithRow = RunFacts & { mutation: Mutation };

/** The call ended without an answer that proves anything. */
export function unknown(
  facts: WithRow,
  end: { error: RunError; answer: JsonText; canCheck: boolean; inbox: InboxId },
  atMs: EpochMs,
): Change {
  const { run, mutation } = facts;
  const writes: Write[] = [
    {
      do: "run.set",
      id: run.id,
      from: stateOf(run),
      set: {
        status: "paused:reconciliation",
        pauseReason: end.canCheck ? "checking" : "indeterminate",
        error: end.error,
      },
    },
    {
      do: "mutation.set",
      id: mutation.id,
      from: mutation.status,
      set: {
        status: "needs_reconcile",
        endedAtMs: atMs,
        error: JSON.stringify(end.error),
        nextCheckAtMs: end.canCheck ? atMs : null,
      },
    },
    { do: "send.end", mutation: mutation.id, n: mutation.sends, endedAtMs: atMs, answer: end.answer },
  ];
  if (!end.canCheck) writes.push(...givenUp(facts, end.inbox)); // (U2)
  return step("unknown", facts, atMs, writes);
}

export type CheckAnswer =
  | { says: "applied"; result?: JsonText; resultInvalid?: boolean }
  | { says: "notApplied" }
  | { says: "unsure" }
  | { says: "auth" };

export interface CheckPolicy {
  maxAttempts: number;
  /** Delay before the next attempt. */
  delayMs: number;
}

/** A check of an unknown outcome came back. */
export function checked(
  facts: WithRow,
  answer: CheckAnswer,
  policy: CheckPolicy,
  inbox: InboxId,
  atMs: EpochMs,
): Change {
  const { run, mutation } = facts;
  if (answer.says === "applied")
    return ready(facts, mutated(facts, { status: "applied", ...resultOf(answer) }, atMs));
  const settled = atMs - (mutation.endedAtMs ?? atMs) >= mutation.settleMs;
  if (answer.says === "notApplied" && settled) return notApplied(facts, atMs); // (U1)
  if (answer.says === "auth")
    return step("check-auth", facts, atMs, [
      { do: "run.set", id: run.id, from: stateOf(run), set: { pauseReason: "auth" } },
      { do: "mutation.set", id: mutation.id, from: mutation.status, set: { nextCheckAtMs: null } },
      { do: "inbox.open", id: inbox, kind: "reconnect", run: run.id },
    ]);
  const checks = mutation.checks + 1;
  if (checks < policy.maxAttempts)
    return step("check-unsure", facts, atMs, [
      { do: "run.set", id: run.id, from: stateOf(run), set: { pauseReason: "checking" } },
      {
        do: "mutation.set",
        id: mutation.id,
        from: mutation.status,
        set: { checks, nextCheckAtMs: atMs + policy.delayMs },
      },
    ]);
  return step("check-exhausted", facts, atMs, [
    { do: "run.set", id: run.id, from: stateOf(run), set: { pauseReason: "indeterminate" } },
    { do: "mutation.set", id: mutation.id, from: mutation.status, set: { checks, nextCheckAtMs: null } },
    ...givenUp(facts, inbox),
  ]);
}

/** Proof, or a person's word, that nothing happened: the decision is void, a new run starts from `preparing` (3.1). */
export function notApplied(facts: WithRow, atMs: EpochMs): Change {
  const { run, mutation, reserved } = facts;
  const writes: Write[] = [
    {
      do: "run.set",
      id: run.id,
      from: stateOf(run),
      set: {
        status: "paused:transient",
        pauseReason: "retrying",
        readyAtMs: atMs,
        endedAtMs: atMs,
        outcome: "failed",
      },
    },
    {
      do: "mutation.set",
      id: mutation.id,
      from: mutation.status,
      set: { status: "failed", nextCheckAtMs: null },
    },
    { do: "inbox.close", run: run.id },
  ];
  if (reserved.length > 0) writes.push({ do: "deliveries", ids: reserved, to: "pending", run: run.id });
  return step("not-applied", facts, atMs, writes);
}

/** An answer to a call that nobody waits for any more. */
export function late(
  facts: WithRow,
  answer: { result?: JsonText; resultInvalid?: boolean; raw: JsonText },
  inbox: InboxId,
  atMs: EpochMs,
): Change | undefined {
  const { run, mutation } = facts;
  if (mutation.status === "applied") return undefined;
  if (isUnknown(mutation.status)) {
    const change = ready(facts, mutated(facts, { status: "applied", ...resultOf(answer) }, atMs));
    return {
      ...change,
      expect: { ...change.expect, mutation: { id: mutation.id, status: mutation.status } },
    };
  }
  return {
    verb: "contradiction",
    workflow: run.workflow,
    atMs,
    expect: { mutation: { id: mutation.id, status: mutation.status } },
    writes: [
      { do: "evidence", mutation: mutation.id, run: run.id, what: "late-answer", detail: answer.raw },
      { do: "inbox.open", id: inbox, kind: "contradiction", run: run.id },
    ], // (U3)
  };
}

/** A run that was paused goes on in place: it is ready, and becomes active when a slot is free (3.3). */
export function ready(facts: RunFacts, change: Change): Change {
  const { run } = facts;
  if (run.status === "active") return change;
  change.writes.push(
    {
      do: "run.set",
      id: run.id,
      from: { ...stateOf(run), phase: "mutated" },
      set: { readyAtMs: change.atMs, pauseReason: null },
    },
    { do: "inbox.close", run: run.id },
  );
  return change;
}

function givenUp({ run, mutation }: WithRow, inbox: InboxId): Write[] {
  return [
    { do: "mutation.set", id: mutation.id, from: "needs_reconcile", set: { status: "indeterminate" } },
    { do: "inbox.open", id: inbox, kind: "unknown_outcome", run: run.id },
  ];
}

function resultOf(answer: { result?: JsonText; resultInvalid?: boolean }): {
  result?: JsonText;
  resultInvalid?: boolean;
} {
  return {
    ...(answer.result === undefined ? {} : { result: answer.result }),
    ...(answer.resultInvalid ? { resultInvalid: true } : {}),
  };
}
