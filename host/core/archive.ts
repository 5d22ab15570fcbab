/**
 * A workflow is put away and fetched back (02 §1.11). Nothing is lost: deliveries, state and history stay.
 *
 * Z1. Refused while a run is active or an outcome unknown; any other open chain is closed, its deliveries released.
 * Z2. Points that were due and will not be answered are `skipped`; while archived the schedule stands still.
 */
import type { Change, Write } from "./change.ts";
import { close, settleSchedule } from "./close.ts";
import type { HandlerFacts, RunFacts, WorkflowFacts } from "./facts.ts";
import type { EpochMs, InboxId } from "./ids.ts";
import { isUnknown } from "./mutation.ts";
import { type Operator, operation, type Refused } from "./operate.ts";
import { isPastBoundary } from "./run.ts";
import { type DownSpan, duePoints, reanchor, slotFates } from "./slots.ts";

export function archive(
  workflow: WorkflowFacts,
  open: RunFacts | undefined,
  operator: Operator,
  has: { down: readonly DownSpan[]; inbox: InboxId },
): Change | Refused {
  const refused = archiveRefusal(workflow, open);
  if (refused) return refused;
  const { atMs } = operator;
  const closing = open && closed(open, operator, has);
  const writes: Write[] = closing ? [...closing.writes] : [];
  for (const handler of workflow.handlers)
    if (handler.kind === "producer") writes.push(...standStill(handler, open, has.down, atMs));
  writes.push({ do: "workflow.set", set: { archived: true } });
  const change = operation("archive", workflow, operator, writes, open ? { closed: open.run.id } : {});
  return { ...change, expect: { ...closing?.expect, ...change.expect } };
}

/** (Z1) */
function archiveRefusal(workflow: WorkflowFacts, open: RunFacts | undefined): Refused | undefined {
  if (workflow.archived) return { refused: "the workflow is archived already", code: "workflow_archived" };
  if (open?.run.status === "active") return { refused: "a run is active", code: "run_active" };
  if (isUnknown(open?.mutation?.status))
    return { refused: "an outside change may have happened: settle that first", code: "unknown_outcome" };
  return undefined;
}

function closed(
  open: RunFacts,
  { by, note, atMs }: Operator,
  has: { down: readonly DownSpan[]; inbox: InboxId },
) {
  return close(
    open,
    {
      // What was done outside is not done again: past the boundary its deliveries are used up.
      deliveries: isPastBoundary(open.mutation) ? "consume" : "release",
      resolution: { by, action: "archive", atMs, ...(note === undefined ? {} : { note }) },
      ending: settleSchedule(open, "skipped", has.down, "archived"),
      inbox: has.inbox,
    },
    atMs,
  );
}

/** (Z2) */
function standStill(
  handler: HandlerFacts,
  open: RunFacts | undefined,
  down: readonly DownSpan[],
  atMs: EpochMs,
): Write[] {
  const { schedule, nextRunAtMs, id } = handler;
  const stop: Write = { do: "handler.set", id, set: { nextRunAtMs: null, queued: null } };
  if (!schedule || nextRunAtMs === undefined) return [stop];
  const answered = open?.run.handler === id ? open.run.trigger.slot?.newestDueMs : undefined;
  const fromMs = answered === undefined ? nextRunAtMs : Math.max(nextRunAtMs, answered + 1);
  const anchorMs = handler.anchorMs ?? nextRunAtMs;
  const due = fromMs <= atMs ? duePoints(schedule, fromMs, atMs, anchorMs) : undefined;
  if (!due) return [stop];
  const ranges = slotFates({
    schedule,
    anchorMs,
    firstDueMs: due.firstMs,
    newestDueMs: due.newestMs,
    down,
    how: "skipped",
    why: "archived",
  });
  return [...ranges.map((range): Write => ({ do: "slot", handler: id, range })), stop];
}

/** Schedules begin anew from now; consumers see what has been waiting by itself. */
export function unarchive(workflow: WorkflowFacts, operator: Operator): Change | Refused {
  if (!workflow.archived) return { refused: "the workflow is not archived", code: "wrong_state" };
  const writes: Write[] = workflow.handlers
    .filter((one) => one.kind === "producer" && !one.orphaned)
    .flatMap((one) =>
      one.schedule
        ? [{ do: "handler.set" as const, id: one.id, set: reanchor(one.schedule, operator.atMs) }]
        : [],
    );
  writes.push({ do: "workflow.set", set: { archived: false } });
  return operation("unarchive", workflow, operator, writes, {});
}
