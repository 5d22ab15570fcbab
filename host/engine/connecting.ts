/**
 * Connections as an operator sees them: put, checked, removed. What fits is the connectors' word, what is stored the
 * store's; this file orders the two and lets go on what has waited.
 *
 * C1. Nothing that does not fit its connector is stored, and no answer holds a secret.
 * C2. A connection that was put, or found good, makes every run that waits for it ready.
 * C3. What is stored already is left alone: putting it again writes nothing.
 */
import type { EpochMs, NamespaceId } from "../core/ids.ts";
import { nearestName } from "../core/nearest.ts";
import { type Json, NAME_PATTERN } from "../core/workflow.ts";
import type { ConnectionRow, Health, Misfit } from "../ports/connections.ts";
import type { Access, Outside } from "./access.ts";
import type { By } from "./operator.ts";
import type { Parts } from "./parts.ts";
import { within } from "./timeout.ts";

export interface GivenConnection {
  name: string;
  connector: string;
  config: Json;
  /** Left out: what is stored stays. `null` removes it. */
  secrets?: Json | null;
}

export interface Namespace {
  id: NamespaceId;
  name: string;
}

export type ConnectionHealth = Health & { atMs: EpochMs };

/** A connection without its secrets. */
export interface ConnectionView {
  name: string;
  connector: string;
  config: Json;
  configVersion: number;
  hasSecrets: boolean;
  lastCheck?: ConnectionHealth;
  createdAtMs: EpochMs;
  updatedAtMs: EpochMs;
}

export type ConnectionRefused = {
  ok: false;
  code: "unknown-connector" | "connection-invalid" | "connection-in-use" | "not_found";
  message: string;
  misfits?: Misfit[];
};
export type Connected = { ok: true; connection: ConnectionView; freed: number } | ConnectionRefused;
export type Checked = { ok: true; health: ConnectionHealth; freed: number } | ConnectionRefused;

const CHECK_MS = 15_000;

export class Connecting {
  readonly #parts: Parts;
  readonly #outside: Outside;
  readonly #access: Access;

  constructor(parts: Parts, outside: Outside, access: Access) {
    this.#parts = parts;
    this.#outside = outside;
    this.#access = access;
  }

  async list(namespace: NamespaceId): Promise<ConnectionView[]> {
    return (await this.#outside.connections.list(namespace)).map(viewOf);
  }

  async get(namespace: NamespaceId, name: string): Promise<ConnectionView | undefined> {
    const row = await this.#outside.connections.named(namespace, name);
    return row && viewOf(row);
  }

  async put(namespace: NamespaceId, given: GivenConnection, by: By): Promise<Connected> {
    const { connections, connectors } = this.#outside;
    const { name, connector, config, secrets } = given;
    const stored = await connections.named(namespace, name);
    const refused = this.#refusal(given, stored); // (C1)
    if (refused) return refused;
    const isKept =
      secrets === undefined ||
      (secrets === null ? stored?.sealed === undefined : stored && connectors.areStored(stored, secrets)); // (C3)
    const seal =
      secrets === null || secrets === undefined
        ? null
        : (version: number) => connectors.seal({ namespace, name, version, secrets });
    const row = await connections.put(
      { namespace, name, connector, config: JSON.stringify(config), ...(isKept ? {} : { seal }) },
      this.#actedBy(by),
    );
    return { ok: true, connection: viewOf(row), freed: await this.#access.reconnected(row, by) }; // (C2)
  }

  async remove(namespace: NamespaceId, name: string, by: By): Promise<{ ok: true } | ConnectionRefused> {
    const { connections } = this.#outside;
    const row = await connections.named(namespace, name);
    if (!row) return noConnection(name);
    const users = await connections.usedBy(row.id);
    if (users.length > 0)
      return {
        ok: false,
        code: "connection-in-use",
        message: `${users.length} ${users.length === 1 ? "workflow uses" : "workflows use"} the connection ${name}: bind them to another one first`,
      };
    return (await connections.remove(namespace, name, this.#actedBy(by))) ? { ok: true } : noConnection(name);
  }

  /** Asks the service itself. */
  async check(namespace: Namespace, name: string, by: By): Promise<Checked> {
    const { connections, connectors } = this.#outside;
    const { clock } = this.#parts;
    const row = await connections.named(namespace.id, name);
    if (!row) return noConnection(name);
    const abort = new AbortController();
    const asked = await within(clock, CHECK_MS, connectors.check(row, namespace.name, abort.signal));
    if (!asked.inTime) abort.abort();
    const found: Health = asked.inTime
      ? asked.result
      : { status: "unreachable", message: `no answer within ${CHECK_MS / 1_000} s` };
    const health = { ...found, atMs: clock.nowMs() };
    await connections.checked(row.id, JSON.stringify(health));
    const freed = found.status === "ok" ? await this.#access.reconnected(row, by) : 0; // (C2)
    return { ok: true, health, freed };
  }

  #refusal(
    { name, connector, config, secrets }: GivenConnection,
    stored: ConnectionRow | undefined,
  ): ConnectionRefused | undefined {
    const { connectors } = this.#outside;
    if (!NAME_PATTERN.test(name))
      return {
        ok: false,
        code: "connection-invalid",
        message: `${JSON.stringify(name.slice(0, 80))} is no name: begin with a letter, then letters, digits, "_", "." or "-", at most 64`,
      };
    if (!connectors.names.includes(connector)) {
      const close = nearestName(connector, connectors.names);
      const hint =
        close === undefined ? `there are ${connectors.names.join(", ")}` : `did you mean ${close}?`;
      return {
        ok: false,
        code: "unknown-connector",
        message: `this host has no connector ${connector.slice(0, 80)}; ${hint}`,
      };
    }
    const misfits = connectors.misfits({
      connector,
      config,
      ...(secrets === undefined ? {} : { secrets }),
      ...(stored ? { stored } : {}),
    });
    if (misfits.length === 0) return undefined;
    const words = misfits.map(({ path, message }) => `${path}: ${message}`).join("; ");
    return { ok: false, code: "connection-invalid", message: `${name}: ${words}`, misfits };
  }

  #actedBy({ by, note }: By) {
    const atMs = this.#parts.clock.nowMs();
    return { actor: by, atMs, ...(note === undefined ? {} : { note }) };
  }
}

const noConnection = (name: string): ConnectionRefused => ({
  ok: false,
  code: "not_found",
  message: `there is no connection ${name}`,
});

function viewOf(row: ConnectionRow): ConnectionView {
  const { name, connector, config, configVersion, sealed, lastCheck, createdAtMs, updatedAtMs } = row;
  return {
    name,
    connector,
    config: JSON.parse(config) as Json,
    configVersion,
    hasSecrets: sealed !== undefined,
    ...(lastCheck === undefined ? {} : { lastCheck: JSON.parse(lastCheck) as ConnectionHealth }),
    createdAtMs,
    updatedAtMs,
  };
}
