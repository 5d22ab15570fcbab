/**
 * Who may knock at all, before anybody is asked for a name: which names the host answers to, and which pages may call it.
 *
 * G1. A name that the host was not told is refused, also on loopback: a page elsewhere that points its own name at this
 *     machine gets nothing.
 * G2. A browser's request comes from the host's own page, or is refused.
 * G3. What a proxy says about a request counts only where the operator trusts it.
 * G4. A request whose target or headers name two hosts is refused: whoever stands before this host may have read another.
 */
import type { IncomingMessage } from "node:http";
import { Refusal } from "./problems.ts";

export interface Gate {
  /** Lower case, without a port, beside the loopback names. */
  hosts: ReadonlySet<string>;
  /** `https://pawl.example.org` */
  publicOrigin: string | undefined;
  trustProxy: boolean;
}

const LOOPBACK: readonly string[] = ["localhost", "127.0.0.1", "[::1]"];

export function gateOf(options: {
  listen: string;
  publicUrl?: string | undefined;
  allowedHosts?: readonly string[] | undefined;
  trustProxy?: boolean | undefined;
}): Gate {
  const { listen, publicUrl, allowedHosts = [], trustProxy = false } = options;
  const url = publicUrl === undefined ? undefined : new URL(publicUrl);
  const own = listen.includes(":") ? `[${listen}]` : listen;
  const hosts = [...LOOPBACK, own, ...(url ? [url.hostname] : []), ...allowedHosts];
  return { hosts: new Set(hosts.map((one) => one.toLowerCase())), publicOrigin: url?.origin, trustProxy };
}

/** `isOpen`: a page that anybody may open by a link. */
export function admit(incoming: IncomingMessage, gate: Gate, isOpen: boolean): void {
  const { headers, headersDistinct, url = "", httpVersionMajor } = incoming;
  if (httpVersionMajor !== 1 || !url.startsWith("/") || (headersDistinct["host"]?.length ?? 0) > 1)
    throw new Refusal("host-refused", "the request says in two ways, or in none, whom it asks"); // (G4)
  const host = hostOf(headers, gate);
  if (host === undefined || !gate.hosts.has(nameOf(host)))
    throw new Refusal("host-refused", "the host does not answer to this name"); // (G1)
  const { origin } = headers;
  const site = headers["sec-fetch-site"];
  const isSame = origin === undefined || origin === gate.publicOrigin || originHost(origin) === host;
  const isOwn = site === undefined || site === "same-origin" || site === "none" || isOpen;
  if (!isSame || !isOwn)
    throw new Refusal("origin-refused", "the request was sent by a page of another site"); // (G2)
}

export function addressOf(incoming: IncomingMessage, { trustProxy }: Gate): string {
  const said = incoming.headers["x-forwarded-for"];
  const last = typeof said === "string" ? said.split(",").at(-1)?.trim() : undefined;
  return (trustProxy ? last : undefined) ?? incoming.socket.remoteAddress ?? ""; // (G3)
}

function hostOf(headers: IncomingMessage["headers"], { trustProxy }: Gate): string | undefined {
  const said = headers["x-forwarded-host"];
  const host = trustProxy && typeof said === "string" ? said : headers.host; // (G3)
  return host?.toLowerCase();
}

/** Without its port. */
const nameOf = (host: string): string => host.replace(/:\d{1,5}$/, "");

function originHost(origin: string): string | undefined {
  try {
    return new URL(origin).host;
  } catch {
    return undefined;
  }
}
