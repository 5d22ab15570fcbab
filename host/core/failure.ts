/**
 * Error → class → status: the only classification table (02 §4). The class comes from the source of the error, never
 * from its text. What happens next is the class, the budget left, and the unit's policy.
 *
 * F1. Only what happened before the boundary can end a chain by policy; past it every failure waits or retries.
 * F2. A retry never begins after the chain's deadline.
 */
import type { InboxKind } from "./change.ts";
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
  | { to: "wait"; status: Status; reason: PauseReason; readyAtMs: EpochMs; free: boolean }
  | { to: "person"; status: Status; reason?: PauseReason; inbox: InboxKind }
  | { to: "skip"; status: Status }
  | { to: "deadLetter"; status: Status };

export function judge(failure: Failure, nowMs: EpochMs): Verdict {
  const { error, policy } = failure;
  const held = needsPerson(error.class);
  if (held) return { to: "person", ...held };
  const readyAtMs = nowMs + Math.max(failure.delayMs, failure.retryAfterMs ?? 0);
  if (failure.waiting)
    return { to: "wait", status: "paused:transient", reason: failure.waiting, readyAtMs, free: true };
  const late =
    failure.deadlineAtMs !== undefined && readyAtMs >= failure.deadlineAtMs && !failure.pastBoundary;
  if (mayRetry(failure) && !late)
    return { to: "wait", status: "paused:transient", reason: "retrying", readyAtMs, free: false }; // (F2)
  const status = endStatus(error.class);
  if (!failure.pastBoundary && policy.onFailure !== "halt") return { to: policy.onFailure, status }; // (F1)
  if (status !== "paused:transient")
    return { to: "person", status, inbox: status === "failed:logic" ? "script_error" : "internal" };
  return {
    to: "person",
    status,
    reason: late && mayRetry(failure) ? "deadline" : "retries_exhausted",
    inbox: "retries_exhausted",
  };
}

function mayRetry({ error, policy, retries }: Failure): boolean {
  const named = (list: readonly string[]) => list.includes(error.class) || list.includes(error.code);
  return retries < policy.maxRetries && named(policy.retryOn) && !named(policy.neverRetryOn);
}

function needsPerson(
  kind: ErrorClass,
): { status: Status; reason: PauseReason; inbox: InboxKind } | undefined {
  switch (kind) {
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
      return unreachable(kind);
  }
}

function endStatus(kind: ErrorClass): Status {
  if (kind === "logic") return "failed:logic";
  return kind === "internal" ? "failed:internal" : "paused:transient";
}
