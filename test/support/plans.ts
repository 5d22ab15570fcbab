/** Which statements a piece of work runs, and whether SQLite finds their rows by an index. */
import type { Database } from "better-sqlite3";

type Method = (...cells: unknown[]) => unknown;

/** The text of every statement that is read from while `work` runs. */
export async function statementsOf(db: Database, work: () => Promise<unknown>): Promise<string[]> {
  const texts = new Set<string>();
  const statement = Object.getPrototypeOf(db.prepare("SELECT 1")) as { get: Method; all: Method };
  const { get, all } = statement;
  const listen = (method: Method): Method =>
    function heard(this: { source: string }, ...cells) {
      texts.add(this.source);
      return method.apply(this, cells);
    };
  Object.assign(statement, { get: listen(get), all: listen(all) });
  try {
    await work();
  } finally {
    Object.assign(statement, { get, all });
  }
  return [...texts];
}

/** Steps of a plan that go through a table or sort what they found. The handlers of one workflow are few: they may. */
export function slowSteps(db: Database, text: string): string[] {
  const tables = db.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").pluck().all() as string[];
  return planOf(db, text).filter((step) => {
    // From one id on through the whole table is a scan by another name.
    if (/USING INTEGER PRIMARY KEY \(rowid[<>]/.test(step)) return true;
    if (step.includes("TEMP B-TREE")) return !/\bFROM handlers( h)? WHERE/.test(text);
    const scanned = /^SCAN ([\w-]+)/.exec(step)?.[1];
    if (scanned === undefined) return false;
    const named = Array.from(text.matchAll(new RegExp(`(\\w+) ${scanned}\\b`, "g")), ([, name]) => name);
    return [scanned, ...named].some((name) => name !== undefined && tables.includes(name));
  });
}

export function indexesOf(db: Database, text: string): string[] {
  return planOf(db, text).flatMap((step) => / INDEX (\w+)/.exec(step)?.[1] ?? []);
}

function planOf(db: Database, text: string): string[] {
  const named = Array.from(text.matchAll(/@(\w+)/g), ([, name]) => [name, 1] as const);
  const cells = named.length > 0 ? Object.fromEntries(named) : Array.from(text.matchAll(/\?/g), () => 1);
  const rows = db.prepare(`EXPLAIN QUERY PLAN ${text}`).all(cells) as { detail: string }[];
  return rows.map((row) => row.detail);
}
