/** Statements prepared once and kept by their text; those built from a set of columns are kept by the set. */
import type { Database, Statement } from "better-sqlite3";
import { type Cell, type Columns, toCell } from "../rows.ts";

type Form = Parameters<typeof toCell>[1];

/** A statement with the fields it takes, in its order. */
interface Plan {
  statement: Statement;
  fields: readonly (readonly [field: string, form: Form])[];
}

export class Statements {
  readonly #db: Database;
  readonly #known = new Map<string, Statement>();
  readonly #inserts = new Map<string, Plan>();
  readonly #updates = new Map<string, Plan>();

  constructor(db: Database) {
    this.#db = db;
  }

  /** The statement for this text. */
  sql(text: string): Statement {
    let statement = this.#known.get(text);
    if (!statement) {
      statement = this.#db.prepare(text);
      this.#known.set(text, statement);
    }
    return statement;
  }

  /** `extra` is the one column that the noun itself does not know. */
  insert<Noun extends object>(
    table: string,
    columns: Columns<Noun>,
    noun: Noun,
    extra: string,
    value: Cell,
  ): void {
    let plan = this.#inserts.get(table);
    if (!plan) {
      const names = [...Object.values<readonly [string, Form]>(columns).map(([column]) => column), extra];
      const text = `INSERT INTO ${table} (${names.join(", ")}) VALUES (${names.map(() => "?").join(", ")})`;
      plan = this.#plan(text, Object.keys(columns), columns);
      this.#inserts.set(table, plan);
    }
    const cells = cellsOf(plan, noun as Record<string, unknown>);
    cells.push(value);
    plan.statement.run(cells);
  }

  /**
   * Sets what `patch` names. `fixed` is the SQL after that: further assignments, or at once `WHERE`; `tail` are its
   * parameters. Returns the number of rows.
   */
  update<Noun extends object>(
    table: string,
    columns: Columns<Noun>,
    patch: Partial<Record<keyof Noun, unknown>>,
    fixed: string,
    tail: readonly Cell[],
  ): number {
    let key = table;
    for (const field in patch) key += `,${field}`;
    let plan = this.#updates.get(key);
    if (!plan) {
      const fields = Object.keys(patch);
      const sets = fields.map((field) => `${columns[field as keyof Noun][0]} = ?`).join(", ");
      const joint = fields.length > 0 && !fixed.startsWith("WHERE") ? ", " : " ";
      plan = this.#plan(`UPDATE ${table} SET ${sets}${joint}${fixed}`, fields, columns);
      this.#updates.set(key, plan);
    }
    const cells = cellsOf(plan, patch as Record<string, unknown>);
    cells.push(...tail);
    return plan.statement.run(cells).changes;
  }

  #plan<Noun>(text: string, fields: readonly string[], columns: Columns<Noun>): Plan {
    return {
      statement: this.#db.prepare(text),
      fields: fields.map((field) => [field, columns[field as keyof Noun][1]] as const),
    };
  }
}

function cellsOf({ fields }: Plan, noun: Record<string, unknown>): Cell[] {
  const cells: Cell[] = [];
  for (const [field, form] of fields) cells.push(toCell(noun[field], form));
  return cells;
}
