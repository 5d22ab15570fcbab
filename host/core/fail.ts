/**
 * A unit or a call failed → what becomes of the run (02 §4, 3.1, 5.1). `failure.ts` judges; this file writes it down.
 *
 * B1. Reservations go back in the transaction that records the failure, unless the ledger row says that the work is
 *     past the boundary, unknown, or waits to be sent as it stands.
 * B2. A row is `failed` only with proof; what is unknown goes to `unknown()`, never through here.
 */
import { mutated } from "./advance.ts";
import type { Change, UnitName, Write } from "./change.ts";
import { close, settleSchedule } from "./close.ts";
import { type RunFacts, stateOf, step } from "./facts.ts";
import { type Failure, judge, type Verdict } from "./failure.ts";
import type { EpochMs, InboxId } from "./ids.ts";
import { isUnknown, type Mutation } from "./mutation.ts";
import { isPastBoundary } from "./run.ts";
import type { DownSpan } from "./slots.ts";
import type { JsonText } from "./workflow.ts";

export interface FailedStep {
  /** Units that were dispatched and have not ended; none when the call itself failed. */
  units: UnitName[];
  failure: Failure;
  inbox: InboxId;
  down: readonly DownSpan[];
  /** The call came back with proof that nothing happened. */
  answer?: JsonText;
  resources?: JsonText;
}

export function fail(facts: RunFacts, failed: FailedStep, atMs: EpochMs): Change {
  const { run, mutation } = facts;
  if (mutation?.status !== "in_flight" && isUnknown(mutation?.status))
    throw new Error(`run ${run.id} has an unknown outcome; only a check or a person settles it`); // (B2)
  const verdict = judge({ ...failed.failure, pastBoundary: isPastBoundary(mutation) }, atMs);
  const change = verdict.to === "skip" && mutation ? skipped(facts, mutation, failed, atMs) : undefined;
  if (change) return change;
  if (verdict.to === "wait" || verdict.to === "person") return held(facts, failed, verdict, atMs);
  return ended(facts, failed, verdict, atMs);
}

/** Waiting for time or for a person: the chain stays open. */
function held(
  facts: RunFacts,
  failed: FailedStep,
  verdict: Extract<Verdict, { to: "wait" | "person" }>,
  atMs: EpochMs,
): Change {
  const { run, mutation } = facts;
  const resumable = verdict.status === "paused:approval";
  const inPlace = resumable && (verdict.reason === "auth" || verdict.reason === "permission");
  const writes: Write[] = [
    {
      do: "run.set",
      id: run.id,
      from: stateOf(run),
      set: {
        status: verdict.status,
        pauseReason: verdict.reason ?? null,
        error: failed.failure.error,
        ...(resumable ? {} : { endedAtMs: atMs }),
        ...(verdict.to === "wait" ? { readyAtMs: verdict.readyAtMs } : {}),
        ...(failed.resources === undefined ? {} : { resources: failed.resources }),
      },
    },
    ...unitsFailed(run.id, failed.units),
    ...(mutation ? rowAfter(mutation, failed, inPlace, atMs) : []),
  ];
  const waitsAsItStands = inPlace && mutation !== undefined && !isPastBoundary(mutation);
  if (facts.reserved.length > 0 && !isPastBoundary(mutation) && !waitsAsItStands)
    writes.push({ do: "deliveries", ids: facts.reserved, to: "pending", run: run.id }); // (B1)
  if (verdict.to === "person")
    writes.push({ do: "inbox.open", id: failed.inbox, kind: verdict.inbox, run: run.id });
  return step("fail", facts, atMs, writes);
}

/** `onFailure` ends the chain. */
function ended(
  facts: RunFacts,
  failed: FailedStep,
  verdict: Extract<Verdict, { to: "skip" | "deadLetter" }>,
  atMs: EpochMs,
): Change {
  const dead = verdict.to === "deadLetter" && facts.reserved.length > 0;
  const change = close(
    facts,
    {
      deliveries: dead ? "dead" : "release",
      resolution: { by: "policy", action: verdict.to, atMs },
      ending: settleSchedule(facts, "skipped", failed.down, failed.failure.error.code),
      failed: { status: verdict.status, error: failed.failure.error },
    },
    atMs,
  );
  change.writes.push(...unitsFailed(facts.run.id, failed.units));
  if (facts.mutation?.status === "in_flight")
    change.writes.push(...rowAfter(facts.mutation, failed, false, atMs));
  if (dead)
    change.writes.push({ do: "inbox.open", id: failed.inbox, kind: "dead_letter", run: facts.run.id });
  return { ...change, verb: verdict.to };
}

/** A call proven to have failed, and the operator said to do without it: on with `next(skipped)` (5.1). */
function skipped(facts: RunFacts, mutation: Mutation, failed: FailedStep, atMs: EpochMs): Change | undefined {
  if (mutation.status !== "in_flight") return undefined;
  const change = mutated({ ...facts, mutation }, { status: "skipped" }, atMs, failed.answer);
  const detail = JSON.stringify(failed.failure.error);
  change.writes.push({ do: "evidence", mutation: mutation.id, run: facts.run.id, what: "failed", detail });
  return change;
}

function rowAfter(mutation: Mutation, failed: FailedStep, inPlace: boolean, atMs: EpochMs): Write[] {
  const error = JSON.stringify(failed.failure.error);
  if (mutation.status === "proposed")
    return inPlace
      ? []
      : [
          {
            do: "mutation.set",
            id: mutation.id,
            from: "proposed",
            set: { status: "failed", notSent: true, error },
          },
        ];
  if (mutation.status !== "in_flight") return [];
  return [
    {
      do: "mutation.set",
      id: mutation.id,
      from: "in_flight",
      set: { status: inPlace ? "proposed" : "failed", endedAtMs: atMs, error },
    },
    {
      do: "send.end",
      mutation: mutation.id,
      n: mutation.sends,
      endedAtMs: atMs,
      answer: failed.answer ?? error,
    },
  ];
}

const unitsFailed = (run: number, units: UnitName[]): Write[] =>
  units.length > 0 ? [{ do: "unit.ended", run, units, end: "failed" }] : [];
