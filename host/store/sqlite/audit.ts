/** The audit: one chain per namespace, each row written in the transaction of what it tells. */
import { hash as cryptoHash } from "node:crypto";
import type { Write } from "../../core/change.ts";
import type { Cell, Row } from "../rows.ts";
import type { Statements } from "./statements.ts";

/** Each link covers the one before it, so that a changed or missing row shows. */
export function auditHash(previous: string, cells: readonly Cell[]): string {
  return cryptoHash("sha256", JSON.stringify([previous, ...cells]), "hex");
}

/** About a workflow, or about the namespace as a whole. */
export function writeAudit(
  statements: Statements,
  { actor, action, run, detail, note }: Omit<Extract<Write, { do: "audit" }>, "do">,
  of: { workflow?: number; namespace: number },
  atMs: number,
): void {
  const last = statements
    .sql("SELECT audit_seq, audit_hash FROM namespaces WHERE id = ?")
    .get(of.namespace) as Row;
  const seq = (last["audit_seq"] as number) + 1;
  const said: Cell[] = [atMs, actor, action, of.workflow ?? null, run ?? null, detail, note ?? null];
  // Half of a character is stored as another one: what is hashed is what will be read again.
  const cells = said.map((cell) => (typeof cell === "string" ? cell.toWellFormed() : cell));
  const link = auditHash(last["audit_hash"] as string, cells);
  statements
    .sql(
      "INSERT INTO audit (namespace, seq, at, actor, action, workflow, run, detail_json, note, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .run([of.namespace, seq, ...cells, link]);
  statements
    .sql("UPDATE namespaces SET audit_seq = ?, audit_hash = ? WHERE id = ?")
    .run([seq, link, of.namespace]);
}
