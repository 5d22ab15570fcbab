/**
 * What a person may do about deliveries, inputs, handlers and whole workflows (02 §1.9, 1.11, §6). Decisions about a run
 * are `resolve.ts`.
 *
 * W1. A delivery is skipped only while nothing can have happened because of it.
 * W2. Pausing drains: it starts nothing and ends nothing. Resuming un-pauses and clears nothing else.
 * W3. What is acknowledged is audited in the same transaction.
 */
import type { Change, Write } from "./change.ts";
import type { Delivery } from "./event.ts";
import { type HandlerFacts, type RunFacts, stateOf, type WorkflowFacts } from "./facts.ts";
import type { EpochMs } from "./ids.ts";
import { isUnknown } from "./mutation.ts";
import type { JsonText } from "./workflow.ts";

export interface Operator {
  by: string;
  note?: string;
  atMs: EpochMs;
}

export type Refused = { refused: string; code: RefusalCode };
export type RefusalCode =
  | "run_active"
  | "workflow_blocked"
  | "workflow_paused"
  | "workflow_held"
  | "workflow_archived"
  | "unknown_outcome"
  | "wrong_state";

/** Queue every producer, or run or wake one handler. */
export function runNow(
  workflow: WorkflowFacts,
  named: HandlerFacts | undefined,
  operator: Operator,
): Change | Refused {
  const blocked = notRunnable(workflow);
  if (blocked) return blocked;
  const { atMs } = operator;
  const handlers = named
    ? [named]
    : workflow.handlers.filter((one) => one.kind === "producer" && !one.orphaned);
  if (handlers.length === 0) return { refused: "this workflow has no producer", code: "wrong_state" };
  const writes = handlers.map(
    (handler): Write =>
      handler.kind === "producer"
        ? { do: "handler.set", id: handler.id, set: { queued: { reason: "queued", atMs } } }
        : { do: "handler.set", id: handler.id, set: { triggered: { reason: "woken", atMs } } },
  );
  return operation("run-now", workflow, operator, writes, { handlers: handlers.map((one) => one.name) });
}

function notRunnable(workflow: WorkflowFacts): Refused | undefined {
  const { openRun } = workflow;
  if (workflow.archived) return { refused: "the workflow is archived", code: "workflow_archived" };
  if (openRun?.active) return { refused: "a run is active", code: "run_active" };
  if (openRun) return { refused: "a run waits and blocks this workflow", code: "workflow_blocked" };
  if (workflow.paused) return { refused: "the workflow is paused", code: "workflow_paused" };
  return undefined;
}

export function pause(workflow: WorkflowFacts, operator: Operator): Change {
  return operation("pause", workflow, operator, [{ do: "workflow.set", set: { paused: true } }], {}); // (W2)
}

export function resume(workflow: WorkflowFacts, operator: Operator): Change {
  return operation("resume", workflow, operator, [{ do: "workflow.set", set: { paused: false } }], {});
}

/** The delivery and, if a run holds it, that run with everything it holds. */
export interface DeliveryFacts {
  delivery: Delivery;
  workflow: WorkflowFacts;
  handler: HandlerFacts;
  holder?: RunFacts;
}

export function skipDelivery(facts: DeliveryFacts, operator: Operator): Change | Refused {
  const { delivery, workflow, holder, handler } = facts;
  const skip: Write = { do: "deliveries", ids: [delivery.id], to: "skipped", reason: "operator" };
  const detail = { delivery: delivery.id };
  if (delivery.status === "pending") {
    const change = operation("delivery.skip", workflow, operator, [skip], detail);
    return { ...change, expect: { deliveries: { ids: [delivery.id], status: "pending" } } };
  }
  if (delivery.status !== "reserved" || !holder)
    return { refused: `the delivery is ${delivery.status}`, code: "wrong_state" };
  const { run, mutation, reserved } = holder;
  if (run.status === "active") return { refused: "a run is working on it", code: "run_active" };
  if (isUnknown(mutation?.status))
    return { refused: "its outside change may have happened", code: "unknown_outcome" };
  if (mutation && mutation.status !== "proposed" && mutation.status !== "failed")
    return { refused: "its outside change was made", code: "wrong_state" }; // (W1)
  const others = reserved.filter((id) => id !== delivery.id);
  const { atMs, by } = operator;
  const writes: Write[] = [
    {
      do: "run.set",
      id: run.id,
      from: stateOf(run),
      set: { open: false, readyAtMs: null, resolution: { by, action: "reset", atMs } },
    },
    skip,
    { do: "handler.set", id: handler.id, set: { triggered: { reason: "requeued", atMs } } },
    { do: "inbox.close", run: run.id },
    { do: "workflow.set", set: { openRun: null } },
  ];
  if (mutation?.status === "proposed")
    writes.push({
      do: "mutation.set",
      id: mutation.id,
      from: "proposed",
      set: { status: "failed", notSent: true },
    });
  if (others.length > 0) writes.push({ do: "deliveries", ids: others, to: "pending", run: run.id });
  const change = operation("delivery.skip", workflow, operator, writes, detail);
  return { ...change, expect: { run: { id: run.id, revision: run.revision } } };
}

/** Once more: a dead or skipped delivery as it was, or a consumed one as a new delivery. */
export function renewDelivery(
  facts: DeliveryFacts & { lastRow?: "unknown" | "settled" },
  how: "requeue" | "reprocess",
  priorOutcome: "not-applied" | undefined,
  operator: Operator,
): Change | Refused {
  const { delivery, workflow, handler } = facts;
  const fits =
    how === "requeue"
      ? delivery.status === "dead" || delivery.status === "skipped"
      : delivery.status === "consumed";
  if (!fits) return { refused: `the delivery is ${delivery.status}`, code: "wrong_state" };
  if (how === "requeue" && facts.lastRow === "unknown" && priorOutcome !== "not-applied")
    return { refused: "its outside change may have happened: say that it did not", code: "unknown_outcome" };
  const change = operation(
    `delivery.${how}`,
    workflow,
    operator,
    [
      { do: "delivery.renew", id: delivery.id, how },
      { do: "handler.set", id: handler.id, set: {} },
    ],
    { delivery: delivery.id, ...(priorOutcome === undefined ? {} : { priorOutcome }) },
  );
  return { ...change, expect: { deliveries: { ids: [delivery.id], status: delivery.status } } };
}

export function editState(
  workflow: WorkflowFacts,
  handler: HandlerFacts,
  state: JsonText | null,
  operator: Operator,
): Change {
  const change = operation(
    "state.edit",
    workflow,
    operator,
    [{ do: "handler.set", id: handler.id, set: { state } }],
    { handler: handler.name, before: handler.state ?? null, after: state },
  );
  return { ...change, expect: { handlerIdle: handler.id } };
}

function operation(
  action: string,
  workflow: WorkflowFacts,
  { by, note, atMs }: Operator,
  writes: Write[],
  detail: object,
): Change {
  const audit: Write = {
    do: "audit",
    actor: by,
    action,
    detail: JSON.stringify(detail),
    ...(note === undefined ? {} : { note }),
  };
  return {
    verb: action,
    workflow: workflow.id,
    atMs,
    expect: { workflowRevision: workflow.revision },
    writes: [...writes, audit], // (W3)
  };
}
