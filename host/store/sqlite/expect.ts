/**
 * What a Change expects, compared with what is there, before anything is written. The run's revision is left to the
 * UPDATE that raises it; it is read here only to say which refusal comes first.
 */
import type { Change } from "../../core/change.ts";
import type { DeliveryId } from "../../core/ids.ts";
import type { Refused } from "../../ports/store.ts";
import type { Row } from "../rows.ts";
import type { WorkflowCursor } from "./cursors.ts";
import type { Statements } from "./statements.ts";

export function refusalOf(
  change: Change,
  cursor: WorkflowCursor,
  statements: Statements,
): Refused | undefined {
  const { workflowRevision, generation, run } = change.expect;
  if (workflowRevision !== undefined && workflowRevision !== cursor.revision) return no("stale-workflow");
  if (generation !== undefined && generation !== cursor.generation) return no("stale-workflow");
  const refused = rowRefusal(change, cursor, statements);
  if (!refused || !run) return refused;
  const revision = statements.sql("SELECT revision FROM runs WHERE id = ?").pluck().get(run.id);
  return revision === run.revision ? refused : no("stale-run");
}

function rowRefusal(
  { expect: { runIs, mutation, deliveries, handlerIdle, inboxOpen }, writes }: Change,
  cursor: WorkflowCursor,
  statements: Statements,
): Refused | undefined {
  if (runIs) {
    const status = statements.sql("SELECT status FROM runs WHERE id = ?").pluck().get(runIs.id);
    if (status !== runIs.status) return no("stale-run");
  }
  if (mutation) {
    const status = statements.sql("SELECT status FROM mutations WHERE id = ?").pluck().get(mutation.id);
    if (status !== mutation.status) return no("stale-row");
  }
  if (deliveries) {
    const gone = deliveries.ids.filter((id) => !isAsExpected(id, deliveries, statements));
    if (gone.length > 0) return { ok: false, because: "stale-deliveries", deliveries: gone };
  }
  if (inboxOpen !== undefined) {
    const open = statements
      .sql("SELECT 1 FROM inbox WHERE id = ? AND closed_at IS NULL")
      .pluck()
      .get(inboxOpen);
    if (open === undefined) return no("stale-row");
  }
  if (handlerIdle !== undefined && cursor.openRun !== null) {
    const open = statements.sql("SELECT handler FROM runs WHERE id = ?").pluck().get(cursor.openRun);
    if (open === handlerIdle) return no("not-idle");
  }
  if (cursor.openRun === null) return undefined;
  const opens = writes.some((write) => write.do === "run.create" && write.run.retryOf === undefined);
  return opens ? no("stale-workflow") : undefined;
}

function isAsExpected(
  id: DeliveryId,
  { status, reservedBy, handler }: NonNullable<Change["expect"]["deliveries"]>,
  statements: Statements,
): boolean {
  const row = statements.sql("SELECT status, reserved_by, handler FROM deliveries WHERE id = ?").get(id) as
    | Row
    | undefined;
  if (row?.["status"] !== status) return false;
  if (handler !== undefined && row["handler"] !== handler) return false;
  return reservedBy === undefined || row["reserved_by"] === reservedBy;
}

const no = (because: Refused["because"]): Refused => ({ ok: false, because });
