/** Single rows of a healthy, rich store are damaged behind the store's back; the doctor or `verify` must say so. */
import Sqlite, { type Database } from "better-sqlite3";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Finding, inspect } from "../../host/store/doctor.ts";
import { openStore } from "../../host/store/open.ts";
import { verify } from "../../host/store/verify.ts";
import { richStore } from "../support/rich-store.ts";

/** Who must notice, and by which invariant of 08. */
type Damage = [what: string, by: "doctor" | "verify", invariant: number, sql: string];

const ROW = (status: string) => `(SELECT id FROM mutations WHERE status = '${status}' LIMIT 1)`;
const RUN = (where: string) => `(SELECT id FROM runs WHERE ${where} LIMIT 1)`;

const DAMAGES: readonly Damage[] = [
  [
    "a committed run's status is put back",
    "doctor",
    1,
    `UPDATE runs SET status = 'failed:logic' WHERE id = ${RUN("status = 'committed'")}`,
  ],
  [
    "a producer run gets a consumer's phase",
    "doctor",
    1,
    `UPDATE runs SET phase = 'prepared' WHERE id = ${RUN("kind = 'producer' AND status <> 'committed'")}`,
  ],
  [
    "a run forgets when it ended",
    "doctor",
    2,
    `UPDATE runs SET ended_at = NULL WHERE id = ${RUN("status = 'crashed'")}`,
  ],
  [
    "a closed run is opened again",
    "doctor",
    3,
    `UPDATE runs SET open = 1 WHERE id = ${RUN("status = 'crashed' AND successor IS NOT NULL")}`,
  ],
  [
    "an open run is closed",
    "doctor",
    3,
    `UPDATE runs SET open = 0, ended_at = 1 WHERE id = ${RUN("open = 1 AND status = 'paused:transient'")}`,
  ],
  [
    "the workflow forgets its open run",
    "doctor",
    3,
    "UPDATE workflows SET open_run = NULL WHERE id = (SELECT id FROM workflows WHERE open_run IS NOT NULL LIMIT 1)",
  ],
  [
    "a pause gets a reason of another status",
    "doctor",
    2,
    `UPDATE runs SET pause_reason = 'approval' WHERE id = ${RUN("status = 'paused:transient' AND open = 1")}`,
  ],
  [
    "a retry moves to another handler",
    "doctor",
    4,
    `UPDATE runs SET handler = (SELECT h.id FROM handlers h WHERE h.workflow = runs.workflow AND h.id <> runs.handler AND h.kind = runs.kind LIMIT 1) WHERE id = ${RUN("retry_of IS NOT NULL AND kind = 'consumer'")}`,
  ],
  [
    "a retry names itself as predecessor",
    "doctor",
    4,
    `UPDATE runs SET retry_of = id WHERE id = ${RUN("retry_of IS NOT NULL")}`,
  ],
  [
    "a predecessor forgets its successor",
    "doctor",
    4,
    `UPDATE runs SET successor = NULL WHERE id = ${RUN("successor IS NOT NULL")}`,
  ],
  [
    "a copy differs by one byte",
    "doctor",
    5,
    `UPDATE runs SET prepared_json = prepared_json || ' ' WHERE id = (SELECT owner_run FROM mutations WHERE owner_run <> origin_run LIMIT 1)`,
  ],
  [
    "a result of the ledger changes",
    "doctor",
    5,
    `UPDATE mutations SET result_json = '{"forged":1}' WHERE id = ${ROW("applied")}`,
  ],
  [
    "a decision is given to a run of another chain",
    "doctor",
    6,
    `UPDATE mutations SET owner_run = (SELECT max(r.id) FROM runs r WHERE r.workflow = mutations.workflow AND r.root_id <> (SELECT root_id FROM runs WHERE id = mutations.origin_run)) WHERE id = ${ROW("applied")}`,
  ],
  [
    "an applied row is called failed",
    "doctor",
    7,
    `UPDATE mutations SET status = 'failed' WHERE id = ${ROW("applied")}`,
  ],
  [
    "an unknown row is called failed",
    "doctor",
    21,
    `UPDATE mutations SET status = 'failed', next_check_at = NULL WHERE id = ${ROW("needs_reconcile")}`,
  ],
  [
    "a run forgets its outcome",
    "doctor",
    7,
    `UPDATE runs SET outcome = 'none' WHERE id = ${RUN("outcome = 'applied' AND status = 'committed'")}`,
  ],
  ["a send vanishes", "doctor", 8, `DELETE FROM sends WHERE mutation = ${ROW("applied")}`],
  [
    "a send gets another key",
    "doctor",
    8,
    `UPDATE sends SET idempotency_key = 'other' WHERE mutation = ${ROW("applied")}`,
  ],
  [
    "a chain with an unknown outcome is made ready",
    "doctor",
    9,
    `UPDATE runs SET ready_at = 1 WHERE id = (SELECT owner_run FROM mutations WHERE status = 'needs_reconcile')`,
  ],
  [
    "an unknown outcome is never checked again",
    "doctor",
    9,
    `UPDATE mutations SET next_check_at = NULL WHERE id = ${ROW("needs_reconcile")}`,
  ],
  [
    "a delivery vanishes",
    "doctor",
    12,
    "DELETE FROM deliveries WHERE id = (SELECT id FROM deliveries WHERE status = 'pending' LIMIT 1)",
  ],
  [
    "a consumed delivery comes back",
    "verify",
    31,
    "UPDATE deliveries SET status = 'pending', settled_at = NULL WHERE id = (SELECT id FROM deliveries WHERE status = 'consumed' LIMIT 1)",
  ],
  [
    "a delivery is held by a run that is over",
    "doctor",
    13,
    `UPDATE deliveries SET status = 'reserved', settled_at = NULL, reserved_by = ${RUN("status = 'committed' AND kind = 'consumer'")} WHERE id = (SELECT id FROM deliveries WHERE status = 'consumed' LIMIT 1)`,
  ],
  [
    "a held delivery is let go",
    "doctor",
    13,
    "UPDATE deliveries SET status = 'pending', reserved_by = NULL WHERE id = (SELECT id FROM deliveries WHERE status = 'reserved' LIMIT 1)",
  ],
  [
    "a change lies beyond the sequence",
    "doctor",
    12,
    "UPDATE deliveries SET change_seq = 99999 WHERE id = (SELECT id FROM deliveries WHERE status = 'consumed' LIMIT 1)",
  ],
  [
    "two events at one place of the sequence",
    "doctor",
    12,
    "UPDATE events SET seq = (SELECT max(e.seq) FROM events e WHERE e.workflow = events.workflow AND e.id <> events.id) WHERE id = (SELECT min(id) FROM events)",
  ],
  [
    "a payload changes",
    "doctor",
    12,
    "UPDATE events SET payload_json = '{}' WHERE id = (SELECT min(id) FROM events)",
  ],
  [
    "a payload and its hash change",
    "verify",
    12,
    "UPDATE events SET payload_json = '{}', payload_hash = 'RBNvo1WzZ4oRRq0W9-hknpT7T8If536DEMBg9hyq_4o' WHERE id = (SELECT min(id) FROM events)",
  ],
  [
    "a consumer's state changes",
    "verify",
    16,
    "UPDATE handlers SET state_json = '{}' WHERE id = (SELECT id FROM handlers WHERE state_json IS NOT NULL LIMIT 1)",
  ],
  [
    "a handler forgets that it is due",
    "doctor",
    17,
    "UPDATE handlers SET due_at = NULL WHERE id = (SELECT h.id FROM handlers h JOIN workflows w ON w.id = h.workflow WHERE h.due_at IS NOT NULL AND w.open_run IS NULL LIMIT 1)",
  ],
  [
    "a trigger is lost",
    "doctor",
    17,
    "UPDATE handlers SET triggered_at = NULL WHERE id = (SELECT h.id FROM handlers h WHERE h.triggered_at IS NOT NULL LIMIT 1)",
  ],
  [
    "a workflow forgets that it is due",
    "doctor",
    17,
    "UPDATE workflows SET due_at = NULL WHERE id = (SELECT id FROM workflows WHERE due_at IS NOT NULL LIMIT 1)",
  ],
  [
    "a consumer claims to have seen what does not exist",
    "doctor",
    17,
    "UPDATE handlers SET seen_seq = 99999 WHERE id = (SELECT id FROM handlers WHERE kind = 'consumer' LIMIT 1)",
  ],
  [
    "a slot gets another fate",
    "verify",
    19,
    "UPDATE slots SET fate = 'missed' WHERE from_at = (SELECT min(from_at) FROM slots WHERE fate = 'ran')",
  ],
  [
    "a slot reaches into the next",
    "doctor",
    19,
    "UPDATE slots SET to_at = to_at + 3600000, count = 60 WHERE from_at = (SELECT min(from_at) FROM slots)",
  ],
  [
    "the next run lies before the last slot",
    "doctor",
    19,
    "UPDATE handlers SET next_run_at = 1 WHERE id = (SELECT handler FROM slots LIMIT 1)",
  ],
  [
    "a person is no longer told",
    "doctor",
    21,
    "DELETE FROM inbox WHERE closed_at IS NULL AND run = (SELECT id FROM runs WHERE open = 1 AND status = 'paused:approval' LIMIT 1)",
  ],
  [
    "a retry loses its time",
    "doctor",
    21,
    `UPDATE runs SET ready_at = NULL WHERE id = ${RUN("open = 1 AND status = 'paused:transient'")}`,
  ],
  [
    "a run belongs to a host that never was",
    "doctor",
    23,
    `UPDATE runs SET host = 77777 WHERE id = ${RUN("status = 'committed'")}`,
  ],
  ["an audit row changes", "verify", 24, "UPDATE audit SET actor = 'nobody' WHERE seq = 1"],
  ["an audit row vanishes", "doctor", 24, "DELETE FROM audit WHERE seq = 2"],
  [
    "the last audit row vanishes",
    "verify",
    24,
    "DELETE FROM audit WHERE seq = (SELECT max(seq) FROM audit a WHERE a.namespace = audit.namespace)",
  ],
  ["a version vanishes", "doctor", 25, "DELETE FROM versions WHERE number = 1"],
  ["a run's version changes", "verify", 31, `UPDATE runs SET version = 1 WHERE id = ${RUN("version = 2")}`],
  [
    "a delivery goes to another workflow",
    "doctor",
    27,
    "UPDATE deliveries SET handler = (SELECT max(id) FROM handlers WHERE kind = 'consumer') WHERE id = (SELECT min(id) FROM deliveries)",
  ],
  [
    "a workflow moves to another namespace",
    "doctor",
    27,
    "UPDATE workflows SET namespace = (SELECT max(id) FROM namespaces) WHERE id = (SELECT min(id) FROM workflows)",
  ],
  [
    "a run moves to another namespace",
    "doctor",
    27,
    `UPDATE runs SET namespace = (SELECT max(id) FROM namespaces) WHERE id = (SELECT min(id) FROM runs)`,
  ],
  ["a handler vanishes", "doctor", 30, "DELETE FROM handlers WHERE id = (SELECT min(handler) FROM runs)"],
  [
    "a handler that never ran vanishes",
    "doctor",
    17,
    "DELETE FROM handlers WHERE id = (SELECT min(id) FROM handlers h WHERE kind = 'producer' AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.handler = h.id))",
  ],
  [
    "an error can no longer be read",
    "doctor",
    30,
    "UPDATE runs SET error_json = '{' WHERE id = (SELECT min(id) FROM runs WHERE error_json IS NOT NULL)",
  ],
  ["ids are handed out again", "doctor", 30, "UPDATE meta SET value = '1' WHERE key = 'next_id'"],
  [
    "a journal row vanishes",
    "doctor",
    31,
    "DELETE FROM journal WHERE first = (SELECT min(first) FROM journal WHERE first > 1)",
  ],
  [
    "a journal row is rewritten",
    "verify",
    31,
    `UPDATE journal SET entries_json = replace(entries_json, 'deliveries.consumed', 'deliveries.skipped') WHERE entries_json LIKE '%deliveries.consumed%'
     AND first = (SELECT min(first) FROM journal WHERE entries_json LIKE '%deliveries.consumed%')`,
  ],
  ["a journal row is no longer JSON", "doctor", 31, "UPDATE journal SET entries_json = '[' WHERE first = 1"],
  [
    "a run vanishes",
    "verify",
    31,
    `DELETE FROM runs WHERE id = ${RUN("status = 'committed' AND retry_of IS NULL AND successor IS NULL")}`,
  ],
  ["a ledger row vanishes", "doctor", 7, `DELETE FROM mutations WHERE id = ${ROW("applied")}`],
];

let healthy: Buffer;
beforeAll(async () => {
  await using store = openStore({ data: ":memory:", nowMs: () => 0 });
  await richStore(store);
  await store.flush();
  healthy = store.db.serialize();
});

const copies: Database[] = [];
afterAll(() => copies.forEach((db) => void db.close()));

/** A copy without the guards that the database itself keeps. */
function copy(): Database {
  const db = new Sqlite(healthy);
  copies.push(db);
  const guards = db
    .prepare(
      "SELECT type, name FROM sqlite_schema WHERE type = 'trigger' OR (type = 'index' AND sql LIKE 'CREATE UNIQUE%')",
    )
    .all() as { type: string; name: string }[];
  for (const { type, name } of guards) db.exec(`DROP ${type} ${name}`);
  db.pragma("foreign_keys = OFF");
  db.pragma("ignore_check_constraints = ON");
  return db;
}

const told = (findings: readonly Finding[]): string[] =>
  findings.map(({ invariant, message }) => `${invariant}: ${message}`);

test("a healthy store has no findings", () => {
  const db = copy();
  expect(told(inspect(db))).toEqual([]);
  expect(told(verify(db))).toEqual([]);
});

test.each(DAMAGES)("%s: found by %s (invariant %i)", (_, by, invariant, sql) => {
  const db = copy();
  expect(db.prepare(sql).run().changes, "the damage must hit something").toBeGreaterThan(0);
  const found = { doctor: inspect(db), verify: verify(db) };
  const findings = found[by];
  expect(told(findings).filter((one) => one.startsWith(`${invariant}:`))).not.toEqual([]);
  for (const { message, rows } of findings) expect(`${message} ${rows.length}`).toMatch(/\d/);
});
