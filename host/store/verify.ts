/**
 * Does the journal tell the same story as the tables? Replays it, workflow by workflow, and compares what comes out with
 * the rows (08, 31); walks the audit's chain of hashes, namespace by namespace (08, 24). Reads only. Whether the state
 * itself is allowed is `doctor.ts`.
 *
 * Y1. A journal is read row by row; at no time is more than one workflow's state in memory.
 * Y2. A pruned journal is replayed from the state that the pruning left; what it cannot know it does not judge.
 */
import type { Database } from "better-sqlite3";
import { type Entry, type RowFace, runFace, type RunFace } from "../core/journal.ts";
import type { Mutation } from "../core/mutation.ts";
import { type DeliveryFace, nothingYet, type Rebuilt, rebuild } from "../core/rebuild.ts";
import type { Run } from "../core/run.ts";
import { type Finding, workflowIds } from "./doctor.ts";
import { type Cell, fromRow, MUTATION_COLUMNS, type Row, RUN_COLUMNS } from "./rows.ts";
import { auditHash } from "./sqlite/audit.ts";
import { hash } from "./sqlite/records.ts";
import { Statements } from "./sqlite/statements.ts";

export function verify(db: Database, { workflow }: { workflow?: number } = {}): Finding[] {
  const findings: Finding[] = [];
  const read = new Statements(db);
  const narrowed = { workflow: workflow ?? null };
  const audited = new Map(
    read
      .sql(
        "SELECT workflow, count(*) FROM audit WHERE workflow IS NOT NULL AND (@workflow IS NULL OR workflow = @workflow) GROUP BY workflow",
      )
      .raw()
      .all(narrowed) as [number, number][],
  );
  for (const id of workflow === undefined ? workflowIds(db) : [workflow])
    findings.push(...verifyWorkflow(read, id, audited.get(id) ?? 0)); // (Y1)
  const namespaces = read
    .sql(
      "SELECT id, audit_seq, audit_hash FROM namespaces WHERE @workflow IS NULL OR id = (SELECT namespace FROM workflows WHERE id = @workflow)",
    )
    .all(narrowed) as Row[];
  for (const namespace of namespaces) findings.push(...verifyAudit(read, namespace));
  return findings;
}

/** What the journal says beyond what `rebuild` keeps: the last word on each of these. */
interface Told {
  pruned: boolean;
  states: Map<number, string | null>;
  events: Map<number, { revision: number; hash: string }>;
  sends: Map<number, number>;
  slots: Map<string, string>;
  decisions: number;
  version: number | undefined;
}

function verifyWorkflow(read: Statements, workflow: number, audited: number): Finding[] {
  const findings: Finding[] = [];
  const say = (message: string, table: string, id: number, invariant = 31) =>
    findings.push({ invariant, message: `workflow ${workflow}: ${message}`, rows: [{ table, id }] });
  const { rebuilt, told } = replay(read, workflow, say);
  for (const problem of rebuilt.problems)
    say(`the journal contradicts itself: ${problem}`, "workflows", workflow);
  compareRuns(read, workflow, rebuilt, say);
  compareDeliveries(read, workflow, rebuilt, say);
  compareRows(read, workflow, rebuilt, say);
  compareTold(read, workflow, told, audited, say);
  return findings;
}

type Say = (message: string, table: string, id: number, invariant?: number) => void;

function replay(read: Statements, workflow: number, say: Say): { rebuilt: Rebuilt; told: Told } {
  const rebuilt = nothingYet();
  const told: Told = {
    pruned: false,
    states: new Map(),
    events: new Map(),
    sends: new Map(),
    slots: new Map(),
    decisions: 0,
    version: undefined,
  };
  const rows = read
    .sql("SELECT first, count, entries_json FROM journal WHERE workflow = ?+0 ORDER BY first")
    .iterate(workflow) as Iterable<Row>;
  let next: number | undefined;
  for (const row of rows) {
    const first = row["first"] as number;
    const entries = entriesOf(row);
    if (entries === undefined || entries.length !== row["count"])
      say("the entries are damaged", "journal", first);
    if (next !== undefined && first !== next)
      say(`entries ${next} to ${first - 1} are missing`, "journal", first);
    next = first + (row["count"] as number);
    for (const entry of entries ?? []) {
      if (entry.kind === "journal.pruned") told.pruned = true; // (Y2)
      listen(told, entry);
    }
    try {
      rebuild(entries ?? [], rebuilt);
    } catch (error) {
      say(`the entries cannot be replayed: ${(error as Error).message}`, "journal", first);
    }
  }
  return { rebuilt, told };
}

function entriesOf(row: Row): Entry[] | undefined {
  try {
    const entries: unknown = JSON.parse(row["entries_json"] as string);
    return Array.isArray(entries) ? (entries as Entry[]) : undefined;
  } catch {
    return undefined;
  }
}

function listen(told: Told, entry: Entry): void {
  if (entry.kind === "state.set") told.states.set(entry.handler, entry.hash);
  if (entry.kind === "event.published")
    told.events.set(entry.event, { revision: entry.revision, hash: entry.hash });
  if (entry.kind === "mutation.sent") told.sends.set(entry.mutation, entry.n);
  if (entry.kind === "operator.acted") told.decisions++;
  if (entry.kind === "version.activated") told.version = entry.version;
  if (entry.kind === "schedule.slot")
    told.slots.set(
      `${entry.handler}/${entry.from}`,
      slotText(entry.to, entry.count, entry.fate, entry.run ?? null),
    );
}

const slotText = (to: number, count: number, fate: string, run: number | null): string =>
  `to ${to}, ${count} ${fate}${run === null ? "" : ` by ${run}`}`;

function compareRuns(read: Statements, workflow: number, { runs, pending }: Rebuilt, say: Say): void {
  const left = new Set(runs.keys());
  for (const row of each(read, "SELECT * FROM runs WHERE workflow = ?", workflow)) {
    // The journal knows nothing of these, and text that is no JSON is the doctor's to find.
    const run = fromRow<Run>(
      { ...row, error_json: null, resolution_json: null, trigger_json: null },
      RUN_COLUMNS,
    );
    const differences = different<RunFace>(runs.get(run.id), runFace(run, hash));
    if (differences) say(`run ${run.id} and its journal differ: ${differences}`, "runs", run.id);
    const units = pending.get(run.id);
    if (units && run.status !== "active")
      say(`run ${run.id} is ${run.status}, but ${units.join(", ")} never ended`, "runs", run.id);
    left.delete(run.id);
  }
  for (const id of left) say(`run ${id} is gone`, "runs", id);
}

function compareDeliveries(read: Statements, workflow: number, { deliveries }: Rebuilt, say: Say): void {
  const left = new Set(deliveries.keys());
  const sql = `SELECT d.id, d.event, d.handler, d.status, d.reserved_by, d.attempts
    FROM events e JOIN deliveries d ON d.event = e.id WHERE e.workflow = ?`;
  for (const row of each(read, sql, workflow)) {
    const id = row["id"] as number;
    const face = {
      event: row["event"],
      handler: row["handler"],
      status: row["status"],
      reservedBy: row["reserved_by"],
      attempts: row["attempts"],
    } as DeliveryFace;
    const differences = different(deliveries.get(id), face);
    if (differences) say(`delivery ${id} and its journal differ: ${differences}`, "deliveries", id);
    left.delete(id);
  }
  for (const id of left) say(`delivery ${id} is gone`, "deliveries", id);
}

function compareRows(read: Statements, workflow: number, { mutations }: Rebuilt, say: Say): void {
  const left = new Set(mutations.keys());
  for (const row of each(read, "SELECT * FROM mutations WHERE workflow = ?", workflow)) {
    const one = fromRow<Mutation>(row, MUTATION_COLUMNS);
    const face: RowFace = {
      originRun: one.originRun,
      ownerRun: one.ownerRun,
      status: one.status,
      sends: one.sends,
      args: hash(one.args),
      key: one.idempotencyKey,
      result: one.result === undefined ? null : hash(one.result),
    };
    const differences = different(mutations.get(one.id), face);
    if (differences) say(`ledger row ${one.id} and its journal differ: ${differences}`, "mutations", one.id);
    left.delete(one.id);
  }
  for (const id of left) say(`ledger row ${id} is gone`, "mutations", id);
}

function compareTold(read: Statements, workflow: number, told: Told, audited: number, say: Say): void {
  for (const row of each(read, "SELECT id, state_json FROM handlers WHERE workflow = ?", workflow)) {
    const id = row["id"] as number;
    const state = row["state_json"] === null ? null : hash(row["state_json"] as string);
    if (told.states.has(id) ? told.states.get(id) !== state : state !== null && !told.pruned)
      say(`handler ${id} does not have the state that was committed`, "handlers", id, 16);
  }
  compareEvents(read, workflow, told, say);
  for (const [id, n] of told.sends) {
    const sent = read.sql("SELECT count(*) FROM sends WHERE mutation = ?").pluck().get(id);
    if (sent !== n)
      say(`ledger row ${id} was sent ${n} times, ${String(sent)} are on record`, "mutations", id, 8);
  }
  compareSlots(read, workflow, told, say);
  const row = read.sql("SELECT active_version FROM workflows WHERE id = ?").get(workflow) as Row;
  if (told.version !== undefined && told.version !== row["active_version"])
    say(`version ${told.version} was activated, not ${row["active_version"]}`, "workflows", workflow);
  if (!told.pruned && audited !== told.decisions)
    say(`${told.decisions} decisions, ${audited} audit rows`, "workflows", workflow, 24);
}

function compareEvents(read: Statements, workflow: number, { events, pruned }: Told, say: Say): void {
  const left = new Set(events.keys());
  for (const row of each(
    read,
    "SELECT id, revision, payload_json FROM events WHERE workflow = ?",
    workflow,
  )) {
    const id = row["id"] as number;
    const one = events.get(id);
    left.delete(id);
    if (!one) {
      if (!pruned) say(`event ${id} was never published`, "events", id, 12);
      continue;
    }
    const payload = row["payload_json"] as string | null;
    if (one.revision !== row["revision"] || (payload !== null && hash(payload) !== one.hash))
      say(`event ${id} is not what was published`, "events", id, 12);
  }
  for (const id of left) say(`event ${id} is gone`, "events", id, 12);
}

function compareSlots(read: Statements, workflow: number, { slots, pruned }: Told, say: Say): void {
  const left = new Set(slots.keys());
  const sql = "SELECT s.* FROM handlers h JOIN slots s ON s.handler = h.id WHERE h.workflow = ?";
  for (const row of each(read, sql, workflow)) {
    const key = `${row["handler"]}/${row["from_at"]}`;
    left.delete(key);
    const said = slots.get(key);
    const [to, count, run] = [row["to_at"] as number, row["count"] as number, row["run"] as number | null];
    const is = slotText(to, count, row["fate"] as string, run);
    if (said === undefined ? !pruned : said !== is)
      say(
        `slot ${row["from_at"]} was ${said ?? "never decided"}, not ${is}`,
        "handlers",
        row["handler"] as number,
        19,
      );
  }
  for (const key of left) say(`slot ${key} is gone`, "handlers", Number(key.split("/")[0]), 19);
}

function verifyAudit(read: Statements, namespace: Row): Finding[] {
  const findings: Finding[] = [];
  const id = namespace["id"] as number;
  const say = (message: string) =>
    findings.push({
      invariant: 24,
      message: `audit of namespace ${id}: ${message}`,
      rows: [{ table: "namespaces", id }],
    });
  let seq = 0;
  let link = "";
  for (const row of each(read, "SELECT * FROM audit WHERE namespace = ?+0 ORDER BY seq", id)) {
    seq++;
    if (row["seq"] !== seq) say(`row ${seq} is missing`);
    seq = row["seq"] as number;
    const columns = ["at", "actor", "action", "workflow", "run", "detail_json", "note"];
    link = auditHash(
      link,
      columns.map((column) => row[column] as Cell),
    );
    if (link !== row["hash"]) say(`row ${seq} was changed, or one before it is missing`);
    link = row["hash"] as string;
  }
  if (seq !== namespace["audit_seq"] || link !== namespace["audit_hash"])
    say("the last row is not the last one written");
  return findings;
}

const each = (read: Statements, sql: string, id: number): Iterable<Row> =>
  read.sql(sql).iterate(id) as Iterable<Row>;

function different<Face extends object>(journal: Face | undefined, table: Face): string | undefined {
  if (!journal) return "the journal never made it";
  const fields = (Object.keys(table) as (keyof Face & string)[]).filter(
    (field) => journal[field] !== table[field],
  );
  if (fields.length === 0) return undefined;
  return fields
    .map((field) => `${field} ${String(journal[field])} became ${String(table[field])}`)
    .join(", ");
}
