/**
 * A stored connection → one that a tool can use: its config as the connector reads it and, for the length of a call, its
 * secrets in the clear.
 *
 * P1. What does not open, or does not fit, is said without a word of what it holds.
 * P2. Without its secrets nobody is let in: that is `auth`, so that new secrets let the run go on.
 */
import { PawlError } from "../core/errors.ts";
import type { ConnectionRow } from "../ports/connections.ts";
import type { ToolFailure } from "../ports/connector.ts";
import type { Connector, OpenConnection } from "./define.ts";

/** How the host opens, hides and replaces secrets. */
export interface Opening {
  /** In the clear. Throws when they cannot be opened. */
  open: (row: ConnectionRow) => unknown;
  /** A value that was obtained with them and gives access by itself. */
  hide?: (value: string, row: ConnectionRow) => void;
  /** The service has given new ones in the place of the old. Resolves when they are stored. */
  replace?: (row: ConnectionRow, secrets: unknown) => Promise<void>;
}

export interface Closed {
  row: ConnectionRow;
  /** Its name. */
  namespace: string;
  connector: Connector;
}

/** Config alone: for what a person reads before they approve. */
export function configuredConnection({ row, namespace, connector }: Closed): OpenConnection | ToolFailure {
  const config = connector.config.safeParse(JSON.parse(row.config));
  const { name, configVersion } = row;
  if (config.success)
    return {
      namespace,
      name,
      config: config.data as unknown,
      secrets: undefined,
      configVersion,
      hide: () => {},
      replaceSecrets: async () => {},
    };
  const message = `the config of ${name} does not fit ${connector.name}`;
  return { class: "precondition", code: "connection-invalid", message };
}

export function openConnection(closed: Closed, opening: Opening): OpenConnection | ToolFailure {
  const connection = configuredConnection(closed);
  if ("class" in connection) return connection;
  const { row, connector } = closed;
  try {
    const stored = row.sealed === undefined ? {} : opening.open(row);
    const secrets = connector.secrets.safeParse(stored);
    if (!secrets.success)
      return noWay("tool-auth", `the secrets of ${row.name} are missing or do not fit ${connector.name}`);
    return {
      ...connection,
      secrets: secrets.data as unknown,
      hide: (value) => opening.hide?.(value, row),
      replaceSecrets: async (given) => opening.replace?.(row, given),
    };
  } catch (error) {
    const code = error instanceof PawlError ? error.code : "tool-auth";
    return noWay(code, `the secrets of ${row.name} cannot be opened`); // (P1)
  }
}

/** (P2) */
const noWay = (code: string, message: string): ToolFailure => ({ class: "auth", code, message });
