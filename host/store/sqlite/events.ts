/**
 * Events, deliveries and inputs as rows. What publishing does to what is there is `core/event.ts`; this file finds the
 * rows and writes the answer.
 */
import type { Write } from "../../core/change.ts";
import {
  decidePublish,
  type DeliveryStatus,
  type ExistingEvent,
  type Publication,
} from "../../core/event.ts";
import type { DeliveryId, HandlerId, InputId, RunId } from "../../core/ids.ts";
import type { Effect, Published } from "../../core/journal.ts";
import type { Row } from "../rows.ts";
import type { WorkflowCursor } from "./cursors.ts";
import type { Handlers } from "./handlers.ts";
import { digest } from "./records.ts";
import type { Statements } from "./statements.ts";

type EventWrite = Extract<
  Write,
  {
    do:
      | "deliveries"
      | "deliveries.handover"
      | "delivery.renew"
      | "orphans.move"
      | "orphans.skip"
      | "publish"
      | "input";
  }
>;

export class Events {
  readonly #statements: Statements;
  readonly #handlers: Handlers;
  readonly #newId: () => number;
  /** Inputs of this Change that were registered before: proposed id → the one that is there. */
  readonly #known = new Map<InputId, InputId>();

  constructor(statements: Statements, handlers: Handlers, newId: () => number) {
    this.#statements = statements;
    this.#handlers = handlers;
    this.#newId = newId;
  }

  begin(): void {
    if (this.#known.size > 0) this.#known.clear();
  }

  write(write: EventWrite, cursor: WorkflowCursor, atMs: number): Effect | undefined {
    const sql = (text: string) => this.#statements.sql(text);
    switch (write.do) {
      case "deliveries":
        this.#move(write.ids, write.to, write.run, atMs);
        return undefined;
      case "deliveries.handover":
        sql("UPDATE deliveries SET reserved_by = ? WHERE reserved_by = ? AND status = 'reserved'").run(
          write.to,
          write.from,
        );
        return undefined;
      case "delivery.renew":
        return this.#renew(write.id, write.how, cursor);
      case "orphans.move": {
        const ids = this.#pendingOf(write.from);
        // Whatever chain once held them, it is another consumer's by now: its end no longer concerns them.
        for (const id of ids)
          sql("UPDATE deliveries SET handler = ?, change_seq = ?, released_by = NULL WHERE id = ?").run(
            write.to,
            ++cursor.seq,
            id,
          );
        this.#handlers.touch(write.from);
        this.#handlers.touch(write.to);
        return { of: "orphans", ids };
      }
      case "orphans.skip": {
        const ids = this.#pendingOf(write.handler);
        this.#move(ids, "skipped", undefined, atMs);
        return { of: "orphans", ids };
      }
      case "publish":
        return {
          of: "publish",
          published: this.#publish(write.publication, write.subscribers, write.run, cursor, atMs),
        };
      case "input":
        this.#input(write, cursor, atMs);
        return undefined;
    }
  }

  #input(write: Extract<EventWrite, { do: "input" }>, cursor: WorkflowCursor, atMs: number): void {
    // An update that changes nothing, so that the row that is there is returned.
    const id = this.#statements
      .sql(
        "INSERT INTO inputs (id, workflow, source, type, key, title, run, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (workflow, source, type, key) DO UPDATE SET key = key RETURNING id",
      )
      .pluck()
      .get([
        write.id,
        cursor.id,
        write.source,
        write.type,
        write.key,
        write.title,
        write.run ?? null,
        atMs,
      ]) as number;
    if (id !== write.id) this.#known.set(write.id, id);
  }

  #move(ids: readonly DeliveryId[], to: DeliveryStatus, run: RunId | undefined, atMs: number): void {
    const settled = to === "consumed" || to === "skipped" || to === "dead";
    for (const id of ids) {
      if (to === "reserved")
        this.#statements
          .sql(
            "UPDATE deliveries SET status = 'reserved', reserved_by = ?, released_by = NULL, revision = (SELECT revision FROM events WHERE events.id = deliveries.event) WHERE id = ?",
          )
          .run(run as number, id);
      else
        this.#statements
          .sql(
            "UPDATE deliveries SET status = @to, released_by = CASE WHEN @to = 'pending' THEN reserved_by END, reserved_by = NULL, settled_at = @at, late = CASE WHEN @to = 'consumed' AND revision < (SELECT revision FROM events WHERE events.id = deliveries.event) THEN 1 ELSE late END WHERE id = @id",
          )
          .run({ to, at: settled ? atMs : null, id });
      if (to === "skipped")
        this.#handlers.touch(
          this.#statements.sql("SELECT handler FROM deliveries WHERE id = ?").pluck().get(id) as number,
        );
    }
  }

  #renew(id: DeliveryId, how: "requeue" | "reprocess", cursor: WorkflowCursor): Effect | undefined {
    const row = this.#statements
      .sql("SELECT event, handler, seq FROM deliveries WHERE id = ?")
      .get(id) as Row;
    const handler = row["handler"] as number;
    this.#handlers.touch(handler);
    const changeSeq = ++cursor.seq;
    if (how === "requeue") {
      this.#statements
        .sql(
          "UPDATE deliveries SET status = 'pending', attempts = attempts + 1, change_seq = ?, settled_at = NULL WHERE id = ?",
        )
        .run(changeSeq, id);
      return undefined;
    }
    const delivery = this.#newId();
    this.#statements
      .sql(
        "INSERT INTO deliveries (id, event, handler, status, seq, change_seq, reprocess_of) VALUES (?, ?, ?, 'pending', ?, ?, ?)",
      )
      .run(delivery, row["event"] as number, handler, changeSeq, changeSeq, id);
    return { of: "renew", delivery, event: row["event"] as number, handler };
  }

  #pendingOf(handler: HandlerId): DeliveryId[] {
    return this.#statements
      .sql("SELECT id FROM deliveries WHERE handler = ?+0 AND status = 'pending' ORDER BY seq")
      .pluck()
      .all(handler) as number[];
  }

  #publish(
    publication: Publication,
    subscribers: readonly HandlerId[],
    run: RunId | undefined,
    cursor: WorkflowCursor,
    atMs: number,
  ): Published {
    const { topic, messageId, payload } = publication;
    const payloadHash = digest(payload);
    const existing = this.#existing(cursor.id, topic, messageId);
    const decision = decidePublish(existing, payloadHash, atMs);
    const face = { topic, messageId, created: [], late: [] };
    if (!existing) return this.#create(publication, payloadHash, subscribers, run, cursor, atMs);
    if (decision.outcome === "unchanged") {
      if (decision.seen)
        this.#statements.sql("UPDATE events SET seen_at = ? WHERE id = ?").run(atMs, existing.id);
      return { ...face, event: existing.id, revision: existing.revision, outcome: "unchanged" };
    }
    if (decision.outcome !== "updated") throw new Error("an event that exists is not created again");
    const revision = existing.revision + 1;
    this.#statements
      .sql(
        "INSERT INTO revisions (event, revision, payload_json, replaced_at) SELECT id, revision, payload_json, ? FROM events WHERE id = ? AND payload_json IS NOT NULL",
      )
      .run(atMs, existing.id);
    this.#statements
      .sql(
        "UPDATE events SET revision = ?, payload_json = ?, payload_hash = ?, updated_at = ?, seen_at = ? WHERE id = ?",
      )
      .run(revision, payload, payloadHash, atMs, atMs, existing.id);
    for (const id of decision.renewed)
      this.#statements.sql("UPDATE deliveries SET change_seq = ? WHERE id = ?").run(++cursor.seq, id);
    for (const one of existing.deliveries) if (one.status === "pending") this.#handlers.touch(one.handler);
    return { ...face, event: existing.id, revision, outcome: "updated", late: decision.late };
  }

  #create(
    publication: Publication,
    payloadHash: string,
    subscribers: readonly HandlerId[],
    run: RunId | undefined,
    cursor: WorkflowCursor,
    atMs: number,
  ): Published {
    const { topic, messageId, payload, hops, inputs } = publication;
    const event = this.#newId();
    const seq = ++cursor.seq;
    this.#statements
      .sql(
        "INSERT INTO events (id, workflow, topic, message_id, seq, payload_json, payload_hash, hops, run, created_at, updated_at, seen_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
      )
      .run([
        event,
        cursor.id,
        topic,
        messageId,
        seq,
        payload,
        payloadHash,
        hops,
        run ?? null,
        atMs,
        atMs,
        atMs,
      ]);
    const created: Published["created"] = [];
    for (const handler of subscribers) {
      const id = this.#newId();
      this.#statements
        .sql(
          "INSERT INTO deliveries (id, event, handler, status, seq, change_seq) VALUES (?, ?, ?, 'pending', ?, ?)",
        )
        .run(id, event, handler, seq, seq);
      created.push({ id, handler });
      this.#handlers.touch(handler);
    }
    for (const input of inputs)
      this.#statements
        .sql("INSERT OR IGNORE INTO causes (event, input) VALUES (?, ?)")
        .run(event, this.#known.get(input) ?? input);
    return { event, topic, messageId, revision: 1, outcome: "created", created, late: [] };
  }

  #existing(workflow: number, topic: string, messageId: string): ExistingEvent | undefined {
    const row = this.#statements
      .sql(
        "SELECT id, revision, payload_hash, seen_at FROM events WHERE workflow = ? AND topic = ? AND message_id = ?",
      )
      .get(workflow, topic, messageId) as Row | undefined;
    if (!row) return undefined;
    const deliveries = this.#statements
      .sql("SELECT id, handler, status FROM deliveries WHERE event = ?")
      .all(row["id"] as number) as ExistingEvent["deliveries"];
    return {
      id: row["id"] as number,
      revision: row["revision"] as number,
      payloadHash: row["payload_hash"] as string,
      lastSeenAtMs: row["seen_at"] as number,
      deliveries,
    };
  }
}
