/**
 * Planted secrets, and where they may have got to. Written without the redactor's own code, so that it cannot share its
 * mistakes: text is decoded as far as it goes, and everything that could be base64 or hex in it as well.
 */
import { existsSync, readFileSync } from "node:fs";
import Sqlite from "better-sqlite3";

/** Enough of a canary to count as one, so that pieces count too. */
const PIECE = 12;

export class Canaries {
  readonly #values: string[];

  constructor(...values: string[]) {
    this.#values = values;
  }

  /** How each canary that is in there is written, or nothing. */
  in(text: string): string[] {
    const found: string[] = [];
    for (const [how, seen] of readings(text))
      for (const value of this.#values)
        for (let at = 0; at + PIECE <= value.length; at += 4)
          if (seen.includes(value.slice(at, at + PIECE))) {
            found.push(`${value.slice(0, 8)}… ${how}`);
            break;
          }
    return [...new Set(found)];
  }

  /** Every column of every table, and then the bytes of the file and of those beside it. */
  inDatabase(file: string): string[] {
    const db = new Sqlite(file, { readonly: true });
    const found: string[] = [];
    try {
      const tables = db
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")
        .pluck()
        .all() as string[];
      for (const table of tables)
        for (const row of db.prepare(`SELECT * FROM "${table}"`).all() as Record<string, unknown>[])
          for (const [column, value] of Object.entries(row))
            for (const how of this.in(String(value))) found.push(`${table}.${column}: ${how}`);
    } finally {
      db.close();
    }
    for (const one of [file, `${file}-wal`, `${file}-shm`])
      if (existsSync(one))
        for (const how of this.in(readFileSync(one, "latin1"))) found.push(`${one}: ${how}`);
    return [...new Set(found)];
  }
}

function* readings(text: string): Generator<[how: string, text: string]> {
  yield ["plain", text];
  const percent = text.replace(/%([0-9a-f]{2})/gi, (_, hex: string) =>
    String.fromCharCode(Number.parseInt(hex, 16)),
  );
  if (percent !== text) yield ["URL-encoded", percent];
  const escaped = text.replace(/\\u([0-9a-f]{4})|\\(["\\/])/gi, (_, hex: string | undefined, one: string) =>
    hex === undefined ? one : String.fromCharCode(Number.parseInt(hex, 16)),
  );
  if (escaped !== text) yield ["escaped", escaped];
  for (const seen of new Set([text, percent, escaped]))
    for (const [run] of seen.matchAll(/[A-Za-z0-9+/_-]{12,}/g)) {
      for (const offset of [0, 1, 2, 3])
        yield ["in base64", Buffer.from(run.slice(offset), "base64").toString("latin1")];
      if (/^[0-9a-f]+$/i.test(run))
        for (const offset of [0, 1])
          yield ["in hex", Buffer.from(run.slice(offset), "hex").toString("latin1")];
    }
}
