/** What was changed outside, and the inputs behind it, both directions; by index whichever way one comes. */
import {
  type InputFace,
  MAX_LIMIT,
  type OutputFilter,
  type OutputRecord,
  type Page,
  type PageRequest,
} from "../../ports/records.ts";
import { fromRow, MUTATION_COLUMNS, type Row } from "../rows.ts";
import { keyOf, limitOf, pageOf } from "./paging.ts";
import type { Statements } from "./statements.ts";

const NEWEST = Number.MAX_SAFE_INTEGER;

const NAMED =
  "SELECT m.*, h.name AS handler_name FROM mutations m JOIN runs r ON r.id = m.owner_run JOIN handlers h ON h.id = r.handler";
const OF_WORKFLOW = `${NAMED} WHERE m.workflow = @workflow+0 AND m.id < @before+0 AND r.namespace = @namespace
  ORDER BY m.id DESC LIMIT @limit+0`;
const IDS_OF_INPUT = `SELECT mutation FROM output_causes WHERE input = @input+0 AND mutation < @before+0
  ORDER BY mutation DESC LIMIT @limit+0`;
const ONE = `${NAMED} WHERE m.id = @id AND m.workflow = @workflow AND r.namespace = @namespace`;
const CAUSED_BY = `SELECT i.id, i.source, i.type, i.key, i.title FROM output_causes c CROSS JOIN inputs i ON i.id = c.input
  WHERE c.mutation = ?+0 ORDER BY c.input LIMIT ${MAX_LIMIT}`;

export function causedByOf(statements: Statements, mutation: number): InputFace[] {
  return statements.sql(CAUSED_BY).all(mutation) as unknown as InputFace[];
}

export class OutputPages {
  readonly #statements: Statements;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  list(
    namespace: number,
    workflow: number,
    page: PageRequest,
    { input }: OutputFilter = {},
  ): Page<OutputRecord> {
    const limit = limitOf(page);
    const before = keyOf("outputs", page, NEWEST);
    const cells = { namespace, workflow, before, limit: limit + 1 };
    if (input === undefined) {
      const rows = this.#statements.sql(OF_WORKFLOW).all(cells) as Row[];
      return pageOf("outputs", rows, limit, "id", (row) => this.#outputOf(row));
    }
    const ids = this.#statements
      .sql(IDS_OF_INPUT)
      .pluck()
      .all({ input, before, limit: limit + 1 }) as number[];
    const one = this.#statements.sql(ONE);
    const rows = ids.flatMap((id) => {
      const row = one.get({ id, namespace, workflow }) as Row | undefined;
      return row ? [row] : [];
    });
    return pageOf("outputs", rows, limit, "id", (row) => this.#outputOf(row));
  }

  #outputOf(row: Row): OutputRecord {
    const mutation = fromRow(row, MUTATION_COLUMNS);
    const causedBy = causedByOf(this.#statements, mutation.id);
    return { mutation, handler: row["handler_name"] as string, causedBy };
  }
}
