/** The laws of events, deliveries, schedules, records and namespaces; see `invariants.ts`. */
import { type Law, UNPRUNED } from "./invariants.ts";

export const WORK_LAWS: readonly Law[] = [
  {
    invariant: 12,
    says: "a delivery is reserved exactly when a run holds it, and settled exactly when it says when",
    table: "deliveries",
    broken: `SELECT d.id, d.status AS what FROM events e JOIN deliveries d ON d.event = e.id
      WHERE e.workflow = @workflow AND ((d.status = 'reserved') <> (d.reserved_by IS NOT NULL)
        OR (d.status IN ('consumed', 'skipped', 'dead')) <> (d.settled_at IS NOT NULL)
        OR (d.released_by IS NOT NULL AND d.status <> 'pending'))`,
  },
  {
    invariant: 12,
    says: "a delivery changed no earlier than it was made, within the workflow's sequence and its event's revisions",
    table: "deliveries",
    broken: `SELECT d.id, 'seq ' || d.seq || ', changed ' || d.change_seq AS what
      FROM workflows w JOIN events e ON e.workflow = w.id JOIN deliveries d ON d.event = e.id
      WHERE w.id = @workflow AND (d.seq < e.seq OR d.change_seq < d.seq OR d.change_seq > w.seq
        OR d.revision > e.revision OR d.attempts < 1)`,
  },
  {
    invariant: 12,
    says: "events have a place of their own in the workflow's sequence",
    table: "events",
    broken: `SELECT max(e.id) AS id, count(*) || ' events at ' || e.seq AS what FROM events e
        WHERE e.workflow = @workflow GROUP BY e.seq HAVING count(*) > 1
      UNION ALL SELECT e.id, 'at ' || e.seq || ' of ' || w.seq FROM workflows w JOIN events e ON e.workflow = w.id
        WHERE w.id = @workflow AND (e.seq < 1 OR e.seq > w.seq)`,
  },
  {
    invariant: 12,
    says: "replaced payloads are older than the event's revision",
    table: "events",
    broken: `SELECT e.id, 'revision ' || r.revision AS what FROM events e JOIN revisions r ON r.event = e.id
      WHERE e.workflow = @workflow AND r.revision >= e.revision`,
  },
  {
    invariant: 13,
    says: "a reserved delivery is held by an open run of its consumer that has prepared",
    table: "deliveries",
    broken: `SELECT d.id, 'held by ' || d.reserved_by AS what FROM events e JOIN deliveries d ON d.event = e.id
      LEFT JOIN runs r ON r.id = d.reserved_by WHERE e.workflow = @workflow AND d.status = 'reserved'
        AND (r.id IS NULL OR r.open = 0 OR r.handler <> d.handler
          OR r.phase IN ('preparing', 'executing', 'committed'))`,
  },
  {
    invariant: 13,
    says: "an open run with a decision that stands holds what it decided about",
    table: "runs",
    broken: `SELECT r.id, m.status AS what FROM runs r JOIN mutations m ON m.owner_run = r.id
      WHERE r.workflow = @workflow AND r.open = 1 AND m.status <> 'failed'
        AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.reserved_by = r.id AND d.status = 'reserved')`,
  },
  {
    invariant: 17,
    says: "a trigger has a reason and a time, and a consumer has seen only what exists",
    table: "handlers",
    broken: `SELECT h.id, h.name AS what FROM handlers h JOIN workflows w ON w.id = h.workflow WHERE h.workflow = @workflow
      AND ((h.queued_at IS NULL) <> (h.queued_reason IS NULL)
        OR (h.triggered_at IS NULL) <> (h.triggered_reason IS NULL) OR h.seen_seq > w.seq)`,
  },
  {
    invariant: 19,
    says: "every point of a schedule has one fate: ranges do not overlap",
    table: "handlers",
    broken: `SELECT handler AS id, from_at || ' … ' || to_at || ' after ' || before AS what FROM (
        SELECT s.*, lag(s.to_at) OVER (PARTITION BY s.handler ORDER BY s.from_at) AS before
        FROM handlers h JOIN slots s ON s.handler = h.id WHERE h.workflow = @workflow)
      WHERE before >= from_at`,
  },
  {
    invariant: 19,
    says: "a range of slots holds its points, and names the run that answers for them",
    table: "handlers",
    broken: `SELECT h.id, s.fate || ' ' || s.from_at AS what FROM handlers h JOIN slots s ON s.handler = h.id
      LEFT JOIN runs r ON r.id = s.run WHERE h.workflow = @workflow AND (s.from_at > s.to_at OR s.count < 1
        OR (s.count = 1 AND s.count_is_floor = 0) <> (s.from_at = s.to_at)
        OR (s.fate IN ('ran', 'coalesced', 'failed') AND s.run IS NULL) OR r.handler <> h.id
        OR (s.fate = 'ran' AND r.status <> 'committed'))`,
  },
  {
    invariant: 19,
    says: "the next run of a schedule lies beyond its last slot",
    table: "handlers",
    broken: `SELECT h.id, h.name || ' at ' || h.next_run_at AS what FROM handlers h WHERE h.workflow = @workflow
      AND h.next_run_at <= (SELECT max(to_at) FROM slots s WHERE s.handler = h.id)`,
  },
  {
    invariant: 20,
    says: "what waits for a person is about a run that is still open",
    table: "inbox",
    broken: `SELECT i.id, i.kind || ' about ' || i.run AS what FROM inbox i JOIN runs r ON r.id = i.run
      WHERE i.workflow = @workflow AND i.closed_at IS NULL AND r.open = 0
        AND i.kind NOT IN ('contradiction', 'dead_letter')`,
  },
  {
    invariant: 25,
    says: "the active version exists",
    table: "workflows",
    broken: `SELECT w.id, 'version ' || w.active_version AS what FROM workflows w WHERE w.id = @workflow
      AND w.active_version > 0
      AND NOT EXISTS (SELECT 1 FROM versions v WHERE v.workflow = w.id AND v.number = w.active_version)`,
  },
  {
    invariant: 27,
    says: "a run, its handler and its decisions are of one workflow",
    table: "runs",
    broken: `SELECT r.id, 'handler ' || r.handler AS what FROM runs r JOIN handlers h ON h.id = r.handler
        WHERE r.workflow = @workflow AND h.workflow <> r.workflow
      UNION ALL SELECT r.id, 'row ' || m.id FROM runs r JOIN mutations m ON m.owner_run = r.id
        WHERE r.workflow = @workflow AND m.workflow <> r.workflow
      UNION ALL SELECT r.id, 'send of row ' || s.mutation FROM mutations m JOIN sends s ON s.mutation = m.id
        JOIN runs r ON r.id = s.run WHERE m.workflow = @workflow AND r.workflow <> m.workflow
      UNION ALL SELECT r.id, 'evidence about row ' || v.mutation FROM mutations m JOIN evidence v ON v.mutation = m.id
        JOIN runs r ON r.id = v.run WHERE m.workflow = @workflow AND r.workflow <> m.workflow`,
  },
  {
    invariant: 27,
    says: "a delivery goes to a consumer of its event's workflow",
    table: "deliveries",
    broken: `SELECT d.id, 'handler ' || d.handler AS what FROM events e JOIN deliveries d ON d.event = e.id
      JOIN handlers h ON h.id = d.handler WHERE e.workflow = @workflow
        AND (h.workflow <> e.workflow OR h.kind <> 'consumer')`,
  },
  {
    invariant: 27,
    says: "what caused an event, and who published it, is of its workflow",
    table: "events",
    broken: `SELECT e.id, 'input ' || i.id AS what FROM events e JOIN causes c ON c.event = e.id
        JOIN inputs i ON i.id = c.input WHERE e.workflow = @workflow AND i.workflow <> e.workflow
      UNION ALL SELECT e.id, 'run ' || r.id FROM events e JOIN runs r ON r.id = e.run
        WHERE e.workflow = @workflow AND r.workflow <> e.workflow`,
  },
  {
    invariant: 27,
    says: "the inputs behind a decision are of its workflow",
    table: "mutations",
    broken: `SELECT m.id, 'input ' || i.id AS what FROM mutations m JOIN output_causes c ON c.mutation = m.id
      JOIN inputs i ON i.id = c.input WHERE m.workflow = @workflow AND i.workflow <> m.workflow`,
  },
  {
    invariant: 27,
    says: "an inbox item is about a run and a handler of its workflow",
    table: "inbox",
    broken: `SELECT i.id, i.kind AS what FROM inbox i LEFT JOIN runs r ON r.id = i.run
      LEFT JOIN handlers h ON h.id = i.handler WHERE i.workflow = @workflow AND i.closed_at IS NULL
        AND (r.workflow <> i.workflow OR h.workflow <> i.workflow)`,
  },
  {
    invariant: 27,
    says: "a run and what is asked about it have the namespace of their workflow",
    table: "workflows",
    broken: `SELECT w.id, 'run ' || r.id AS what FROM workflows w JOIN runs r ON r.workflow = w.id
        WHERE w.id = @workflow AND r.namespace <> w.namespace
      UNION ALL SELECT w.id, 'inbox ' || i.id FROM workflows w JOIN inbox i ON i.workflow = w.id AND i.closed_at IS NULL
        WHERE w.id = @workflow AND i.namespace <> w.namespace`,
  },
  {
    invariant: 27,
    says: "a workflow is bound and granted only connections of its namespace",
    table: "connections",
    broken: `SELECT c.id, b.alias AS what FROM workflows w JOIN bindings b ON b.workflow = w.id
        JOIN connections c ON c.id = b.connection WHERE w.id = @workflow AND c.namespace <> w.namespace
      UNION ALL SELECT c.id, g.alias FROM workflows w JOIN grants g ON g.workflow = w.id
        JOIN connections c ON c.id = g.connection WHERE w.id = @workflow AND c.namespace <> w.namespace`,
  },
  {
    invariant: 31,
    says: "the journal has no gap and ends where the workflow says",
    table: "journal",
    broken: `SELECT first AS id, 'after ' || (before - 1) AS what FROM (SELECT first,
          lag(first + count) OVER (ORDER BY first) AS before FROM journal WHERE workflow = @workflow)
        WHERE before <> first
      UNION ALL SELECT w.journal_seq, 'ends at ' || j.last FROM workflows w
        JOIN (SELECT coalesce(max(first + count - 1), 0) AS last FROM journal WHERE workflow = @workflow) j
        WHERE w.id = @workflow AND w.journal_seq <> j.last`,
  },
];

/** Laws that read whole journals and manifests: not for every step of a test. */
export const DEEP_LAWS: readonly Law[] = [
  {
    invariant: 17,
    says: "the handlers that are not orphaned are those that the active version declares",
    table: "workflows",
    broken: `WITH declared AS (SELECT kinds.kind, d.key AS name FROM workflows w
          JOIN versions v ON v.workflow = w.id AND v.number = w.active_version
          JOIN (SELECT 'producer' AS kind, '$.producers' AS path UNION ALL SELECT 'consumer', '$.consumers') kinds
          JOIN json_each(v.manifest_json, kinds.path) d WHERE w.id = @workflow),
        there AS (SELECT kind, name FROM handlers WHERE workflow = @workflow AND orphaned = 0)
      SELECT @workflow AS id, kind || ' ' || name AS what FROM (
        SELECT * FROM (SELECT * FROM declared EXCEPT SELECT * FROM there)
        UNION ALL SELECT * FROM (SELECT * FROM there EXCEPT SELECT * FROM declared))`,
  },
  {
    invariant: 30,
    says: "what is kept as JSON can be read",
    table: "workflows",
    broken: `SELECT @workflow AS id, 'run ' || id AS what FROM runs WHERE workflow = @workflow AND NOT (json_valid(trigger_json)
          AND json_valid(coalesce(error_json, '0')) AND json_valid(coalesce(resolution_json, '0'))
          AND json_valid(coalesce(prepared_json, '0')) AND json_valid(coalesce(result_json, '0')))
      UNION ALL SELECT @workflow, 'row ' || id FROM mutations WHERE workflow = @workflow
        AND NOT (json_valid(args_json) AND json_valid(coalesce(result_json, '0')) AND json_valid(coalesce(error_json, '0')))
      UNION ALL SELECT @workflow, 'handler ' || id FROM handlers
        WHERE workflow = @workflow AND NOT json_valid(coalesce(state_json, '0'))
      UNION ALL SELECT @workflow, 'version ' || number FROM versions
        WHERE workflow = @workflow AND NOT json_valid(manifest_json)`,
  },
  {
    invariant: 31,
    says: "a journal row counts its entries",
    table: "journal",
    broken: `SELECT first AS id, verb AS what FROM journal WHERE workflow = @workflow
      AND CASE WHEN json_valid(entries_json) THEN json_array_length(entries_json) <> count ELSE 1 END`,
  },
  {
    invariant: 12,
    says: "there are as many deliveries as were ever made",
    table: "workflows",
    broken: `SELECT @workflow AS id, made || ' made, ' || there || ' there' AS what FROM (SELECT
        (SELECT coalesce(sum(CASE e.value ->> 'kind' WHEN 'event.published' THEN json_array_length(e.value, '$.created')
            WHEN 'deliveries.reprocessed' THEN 1 ELSE 0 END), 0)
          FROM journal j, json_each(CASE WHEN json_valid(j.entries_json) THEN j.entries_json ELSE '[]' END) e
          WHERE j.workflow = @workflow) AS made,
        (SELECT count(*) FROM events e JOIN deliveries d ON d.event = e.id WHERE e.workflow = @workflow) AS there)
      WHERE made <> there AND ${UNPRUNED}`,
  },
];
