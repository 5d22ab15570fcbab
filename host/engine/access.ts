/**
 * Who may use what: bindings and grants by their names, checked against the script and the connectors, for a deploy and for
 * a person alike; and what becomes of runs that waited for them.
 *
 * X1. An alias is bound only to a connection of the connector that the script names, in the same namespace.
 * X2. A grant stands for the connection that is behind its alias now.
 * X3. Only runs that wait for that connection are let go on.
 */
import type { GrantMode, Write } from "../core/change.ts";
import type { RunFacts } from "../core/facts.ts";
import type { NamespaceId, WorkflowId } from "../core/ids.ts";
import type { Manifest } from "../core/workflow.ts";
import type { ConnectionRow, Connections, Connectors } from "../ports/connections.ts";
import type { By, Decided, Operator } from "./operator.ts";
import type { Parts } from "./parts.ts";

export interface GivenGrant {
  alias: string;
  /** A tool's name, or `*`. */
  tool: string;
  mode: GrantMode;
}

export interface GivenAccess {
  /** Alias → name of a connection. */
  bindings?: Record<string, string>;
  grants?: readonly GivenGrant[];
}

export interface Outside {
  connections: Connections;
  connectors: Connectors;
}

export interface AccessProblem {
  code: "binding-missing" | "binding-invalid" | "grant-invalid" | "unknown-connector";
  message: string;
}

export interface Binding {
  alias: string;
  connector: string;
  connection?: string;
  /** False where it follows from the alias's own name. */
  explicit: boolean;
}

/** What a script's aliases will stand for, what has to be written for it, and what is wrong with it. */
export interface Resolved {
  bindings: Binding[];
  writes: Write[];
  problems: AccessProblem[];
}

const TRIES = 3;

export async function resolveAccess(
  { connections, connectors: { toolsOf } }: Outside,
  of: { workflow: WorkflowId; namespace: NamespaceId; manifest: Manifest },
  { bindings = {}, grants = [] }: GivenAccess,
): Promise<Resolved> {
  const { workflow, manifest } = of;
  const rows = await connections.list(of.namespace);
  const bound = await connections.bindings(workflow);
  const granted = await connections.grants(workflow);
  const made: Resolved = { bindings: [], writes: [], problems: [] };
  const say = (code: AccessProblem["code"], message: string) => made.problems.push({ code, message });
  const behind = new Map<string, ConnectionRow>();
  for (const alias of Object.keys(bindings))
    if (!Object.hasOwn(manifest.connections, alias))
      say("binding-invalid", `the script has no alias ${alias}`);
  for (const [alias, connector] of Object.entries(manifest.connections)) {
    if (!toolsOf(connector)) say("unknown-connector", `${alias}: this host has no connector ${connector}`);
    const given = Object.hasOwn(bindings, alias) ? bindings[alias] : undefined;
    const row = rows.find((one) =>
      given === undefined ? isBehind(one, alias, connector, bound[alias]) : one.name === given,
    );
    made.bindings.push({
      alias,
      connector,
      ...(row ? { connection: row.name } : {}),
      explicit: given !== undefined || bound[alias] !== undefined,
    });
    if (given !== undefined && row?.connector !== connector) {
      const why = row ? `is of the connector ${row.connector}` : "does not exist";
      say("binding-invalid", `${alias} needs a connection of ${connector}: ${given} ${why}`); // (X1)
    } else if (!row) say("binding-missing", `${alias} is bound to no connection of ${connector}`);
    else {
      behind.set(alias, row);
      if (given !== undefined && bound[alias] !== row.id)
        made.writes.push({ do: "bind", alias, connection: row.id });
    }
  }
  for (const { alias, tool, mode } of grants) {
    const connection = behind.get(alias)?.id;
    const tools = toolsOf(manifest.connections[alias] ?? "") ?? {};
    if (connection === undefined) say("grant-invalid", `there is no connection behind ${alias}`);
    else if (tool !== "*" && !Object.hasOwn(tools, tool))
      say("grant-invalid", `${alias} has no tool ${tool}, only ${Object.keys(tools).join(", ")}`);
    else {
      const same = granted.some(
        (one) =>
          one.alias === alias && one.connection === connection && one.tool === tool && one.mode === mode,
      );
      if (!same) made.writes.push({ do: "grant", alias, connection, tool, mode }); // (X2)
    }
  }
  return made;
}

function isBehind(row: ConnectionRow, alias: string, connector: string, bound: number | undefined): boolean {
  return row.connector === connector && (bound === undefined ? row.name === alias : row.id === bound);
}

export class Access {
  readonly #parts: Parts;
  readonly #operator: Operator;

  constructor(parts: Parts, operator: Operator) {
    this.#parts = parts;
    this.#operator = operator;
  }

  async bindings(workflow: WorkflowId): Promise<Binding[]> {
    const found = await this.#resolve(workflow, {});
    return found?.bindings ?? [];
  }

  /** Sets these, all or none; runs that waited for a binding or a grant go on. */
  async set(workflow: WorkflowId, given: GivenAccess, by: By): Promise<Decided> {
    const found = await this.#resolve(workflow, given);
    if (!found) return { ok: false, code: "not_found", message: "this workflow has no active version" };
    const wrong = found.problems.find((one) => one.code !== "binding-missing");
    if (wrong) return { ok: false, ...wrong };
    if (found.writes.length > 0) {
      const { store, clock } = this.#parts;
      const change = accessChange(workflow, found.writes, { ...by, atMs: clock.nowMs() });
      const done = await store.apply(change, { level: "durable", fence: store.fence });
      if (!done.ok)
        return { ok: false, code: "changed", message: "somebody or something was faster: look again" };
    }
    if (given.bindings) await this.#unblock(workflow, "binding", by);
    if (given.grants) await this.#unblock(workflow, "permission", by);
    return { ok: true };
  }

  /** A connection is good again, or new: every run that waits for it is ready. Returns how many. */
  async reconnected(connection: ConnectionRow, by: By): Promise<number> {
    const { outside, store } = this.#parts;
    if (!outside) return 0;
    let freed = 0;
    for (const workflow of await outside.connections.blocked(connection.namespace)) {
      const open = (await store.workflow(workflow))?.openRun;
      const facts = open && (await store.run(open.id));
      if (!facts || !(await this.#waitsFor(outside, facts, connection))) continue; // (X3)
      const { pauseReason } = facts.run;
      if (pauseReason !== "auth" && pauseReason !== "binding") continue;
      if (await this.#unblock(workflow, pauseReason, by)) freed++;
    }
    return freed;
  }

  async #waitsFor({ connections }: Outside, facts: RunFacts, { id, name }: ConnectionRow): Promise<boolean> {
    const { run, mutation, workflow } = facts;
    if (run.status === "paused:reconciliation") return mutation?.connection === name;
    const alias = run.error?.tool?.split(".")[0];
    if (alias === undefined) return true;
    return (await connections.behind(workflow.id, alias))?.connection?.id === id;
  }

  async #unblock(workflow: WorkflowId, what: "auth" | "permission" | "binding", by: By): Promise<boolean> {
    for (let tries = 0; tries < TRIES; tries++) {
      const decided = await this.#operator.unblock(workflow, what, by);
      if (decided.ok || decided.code !== "changed") return decided.ok;
    }
    return false;
  }

  async #resolve(workflow: WorkflowId, given: GivenAccess): Promise<Resolved | undefined> {
    const { outside, store } = this.#parts;
    const facts = await store.workflow(workflow);
    const version = facts && (await store.version(workflow, facts.activeVersion));
    if (!outside || !version) return undefined;
    const { namespace } = facts;
    return resolveAccess(outside, { workflow, namespace, manifest: version.manifest }, given);
  }
}

export function accessChange(
  workflow: WorkflowId,
  writes: readonly Write[],
  { by, note, atMs }: By & { atMs: number },
) {
  const detail = JSON.stringify(writes.filter((one) => one.do === "bind" || one.do === "grant"));
  const audit: Write = {
    do: "audit",
    actor: by,
    action: "access",
    detail,
    ...(note === undefined ? {} : { note }),
  };
  return { verb: "access", workflow, atMs, expect: {}, writes: [...writes, audit] };
}
