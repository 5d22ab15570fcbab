/**
 * How a chain ends without a commit (02 §1.7): by a person, by `onFailure`, by a handler that is gone. And what any
 * ending does to a schedule: which points it answers, and when the next one is.
 *
 * X1. The chain's trigger is used up; released deliveries do not trigger by themselves.
 * X2. An ending that skipped, dead-lettered or force-consumed something triggers for what is still pending (1.5).
 */
import type { Change, HandlerPatch, Write } from "./change.ts";
import { activeHandler, type RunFacts, stateOf, step } from "./facts.ts";
import type { DeliveryId, EpochMs, InboxId } from "./ids.ts";
import { missedBy } from "./missed.ts";
import { isUnknown } from "./mutation.ts";
import { isEnded, isPastBoundary, type Resolution, type RunError, type Status } from "./run.ts";
import { type DownSpan, nextSlot, reanchor, slotFates, type SlotRange } from "./slots.ts";

export interface Ending {
  handler: HandlerPatch;
  slots: SlotRange[];
  /** For the word that too many of them were missed. */
  inbox?: InboxId;
}

/**
 * The points that a producer's chain answers, by the schedule it ran under, and the next one, by the active version's;
 * nothing for consumers.
 */
export function settleSchedule(
  facts: Pick<RunFacts, "run" | "handler" | "workflow">,
  how: "ran" | "failed" | "skipped",
  down: readonly DownSpan[],
  why?: string,
): Ending {
  const { run, handler } = facts;
  if (run.kind !== "producer") return { handler: {}, slots: [] };
  const { slot } = run.trigger;
  const slots =
    slot && handler.schedule
      ? slotFates({
          schedule: handler.schedule,
          anchorMs: slot.newestDueMs,
          ...slot,
          run: run.id,
          down,
          how,
          ...(why === undefined ? {} : { why }),
        })
      : [];
  return { handler: planAfter(facts), slots };
}

function planAfter(facts: Pick<RunFacts, "run" | "handler" | "workflow">): HandlerPatch {
  const { chainStartedAtMs, trigger } = facts.run;
  const { schedule, anchorMs, nextRunAtMs, orphaned } = activeHandler(facts);
  // A deploy has laid a new grid while the chain was open: that plan stands.
  if (!schedule || orphaned || (anchorMs !== undefined && anchorMs > chainStartedAtMs)) return {};
  const { slot, manual } = trigger;
  if (manual || !slot) return reanchor(schedule, chainStartedAtMs);
  // The same within one millisecond: what the chain answers was due, what lies beyond it was planned since.
  if (nextRunAtMs !== undefined && nextRunAtMs > slot.newestDueMs) return {};
  return { nextRunAtMs: nextSlot(schedule, slot.newestDueMs, anchorMs ?? slot.newestDueMs) };
}

export interface Closing {
  deliveries: "release" | "skip" | "dead" | "consume";
  resolution: Resolution;
  ending: Ending;
  /** Set when the attempt itself ends here: what it failed with. */
  failed?: { status: Status; error: RunError };
  /** For what a person is told: deliveries of a consumer that is gone, points that were missed. */
  inbox?: InboxId | undefined;
}

export function close(facts: RunFacts, closing: Closing, atMs: EpochMs): Change {
  const { run, handler, mutation } = facts;
  const { deliveries, resolution, ending, failed } = closing;
  const unsent = mutation?.status === "proposed";
  const writes: Write[] = [
    {
      do: "run.set",
      id: run.id,
      from: stateOf(run),
      set: {
        open: false,
        readyAtMs: null,
        resolution,
        ...failed,
        ...(isEnded(run.status) ? {} : { endedAtMs: atMs }),
        ...(unsent || (failed && isUnknown(mutation?.status)) ? { outcome: "failed" as const } : {}),
      },
    },
  ];
  if (unsent)
    writes.push({
      do: "mutation.set",
      id: mutation.id,
      from: "proposed",
      set: { status: "failed", notSent: true },
    });
  const settled = settledDeliveries(facts, deliveries);
  if (settled.length > 0)
    writes.push({ do: "deliveries", ids: settled, to: DESTINATION[deliveries], run: run.id });
  const wake = handler.wakeAtMs !== undefined && handler.wakeAtMs <= run.chainStartedAtMs;
  writes.push({
    do: "handler.set",
    id: handler.id,
    set: {
      ...(wake ? { wakeAtMs: null } : {}), // (X1)
      ...(deliveries !== "release" && settled.length > 0 ? { triggerIfPending: true } : {}), // (X2)
      ...ending.handler,
    },
  });
  for (const range of ending.slots) writes.push({ do: "slot", handler: handler.id, range });
  const told = missedBy(handler.id, ending.slots, closing.inbox);
  writes.push({ do: "inbox.close", run: run.id }, ...orphanedBy(facts, closing), ...told);
  writes.push({ do: "workflow.set", set: { openRun: null } });
  return step("close", facts, atMs, writes);
}

/** What goes back to a consumer that the active version lacks is orphaned, and a person is asked (1.10). */
function orphanedBy({ run, handler, reserved, released }: RunFacts, { deliveries, inbox }: Closing): Write[] {
  if (!handler.orphaned || deliveries !== "release" || reserved.length + released.length === 0) return [];
  if (inbox === undefined) throw new Error(`run ${run.id} leaves orphans, but nobody would be asked`);
  return [
    { do: "inbox.close", kind: "orphaned", handler: handler.id },
    { do: "inbox.open", id: inbox, kind: "orphaned", handler: handler.id },
  ];
}

const DESTINATION = { release: "pending", skip: "skipped", dead: "dead", consume: "consumed" } as const;

/** A failed attempt has given its deliveries back already; skipping them is still what the person means. */
function settledDeliveries({ reserved, released }: RunFacts, how: Closing["deliveries"]): DeliveryId[] {
  return how === "release" ? reserved : [...reserved, ...released];
}

/** Why a chain may not be closed, or `undefined`. */
export function closeProblem(
  { run, mutation }: Pick<RunFacts, "run" | "mutation">,
  force: boolean,
): "active" | "unknown-outcome" | "past-boundary" | undefined {
  if (run.status === "active") return "active";
  if (isUnknown(mutation?.status)) return "unknown-outcome";
  return isPastBoundary(mutation) && !force ? "past-boundary" : undefined;
}
