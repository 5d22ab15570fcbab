/**
 * Bindings and grants as rows: what a Change writes of them, for a deploy and for a person alike.
 *
 * B1. Binding an alias to another connection ends what was granted for the one before.
 * B2. A connection that is gone by now binds nothing; the run that needs it will say so.
 */
import type { Write } from "../../core/change.ts";
import type { Statements } from "./statements.ts";

export function writeAccess(
  statements: Statements,
  workflow: number,
  write: Extract<Write, { do: "bind" | "grant" }>,
  newId: () => number,
): void {
  const { alias, connection } = write;
  if (write.do === "grant") {
    statements
      .sql(
        `INSERT INTO grants (workflow, alias, connection, tool, mode, version) VALUES (?, ?, ?, ?, ?, ?)
         ON CONFLICT (workflow, alias, connection, tool) DO UPDATE SET mode = excluded.mode, version = excluded.version`,
      )
      .run(workflow, alias, connection, write.tool, write.mode, newId());
    return;
  }
  statements
    .sql(
      `INSERT INTO bindings (workflow, alias, connection) SELECT ?, ?, id FROM connections WHERE id = ?
       ON CONFLICT (workflow, alias) DO UPDATE SET connection = excluded.connection`,
    )
    .run(workflow, alias, connection); // (B2)
  statements
    .sql("DELETE FROM grants WHERE workflow = ? AND alias = ? AND connection <> ?")
    .run(workflow, alias, connection); // (B1)
}
