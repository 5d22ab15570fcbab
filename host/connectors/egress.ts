/**
 * Where a request may go: the URL is one this connection lists, its host is resolved once, every address of it is looked
 * at, and the socket is opened to an address that was looked at (06, 08). What is said over it is `egress-request.ts`'s.
 *
 * E1. Only `http` and `https`, no user and no password in the URL, a host and port from the list.
 * E2. One resolution per connection; the socket is given an address, never a name.
 * E3. One bad address among several refuses them all: whoever answers so is not to be trusted with the others.
 * E4. Certificates are always verified, whatever the environment says.
 */
import { lookup } from "node:dns/promises";
import { connect as connectTcp, isIP, type Socket } from "node:net";
import { connect as connectTls, getCACertificates } from "node:tls";
import { type Reach, reachOf } from "./egress-address.ts";

/** Every address of a name. */
export type Resolve = (hostname: string) => Promise<string[]>;
/** Opens a TCP connection to an address. */
export type Dial = (to: { host: string; port: number }) => Socket;

/** How the outside is reached; tests bring their own. */
export interface Network {
  resolve: Resolve;
  dial: Dial;
}

export const SYSTEM_NETWORK: Network = {
  resolve: async (hostname) => (await lookup(hostname, { all: true })).map(({ address }) => address),
  dial: (to) => connectTcp({ ...to, noDelay: true, keepAlive: false }),
};

export interface EgressRule {
  /** `host`, `host:port` or `*.host`; without a port, the scheme's own. */
  hosts: readonly string[];
  allowPrivateNetwork?: boolean | undefined;
  /** PEM of further certificate authorities. */
  ca?: string | undefined;
}

/** The guard says no: nothing was sent. */
export class EgressRefused extends Error {
  override readonly name = "EgressRefused";
}

/** (E1) Throws unless the rule lets a request go there. */
function checkUrl(url: URL, rule: EgressRule): void {
  if (url.protocol !== "http:" && url.protocol !== "https:")
    throw new EgressRefused(`only http and https, not ${url.protocol.slice(0, 20)}`);
  if (url.username !== "" || url.password !== "")
    throw new EgressRefused(`a URL with a user or a password in it is not followed`);
  if (!rule.hosts.some((entry) => isListed(url, entry)))
    throw new EgressRefused(`${url.host} is not among the hosts of this connection`);
  const literal = literalOf(url);
  if (literal !== undefined) checkAddress(literal, url, rule);
}

/** (E2, E3) The addresses that the host of the URL stands for, all of them looked at. */
export async function addressesOf(url: URL, rule: EgressRule, { resolve }: Network): Promise<string[]> {
  checkUrl(url, rule);
  const literal = literalOf(url);
  if (literal !== undefined) return [literal];
  const addresses = await resolve(url.hostname);
  if (addresses.length === 0) throw new Error(`${url.hostname} has no address`);
  for (const address of addresses) checkAddress(address, url, rule);
  return addresses;
}

/** A socket to the first of the addresses that answers, TLS included. Nothing of a request has been written to it. */
export async function open(
  url: URL,
  addresses: readonly string[],
  rule: EgressRule,
  { network, signal, timeoutMs }: { network: Network; signal: AbortSignal; timeoutMs: number },
): Promise<Socket> {
  let last: unknown;
  for (const host of addresses) {
    signal.throwIfAborted();
    try {
      return await openTo(url, host, rule, { network, signal, timeoutMs });
    } catch (error) {
      last = error;
    }
  }
  throw last;
}

function openTo(
  url: URL,
  host: string,
  rule: EgressRule,
  { network, signal, timeoutMs }: { network: Network; signal: AbortSignal; timeoutMs: number },
): Promise<Socket> {
  const tcp = network.dial({ host, port: portOf(url) });
  const secure = url.protocol === "https:";
  const socket = secure ? tlsOver(tcp, url, rule) : tcp;
  return new Promise((resolve, reject) => {
    const give = (error: Error): void => {
      stop();
      socket.destroy();
      tcp.destroy();
      reject(error);
    };
    const aborted = (): void => give(signal.reason as Error);
    const timer = setTimeout(() => give(new Error(`no connection within ${timeoutMs} ms`)), timeoutMs);
    const closed = (): void => give(new Error("the connection was closed before it could be used"));
    const stop = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", aborted);
      socket.off("close", closed);
      socket.off("error", give);
      tcp.off("error", give);
    };
    signal.addEventListener("abort", aborted, { once: true });
    // Errors may come in twos; the second must not end the process.
    for (const one of new Set([socket, tcp])) one.on("error", () => {});
    socket.once("close", closed);
    socket.once("error", give);
    tcp.once("error", give);
    socket.once(secure ? "secureConnect" : "connect", () => {
      stop();
      resolve(socket);
    });
  });
}

/** (E4) */
function tlsOver(tcp: Socket, url: URL, { ca }: EgressRule): Socket {
  const name = nameOf(url);
  return connectTls({
    socket: tcp,
    host: name,
    ...(isIP(name) === 0 ? { servername: name } : {}),
    ALPNProtocols: ["http/1.1"],
    rejectUnauthorized: true,
    minVersion: "TLSv1.2",
    ...(ca === undefined ? {} : { ca: [ca, ...getCACertificates("default")] }),
  });
}

/** Whether an entry of a rule's `hosts` means the URL's host and port. */
export function isListed(url: URL, entry: string): boolean {
  const match = /^(.*?)(?::(\d{1,5}))?$/.exec(entry.toLowerCase());
  const [, host = "", port] = match ?? [];
  const standard = url.protocol === "https:" ? "443" : "80";
  if (String(portOf(url)) !== (port ?? standard)) return false;
  const hostname = url.hostname;
  return host.startsWith("*.") ? hostname.endsWith(host.slice(1)) && !isIP(hostname) : hostname === host;
}

function checkAddress(address: string, url: URL, { allowPrivateNetwork = false }: EgressRule): void {
  const reach: Reach = reachOf(address);
  if (reach === "public" || (reach === "private" && allowPrivateNetwork)) return;
  throw new EgressRefused(`${url.hostname} leads to ${address.slice(0, 60)}, which is not a public address`);
}

const nameOf = (url: URL): string => url.hostname.replace(/^\[|\]$/g, "");

/** A resolver is never asked about these. */
function literalOf(url: URL): string | undefined {
  const name = nameOf(url);
  return isIP(name) === 0 ? undefined : name;
}

const portOf = ({ port, protocol }: URL): number => Number(port || (protocol === "https:" ? 443 : 80));
