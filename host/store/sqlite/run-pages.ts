/** Runs as people look at them: the list by filters, and one run with its chain, ledger, journal and logs. */
import type { EpochMs } from "../../core/ids.ts";
import type { Entry } from "../../core/journal.ts";
import type { Send } from "../../core/mutation.ts";
import type {
  Evidence,
  JournalRecord,
  LogRecord,
  Page,
  PageRequest,
  RunDetail,
  RunFilter,
  RunRecord,
} from "../../ports/records.ts";
import { type Cell, fromRow, MUTATION_COLUMNS, type Row, RUN_COLUMNS } from "../rows.ts";
import { causedByOf } from "./output-pages.ts";
import { given, keyOf, limitOf, pageOf, pageUpTo, SCANNED } from "./paging.ts";
import type { Statements } from "./statements.ts";

const NEWEST = Number.MAX_SAFE_INTEGER;

const NAMED =
  "SELECT r.*, w.name AS workflow_name, h.name AS handler_name FROM runs r JOIN workflows w ON w.id = r.workflow JOIN handlers h ON h.id = r.handler";

/**
 * Where candidates come from: the narrowest index that holds them in the order of their ids. A condition that must not
 * choose the index has a plus before its column.
 */
function sourceOf({ workflow, status, open }: RunFilter): string {
  if (workflow !== undefined && (open === true || status === "active"))
    return "runs WHERE workflow = @workflow+0 AND open = 1";
  if (workflow !== undefined) return "runs WHERE workflow = @workflow+0 AND +namespace = @namespace";
  if (status !== undefined && status !== "active" && status !== "committed")
    return "runs WHERE namespace = @namespace+0 AND status NOT IN ('active', 'committed')";
  return "runs WHERE namespace = @namespace+0";
}

const CONDITIONS: Record<keyof RunFilter, string> = {
  workflow: "workflow = @workflow",
  handler: "handler = @handler",
  status: "status = @status",
  phase: "phase = @phase",
  open: "open = @open",
  sinceMs: "created_at >= @sinceMs",
  error: "error_json ->> '$.code' = @error",
  input: "id IN (SELECT run FROM of_input)",
};

/** Brought it in, published because of it, worked on that, or changed something outside because of it. */
const OF_INPUT = `of_input (run) AS (
  SELECT run FROM inputs WHERE id = @input+0
  UNION SELECT e.run FROM causes c JOIN events e ON e.id = c.event WHERE c.input = @input+0
  UNION SELECT d.reserved_by FROM causes c JOIN deliveries d ON d.event = c.event WHERE c.input = @input+0
  UNION SELECT m.origin_run FROM output_causes o JOIN mutations m ON m.id = o.mutation WHERE o.input = @input+0
  UNION SELECT m.owner_run FROM output_causes o JOIN mutations m ON m.id = o.mutation WHERE o.input = @input+0)`;

const JOURNAL =
  "SELECT first, run, verb, at, entries_json FROM journal WHERE run = @run+0 AND first > @after+0 ORDER BY first LIMIT @limit+0";
const LOGS =
  "SELECT id, unit, lines_json, at FROM logs WHERE run = @run+0 AND id > @after+0 ORDER BY id LIMIT @limit+0";
const OWNED = "SELECT * FROM mutations WHERE owner_run = ?+0 ORDER BY id DESC LIMIT 1";
const EVIDENCE =
  "SELECT what, detail_json AS detail, run, at AS atMs FROM evidence WHERE mutation = ?+0 ORDER BY id LIMIT 200";
const EARLIER = `WITH RECURSIVE chain (id, retry_of) AS (
  SELECT id, retry_of FROM runs WHERE id = @id
  UNION ALL SELECT r.id, r.retry_of FROM chain c JOIN runs r ON r.id = c.retry_of LIMIT 200)
  SELECT id FROM chain`;
const LATER = `WITH RECURSIVE chain (id, successor) AS (
  SELECT id, successor FROM runs WHERE id = @id
  UNION ALL SELECT r.id, r.successor FROM chain c JOIN runs r ON r.id = c.successor LIMIT 200)
  SELECT id FROM chain`;

export class RunPages {
  readonly #statements: Statements;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  list(namespace: number, filter: RunFilter, page: PageRequest): Page<RunRecord> {
    const limit = limitOf(page);
    const before = keyOf("runs", page, NEWEST);
    const given = (Object.keys(filter) as (keyof RunFilter)[]).filter((field) => filter[field] !== undefined);
    const cells: Record<string, Cell> = { namespace, before, limit: limit + 1 };
    for (const field of given)
      cells[field] = field === "open" ? Number(filter.open) : (filter[field] as Cell);
    const candidates = `${sourceOf(filter)} AND id < @before+0 ORDER BY id DESC`;
    const where = ["namespace = @namespace", ...given.map((field) => CONDITIONS[field])].join(" AND ");
    const rows = this.#statements
      .sql(
        `${filter.input === undefined ? "" : `WITH ${OF_INPUT} `}${NAMED} WHERE r.id IN (SELECT id FROM (SELECT id, namespace, workflow, handler, status, phase, open, created_at${filter.error === undefined ? "" : ", error_json"} FROM ${candidates} LIMIT ${SCANNED}) WHERE ${where} LIMIT @limit+0) ORDER BY r.id DESC`,
      )
      .all(cells) as Row[];
    const found = pageOf("runs", rows, limit, "id", (row) => this.#withMutation(row));
    if (given.length === 0) return found;
    const stoppedAt = this.#statements
      .sql(`SELECT id FROM ${candidates} LIMIT 1 OFFSET ${SCANNED - 1}`)
      .pluck();
    return pageUpTo("runs", found, () => stoppedAt.get(cells) as number | undefined);
  }

  one(namespace: number, id: number): RunDetail | undefined {
    const row = this.#statements
      .sql(`${NAMED} WHERE r.id = @id AND r.namespace = @namespace`)
      .get({ id, namespace }) as Row | undefined;
    if (!row) return undefined;
    const chain = this.#chain(id);
    const mutation = this.#mutation(id, chain);
    return {
      ...recordOf(row),
      chain,
      ...(mutation ? { mutation } : {}),
      reserved: this.#statements
        .sql("SELECT id FROM deliveries WHERE reserved_by = ?+0 AND status = 'reserved'")
        .pluck()
        .all(id) as number[],
      transcripts: this.#statements
        .sql("SELECT unit FROM transcripts WHERE run = ?+0 ORDER BY unit")
        .pluck()
        .all(id) as string[],
    };
  }

  journal(namespace: number, run: number, page: PageRequest): Page<JournalRecord> {
    const limit = limitOf(page);
    const after = keyOf("journal", page, 0);
    if (!this.#isIn(namespace, run)) return { items: [] };
    const rows = this.#statements.sql(JOURNAL).all({ run, after, limit: limit + 1 }) as Row[];
    return pageOf("journal", rows, limit, "first", (row) => ({
      first: row["first"] as number,
      ...given<"run", number>("run", row["run"]),
      verb: row["verb"] as string,
      atMs: row["at"] as EpochMs,
      entries: JSON.parse(row["entries_json"] as string) as Entry[],
    }));
  }

  logs(namespace: number, run: number, page: PageRequest): Page<LogRecord> {
    const limit = limitOf(page);
    const after = keyOf("logs", page, 0);
    if (!this.#isIn(namespace, run)) return { items: [] };
    const rows = this.#statements.sql(LOGS).all({ run, after, limit: limit + 1 }) as Row[];
    return pageOf("logs", rows, limit, "id", (row) => ({
      unit: row["unit"] as string,
      lines: row["lines_json"] as string,
      atMs: row["at"] as EpochMs,
    }));
  }

  #withMutation(row: Row): RunRecord {
    const owned = this.#statements.sql(OWNED).get(row["id"] as number) as Row | undefined;
    if (!owned) return recordOf(row);
    const mutation = fromRow(owned, MUTATION_COLUMNS);
    return { ...recordOf(row), mutation: { ...mutation, evidence: this.#evidence(mutation.id) } };
  }

  #evidence(mutation: number): Evidence[] {
    return this.#statements.sql(EVIDENCE).all(mutation) as unknown as Evidence[];
  }

  #isIn(namespace: number, run: number): boolean {
    const found = this.#statements
      .sql("SELECT 1 FROM runs WHERE id = ? AND namespace = ?")
      .get(run, namespace);
    return found !== undefined;
  }

  #chain(id: number): RunDetail["chain"] {
    const ids = new Set(
      [EARLIER, LATER].flatMap((walk) => this.#statements.sql(walk).pluck().all({ id }) as number[]),
    );
    const attempt = this.#statements.sql(
      "SELECT id, attempt, phase, status, version, created_at, ended_at FROM runs WHERE id = ?",
    );
    return [...ids]
      .map((one) => fromRow(attempt.get(one) as Row, RUN_COLUMNS))
      .sort((a, b) => a.attempt - b.attempt || a.id - b.id);
  }

  /** The row it owns; else the one it made, which a later attempt may own by now. */
  #mutation(id: number, chain: RunDetail["chain"]): RunDetail["mutation"] {
    const owned = this.#statements.sql(OWNED);
    const own = owned.get(id) as Row | undefined;
    const row =
      own ??
      chain.map((one) => owned.get(one.id) as Row | undefined).find((one) => one?.["origin_run"] === id);
    if (!row) return undefined;
    const mutation = fromRow(row, MUTATION_COLUMNS);
    const history = this.#statements
      .sql(
        "SELECT n, at AS atMs, bytes_hash AS bytesHash, idempotency_key AS idempotencyKey, ended_at AS endedAtMs, answer_json AS answer FROM sends WHERE mutation = ?+0 ORDER BY n",
      )
      .all(mutation.id) as Row[];
    const evidence = this.#evidence(mutation.id);
    const causedBy = causedByOf(this.#statements, mutation.id);
    return { ...mutation, history: history.map(withoutNulls), evidence, causedBy };
  }
}

const recordOf = (row: Row): Omit<RunRecord, "mutation"> => ({
  run: fromRow(row, RUN_COLUMNS),
  workflow: row["workflow_name"] as string,
  handler: row["handler_name"] as string,
});

const withoutNulls = (row: Row): Send =>
  Object.fromEntries(Object.entries(row).filter(([, cell]) => cell !== null)) as unknown as Send;
