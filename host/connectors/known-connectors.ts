/**
 * What a host's connectors say about connections: whether config and secrets fit, and whether the service behind one
 * answers. Holds the vault, and gives nothing of it away.
 *
 * C1. A misfit names a path and what is wanted there, never what was given: it may be a secret in the wrong place.
 * C2. A check never rejects, whatever the connector does.
 */
import { isDeepStrictEqual } from "node:util";
import type { z } from "zod";
import type { NamespaceId } from "../core/ids.ts";
import type { Json } from "../core/workflow.ts";
import type { ConnectionRow, Connectors, Health, Misfit, ToolsOf } from "../ports/connections.ts";
import type { Connector } from "./define.ts";
import { type Opening, openConnection } from "./opening.ts";
import type { Registry } from "./registry.ts";
import type { Vault } from "./secrets.ts";

export class KnownConnectors implements Connectors {
  readonly #registry: Registry;
  readonly #vault: Vault;
  readonly #opening: Opening;

  constructor(registry: Registry, vault: Vault, opening: Opening) {
    this.#registry = registry;
    this.#vault = vault;
    this.#opening = opening;
  }

  get names(): readonly string[] {
    return this.#registry.names;
  }

  readonly toolsOf: ToolsOf = (name) => this.#registry.toolsOf(name);

  misfits({ connector: name, config, secrets, stored }: Parameters<Connectors["misfits"]>[0]): Misfit[] {
    const connector = this.#registry.get(name);
    if (!connector) return [{ path: "connector", message: `this host has no connector ${name}` }];
    const wrong = misfitsOf(connector.config, config, "config");
    const known = secrets === undefined ? this.#stored(stored) : (secrets ?? {});
    return [
      ...wrong,
      ...misfitsOf(connector.secrets, known, "secrets"),
      ...this.#together(connector, config, known, wrong),
    ];
  }

  areStored(row: ConnectionRow, secrets: Json): boolean {
    return row.sealed !== undefined && isDeepStrictEqual(this.#stored(row), secrets);
  }

  seal(of: { namespace: NamespaceId; name: string; version: number; secrets: Json }): string {
    return this.#vault.seal(of);
  }

  async check(row: ConnectionRow, namespace: string, signal: AbortSignal): Promise<Health> {
    const connector = this.#registry.get(row.connector);
    if (!connector) return { status: "invalid", message: `this host has no connector ${row.connector}` };
    const connection = openConnection({ row, namespace, connector }, this.#opening);
    if ("class" in connection)
      return { status: connection.class === "auth" ? "auth" : "invalid", message: connection.message };
    if (!connector.check) return { status: "unknown" };
    try {
      return await connector.check(connection, { signal });
    } catch (error) {
      return { status: "unreachable", message: error instanceof Error ? error.message : String(error) }; // (C2)
    }
  }

  /** What only shows when both are there: a scheme without its key, say. */
  #together(connector: Connector, config: Json, secrets: unknown, wrong: readonly Misfit[]): Misfit[] {
    if (!connector.fits || wrong.length > 0) return [];
    const [set, given] = [connector.config.safeParse(config), connector.secrets.safeParse(secrets)];
    return set.success && given.success ? connector.fits(set.data, given.data) : [];
  }

  #stored(row: ConnectionRow | undefined): unknown {
    if (row?.sealed === undefined) return {};
    try {
      return this.#vault.open({ ...row, sealed: row.sealed });
    } catch {
      return undefined; // Sealed with a key that is gone: they have to be given anew.
    }
  }
}

/** (C1) */
function misfitsOf(shape: z.ZodType, given: unknown, root: string): Misfit[] {
  const read = shape.safeParse(given);
  if (read.success) return [];
  return read.error.issues.flatMap((issue): Misfit[] => {
    const path = [root, ...issue.path.map(String)].join(".");
    if (issue.code === "unrecognized_keys")
      return issue.keys.map((key) => ({ path: `${path}.${key}`, message: "means nothing here" }));
    return [{ path, message: issue.message }];
  });
}
