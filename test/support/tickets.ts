// A connector as a stranger would write it, in each proof class, and the small service that it talks to.
import { z } from "zod";
import {
  applied,
  auth,
  type CheckContext,
  defineConnector,
  invalid,
  mutation,
  type MutationTool,
  notApplied,
  type OpenConnection,
  permission,
  precondition,
  rateLimited,
  type SendContext,
  transient,
  unknownOutcome,
  unsure,
} from "../../host/connectors/define.ts";
import { httpOutside, type HttpDoing, type HttpOutside, type HttpRequest } from "../../host/testing.ts";

const config = z.object({ baseUrl: z.url() });
const secrets = z.object({ token: z.string() });
type Connection = OpenConnection<z.infer<typeof config>, z.infer<typeof secrets>>;
const input = z.object({ title: z.string() });
const output = z.object({ id: z.string() });
type Input = z.infer<typeof input>;
export type TicketTool = MutationTool<
  z.infer<typeof config>,
  z.infer<typeof secrets>,
  Input,
  z.infer<typeof output>
>;

const NOBODY_THERE = ["ECONNREFUSED", "ENOTFOUND"];

/** One request; what it proves is said by how it fails. */
export async function request(
  { config: { baseUrl }, secrets: { token } }: Connection,
  path: string,
  { signal, ...init }: RequestInit & { signal: AbortSignal },
): Promise<{ status: number; body: unknown }> {
  const headers = {
    ...(init.headers as object),
    authorization: `Bearer ${token}`,
    "content-type": "application/json",
  };
  let answer: Response;
  let text: string;
  try {
    answer = await fetch(`${baseUrl}${path}`, { ...init, signal, headers });
    text = await answer.text();
  } catch (error) {
    const { code } = ((error as Error).cause ?? {}) as { code?: string };
    if (code !== undefined && NOBODY_THERE.includes(code)) throw transient(`nobody answers at ${baseUrl}`);
    throw unknownOutcome("the connection broke");
  }
  if (answer.status === 401) throw auth("the token was refused");
  if (answer.status === 403) throw permission("the token may not do this");
  if (answer.status === 412) throw precondition("the ticket is not as expected");
  if (answer.status === 429) throw rateLimited();
  if (answer.status >= 500) throw unknownOutcome(`the service said ${answer.status}`);
  if (answer.status >= 400 && answer.status !== 404) throw invalid(`the service said ${answer.status}`);
  try {
    return { status: answer.status, body: JSON.parse(text) as unknown };
  } catch {
    return { status: answer.status, body: text };
  }
}

const post = async (connection: Connection, { title }: Input, { idempotencyKey, signal }: SendContext) => {
  const body = JSON.stringify({ title });
  const headers = { "idempotency-key": idempotencyKey };
  return (await request(connection, "/tickets", { method: "POST", body, headers, signal })).body;
};
const find = async (connection: Connection, _: Input, { idempotencyKey, signal }: CheckContext) => {
  const { status, body } = await request(connection, `/tickets/by-key/${idempotencyKey}`, { signal });
  if (status === 200) return applied(body);
  return status === 404 ? notApplied() : unsure();
};
const describe = ({ title }: Input, connection: OpenConnection<z.infer<typeof config>>) =>
  `Open ticket "${title}" at ${connection.config.baseUrl}`;

export const open: TicketTool = mutation({ input, output, describe, run: post, reconcile: find });

/** The tools of the connector; `create` may be replaced by one that is broken. */
export const ticketsWith = (create: TicketTool) =>
  defineConnector({
    name: "tickets",
    config,
    secrets,
    tools: {
      create,
      createOnce: mutation({ input, output, describe, run: post, proof: "key" }),
      createBlindly: mutation({ input, output, describe, run: post }),
      rename: mutation({
        input,
        output,
        describe: ({ title }) => `Rename the ticket to "${title}"`,
        proof: "conditional",
        run: async (connection: Connection, { title }: Input, { signal }) => {
          const init = {
            method: "PUT",
            body: JSON.stringify({ title }),
            headers: { "if-match": "v1" },
            signal,
          };
          return (await request(connection, `/tickets/${encodeURIComponent(title)}`, init)).body;
        },
        reconcile: async (connection: Connection, { title }: Input, { signal }) => {
          const { body } = await request(connection, `/tickets/${encodeURIComponent(title)}`, { signal });
          return (body as { version?: string }).version === "v1" ? notApplied() : unsure();
        },
      }),
    },
  });
export const tickets = ticketsWith(open);

/** Knows tickets by the key they were made with; `keyed` recognises a key that it has seen. */
export function ticketService({ keyed = false }: { keyed?: boolean } = {}): Promise<HttpOutside> {
  const made = new Map<string, object>();
  const renamed = new Set<string>();
  const does = ({ method, path, headers }: HttpRequest): HttpDoing => {
    const key = path.split("/").at(-1) ?? "";
    if (path.startsWith("/tickets/by-key/")) {
      const found = made.get(key);
      return found ? { status: 200, body: found } : { status: 404, body: {} };
    }
    if (method === "PUT")
      return renamed.has(path) ? { status: 412, body: {} } : { effect: () => rename(path) };
    if (method === "GET") return { status: 200, body: { id: key, version: renamed.has(path) ? "v2" : "v1" } };
    const sent = headers["idempotency-key"] ?? "";
    const known = keyed ? made.get(sent) : undefined;
    if (known) return { status: 200, body: known };
    return {
      effect: () => {
        const ticket = { id: `t-${made.size + 1}` };
        made.set(sent, ticket);
        return { status: 201, body: ticket };
      },
    };
  };
  const rename = (path: string) => {
    renamed.add(path);
    return { status: 200, body: { id: path } };
  };
  return httpOutside(does, (url) => ({
    config: { baseUrl: url },
    secrets: { token: "token-of-the-tickets" },
  }));
}
