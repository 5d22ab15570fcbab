/**
 * The connector `feed`: the items of a feed, fetched only where it has changed (06).
 *
 * F1. What we hand out as `etag` holds everything that tells whether a feed changed: the server's ETag, its Last-Modified, a
 *     digest of what was read. It belongs to one URL; for another, or where it is not ours, the feed is read in full.
 * F2. Every URL passes the egress guard; credentials go to the origin of the connection's own URL and nowhere else.
 * F3. What is given to a script is bounded in items and bytes, the newest first to stay (feeds list them so).
 */
import { createHash } from "node:crypto";
import { z } from "zod";
import {
  auth,
  type Connector,
  defineConnector,
  invalid,
  type OpenConnection,
  permission,
  precondition,
  rateLimited,
  read,
  ToolError,
  transient,
} from "./define.ts";
import { type Network, SYSTEM_NETWORK } from "./egress.ts";
import { type Credentials, type GuardedAnswer, guardedRequest, RequestFailed } from "./egress-request.ts";
import { charsetDecoded } from "./feed-text.ts";
import { type Feed, type Item, NoFeed, parseFeed } from "./feed-parse.ts";

const MEBIBYTE = 1_048_576;
/** Below what one answer to a script may have. */
const MOST_RESULT_BYTES = 786_432;
const REDIRECTS = 5;
const ACCEPT =
  "application/atom+xml, application/rss+xml, application/feed+json, application/xml;q=0.9, application/json;q=0.8, */*;q=0.5";
const LONGEST_WAIT_MS = 86_400_000;

const httpUrl = z.url({ protocol: /^https?$/ });
const limits = z.strictObject({
  totalMs: z.int().min(100).max(120_000).default(15_000),
  connectMs: z.int().min(100).max(60_000).default(10_000),
  /** After decompression. */
  bodyBytes: z
    .int()
    .min(1_024)
    .max(16 * MEBIBYTE)
    .default(2 * MEBIBYTE),
  items: z.int().min(1).max(1_000).default(200),
});
const config = z.strictObject({
  url: httpUrl,
  /** Hosts beside that of `url`, for redirects and for what a script names: `host`, `host:port`, `*.host`. */
  hosts: z.array(z.string().min(1).max(260)).max(100).default([]),
  /** Admins only. */
  allowPrivateNetwork: z.boolean().default(false),
  /** PEM of further certificate authorities. */
  ca: z.string().optional(),
  /** Sent with every request to the origin of `url`; no secrets. */
  headers: z
    .record(z.string().regex(/^[A-Za-z0-9-]{1,64}$/), z.string().regex(/^[\t\x20-\x7e]*$/))
    .default({}),
  limits: limits.default(limits.parse({})),
});
const printable = z
  .string()
  .min(1)
  .regex(/^[\x21-\x7e]+$/);
const secrets = z.union([
  z.strictObject({ user: z.string().min(1), password: z.string() }),
  z.strictObject({ token: printable }),
  z.strictObject({}),
]);

const input = z
  .strictObject({
    /** Relative to the connection's own. */
    url: z.string().max(2_000).optional(),
    etag: z.string().max(8_192).optional(),
    timeoutMs: z.int().min(1).max(120_000).optional(),
  })
  .default({});
const item = z.object({
  id: z.string(),
  title: z.string(),
  link: z.string().optional(),
  summary: z.string().optional(),
  author: z.string().optional(),
  publishedAt: z.string().optional(),
});
const output = z.object({
  title: z.string(),
  items: z.array(item),
  etag: z.string().optional(),
  notModified: z.boolean().optional(),
});

type Config = z.infer<typeof config>;
type Secrets = z.infer<typeof secrets>;
type Opened = OpenConnection<Config, Secrets>;
type Asked = z.infer<typeof input>;
type Result = z.infer<typeof output>;

function feedOver(network: Network): Connector<Config, Secrets> {
  return defineConnector<Config, Secrets>({
    name: "feed",
    config,
    secrets,
    check: async (connection, { signal }) => {
      try {
        await fetched(connection, {}, { signal, network });
        return { status: "ok" };
      } catch (error) {
        if (!(error instanceof ToolError)) throw error;
        const refused =
          error.code !== "egress-refused" && (error.class === "auth" || error.class === "permission");
        return { status: refused ? "auth" : "unreachable", message: error.message };
      }
    },
    tools: {
      fetch: read({
        input,
        output,
        run: (connection: Opened, asked: Asked, { signal }) =>
          fetched(connection, asked, { signal, network }),
      }),
    },
  });
}

export const feed = feedOver(SYSTEM_NETWORK);

async function fetched(
  connection: Opened,
  asked: Asked,
  { signal, network }: { signal: AbortSignal; network: Network },
): Promise<Result> {
  const { config: set } = connection;
  const home = new URL(set.url);
  const url = urlOf(asked.url, home);
  const known = knownOf(asked.etag, url); // (F1)
  const isHome = url.origin === home.origin;
  const { allowPrivateNetwork, ca, hosts, limits: most } = set;
  const answer = await guarded({
    method: "GET",
    url,
    headers: {
      accept: ACCEPT,
      "user-agent": "pawl-feed",
      ...(known?.etag === undefined ? {} : { "if-none-match": known.etag }),
      ...(known?.modified === undefined ? {} : { "if-modified-since": known.modified }),
    },
    ...(isHome ? { credentials: credentialsOf(connection) } : {}), // (F2)
    rule: { hosts: [home.host, ...hosts], allowPrivateNetwork, ca },
    limits: { ...most, totalMs: Math.min(asked.timeoutMs ?? most.totalMs, most.totalMs) },
    redirects: REDIRECTS,
    signal,
    network,
  });
  if (answer.status === 304 && known && asked.etag !== undefined)
    return { title: known.title, items: [], etag: asked.etag, notModified: true };
  succeeded(answer, most.bodyBytes);
  const parsed = parsedFrom(answer, set);
  const digest = createHash("sha256").update(JSON.stringify(parsed)).digest("base64url").slice(0, 32);
  const etag = etagOf(answer, url, digest, parsed.title);
  if (known?.digest === digest) return { title: parsed.title, items: [], etag, notModified: true };
  return { ...parsed, etag };
}

function urlOf(asked: string | undefined, home: URL): URL {
  if (asked === undefined) return home;
  if (!URL.canParse(asked, home.href)) throw invalid("url: not the address of a feed");
  return new URL(asked, home);
}

function credentialsOf(connection: Opened): Credentials {
  const {
    config: { headers },
    secrets: given,
  } = connection;
  if ("token" in given) return { headers: { ...headers, authorization: `Bearer ${given.token}` } };
  if (!("user" in given)) return { headers };
  const pair = Buffer.from(`${given.user}:${given.password}`).toString("base64");
  connection.hide(pair);
  return { headers: { ...headers, authorization: `Basic ${pair}` } };
}

async function guarded(request: Parameters<typeof guardedRequest>[0]): Promise<GuardedAnswer> {
  try {
    return await guardedRequest(request);
  } catch (error) {
    if (!(error instanceof RequestFailed)) throw error;
    if (error.why === "refused") throw permission(error.message, { code: "egress-refused" });
    throw transient(`${request.url.host}: ${error.message}`);
  }
}

/** The table of answers for reads (06). */
function succeeded({ status, headers, problem, url }: GuardedAnswer, mostBytes: number): void {
  const said = `${new URL(url).host} said ${status}`;
  const more = { evidence: { status } };
  if (status === 401) throw auth(said, more);
  if (status === 403) throw permission(said, more);
  if (status === 429) throw rateLimited({ message: said, ...waitOf(headers["retry-after"]), ...more });
  if (status === 408 || status === 425 || status >= 500) throw transient(said, more);
  if (status === 412 || status === 423 || status === 428) throw precondition(said, more);
  if (status === 304) throw transient(`${said}, to a question that was not asked`, more);
  if (status < 200 || status > 299) throw invalid(said, more);
  if (problem === "too-large")
    throw invalid(`the feed has more than ${mostBytes} bytes`, { code: "answer-too-large" });
  if (problem === "undecodable") throw transient("the answer's compression is broken or unknown");
}

/** A wait that makes sense, or none: seconds alone, the date's clock is the server's. */
function waitOf(header: string | undefined): { retryAfterMs?: number } {
  if (header === undefined || !/^\d{1,9}$/.test(header.trim())) return {};
  return { retryAfterMs: Math.min(Number(header) * 1_000, LONGEST_WAIT_MS) };
}

function parsedFrom({ bytes, headers, url }: GuardedAnswer, { limits: most }: Config): Feed {
  try {
    const { title, items } = parseFeed(charsetDecoded(bytes, headers["content-type"] ?? ""), url, most.items);
    return { title, items: within(items, MOST_RESULT_BYTES) };
  } catch (error) {
    // A maintenance page, mostly: it passes.
    if (error instanceof NoFeed)
      throw transient(`what ${new URL(url).host} sent is no feed: ${error.message}`);
    throw error;
  }
}

/** (F3) */
function within(items: readonly Item[], mostBytes: number): Item[] {
  let total = 0;
  return items.filter((one) => (total += Buffer.byteLength(JSON.stringify(one)) + 1) <= mostBytes);
}

const known = z.object({
  url: z.string(),
  etag: z
    .string()
    .regex(/^[\x20-\x7e]{1,1024}$/)
    .optional(),
  modified: z
    .string()
    .regex(/^[\x20-\x7e]{1,64}$/)
    .optional(),
  digest: z.string(),
  title: z.string(),
});
const OURS = "pawl1.";

/** (F1) */
function etagOf({ headers }: GuardedAnswer, url: URL, digest: string, title: string): string {
  const { etag, "last-modified": modified } = headers;
  const held = { url: digestOf(url), digest, title: title.slice(0, 100).toWellFormed() };
  const full = known.safeParse({ ...held, ...(etag ? { etag } : {}), ...(modified ? { modified } : {}) });
  return OURS + Buffer.from(JSON.stringify(full.success ? full.data : held)).toString("base64url");
}

function knownOf(etag: string | undefined, url: URL): z.infer<typeof known> | undefined {
  if (etag === undefined || !etag.startsWith(OURS)) return undefined;
  try {
    const read = known.safeParse(JSON.parse(Buffer.from(etag.slice(OURS.length), "base64url").toString()));
    return read.success && read.data.url === digestOf(url) ? read.data : undefined;
  } catch {
    return undefined;
  }
}

const digestOf = ({ href }: URL): string =>
  createHash("sha256").update(href).digest("base64url").slice(0, 16);
