/**
 * Connections, bindings and grants in SQLite. What concerns one workflow goes through a Change like everything else of
 * it; connections belong to a namespace and are written here, each with its audit row.
 *
 * N1. Durable when it resolves, with its audit row in the same transaction.
 * N2. No version of a name's config or secrets is ever used twice, not even after the connection was removed.
 * N3. A put that changes nothing writes nothing.
 */
import type { GrantMode, Write } from "../../core/change.ts";
import { PawlError } from "../../core/errors.ts";
import type { ConnectionId, NamespaceId, WorkflowId } from "../../core/ids.ts";
import type { JsonText, Manifest } from "../../core/workflow.ts";
import type { ActedBy, Behind, ConnectionRow, Connections, Grant } from "../../ports/connections.ts";
import type { SqliteStore } from "../open.ts";
import type { Row } from "../rows.ts";
import { writeAudit } from "./audit.ts";
import { Statements } from "./statements.ts";

const OF_WORKFLOW =
  "SELECT n.id, n.name, n.settings_json, w.active_version FROM workflows w JOIN namespaces n ON n.id = w.namespace WHERE w.id = ?";
const MOST_MANIFESTS = 1_000;
const BOUND =
  "SELECT c.* FROM bindings b JOIN connections c ON c.id = b.connection WHERE b.workflow = ? AND b.alias = ?";
const NAMED = "SELECT * FROM connections WHERE namespace = ? AND name = ?";

export class SqliteConnections implements Connections {
  readonly #store: SqliteStore;
  readonly #statements: Statements;
  /** What versions declare; it never changes. */
  readonly #manifests = new Map<string, Manifest["connections"]>();

  constructor(store: SqliteStore) {
    this.#store = store;
    this.#statements = new Statements(store.db);
  }

  async namespace(name: string, atMs: number): Promise<NamespaceId> {
    const known = this.#row("SELECT id FROM namespaces WHERE name = ?", name);
    if (known) return known["id"] as number;
    await this.#write(() =>
      this.#statements
        .sql("INSERT INTO namespaces (id, name, created_at) VALUES (?, ?, ?) ON CONFLICT (name) DO NOTHING")
        .run(this.#store.newId(), name, atMs),
    );
    return this.namespace(name, atMs);
  }

  async behind(workflow: WorkflowId, alias: string): Promise<Behind | undefined> {
    const owner = this.#row(OF_WORKFLOW, workflow);
    if (!owner) return undefined;
    const connections = this.#declared(workflow, owner["active_version"] as number);
    const connector = Object.hasOwn(connections, alias) ? connections[alias] : undefined;
    const namespace = owner["id"] as number;
    const connection = this.#behind(workflow, namespace, alias, connector);
    const grants = connection
      ? this.#rows(
          "SELECT * FROM grants WHERE workflow = ? AND alias = ? AND connection = ?",
          workflow,
          alias,
          connection.id,
        )
      : [];
    const { defaultGrant } = JSON.parse(owner["settings_json"] as string) as { defaultGrant?: GrantMode };
    return {
      namespace: {
        id: namespace,
        name: owner["name"] as string,
        ...(defaultGrant === undefined ? {} : { defaultGrant }),
      },
      ...(connector === undefined ? {} : { connector }),
      ...(connection === undefined ? {} : { connection }),
      grants: grants.map(grantOf),
    };
  }

  async named(namespace: NamespaceId, name: string): Promise<ConnectionRow | undefined> {
    const row = this.#row(NAMED, namespace, name);
    return row && connectionOf(row);
  }

  async list(namespace: NamespaceId): Promise<ConnectionRow[]> {
    return this.#rows("SELECT * FROM connections WHERE namespace = ? ORDER BY name", namespace).map(
      connectionOf,
    );
  }

  async sealed(): Promise<ConnectionRow[]> {
    return this.#rows("SELECT * FROM connections WHERE sealed IS NOT NULL ORDER BY id").map(connectionOf);
  }

  async put(connection: Parameters<Connections["put"]>[0], by: ActedBy): Promise<ConnectionRow> {
    const { namespace, name, connector, config, seal } = connection;
    await this.#write(() => {
      const known = this.#row(NAMED, namespace, name);
      const gone = this.#row(
        "SELECT * FROM connections_gone WHERE namespace = ? AND name = ?",
        namespace,
        name,
      );
      const isSame = known?.["connector"] === connector && known["config_json"] === config;
      if (known && isSame && seal === undefined) return; // (N3)
      const before = known ?? gone;
      const lastConfig = (before?.["config_version"] as number | undefined) ?? 0;
      const lastSealed = (before?.["sealed_version"] as number | undefined) ?? 0;
      const sealedVersion = seal ? lastSealed + 1 : lastSealed; // (N2)
      const text = seal === undefined ? (known?.["sealed"] ?? null) : (seal?.(sealedVersion) ?? null);
      this.#statements
        .sql(
          `INSERT INTO connections (id, namespace, name, connector, config_json, config_version, sealed, sealed_version, created_at, updated_at)
           VALUES (@id, @namespace, @name, @connector, @config, @configVersion, @text, @sealedVersion, @at, @at)
           ON CONFLICT (namespace, name) DO UPDATE SET connector = excluded.connector, config_json = excluded.config_json,
             config_version = excluded.config_version, sealed = excluded.sealed, sealed_version = excluded.sealed_version,
             last_check_json = NULL, updated_at = excluded.updated_at`,
        )
        .run({
          id: (known?.["id"] as number | undefined) ?? this.#store.newId(),
          namespace,
          name,
          connector,
          config,
          configVersion: known && isSame ? lastConfig : lastConfig + 1,
          text,
          sealedVersion,
          at: by.atMs,
        });
      const detail = {
        name,
        connector,
        config: !isSame,
        secrets: seal === undefined ? "kept" : seal ? "set" : "removed",
      };
      this.#audit(namespace, known ? "connection.change" : "connection.create", detail, by);
    });
    return (await this.named(namespace, name)) as ConnectionRow;
  }

  async setDefaultGrant(namespace: NamespaceId, mode: GrantMode | undefined, by: ActedBy): Promise<void> {
    await this.#write(() => {
      const row = this.#row("SELECT settings_json FROM namespaces WHERE id = ?", namespace);
      const { defaultGrant: before, ...others } = JSON.parse(row?.["settings_json"] as string) as Record<
        string,
        unknown
      >;
      if (before === mode) return; // (N3)
      const settings = JSON.stringify(mode === undefined ? others : { ...others, defaultGrant: mode });
      this.#statements.sql("UPDATE namespaces SET settings_json = ? WHERE id = ?").run(settings, namespace);
      this.#audit(namespace, "grant.default", { before: before ?? null, now: mode ?? null }, by);
    });
  }

  async remove(namespace: NamespaceId, name: string, by: ActedBy): Promise<boolean> {
    const found = await this.named(namespace, name);
    if (!found) return false;
    const users = await this.usedBy(found.id);
    if (users.length > 0)
      throw new PawlError("connection-in-use", `${users.length} workflows use the connection ${name}`);
    return this.#write(() => {
      const gone = this.#statements
        .sql(
          "DELETE FROM connections WHERE id = ? AND NOT EXISTS (SELECT 1 FROM bindings WHERE connection = ?)",
        )
        .run(found.id, found.id);
      if (gone.changes === 0) return false;
      this.#statements
        .sql(
          "INSERT OR REPLACE INTO connections_gone (namespace, name, config_version, sealed_version) VALUES (?, ?, ?, ?)",
        )
        .run(namespace, name, found.configVersion, found.sealedVersion); // (N2)
      this.#statements.sql("DELETE FROM grants WHERE connection = ?").run(found.id);
      this.#audit(namespace, "connection.remove", { name, connector: found.connector }, by);
      return true;
    });
  }

  async checked(id: ConnectionId, found: JsonText): Promise<void> {
    await this.#write(() =>
      this.#statements.sql("UPDATE connections SET last_check_json = ? WHERE id = ?").run(found, id),
    );
  }

  reseal(id: ConnectionId, from: number, sealed: { text: string; version: number }): Promise<boolean> {
    return this.#write(
      () =>
        this.#statements
          .sql("UPDATE connections SET sealed = ?, sealed_version = ? WHERE id = ? AND sealed_version = ?")
          .run(sealed.text, sealed.version, id, from).changes === 1,
    );
  }

  async bindings(workflow: WorkflowId): Promise<Record<string, ConnectionId>> {
    const rows = this.#rows("SELECT alias, connection FROM bindings WHERE workflow = ?", workflow);
    return Object.fromEntries(rows.map((row) => [row["alias"] as string, row["connection"] as number]));
  }

  async bind(workflow: WorkflowId, bindings: Record<string, ConnectionId>, by: ActedBy): Promise<void> {
    const writes = Object.entries(bindings).map(
      ([alias, connection]): Write => ({ do: "bind", alias, connection }),
    );
    await this.#change("bind", workflow, writes, { bindings }, by);
  }

  async grants(workflow: WorkflowId): Promise<Grant[]> {
    return this.#rows(
      "SELECT * FROM grants WHERE workflow = ? ORDER BY alias, connection, tool",
      workflow,
    ).map(grantOf);
  }

  async grant(workflow: WorkflowId, grants: Omit<Grant, "version">[], by: ActedBy): Promise<void> {
    const writes = grants.map(
      ({ alias, connection, tool, mode }): Write => ({ do: "grant", alias, connection, tool, mode }),
    );
    await this.#change("grant", workflow, writes, { grants }, by);
  }

  async blocked(namespace: NamespaceId): Promise<WorkflowId[]> {
    return this.#rows(
      `SELECT w.id FROM workflows w JOIN runs r ON r.id = w.open_run
       WHERE w.namespace = ? AND r.pause_reason IN ('auth', 'binding') AND r.ready_at IS NULL`,
      namespace,
    ).map((row) => row["id"] as number);
  }

  async usedBy(id: ConnectionId): Promise<WorkflowId[]> {
    const row = this.#row("SELECT * FROM connections WHERE id = ?", id);
    if (!row) return [];
    const bound = this.#rows("SELECT DISTINCT workflow AS id FROM bindings WHERE connection = ?", id);
    const { namespace, name, connector } = connectionOf(row);
    const implied = this.#rows(
      `SELECT w.id FROM workflows w JOIN versions v ON v.workflow = w.id AND v.number = w.active_version
       WHERE w.namespace = ? AND json_extract(v.manifest_json, '$.connections."' || ? || '"') = ?
         AND NOT EXISTS (SELECT 1 FROM bindings b WHERE b.workflow = w.id AND b.alias = ?)`,
      namespace,
      name,
      connector,
      name,
    );
    return [...new Set([...bound, ...implied].map((one) => one["id"] as number))];
  }

  #declared(workflow: WorkflowId, version: number): Manifest["connections"] {
    const key = `${workflow}/${version}`;
    const known = this.#manifests.get(key);
    if (known) return known;
    const row = this.#row(
      "SELECT manifest_json FROM versions WHERE workflow = ? AND number = ?",
      workflow,
      version,
    );
    if (!row) return {};
    const { connections } = JSON.parse(row["manifest_json"] as string) as Manifest;
    if (this.#manifests.size >= MOST_MANIFESTS)
      this.#manifests.delete(this.#manifests.keys().next().value as string);
    this.#manifests.set(key, connections);
    return connections;
  }

  /** Bound, if that connection is of the connector the script names; else the one of the alias's own name. */
  #behind(
    workflow: WorkflowId,
    namespace: NamespaceId,
    alias: string,
    connector: string | undefined,
  ): ConnectionRow | undefined {
    const bound = this.#row(BOUND, workflow, alias);
    if (bound)
      return connector === undefined || bound["connector"] === connector ? connectionOf(bound) : undefined;
    const named = connector === undefined ? undefined : this.#row(NAMED, namespace, alias);
    return named?.["connector"] === connector && named ? connectionOf(named) : undefined;
  }

  async #change(
    verb: string,
    workflow: WorkflowId,
    writes: Write[],
    detail: object,
    by: ActedBy,
  ): Promise<void> {
    if (writes.length === 0) return;
    const { actor, note, atMs } = by;
    const audit: Write = {
      do: "audit",
      actor,
      action: verb,
      detail: JSON.stringify(detail),
      ...(note === undefined ? {} : { note }),
    };
    const change = { verb, workflow, atMs, expect: {}, writes: [...writes, audit] };
    const { fence } = this.#store;
    const done = await this.#store.apply(change, { level: "durable", fence }); // (N1)
    if (!done.ok) throw new Error(`${verb} of workflow ${workflow} was refused: ${done.because}`);
  }

  #audit(namespace: NamespaceId, action: string, detail: object, { actor, note, atMs }: ActedBy): void {
    const told = { actor, action, detail: JSON.stringify(detail), ...(note === undefined ? {} : { note }) };
    writeAudit(this.#statements, told, { namespace }, atMs);
  }

  #write<Result>(work: () => Result): Promise<Result> {
    return this.#store.maintain(work, "durable"); // (N1)
  }

  #row(sql: string, ...cells: (string | number)[]): Row | undefined {
    return this.#statements.sql(sql).get(...cells) as Row | undefined;
  }

  #rows(sql: string, ...cells: (string | number)[]): Row[] {
    return this.#statements.sql(sql).all(...cells) as Row[];
  }
}

function connectionOf(row: Row): ConnectionRow {
  return {
    id: row["id"] as number,
    namespace: row["namespace"] as number,
    name: row["name"] as string,
    connector: row["connector"] as string,
    config: row["config_json"] as string,
    configVersion: row["config_version"] as number,
    ...(row["sealed"] === null ? {} : { sealed: row["sealed"] as string }),
    sealedVersion: row["sealed_version"] as number,
    ...(row["last_check_json"] === null ? {} : { lastCheck: row["last_check_json"] as string }),
    createdAtMs: row["created_at"] as number,
    updatedAtMs: row["updated_at"] as number,
  };
}

const grantOf = (row: Row): Grant => ({
  alias: row["alias"] as string,
  connection: row["connection"] as number,
  tool: row["tool"] as string,
  mode: row["mode"] as GrantMode,
  version: row["version"] as number,
});
