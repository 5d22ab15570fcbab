/**
 * What a person may do about deliveries, inputs, handlers and whole workflows (02 §1.9, 1.11, §6). Decisions about a run
 * are `resolve.ts`; being archived, stepped or orphaned have files of their own.
 *
 * W1. Pausing drains: it starts nothing and ends nothing. Resuming un-pauses and clears nothing else.
 * W2. What is acknowledged is audited in the same transaction.
 * W3. A delivery is skipped only while nothing can have happened because of it.
 * W4. Skipping what a waiting run holds ends that run's chain: the rest goes back and the consumer looks again.
 * W5. What is not in an allowed state is left as it is, and named.
 */
import type { Change, Write } from "./change.ts";
import type { Delivery } from "./event.ts";
import { type HandlerFacts, type RunFacts, stateOf, type WorkflowFacts } from "./facts.ts";
import type { DeliveryId, EpochMs, InputId } from "./ids.ts";
import { isUnknown } from "./mutation.ts";
import { isEnded } from "./run.ts";
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
  | "nothing_held"
  | "wrong_state";

/** Queues every producer, or run or wake one handler. */
export function runNow(
  workflow: WorkflowFacts,
  named: HandlerFacts | undefined,
  operator: Operator,
): Change | Refused {
  const blocked = notRunnable(workflow);
  if (blocked) return blocked;
  if (named?.orphaned)
    return { refused: `the active version has no ${named.kind} ${named.name}`, code: "wrong_state" };
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
  if (openRun?.held) return { refused: "a run is held, step by step", code: "workflow_held" };
  if (openRun) return { refused: "a run waits and blocks this workflow", code: "workflow_blocked" };
  if (workflow.paused) return { refused: "the workflow is paused", code: "workflow_paused" };
  return undefined;
}

export function pause(workflow: WorkflowFacts, operator: Operator): Change {
  return operation("pause", workflow, operator, [{ do: "workflow.set", set: { paused: true } }], {}); // (W1)
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
  /** Retention has emptied the payload: there is nothing left to run on. */
  payloadGone?: true;
  /** The last word was that nothing happened, and an answer that came later says otherwise. */
  contradicted?: true;
}

export function skipDelivery(facts: DeliveryFacts, operator: Operator): Change | Refused {
  const refused = skipRefusal(facts);
  if (refused) return refused;
  const { delivery, workflow, holder } = facts;
  return skipAll(workflow, [facts], holder, operator, "delivery.skip", { delivery: delivery.id });
}

/** Why this delivery may not be skipped now, or `undefined`. (W3) */
function skipRefusal({ delivery, holder }: DeliveryFacts): Refused | undefined {
  if (delivery.status === "pending") return undefined;
  if (delivery.status !== "reserved" || !holder)
    return { refused: `the delivery is ${delivery.status}`, code: "wrong_state" };
  const { run, mutation } = holder;
  if (run.status === "active") return { refused: "a run is working on it", code: "run_active" };
  if (isUnknown(mutation?.status))
    return { refused: "its outside change may have happened", code: "unknown_outcome" };
  if (mutation && mutation.status !== "proposed" && mutation.status !== "failed")
    return { refused: "its outside change was made", code: "wrong_state" };
  return undefined;
}

export interface InputSkip {
  /** Absent when nothing was left to skip. */
  change?: Change;
  /** What an input caused and is not skipped, with the reason. */
  left: { delivery: DeliveryId; why: string }[];
}

/** All that an input caused. (W5) */
export function skipInput(
  workflow: WorkflowFacts,
  input: InputId,
  caused: readonly DeliveryFacts[],
  operator: Operator,
): InputSkip {
  const open = caused.filter(({ delivery }) => delivery.status !== "skipped");
  const allowed = open.filter((one) => !skipRefusal(one));
  const left = open.flatMap((one) => {
    const refused = skipRefusal(one);
    return refused ? [{ delivery: one.delivery.id, why: refused.refused }] : [];
  });
  if (allowed.length === 0) return { left };
  const holder = allowed.find((one) => one.delivery.status === "reserved")?.holder;
  const detail = { input, left: left.map((one) => one.delivery) };
  return { change: skipAll(workflow, allowed, holder, operator, "input.skip", detail), left };
}

function skipAll(
  workflow: WorkflowFacts,
  skipped: readonly DeliveryFacts[],
  holder: RunFacts | undefined,
  operator: Operator,
  action: string,
  detail: object,
): Change {
  const ids = skipped.map((one) => one.delivery.id);
  const pending = skipped.filter((one) => one.delivery.status === "pending").map((one) => one.delivery.id);
  const writes: Write[] = [{ do: "deliveries", ids, to: "skipped", reason: "operator" }];
  if (holder) writes.push(...reset(holder, ids, operator));
  const change = operation(action, workflow, operator, writes, detail);
  return {
    ...change,
    expect: {
      ...(pending.length > 0 ? { deliveries: { ids: pending, status: "pending" as const } } : {}),
      ...(holder ? { run: { id: holder.run.id, revision: holder.run.revision } } : {}),
    },
  };
}

/** (W4) */
function reset(
  { run, mutation, reserved, handler }: RunFacts,
  skipped: DeliveryId[],
  operator: Operator,
): Write[] {
  const { atMs, by, note } = operator;
  const resolution = { by, action: "reset", atMs, ...(note === undefined ? {} : { note }) };
  const others = reserved.filter((id) => !skipped.includes(id));
  const wakeIsUsed = handler.wakeAtMs !== undefined && handler.wakeAtMs <= run.chainStartedAtMs;
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
        ...(isEnded(run.status) ? {} : { endedAtMs: atMs }),
        ...(unsent ? { outcome: "failed" as const } : {}),
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
  if (others.length > 0) writes.push({ do: "deliveries", ids: others, to: "pending", run: run.id });
  const triggered = { reason: "requeued" as const, atMs };
  writes.push(
    { do: "handler.set", id: handler.id, set: { triggered, ...(wakeIsUsed ? { wakeAtMs: null } : {}) } },
    { do: "inbox.close", run: run.id },
    { do: "workflow.set", set: { openRun: null } },
  );
  return writes;
}

/** Once more: a dead or skipped delivery as it was, or a consumed one as a new delivery. */
export function renewDelivery(
  facts: DeliveryFacts,
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
  if (facts.payloadGone)
    return { refused: "its payload is no longer kept: publish the event again", code: "wrong_state" };
  if (how === "requeue" && facts.contradicted && priorOutcome !== "not-applied")
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

/** The frame of a person's act on a workflow. */
export function operation(
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
    writes: [...writes, audit], // (W2)
  };
}
