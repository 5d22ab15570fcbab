/**
 * A run and a workflow → the one sentence a person reads, and the one word beside it (02 §9). CLI, API and console share
 * it; none of them words a state by itself.
 *
 * P1. Needs attention = a question is open, and wins over Stopped. Retrying and checking are Running.
 * P2. A sentence says what is going on or who is waited for, never a phase.
 */
import { unreachable } from "./errors.ts";
import type { EpochMs } from "./ids.ts";
import type { Mutation } from "./mutation.ts";
import type { Run } from "./run.ts";

export type WorkflowStatus = "running" | "idle" | "needs_attention" | "stopped";

export interface RunView {
  run: Pick<Run, "phase" | "status" | "pauseReason" | "open" | "readyAtMs" | "successor" | "outcome"> &
    Pick<Run, "error" | "resolution">;
  mutation?: Pick<Mutation, "status" | "description" | "connection" | "alias" | "tool">;
}

export function runSentence(view: RunView, nowMs: EpochMs): string {
  const { run } = view;
  if (!run.open && run.status !== "committed") return endedSentence(run);
  if (run.status !== "active" && run.readyAtMs !== undefined && run.readyAtMs <= nowMs)
    return "Ready: goes on when its turn comes";
  switch (run.status) {
    case "active":
      return activeSentence(view);
    case "committed":
      return doneSentence(view);
    case "paused:transient":
      return transientSentence(run);
    case "paused:approval":
      return personSentence(view);
    case "paused:reconciliation":
      return unknownSentence(view);
    case "failed:logic":
      return `The script failed${place(run)}: ${why(run)}`;
    case "failed:internal":
      return `The host failed: ${why(run)}`;
    case "crashed":
      return run.pauseReason === "crash_loop"
        ? "Interrupted three times at the same place"
        : "Interrupted: made again when its turn comes";
    default:
      return unreachable(run.status);
  }
}

const ENDINGS: Record<string, string> = {
  close: "Closed",
  reject: "Rejected, its events given back",
  reset: "Given up because one of its events was skipped",
  archive: "Closed with its workflow",
  handler_removed: "Closed: the active version no longer has this handler",
  skip: "Given up by policy",
  deadLetter: "Given up by policy, its events set aside",
};

function endedSentence({ successor, resolution }: RunView["run"]): string {
  if (successor !== undefined) return "Made again as another run";
  const ending = ENDINGS[resolution?.action ?? ""] ?? "Ended";
  const by =
    resolution && resolution.by !== "policy" && resolution.by !== "host" ? ` by ${resolution.by}` : "";
  return `${ending}${by}`;
}

function activeSentence({ run, mutation }: RunView): string {
  switch (run.phase) {
    case "executing":
      return "Looking for something new";
    case "preparing":
      return "Choosing what to work on";
    case "prepared":
      return "Working out what to change";
    case "mutating":
      return mutation?.status === "in_flight"
        ? `Waiting for the answer: ${mutation.description}`
        : "About to make its outside change";
    case "mutated":
    case "emitting":
    case "committed":
      return "Publishing what follows";
    default:
      return unreachable(run.phase);
  }
}

function doneSentence({ run, mutation }: RunView): string {
  if (run.outcome === "applied" && mutation) return `Done: ${mutation.description}`;
  return run.outcome === "skipped" ? "Done, without its outside change" : "Done";
}

function transientSentence(run: RunView["run"]): string {
  const at = run.readyAtMs === undefined ? "" : ` at ${clock(run.readyAtMs)}`;
  const { pauseReason } = run;
  if (pauseReason === "limited") return `Waiting for a limit, goes on${at}`;
  if (pauseReason === "breaker_open") return `Waiting for a service that keeps failing, goes on${at}`;
  if (pauseReason === "retries_exhausted") return `Its retries are used up: ${why(run)}`;
  return pauseReason === "deadline" ? `Its time is up: ${why(run)}` : `Tries again${at}: ${why(run)}`;
}

function personSentence(view: RunView): string {
  const { run, mutation } = view;
  const { pauseReason } = run;
  if (pauseReason === "approval")
    return `Waiting for you to approve: ${mutation?.description ?? "an outside change"}`;
  if (pauseReason === "auth") return `Waiting for you to reconnect ${connectionOf(view)}`;
  if (pauseReason === "permission") return `Waiting for you to grant ${run.error?.tool ?? "a tool"}`;
  if (pauseReason === "binding") return `Waiting for you to choose a connection: ${why(run)}`;
  return pauseReason === "step" ? "Held: waiting for your step" : `Waiting for you: ${why(run)}`;
}

function unknownSentence(view: RunView): string {
  const what = view.mutation?.description ?? "its outside change";
  if (view.run.pauseReason === "checking") return `Checking whether it happened: ${what}`;
  if (view.run.pauseReason === "auth")
    return `Waiting for you to reconnect ${connectionOf(view)}, to check whether it happened: ${what}`;
  return `Waiting for you to say whether it happened: ${what}`;
}

function connectionOf({ run, mutation }: RunView): string {
  return mutation?.connection ?? run.error?.tool?.split(".")[0] ?? "a connection";
}

const why = ({ error }: RunView["run"]): string => error?.message ?? "no reason was recorded";

const place = ({ error }: RunView["run"]): string =>
  error?.location ? ` at line ${error.location.line}` : "";

/** "2026-01-02 03:04:05 UTC" */
const clock = (atMs: EpochMs): string => `${new Date(atMs).toISOString().slice(0, 19).replace("T", " ")} UTC`;

export interface WorkflowView {
  paused: boolean;
  archived: boolean;
  /** 0 before the first deploy. */
  activeVersion: number;
  open?: RunView;
  /** Open questions, oldest first. */
  questions: readonly string[];
  nextDueAtMs?: EpochMs;
}

export function workflowSentence(
  view: WorkflowView,
  nowMs: EpochMs,
): { status: WorkflowStatus; sentence: string } {
  const [question, ...more] = view.questions;
  if (question !== undefined)
    return {
      status: "needs_attention",
      sentence: more.length > 0 ? `${question} (and ${more.length} more)` : question,
    }; // (P1)
  if (view.archived) return { status: "stopped", sentence: "Archived" };
  if (view.paused) return pausedSentence(view, nowMs);
  if (view.open) return { status: "running", sentence: runSentence(view.open, nowMs) };
  if (view.activeVersion === 0) return { status: "idle", sentence: "Nothing is deployed yet" };
  if (view.nextDueAtMs === undefined) return { status: "idle", sentence: "Waiting for something new" };
  const sentence =
    view.nextDueAtMs <= nowMs ? "Starts when its turn comes" : `Next at ${clock(view.nextDueAtMs)}`;
  return { status: "idle", sentence };
}

function pausedSentence(
  { open }: WorkflowView,
  nowMs: EpochMs,
): { status: WorkflowStatus; sentence: string } {
  if (!open) return { status: "stopped", sentence: "Paused" };
  if (open.run.status === "active")
    return { status: "running", sentence: "Pausing: the current run finishes first" };
  return { status: "stopped", sentence: `Paused, with a run waiting. ${runSentence(open, nowMs)}` };
}
