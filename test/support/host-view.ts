/** What a test looks at in the database, in few words. */
import type { Database } from "better-sqlite3";

export interface RunView {
  id: number;
  handler: string;
  status: string;
  reason: string | null;
  phase: string;
  attempt: number;
  version: number;
  outcome: string | null;
  trigger: string;
  error: string | null;
  message: string | null;
  open: boolean;
  retryOf: number | null;
  readyAtMs: number | null;
  retries: number;
  redos: number;
  startedAtMs: number;
}

export interface EventView {
  messageId: string;
  payload: unknown;
  revision: number;
  hops: number;
  causes: string[];
}

export interface HandlerView {
  id: number;
  state: unknown;
  nextRunAtMs: number | null;
  wakeAtMs: number | null;
  triggered: string | null;
  queued: string | null;
  orphaned: boolean;
}

export function runs(db: Database, handler: string | undefined): RunView[] {
  const rows = db
    .prepare(
      `SELECT r.id, h.name AS handler, r.status, r.pause_reason AS reason, r.phase, r.attempt, r.version, r.outcome,
         r.trigger_json ->> '$.reason' AS "trigger", r.error_json ->> '$.code' AS error,
         r.error_json ->> '$.message' AS message, r.open, r.retry_of AS retryOf, r.ready_at AS readyAtMs, r.retries,
         r.redos, r.created_at AS startedAtMs
       FROM runs r JOIN handlers h ON h.id = r.handler WHERE @handler IS NULL OR h.name = @handler ORDER BY r.id`,
    )
    .all({ handler: handler ?? null }) as (Omit<RunView, "open"> & { open: number })[];
  return rows.map((row) => ({ ...row, open: row.open === 1 }));
}

export function deliveries(
  db: Database,
  consumer: string,
): { id: number; messageId: string; status: string }[] {
  return db
    .prepare(
      "SELECT d.id, e.message_id AS messageId, d.status || iif(d.late = 1, ' late', '') AS status FROM deliveries d JOIN events e ON e.id = d.event JOIN handlers h ON h.id = d.handler WHERE h.name = ? ORDER BY d.id",
    )
    .all(consumer) as { id: number; messageId: string; status: string }[];
}

export function events(db: Database, topic: string): EventView[] {
  const rows = db
    .prepare(
      "SELECT id, message_id AS messageId, payload_json AS payload, revision, hops FROM events WHERE topic = ? ORDER BY id",
    )
    .all(topic) as { id: number; messageId: string; payload: string; revision: number; hops: number }[];
  return rows.map(({ id, payload, ...row }) => ({
    ...row,
    payload: JSON.parse(payload) as unknown,
    causes: db
      .prepare("SELECT i.key FROM causes c JOIN inputs i ON i.id = c.input WHERE c.event = ? ORDER BY i.id")
      .pluck()
      .all(id) as string[],
  }));
}

/** "3 missed", oldest first. */
export function slots(db: Database, producer: string): string[] {
  return db
    .prepare(
      "SELECT s.count || ' ' || s.fate FROM slots s JOIN handlers h ON h.id = s.handler WHERE h.name = ? ORDER BY s.from_at",
    )
    .pluck()
    .all(producer) as string[];
}

export function inbox(db: Database): string[] {
  return db.prepare("SELECT kind FROM inbox WHERE closed_at IS NULL ORDER BY id").pluck().all() as string[];
}

export function handler(db: Database, name: string): HandlerView {
  const row = db
    .prepare(
      `SELECT id, state_json AS state, next_run_at AS nextRunAtMs, wake_at AS wakeAtMs, triggered_reason AS triggered,
         queued_reason AS queued, orphaned FROM handlers WHERE name = ?`,
    )
    .get(name) as Omit<HandlerView, "orphaned"> & { state: string | null; orphaned: number };
  const state = row.state === null ? null : (JSON.parse(row.state) as unknown);
  return { ...row, state, orphaned: row.orphaned === 1 };
}
