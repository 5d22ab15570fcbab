/**
 * One workflow's facts → which handler runs next, and why (02 §1.1, 1.4, 1.5, 1.8). Decides nothing about slots,
 * namespaces or priorities: those lie between workflows.
 *
 * T1. While a run is open nothing else starts; a chain that is ready goes first.
 * T2. Consumers before producers; the consumer with the oldest pending delivery first, ties by declaration.
 * T3. After STREAK consumer runs in a row a waiting producer gets one.
 * T4. An event triggers by data alone: a pending delivery changed after the consumer last looked.
 */
import type { HandlerFacts, OpenRunFacts, WorkflowFacts } from "./facts.ts";
import type { EpochMs, RunId } from "./ids.ts";
import type { Trigger } from "./run.ts";
import { duePoints } from "./slots.ts";

export type Choice =
  | { next: "chain"; run: RunId }
  | { next: "start"; handler: HandlerFacts; trigger: Trigger }
  | { next: "nothing" };

const STREAK = 100;

export function choose(workflow: WorkflowFacts, nowMs: EpochMs): Choice {
  if (workflow.paused || workflow.archived) return { next: "nothing" };
  const { openRun } = workflow;
  if (openRun) {
    const ready = !openRun.active && openRun.readyAtMs !== undefined && openRun.readyAtMs <= nowMs;
    return ready ? { next: "chain", run: openRun.id } : { next: "nothing" }; // (T1)
  }
  const consumer = firstConsumer(workflow.handlers, nowMs);
  const producer = firstProducer(workflow.handlers, nowMs);
  if (consumer && producer && workflow.consumerStreak >= STREAK) return producer; // (T3)
  return consumer ?? producer ?? { next: "nothing" };
}

function firstConsumer(handlers: HandlerFacts[], nowMs: EpochMs): Choice | undefined {
  const ready = handlers
    .filter((one) => one.kind === "consumer" && !one.orphaned)
    .flatMap((handler) => {
      const trigger = consumerTrigger(handler, nowMs);
      return trigger ? [{ handler, trigger, since: handler.oldestPendingAtMs ?? trigger.atMs }] : [];
    })
    .sort((a, b) => a.since - b.since || a.handler.order - b.handler.order)[0]; // (T2)
  return ready && { next: "start", handler: ready.handler, trigger: ready.trigger };
}

function consumerTrigger(handler: HandlerFacts, nowMs: EpochMs): Trigger | undefined {
  const { triggered, wakeAtMs, newPendingAtMs } = handler;
  if (triggered) return { reason: triggered.reason, atMs: triggered.atMs };
  if (newPendingAtMs !== undefined) return { reason: "event", atMs: newPendingAtMs }; // (T4)
  if (wakeAtMs !== undefined && wakeAtMs <= nowMs) return { reason: "wake", atMs: wakeAtMs };
  return undefined;
}

function firstProducer(handlers: HandlerFacts[], nowMs: EpochMs): Choice | undefined {
  const ready = handlers
    .filter((one) => one.kind === "producer" && !one.orphaned)
    .flatMap((handler) => {
      const trigger = producerTrigger(handler, nowMs);
      return trigger ? [{ handler, trigger }] : [];
    })
    .sort((a, b) => a.trigger.atMs - b.trigger.atMs || a.handler.order - b.handler.order)[0];
  return ready && { next: "start", handler: ready.handler, trigger: ready.trigger };
}

function producerTrigger(handler: HandlerFacts, nowMs: EpochMs): Trigger | undefined {
  const { queued, nextRunAtMs, schedule, anchorMs } = handler;
  const due =
    schedule && nextRunAtMs !== undefined && nextRunAtMs <= nowMs
      ? // A stored point that is none any more (new zone data) is still owed its run.
        (duePoints(schedule, nextRunAtMs, nowMs, anchorMs ?? nextRunAtMs) ?? {
          firstMs: nextRunAtMs,
          newestMs: nextRunAtMs,
        })
      : undefined;
  const slot = due && { slot: { firstDueMs: due.firstMs, newestDueMs: due.newestMs } };
  if (queued) return { reason: queued.reason, atMs: queued.atMs, manual: true, ...slot };
  return due && { reason: "due", atMs: due.firstMs, ...slot };
}

/** The earliest moment at which this handler may have something to do: what the store indexes. */
export function handlerDueAt(
  handler: Pick<
    HandlerFacts,
    "kind" | "orphaned" | "queued" | "triggered" | "wakeAtMs" | "nextRunAtMs" | "newPendingAtMs"
  >,
): EpochMs | undefined {
  if (handler.orphaned) return undefined;
  const times =
    handler.kind === "producer"
      ? [handler.queued?.atMs, handler.nextRunAtMs]
      : [handler.triggered?.atMs, handler.newPendingAtMs, handler.wakeAtMs];
  const known = times.filter((one) => one !== undefined);
  return known.length > 0 ? Math.min(...known) : undefined;
}

/** When the scheduler should look at a workflow again; `undefined` while only a person or a new fact can move it. */
export function workflowDueAt(workflow: {
  paused: boolean;
  archived: boolean;
  openRun?: OpenRunFacts | undefined;
  earliestHandlerDueMs?: EpochMs | undefined;
}): EpochMs | undefined {
  if (workflow.paused || workflow.archived) return undefined;
  if (!workflow.openRun) return workflow.earliestHandlerDueMs;
  return workflow.openRun.active ? undefined : workflow.openRun.readyAtMs;
}
