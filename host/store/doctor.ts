/**
 * Is this database in a state that the execution model allows? Reads only, one workflow at a time, so that it can look
 * at a database of any size; reports, never repairs. Whether the journal tells the same story is `verify.ts`.
 *
 * D1. A law that cannot be asked (a damaged page, text that is no JSON) is itself a finding.
 * D2. `due_at` is what the core says it is. The handler of an open run is left out: nobody looks at its time before
 *     that run has ended, and every ending writes it anew.
 */
import { createHash } from "node:crypto";
import type { Database } from "better-sqlite3";
import { handlerDueAt, workflowDueAt } from "../core/trigger.ts";
import { type Law, RUN_LAWS } from "./invariants.ts";
import { DEEP_LAWS, WORK_LAWS } from "./invariants-work.ts";
import { handlerFromRow, type Row } from "./rows.ts";
import { newPendingAt } from "./sqlite/handlers.ts";
import { Statements } from "./sqlite/statements.ts";

export interface Finding {
  /** Of the list of invariants; see `docs`. */
  invariant: number;
  message: string;
  rows: { table: string; id: number }[];
}

export interface Scope {
  /** Only this workflow; without it all of them, and what lies between them. */
  workflow?: number;
  /** Leaves out what reads whole payloads and journals. */
  quick?: boolean;
}

/** Rows named per law and workflow; a broken law tends to be broken often. */
const MOST_ROWS = 20;

export function inspect(db: Database, { workflow, quick = false }: Scope = {}): Finding[] {
  const doctor = doctorFor(db);
  if (workflow !== undefined) return doctor.workflow(workflow, quick);
  const findings = doctor.whole();
  for (const id of workflowIds(db)) findings.push(...doctor.workflow(id, quick));
  return findings;
}

/** In pages, because a statement that is being iterated blocks its connection. */
export function* workflowIds(db: Database): Generator<number> {
  const page = db.prepare("SELECT id FROM workflows WHERE id > ? ORDER BY id LIMIT 1000").pluck();
  for (let after = 0; ; ) {
    const ids = page.all(after) as number[];
    yield* ids;
    const last = ids.at(-1);
    if (last === undefined) return;
    after = last;
  }
}

const doctors = new WeakMap<Database, Doctor>();

function doctorFor(db: Database): Doctor {
  const found = doctors.get(db) ?? new Doctor(db);
  doctors.set(db, found);
  return found;
}

class Doctor {
  readonly #db: Database;
  readonly #statements: Statements;

  constructor(db: Database) {
    this.#db = db;
    this.#statements = new Statements(db);
  }

  workflow(id: number, quick: boolean): Finding[] {
    const findings = this.#laws(STATE_LAWS, id);
    findings.push(...this.#due(id));
    if (quick) return findings;
    return [...findings, ...this.#laws(DEEP_LAWS, id), ...this.#payloads(id)];
  }

  /** What belongs to no single workflow. */
  whole(): Finding[] {
    const findings: Finding[] = [];
    for (const problem of this.#db.pragma("integrity_check") as { integrity_check: string }[])
      if (problem.integrity_check !== "ok")
        findings.push({
          invariant: 30,
          message: `the file is damaged: ${problem.integrity_check}`,
          rows: [],
        });
    for (const row of this.#db.pragma("foreign_key_check") as {
      table: string;
      rowid: number;
      parent: string;
    }[])
      findings.push({
        invariant: 30,
        message: `a row of ${row.table} points to a row of ${row.parent} that is not there`,
        rows: row.rowid === null ? [] : [{ table: row.table, id: row.rowid }],
      });
    findings.push(...this.#laws(WHOLE_LAWS, 0));
    return findings;
  }

  /** All laws in one statement; if that cannot be run, each by itself, so that the culprit is named. */
  #laws(laws: readonly Law[], workflow: number): Finding[] {
    try {
      const rows = this.#statements.sql(questionOf(laws)).all({ workflow }) as LawRow[];
      return toFindings(laws, rows);
    } catch (error) {
      if (laws.length > 1) return laws.flatMap((law) => this.#laws([law], workflow));
      const { invariant, says, table } = laws[0] as Law;
      const why = (error as Error).message;
      return [
        { invariant, message: `cannot tell whether ${says} (${table} of ${workflow}): ${why}`, rows: [] },
      ]; // (D1)
    }
  }

  #due(id: number): Finding[] {
    const findings: Finding[] = [];
    const workflow = this.#statements
      .sql(
        `SELECT w.paused, w.archived, w.due_at, r.id AS run, r.status, r.ready_at, r.handler
         FROM workflows w LEFT JOIN runs r ON r.id = w.open_run WHERE w.id = ?`,
      )
      .get(id) as Row | undefined;
    if (!workflow) return findings;
    const handlers = this.#statements
      .sql(
        `SELECT h.*, ${newPendingAt("h.id", "h.seen_seq")} AS new_at FROM handlers h WHERE h.workflow = ?+0`,
      )
      .all(id) as Row[];
    for (const row of handlers) {
      if (row["id"] === workflow["handler"]) continue; // (D2)
      const dueAtMs = handlerDueAt(handlerFromRow(row, { hasMutate: false, hasNext: false })) ?? null;
      if (dueAtMs !== row["due_at"])
        findings.push(late("handlers", row["id"] as number, row["due_at"] as number | null, dueAtMs));
    }
    const times = handlers.map((row) => row["due_at"] as number | null).filter((at) => at !== null);
    const dueAtMs = workflowDueAt({
      paused: workflow["paused"] === 1,
      archived: workflow["archived"] === 1,
      ...(workflow["run"] === null ? {} : { openRun: openRun(workflow) }),
      ...(times.length > 0 ? { earliestHandlerDueMs: Math.min(...times) } : {}),
    });
    if ((dueAtMs ?? null) !== workflow["due_at"])
      findings.push(late("workflows", id, workflow["due_at"] as number | null, dueAtMs ?? null));
    return findings;
  }

  #payloads(workflow: number): Finding[] {
    const findings: Finding[] = [];
    const rows = this.#statements
      .sql("SELECT id, payload_json, payload_hash FROM events WHERE workflow = ?")
      .iterate(workflow) as Iterable<Row>;
    for (const row of rows) {
      if (row["payload_json"] === null) continue;
      const hash = createHash("sha256")
        .update(row["payload_json"] as string)
        .digest("base64url");
      if (hash === row["payload_hash"]) continue;
      const id = row["id"] as number;
      const message = `event ${id} does not have the payload that was published`;
      findings.push({ invariant: 12, message, rows: [{ table: "events", id }] });
    }
    return findings;
  }
}

const STATE_LAWS: readonly Law[] = [...RUN_LAWS, ...WORK_LAWS];
const questions = new WeakMap<readonly Law[], string>();

function questionOf(laws: readonly Law[]): string {
  const known = questions.get(laws);
  if (known !== undefined) return known;
  const union = laws
    .map((law, index) => `SELECT ${index} AS law, * FROM (${law.broken})`)
    .join(" UNION ALL ")
    // An expression on purpose: a bare parameter makes SQLite plan all of this anew on every call.
    .replaceAll("@workflow", "(@workflow+0)");
  questions.set(laws, union);
  return union;
}

type LawRow = { law: number; id: number; what: string };

function toFindings(laws: readonly Law[], rows: readonly LawRow[]): Finding[] {
  const findings = new Map<number, Finding>();
  for (const { law, id, what } of rows) {
    const { invariant, says, table } = laws[law] as Law;
    const finding = findings.get(law) ?? { invariant, message: `broken: ${says}:`, rows: [] };
    findings.set(law, finding);
    if (finding.rows.length >= MOST_ROWS) continue;
    finding.rows.push({ table, id });
    finding.message += ` ${table} ${id} (${what})`;
  }
  return [...findings.values()];
}

const openRun = (row: Row) => ({
  id: row["run"] as number,
  active: row["status"] === "active",
  ...(row["ready_at"] === null ? {} : { readyAtMs: row["ready_at"] as number }),
});

function late(table: string, id: number, stored: number | null, right: number | null): Finding {
  const said = `is due at ${right ?? "no time"}, stored is ${stored ?? "no time"}`;
  return { invariant: 17, message: `${table} ${id} ${said}`, rows: [{ table, id }] };
}

const WHOLE_LAWS: readonly Law[] = [
  {
    invariant: 24,
    says: "the audit of a namespace has no gap and ends where the namespace says",
    table: "namespaces",
    broken: `SELECT n.id, n.audit_seq || ' said, ' || count(a.seq) || ' there' AS what FROM namespaces n
      LEFT JOIN audit a ON a.namespace = n.id GROUP BY n.id
      HAVING count(a.seq) <> n.audit_seq OR coalesce(max(a.seq), 0) <> n.audit_seq`,
  },
  {
    invariant: 27,
    says: "an audit row about a workflow stands in its namespace",
    table: "workflows",
    broken: `SELECT w.id, 'audit ' || a.seq || ' of ' || a.namespace AS what FROM audit a JOIN workflows w ON w.id = a.workflow
      WHERE w.namespace <> a.namespace`,
  },
  {
    invariant: 31,
    says: "a journal belongs to a workflow",
    table: "workflows",
    broken: `SELECT DISTINCT j.workflow AS id, 'is not there' AS what FROM journal j
      WHERE NOT EXISTS (SELECT 1 FROM workflows w WHERE w.id = j.workflow)`,
  },
  {
    invariant: 30,
    says: "no id lies beyond those that were handed out",
    table: "meta",
    broken: `SELECT newest AS id, 'next is ' || coalesce(said, 'missing') AS what FROM (SELECT
        max(coalesce((SELECT max(id) FROM runs), 0), coalesce((SELECT max(id) FROM events), 0),
          coalesce((SELECT max(id) FROM deliveries), 0), coalesce((SELECT max(id) FROM mutations), 0),
          coalesce((SELECT max(incarnation) FROM hosts), 0)) AS newest,
        (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'next_id') AS said)
      WHERE newest > coalesce(said, 0)`,
  },
];
