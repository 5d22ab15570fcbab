/**
 * The laws of runs and their ledger that one database state can show, each as a query for the rows that break it (08).
 * Every query sees one workflow, by an index, and yields `id` and `what`. Work, schedules and records are
 * `invariants-work.ts`; `doctor.ts` asks them all.
 */

export interface Law {
  /** The number in the list of invariants. */
  invariant: number;
  /** What is always true, as a sentence. */
  says: string;
  table: string;
  /** Rows that break it, of workflow @workflow: `id` and `what`. */
  broken: string;
}

const ENDED = "('paused:transient', 'failed:logic', 'failed:internal', 'committed', 'crashed')";
const UNKNOWN = "('in_flight', 'needs_reconcile', 'indeterminate')";
/** Once the journal was pruned, older attempts of a chain may be gone with it. */
export const UNPRUNED =
  "EXISTS (SELECT 1 FROM journal WHERE workflow = @workflow AND first = 1 AND verb <> 'journal.pruned')";

export const RUN_LAWS: readonly Law[] = [
  {
    invariant: 1,
    says: "committed is a phase and a status at once",
    table: "runs",
    broken: `SELECT id, phase || ' and ' || status AS what FROM runs
      WHERE workflow = @workflow AND (phase = 'committed') <> (status = 'committed')`,
  },
  {
    invariant: 1,
    says: "a run has its handler's kind, and only that kind's phases",
    table: "runs",
    broken: `SELECT r.id, r.kind || ' at ' || r.phase AS what FROM runs r JOIN handlers h ON h.id = r.handler
      WHERE r.workflow = @workflow AND (r.kind <> h.kind
        OR (r.kind = 'producer' AND r.phase NOT IN ('executing', 'committed'))
        OR (r.kind = 'consumer' AND r.phase = 'executing'))`,
  },
  {
    invariant: 2,
    says: "an attempt that is over says when it ended, one that is not does not",
    table: "runs",
    broken: `SELECT id, status || ', open ' || open || ', ended ' || coalesce(ended_at, 'never') AS what FROM runs
      WHERE workflow = @workflow
        AND (ended_at IS NULL) <> (open = 1 AND status NOT IN ${ENDED})`,
  },
  {
    invariant: 2,
    says: "an active run is open, a committed one is not",
    table: "runs",
    broken: `SELECT id, status || ', open ' || open AS what FROM runs WHERE workflow = @workflow
      AND ((status = 'active' AND open = 0) OR (status = 'committed' AND open = 1))`,
  },
  {
    invariant: 2,
    says: "the reason of a pause is one of its status",
    table: "runs",
    broken: `SELECT id, status || ', reason ' || coalesce(pause_reason, 'none') AS what FROM runs
      WHERE workflow = @workflow AND CASE
        WHEN pause_reason IS NULL THEN open = 1 AND ready_at IS NULL AND status LIKE 'paused:%'
        ELSE instr(CASE status
          WHEN 'paused:transient' THEN ' retrying limited breaker_open retries_exhausted deadline '
          WHEN 'paused:approval' THEN ' approval auth permission precondition binding step '
          WHEN 'paused:reconciliation' THEN ' checking indeterminate auth '
          WHEN 'crashed' THEN ' crash_loop ' ELSE '' END, ' ' || pause_reason || ' ') = 0
        END`,
  },
  {
    invariant: 3,
    says: "at most one run of a workflow is open",
    table: "runs",
    broken: `SELECT max(id) AS id, count(*) || ' open runs' AS what FROM runs
      WHERE workflow = @workflow AND open = 1 HAVING count(*) > 1`,
  },
  {
    invariant: 3,
    says: "the workflow knows its open run",
    table: "workflows",
    broken: `SELECT w.id, 'says ' || coalesce(w.open_run, 'none') AS what FROM workflows w WHERE w.id = @workflow
      AND w.open_run IS NOT (SELECT max(id) FROM runs WHERE workflow = @workflow AND open = 1)`,
  },
  {
    invariant: 4,
    says: "an attempt follows one older attempt of the same chain, which names it and is not open",
    table: "runs",
    broken: `SELECT r.id, 'after ' || p.id AS what FROM runs r JOIN runs p ON p.id = r.retry_of
      WHERE r.workflow = @workflow AND (p.workflow <> r.workflow OR p.handler <> r.handler OR p.id >= r.id
        OR p.root_id <> r.root_id OR r.attempt <> p.attempt + 1 OR p.successor IS NOT r.id OR p.open = 1)`,
  },
  {
    invariant: 4,
    says: "a successor exists and names its predecessor",
    table: "runs",
    broken: `SELECT r.id, 'successor ' || r.successor AS what FROM runs r WHERE r.workflow = @workflow
      AND r.successor IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM runs s WHERE s.id = r.successor AND s.retry_of = r.id)`,
  },
  {
    invariant: 4,
    says: "a first attempt is its own root, a later one has its predecessor",
    table: "runs",
    broken: `SELECT r.id, 'attempt ' || r.attempt || ' of ' || r.root_id AS what FROM runs r WHERE r.workflow = @workflow
      AND CASE WHEN r.retry_of IS NULL THEN r.root_id <> r.id OR r.attempt <> 1
        ELSE NOT EXISTS (SELECT 1 FROM runs p WHERE p.id = r.retry_of) AND ${UNPRUNED} END`,
  },
  {
    invariant: 4,
    says: "a run has at most one successor",
    table: "runs",
    broken: `SELECT max(id) AS id, count(*) || ' after ' || retry_of AS what FROM runs
      WHERE workflow = @workflow AND retry_of IS NOT NULL GROUP BY retry_of HAVING count(*) > 1`,
  },
  {
    invariant: 5,
    says: "a successor that took a decision over has byte-equal copies",
    table: "runs",
    broken: `SELECT o.id, 'after ' || p.id AS what FROM mutations m
      JOIN runs o ON o.id = m.owner_run JOIN runs p ON p.id = o.retry_of
      WHERE m.workflow = @workflow AND m.origin_run <> m.owner_run AND (o.prepared_json IS NOT p.prepared_json
        OR (p.result_json IS NOT NULL AND o.result_json IS NOT p.result_json)
        OR (p.outcome IS NOT NULL AND o.outcome IS NOT p.outcome))`,
  },
  {
    invariant: 5,
    says: "a run has the result that its ledger row has",
    table: "runs",
    broken: `SELECT o.id, 'row ' || m.id AS what FROM mutations m JOIN runs o ON o.id = m.owner_run
      WHERE m.workflow = @workflow AND m.status IN ('applied', 'skipped') AND o.result_json IS NOT m.result_json`,
  },
  {
    invariant: 6,
    says: "a run decides once and owns one decision",
    table: "mutations",
    broken: `SELECT max(id) AS id, count(*) || ' rows of run ' || owner_run AS what FROM mutations
        WHERE workflow = @workflow GROUP BY owner_run HAVING count(*) > 1
      UNION ALL SELECT max(id), count(*) || ' rows from run ' || origin_run FROM mutations
        WHERE workflow = @workflow GROUP BY origin_run HAVING count(*) > 1`,
  },
  {
    invariant: 6,
    says: "a decision's owner exists and is of the chain that made it",
    table: "mutations",
    broken: `SELECT m.id, 'from ' || m.origin_run || ' to ' || m.owner_run AS what FROM mutations m
      LEFT JOIN runs o ON o.id = m.owner_run LEFT JOIN runs g ON g.id = m.origin_run
      WHERE m.workflow = @workflow AND (o.id IS NULL OR o.id < m.origin_run OR (g.id IS NULL AND ${UNPRUNED})
        OR o.root_id <> coalesce(g.root_id, o.root_id))`,
  },
  {
    invariant: 7,
    says: "a ledger row fits the phase and the status of its owner",
    table: "mutations",
    broken: `SELECT m.id, m.status || ', owner ' || o.id || ' ' || o.status || ' at ' || o.phase AS what
      FROM mutations m JOIN runs o ON o.id = m.owner_run WHERE m.workflow = @workflow AND NOT CASE m.status
        WHEN 'proposed' THEN o.open = 1 AND o.phase = 'mutating' AND o.status IN ('active', 'paused:approval')
        WHEN 'in_flight' THEN o.open = 1 AND o.phase = 'mutating' AND o.status = 'active'
        WHEN 'needs_reconcile' THEN o.open = 1 AND o.phase = 'mutating' AND o.status IN ('active', 'paused:reconciliation')
        WHEN 'indeterminate' THEN o.open = 1 AND o.phase = 'mutating' AND o.status = 'paused:reconciliation'
        WHEN 'failed' THEN o.phase = 'mutating' AND o.status <> 'active'
        ELSE o.phase IN ('mutated', 'emitting', 'committed') END`,
  },
  {
    invariant: 7,
    says: "a run past its mutation has the outcome that its ledger row has",
    table: "runs",
    broken: `SELECT r.id, 'outcome ' || coalesce(r.outcome, 'missing') AS what FROM runs r
      WHERE r.workflow = @workflow AND r.kind = 'consumer' AND r.phase IN ('mutated', 'emitting', 'committed')
        AND (r.open = 1 OR r.status = 'committed') AND CASE
          WHEN EXISTS (SELECT 1 FROM mutations m WHERE m.owner_run = r.id)
            THEN r.outcome IS NOT (SELECT m.status FROM mutations m WHERE m.owner_run = r.id)
          ELSE r.outcome IS NULL OR r.outcome NOT IN ('none', 'skipped') END`,
  },
  {
    invariant: 7,
    says: "an open run that is mutating has its decision",
    table: "runs",
    broken: `SELECT r.id, r.status AS what FROM runs r WHERE r.workflow = @workflow AND r.open = 1
      AND r.phase = 'mutating' AND NOT EXISTS (SELECT 1 FROM mutations m WHERE m.owner_run = r.id)`,
  },
  {
    invariant: 8,
    says: "every send of a decision is on record, in order and with its key",
    table: "mutations",
    broken: `SELECT m.id, m.sends || ' sends, ' || count(s.n) || ' on record' AS what FROM mutations m
      LEFT JOIN sends s ON s.mutation = m.id WHERE m.workflow = @workflow GROUP BY m.id
      HAVING count(s.n) <> m.sends OR coalesce(max(s.n), 0) <> m.sends
        OR sum(s.idempotency_key <> m.idempotency_key) > 0`,
  },
  {
    invariant: 8,
    says: "what may have had an effect was sent, and what is proposed is not on its way",
    table: "mutations",
    broken: `SELECT m.id, m.status || ' with ' || m.sends || ' sends' AS what FROM mutations m
      WHERE m.workflow = @workflow AND CASE
        WHEN m.status IN ('in_flight', 'needs_reconcile', 'indeterminate', 'applied') THEN m.sends = 0
        WHEN m.status = 'failed' THEN m.not_sent = 0 AND m.sends = 0
        WHEN m.status = 'proposed'
          THEN EXISTS (SELECT 1 FROM sends s WHERE s.mutation = m.id AND s.ended_at IS NULL)
        ELSE 0 END`,
  },
  {
    invariant: 8,
    says: "nothing is sent again while the last send is open, unless its key makes it the same",
    table: "mutations",
    broken: `SELECT m.id, 'send ' || s.n AS what FROM mutations m JOIN sends s ON s.mutation = m.id
      WHERE m.workflow = @workflow AND m.proof <> 'key' AND s.n < m.sends AND s.ended_at IS NULL`,
  },
  {
    invariant: 9,
    says: "a chain whose outcome is unknown is not ready for a new run",
    table: "runs",
    broken: `SELECT r.id, m.status AS what FROM mutations m JOIN runs r ON r.id = m.owner_run
      WHERE m.workflow = @workflow AND m.status IN ${UNKNOWN} AND (r.ready_at IS NOT NULL OR r.successor IS NOT NULL)`,
  },
  {
    invariant: 9,
    says: "an unknown outcome is checked, or waits for a person; a settled one is left alone",
    table: "mutations",
    broken: `SELECT m.id, m.status || ', next check ' || coalesce(m.next_check_at, 'never') || ', ' || coalesce(o.pause_reason, 'no reason') AS what
      FROM mutations m JOIN runs o ON o.id = m.owner_run WHERE m.workflow = @workflow AND CASE
        WHEN m.status = 'needs_reconcile' AND o.status = 'paused:reconciliation'
          THEN (m.next_check_at IS NULL) <> (o.pause_reason = 'auth') OR o.pause_reason = 'indeterminate'
        WHEN m.status = 'indeterminate' THEN m.next_check_at IS NOT NULL OR o.pause_reason NOT IN ('indeterminate', 'auth')
        ELSE m.next_check_at IS NOT NULL AND m.status <> 'needs_reconcile' END`,
  },
  {
    invariant: 20,
    says: "only an open run that waits can be ready",
    table: "runs",
    broken: `SELECT id, status || ', open ' || open AS what FROM runs
      WHERE workflow = @workflow AND ready_at IS NOT NULL AND (open = 0 OR status = 'active')`,
  },
  {
    invariant: 21,
    says: "an open run that waits has a time, a check, or a person who is told",
    table: "runs",
    broken: `SELECT r.id, r.status || ' ' || coalesce(r.pause_reason, '') AS what FROM runs r
      WHERE r.workflow = @workflow AND r.open = 1 AND r.status <> 'active' AND r.ready_at IS NULL
        AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.workflow = @workflow AND i.run = r.id AND i.closed_at IS NULL)
        AND NOT EXISTS (SELECT 1 FROM mutations m WHERE m.owner_run = r.id AND m.next_check_at IS NOT NULL)`,
  },
  {
    invariant: 23,
    says: "a run belongs to a host that has started",
    table: "runs",
    broken: `SELECT id, 'host ' || host AS what FROM runs WHERE workflow = @workflow
      AND NOT EXISTS (SELECT 1 FROM hosts WHERE incarnation = runs.host)`,
  },
  {
    invariant: 25,
    says: "a run's version exists",
    table: "runs",
    broken: `SELECT id, 'version ' || version AS what FROM runs WHERE workflow = @workflow
      AND NOT EXISTS (SELECT 1 FROM versions v WHERE v.workflow = @workflow AND v.number = runs.version)`,
  },
];
