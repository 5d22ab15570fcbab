/**
 * Notification targets in the settings of a namespace, and the outbox of what they have not been told.
 *
 * T1. A notice is written in the transaction that opens its item, one for each target that wants its kind.
 */
import type { InboxKind } from "../../core/change.ts";
import type { EpochMs, NamespaceId } from "../../core/ids.ts";
import type { ActedBy } from "../../ports/connections.ts";
import type { Notice, Notices, NotificationTarget } from "../../ports/notices.ts";
import type { SqliteStore } from "../open.ts";
import type { Row } from "../rows.ts";
import { writeAudit } from "./audit.ts";
import { Statements } from "./statements.ts";

const TOPIC = "notice";
const SETTINGS = "SELECT settings_json FROM namespaces WHERE id = ?";
const DUE = `SELECT o.id, o.attempts, o.created_at, o.body_json, i.id AS item, i.kind, i.run, i.detail_json, i.opened_at,
    w.id AS workflow, w.name AS workflow_name, n.id AS namespace, n.name AS namespace_name, h.name AS handler
  FROM (SELECT * FROM outbox WHERE next_at IS NOT NULL AND next_at <= ?+0 AND topic = '${TOPIC}' ORDER BY next_at LIMIT ?+0) o
  JOIN inbox i ON i.id = json_extract(o.body_json, '$.item')
  JOIN workflows w ON w.id = i.workflow JOIN namespaces n ON n.id = i.namespace
  LEFT JOIN handlers h ON h.id = i.handler
  ORDER BY o.next_at, o.id`;

type Settings = { notifications?: NotificationTarget[] } & Record<string, unknown>;

const settingsOf = (statements: Statements, namespace: number): Settings =>
  JSON.parse((statements.sql(SETTINGS).pluck().get(namespace) as string | undefined) ?? "{}") as Settings;

/** (T1) */
export function writeNotices(
  statements: Statements,
  item: { id: number; kind: InboxKind },
  of: { workflow: number; namespace: number },
  { atMs, newId }: { atMs: EpochMs; newId: () => number },
): void {
  for (const { name, kinds } of settingsOf(statements, of.namespace).notifications ?? []) {
    if (kinds && !kinds.includes(item.kind)) continue;
    const body = JSON.stringify({ item: item.id, target: name });
    statements
      .sql(
        "INSERT INTO outbox (id, workflow, topic, body_json, created_at, next_at) VALUES (?, ?, ?, ?, ?, ?)",
      )
      .run(newId(), of.workflow, TOPIC, body, atMs, atMs);
  }
}

export class SqliteNotices implements Notices {
  readonly #store: SqliteStore;
  readonly #statements: Statements;

  constructor(store: SqliteStore) {
    this.#store = store;
    this.#statements = new Statements(store.db);
  }

  async targets(namespace: NamespaceId): Promise<NotificationTarget[]> {
    return settingsOf(this.#statements, namespace).notifications ?? [];
  }

  async setTargets(namespace: NamespaceId, targets: NotificationTarget[], by: ActedBy): Promise<void> {
    const { actor, note, atMs } = by;
    await this.#store.maintain(() => {
      const { notifications = [], ...others } = settingsOf(this.#statements, namespace);
      if (JSON.stringify(notifications) === JSON.stringify(targets)) return;
      const settings = JSON.stringify(targets.length === 0 ? others : { ...others, notifications: targets });
      this.#statements.sql("UPDATE namespaces SET settings_json = ? WHERE id = ?").run(settings, namespace);
      const detail = JSON.stringify({ before: notifications, now: targets });
      const told = { actor, action: "notifications", detail, ...(note === undefined ? {} : { note }) };
      writeAudit(this.#statements, told, { namespace }, atMs);
    }, "durable");
  }

  async due(nowMs: EpochMs, limit: number): Promise<Notice[]> {
    return (this.#statements.sql(DUE).all(nowMs, limit) as Row[]).map(noticeOf);
  }

  async nextDueAt(): Promise<EpochMs | undefined> {
    const first = `SELECT next_at FROM outbox WHERE next_at IS NOT NULL AND topic = '${TOPIC}' ORDER BY next_at LIMIT 1`;
    return this.#statements.sql(first).pluck().get() as EpochMs | undefined;
  }

  async told(ids: readonly number[]): Promise<void> {
    await this.#store.maintain(() => {
      for (const id of ids) this.#statements.sql("DELETE FROM outbox WHERE id = ?").run(id);
    });
  }

  async later(ids: readonly number[], atMs: EpochMs): Promise<void> {
    await this.#store.maintain(() => {
      for (const id of ids)
        this.#statements
          .sql("UPDATE outbox SET attempts = attempts + 1, next_at = ? WHERE id = ?")
          .run(atMs, id);
    });
  }
}

function noticeOf(row: Row): Notice {
  const { target } = JSON.parse(row["body_json"] as string) as { target: string };
  return {
    id: row["id"] as number,
    attempts: row["attempts"] as number,
    createdAtMs: row["created_at"] as number,
    namespace: { id: row["namespace"] as number, name: row["namespace_name"] as string },
    target,
    item: {
      id: row["item"] as number,
      kind: row["kind"] as InboxKind,
      workflow: { id: row["workflow"] as number, name: row["workflow_name"] as string },
      ...(row["run"] === null ? {} : { run: row["run"] as number }),
      ...(row["handler"] === null ? {} : { handler: row["handler"] as string }),
      ...(row["detail_json"] === null ? {} : { detail: row["detail_json"] as string }),
      sinceMs: row["opened_at"] as number,
    },
  };
}
