-- Everything of the execution model and of connectors. Integers inside: an id is handed out by `meta.next_id`, unique
-- over all tables. Times are milliseconds since 1970. Text ending in _json is JSON, opaque to the database.

CREATE TABLE meta (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- One row per start of a host process. A row without ended_at whose process is gone was killed.
CREATE TABLE hosts (
  incarnation INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  started_at INTEGER NOT NULL,
  heartbeat_at INTEGER NOT NULL,
  ended_at INTEGER
) STRICT;

CREATE TABLE namespaces (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  settings_json TEXT NOT NULL DEFAULT '{}',
  audit_seq INTEGER NOT NULL DEFAULT 0,
  audit_hash TEXT NOT NULL DEFAULT '',
  created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE workflows (
  id INTEGER PRIMARY KEY,
  namespace INTEGER NOT NULL REFERENCES namespaces (id),
  name TEXT NOT NULL,
  revision INTEGER NOT NULL DEFAULT 1,
  generation INTEGER NOT NULL DEFAULT 0,
  seq INTEGER NOT NULL DEFAULT 0,
  journal_seq INTEGER NOT NULL DEFAULT 0,
  active_version INTEGER NOT NULL DEFAULT 0,
  paused INTEGER NOT NULL DEFAULT 0,
  archived INTEGER NOT NULL DEFAULT 0,
  mode TEXT NOT NULL DEFAULT 'auto' CHECK (mode IN ('auto', 'step')),
  consumer_streak INTEGER NOT NULL DEFAULT 0,
  open_run INTEGER,
  due_at INTEGER,
  labels_json TEXT NOT NULL DEFAULT '{}',
  params_json TEXT NOT NULL DEFAULT '{}',
  -- What a person allowed beforehand, used up by the Change that sends.
  approvals_json TEXT NOT NULL DEFAULT '[]',
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  UNIQUE (namespace, name)
) STRICT;
CREATE INDEX workflows_due ON workflows (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE versions (
  workflow INTEGER NOT NULL REFERENCES workflows (id),
  number INTEGER NOT NULL,
  hash TEXT NOT NULL,
  language TEXT NOT NULL,
  source TEXT NOT NULL,
  code TEXT NOT NULL,
  source_map TEXT,
  manifest_json TEXT NOT NULL,
  scope TEXT NOT NULL,
  note TEXT,
  created_at INTEGER NOT NULL,
  UNIQUE (workflow, number)
) STRICT;
CREATE INDEX versions_hash ON versions (workflow, hash);

CREATE TABLE handlers (
  id INTEGER PRIMARY KEY,
  workflow INTEGER NOT NULL REFERENCES workflows (id),
  kind TEXT NOT NULL CHECK (kind IN ('producer', 'consumer')),
  name TEXT NOT NULL,
  ord INTEGER NOT NULL,
  orphaned INTEGER NOT NULL DEFAULT 0,
  state_json TEXT,
  seen_seq INTEGER NOT NULL DEFAULT 0,
  queued_reason TEXT,
  queued_at INTEGER,
  triggered_reason TEXT,
  triggered_at INTEGER,
  wake_at INTEGER,
  next_run_at INTEGER,
  anchor_at INTEGER,
  due_at INTEGER,
  UNIQUE (workflow, kind, name)
) STRICT;

CREATE TABLE events (
  id INTEGER PRIMARY KEY,
  workflow INTEGER NOT NULL REFERENCES workflows (id),
  topic TEXT NOT NULL,
  message_id TEXT NOT NULL,
  revision INTEGER NOT NULL DEFAULT 1,
  seq INTEGER NOT NULL,
  -- NULL once retention has emptied it; the row stays to recognise the messageId.
  payload_json TEXT,
  payload_hash TEXT NOT NULL,
  hops INTEGER NOT NULL DEFAULT 0,
  run INTEGER,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  seen_at INTEGER NOT NULL,
  UNIQUE (workflow, topic, message_id)
) STRICT;
CREATE INDEX events_page ON events (workflow, topic, id);

-- Payloads that a newer one has replaced; a reserved delivery may still be pinned to one.
CREATE TABLE revisions (
  event INTEGER NOT NULL REFERENCES events (id),
  revision INTEGER NOT NULL,
  payload_json TEXT NOT NULL,
  replaced_at INTEGER NOT NULL,
  PRIMARY KEY (event, revision)
) STRICT, WITHOUT ROWID;

CREATE TABLE deliveries (
  id INTEGER PRIMARY KEY,
  event INTEGER NOT NULL REFERENCES events (id),
  handler INTEGER NOT NULL REFERENCES handlers (id),
  status TEXT NOT NULL CHECK (status IN ('pending', 'reserved', 'consumed', 'skipped', 'dead')),
  seq INTEGER NOT NULL,
  change_seq INTEGER NOT NULL,
  reserved_by INTEGER,
  released_by INTEGER,
  revision INTEGER NOT NULL DEFAULT 1,
  attempts INTEGER NOT NULL DEFAULT 1,
  late INTEGER NOT NULL DEFAULT 0,
  reprocess_of INTEGER,
  settled_at INTEGER,
  CHECK ((status = 'reserved') = (reserved_by IS NOT NULL))
) STRICT;
CREATE INDEX deliveries_event ON deliveries (event);
CREATE INDEX deliveries_pending ON deliveries (handler, seq) WHERE status = 'pending';
-- Of the few that got a new payload while they were pending; for all others the two sequences are equal.
CREATE INDEX deliveries_changed ON deliveries (handler, change_seq) WHERE status = 'pending' AND change_seq > seq;
CREATE INDEX deliveries_dead ON deliveries (handler, seq) WHERE status = 'dead';
CREATE INDEX deliveries_reserved ON deliveries (reserved_by) WHERE status = 'reserved';
CREATE INDEX deliveries_released ON deliveries (released_by) WHERE status = 'pending' AND released_by IS NOT NULL;

CREATE TABLE inputs (
  id INTEGER PRIMARY KEY,
  workflow INTEGER NOT NULL REFERENCES workflows (id),
  source TEXT NOT NULL,
  type TEXT NOT NULL,
  key TEXT NOT NULL,
  title TEXT NOT NULL,
  run INTEGER,
  created_at INTEGER NOT NULL,
  UNIQUE (workflow, source, type, key)
) STRICT;
CREATE INDEX inputs_page ON inputs (workflow, id);

CREATE TABLE causes (
  event INTEGER NOT NULL REFERENCES events (id),
  input INTEGER NOT NULL REFERENCES inputs (id),
  PRIMARY KEY (event, input)
) STRICT, WITHOUT ROWID;
CREATE INDEX causes_input ON causes (input);

CREATE TABLE runs (
  id INTEGER PRIMARY KEY,
  namespace INTEGER NOT NULL,
  workflow INTEGER NOT NULL REFERENCES workflows (id),
  version INTEGER NOT NULL,
  handler INTEGER NOT NULL REFERENCES handlers (id),
  kind TEXT NOT NULL,
  root_id INTEGER NOT NULL,
  retry_of INTEGER,
  successor INTEGER,
  attempt INTEGER NOT NULL,
  phase TEXT NOT NULL CHECK (
    phase IN ('executing', 'preparing', 'prepared', 'mutating', 'mutated', 'emitting', 'committed')
  ),
  status TEXT NOT NULL CHECK (
    status IN (
      'active', 'paused:transient', 'paused:approval', 'paused:reconciliation',
      'failed:logic', 'failed:internal', 'committed', 'crashed'
    )
  ),
  pause_reason TEXT,
  open INTEGER NOT NULL,
  ready_at INTEGER,
  retries INTEGER NOT NULL,
  crashes INTEGER NOT NULL,
  crash_phase TEXT,
  redos INTEGER NOT NULL,
  outcome TEXT,
  start_seq INTEGER NOT NULL,
  chain_started_at INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  ended_at INTEGER,
  deadline_at INTEGER,
  wake_at INTEGER,
  host INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  -- Last, because they may be long: a page that filters by what stands before them never reads them.
  trigger_json TEXT NOT NULL,
  error_json TEXT,
  resolution_json TEXT,
  resources_json TEXT,
  policy_json TEXT,
  prepared_json TEXT,
  result_json TEXT,
  CHECK ((phase = 'committed') = (status = 'committed'))
) STRICT;
-- The law of 02 §1.1, kept by the database itself.
CREATE UNIQUE INDEX runs_open ON runs (workflow) WHERE open = 1;
CREATE UNIQUE INDEX runs_successor ON runs (retry_of) WHERE retry_of IS NOT NULL;
CREATE INDEX runs_active ON runs (host) WHERE status = 'active';
CREATE INDEX runs_page ON runs (workflow, id);
CREATE INDEX runs_namespace ON runs (namespace, id);
CREATE INDEX runs_stopped ON runs (namespace, id) WHERE status NOT IN ('active', 'committed');
CREATE INDEX runs_ended ON runs (ended_at) WHERE open = 0;

CREATE TRIGGER runs_ended_are_final BEFORE UPDATE OF
  id, namespace, workflow, version, handler, kind, trigger_json, root_id, retry_of, attempt, phase, status, retries, crashes,
  crash_phase, redos, outcome, prepared_json, result_json, error_json, policy_json, start_seq, chain_started_at,
  created_at, ended_at, wake_at, resources_json, host
ON runs WHEN OLD.status IN ('paused:transient', 'failed:logic', 'failed:internal', 'committed', 'crashed')
BEGIN SELECT RAISE (ABORT, 'an ended run is never rewritten'); END;

CREATE TRIGGER runs_phase_goes_forward BEFORE UPDATE OF phase ON runs
WHEN NEW.phase <> OLD.phase AND
  instr('executing preparing prepared mutating mutated emitting committed', NEW.phase)
  < instr('executing preparing prepared mutating mutated emitting committed', OLD.phase)
BEGIN SELECT RAISE (ABORT, 'a phase never goes back'); END;

CREATE TABLE mutations (
  id INTEGER PRIMARY KEY,
  workflow INTEGER NOT NULL REFERENCES workflows (id),
  origin_run INTEGER NOT NULL,
  owner_run INTEGER NOT NULL,
  status TEXT NOT NULL CHECK (
    status IN ('proposed', 'in_flight', 'needs_reconcile', 'indeterminate', 'applied', 'failed', 'skipped')
  ),
  alias TEXT NOT NULL,
  connection TEXT NOT NULL,
  config_version INTEGER NOT NULL,
  tool TEXT NOT NULL,
  args_json TEXT NOT NULL,
  description TEXT NOT NULL,
  proof TEXT NOT NULL,
  idempotency_key TEXT NOT NULL,
  n INTEGER NOT NULL,
  sends INTEGER NOT NULL,
  ended_at INTEGER,
  settle_ms INTEGER NOT NULL,
  checks INTEGER NOT NULL,
  next_check_at INTEGER,
  resending INTEGER,
  result_json TEXT,
  result_invalid INTEGER NOT NULL DEFAULT 0,
  not_sent INTEGER NOT NULL DEFAULT 0,
  error_json TEXT,
  created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX mutations_owner ON mutations (owner_run);
CREATE INDEX mutations_page ON mutations (workflow, id);
CREATE INDEX mutations_check ON mutations (next_check_at) WHERE next_check_at IS NOT NULL;

CREATE TRIGGER mutations_settled_are_final BEFORE UPDATE OF
  status, origin_run, alias, connection, tool, args_json, idempotency_key, n, sends, result_json
ON mutations WHEN OLD.status IN ('applied', 'failed', 'skipped')
BEGIN SELECT RAISE (ABORT, 'a settled decision is never rewritten'); END;

CREATE TABLE sends (
  mutation INTEGER NOT NULL REFERENCES mutations (id),
  n INTEGER NOT NULL,
  run INTEGER NOT NULL,
  at INTEGER NOT NULL,
  bytes_hash TEXT NOT NULL,
  idempotency_key TEXT NOT NULL,
  ended_at INTEGER,
  answer_json TEXT,
  PRIMARY KEY (mutation, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE evidence (
  id INTEGER PRIMARY KEY,
  mutation INTEGER NOT NULL REFERENCES mutations (id),
  run INTEGER NOT NULL,
  what TEXT NOT NULL,
  detail_json TEXT NOT NULL,
  at INTEGER NOT NULL
) STRICT;
CREATE INDEX evidence_mutation ON evidence (mutation);

-- One row per Change and run: entries first … first + count − 1, so that the sequence has no gap. With rowids on purpose:
-- rows are appended, and only the narrow indexes are written all over the place (a third fewer pages per run).
CREATE TABLE journal (
  workflow INTEGER NOT NULL,
  first INTEGER NOT NULL,
  count INTEGER NOT NULL,
  run INTEGER,
  verb TEXT NOT NULL,
  at INTEGER NOT NULL,
  entries_json TEXT NOT NULL,
  PRIMARY KEY (workflow, first)
) STRICT;
CREATE INDEX journal_run ON journal (run, first) WHERE run IS NOT NULL;
CREATE TRIGGER journal_is_append_only BEFORE UPDATE ON journal
BEGIN SELECT RAISE (ABORT, 'the journal is never rewritten'); END;
CREATE TRIGGER journal_is_pruned_only BEFORE DELETE ON journal
WHEN NOT EXISTS (SELECT 1 FROM meta WHERE key = 'pruning')
BEGIN SELECT RAISE (ABORT, 'the journal is never rewritten'); END;

CREATE TABLE slots (
  handler INTEGER NOT NULL REFERENCES handlers (id),
  from_at INTEGER NOT NULL,
  to_at INTEGER NOT NULL,
  count INTEGER NOT NULL,
  count_is_floor INTEGER NOT NULL DEFAULT 0,
  fate TEXT NOT NULL CHECK (fate IN ('ran', 'coalesced', 'skipped', 'missed', 'failed')),
  run INTEGER,
  why TEXT,
  PRIMARY KEY (handler, from_at)
) STRICT, WITHOUT ROWID;

CREATE TABLE inbox (
  id INTEGER PRIMARY KEY,
  namespace INTEGER NOT NULL,
  workflow INTEGER NOT NULL REFERENCES workflows (id),
  kind TEXT NOT NULL,
  run INTEGER,
  handler INTEGER,
  detail_json TEXT,
  opened_at INTEGER NOT NULL,
  closed_at INTEGER
) STRICT;
CREATE INDEX inbox_open ON inbox (workflow, run) WHERE closed_at IS NULL;
CREATE INDEX inbox_page ON inbox (namespace, id) WHERE closed_at IS NULL;

CREATE TABLE transcripts (
  run INTEGER NOT NULL,
  unit TEXT NOT NULL,
  blob TEXT NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (run, unit)
) STRICT, WITHOUT ROWID;
CREATE INDEX transcripts_at ON transcripts (at);

CREATE TABLE blobs (
  hash TEXT PRIMARY KEY,
  body_json TEXT NOT NULL,
  used_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX blobs_used ON blobs (used_at);

CREATE TABLE logs (
  id INTEGER PRIMARY KEY,
  run INTEGER NOT NULL,
  unit TEXT NOT NULL,
  lines_json TEXT NOT NULL,
  at INTEGER NOT NULL
) STRICT;
CREATE INDEX logs_run ON logs (run);

CREATE TABLE connections (
  id INTEGER PRIMARY KEY,
  namespace INTEGER NOT NULL REFERENCES namespaces (id),
  name TEXT NOT NULL,
  connector TEXT NOT NULL,
  config_json TEXT NOT NULL,
  config_version INTEGER NOT NULL,
  sealed TEXT,
  sealed_version INTEGER NOT NULL DEFAULT 0,
  last_check_json TEXT,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  UNIQUE (namespace, name)
) STRICT;

CREATE TABLE bindings (
  workflow INTEGER NOT NULL REFERENCES workflows (id),
  alias TEXT NOT NULL,
  connection INTEGER NOT NULL REFERENCES connections (id),
  PRIMARY KEY (workflow, alias)
) STRICT, WITHOUT ROWID;

CREATE TABLE grants (
  workflow INTEGER NOT NULL REFERENCES workflows (id),
  alias TEXT NOT NULL,
  connection INTEGER NOT NULL,
  tool TEXT NOT NULL,
  mode TEXT NOT NULL CHECK (mode IN ('allow', 'approve', 'deny')),
  version INTEGER NOT NULL DEFAULT 1,
  PRIMARY KEY (workflow, alias, connection, tool)
) STRICT, WITHOUT ROWID;

CREATE TABLE policies (
  scope TEXT PRIMARY KEY,
  rules_json TEXT NOT NULL,
  updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE tokens (
  id INTEGER PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  role TEXT NOT NULL,
  namespace INTEGER REFERENCES namespaces (id),
  created_at INTEGER NOT NULL,
  expires_at INTEGER,
  revoked_at INTEGER
) STRICT;

CREATE TABLE audit (
  namespace INTEGER NOT NULL REFERENCES namespaces (id),
  seq INTEGER NOT NULL,
  at INTEGER NOT NULL,
  actor TEXT NOT NULL,
  action TEXT NOT NULL,
  workflow INTEGER,
  run INTEGER,
  detail_json TEXT NOT NULL,
  note TEXT,
  hash TEXT NOT NULL,
  PRIMARY KEY (namespace, seq)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER audit_is_append_only BEFORE UPDATE ON audit
BEGIN SELECT RAISE (ABORT, 'the audit is never rewritten'); END;
CREATE TRIGGER audit_is_kept BEFORE DELETE ON audit
BEGIN SELECT RAISE (ABORT, 'the audit is never rewritten'); END;

CREATE TABLE limits (
  namespace INTEGER NOT NULL REFERENCES namespaces (id),
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  state_json TEXT NOT NULL,
  expires_at INTEGER,
  PRIMARY KEY (namespace, kind, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE outbox (
  id INTEGER PRIMARY KEY,
  workflow INTEGER,
  topic TEXT NOT NULL,
  body_json TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  next_at INTEGER,
  attempts INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX outbox_next ON outbox (next_at) WHERE next_at IS NOT NULL;
