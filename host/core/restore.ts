/**
 * A store came back from a backup → what may still be believed about one workflow (02 §7). What happened between the
 * backup and now is known outside and nowhere here.
 *
 * L1. Every workflow stands still until a person lets it go on, and is told what is missing.
 * L2. A call that may have left is checked, never repeated.
 * L3. No approval survives: what was allowed then is asked again.
 */
import type { Change, Write } from "./change.ts";
import { type RunFacts, stateOf, step, type WorkflowFacts } from "./facts.ts";
import type { EpochMs, InboxId } from "./ids.ts";
import { operation } from "./operate.ts";
import { recover } from "./recover.ts";
import type { Attempt } from "./start.ts";

export interface Restoring {
  /** When the backup was made; what came later is the gap. */
  backedUpAtMs: EpochMs;
  atMs: EpochMs;
  inbox: InboxId;
  /** For the run that takes an unknown outcome over. */
  attempt: Attempt;
}

/** The open run of a restored workflow, or `undefined` if it may stay as it is. */
export function restoreRun(facts: RunFacts, { atMs, inbox, attempt }: Restoring): Change | undefined {
  const { run } = facts;
  const error = { class: "internal" as const, code: "restored", message: "the store was restored" };
  if (run.status === "active") return recover(facts, { error, inbox, attempt, canCheck: true }, atMs); // (L2)
  const approved =
    run.status === "paused:approval" && run.pauseReason === "approval" && run.readyAtMs !== undefined;
  if (!approved) return undefined;
  return step("approval-void", facts, atMs, [
    { do: "run.set", id: run.id, from: stateOf(run), set: { readyAtMs: null, resolution: null } },
    { do: "inbox.open", id: inbox, kind: "approval", run: run.id }, // (L3)
  ]);
}

export function restoreWorkflow(
  workflow: WorkflowFacts,
  { backedUpAtMs, atMs, inbox }: Omit<Restoring, "attempt">,
): Change {
  const gap = { restored: true, fromMs: backedUpAtMs, toMs: atMs };
  const writes: Write[] = [
    { do: "workflow.set", set: { paused: true, ...(workflow.approvals ? { approvals: [] } : {}) } }, // (L3)
    { do: "inbox.open", id: inbox, kind: "missed_schedule", detail: JSON.stringify(gap) }, // (L1)
  ];
  return operation("restore", workflow, { by: "host", atMs }, writes, gap);
}
