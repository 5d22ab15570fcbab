/**
 * A large database, quickly: three workflows are made by the real store (one idle with work waiting, one blocked, one
 * whose run was active when its host died), then copied as rows, many times over, with ids that interleave as they would
 * have if all had lived at once.
 */
import { join } from "node:path";
import Sqlite, { type Database } from "better-sqlite3";
import { openStore, type SqliteStore } from "../../host/store/open.ts";
import type { Cell, Row } from "../../host/store/rows.ts";
import { begin, deployed, MANIFEST, must, publish, wholeRun } from "./chain.ts";

export interface Scale {
  workflows: number;
  /** Of these, how many stand blocked, and how many were active when the host died. */
  blocked: number;
  active: number;
  /** Per workflow: events in all, and runs. */
  events: number;
  runs: number;
}

export interface Built {
  nowMs: number;
  counts: { workflows: number; events: number; deliveries: number; runs: number; journal: number };
}

const AT_MS = 1_000_000;
/** Where the pattern's ids begin: a number that nothing else in a row comes near, so that ids inside texts are known. */
const FIRST_ID = 5_000_000;

/** Which columns of which table hold ids; its own, or its owner's, comes first. */
const ID_COLUMNS: Record<string, readonly string[]> = {
  workflows: ["id", "open_run"],
  versions: ["workflow"],
  handlers: ["id", "workflow"],
  events: ["id", "workflow", "run"],
  deliveries: ["id", "event", "handler", "reserved_by", "released_by"],
  runs: ["id", "workflow", "handler", "root_id"],
  mutations: ["id", "workflow", "origin_run", "owner_run"],
  sends: ["mutation", "run"],
  journal: ["workflow", "run"],
  inbox: ["id", "workflow", "run", "handler"],
};

export async function buildScale(data: string, scale: Scale): Promise<Built> {
  const { workflows, blocked, active } = scale;
  const patterns: { from: number; to: number; copies: number }[] = [];
  await openStore({ data, nowMs: () => AT_MS })[Symbol.asyncDispose]();
  setNextId(data, FIRST_ID);
  {
    await using store = openStore({ data, nowMs: () => AT_MS });
    const makers = [
      { make: (): Promise<unknown> => idle(store, "idle", scale), copies: workflows - blocked - active },
      { make: (): Promise<unknown> => stopped(store, scale), copies: blocked },
      { make: (): Promise<unknown> => cutShort(store, scale), copies: active },
    ];
    for (const { make, copies } of makers) {
      const from = store.newId();
      await make();
      patterns.push({ from, to: store.newId(), copies: copies - 1 });
    }
  }
  const db = new Sqlite(join(data, "pawl.db"));
  for (const pragma of [
    "synchronous = OFF",
    "foreign_keys = OFF",
    "cache_size = -2000000",
    "wal_autocheckpoint = 50000",
  ])
    db.pragma(pragma);
  const restore = withoutIndexes(db);
  let next = 10_000_000;
  for (const { from, to, copies } of patterns) {
    for (const table of Object.keys(ID_COLUMNS)) copyRows(db, table, { from, to, copies, base: next });
    next += (to - from + 1) * copies;
  }
  restore();
  const count = (table: string): number =>
    db.prepare(`SELECT count(*) FROM ${table}`).pluck().get() as number;
  const counts = {
    workflows: count("workflows"),
    events: count("events"),
    deliveries: count("deliveries"),
    runs: count("runs"),
    journal: count("journal"),
  };
  db.pragma("wal_checkpoint(TRUNCATE)");
  db.close();
  setNextId(data, next + 1_000_000);
  return { nowMs: AT_MS + workflows, counts };
}

function setNextId(data: string, id: number): void {
  const db = new Sqlite(join(data, "pawl.db"));
  db.prepare("UPDATE meta SET value = ? WHERE key = 'next_id'").run(String(id));
  db.close();
}

async function idle(store: SqliteStore, name: string, { events, runs }: Scale): Promise<number> {
  const workflow = await deployed(store, name, AT_MS, { ...MANIFEST, producers: {} });
  const ids = Array.from({ length: events - runs }, (_, n) => `m${String(n).padStart(6, "0")}`);
  await publish(store, workflow, ids, AT_MS);
  for (let n = 0; n < runs; n++) await wholeRun(store, workflow, AT_MS);
  return workflow;
}

async function stopped(store: SqliteStore, scale: Scale): Promise<void> {
  const workflow = await idle(store, "blocked", { ...scale, runs: scale.runs - 1 });
  const { run } = await begin(store, workflow, AT_MS);
  await must(store, {
    verb: "fail",
    workflow,
    atMs: AT_MS,
    expect: { run: { id: run.id, revision: run.revision } },
    writes: [
      {
        do: "run.set",
        id: run.id,
        from: { kind: run.kind, phase: run.phase, status: run.status },
        set: {
          status: "failed:logic",
          endedAtMs: AT_MS,
          error: { class: "logic", code: "script-threw", message: "no" },
        },
      },
      { do: "unit.ended", run: run.id, units: "open", end: "failed" },
      { do: "inbox.open", id: store.newId(), kind: "script_error", run: run.id },
    ],
  });
}

async function cutShort(store: SqliteStore, scale: Scale): Promise<void> {
  const workflow = await idle(store, "active", { ...scale, runs: scale.runs - 1 });
  await begin(store, workflow, AT_MS);
}

/** Drops what would be kept up to date row by row; what comes back puts it back in one go. */
function withoutIndexes(db: Database): () => void {
  const made = db
    .prepare(
      "SELECT type, name, sql FROM sqlite_schema WHERE type IN ('index', 'trigger') AND sql IS NOT NULL",
    )
    .all() as { type: string; name: string; sql: string }[];
  for (const { type, name } of made) db.exec(`DROP ${type} ${name}`);
  return () => {
    for (const { sql } of made) db.exec(sql);
  };
}

interface Copying {
  /** Ids of the pattern: from … to. */
  from: number;
  to: number;
  copies: number;
  base: number;
}

/** An id of the pattern becomes `copies` ids side by side, so that rows of one age lie together, as they would. */
function copyRows(db: Database, table: string, copying: Copying): void {
  const { from, to, copies } = copying;
  if (copies <= 0) return;
  const [key = "id"] = ID_COLUMNS[table] ?? [];
  const rows = db.prepare(`SELECT * FROM ${table} WHERE ${key} BETWEEN ? AND ?`).all(from, to) as Row[];
  for (const row of rows) {
    const columns = Object.keys(row);
    const cells = columns.map((column) => copied(table, column, row[column] as Cell, copying));
    db.exec(
      `INSERT INTO ${table} (${columns.join(", ")})
       WITH RECURSIVE n (k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM n WHERE k < ${copies - 1})
       SELECT ${cells.join(", ")} FROM n`,
    );
  }
}

/** A cell of the pattern as SQL that gives the cell of its k-th copy. */
function copied(table: string, column: string, cell: Cell, { from, to, copies, base }: Copying): string {
  if (cell === null) return "NULL";
  const moved = (id: number): string => `(${base + (id - from) * copies} + k)`;
  if (typeof cell === "number") {
    if (ID_COLUMNS[table]?.includes(column)) return moved(cell);
    // Each falls due a millisecond after the one before.
    return column === "triggered_at" || column === "due_at" ? `${cell} + k` : String(cell);
  }
  const text = (part: string): string => `'${part.replaceAll("'", "''")}'`;
  if (table === "workflows" && column === "name") return `${text(`${cell}-`)} || k`;
  // Ids also stand inside texts: in the journal, in keys made of them.
  const parts: string[] = [];
  let plain = "";
  for (const part of cell.split(/(\d+)/)) {
    const id = Number(part);
    if (part === "" || !(id >= from && id <= to)) plain += part;
    else {
      parts.push(text(plain), moved(id));
      plain = "";
    }
  }
  return [...parts, text(plain)].join(" || ");
}
