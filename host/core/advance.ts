/**
 * One run forward: what a unit returned → the next checkpoint (02 §2). Failures are `fail.ts`.
 *
 * V1. No reservations: `prepared → emitting`. Reservations but no call: `mutating → mutated`, outcome `none`.
 * V2. A call leaves only after its row is `in_flight` on disk; this file makes that row, the engine awaits the disk.
 * V3. Everything a run leaves behind becomes visible in its commit, and only there.
 * V4. Each dispatched unit ends once: a `mutate` whose reservations came out empty is skipped.
 */
import type { Change, UnitName, Write } from "./change.ts";
import { after, fuse } from "./change.ts";
import type { Ending } from "./close.ts";
import type { Publication } from "./event.ts";
import { type RunFacts, stateOf, step, unanswered } from "./facts.ts";
import type { DeliveryId, EpochMs, HandlerId, InboxId, InputId } from "./ids.ts";
import { missedBy } from "./missed.ts";
import type { Mutation, Send } from "./mutation.ts";
import type { Run } from "./run.ts";
import type { JsonText } from "./workflow.ts";

export interface PreparedResult {
  json: JsonText;
  reservations: DeliveryId[];
  /** Already clamped. */
  wakeAtMs?: EpochMs;
  /** `mutate` was not dispatched together with `prepare` (07, Fusing). */
  alone?: boolean;
}

export function prepared(facts: RunFacts, result: PreparedResult, atMs: EpochMs): Change {
  const { run, handler, workflow } = facts;
  const ids = [...new Set(result.reservations)];
  const change = step("prepared", facts, atMs, [
    {
      do: "run.set",
      id: run.id,
      from: stateOf(run),
      set: { phase: "prepared", prepared: result.json, wakeAtMs: result.wakeAtMs ?? null },
    },
    { do: "unit.ended", run: run.id, units: ["prepare"], end: "completed" },
  ]);
  const { writes } = change;
  if (ids.length > 0) {
    change.expect.deliveries = { ids, status: "pending", handler: handler.id };
    writes.push({ do: "deliveries", ids, to: "reserved", run: run.id });
  }
  if (!handler.hasMutate) return change;
  if (ids.length === 0 && !result.alone)
    writes.push({ do: "unit.ended", run: run.id, units: ["mutate"], end: "skipped" }); // (V4)
  if (ids.length > 0 && result.alone && workflow.mode === "auto")
    writes.push({ do: "unit.dispatched", run: run.id, units: ["mutate"] });
  return change;
}

/** The unit came to nothing through no fault of its own: the same once more, at no cost (02 §4). */
export function again(facts: RunFacts, units: UnitName[], atMs: EpochMs): Change {
  return repeat("again", facts, units, atMs, {});
}

/** A person took away what `prepare` had chosen: once more, at no cost (2.3). */
export function redo(facts: RunFacts, units: UnitName[], atMs: EpochMs): Change {
  return repeat("redo", facts, units, atMs, { redos: facts.run.redos + 1 });
}

function repeat(
  verb: string,
  facts: RunFacts,
  units: UnitName[],
  atMs: EpochMs,
  set: { redos?: number },
): Change {
  const { run, handler, workflow } = facts;
  const looks = run.phase === "preparing";
  const patch = { ...set, ...(looks ? { startSeq: workflow.seq } : {}) };
  const writes: Write[] = [];
  if (Object.keys(patch).length > 0)
    writes.push({ do: "run.set", id: run.id, from: stateOf(run), set: patch });
  // Only a `prepare` looks at events: moving `seenSeq` for a later unit would lose a wake-up.
  if (looks) writes.push({ do: "handler.set", id: handler.id, set: { seenSeq: "now" } });
  writes.push(
    { do: "unit.ended", run: run.id, units, end: "lost" },
    { do: "unit.dispatched", run: run.id, units },
  );
  return step(verb, facts, atMs, writes);
}

/** Step mode: before each unit and before the call the run is held and shown (04). */
export function hold(facts: RunFacts, inbox: InboxId, atMs: EpochMs): Change {
  return waitFor(facts, "step", inbox, atMs);
}

/** `mutate` returned without asking for a call. */
export function withoutCall(facts: RunFacts, atMs: EpochMs): Change {
  const change = advanceTo(facts, "mutating", atMs);
  const run = after(facts.run, change);
  const done = step("no-call", { run }, atMs, [
    { do: "run.set", id: run.id, from: stateOf(run), set: { phase: "mutated", outcome: "none" } }, // (V1)
    ...(facts.handler.hasMutate
      ? [{ do: "unit.ended" as const, run: run.id, units: ["mutate" as const], end: "completed" as const }]
      : []),
  ]);
  return fuse(change, done);
}

/** `mutate` stated its intent: the decision is on record, nothing has left. */
export function intended(facts: RunFacts, mutation: Mutation, atMs: EpochMs): Change {
  const change = advanceTo(facts, "mutating", atMs);
  change.writes.push(
    { do: "mutation.create", mutation },
    { do: "unit.ended", run: facts.run.id, units: ["mutate"], end: "completed" },
  );
  return { ...change, verb: "intended" };
}

export function awaitApproval(facts: RunFacts, inbox: InboxId, atMs: EpochMs): Change {
  return waitFor(facts, "approval", inbox, atMs);
}

function waitFor(facts: RunFacts, why: "approval" | "step", inbox: InboxId, atMs: EpochMs): Change {
  const { run } = facts;
  return step(why === "step" ? "hold" : "await-approval", facts, atMs, [
    {
      do: "run.set",
      id: run.id,
      from: stateOf(run),
      set: { status: "paused:approval", pauseReason: why, ...unanswered(run) },
    },
    { do: "inbox.open", id: inbox, kind: why, run: run.id },
  ]);
}

/** The call is about to leave. Must be durable before the first byte (V2). */
export function sending(facts: RunFacts & { mutation: Mutation }, send: Send, atMs: EpochMs): Change {
  const { run, mutation } = facts;
  return step("sending", facts, atMs, [
    {
      do: "mutation.set",
      id: mutation.id,
      from: mutation.status,
      set: { status: "in_flight", sends: send.n },
    },
    { do: "send.create", mutation: mutation.id, run: run.id, send },
  ]);
}

/** The change is made (or a person says so, or it is done without): on to what follows from it. */
export function mutated(
  facts: RunFacts & { mutation: Mutation },
  outcome: { status: "applied"; result?: JsonText; resultInvalid?: boolean } | { status: "skipped" },
  atMs: EpochMs,
  answer?: JsonText,
): Change {
  const { run, mutation } = facts;
  const applied = outcome.status === "applied";
  const result = applied ? outcome.result : undefined;
  const change = step(outcome.status, facts, atMs, [
    {
      do: "run.set",
      id: run.id,
      from: stateOf(run),
      set: { phase: "mutated", outcome: outcome.status, ...(result === undefined ? {} : { result }) },
    },
    {
      do: "mutation.set",
      id: mutation.id,
      from: mutation.status,
      set: {
        status: outcome.status,
        endedAtMs: atMs,
        nextCheckAtMs: null,
        ...(result === undefined ? {} : { result }),
        ...(applied && outcome.resultInvalid ? { resultInvalid: true } : {}),
      },
    },
  ]);
  if (answer !== undefined)
    change.writes.push({ do: "send.end", mutation: mutation.id, n: mutation.sends, endedAtMs: atMs, answer });
  return change;
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

/** On to `next`: from `mutated`, or from `prepared` when nothing was reserved. */
export function emitting(facts: RunFacts, atMs: EpochMs): Change {
  const change = advanceTo(facts, "emitting", atMs);
  if (facts.run.outcome === undefined)
    change.writes.push({
      do: "run.set",
      id: facts.run.id,
      from: { ...stateOf(facts.run), phase: "emitting" },
      set: { outcome: "none" },
    });
  if (facts.handler.hasNext)
    change.writes.push({ do: "unit.dispatched", run: facts.run.id, units: ["next"] });
  return change;
}

/** What the last unit of a run hands over. */
export interface Emission {
  /** `undefined` keeps the old state, `null` clears it. */
  state?: JsonText | null;
  publications: { publication: Publication; subscribers: HandlerId[] }[];
  inputs: { id: InputId; source: string; type: string; key: string; title: string }[];
  resources?: JsonText;
}

/** The commit: consumption, events, inputs, state, schedule and run, all or none (V3). */
export function commit(facts: RunFacts, emission: Emission, ending: Ending, atMs: EpochMs): Change {
  const { run, handler, reserved, workflow } = facts;
  const unit: UnitName = run.kind === "producer" ? "producer" : "next";
  const writes: Write[] = [
    {
      do: "run.set",
      id: run.id,
      from: stateOf(run),
      set: {
        phase: "committed",
        status: "committed",
        open: false,
        endedAtMs: atMs,
        ...(emission.resources === undefined ? {} : { resources: emission.resources }),
      },
    },
  ];
  if (unit === "producer" || handler.hasNext)
    writes.push({ do: "unit.ended", run: run.id, units: [unit], end: "completed" });
  if (reserved.length > 0) writes.push({ do: "deliveries", ids: reserved, to: "consumed", run: run.id });
  for (const input of emission.inputs) writes.push({ do: "input", ...input, run: run.id });
  for (const one of emission.publications) writes.push({ do: "publish", run: run.id, ...one });
  writes.push({
    do: "handler.set",
    id: handler.id,
    set: {
      ...(emission.state === undefined ? {} : { state: emission.state }),
      ...(run.kind === "consumer"
        ? { wakeAtMs: run.wakeAtMs ?? null, ...(reserved.length > 0 ? { triggerIfPending: true } : {}) }
        : {}),
      ...ending.handler,
    },
  });
  for (const range of ending.slots) writes.push({ do: "slot", handler: handler.id, range });
  writes.push(...missedBy(handler.id, ending.slots, ending.inbox));
  writes.push({ do: "workflow.set", set: { openRun: null } });
  const change = step("commit", facts, atMs, writes);
  if (emission.publications.length > 0) change.expect.generation = workflow.generation;
  return change;
}

function advanceTo(facts: RunFacts, phase: Run["phase"], atMs: EpochMs): Change {
  const { run } = facts;
  return step(phase, facts, atMs, [{ do: "run.set", id: run.id, from: stateOf(run), set: { phase } }]);
}
