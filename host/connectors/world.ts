/**
 * The outside as it is configured: alias → connection → connector → tool, with the grant that stands for the three. Opens
 * secrets for the length of one call.
 *
 * O1. A call that was recorded goes through the connection it was recorded with, whatever its alias is bound to by now.
 * O2. A grant for the tool wins over one for `*`; without either the default holds, which never asks about reads.
 * O3. What a person reads before they approve is made without the secrets.
 * O4. Never rejects; before the first byte every failure is proof that nothing happened.
 * O5. A call that its tool refuses when it says how the outcome can be proved is refused before anybody is asked.
 */
import { createHash } from "node:crypto";
import type { GrantMode } from "../core/change.ts";
import { canonical } from "../core/intent.ts";
import type { ProofClass } from "../core/mutation.ts";
import type { Json, JsonText } from "../core/workflow.ts";
import type { Behind, ConnectionRow, Connections } from "../ports/connections.ts";
import type {
  CheckAnswer,
  ReadAnswer,
  RecordedCall,
  SendAnswer,
  Tool,
  ToolCall,
  ToolFailure,
  World,
} from "../ports/connector.ts";
import {
  type AnyTool,
  type Connector,
  type MutationTool,
  type OpenConnection,
  type SendContext,
  ToolError,
} from "./define.ts";
import { inputOf, invokeCheck, invokeMutation, invokeRead } from "./invoke.ts";
import { configuredConnection, openConnection, type Opening } from "./opening.ts";
import type { Registry } from "./registry.ts";

/** How long "not there" may be wrong, unless the tool says so. */
const SETTLE_MS = 30_000;
const LONGEST_DESCRIPTION = 1_000;
const NEVER = new AbortController().signal;

export interface WorldOptions extends Opening {
  connections: Connections;
  registry: Pick<Registry, "get">;
  /** For mutations that nobody granted, where the namespace has no default of its own. */
  defaultGrant: GrantMode;
}

// oxlint-disable-next-line typescript/no-explicit-any -- whatever connector it belongs to
type Mutates = MutationTool<any, any, any, any>;

/** What one call finds. */
interface Found {
  behind: Behind;
  row: ConnectionRow;
  connector: Connector;
  // oxlint-disable-next-line typescript/no-explicit-any -- whatever connector it belongs to
  tool: AnyTool<any, any>;
  /** As its connector reads the stored config; without the secrets (O3). */
  connection: OpenConnection;
  label: string;
}

type Asked = Pick<ToolCall, "workflow" | "alias" | "tool"> & { connection?: string };

export class ConnectorWorld implements World {
  readonly #options: WorldOptions;

  constructor(options: WorldOptions) {
    this.#options = options;
  }

  async tool(call: Asked & { args?: JsonText }): Promise<Tool | ToolFailure> {
    const found = await this.#find(call);
    if ("class" in found) return found;
    const { row, tool } = found;
    const { mode, version } = this.#grant(found, call);
    const known = {
      connection: row.name,
      configVersion: row.configVersion,
      grant: mode,
      grantVersion: version,
    };
    if (tool.kind === "read") return { ...known, kind: "read", proof: "none", canCheck: false, settleMs: 0 };
    const given = call.args === undefined ? undefined : inputOf(tool, call.args, found.label);
    if (given && !given.ok) return given;
    const proof = proofOf(tool, found.connection, given?.input);
    if (typeof proof !== "string") return proof; // (O5)
    return {
      ...known,
      kind: "mutation",
      proof,
      canCheck: tool.reconcile !== undefined && proof !== "none",
      settleMs: settleOf(tool, found.connection),
      ...(tool.before ? { looksBefore: true } : {}),
    };
  }

  async describe(call: ToolCall): Promise<string> {
    const found = await this.#mutation(call);
    const plain = `${call.alias}.${call.tool}`;
    if ("class" in found) return plain;
    const given = inputOf(found.tool, call.args, found.label);
    if (!given.ok) return plain;
    try {
      return found.tool.describe(given.input, found.connection).slice(0, LONGEST_DESCRIPTION);
    } catch {
      return plain;
    }
  }

  async fingerprint(call: RecordedCall): Promise<string> {
    const hash = createHash("sha256").update(`${call.connection} ${call.tool} `);
    const found = await this.#mutation(call);
    const given = "class" in found ? undefined : inputOf(found.tool, call.args, found.label);
    const bytes = "class" in found || !given?.ok ? undefined : bytesOf(found, given.input);
    return hash.update(bytes ?? canonical(JSON.parse(call.args) as Json)).digest("base64url");
  }

  async before(call: ToolCall): Promise<JsonText | undefined> {
    const found = await this.#mutation(call);
    if ("class" in found || !found.tool.before) return undefined;
    const given = inputOf(found.tool, call.args, found.label);
    const connection = this.#opened(found);
    if (!given.ok || "class" in connection) return undefined;
    try {
      const seen = await found.tool.before(connection, given.input, { signal: call.signal ?? NEVER });
      return seen === undefined ? undefined : JSON.stringify(seen);
    } catch {
      return undefined;
    }
  }

  async read(call: ToolCall): Promise<ReadAnswer> {
    const { args, signal = NEVER } = call;
    const found = await this.#find(call);
    if ("class" in found) return { ok: false, ...found };
    const { tool, label } = found;
    if (tool.kind !== "read")
      return { ok: false, ...failure("logic", "phase-violation", `${label} does not read`) };
    const connection = this.#opened(found);
    if ("class" in connection) return { ok: false, ...connection };
    return invokeRead(tool, { connection, args, label, context: { signal } });
  }

  async send(call: RecordedCall): Promise<SendAnswer> {
    const found = await this.#mutation(call);
    if ("class" in found) return unsent(found);
    const connection = this.#opened(found);
    if ("class" in connection) return unsent(connection);
    if (connection.configVersion !== call.configVersion)
      return unsent(
        failure("transient", "connection-changed", `${found.row.name} was configured anew since`),
      );
    const { tool, label } = found;
    return invokeMutation(tool, { connection, args: call.args, label, context: contextOf(call) });
  }

  async check(call: RecordedCall): Promise<CheckAnswer> {
    const found = await this.#mutation(call);
    if ("class" in found) return { says: found.class === "auth" ? "auth" : "unsure" };
    const connection = this.#opened(found);
    if ("class" in connection) return { says: "auth" };
    const { tool, label } = found;
    const context = {
      ...contextOf(call),
      ...(call.before === undefined ? {} : { before: JSON.parse(call.before) as Json }),
    };
    return invokeCheck(tool, { connection, args: call.args, label, context });
  }

  async #mutation(call: Asked): Promise<(Found & { tool: Mutates }) | ToolFailure> {
    const found = await this.#find(call);
    if ("class" in found) return found;
    if (found.tool.kind !== "mutation")
      return failure("logic", "phase-violation", `${found.label} only reads`);
    return { ...found, tool: found.tool };
  }

  async #find({ workflow, alias, tool: name, connection: named }: Asked): Promise<Found | ToolFailure> {
    const { connections, registry } = this.#options;
    const label = `${alias}.${name}`;
    const behind = await connections.behind(workflow, alias);
    const row =
      named === undefined || !behind
        ? behind?.connection
        : await connections.named(behind.namespace.id, named); // (O1)
    if (!behind || !row) {
      const wanted = behind?.connector === undefined ? "" : ` of the connector ${behind.connector}`;
      const what =
        named === undefined
          ? `${alias} is bound to no connection${wanted}`
          : `the connection ${named} is gone`;
      return failure("precondition", "not-bound", what);
    }
    const connector = registry.get(row.connector);
    if (!connector)
      return failure("precondition", "unknown-connector", `this host has no connector ${row.connector}`);
    const tool = Object.hasOwn(connector.tools, name) ? connector.tools[name] : undefined;
    if (!tool) {
      const known = Object.keys(connector.tools).join(", ");
      return failure("logic", "unknown-tool", `${connector.name} has no tool ${name}, only ${known}`);
    }
    const connection = configuredConnection({ row, namespace: behind.namespace.name, connector }); // (O3)
    if ("class" in connection) return connection;
    return { behind, row, connector, tool, connection, label };
  }

  #opened({ row, behind, connector }: Found): OpenConnection | ToolFailure {
    return openConnection({ row, namespace: behind.namespace.name, connector }, this.#options);
  }

  /** (O2) */
  #grant({ behind, tool }: Found, { alias, tool: name }: Asked): { mode: GrantMode; version: number } {
    const of = (what: string) => behind.grants.find((one) => one.alias === alias && one.tool === what);
    const given = of(name) ?? of("*");
    if (given) return given;
    if (tool.kind === "read") return { mode: "allow", version: 0 };
    return { mode: behind.namespace.defaultGrant ?? this.#options.defaultGrant, version: 0 };
  }
}

function proofOf(tool: Mutates, connection: OpenConnection, input: unknown): ProofClass | ToolFailure {
  if (typeof tool.proof === "string") return tool.proof;
  if (tool.proof === undefined) return tool.reconcile ? "lookup" : "none";
  if (input === undefined) return "none";
  try {
    return tool.proof(input, connection);
  } catch (error) {
    if (!(error instanceof ToolError)) return "none";
    return failure(error.class, error.code, error.message);
  }
}

/** (O4) What has no bytes will not be sent either. */
function bytesOf({ tool, connection }: Found & { tool: Mutates }, input: unknown) {
  try {
    return tool.bytes?.(input, connection);
  } catch {
    return undefined;
  }
}

function settleOf({ settleMs = SETTLE_MS }: Mutates, connection: OpenConnection): number {
  return typeof settleMs === "number" ? settleMs : settleMs(connection);
}

function contextOf(call: RecordedCall): SendContext {
  const { idempotencyKey, workflow, hops = 0, maxHops = Infinity, signal = NEVER } = call;
  return { idempotencyKey, signal, origin: { workflow, hops, maxHops } };
}

const failure = (kind: ToolFailure["class"], code: string, message: string): ToolFailure => ({
  class: kind,
  code,
  message,
});

/** (O4) */
const unsent = (why: ToolFailure): SendAnswer => ({
  outcome: "failed",
  ...why,
  raw: JSON.stringify({ notSent: why.message }),
});
