/**
 * Connections, bindings and grants of the simulated world. Bindings and grants are rows that the host itself writes, lost
 * and kept with the disk; how often a connection was configured anew the outside remembers, whatever host is there.
 */
import type { GrantMode, Write } from "../../host/core/change.ts";
import type { Disk } from "./disk.ts";

/** What was said of an alias and a tool when the host last asked. */
export interface Behind {
  connection: string;
  configVersion: number;
  grant: GrantMode;
  grantVersion: number;
}

/** Ids that no host hands out. */
const NAMESPACE = 900_000_000_001;
const CONNECTIONS = { bank: 900_000_000_002, "other-bank": 900_000_000_003 } as const;
export type ConnectionName = keyof typeof CONNECTIONS;
export const CONNECTION_NAMES = Object.keys(CONNECTIONS) as ConnectionName[];

const BOUND =
  "SELECT c.id, c.name FROM bindings b JOIN connections c ON c.id = b.connection WHERE b.workflow = ? AND b.alias = 'bank'";
const GRANTED =
  "SELECT mode, version FROM grants WHERE workflow = ? AND alias = 'bank' AND connection = ? AND tool = ?";

export class SimAccess {
  readonly #disk: Disk;
  readonly #versions = new Map<string, number>();
  readonly #told = new Map<string, Behind>();

  constructor(disk: Disk) {
    this.#disk = disk;
    const { db } = disk;
    db.prepare("INSERT INTO namespaces (id, name, created_at) VALUES (?, 'default', 0)").run(NAMESPACE);
    for (const name of CONNECTION_NAMES)
      db.prepare(
        "INSERT INTO connections (id, namespace, name, connector, config_json, config_version, created_at, updated_at) VALUES (?, ?, ?, 'http', '{}', 1, 0, 0)",
      ).run(CONNECTIONS[name], NAMESPACE, name);
  }

  configVersion(connection: string): number {
    return this.#versions.get(connection) ?? 1;
  }

  configure(connection: ConnectionName): void {
    this.#versions.set(connection, this.configVersion(connection) + 1);
  }

  /** As it is now; `fallback` is the grant of what nobody has set. */
  behind(workflow: number, tool: string, fallback: GrantMode, asked?: string): Behind {
    const bound = this.#disk.statement(BOUND).get(workflow) as { id: number; name: string } | undefined;
    const { id, name } = bound ?? { id: CONNECTIONS.bank, name: "bank" };
    const given = this.#disk.statement(GRANTED).get(workflow, id, tool) as
      | { mode: GrantMode; version: number }
      | undefined;
    const connection = asked ?? name;
    return {
      connection,
      configVersion: this.configVersion(connection),
      grant: given?.mode ?? fallback,
      grantVersion: given?.version ?? 0,
    };
  }

  /** The same, and remembered as what the host was told. */
  tell(workflow: number, tool: string, fallback: GrantMode, asked?: string): Behind {
    const behind = this.behind(workflow, tool, fallback, asked);
    this.#told.set(`${workflow} ${tool}`, behind);
    return behind;
  }

  told(workflow: number, tool: string): Behind | undefined {
    return this.#told.get(`${workflow} ${tool}`);
  }

  bind(to: ConnectionName): Write {
    return { do: "bind", alias: "bank", connection: CONNECTIONS[to] };
  }

  grant(workflow: number, tool: string, mode: GrantMode): Write {
    const bound = this.#disk.statement(BOUND).get(workflow) as { id: number } | undefined;
    return { do: "grant", alias: "bank", connection: bound?.id ?? CONNECTIONS.bank, tool, mode };
  }
}
