/** Statements prepared once and kept by their text; those built from a set of columns are kept by the set. */
import type { Database, Statement } from "better-sqlite3";
import { type Cell, type Columns, toCell } from "../rows.ts";

export class Statements {
  readonly #db: Database;
  readonly #known = new Map<string, Statement>();

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

  insert<Noun extends object>(
    table: string,
    columns: Columns<Noun>,
    noun: Noun,
    more: Record<string, Cell> = {},
  ): void {
    const key = `insert ${table}`;
    const extra = Object.keys(more);
    let statement = this.#known.get(key);
    if (!statement) {
      const names = [
        ...Object.values<readonly [string, string]>(columns).map(([column]) => column),
        ...extra,
      ];
      statement = this.#db.prepare(
        `INSERT INTO ${table} (${names.join(", ")}) VALUES (${names.map(() => "?").join(", ")})`,
      );
      this.#known.set(key, statement);
    }
    const cells: Cell[] = [];
    for (const field in columns) cells.push(toCell(noun[field], columns[field][1]));
    for (const column of extra) cells.push(more[column] as Cell);
    statement.run(cells);
  }

  /** Sets what `patch` names; `fixed` is SQL after it, `tail` its parameters. Returns the number of rows. */
  update<Noun extends object>(
    table: string,
    columns: Columns<Noun>,
    patch: Partial<Record<keyof Noun, unknown>>,
    fixed: string,
    tail: Cell[],
  ): number {
    const fields = Object.keys(patch) as (keyof Noun & string)[];
    const key = `update ${table} ${fields.join(",")} ${fixed}`;
    let statement = this.#known.get(key);
    if (!statement) {
      const sets = fields.map((field) => `${columns[field][0]} = ?`);
      statement = this.#db.prepare(`UPDATE ${table} SET ${[...sets, fixed].join(", ")}`);
      this.#known.set(key, statement);
    }
    const cells: Cell[] = fields.map((field) => toCell(patch[field], columns[field][1]));
    return statement.run([...cells, ...tail]).changes;
  }
}
