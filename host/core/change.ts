/**
 * A Change: every row effect of one step, as plain data. The core's verbs return it, the store applies it in one
 * transaction, the journal is read off it. No other way to write run state exists.
 *
 * A1. A Change concerns one workflow and at most one chain.
 * A2. It carries what it expects beside what it writes. The run is the aggregate: whatever touches a run, its ledger row
 *     or its reserved deliveries raises the run's revision, so one expected revision covers all three.
 * A3. It is whole: `assertChange` refuses what no step may contain (a phase going back, a status that does not fit its
 *     phase, an illegal ledger transition, an ended run rewritten, a row settled without its run).
 */
import type { StandingApproval } from "./approval.ts";
import type { DeliveryStatus, Publication } from "./event.ts";
import type {
  ConnectionId,
  DeliveryId,
  EpochMs,
  HandlerId,
  Incarnation,
  InboxId,
  InputId,
  MutationId,
  RunId,
  WorkflowId,
} from "./ids.ts";
import { mayBecome, type Mutation, type MutationStatus, type Send } from "./mutation.ts";
import { isEnded, type Kind, mayAdvance, MUTABLE_AFTER_END, type Run, type RunState } from "./run.ts";
import type { SlotRange } from "./slots.ts";
import type { JsonText, Manifest } from "./workflow.ts";

export interface Change {
  /** What happened, for people who read a log: "start", "prepared", "committed", "approve" … */
  verb: string;
  workflow: WorkflowId;
  atMs: EpochMs;
  expect: Expect;
  writes: Write[];
}

export interface Expect {
  /** Starting, closing, pausing, deploying: nothing of that kind happened since the facts were read. */
  workflowRevision?: number;
  /** Publishing: the subscribers are still the same (raised by deploys only). */
  generation?: number;
  run?: { id: RunId; revision: number };
  /** The open run, which the Change leaves alone, is still in this status (deploying beside it). */
  runIs?: { id: RunId; status: Run["status"] };
  /** For results that may come late: the row still stands where it stood. */
  mutation?: { id: MutationId; status: MutationStatus };
  /** Deliveries that must still be in this state, whoever owns them. */
  deliveries?: { ids: DeliveryId[]; status: DeliveryStatus; reservedBy?: RunId; handler?: HandlerId };
  /** Nobody has closed this item yet. */
  inboxOpen?: InboxId;
  /** Nothing of this handler is open (edit of its state). */
  handlerIdle?: HandlerId;
}

/** The fields of a run that a step may set. `null` clears. */
export type RunPatch = {
  [Field in "phase" | "status" | "open" | "redos" | "retries" | "startSeq" | "host"]?: Run[Field];
} & {
  [Field in
    | "pauseReason"
    | "readyAtMs"
    | "successor"
    | "outcome"
    | "prepared"
    | "result"
    | "error"
    | "policy"
    | "endedAtMs"
    | "deadlineAtMs"
    | "wakeAtMs"
    | "resources"
    | "resolution"]?: NonNullable<Run[Field]> | null;
};

export type MutationPatch = {
  [Field in "status" | "ownerRun" | "sends" | "checks" | "configVersion" | "connection"]?: Mutation[Field];
} & {
  [Field in
    | "endedAtMs"
    | "nextCheckAtMs"
    | "resending"
    | "result"
    | "resultInvalid"
    | "notSent"
    | "error"]?: NonNullable<Mutation[Field]> | null;
};

export interface HandlerPatch {
  state?: JsonText | null;
  /** `"now"`: the highest sequence that exists when the Change is applied. */
  seenSeq?: "now";
  queued?: { reason: "queued" | "deploy"; atMs: EpochMs } | null;
  triggered?: { reason: "deploy" | "woken" | "more" | "requeued"; atMs: EpochMs } | null;
  /** Sets `triggered` only if a delivery is pending once everything else is written (1.5). */
  triggerIfPending?: boolean;
  wakeAtMs?: EpochMs | null;
  nextRunAtMs?: EpochMs | null;
  anchorMs?: EpochMs;
  orphaned?: boolean;
  order?: number;
}

export interface WorkflowPatch {
  openRun?: RunId | null;
  consumerStreak?: number;
  paused?: boolean;
  archived?: boolean;
  activeVersion?: number;
  /** Raised when the subscribers may have changed. */
  deployed?: true;
  mode?: "auto" | "step";
  /** What is allowed beforehand from now on, all of it. */
  approvals?: StandingApproval[];
  /** All of them, as the operator sets them. */
  params?: JsonText;
  labels?: JsonText;
}

export type GrantMode = "allow" | "approve" | "deny";

export type InboxKind =
  | "unknown_outcome"
  | "contradiction"
  | "approval"
  | "reconnect"
  | "permission"
  | "precondition"
  | "binding"
  | "capability"
  | "script_error"
  | "internal"
  | "retries_exhausted"
  | "crash_loop"
  | "step"
  | "dead_letter"
  | "orphaned"
  | "stale_input"
  | "missed_schedule";

export type UnitName = "producer" | "prepare" | "mutate" | "next";
export type UnitEnd = "completed" | "failed" | "skipped" | "lost";

export type Write =
  | { do: "run.create"; run: Run }
  | { do: "run.set"; id: RunId; from: RunState; set: RunPatch }
  | { do: "unit.dispatched"; run: RunId; units: UnitName[] }
  | { do: "unit.ended"; run: RunId; units: UnitName[] | "open"; end: UnitEnd }
  | { do: "mutation.create"; mutation: Mutation }
  | { do: "mutation.set"; id: MutationId; from: MutationStatus; set: MutationPatch }
  | { do: "send.create"; mutation: MutationId; run: RunId; send: Send }
  | { do: "send.end"; mutation: MutationId; n: number; endedAtMs: EpochMs; answer: JsonText }
  | { do: "evidence"; mutation: MutationId; run: RunId; what: string; detail: JsonText }
  | { do: "deliveries"; ids: DeliveryId[]; to: DeliveryStatus; run?: RunId; reason?: string }
  /** Reserved deliveries change hands without ever being free (3.1, "taken over"). */
  | { do: "deliveries.handover"; from: RunId; to: RunId }
  | { do: "delivery.renew"; id: DeliveryId; how: "requeue" | "reprocess" }
  | { do: "orphans.move"; from: HandlerId; to: HandlerId }
  | { do: "orphans.skip"; handler: HandlerId }
  | { do: "publish"; run?: RunId; publication: Publication; subscribers: HandlerId[] }
  | { do: "input"; id: InputId; source: string; type: string; key: string; title: string; run?: RunId }
  | { do: "handler.create"; id: HandlerId; kind: Kind; name: string; order: number; set: HandlerPatch }
  | { do: "handler.set"; id: HandlerId; set: HandlerPatch }
  | { do: "slot"; handler: HandlerId; range: SlotRange }
  | { do: "workflow.set"; set: WorkflowPatch }
  | { do: "version.create"; version: VersionRow }
  /** What was granted for another connection behind the alias ends with it (06). */
  | { do: "bind"; alias: string; connection: ConnectionId }
  | { do: "grant"; alias: string; connection: ConnectionId; tool: string; mode: GrantMode }
  | { do: "inbox.open"; id: InboxId; kind: InboxKind; run?: RunId; handler?: HandlerId; detail?: JsonText }
  /** Closes the items of a run, of a handler, of a kind, or one by its id. */
  | { do: "inbox.close"; run?: RunId; handler?: HandlerId; kind?: InboxKind; id?: InboxId }
  | { do: "audit"; actor: string; action: string; run?: RunId; detail: JsonText; note?: string }
  | { do: "outbox"; topic: string; body: JsonText }
  | { do: "transcript"; run: RunId; unit: string; body: JsonText }
  | { do: "logs"; run: RunId; unit: string; lines: JsonText };

export interface VersionRow {
  number: number;
  hash: string;
  language: "ts" | "js";
  source: string;
  code: string;
  sourceMap?: string;
  manifest: Manifest;
  scope: "fresh" | "frozen";
  note?: string;
  /** When it first became the active one. Set by the store. */
  activatedAtMs?: EpochMs;
}

/** Throws when a Change holds what no step of the model may do: a programmer's error, caught before it is stored. */
export function assertChange(change: Change): void {
  const problem = problemOf(change);
  if (problem) throw new Error(`impossible Change "${change.verb}": ${problem}`); // (A3)
}

function problemOf(change: Change): string | undefined {
  for (const write of change.writes) {
    const problem = writeProblem(write, change.expect) ?? partProblem(write, change.writes);
    if (problem) return problem;
  }
  return undefined;
}

/** What one write needs beside it, so that no half of a step is ever stored. */
function partProblem(write: Write, writes: readonly Write[]): string | undefined {
  const some = (test: (one: Write) => boolean): boolean => writes.some(test);
  const openRun = () => some((one) => one.do === "workflow.set" && one.set.openRun !== undefined);
  if (write.do === "run.create") {
    const { id, retryOf, open } = write.run;
    const gaveWay = (one: Write) =>
      one.do === "run.set" && one.id === retryOf && one.set.successor === id && one.set.open === false;
    if (retryOf !== undefined && !some(gaveWay)) return "a successor whose predecessor stays open";
    return open && !openRun() ? "an open run that its workflow does not know of" : undefined;
  }
  if (write.do === "run.set" && write.set.open === false && !openRun())
    return "a run that closes while its workflow still waits for it";
  const settles =
    write.do === "mutation.set" && (write.set.status === "applied" || write.set.status === "skipped");
  if (settles && !some((one) => one.do === "run.set" && one.set.phase === "mutated"))
    return "a ledger row is settled only together with its run";
  return undefined;
}

function writeProblem(write: Write, expect: Expect): string | undefined {
  if (write.do === "run.create") {
    const { retryOf, rootId, id, phase, status } = write.run;
    if (retryOf === undefined && rootId !== id) return "a first attempt is its own root";
    if ((phase === "committed") !== (status === "committed"))
      return "committed is a phase and a status at once";
  }
  if (write.do === "run.set") {
    if (expect.run?.id !== write.id) return "a run is set only by those who know its revision";
    return runProblem(write.from, write.set);
  }
  if (
    write.do === "mutation.set" &&
    write.set.status !== undefined &&
    !mayBecome(write.from, write.set.status)
  )
    return `a ledger row cannot go from ${write.from} to ${write.set.status}`;
  if (write.do === "deliveries" && write.to === "reserved") {
    if (write.run === undefined) return "a reservation without its run";
    if (expect.deliveries?.status !== "pending") return "a reservation of what may not be pending";
  }
  return undefined;
}

function runProblem(from: RunState, set: RunPatch): string | undefined {
  const phase = set.phase ?? from.phase;
  const status = set.status ?? from.status;
  if (phase !== from.phase && !mayAdvance(from.kind, from.phase, phase))
    return `a ${from.kind} cannot go from ${from.phase} to ${phase}`;
  if ((phase === "committed") !== (status === "committed"))
    return "committed is a phase and a status at once";
  if (phase !== from.phase && from.status !== "active" && phase !== "mutated")
    return "a run that is not active advances only because its ledger row was settled";
  if (!isEnded(from.status)) return undefined;
  const fields = Object.keys(set).filter(
    (field) => !(MUTABLE_AFTER_END as readonly string[]).includes(field),
  );
  return fields.length > 0 ? `an ended run keeps its ${fields.join(", ")}` : undefined;
}

/** One Change for two consecutive steps of the same run: the second was decided on the outcome of the first. */
export function fuse(first: Change, second: Change): Change {
  const { run, ...expect } = second.expect;
  if (run && run.id !== first.expect.run?.id && !first.writes.some((one) => one.do === "run.create"))
    throw new Error("only steps of one run fuse");
  return {
    ...first,
    verb: `${first.verb}+${second.verb}`,
    expect: { ...expect, ...first.expect },
    writes: [...first.writes, ...second.writes],
  };
}

/** The run as it will be once the Change is applied: what the next step of the same loop decides on. */
export function after(run: Run, { writes, expect }: Change): Run {
  const next: Run & Record<string, unknown> = { ...run };
  let touched = expect.run?.id === run.id; // (A2)
  for (const write of writes) {
    if (write.do !== "run.set" || write.id !== run.id) continue;
    touched = true;
    const set: Record<string, unknown> = write.set;
    for (const field in set) next[field] = set[field] ?? undefined;
  }
  if (touched) next.revision = run.revision + 1;
  return next;
}

/** The host that a Change speaks for; a stale one writes nothing (08, 23). */
export interface Fence {
  incarnation: Incarnation;
  epoch: number;
}
