/**
 * What the API keeps: tokens, answers to requests with a key, rules and settings of namespaces.
 *
 * K1. What is decided stands on disk with its audit row, in one transaction.
 * K2. No token is stored, only its hash.
 * K3. That a request was begun is written before anything it does: the log keeps the order, so that no power cut can take
 *     the note back and leave the effect.
 */
import type { NamespaceId } from "../../core/ids.ts";
import type { ActedBy } from "../../ports/connections.ts";
import type {
  Answers,
  Begun,
  HostRow,
  Kept,
  NamespaceSettings,
  RuleBook,
  Settings,
  StoredRules,
  Token,
  TokenRole,
  Tokens,
} from "../../ports/principals.ts";
import type { Page, PageRequest } from "../../ports/records.ts";
import type { SqliteStore } from "../open.ts";
import type { Row } from "../rows.ts";
import { writeAudit } from "./audit.ts";
import { given, keyOf, limitOf, pageOf } from "./paging.ts";
import { Statements } from "./statements.ts";

const NEWEST = Number.MAX_SAFE_INTEGER;
const HOME = "default";
const FORGOTTEN_AT_ONCE = 100;
const HOSTS_SHOWN = 100;
const TOKEN =
  "SELECT t.*, n.name AS namespace_name FROM tokens t LEFT JOIN namespaces n ON n.id = t.namespace";
const OF_NAMESPACE = `${TOKEN} WHERE t.namespace = (SELECT id FROM namespaces WHERE name = @namespace) AND t.id < @before+0 ORDER BY t.id DESC LIMIT @limit+0`;
const OF_ALL = `${TOKEN} WHERE t.id < @before+0 ORDER BY t.id DESC LIMIT @limit+0`;

export function openKept(store: SqliteStore): Kept {
  const statements = new Statements(store.db);
  return {
    tokens: new SqliteTokens(store, statements),
    answers: new SqliteAnswers(store, statements),
    settings: new SqliteSettings(store, statements),
    rules: new SqliteRules(store, statements),
    hosts: async () =>
      (
        statements.sql(`SELECT * FROM hosts ORDER BY incarnation DESC LIMIT ${HOSTS_SHOWN}`).all() as Row[]
      ).map(hostOf),
  };
}

function audited(
  statements: Statements,
  namespace: number,
  what: { action: string; detail: unknown },
  { actor, note, atMs }: ActedBy,
): void {
  const detail = JSON.stringify(what.detail);
  const told = { actor, action: what.action, detail, ...(note === undefined ? {} : { note }) };
  writeAudit(statements, told, { namespace }, atMs); // (K1)
}

/** Inside a transaction. */
function namespaceId(store: SqliteStore, statements: Statements, name: string, atMs: number): NamespaceId {
  const id = () => statements.sql("SELECT id FROM namespaces WHERE name = ?").pluck().get(name);
  const known = id() as number | undefined;
  if (known !== undefined) return known;
  statements
    .sql("INSERT INTO namespaces (id, name, created_at) VALUES (?, ?, ?)")
    .run(store.newId(), name, atMs);
  return id() as number;
}

class SqliteTokens implements Tokens {
  readonly #store: SqliteStore;
  readonly #statements: Statements;

  constructor(store: SqliteStore, statements: Statements) {
    this.#store = store;
    this.#statements = statements;
  }

  async hashed(hash: string): Promise<Token | undefined> {
    return this.#one(`${TOKEN} WHERE t.hash = ?`, hash);
  }

  async one(id: number): Promise<Token | undefined> {
    return this.#one(`${TOKEN} WHERE t.id = ?`, id);
  }

  async list(namespace: string | undefined, page: PageRequest): Promise<Page<Token>> {
    const limit = limitOf(page);
    const before = keyOf("tokens", page, NEWEST);
    const cells = { before, limit: limit + 1 };
    const rows =
      namespace === undefined
        ? this.#statements.sql(OF_ALL).all(cells)
        : this.#statements.sql(OF_NAMESPACE).all({ ...cells, namespace });
    return pageOf("tokens", rows as Row[], limit, "id", tokenOf);
  }

  async create(
    { hash, name, role, namespace, expiresAtMs }: Parameters<Tokens["create"]>[0],
    by: ActedBy,
  ): Promise<Token> {
    const id = await this.#store.maintain(() => {
      const made = this.#store.newId();
      const of = namespaceId(this.#store, this.#statements, namespace ?? HOME, by.atMs);
      this.#statements
        .sql(
          "INSERT INTO tokens (id, hash, name, role, namespace, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
        )
        .run(made, hash, name, role, namespace === undefined ? null : of, by.atMs, expiresAtMs ?? null); // (K2)
      const detail = { token: made, name, role, namespace: namespace ?? null };
      audited(this.#statements, of, { action: "token.create", detail }, by);
      return made;
    }, "durable");
    return (await this.one(id)) as Token;
  }

  async revoke(id: number, by: ActedBy): Promise<boolean> {
    return this.#store.maintain(() => {
      const row = this.#statements.sql("SELECT * FROM tokens WHERE id = ?").get(id) as Row | undefined;
      if (!row || row["revoked_at"] !== null) return false;
      this.#statements.sql("UPDATE tokens SET revoked_at = ? WHERE id = ?").run(by.atMs, id);
      const of =
        (row["namespace"] as number | null) ?? namespaceId(this.#store, this.#statements, HOME, by.atMs);
      const detail = { token: id, name: row["name"] };
      audited(this.#statements, of, { action: "token.revoke", detail }, by);
      return true;
    }, "durable");
  }

  async hasAdmin(nowMs: number): Promise<boolean> {
    const found = this.#statements
      .sql(
        "SELECT 1 FROM tokens WHERE role = 'admin' AND namespace IS NULL AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?) LIMIT 1",
      )
      .get(nowMs);
    return found !== undefined;
  }

  #one(sql: string, cell: string | number): Token | undefined {
    const row = this.#statements.sql(sql).get(cell) as Row | undefined;
    return row && tokenOf(row);
  }
}

const tokenOf = (row: Row): Token => ({
  id: row["id"] as number,
  name: row["name"] as string,
  role: row["role"] as TokenRole,
  ...given<"namespace", string>("namespace", row["namespace_name"]),
  createdAtMs: row["created_at"] as number,
  ...given<"expiresAtMs", number>("expiresAtMs", row["expires_at"]),
  ...given<"revokedAtMs", number>("revokedAtMs", row["revoked_at"]),
});

class SqliteAnswers implements Answers {
  readonly #store: SqliteStore;
  readonly #statements: Statements;

  constructor(store: SqliteStore, statements: Statements) {
    this.#store = store;
    this.#statements = statements;
  }

  begin(
    { principal, key, hash }: Parameters<Answers["begin"]>[0],
    { nowMs, keepMs }: Parameters<Answers["begin"]>[1],
  ): Promise<Begun> {
    return this.#store.maintain((): Begun => {
      this.#statements
        .sql(
          `DELETE FROM answers WHERE (principal, key) IN (SELECT principal, key FROM answers WHERE expires_at <= ? ORDER BY expires_at LIMIT ${FORGOTTEN_AT_ONCE})`,
        )
        .run(nowMs);
      const row = this.#statements
        .sql("SELECT * FROM answers WHERE principal = ? AND key = ? AND expires_at > ?")
        .get(principal, key, nowMs) as Row | undefined;
      if (row) return begunOf(row, hash);
      this.#statements
        .sql(
          "INSERT OR REPLACE INTO answers (principal, key, request_hash, begun_at, expires_at) VALUES (?, ?, ?, ?, ?)",
        )
        .run(principal, key, hash, nowMs, nowMs + keepMs);
      return { is: "new" };
    }, "applied"); // (K3)
  }

  async finish(
    principal: string,
    key: string,
    { status, body }: { status: number; body?: string },
  ): Promise<void> {
    await this.#store.maintain(() =>
      this.#statements
        .sql("UPDATE answers SET status = ?, body = ? WHERE principal = ? AND key = ?")
        .run(status, body ?? null, principal, key),
    );
  }

  async forget(principal: string, key: string): Promise<void> {
    await this.#store.maintain(() =>
      this.#statements.sql("DELETE FROM answers WHERE principal = ? AND key = ?").run(principal, key),
    );
  }
}

function begunOf(row: Row, hash: string): Begun {
  if (row["request_hash"] !== hash) return { is: "other" };
  if (row["status"] === null) return { is: "lost" };
  return { is: "known", status: row["status"] as number, ...given<"body", string>("body", row["body"]) };
}

class SqliteSettings implements Settings {
  readonly #store: SqliteStore;
  readonly #statements: Statements;

  constructor(store: SqliteStore, statements: Statements) {
    this.#store = store;
    this.#statements = statements;
  }

  async get(namespace: NamespaceId): Promise<NamespaceSettings> {
    const { defaultGrant, mostWorkflows } = this.#read(namespace);
    return {
      ...(defaultGrant === undefined ? {} : { defaultGrant }),
      ...(mostWorkflows === undefined ? {} : { mostWorkflows }),
    };
  }

  async set(namespace: NamespaceId, settings: Parameters<Settings["set"]>[1], by: ActedBy): Promise<void> {
    await this.#store.maintain(() => {
      const before = this.#read(namespace);
      const merged = Object.entries({ ...before, ...settings }).filter(([, value]) => value !== null);
      const now = JSON.stringify(Object.fromEntries(merged));
      if (now === JSON.stringify(before)) return;
      this.#statements.sql("UPDATE namespaces SET settings_json = ? WHERE id = ?").run(now, namespace);
      audited(this.#statements, namespace, { action: "namespace.set", detail: settings }, by);
    }, "durable");
  }

  namespace(name: string, atMs: number): Promise<NamespaceId> {
    return this.#store.maintain(() => namespaceId(this.#store, this.#statements, name, atMs));
  }

  async workflowCount(namespace: NamespaceId): Promise<number> {
    return this.#statements
      .sql("SELECT count(*) FROM workflows WHERE namespace = ? AND archived = 0")
      .pluck()
      .get(namespace) as number;
  }

  #read(namespace: NamespaceId): NamespaceSettings & Record<string, unknown> {
    const text = this.#statements
      .sql("SELECT settings_json FROM namespaces WHERE id = ?")
      .pluck()
      .get(namespace) as string | undefined;
    return JSON.parse(text ?? "{}") as NamespaceSettings & Record<string, unknown>;
  }
}

class SqliteRules implements RuleBook {
  readonly #store: SqliteStore;
  readonly #statements: Statements;

  constructor(store: SqliteStore, statements: Statements) {
    this.#store = store;
    this.#statements = statements;
  }

  all(): StoredRules[] {
    return this.#statements
      .sql("SELECT scope, rules_json AS rules, updated_at AS updatedAtMs FROM policies ORDER BY scope")
      .all() as StoredRules[];
  }

  async put({ scope, rules }: Omit<StoredRules, "updatedAtMs">, namespace: NamespaceId, by: ActedBy) {
    await this.#store.maintain(() => {
      this.#statements
        .sql(
          "INSERT INTO policies (scope, rules_json, updated_at) VALUES (@scope, @rules, @atMs) ON CONFLICT (scope) DO UPDATE SET rules_json = @rules, updated_at = @atMs",
        )
        .run({ scope, rules, atMs: by.atMs });
      audited(
        this.#statements,
        namespace,
        { action: "policies", detail: { scope, rules: JSON.parse(rules) as unknown } },
        by,
      );
    }, "durable");
  }
}

const hostOf = (row: Row): HostRow => ({
  id: row["incarnation"] as number,
  name: row["name"] as string,
  startedAtMs: row["started_at"] as number,
  seenAtMs: row["heartbeat_at"] as number,
  ...given<"endedAtMs", number>("endedAtMs", row["ended_at"]),
});
