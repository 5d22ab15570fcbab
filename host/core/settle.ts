/**
 * Unknown outcomes (02 §5.2, 5.3): what a missing answer, a check, or a late answer does to the ledger row and its run.
 *
 * U1. Unknown is checked, never repeated: `notApplied` counts only `settleMs` after the call ended on our side.
 * U2. Without a check, or with its attempts used up, a person decides.
 * U3. While its bytes leave once more, only their answer settles a row: a person's word would let them leave for nothing.
 * U4. A late answer settles a row that is still open; on a settled one it is evidence of a contradiction.
 */
import { mutated, ready } from "./advance.ts";
import type { Change, Write } from "./change.ts";
import { type RunFacts, stateOf, step, unanswered } from "./facts.ts";
import { fail } from "./fail.ts";
import type { FailurePolicy } from "./failure.ts";
import type { EpochMs, InboxId } from "./ids.ts";
import { isUnknown, type Mutation, proofNow, type Send } from "./mutation.ts";
import type { Run, RunError } from "./run.ts";
import type { DownSpan } from "./slots.ts";
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
        ...unanswered(run),
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
  /** Checks in all, the first at once. */
  maxAttempts: number;
  /** Delay before the next attempt. */
  delayMs: number;
  /** From the end of the call on; no check begins later. */
  maxElapsedMs?: number;
  /** Of the connection, now; absent where the caller knows that it is the one of the send. */
  configVersion?: number;
  /** Should nothing have happened: the call's own policy and budget. Absent: a new run at once. */
  proven?: { policy: FailurePolicy; delayMs: number; down: readonly DownSpan[] };
}

/** Somebody checks now; until `againAtMs`, when this host must have died, nobody else does. */
export function checking(facts: WithRow, againAtMs: EpochMs, atMs: EpochMs): Change {
  const { run, mutation } = facts;
  return step("checking", facts, atMs, [
    { do: "run.set", id: run.id, from: stateOf(run), set: { pauseReason: "checking" } },
    { do: "mutation.set", id: mutation.id, from: mutation.status, set: { nextCheckAtMs: againAtMs } },
  ]);
}

/** The check of proof class `key`: the recorded bytes once more, with the recorded key. Durable before the first byte. */
export function resending(facts: WithRow, send: Send, configVersion: number, atMs: EpochMs): Change {
  const { run, mutation } = facts;
  if (
    proofNow(mutation, { configVersion, atMs }) !== "key" ||
    send.idempotencyKey !== mutation.idempotencyKey
  )
    throw new Error(`mutation ${mutation.id} may not be sent again: its key proves nothing now`); // (U1)
  return step("resending", facts, atMs, [
    {
      do: "mutation.set",
      id: mutation.id,
      from: mutation.status,
      set: { sends: send.n, resending: true }, // (U3)
    },
    { do: "send.create", mutation: mutation.id, run: run.id, send },
  ]);
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
  const answered = mutation.resending ? { resending: null } : {};
  if (answer.says === "applied")
    return ready(facts, mutated(facts, { status: "applied", ...resultOf(answer) }, atMs));
  if (answer.says === "notApplied" && isBelieved(mutation, policy, atMs))
    return disproved(facts, policy, inbox, atMs);
  if (answer.says === "auth")
    return step("check-auth", facts, atMs, [
      { do: "run.set", id: run.id, from: stateOf(run), set: { pauseReason: "auth" } },
      {
        do: "mutation.set",
        id: mutation.id,
        from: mutation.status,
        set: { nextCheckAtMs: null, ...answered },
      },
      ...(run.pauseReason === "auth" ? [] : [ask(run, "reconnect", inbox)]),
    ]);
  const checks = mutation.checks + 1;
  const nextCheckAtMs = atMs + policy.delayMs;
  const inTime = nextCheckAtMs <= (mutation.endedAtMs ?? atMs) + (policy.maxElapsedMs ?? Infinity);
  if (checks < policy.maxAttempts && inTime)
    return step("check-unsure", facts, atMs, [
      { do: "run.set", id: run.id, from: stateOf(run), set: { pauseReason: "checking" } },
      {
        do: "mutation.set",
        id: mutation.id,
        from: mutation.status,
        set: { checks, nextCheckAtMs, ...answered },
      },
    ]);
  return step("check-exhausted", facts, atMs, [
    { do: "run.set", id: run.id, from: stateOf(run), set: { pauseReason: "indeterminate" } },
    {
      do: "mutation.set",
      id: mutation.id,
      from: mutation.status,
      set: { checks, nextCheckAtMs: null, ...answered },
    },
    ...givenUp(facts, inbox),
  ]);
}

/** (U1) A re-send proves nothing about the earlier send, another config nothing about this one, haste nothing at all. */
function isBelieved(mutation: Mutation, { configVersion }: CheckPolicy, atMs: EpochMs): boolean {
  if (mutation.proof === "key" || (configVersion ?? mutation.configVersion) !== mutation.configVersion)
    return false;
  return atMs - (mutation.endedAtMs ?? atMs) >= mutation.settleMs;
}

function disproved(facts: WithRow, { proven }: CheckPolicy, inbox: InboxId, atMs: EpochMs): Change {
  if (!proven) return notApplied(facts, atMs);
  const { retries } = facts.run;
  const error: RunError = {
    class: "transient",
    code: "not-applied",
    message: "a check showed that the outside change did not happen",
    tool: `${facts.mutation.alias}.${facts.mutation.tool}`,
  };
  const failure = { error, policy: proven.policy, delayMs: proven.delayMs, retries, pastBoundary: false };
  const failed = { units: [], failure, inbox, down: proven.down, proven: true as const };
  return { ...fail(facts, failed, atMs), verb: "check-not-applied" };
}

/** Nothing happened, by proof or a person's word: the decision is void, a new run starts from `preparing` (3.1). */
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
      ask(run, "contradiction", inbox),
    ], // (U4)
  };
}

function givenUp({ run, mutation }: WithRow, inbox: InboxId): Write[] {
  return [
    { do: "mutation.set", id: mutation.id, from: "needs_reconcile", set: { status: "indeterminate" } },
    ask(run, "unknown_outcome", inbox),
  ];
}

const ask = (run: Run, kind: "unknown_outcome" | "reconnect" | "contradiction", id: InboxId): Write => ({
  do: "inbox.open",
  id,
  kind,
  run: run.id,
});

function resultOf(answer: { result?: JsonText; resultInvalid?: boolean }): {
  result?: JsonText;
  resultInvalid?: boolean;
} {
  return {
    ...(answer.result === undefined ? {} : { result: answer.result }),
    ...(answer.resultInvalid ? { resultInvalid: true } : {}),
  };
}
