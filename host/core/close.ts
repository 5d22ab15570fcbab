/**
 * How a chain ends without a commit (02 §1.7): by a person, by `onFailure`, by a handler that is gone. And what any
 * ending does to a schedule: which points it answers, and when the next one is.
 *
 * X1. The chain's trigger is used up; released deliveries do not trigger by themselves.
 * X2. An ending that skipped, dead-lettered or force-consumed something triggers for what is still pending (1.5).
 */
import type { Change, HandlerPatch, Write } from "./change.ts";
import { type RunFacts, stateOf, step } from "./facts.ts";
import type { DeliveryId, EpochMs } from "./ids.ts";
import { isUnknown } from "./mutation.ts";
import { isEnded, isPastBoundary, type Resolution, type RunError, type Status } from "./run.ts";
import { type DownSpan, nextSlot, reanchor, slotFates, type SlotRange } from "./slots.ts";

export interface Ending {
  handler: HandlerPatch;
  slots: SlotRange[];
}

/** The points that a producer's chain answers, and the next one; nothing for consumers. */
export function settleSchedule(
  { run, handler }: Pick<RunFacts, "run" | "handler">,
  how: "ran" | "failed" | "skipped",
  down: readonly DownSpan[],
  why?: string,
): Ending {
  const { schedule } = handler;
  if (run.kind !== "producer" || !schedule) return { handler: {}, slots: [] };
  const { slot, manual } = run.trigger;
  const anchorMs = handler.anchorMs ?? slot?.newestDueMs ?? run.chainStartedAtMs;
  const slots = slot
    ? slotFates({
        schedule,
        anchorMs,
        ...slot,
        run: run.id,
        down,
        how,
        ...(why === undefined ? {} : { why }),
      })
    : [];
  if (manual || !slot) return { handler: reanchor(schedule, run.chainStartedAtMs), slots };
  return { handler: { nextRunAtMs: nextSlot(schedule, slot.newestDueMs, anchorMs) }, slots };
}

export interface Closing {
  deliveries: "release" | "skip" | "dead" | "consume";
  resolution: Resolution;
  ending: Ending;
  /** Set when the attempt itself ends here: what it failed with. */
  failed?: { status: Status; error: RunError };
}

export function close(facts: RunFacts, closing: Closing, atMs: EpochMs): Change {
  const { run, handler, mutation } = facts;
  const { deliveries, resolution, ending, failed } = closing;
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
      },
    },
  ];
  if (mutation?.status === "proposed")
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
  writes.push({ do: "inbox.close", run: run.id }, { do: "workflow.set", set: { openRun: null } });
  return step("close", facts, atMs, writes);
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
