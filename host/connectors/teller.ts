/**
 * Carries a message about inbox items to where a person looks: posted as JSON through an `http` connection, or mailed
 * through an `smtp` one. Guards, credentials and what counts as taken are those of the connectors.
 *
 * L1. Never rejects: whatever is not a definite success is tried again by whoever asks.
 * L2. What is posted can be signed like any webhook, and its id stays the same when it is sent again.
 * L3. Text that came from scripts and upstreams is one plain line; no mail has a header or a link of theirs.
 */
import type { NamespaceId } from "../core/ids.ts";
import type { JsonText } from "../core/workflow.ts";
import type { ConnectionRow, Connections } from "../ports/connections.ts";
import type { Message, NotificationTarget, Teller, Told } from "../ports/notices.ts";
import { invokeMutation } from "./invoke.ts";
import { type Opening, openConnection } from "./opening.ts";
import type { Registry } from "./registry.ts";
import { type HookSecrets, signHook } from "./webhook.ts";

const MOST_LINES = 20;

export interface TellerOptions extends Opening {
  connections: Pick<Connections, "named">;
  registry: Pick<Registry, "get">;
}

type Place = Parameters<Teller["tell"]>[0];

export class ConnectionTeller implements Teller {
  readonly #options: TellerOptions;

  constructor(options: TellerOptions) {
    this.#options = options;
  }

  async problem(namespace: NamespaceId, target: NotificationTarget): Promise<string | undefined> {
    const { name, connection, to, signedWith } = target;
    const row = await this.#options.connections.named(namespace, connection);
    if (!row) return `${name}: there is no connection ${connection}`;
    if (row.connector !== "http" && row.connector !== "smtp")
      return `${name}: ${connection} is of the connector ${row.connector}; people are told through http or smtp`;
    if (row.connector === "smtp" && (to ?? []).length === 0) return `${name}: say \`to\` whom to write`;
    if (row.connector === "smtp" && (target.path !== undefined || signedWith !== undefined))
      return `${name}: \`path\` and \`signedWith\` are for an http connection`;
    if (row.connector === "http" && to !== undefined) return `${name}: \`to\` is for an smtp connection`;
    if (signedWith === undefined) return undefined;
    const signer = await this.#options.connections.named(namespace, signedWith);
    return signer?.connector === "webhook"
      ? undefined
      : `${name}: signedWith names no connection of the connector webhook`;
  }

  async tell(place: Place, target: NotificationTarget, message: Message, signal: AbortSignal): Promise<Told> {
    try {
      const row = await this.#options.connections.named(place.id, target.connection);
      if (!row) return { ok: false, message: `there is no connection ${target.connection}` };
      if (row.connector === "http") return await this.#post(place, { row, target, message }, signal);
      return await this.#mail(place, { row, target, message }, signal);
    } catch (error) {
      return { ok: false, message: error instanceof Error ? error.message : String(error) }; // (L1)
    }
  }

  async #post(place: Place, { row, target, message }: Telling, signal: AbortSignal): Promise<Told> {
    const { id, namespace, items, atMs } = message;
    const body = JSON.stringify({ id, namespace, at: new Date(atMs).toISOString(), items });
    const key = await this.#key(place, target);
    const signed = key === undefined ? { "webhook-id": id } : signHook(key, id, atMs, body); // (L2)
    const headers = { "content-type": "application/json", ...signed };
    const args = JSON.stringify({ path: target.path ?? "/", headers, body });
    return this.#call(place, row, { tool: "post", args, id }, signal);
  }

  /** (L3) */
  async #mail(place: Place, { row, target, message }: Telling, signal: AbortSignal): Promise<Told> {
    const { lines, id, namespace } = message;
    const count = lines.length === 1 ? "One thing needs" : `${lines.length} things need`;
    const shown = lines.slice(0, MOST_LINES).map((line) => `- ${line}`);
    if (lines.length > MOST_LINES) shown.push(`… and ${lines.length - MOST_LINES} more`);
    const subject = `Pawl: ${count.toLowerCase()} you in ${namespace}`;
    const text = [`${count} you:`, "", ...shown, ""].join("\n");
    const args = JSON.stringify({ to: target.to ?? [], subject, text });
    return this.#call(place, row, { tool: "send", args, id }, signal);
  }

  async #call(
    { name: namespace }: Place,
    row: ConnectionRow,
    { tool: name, args, id }: { tool: string; args: JsonText; id: string },
    signal: AbortSignal,
  ): Promise<Told> {
    const connector = this.#options.registry.get(row.connector);
    const tool = connector?.tools[name];
    if (!connector || tool?.kind !== "mutation")
      return { ok: false, message: `${row.connector} has no ${name}` };
    const connection = openConnection({ row, namespace, connector }, this.#options);
    if ("class" in connection) return { ok: false, message: connection.message };
    const context = { signal, idempotencyKey: id, origin: { workflow: 0, hops: 0, maxHops: 0 } };
    const answer = await invokeMutation(tool, { connection, args, label: `${row.name}.${name}`, context });
    if (answer.outcome === "applied") return { ok: true };
    const { message, retryAfterMs } = answer;
    return { ok: false, message, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) };
  }

  async #key(place: Place, { signedWith }: NotificationTarget): Promise<string | undefined> {
    if (signedWith === undefined) return undefined;
    const row = await this.#options.connections.named(place.id, signedWith);
    const connector = row && this.#options.registry.get(row.connector);
    if (!row || connector?.name !== "webhook")
      throw new Error(`there is no webhook connection ${signedWith}`);
    const opened = openConnection({ row, namespace: place.name, connector }, this.#options);
    if ("class" in opened) throw new Error(opened.message);
    const { signingKey } = opened.secrets as HookSecrets;
    if (signingKey === undefined) throw new Error(`${signedWith} has no signing key`);
    return signingKey;
  }
}

interface Telling {
  row: ConnectionRow;
  target: NotificationTarget;
  message: Message;
}
