-- What a tool's `before` saw when the decision was recorded: a later check compares with it.
ALTER TABLE mutations ADD COLUMN before_json TEXT;

-- A version that was active once needs no second consent. Whatever is stored already was deployed the old way.
ALTER TABLE versions ADD COLUMN activated_at INTEGER;
UPDATE versions SET activated_at = created_at;

-- What a removed connection had come to: one of the same name goes on from there, so that nothing pinned to the old one
-- ever fits the new one.
CREATE TABLE connections_gone (
  namespace INTEGER NOT NULL REFERENCES namespaces (id),
  name TEXT NOT NULL,
  config_version INTEGER NOT NULL,
  sealed_version INTEGER NOT NULL,
  PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX bindings_connection ON bindings (connection);
