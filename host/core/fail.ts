/**
 * A unit or a call failed → what becomes of the run (02 §4, 3.1, 5.1). `failure.ts` judges; this file writes it down.
 *
 * B1. Reservations go back in the transaction that records the failure, unless the ledger row says that the work is
 *     past the boundary or unknown, or the run waits to go on exactly where it stands.
 * B2. A row is `failed` only with proof; what is unknown goes to `unknown()`, and comes here only once a check has
 *     proven that nothing happened.
 */
import { mutated, ready } from "./advance.ts";
import type { Change, UnitName, Write } from "./change.ts";
import { close, settleSchedule } from "./close.ts";
import { type RunFacts, stateOf, step, unanswered } from "./facts.ts";
import { type Failure, judge, type Verdict } from "./failure.ts";
import type { EpochMs, InboxId } from "./ids.ts";
import { isUnknown, type Mutation } from "./mutation.ts";
import { isPastBoundary, unitAt } from "./run.ts";
import type { DownSpan } from "./slots.ts";
import type { JsonText } from "./workflow.ts";

export interface FailedStep {
  /** Units that were dispatched and have not ended; none when the call itself failed. */
  units: UnitName[];
  /** The run's own facts (unit, retries, deadline, boundary) win over what stands here. */
  failure: Omit<Failure, "unit">;
  inbox: InboxId;
  down: readonly DownSpan[];
  /** The call came back with proof that nothing happened. */
  answer?: JsonText;
  /** A check, after the fact, has proven that nothing happened (5.2). */
  proven?: true;
  resources?: JsonText;
}

export function fail(facts: RunFacts, failed: FailedStep, atMs: EpochMs): Change {
  const { run, mutation } = facts;
  if (isUnknown(mutation?.status) && mutation?.status !== "in_flight" && !failed.proven)
    throw new Error(`run ${run.id} has an unknown outcome; only a check or a person settles it`); // (B2)
  const unit = unitAt(run.phase);
  const { deadlineAtMs: _, ...given } = failed.failure;
  const verdict = judge(
    {
      ...given,
      unit,
      retries: run.retries,
      pastBoundary: isPastBoundary(mutation),
      ...(run.deadlineAtMs === undefined ? {} : { deadlineAtMs: run.deadlineAtMs }),
    },
    atMs,
  );
  switch (verdict.to) {
    case "wait":
    case "person":
      return held(facts, failed, verdict, atMs);
    case "skip":
      return unit === "mutate" ? without(facts, failed, atMs) : ended(facts, failed, verdict, atMs);
    case "deadLetter":
      return ended(facts, failed, verdict, atMs);
  }
}

/** Waiting for time or for a person: the chain stays open. */
function held(
  facts: RunFacts,
  failed: FailedStep,
  verdict: Extract<Verdict, { to: "wait" | "person" }>,
  atMs: EpochMs,
): Change {
  const { run, mutation, reserved } = facts;
  const ends = verdict.status !== "paused:approval";
  const inPlace = verdict.reason === "auth" || verdict.reason === "permission";
  const row = mutation ? rowAfter(mutation, failed, inPlace, atMs) : [];
  const writes: Write[] = [
    {
      do: "run.set",
      id: run.id,
      from: stateOf(run),
      set: {
        status: verdict.status,
        pauseReason: verdict.reason ?? null,
        error: failed.failure.error,
        ...unanswered(run),
        ...(ends ? { endedAtMs: atMs } : {}),
        ...(failsRow(row) ? { outcome: "failed" as const } : {}),
        ...(verdict.to === "wait" ? { readyAtMs: verdict.readyAtMs } : {}),
        ...(failed.resources === undefined ? {} : { resources: failed.resources }),
      },
    },
    ...unitsFailed(run.id, failed.units),
    ...row,
  ];
  if (reserved.length > 0 && !isPastBoundary(mutation) && !inPlace)
    writes.push({ do: "deliveries", ids: reserved, to: "pending", run: run.id }); // (B1)
  if (run.status !== "active") writes.push({ do: "inbox.close", run: run.id });
  if (verdict.to === "person")
    writes.push({ do: "inbox.open", id: failed.inbox, kind: verdict.inbox, run: run.id });
  return step("fail", facts, atMs, writes);
}

/** `onFailure` ends the chain: a producer or a `prepare` waits for its next trigger, a proven failure is buried. */
function ended(
  facts: RunFacts,
  failed: FailedStep,
  verdict: Extract<Verdict, { to: "skip" | "deadLetter" }>,
  atMs: EpochMs,
): Change {
  const { run, mutation, reserved } = facts;
  const buries = verdict.to === "deadLetter" && reserved.length > 0;
  const { error } = failed.failure;
  const change = close(
    facts,
    {
      deliveries: buries ? "dead" : "release",
      resolution: { by: "policy", action: verdict.to, atMs },
      ending: settleSchedule(facts, "skipped", failed.down, error.code),
      failed: { status: verdict.status, error },
      inbox: failed.inbox,
    },
    atMs,
  );
  change.writes.push(...unitsFailed(run.id, failed.units));
  if (mutation && isUnknown(mutation.status)) change.writes.push(...rowAfter(mutation, failed, false, atMs));
  if (buries) change.writes.push({ do: "inbox.open", id: failed.inbox, kind: "dead_letter", run: run.id });
  return { ...change, verb: verdict.to };
}

/** The change is proven not to have happened, and the operator said to do without it: on with `next(skipped)` (5.1). */
function without(facts: RunFacts, failed: FailedStep, atMs: EpochMs): Change {
  const { run, mutation } = facts;
  const units = unitsFailed(run.id, failed.units);
  if (!mutation) {
    const mutating = { ...stateOf(run), phase: "mutating" as const };
    return step("skip", facts, atMs, [
      { do: "run.set", id: run.id, from: stateOf(run), set: { phase: "mutating" } },
      { do: "run.set", id: run.id, from: mutating, set: { phase: "mutated", outcome: "skipped" } },
      ...units,
    ]);
  }
  const answer = mutation.status === "in_flight" ? (failed.answer ?? errorText(failed)) : undefined;
  const change = mutated({ ...facts, mutation }, { status: "skipped" }, atMs, answer);
  change.writes.push(...units, {
    do: "evidence",
    mutation: mutation.id,
    run: run.id,
    what: "failed",
    detail: errorText(failed),
  });
  return { ...ready(facts, change), verb: "skip" };
}

/** What the failure proves about the ledger row. */
function rowAfter(mutation: Mutation, failed: FailedStep, inPlace: boolean, atMs: EpochMs): Write[] {
  const { id, status, sends } = mutation;
  const error = errorText(failed);
  if (status === "proposed")
    return inPlace
      ? []
      : [{ do: "mutation.set", id, from: status, set: { status: "failed", notSent: true, error } }];
  if (!isUnknown(status)) return [];
  const set = { status: inPlace ? ("proposed" as const) : ("failed" as const), nextCheckAtMs: null, error };
  if (status !== "in_flight") return [{ do: "mutation.set", id, from: status, set }];
  return [
    { do: "mutation.set", id, from: status, set: { ...set, endedAtMs: atMs } },
    { do: "send.end", mutation: id, n: sends, endedAtMs: atMs, answer: failed.answer ?? error },
  ];
}

const failsRow = (writes: readonly Write[]): boolean =>
  writes.some((one) => one.do === "mutation.set" && one.set.status === "failed");

const errorText = ({ failure }: FailedStep): JsonText => JSON.stringify(failure.error);

const unitsFailed = (run: number, units: UnitName[]): Write[] =>
  units.length > 0 ? [{ do: "unit.ended", run, units, end: "failed" }] : [];
