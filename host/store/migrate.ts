/**
 * Brings a database to this program's schema. Migrations are plain SQL files, numbered, forward only; each runs in one
 * transaction together with the note that it ran, so a kill half-way leaves the one before.
 *
 * G1. A database that is newer than this program is refused, untouched.
 * G2. A released migration is never edited: its hash is on record and compared.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Database } from "better-sqlite3";
import { PawlError } from "../core/errors.ts";

interface Migration {
  number: number;
  name: string;
  sql: string;
  hash: string;
}

export function migrations(
  folder = fileURLToPath(new URL("../../migrations/sqlite", import.meta.url)),
): Migration[] {
  return readdirSync(folder)
    .filter((file) => file.endsWith(".sql"))
    .sort()
    .map((name, index) => {
      const number = Number.parseInt(name, 10);
      if (number !== index + 1) throw new Error(`${name}: migrations are numbered from 1 without gaps`);
      const sql = readFileSync(join(folder, name), "utf8");
      return { number, name, sql, hash: createHash("sha256").update(sql).digest("hex") };
    });
}

/** How many migrations the database has seen; throws if this program may not open it. Reads only. */
export function assertMigratable(db: Database, all: readonly Migration[]): number {
  const known = db.prepare("SELECT count(*) FROM sqlite_schema WHERE name = 'migrations'").pluck().get();
  if (known === 0) return 0;
  const done = db.prepare("SELECT number, name, hash FROM migrations ORDER BY number").all() as Migration[];
  const newest = done.at(-1);
  if (newest && newest.number > all.length)
    throw new PawlError(
      "store-newer",
      `the database has schema ${newest.number} (${newest.name}); this program knows ${all.length}`,
    ); // (G1)
  for (const { number, name, hash } of done)
    if (all[number - 1]?.hash !== hash)
      throw new PawlError(
        "store-migrated-differently",
        `${name} ran with other content than this program has`,
      ); // (G2)
  return done.length;
}

export function migrate(db: Database, all: readonly Migration[], nowMs: number): void {
  const done = assertMigratable(db, all);
  // A rebuild of a table with foreign keys on would delete the rows that point to it.
  db.pragma("foreign_keys = OFF");
  db.exec(
    "CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL, hash TEXT NOT NULL, at INTEGER NOT NULL) STRICT",
  );
  const note = db.prepare("INSERT INTO migrations (number, name, hash, at) VALUES (?, ?, ?, ?)");
  for (const { number, name, sql, hash } of all.slice(done))
    db.transaction(() => {
      db.exec(sql);
      note.run(number, name, hash, nowMs);
      const broken = db.pragma("foreign_key_check") as unknown[];
      if (broken.length > 0) throw new Error(`${name} left ${broken.length} rows that point nowhere`);
    }).immediate();
  db.pragma("foreign_keys = ON");
}
