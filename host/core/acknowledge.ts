/**
 * What a person has seen and lets rest: items that nothing else closes (05). And inputs that nothing has happened with for
 * a week, which raise such an item.
 *
 * N1. Only kinds that ask for no decision; the others close with their cause.
 * N2. Of two who acknowledge at once one is first, and is in the audit.
 */
import type { Change, InboxKind } from "./change.ts";
import type { WorkflowFacts } from "./facts.ts";
import type { EpochMs, InboxId, InputId, WorkflowId } from "./ids.ts";
import { type Operator, operation, type Refused } from "./operate.ts";

const ACKNOWLEDGED: readonly InboxKind[] = [
  "contradiction",
  "missed_schedule",
  "stale_input",
  "dead_letter",
  "orphaned",
];

/** Pending for longer: somebody should look. */
export const STALE_MS = 7 * 86_400_000;

export function acknowledge(
  workflow: WorkflowFacts,
  { id, kind }: { id: InboxId; kind: InboxKind },
  operator: Operator,
): Change | Refused {
  if (!ACKNOWLEDGED.includes(kind))
    return {
      refused: `an item of the kind ${kind} closes with its cause: decide about it`,
      code: "wrong_state",
    };
  const writes = [{ do: "inbox.close" as const, id }];
  const change = operation("acknowledge", workflow, operator, writes, { kind, item: id });
  return { ...change, expect: { inboxOpen: id } }; // (N2)
}

export interface StaleInput {
  workflow: WorkflowId;
  input: InputId;
  title: string;
  sinceMs: EpochMs;
}

export function stale(
  { workflow, input, title, sinceMs }: StaleInput,
  inbox: InboxId,
  atMs: EpochMs,
): Change {
  const detail = JSON.stringify({ input, title, sinceMs });
  const writes: Change["writes"] = [{ do: "inbox.open", id: inbox, kind: "stale_input", detail }];
  return { verb: "stale", workflow, atMs, expect: {}, writes };
}
