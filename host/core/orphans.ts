/** Deliveries whose consumer the active version lacks: nothing runs for them until a person says what becomes of them (02 §1.10). */
import type { Change, Write } from "./change.ts";
import type { HandlerFacts, WorkflowFacts } from "./facts.ts";
import { type Operator, operation, type Refused } from "./operate.ts";

/** Kept without asking again, skipped, or given to another consumer. */
export function settleOrphans(
  workflow: WorkflowFacts,
  consumer: HandlerFacts,
  action: "keep" | "skip" | { moveTo: string },
  operator: Operator,
): Change | Refused {
  if (!consumer.orphaned || consumer.kind !== "consumer")
    return { refused: `${consumer.name} is not a consumer that is gone`, code: "wrong_state" };
  const writes: Write[] = [];
  if (action === "skip") writes.push({ do: "orphans.skip", handler: consumer.id });
  if (typeof action === "object") {
    const to = workflow.handlers.find(
      (one) => one.kind === "consumer" && !one.orphaned && one.name === action.moveTo,
    );
    if (!to) return { refused: `the active version has no consumer ${action.moveTo}`, code: "wrong_state" };
    writes.push({ do: "orphans.move", from: consumer.id, to: to.id });
  }
  writes.push({ do: "inbox.close", kind: "orphaned", handler: consumer.id });
  return operation("orphans", workflow, operator, writes, { consumer: consumer.name, action });
}
