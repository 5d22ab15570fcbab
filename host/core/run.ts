/**
 * The noun "run": one attempt of one handler (02 §2, §3). Owns the order of phases, what each status means, and the
 * only test for "is it past the boundary?".
 *
 * R1. A phase only moves forward, and only on success; a status change never moves it.
 * R2. An ended attempt is never rewritten, but for the fields of MUTABLE_AFTER_END.
 * R3. Past the boundary nothing but a person's forced close abandons the work.
 */
import type { ErrorClass } from "./errors.ts";
import type { EpochMs, HandlerId, Incarnation, RunId, WorkflowId } from "./ids.ts";
import type { Mutation } from "./mutation.ts";
import type { JsonText, Location } from "./workflow.ts";

export type Kind = "producer" | "consumer";

export type Phase =
  | "executing"
  | "preparing"
  | "prepared"
  | "mutating"
  | "mutated"
  | "emitting"
  | "committed";

const ORDER: Record<Phase, number> = {
  executing: 0,
  preparing: 0,
  prepared: 1,
  mutating: 2,
  mutated: 3,
  emitting: 4,
  committed: 5,
};

/** Producers know two phases, consumers the other six; `emitting` may skip the mutation (no reservations). */
export function mayAdvance(kind: Kind, from: Phase, to: Phase): boolean {
  if (kind === "producer") return from === "executing" && to === "committed";
  if (from === "executing" || to === "executing") return false;
  return ORDER[to] === ORDER[from] + 1 || (from === "prepared" && to === "emitting"); // (R1)
}

export type Status =
  | "active"
  | "paused:transient"
  | "paused:approval"
  | "paused:reconciliation"
  | "failed:logic"
  | "failed:internal"
  | "committed"
  | "crashed";

export type PauseReason =
  | "retrying"
  | "limited"
  | "breaker_open"
  | "retries_exhausted"
  | "deadline"
  | "approval"
  | "auth"
  | "permission"
  | "precondition"
  | "binding"
  | "step"
  | "checking"
  | "indeterminate"
  | "crash_loop";

const ENDED: readonly Status[] = [
  "paused:transient",
  "failed:logic",
  "failed:internal",
  "committed",
  "crashed",
];

/** The attempt is over; going on takes a new run. */
export function isEnded(status: Status): boolean {
  return ENDED.includes(status);
}

/** What may still change on an ended attempt (R2). */
export const MUTABLE_AFTER_END = [
  "open",
  "successor",
  "readyAtMs",
  "pauseReason",
  "deadlineAtMs",
  "revision",
  "resolution",
] as const;

/** What became of the run's one outside change. */
export type MutationOutcome = "none" | "applied" | "skipped" | "failed";

export interface RunError {
  class: ErrorClass;
  code: string;
  message: string;
  location?: Location;
  at?: string;
  frame?: string;
  tool?: string;
  evidence?: JsonText;
}

export type TriggerReason =
  | "due"
  | "event"
  | "more"
  | "wake"
  | "deploy"
  | "queued"
  | "woken"
  | "requeued"
  | "retry"
  | "recovery"
  | "decision";

export interface Trigger {
  reason: TriggerReason;
  atMs: EpochMs;
  /** Producers: the oldest and the newest point of the schedule that were due. */
  slot?: { firstDueMs: EpochMs; newestDueMs: EpochMs };
  /** A person or a deploy asked for it: an interval starts anew from here (1.2). */
  manual?: true;
}

export interface Resolution {
  by: string;
  action: string;
  atMs: EpochMs;
  note?: string;
  /** Call-time policy of a retry: for the chain from here on (04). */
  policy?: JsonText;
  /** Of the grant that a call was approved under: with another one the approval is void. */
  grantVersion?: number;
}

export interface Run {
  id: RunId;
  workflow: WorkflowId;
  version: number;
  handler: HandlerId;
  kind: Kind;
  trigger: Trigger;
  rootId: RunId;
  retryOf?: RunId;
  successor?: RunId;
  attempt: number;
  phase: Phase;
  status: Status;
  pauseReason?: PauseReason;
  open: boolean;
  /** A decision or an elapsed wait has made the chain ready; the scheduler claims it (3.3). */
  readyAtMs?: EpochMs;
  /** Automatic retries since the last commit, deploy or human act of the chain. */
  retries: number;
  /** Crashes in a row at `crashPhase`, this attempt's predecessors. */
  crashes: number;
  crashPhase?: Phase;
  /** Free redos of `prepare` because a person changed what it reserved (2.3). */
  redos: number;
  outcome?: MutationOutcome;
  prepared?: JsonText;
  result?: JsonText;
  error?: RunError;
  policy?: JsonText;
  /** The workflow's sequence when the run started at its first phase: what existed then. */
  startSeq: number;
  /** When the chain began, for schedules and deadlines. */
  chainStartedAtMs: EpochMs;
  createdAtMs: EpochMs;
  endedAtMs?: EpochMs;
  deadlineAtMs?: EpochMs;
  wakeAtMs?: EpochMs;
  resources?: JsonText;
  host: Incarnation;
  resolution?: Resolution;
  revision: number;
}

/** The script's unit that a phase belongs to, or waits for. */
export function unitAt(phase: Phase): "producer" | "prepare" | "mutate" | "next" {
  if (phase === "executing") return "producer";
  if (phase === "preparing") return "prepare";
  return phase === "prepared" || phase === "mutating" ? "mutate" : "next";
}

/** A person has allowed the call as it was shown (3.3). */
export function isApproved({ status, pauseReason, resolution }: Run): boolean {
  return status === "paused:approval" && pauseReason === "approval" && resolution?.action === "approve";
}

/** What a step starts from; the store trusts the revision, `assertChange` and the journal read this. */
export type RunState = Pick<Run, "kind" | "phase" | "status">;

/** The outside change is made, or a person has said to do without it (02 §3.2). */
export function isPastBoundary(mutation: Pick<Mutation, "status"> | undefined): boolean {
  return mutation?.status === "applied" || mutation?.status === "skipped";
}
