/** A data folder as it lies on disk, examined without a host: opened read-only, beside a running host if need be. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import Sqlite from "better-sqlite3";
import { PawlError } from "../core/errors.ts";
import { type Finding, inspect } from "./doctor.ts";
import { assertMigratable, migrations } from "./migrate.ts";
import { DATABASE } from "./open.ts";
import { verify } from "./verify.ts";

/** `laws`: is the state allowed? `journal`: does the journal tell the same story as the tables? */
export function examine(data: string, what: "laws" | "journal"): Finding[] {
  const file = join(data, DATABASE);
  if (!existsSync(file)) throw new PawlError("store-unreadable", `there is no ${DATABASE} in ${data}`);
  let db: Sqlite.Database | undefined;
  try {
    db = new Sqlite(file, { readonly: true, timeout: 5_000 });
    assertMigratable(db, migrations());
    db.exec("BEGIN");
    return what === "laws" ? inspect(db) : verify(db);
  } catch (cause) {
    if (cause instanceof PawlError) throw cause;
    throw new PawlError("store-unreadable", `${file}: ${(cause as Error).message}`, { cause });
  } finally {
    db?.close();
  }
}
