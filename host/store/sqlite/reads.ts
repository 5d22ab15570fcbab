/** What the engine decides on, read in one go: the core's facts from rows. Every statement here runs by an index. */
import type { Database } from "better-sqlite3";
import type { StandingApproval } from "../../core/approval.ts";
import type { VersionRow } from "../../core/change.ts";
import type { Delivery } from "../../core/event.ts";
import type { HandlerFacts, OpenRunFacts, RunFacts, WorkflowFacts } from "../../core/facts.ts";
import type { DeliveryFacts } from "../../core/operate.ts";
import type { Mutation } from "../../core/mutation.ts";
import type { Run } from "../../core/run.ts";
import type { Manifest } from "../../core/workflow.ts";
import type { Attempted, DueWorkflow, PendingEvent, Store, Told } from "../../ports/store.ts";
import { fromRow, handlerFromRow, MUTATION_COLUMNS, type Row, RUN_COLUMNS } from "../rows.ts";
import { newPendingAt } from "./handlers.ts";
import { Statements } from "./statements.ts";
import { Telling } from "./told.ts";

const MOST_ATTEMPTS = 100;
/** Beyond so many, the hops of the newest speak for all: a circle is among them. */
const MOST_PENDING = 10_000;
const PENDING_COLUMNS =
  "d.id AS delivery, e.message_id AS messageId, e.payload_json AS payload, e.updated_at AS publishedAtMs";

export class Reads {
  readonly #statements: Statements;
  readonly #told: Telling;
  /** Manifests never change; a few hundred of them serve almost every read. */
  readonly #manifests = new Map<string, Manifest>();

  constructor(db: Database) {
    this.#statements = new Statements(db);
    this.#told = new Telling(this.#statements);
  }

  due(nowMs: number, limit: number): DueWorkflow[] {
    const rows = this.#statements
      .sql(
        "SELECT id, namespace, due_at FROM workflows WHERE due_at IS NOT NULL AND due_at <= ?+0 ORDER BY due_at LIMIT ?+0",
      )
      .all(nowMs, limit) as Row[];
    return rows.map((row) => ({
      workflow: row["id"] as number,
      namespace: row["namespace"] as number,
      dueAtMs: row["due_at"] as number,
    }));
  }

  nextDueAt(): number | undefined {
    const workflow = this.#statements
      .sql("SELECT due_at FROM workflows WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1")
      .pluck()
      .get() as number | undefined;
    const check = this.#statements
      .sql(
        "SELECT next_check_at FROM mutations WHERE next_check_at IS NOT NULL ORDER BY next_check_at LIMIT 1",
      )
      .pluck()
      .get() as number | undefined;
    return workflow === undefined ? check : check === undefined ? workflow : Math.min(workflow, check);
  }

  workflow(id: number): WorkflowFacts | undefined {
    const row = this.#statements.sql("SELECT * FROM workflows WHERE id = ?").get(id) as Row | undefined;
    if (!row) return undefined;
    const manifest = this.#manifest(id, row["active_version"] as number);
    const openRun = row["open_run"] === null ? undefined : this.#openRun(row["open_run"] as number);
    return {
      id,
      namespace: row["namespace"] as number,
      name: row["name"] as string,
      revision: row["revision"] as number,
      generation: row["generation"] as number,
      activeVersion: row["active_version"] as number,
      seq: row["seq"] as number,
      paused: row["paused"] === 1,
      archived: row["archived"] === 1,
      mode: row["mode"] as WorkflowFacts["mode"],
      consumerStreak: row["consumer_streak"] as number,
      ...(row["params_json"] === "{}" ? {} : { params: row["params_json"] as string }),
      ...(row["approvals_json"] === "[]"
        ? {}
        : { approvals: JSON.parse(row["approvals_json"] as string) as StandingApproval[] }),
      handlers: this.#handlers(id, manifest),
      ...(openRun ? { openRun } : {}),
    };
  }

  run(id: number): RunFacts | undefined {
    const run = this.#run(id);
    if (!run) return undefined;
    const workflow = this.workflow(run.workflow) as WorkflowFacts;
    const mutation = this.#mutation(id);
    return {
      workflow,
      handler: this.#pinned(workflow, run),
      run,
      reserved: this.#statements
        .sql("SELECT id FROM deliveries WHERE reserved_by = ?+0 AND status = 'reserved' ORDER BY seq")
        .pluck()
        .all(id) as number[],
      released: this.#statements
        .sql(
          "SELECT id FROM deliveries WHERE released_by = ?+0 AND status = 'pending' AND released_by IS NOT NULL ORDER BY seq",
        )
        .pluck()
        .all(id) as number[],
      ...(mutation ? { mutation } : {}),
    };
  }

  #run(id: number): Run | undefined {
    const row = this.#statements.sql("SELECT * FROM runs WHERE id = ?").get(id) as Row | undefined;
    return row && fromRow(row, RUN_COLUMNS);
  }

  /** The newest decision that the run owns. */
  #mutation(owner: number): Mutation | undefined {
    const row = this.#statements
      .sql("SELECT * FROM mutations WHERE owner_run = ?+0 ORDER BY id DESC LIMIT 1")
      .get(owner) as Row | undefined;
    return row && fromRow(row, MUTATION_COLUMNS);
  }

  delivery(id: number): DeliveryFacts | undefined {
    const row = this.#statements
      .sql(
        "SELECT d.*, e.workflow, e.payload_json IS NULL AS gone FROM deliveries d JOIN events e ON e.id = d.event WHERE d.id = ?",
      )
      .get(id) as Row | undefined;
    if (!row) return undefined;
    const workflow = this.workflow(row["workflow"] as number) as WorkflowFacts;
    const delivery: Delivery = {
      id,
      event: row["event"] as number,
      handler: row["handler"] as number,
      status: row["status"] as Delivery["status"],
      attempts: row["attempts"] as number,
      revision: row["revision"] as number,
      changeSeq: row["change_seq"] as number,
      ...(row["reserved_by"] === null ? {} : { reservedBy: row["reserved_by"] as number }),
    };
    const holder = delivery.reservedBy === undefined ? undefined : this.run(delivery.reservedBy);
    return {
      delivery,
      workflow,
      handler: workflow.handlers.find((one) => one.id === delivery.handler) as HandlerFacts,
      ...(holder ? { holder } : {}),
      ...(row["gone"] === 1 ? { payloadGone: true } : {}),
      ...(this.#isContradicted(delivery, workflow.id) ? { contradicted: true } : {}),
    };
  }

  /** Evidence of this kind is rare: it is looked through rather than indexed. */
  #isContradicted({ id, status }: Delivery, workflow: number): boolean {
    if (status !== "dead" && status !== "skipped") return false;
    const runs = this.#statements
      .sql(
        `SELECT m.origin_run FROM evidence e CROSS JOIN mutations m ON m.id = e.mutation
         WHERE e.what = 'late-answer' AND m.workflow = ?+0`,
      )
      .pluck()
      .all(workflow) as number[];
    return runs.some((run) => this.#told.reservedOnce(run).includes(id));
  }

  caused(input: number): DeliveryFacts[] {
    const ids = this.#statements
      .sql(
        "SELECT d.id FROM causes c JOIN deliveries d ON d.event = c.event WHERE c.input = ?+0 ORDER BY d.id",
      )
      .pluck()
      .all(input) as number[];
    return ids.flatMap((id) => this.delivery(id) ?? []);
  }

  #attempted(id: number): Attempted[] {
    const found: Attempted[] = [];
    let before = this.#run(id)?.retryOf;
    for (let n = 0; before !== undefined && n < MOST_ATTEMPTS; n++) {
      const run = this.#run(before) as Run;
      const mutation = this.#mutation(before);
      if (mutation)
        found.unshift({
          mutation,
          run,
          reserved: this.#told.reservedOnce(before),
          connection: mutation.connection,
          tool: mutation.tool,
          args: mutation.args,
          approved: this.#told.approved(mutation.originRun),
        });
      before = run.retryOf;
    }
    return found;
  }

  told(run: number): Told {
    const last = this.#told.lastWord(run);
    const approved = this.#told.approved(run);
    return { attempted: this.#attempted(run), approved, ...(last ? { last } : {}) };
  }

  pending(handler: number, topic: string, options: Parameters<Store["pending"]>[2]): PendingEvent[] {
    const { limit, messageIds, settled } = options;
    if (!messageIds)
      return this.#statements
        .sql(
          `SELECT ${PENDING_COLUMNS} FROM deliveries d JOIN events e ON e.id = d.event
           WHERE d.handler = ?+0 AND d.status = 'pending' AND e.topic = ?||'' ORDER BY d.seq LIMIT ?+0`,
        )
        .all(handler, topic, limit) as PendingEvent[];
    const one = this.#statements.sql(
      `SELECT ${PENDING_COLUMNS}, d.status, d.settled_at FROM events e JOIN deliveries d ON d.event = e.id
       WHERE e.workflow = (SELECT workflow FROM handlers WHERE id = @handler+0) AND e.topic = @topic||''
         AND e.message_id = @messageId||'' AND d.handler = @handler+0 ${settled ? "" : "AND d.status = 'pending'"}
       ORDER BY d.status = 'pending' DESC, d.id DESC LIMIT 1`,
    );
    return messageIds.slice(0, limit).flatMap((messageId) => {
      const row = one.get({ handler, topic, messageId }) as (PendingEvent & Row) | undefined;
      if (!row) return [];
      const { status, settled_at: atMs, ...event } = row;
      if (status === "pending") return [event];
      return [{ ...event, settled: { status, ...(atMs === null ? {} : { atMs }) } } as PendingEvent];
    });
  }

  causes(
    deliveries: readonly number[],
    otherwise?: { handler: number; seq: number },
  ): { hops: number; inputs: number[] } {
    const inputs = new Set<number>();
    let hops = 0;
    for (const id of deliveries) {
      const row = this.#statements
        .sql("SELECT e.id, e.hops FROM deliveries d JOIN events e ON e.id = d.event WHERE d.id = ?+0")
        .get(id) as Row | undefined;
      if (!row) continue;
      hops = Math.max(hops, row["hops"] as number);
      const caused = this.#statements
        .sql("SELECT input FROM causes WHERE event = ?")
        .pluck()
        .all(row["id"] as number);
      for (const input of caused) inputs.add(input as number);
    }
    if (deliveries.length === 0 && otherwise)
      hops = this.#statements
        .sql(
          `SELECT coalesce(max(hops), 0) FROM (SELECT e.hops FROM deliveries d JOIN events e ON e.id = d.event
           WHERE d.handler = ?+0 AND d.status = 'pending' AND d.seq <= ?+0 ORDER BY d.seq DESC LIMIT ${MOST_PENDING})`,
        )
        .pluck()
        .get(otherwise.handler, otherwise.seq) as number;
    return { hops, inputs: [...inputs] };
  }

  version(workflow: number, which: Parameters<Store["version"]>[1]): VersionRow | undefined {
    const row = this.#versionRow(workflow, which);
    if (!row) return undefined;
    return {
      number: row["number"] as number,
      hash: row["hash"] as string,
      language: row["language"] as VersionRow["language"],
      source: row["source"] as string,
      code: row["code"] as string,
      manifest: JSON.parse(row["manifest_json"] as string) as Manifest,
      scope: row["scope"] as VersionRow["scope"],
      ...(row["source_map"] === null ? {} : { sourceMap: row["source_map"] as string }),
      ...(row["note"] === null ? {} : { note: row["note"] as string }),
      ...(row["activated_at"] === null ? {} : { activatedAtMs: row["activated_at"] as number }),
    };
  }

  #versionRow(workflow: number, which: Parameters<Store["version"]>[1]): Row | undefined {
    const sql = (text: string) => this.#statements.sql(`SELECT * FROM versions WHERE workflow = ?+0 ${text}`);
    if (which === "newest") return sql("ORDER BY number DESC LIMIT 1").get(workflow) as Row | undefined;
    if (typeof which === "number") return sql("AND number = ?+0").get(workflow, which) as Row | undefined;
    return sql("AND hash = ?||'' ORDER BY number DESC LIMIT 1").get(workflow, which.hash) as Row | undefined;
  }

  /** Active runs of every incarnation but this one. */
  interrupted(own: number, limit: number): number[] {
    return this.#statements
      .sql(
        "SELECT id FROM runs WHERE status = 'active' AND host < @own+0 UNION ALL SELECT id FROM runs WHERE status = 'active' AND host > @own+0 LIMIT @limit+0",
      )
      .pluck()
      .all({ own, limit }) as number[];
  }

  checksDue(nowMs: number, limit: number): number[] {
    return this.#statements
      .sql(
        "SELECT owner_run FROM mutations WHERE next_check_at IS NOT NULL AND next_check_at <= ?+0 ORDER BY next_check_at LIMIT ?+0",
      )
      .pluck()
      .all(nowMs, limit) as number[];
  }

  /** The run's handler as its own version declares it. */
  #pinned(workflow: WorkflowFacts, run: Run): HandlerFacts {
    const handler = workflow.handlers.find((one) => one.id === run.handler) as HandlerFacts;
    if (run.version === workflow.activeVersion) return handler;
    const { schedule: _, ...stored } = handler;
    const own = this.#manifest(workflow.id, run.version);
    return { ...stored, ...declared({ kind: handler.kind, name: handler.name }, own) };
  }

  #openRun(id: number): OpenRunFacts {
    const row = this.#statements
      .sql("SELECT status, pause_reason, ready_at FROM runs WHERE id = ?")
      .get(id) as Row;
    return {
      id,
      active: row["status"] === "active",
      ...(row["ready_at"] === null ? {} : { readyAtMs: row["ready_at"] as number }),
      ...(row["pause_reason"] === "step" ? { held: true as const } : {}),
    };
  }

  #handlers(workflow: number, manifest: Manifest | undefined): HandlerFacts[] {
    const rows = this.#statements
      .sql(
        `SELECT h.*,
           (SELECT e.created_at FROM deliveries d JOIN events e ON e.id = d.event
            WHERE d.handler = h.id AND d.status = 'pending' ORDER BY d.seq LIMIT 1) AS oldest_at,
           ${newPendingAt("h.id", "h.seen_seq")} AS new_at
         FROM handlers h WHERE h.workflow = ?+0 ORDER BY h.ord`,
      )
      .all(workflow) as Row[];
    return rows.map((row) => handlerFromRow(row, declared(row, manifest)));
  }

  #manifest(workflow: number, version: number): Manifest | undefined {
    const key = `${workflow}/${version}`;
    const known = this.#manifests.get(key);
    if (known) return known;
    const text = this.#statements
      .sql("SELECT manifest_json FROM versions WHERE workflow = ? AND number = ?")
      .pluck()
      .get(workflow, version) as string | undefined;
    if (text === undefined) return undefined;
    if (this.#manifests.size >= 1_000) this.#manifests.delete(this.#manifests.keys().next().value as string);
    const manifest = JSON.parse(text) as Manifest;
    this.#manifests.set(key, manifest);
    return manifest;
  }
}

function declared(row: Row, manifest: Manifest | undefined): Parameters<typeof handlerFromRow>[1] {
  const name = row["name"] as string;
  if (row["kind"] === "producer") {
    const schedule = manifest?.producers[name]?.schedule;
    return { hasMutate: false, hasNext: false, ...(schedule ? { schedule } : {}) };
  }
  const consumer = manifest?.consumers[name];
  return { hasMutate: consumer?.hasMutate ?? false, hasNext: consumer?.hasNext ?? false };
}
