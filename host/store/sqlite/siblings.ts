/** Workflows and their events as their siblings look them up, each by one unique index. */
import type { Database } from "better-sqlite3";
import type { WorkflowId } from "../../core/ids.ts";
import type { JsonText } from "../../core/workflow.ts";
import type { Siblings } from "../../ports/siblings.ts";
import { Statements } from "./statements.ts";

const SIBLING =
  "SELECT id FROM workflows WHERE namespace = (SELECT namespace FROM workflows WHERE id = ?) AND name = ?";
const PAYLOAD =
  "SELECT payload_json AS payload FROM events WHERE workflow = ? AND topic = ? AND message_id = ?";

export class SqliteSiblings implements Siblings {
  readonly #statements: Statements;

  constructor(db: Database) {
    this.#statements = new Statements(db);
  }

  async sibling(of: WorkflowId, name: string): Promise<WorkflowId | undefined> {
    return this.#statements.sql(SIBLING).pluck().get(of, name) as WorkflowId | undefined;
  }

  async payload(
    workflow: WorkflowId,
    topic: string,
    messageId: string,
  ): Promise<{ payload: JsonText | null } | undefined> {
    return this.#statements.sql(PAYLOAD).get(workflow, topic, messageId) as
      | { payload: JsonText | null }
      | undefined;
  }
}
