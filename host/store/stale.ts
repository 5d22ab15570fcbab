/**
 * Inputs that nothing has happened with for too long: an event of theirs is still pending. Found consumer by consumer, the
 * oldest pending first, so that no look takes long however many events there are.
 *
 * I1. An input is reported once in its life, also after a person let it rest.
 */
import type { StaleInput } from "../core/acknowledge.ts";
import type { EpochMs, HandlerId } from "../core/ids.ts";
import type { SqliteStore } from "./open.ts";
import type { Row } from "./rows.ts";

const CONSUMERS = 200;
const OLDEST = 100;

const NEXT_CONSUMERS = `SELECT id FROM handlers WHERE id > ?+0 AND kind = 'consumer' ORDER BY id LIMIT ${CONSUMERS}`;
/** (I1) */
const STALE = `SELECT i.workflow, i.id, i.title, min(e.created_at) AS since
  FROM (SELECT event FROM deliveries WHERE handler = ?+0 AND status = 'pending' ORDER BY seq LIMIT ${OLDEST}) d
  JOIN events e ON e.id = d.event AND e.created_at < ?+0
  JOIN causes c ON c.event = e.id JOIN inputs i ON i.id = c.input
  WHERE NOT EXISTS (SELECT 1 FROM inbox b WHERE b.workflow = i.workflow AND b.kind = 'stale_input'
    AND json_extract(b.detail_json, '$.input') = i.id)
  GROUP BY i.id`;

/** `next` is where to go on; absent when everything was looked at. */
export function findStale(
  { db }: SqliteStore,
  after: HandlerId,
  beforeMs: EpochMs,
): { found: StaleInput[]; next?: HandlerId } {
  const consumers = db.prepare(NEXT_CONSUMERS).pluck().all(after) as number[];
  const statement = db.prepare(STALE);
  const found = consumers.flatMap((id) => statement.all(id, beforeMs) as Row[]);
  const next = consumers.length === CONSUMERS ? consumers.at(-1) : undefined;
  return { found: found.map(staleOf), ...(next === undefined ? {} : { next }) };
}

const staleOf = (row: Row): StaleInput => ({
  workflow: row["workflow"] as number,
  input: row["id"] as number,
  title: row["title"] as string,
  sinceMs: row["since"] as number,
});
