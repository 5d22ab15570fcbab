-- Answers of requests that carried an Idempotency-Key, for a day. A row without a status was begun, and nobody knows how
-- it ended.
CREATE TABLE answers (
  principal TEXT NOT NULL,
  key TEXT NOT NULL,
  request_hash TEXT NOT NULL,
  status INTEGER,
  -- NULL where the answer showed something once.
  body TEXT,
  begun_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (principal, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX answers_expires ON answers (expires_at);

CREATE INDEX tokens_namespace ON tokens (namespace, id);
