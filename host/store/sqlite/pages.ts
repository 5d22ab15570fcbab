/** The lists and pages of `ports/records.ts` on SQLite. Every statement runs by an index; a test asks for its plan. */
import type { Database } from "better-sqlite3";
import type { StandingApproval } from "../../core/approval.ts";
import type { InboxKind } from "../../core/change.ts";
import type { Kind, Run, Status } from "../../core/run.ts";
import type { SlotRange } from "../../core/slots.ts";
import type { Manifest } from "../../core/workflow.ts";
import {
  type AuditRecord,
  COUNTED,
  type EventFilter,
  type EventRecord,
  type HandlerRecord,
  type InboxRecord,
  type InputDetail,
  type InputRecord,
  type JournalRecord,
  type LogRecord,
  MAX_LIMIT,
  type OutputFilter,
  type OutputRecord,
  type Page,
  type PageRequest,
  type Records,
  type RunDetail,
  type RunFilter,
  type RunRecord,
  type SlotRecord,
  type TopicRecord,
  type VersionRecord,
  type WorkflowRecord,
} from "../../ports/records.ts";
import { type Cell, fromRow, type Row, RUN_COLUMNS } from "../rows.ts";
import { EventPages } from "./event-pages.ts";
import { given, keyOf, limitOf, pageOf, pageUpTo, SCANNED } from "./paging.ts";
import { OutputPages } from "./output-pages.ts";
import { RunPages } from "./run-pages.ts";
import { Statements } from "./statements.ts";

const NEWEST = Number.MAX_SAFE_INTEGER;
const RECENT = 20;

const VERSIONS =
  "SELECT number, hash, language, scope, note, created_at FROM versions WHERE workflow = @workflow+0 AND number < @before+0 ORDER BY number DESC LIMIT @limit+0";
const SLOTS =
  "SELECT * FROM slots WHERE handler = @handler+0 AND from_at < @before+0 ORDER BY from_at DESC LIMIT @limit+0";
const AUDIT =
  "SELECT * FROM audit WHERE namespace = @namespace+0 AND seq < @before+0 ORDER BY seq DESC LIMIT @limit+0";
/** A first upload that was refused has left nothing but its name. */
const DEPLOYED = "(w.active_version > 0 OR EXISTS (SELECT 1 FROM versions v WHERE v.workflow = w.id))";
const WORKFLOWS = `SELECT * FROM workflows w WHERE namespace = @namespace+0 AND name > @after||'' AND ${DEPLOYED} ORDER BY name`;
const OPEN_INBOX =
  "SELECT * FROM inbox WHERE namespace = @namespace+0 AND closed_at IS NULL AND id > @after+0 ORDER BY id";
const RUN_FACE = "SELECT id, status, phase, pause_reason, created_at, ended_at FROM runs";

export class Pages implements Records {
  readonly #statements: Statements;
  readonly #runs: RunPages;
  readonly #events: EventPages;
  readonly #outputs: OutputPages;

  constructor(db: Database) {
    this.#statements = new Statements(db);
    this.#runs = new RunPages(this.#statements);
    this.#events = new EventPages(this.#statements);
    this.#outputs = new OutputPages(this.#statements);
  }

  async namespace(name: string): Promise<number | undefined> {
    return this.#one<number>("SELECT id FROM namespaces WHERE name = ?", name);
  }
  async nameOf(workflow: number): Promise<{ namespace: string; name: string } | undefined> {
    return this.#statements
      .sql(
        "SELECT n.name AS namespace, w.name FROM workflows w JOIN namespaces n ON n.id = w.namespace WHERE w.id = ?",
      )
      .get(workflow) as { namespace: string; name: string } | undefined;
  }
  async staleInputs(workflow: number): Promise<number> {
    return this.#count(
      "SELECT 1 FROM inbox WHERE workflow = ?+0 AND kind = 'stale_input' AND closed_at IS NULL",
      workflow,
    );
  }
  async workflowNamed(namespace: number, name: string): Promise<number | undefined> {
    return this.#one<number>("SELECT id FROM workflows WHERE namespace = ? AND name = ?", namespace, name);
  }

  async runs(namespace: number, filter: RunFilter, page: PageRequest): Promise<Page<RunRecord>> {
    return this.#runs.list(namespace, filter, page);
  }
  async run(namespace: number, id: number): Promise<RunDetail | undefined> {
    return this.#runs.one(namespace, id);
  }
  async journal(namespace: number, run: number, page: PageRequest): Promise<Page<JournalRecord>> {
    return this.#runs.journal(namespace, run, page);
  }
  async logs(namespace: number, run: number, page: PageRequest): Promise<Page<LogRecord>> {
    return this.#runs.logs(namespace, run, page);
  }
  async outputs(
    namespace: number,
    workflow: number,
    page: PageRequest,
    filter?: OutputFilter,
  ): Promise<Page<OutputRecord>> {
    return this.#outputs.list(namespace, workflow, page, filter);
  }

  async workflows(
    namespace: number,
    { archived, sinceMs }: { archived: boolean; sinceMs: number },
    page: PageRequest,
  ): Promise<Page<WorkflowRecord>> {
    const limit = limitOf(page);
    const cells = {
      namespace,
      after: keyOf("workflows", page, ""),
      limit: limit + 1,
      archived: archived ? 1 : 0,
    };
    const rows = this.#all(
      `SELECT * FROM (${WORKFLOWS} LIMIT ${SCANNED}) WHERE archived = @archived LIMIT @limit+0`,
      cells,
    );
    const found = pageOf("workflows", rows, limit, "name", (row) => this.#workflowOf(row, sinceMs));
    const stopped = (): Row | undefined => this.#all(`${WORKFLOWS} LIMIT 1 OFFSET ${SCANNED - 1}`, cells)[0];
    return pageUpTo("workflows", found, () => stopped()?.["name"]);
  }

  async workflow(
    namespace: number,
    id: number,
    { sinceMs }: { sinceMs: number },
  ): Promise<WorkflowRecord | undefined> {
    const row = this.#workflowRow(namespace, id);
    return row && this.#workflowOf(row, sinceMs);
  }

  async handlers(namespace: number, workflow: number): Promise<HandlerRecord[]> {
    const owner = this.#workflowRow(namespace, workflow);
    if (!owner) return [];
    const manifest = this.#manifest(owner);
    const rows = this.#all("SELECT * FROM handlers WHERE workflow = @workflow+0 ORDER BY ord, id", {
      workflow,
    });
    return rows.map((row) => this.#handlerOf(row, manifest));
  }

  async versions(namespace: number, workflow: number, page: PageRequest): Promise<Page<VersionRecord>> {
    const limit = limitOf(page);
    const before = keyOf("versions", page, NEWEST);
    if (!this.#workflowRow(namespace, workflow)) return { items: [] };
    const rows = this.#all(VERSIONS, { workflow, before, limit: limit + 1 });
    return pageOf("versions", rows, limit, "number", (row) => ({
      number: row["number"] as number,
      hash: row["hash"] as string,
      language: row["language"] as VersionRecord["language"],
      scope: row["scope"] as VersionRecord["scope"],
      ...given<"note", string>("note", row["note"]),
      createdAtMs: row["created_at"] as number,
    }));
  }

  async slots(namespace: number, handler: number, page: PageRequest): Promise<Page<SlotRecord>> {
    const limit = limitOf(page);
    const before = keyOf("slots", page, NEWEST);
    const workflow = this.#one<number>("SELECT workflow FROM handlers WHERE id = ?", handler);
    if (workflow === undefined || !this.#workflowRow(namespace, workflow)) return { items: [] };
    const rows = this.#all(SLOTS, { handler, before, limit: limit + 1 });
    return pageOf("slots", rows, limit, "from_at", (row) => ({
      handler,
      fromMs: row["from_at"] as number,
      toMs: row["to_at"] as number,
      count: row["count"] as number,
      ...(row["count_is_floor"] === 1 ? { countIsFloor: true as const } : {}),
      fate: row["fate"] as SlotRange["fate"],
      ...given<"run", number>("run", row["run"]),
      ...given<"why", string>("why", row["why"]),
    }));
  }

  async topics(namespace: number, workflow: number): Promise<TopicRecord[]> {
    const owner = this.#workflowRow(namespace, workflow);
    return owner ? this.#events.topics(workflow, this.#manifest(owner)) : [];
  }

  async events(
    namespace: number,
    workflow: number,
    topic: string,
    filter: EventFilter,
    page: PageRequest,
  ): Promise<Page<EventRecord>> {
    if (!this.#workflowRow(namespace, workflow)) return { items: [] };
    return this.#events.events(workflow, topic, filter, page);
  }

  async inputs(namespace: number, workflow: number, page: PageRequest): Promise<Page<InputRecord>> {
    return this.#workflowRow(namespace, workflow) ? this.#events.inputs(workflow, page) : { items: [] };
  }

  async input(namespace: number, id: number): Promise<InputDetail | undefined> {
    const found = this.#events.input(id);
    if (!found || !this.#workflowRow(namespace, found.workflow)) return undefined;
    const page = this.#outputs.list(namespace, found.workflow, { limit: MAX_LIMIT }, { input: id });
    return { ...found.record, workflow: found.workflow, outputs: page.items };
  }

  async inbox(
    namespace: number,
    { kind }: { kind?: InboxKind },
    page: PageRequest,
  ): Promise<Page<InboxRecord>> {
    const limit = limitOf(page);
    const cells = { namespace, after: keyOf("inbox", page, 0), limit: limit + 1, kind: kind ?? null };
    const rows = this.#all(
      `SELECT i.*, w.name AS workflow_name, h.name AS handler_name
       FROM (SELECT * FROM (${OPEN_INBOX} LIMIT ${SCANNED}) WHERE @kind IS NULL OR kind = @kind LIMIT @limit+0) i
       JOIN workflows w ON w.id = i.workflow LEFT JOIN handlers h ON h.id = i.handler`,
      cells,
    );
    const found = pageOf("inbox", rows, limit, "id", inboxOf);
    const stopped = (): Row | undefined => this.#all(`${OPEN_INBOX} LIMIT 1 OFFSET ${SCANNED - 1}`, cells)[0];
    return pageUpTo("inbox", found, () => stopped()?.["id"]);
  }

  async questions(workflow: number): Promise<InboxRecord[]> {
    const rows = this.#all(
      `SELECT i.*, w.name AS workflow_name, h.name AS handler_name
       FROM (SELECT * FROM inbox WHERE workflow = @workflow+0 AND closed_at IS NULL ORDER BY id LIMIT ${MAX_LIMIT}) i
       JOIN workflows w ON w.id = i.workflow LEFT JOIN handlers h ON h.id = i.handler ORDER BY i.id`,
      { workflow },
    );
    return rows.map(inboxOf);
  }

  async inboxItem(namespace: number, id: number): Promise<InboxRecord | undefined> {
    const row = this.#all(
      `SELECT i.*, w.name AS workflow_name, h.name AS handler_name FROM inbox i JOIN workflows w ON w.id = i.workflow
       LEFT JOIN handlers h ON h.id = i.handler WHERE i.id = @id AND i.namespace = @namespace+0 AND i.closed_at IS NULL`,
      { id, namespace },
    )[0];
    return row && inboxOf(row);
  }

  async inboxCount(namespace: number): Promise<number> {
    return this.#count("SELECT 1 FROM inbox WHERE namespace = ?+0 AND closed_at IS NULL", namespace);
  }

  async audit(namespace: number, page: PageRequest): Promise<Page<AuditRecord>> {
    const limit = limitOf(page);
    const rows = this.#all(AUDIT, { namespace, before: keyOf("audit", page, NEWEST), limit: limit + 1 });
    return pageOf("audit", rows, limit, "seq", (row) => ({
      seq: row["seq"] as number,
      atMs: row["at"] as number,
      actor: row["actor"] as string,
      action: row["action"] as string,
      ...given<"workflow", number>("workflow", row["workflow"]),
      ...given<"run", number>("run", row["run"]),
      detail: row["detail_json"] as string,
      ...given<"note", string>("note", row["note"]),
      hash: row["hash"] as string,
    }));
  }

  #all(sql: string, cells: Record<string, Cell>): Row[] {
    return this.#statements.sql(sql).all(cells) as Row[];
  }

  #one<Value>(sql: string, ...cells: Cell[]): Value | undefined {
    return this.#statements.sql(sql).pluck().get(cells) as Value | undefined;
  }

  #count(rows: string, id: number): number {
    return this.#one<number>(`SELECT count(*) FROM (${rows} LIMIT ${COUNTED})`, id) as number;
  }

  #workflowRow(namespace: number, id: number): Row | undefined {
    return this.#statements
      .sql("SELECT * FROM workflows WHERE id = ? AND namespace = ?")
      .get(id, namespace) as Row | undefined;
  }

  #manifest(workflow: Row): Manifest | undefined {
    const text = this.#one<string>(
      "SELECT manifest_json FROM versions WHERE workflow = ? AND number = ?",
      workflow["id"] as number,
      workflow["active_version"] as number,
    );
    return text === undefined ? undefined : (JSON.parse(text) as Manifest);
  }

  #runFace(id: number): Run {
    return fromRow(this.#statements.sql(`${RUN_FACE} WHERE id = ?`).get(id) as Row, RUN_COLUMNS);
  }

  #workflowOf(row: Row, sinceMs: number): WorkflowRecord {
    const id = row["id"] as number;
    const openRun = row["open_run"] === null ? undefined : this.#runFace(row["open_run"] as number);
    const newest = this.#all(
      `SELECT status, created_at FROM runs WHERE workflow = @id+0 ORDER BY id DESC LIMIT ${COUNTED}`,
      { id },
    );
    const day = newest.filter((run) => (run["created_at"] as number) >= sinceMs);
    const handlers = this.#all("SELECT id FROM handlers WHERE workflow = @id+0", { id });
    const sum = (count: (handler: number) => number): number =>
      handlers.reduce((total, handler) => total + count(handler["id"] as number), 0);
    return {
      id,
      name: row["name"] as string,
      description: this.#manifest(row)?.description ?? "",
      mode: row["mode"] as WorkflowRecord["mode"],
      paused: row["paused"] === 1,
      archived: row["archived"] === 1,
      activeVersion: row["active_version"] as number,
      ...(openRun ? { openRun } : {}),
      ...given<"nextDueAtMs", number>("nextDueAtMs", row["due_at"]),
      counts: {
        pending: sum((handler) => this.#inState("pending", handler)),
        dead: sum((handler) => this.#inState("dead", handler)),
        reserved: openRun
          ? this.#count(
              "SELECT 1 FROM deliveries WHERE reserved_by = ?+0 AND status = 'reserved'",
              openRun.id,
            )
          : 0,
        runs24h: day.length,
        failed24h: day.filter((run) => /^(failed|crashed)/.test(run["status"] as string)).length,
      },
      recent: newest.slice(0, RECENT).map((run) => run["status"] as Status),
      labels: row["labels_json"] as string,
      params: row["params_json"] as string,
      approvals: JSON.parse(row["approvals_json"] as string) as StandingApproval[],
      createdAtMs: row["created_at"] as number,
      updatedAtMs: row["updated_at"] as number,
    };
  }

  #inState(status: "pending" | "dead", handler: number): number {
    return this.#count(`SELECT 1 FROM deliveries WHERE handler = ?+0 AND status = '${status}'`, handler);
  }

  #handlerOf(row: Row, manifest: Manifest | undefined): HandlerRecord {
    const [id, name, kind] = [row["id"] as number, row["name"] as string, row["kind"] as Kind];
    const at = (what: "triggered" | "queued"): object =>
      row[`${what}_at`] === null
        ? {}
        : { [what]: { reason: row[`${what}_reason`], atMs: row[`${what}_at`] } };
    const [last] = this.#all(
      `SELECT id FROM (SELECT id, handler FROM runs WHERE workflow = @workflow+0 ORDER BY id DESC LIMIT ${COUNTED}) WHERE handler = @id LIMIT 1`,
      { id, workflow: row["workflow"] as number },
    );
    const declared = kind === "producer" ? manifest?.producers[name] : manifest?.consumers[name];
    return {
      id,
      name,
      kind,
      orphaned: row["orphaned"] === 1,
      ...given<"nextRunAtMs", number>("nextRunAtMs", row["next_run_at"]),
      ...given<"wakeAtMs", number>("wakeAtMs", row["wake_at"]),
      ...at("triggered"),
      ...at("queued"),
      ...given<"state", string>("state", row["state_json"]),
      pending: this.#inState("pending", id),
      dead: this.#inState("dead", id),
      ...(last ? { lastRun: this.#runFace(last["id"] as number) } : {}),
      ...(declared && row["orphaned"] !== 1 ? { declared } : {}),
    };
  }
}

const inboxOf = (row: Row): InboxRecord => ({
  id: row["id"] as number,
  kind: row["kind"] as InboxKind,
  workflow: row["workflow_name"] as string,
  ...given<"run", number>("run", row["run"]),
  ...given<"handler", string>("handler", row["handler_name"]),
  ...given<"detail", string>("detail", row["detail_json"]),
  sinceMs: row["opened_at"] as number,
});
