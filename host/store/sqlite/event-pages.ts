/** Topics, their events with what became of each delivery, and the inputs that caused them. */
import { DELIVERY_STATUSES, type DeliveryStatus } from "../../core/event.ts";
import type { Manifest } from "../../core/workflow.ts";
import {
  COUNTED,
  type EventFilter,
  type EventRecord,
  type InputRecord,
  type Page,
  type PageRequest,
  type TopicRecord,
} from "../../ports/records.ts";
import type { Cell, Row } from "../rows.ts";
import { given, keyOf, limitOf, pageOf, pageUpTo, SCANNED } from "./paging.ts";
import type { Statements } from "./statements.ts";

const NEWEST = Number.MAX_SAFE_INTEGER;

/** Each topic by one step down the index, however many events it has. */
const TOPICS = `WITH RECURSIVE topics (topic) AS (
  SELECT min(topic) FROM events WHERE workflow = @workflow
  UNION ALL SELECT (SELECT min(topic) FROM events WHERE workflow = @workflow AND topic > topics.topic)
  FROM topics WHERE topic IS NOT NULL)
  SELECT topic FROM topics WHERE topic IS NOT NULL`;
const PENDING_OF = `SELECT count(*) AS count, min(created_at) AS oldest FROM (
  SELECT e.topic, e.created_at FROM deliveries d JOIN events e ON e.id = d.event
  WHERE d.handler = @handler+0 AND d.status = 'pending' ORDER BY d.seq LIMIT ${COUNTED}) WHERE topic = @topic`;
const NEWEST_OF =
  "SELECT created_at FROM events WHERE workflow = @workflow+0 AND topic = @topic||'' ORDER BY id DESC LIMIT 1";
const OF_TOPIC =
  "SELECT id FROM events WHERE workflow = @workflow+0 AND topic = @topic||'' AND id < @before+0 ORDER BY id DESC";
const WITH_DELIVERY =
  "EXISTS (SELECT 1 FROM deliveries d WHERE d.event = c.id AND (@status IS NULL OR d.status = @status) AND (@consumer IS NULL OR d.handler = @consumer))";
const INPUTS =
  "SELECT * FROM inputs WHERE workflow = @workflow+0 AND id < @before+0 ORDER BY id DESC LIMIT @limit+0";
const BECAME = `SELECT d.status FROM causes c JOIN deliveries d ON d.event = c.event WHERE c.input = ?+0 LIMIT ${COUNTED}`;

export class EventPages {
  readonly #statements: Statements;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  /** What the active version declares, and what older ones have left. */
  topics(workflow: number, manifest: Manifest | undefined): TopicRecord[] {
    const stored = this.#statements.sql(TOPICS).pluck().all({ workflow }) as string[];
    const topics = new Set([...Object.keys(manifest?.topics ?? {}), ...stored]);
    const consumers = this.#consumers(workflow);
    return [...topics].map((topic) => ({
      topic,
      pending: consumers.map((handler) => {
        const row = this.#statements.sql(PENDING_OF).get({ handler, topic }) as Row;
        return {
          handler,
          count: row["count"] as number,
          ...given<"oldestAtMs", number>("oldestAtMs", row["oldest"]),
        };
      }),
      ...given<"newestAtMs", number>(
        "newestAtMs",
        this.#statements.sql(NEWEST_OF).pluck().get({ workflow, topic }) as Cell | undefined,
      ),
    }));
  }

  events(workflow: number, topic: string, filter: EventFilter, page: PageRequest): Page<EventRecord> {
    if (filter.status === "pending" || filter.status === "dead")
      return this.#byDelivery(workflow, topic, { ...filter, status: filter.status }, page);
    const limit = limitOf(page);
    const before = keyOf("events", page, NEWEST);
    const { status = null, consumer = null } = filter;
    const cells = { workflow, topic, before, limit: limit + 1, status, consumer };
    if (status === null && consumer === null)
      return this.#pageOf("events", this.#ids(`${OF_TOPIC} LIMIT @limit+0`, cells), limit);
    const ids = this.#ids(
      `SELECT id FROM (${OF_TOPIC} LIMIT ${SCANNED}) c WHERE ${WITH_DELIVERY} LIMIT @limit+0`,
      cells,
    );
    const stoppedAt = (): number | undefined =>
      this.#ids(`${OF_TOPIC} LIMIT 1 OFFSET ${SCANNED - 1}`, cells)[0];
    return pageUpTo("events", this.#pageOf("events", ids, limit), stoppedAt);
  }

  /** What is pending or dead is found by its own index, newest delivery first, however much has been consumed since. */
  #byDelivery(
    workflow: number,
    topic: string,
    { status, consumer }: { status: "pending" | "dead"; consumer?: number },
    page: PageRequest,
  ): Page<EventRecord> {
    const limit = limitOf(page);
    const before = keyOf(status, page, NEWEST);
    const consumers =
      consumer === undefined
        ? this.#consumers(workflow)
        : [consumer].filter((one) => this.#isOf(workflow, one));
    const scanned = `SELECT event, seq FROM deliveries WHERE handler = @handler+0 AND status = '${status}' AND seq < @before+0 ORDER BY seq DESC LIMIT ${SCANNED}`;
    const bySeq = new Map<number, Row>();
    let stoppedAt: number | undefined;
    for (const handler of consumers) {
      const cells = { handler, before, topic, limit: limit + 1 };
      const rows = this.#statements
        .sql(
          `SELECT e.id, d.seq AS page_seq FROM (${scanned}) d JOIN events e ON e.id = d.event WHERE e.topic = @topic LIMIT @limit+0`,
        )
        .all(cells) as Row[];
      for (const row of rows) bySeq.set(row["page_seq"] as number, row);
      const [stop] = this.#ids(`SELECT seq FROM (${scanned}) LIMIT 1 OFFSET ${SCANNED - 1}`, cells);
      if (stop !== undefined) stoppedAt = Math.max(stop, stoppedAt ?? 0);
    }
    // Beyond the point where the looking ended for one consumer, nothing is known of all.
    const found = [...bySeq.values()]
      .filter((row) => (row["page_seq"] as number) >= (stoppedAt ?? 0))
      .sort((a, b) => (b["page_seq"] as number) - (a["page_seq"] as number));
    const event = this.#statements.sql("SELECT * FROM events WHERE id = ?");
    const itemOf = (row: Row): EventRecord => this.#eventOf(event.get(row["id"] as number) as Row);
    return pageUpTo(status, pageOf(status, found, limit, "page_seq", itemOf), () => stoppedAt);
  }

  #consumers(workflow: number): number[] {
    return this.#ids("SELECT id FROM handlers WHERE workflow = @workflow+0 AND kind = 'consumer'", {
      workflow,
    });
  }

  #isOf(workflow: number, handler: number): boolean {
    return this.#ids("SELECT workflow FROM handlers WHERE id = @handler", { handler })[0] === workflow;
  }

  #pageOf(kind: string, ids: readonly number[], limit: number): Page<EventRecord> {
    const event = this.#statements.sql("SELECT * FROM events WHERE id = ?");
    const rows = ids.map((id) => event.get(id) as Row);
    return pageOf(kind, rows, limit, "id", (row) => this.#eventOf(row));
  }

  #ids(sql: string, cells: Record<string, Cell>): number[] {
    return this.#statements.sql(sql).pluck().all(cells) as number[];
  }

  #eventOf(row: Row): EventRecord {
    const id = row["id"] as number;
    const deliveries = this.#statements
      .sql(
        "SELECT id, handler, status, reserved_by, attempts, late FROM deliveries WHERE event = ?+0 ORDER BY id LIMIT 200",
      )
      .all(id) as Row[];
    return {
      id,
      topic: row["topic"] as string,
      messageId: row["message_id"] as string,
      ...given<"payload", string>("payload", row["payload_json"]),
      revision: row["revision"] as number,
      seq: row["seq"] as number,
      hops: row["hops"] as number,
      ...given<"run", number>("run", row["run"]),
      causedBy: this.#statements
        .sql("SELECT input FROM causes WHERE event = ?+0 LIMIT 200")
        .pluck()
        .all(id) as number[],
      createdAtMs: row["created_at"] as number,
      updatedAtMs: row["updated_at"] as number,
      deliveries: deliveries.map((one) => ({
        id: one["id"] as number,
        handler: one["handler"] as number,
        status: one["status"] as DeliveryStatus,
        attempts: one["attempts"] as number,
        late: one["late"] === 1,
        ...given<"reservedBy", number>("reservedBy", one["reserved_by"]),
      })),
    };
  }

  inputs(workflow: number, page: PageRequest): Page<InputRecord> {
    const limit = limitOf(page);
    const before = keyOf("inputs", page, NEWEST);
    const rows = this.#statements.sql(INPUTS).all({ workflow, before, limit: limit + 1 }) as Row[];
    return pageOf("inputs", rows, limit, "id", (row) => this.#inputOf(row));
  }

  input(id: number): { workflow: number; record: InputRecord } | undefined {
    const row = this.#statements.sql("SELECT * FROM inputs WHERE id = ?").get(id) as Row | undefined;
    return row && { workflow: row["workflow"] as number, record: this.#inputOf(row) };
  }

  #inputOf(row: Row): InputRecord {
    return {
      id: row["id"] as number,
      source: row["source"] as string,
      type: row["type"] as string,
      key: row["key"] as string,
      title: row["title"] as string,
      ...given<"run", number>("run", row["run"]),
      createdAtMs: row["created_at"] as number,
      became: this.#became(row["id"] as number),
    };
  }

  #became(input: number): InputRecord["became"] {
    const counts = Object.fromEntries(
      DELIVERY_STATUSES.map((status) => [status, 0]),
    ) as InputRecord["became"];
    for (const status of this.#statements.sql(BECAME).pluck().all(input) as DeliveryStatus[])
      counts[status]++;
    return counts;
  }
}
