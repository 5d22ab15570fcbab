/** The mutation ledger as rows: decisions, the times that bytes left, and evidence. */
import type { MutationPatch, Write } from "../../core/change.ts";
import type { MutationId } from "../../core/ids.ts";
import type { Mutation } from "../../core/mutation.ts";
import { MUTATION_COLUMNS } from "../rows.ts";
import type { Statements } from "./statements.ts";

type LedgerWrite = Extract<
  Write,
  { do: "mutation.create" | "mutation.set" | "send.create" | "send.end" | "evidence" }
>;

/** The inputs behind what the run holds, at the moment of its decision: later it holds nothing any more. */
const CAUSES = `INSERT OR IGNORE INTO output_causes (mutation, input)
  SELECT ?, c.input FROM deliveries d JOIN causes c ON c.event = d.event
  WHERE d.reserved_by = ?+0 AND d.status = 'reserved'`;

export class Ledger {
  readonly #statements: Statements;
  readonly #newId: () => number;
  /** What a Change sets on a row that it also creates: written with the row. */
  readonly #patches = new Map<MutationId, MutationPatch>();

  constructor(statements: Statements, newId: () => number) {
    this.#statements = statements;
    this.#newId = newId;
  }

  begin(writes: readonly Write[]): void {
    this.#patches.clear();
    for (const write of writes)
      if (write.do === "mutation.create") this.#patches.set(write.mutation.id, {});
      else if (write.do === "mutation.set") {
        const patch = this.#patches.get(write.id);
        if (patch) Object.assign(patch, write.set);
      }
  }

  write(write: LedgerWrite, workflow: number, atMs: number): void {
    const statements = this.#statements;
    switch (write.do) {
      case "mutation.create": {
        const row = { ...write.mutation, ...this.#patches.get(write.mutation.id) } as Mutation;
        statements.insert("mutations", MUTATION_COLUMNS, row, "workflow", workflow);
        statements.sql(CAUSES).run(row.id, row.originRun);
        return;
      }
      case "mutation.set":
        if (this.#patches.has(write.id)) return;
        if (statements.update("mutations", MUTATION_COLUMNS, write.set, "WHERE id = ?", [write.id]) !== 1)
          throw new Error(`a Change for ledger row ${write.id}, which does not exist`);
        return;
      case "send.create": {
        const { n, atMs: sentAtMs, bytesHash, idempotencyKey } = write.send;
        statements
          .sql(
            "INSERT INTO sends (mutation, n, run, at, bytes_hash, idempotency_key) VALUES (?, ?, ?, ?, ?, ?)",
          )
          .run(write.mutation, n, write.run, sentAtMs, bytesHash, idempotencyKey);
        return;
      }
      case "send.end":
        statements
          .sql("UPDATE sends SET ended_at = ?, answer_json = ? WHERE mutation = ? AND n = ?")
          .run(write.endedAtMs, write.answer, write.mutation, write.n);
        return;
      case "evidence":
        statements
          .sql("INSERT INTO evidence (id, mutation, run, what, detail_json, at) VALUES (?, ?, ?, ?, ?, ?)")
          .run(this.#newId(), write.mutation, write.run, write.what, write.detail, atMs);
    }
  }
}
