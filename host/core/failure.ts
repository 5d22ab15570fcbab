/**
 * Error → class → status: the only classification table (02 §4). The class comes from the source of the error, never
 * from its text. What happens next is the class, the budget left, and the unit's policy.
 *
 * F1. Only what happened before the boundary can end a chain by policy; past it every failure waits or retries.
 * F2. A retry never begins after the chain's deadline.
 * F3. The host's own faults are a person's business: no retry, no policy.
 */
import type { InboxKind, UnitName } from "./change.ts";
import { type ErrorClass, unreachable } from "./errors.ts";
import type { EpochMs } from "./ids.ts";
import type { PauseReason, RunError, Status } from "./run.ts";

/** What of a policy decides about a failure; the rest of it lies with the engine. */
export interface FailurePolicy {
  maxRetries: number;
  retryOn: readonly string[];
  neverRetryOn: readonly string[];
  onFailure: "halt" | "skip" | "deadLetter";
}

export interface Failure {
  error: RunError;
  policy: FailurePolicy;
  /** What failed; a call counts as its `mutate`. */
  unit: UnitName;
  /** Automatic retries already made in this chain. */
  retries: number;
  /** Delay before the next attempt, by the policy's backoff; a server's own wish wins. */
  delayMs: number;
  retryAfterMs?: number;
  deadlineAtMs?: EpochMs;
  pastBoundary: boolean;
  /** Waiting for a limit or a breaker: costs no retry. */
  waiting?: "limited" | "breaker_open";
}

export type Verdict =
  | { to: "wait"; status: Status; reason: PauseReason; readyAtMs: EpochMs }
  | { to: "person"; status: Status; reason?: PauseReason; inbox: InboxKind }
  | { to: "skip"; status: Status }
  | { to: "deadLetter"; status: Status };

/** Another run took the sandbox process down, or the host put it away: redone at no cost. */
const FREE_CODES: readonly string[] = ["sandbox-lost", "sandbox-closed"];
const FREE_REASONS: readonly (PauseReason | undefined)[] = ["limited", "breaker_open"];

/** Going on after this wait uses up no retry. */
export function isFree(ended: { error?: Pick<RunError, "code">; pauseReason?: PauseReason }): boolean {
  return FREE_REASONS.includes(ended.pauseReason) || FREE_CODES.includes(ended.error?.code ?? "");
}

export function judge(failure: Failure, nowMs: EpochMs): Verdict {
  const { error, waiting } = failure;
  const held = needsPerson(error);
  if (held) return { to: "person", ...held };
  const readyAtMs = nowMs + Math.max(failure.delayMs, failure.retryAfterMs ?? 0);
  const may = waiting !== undefined || isFree({ error }) || mayRetry(failure);
  const late =
    failure.deadlineAtMs !== undefined && readyAtMs >= failure.deadlineAtMs && !failure.pastBoundary; // (F2)
  if (may && !late)
    return { to: "wait", status: "paused:transient", reason: waiting ?? "retrying", readyAtMs };
  const status = endStatus(error.class);
  const way = wayOut(failure);
  if (way !== "halt") return { to: way, status };
  if (status !== "paused:transient")
    return { to: "person", status, inbox: status === "failed:logic" ? "script_error" : "internal" };
  return { to: "person", status, reason: may ? "deadline" : "retries_exhausted", inbox: "retries_exhausted" };
}

function mayRetry({ error, policy, retries }: Failure): boolean {
  if (error.class === "internal") return false; // (F3)
  const named = (list: readonly string[]) => list.includes(error.class) || list.includes(error.code);
  return retries < policy.maxRetries && named(policy.retryOn) && !named(policy.neverRetryOn);
}

/** `onFailure`, where it means something for the unit (04): `next` only halts, and only a `mutate` has deliveries to bury. */
function wayOut({ policy, unit, pastBoundary, error }: Failure): FailurePolicy["onFailure"] {
  if (pastBoundary || unit === "next" || error.class === "internal") return "halt"; // (F1) (F3)
  return policy.onFailure === "deadLetter" && unit !== "mutate" ? "halt" : policy.onFailure;
}

function needsPerson(error: RunError): { status: Status; reason: PauseReason; inbox: InboxKind } | undefined {
  if (error.code === "not-bound") return { status: "paused:approval", reason: "binding", inbox: "binding" };
  switch (error.class) {
    case "auth":
      return { status: "paused:approval", reason: "auth", inbox: "reconnect" };
    case "permission":
      return { status: "paused:approval", reason: "permission", inbox: "permission" };
    case "precondition":
      return { status: "paused:approval", reason: "precondition", inbox: "precondition" };
    case "transient":
    case "logic":
    case "internal":
      return undefined;
    default:
      return unreachable(error.class);
  }
}

function endStatus(kind: ErrorClass): Status {
  if (kind === "logic") return "failed:logic";
  return kind === "internal" ? "failed:internal" : "paused:transient";
}
