/**
 * Connections, bindings and grants, as they are stored: who may use what behind which alias. Secrets pass through here
 * sealed; nobody behind this port can read them. Every write is one transaction with its audit row, durable when it
 * resolves.
 */
import type { ConnectionId, EpochMs, NamespaceId, WorkflowId } from "../core/ids.ts";
import type { Json, JsonText } from "../core/workflow.ts";
import type { GrantMode } from "./connector.ts";

/** What kind of tools a connector has; absent where this host knows no such connector. */
export type ToolsOf = (connector: string) => Record<string, "read" | "mutation"> | undefined;

/** What of a config or of secrets does not fit its connector, and where. Never holds a value. */
export interface Misfit {
  /** `config.baseUrl`, `secrets.token` … */
  path: string;
  message: string;
}

/** What a connection's own check has found; `unknown` where its connector has none. */
export type Health =
  | { status: "ok" | "unknown" }
  | { status: "auth" | "unreachable" | "invalid"; message: string };

/** What a host knows of its connectors, and the keys to their secrets. Nothing of the secrets comes back. */
export interface Connectors {
  readonly names: readonly string[];
  readonly toolsOf: ToolsOf;
  /** Empty when all fits. Without `secrets` those of `stored` count; `null` is none. */
  misfits(given: {
    connector: string;
    config: Json;
    secrets?: Json | null;
    stored?: ConnectionRow;
  }): Misfit[];
  /** True when these are what is sealed already. */
  areStored(row: ConnectionRow, secrets: Json): boolean;
  seal(of: { namespace: NamespaceId; name: string; version: number; secrets: Json }): string;
  /** Never rejects. */
  check(row: ConnectionRow, namespace: string, signal: AbortSignal): Promise<Health>;
}

export interface ConnectionRow {
  id: ConnectionId;
  namespace: NamespaceId;
  name: string;
  connector: string;
  config: JsonText;
  /** Raised when the config changes; new secrets alone leave it. */
  configVersion: number;
  /** The secrets, encrypted and bound to namespace, name and `sealedVersion`. */
  sealed?: string;
  sealedVersion: number;
  lastCheck?: JsonText;
  createdAtMs: EpochMs;
  updatedAtMs: EpochMs;
}

export interface Grant {
  alias: string;
  connection: ConnectionId;
  /** A tool's name, or `*`. */
  tool: string;
  mode: GrantMode;
  /** Another one whenever it is set anew, also after it was taken back. */
  version: number;
}

/** Everything that decides what an alias of a workflow may do, in one snapshot. */
export interface Behind {
  namespace: { id: NamespaceId; name: string; defaultGrant?: GrantMode };
  /** As the active version declares it; absent when it declares no such alias. */
  connector?: string;
  /** Bound, or else the namespace's connection of the same name and connector. */
  connection?: ConnectionRow;
  /** Of this alias and connection. */
  grants: Grant[];
}

/** Who acts, for the audit row. */
export interface ActedBy {
  actor: string;
  note?: string;
  atMs: EpochMs;
}

export interface Connections {
  /** The id of a namespace, which is made if it is not there. */
  namespace(name: string, atMs: EpochMs): Promise<NamespaceId>;
  behind(workflow: WorkflowId, alias: string): Promise<Behind | undefined>;
  named(namespace: NamespaceId, name: string): Promise<ConnectionRow | undefined>;
  list(namespace: NamespaceId): Promise<ConnectionRow[]>;
  /** Creates or replaces. Without `seal` the stored secrets stay; `null` removes them. */
  put(
    connection: {
      namespace: NamespaceId;
      name: string;
      connector: string;
      config: JsonText;
      /** Asked inside the transaction, with a version that this name never had before. */
      seal?: ((version: number) => string) | null;
    },
    by: ActedBy,
  ): Promise<ConnectionRow>;
  /** The default of a namespace for mutations without a grant; `undefined` leaves it to the host. */
  setDefaultGrant(namespace: NamespaceId, mode: GrantMode | undefined, by: ActedBy): Promise<void>;
  /** False when it is not there. Refused with `connection-in-use` while something is bound to it. */
  remove(namespace: NamespaceId, name: string, by: ActedBy): Promise<boolean>;
  checked(id: ConnectionId, found: JsonText): Promise<void>;
  /** Every connection that has secrets, of all namespaces: for a start, and for the rotation of keys. */
  sealed(): Promise<ConnectionRow[]>;
  /** Seals one row anew, if nobody has changed it since (`from`); for the rotation of keys. */
  reseal(id: ConnectionId, from: number, sealed: { text: string; version: number }): Promise<boolean>;

  bindings(workflow: WorkflowId): Promise<Record<string, ConnectionId>>;
  bind(workflow: WorkflowId, bindings: Record<string, ConnectionId>, by: ActedBy): Promise<void>;
  grants(workflow: WorkflowId): Promise<Grant[]>;
  /** Sets these; those of the same alias, connection and tool are replaced, others stay. */
  grant(workflow: WorkflowId, grants: Omit<Grant, "version">[], by: ActedBy): Promise<void>;
  /** Workflows of a namespace whose open run waits for a connection to be made, bound or let in again. */
  blocked(namespace: NamespaceId): Promise<WorkflowId[]>;
  /** Workflows with an alias behind which this connection stands. */
  usedBy(id: ConnectionId): Promise<WorkflowId[]>;
}
