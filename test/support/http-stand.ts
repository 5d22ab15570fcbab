// A connection of the `http` connector as the host would open it, and a server on this machine that answers as it is told.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Connector, MutationTool, OpenConnection, ReadTool } from "../../host/connectors/define.ts";
import { http } from "../../host/connectors/http.ts";
import { invokeCheck, invokeMutation, invokeRead } from "../../host/connectors/invoke.ts";
import type { CheckAnswer, ReadAnswer, SendAnswer } from "../../host/ports/connector.ts";

export interface Seen {
  method: string;
  url: string;
  headers: Record<string, string>;
  body: string;
}
export interface Told {
  status: number;
  headers?: Record<string, string>;
  body?: string | Uint8Array;
}
type Answers = (seen: Seen, raw: { request: IncomingMessage; response: ServerResponse }) => Told | undefined;

/** Answers what the test says; `undefined` means that the test does it by itself. */
export class Stand implements AsyncDisposable {
  readonly seen: Seen[] = [];
  readonly #server: Server;
  answers: Answers = () => ({ status: 200, headers: { "content-type": "application/json" }, body: "{}" });

  private constructor() {
    this.#server = createServer((request, response) => {
      void this.#answer(request, response).catch(() => response.destroy());
    });
  }

  static async open(answers?: Answers): Promise<Stand> {
    const stand = new Stand();
    if (answers) stand.answers = answers;
    await new Promise<void>((resolve) => stand.#server.listen(0, "127.0.0.1", resolve));
    return stand;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let body = "";
    for await (const piece of request.setEncoding("latin1")) body += String(piece);
    const headers = request.headers as Record<string, string>;
    const seen = { method: request.method ?? "", url: request.url ?? "", headers, body };
    this.seen.push(seen);
    const told = this.answers(seen, { request, response });
    if (told) response.writeHead(told.status, told.headers).end(told.body);
  }
}

export interface Opened extends OpenConnection {
  /** What the connector declared secret. */
  hidden: string[];
  /** How often other secrets were stored. */
  stored: unknown[];
}

export function opened(
  config: Record<string, unknown>,
  secrets: unknown = {},
  connector: Connector = http,
): Opened {
  const connection: Opened = {
    namespace: "default",
    name: "shop",
    config: connector.config.parse({ allowPrivateNetwork: true, ...config }),
    secrets: connector.secrets.parse(secrets),
    configVersion: 1,
    hidden: [],
    stored: [],
    hide: (value) => void connection.hidden.push(value),
    replaceSecrets: async (changed) => {
      connection.stored.push(changed);
      connection.secrets = connector.secrets.parse(changed);
    },
  };
  return connection;
}

type Args = Record<string, unknown>;
const NEVER = new AbortController().signal;
const context = (signal: AbortSignal) => ({
  signal,
  idempotencyKey: "key/1",
  origin: { workflow: 1, hops: 0, maxHops: 100 },
});

// oxlint-disable-next-line typescript/no-explicit-any -- whatever tool it is
const toolOf = <Tool>(connector: Connector, name: string) => connector.tools[name] as any as Tool;
// oxlint-disable-next-line typescript/no-explicit-any -- whatever tool it is
type AnyMutation = MutationTool<any, any, any, any>;

/** One call of one tool, as the host makes it. */
export const reads = (
  connection: OpenConnection,
  tool: string,
  args: Args,
  { connector = http, signal = NEVER }: { connector?: Connector; signal?: AbortSignal } = {},
): Promise<ReadAnswer> =>
  // oxlint-disable-next-line typescript/no-explicit-any -- whatever tool it is
  invokeRead(toolOf<ReadTool<any, any, any, any>>(connector, tool), {
    connection,
    args: JSON.stringify(args),
    label: `shop.${tool}`,
    context: { signal },
  });

export const sends = (
  connection: OpenConnection,
  tool: string,
  args: Args,
  { connector = http, signal = NEVER }: { connector?: Connector; signal?: AbortSignal } = {},
): Promise<SendAnswer> =>
  invokeMutation(toolOf<AnyMutation>(connector, tool), {
    connection,
    args: JSON.stringify(args),
    label: `shop.${tool}`,
    context: context(signal),
  });

export const checks = (
  connection: OpenConnection,
  tool: string,
  args: Args,
  connector: Connector = http,
): Promise<CheckAnswer> =>
  invokeCheck(toolOf<AnyMutation>(connector, tool), {
    connection,
    args: JSON.stringify(args),
    label: `shop.${tool}`,
    context: context(NEVER),
  });

/** What the tool says of a call before it is made. */
export function foretold(connection: OpenConnection, tool: string, args: Args) {
  const made = toolOf<AnyMutation>(http, tool);
  const input: unknown = made.input.parse(args);
  return {
    proof: () => (typeof made.proof === "function" ? made.proof(input, connection) : made.proof),
    describe: () => made.describe(input, connection),
    bytes: () => Buffer.from(made.bytes?.(input, connection) ?? "").toString(),
  };
}
