/**
 * Which addresses are somewhere else: reachable by everybody, and by nobody's mistake part of this machine or its network
 * (08). Speaks about addresses only; names and URLs are `egress.ts`'s.
 *
 * V1. What cannot be read as exactly one address is not public.
 * V2. Of IPv6 only global unicast is public, minus what embeds or tunnels another address; so a range nobody thought of
 *     is refused, not let through.
 */
import { BlockList, isIPv4, isIPv6 } from "node:net";

/** `nowhere`: no server can be there, whoever allows it. */
export type Reach = "public" | "private" | "nowhere";

const NOWHERE_4 = ["0.0.0.0/8", "224.0.0.0/4", "255.255.255.255/32"];
const PRIVATE_4 = [
  "10.0.0.0/8",
  "100.64.0.0/10", // Carrier-grade NAT, and Alibaba's metadata.
  "127.0.0.0/8",
  "168.63.129.16/32", // Azure's host, on a public number.
  "169.254.0.0/16", // Link-local, and most clouds' metadata.
  "172.16.0.0/12",
  "192.0.0.0/24",
  "192.0.2.0/24",
  "192.31.196.0/24",
  "192.52.193.0/24",
  "192.88.99.0/24",
  "192.168.0.0/16",
  "192.175.48.0/24",
  "198.18.0.0/15",
  "198.51.100.0/24",
  "203.0.113.0/24",
  "240.0.0.0/4",
];
const NOWHERE_6 = ["::/128", "ff00::/8"];
const GLOBAL_6 = ["2000::/3"];
const PRIVATE_6 = [
  "2001::/23", // Teredo, benchmarks, ORCHID.
  "2001:db8::/32",
  "2002::/16", // 6to4 embeds an IPv4 address.
  "2620:4f:8000::/48",
  "3fff::/20",
];

const nowhere4 = listOf(NOWHERE_4, "ipv4");
const private4 = listOf(PRIVATE_4, "ipv4");
const nowhere6 = listOf(NOWHERE_6, "ipv6");
const global6 = listOf(GLOBAL_6, "ipv6");
const private6 = listOf(PRIVATE_6, "ipv6");
const MAPPED = "::ffff:";

export function reachOf(address: string): Reach {
  if (isIPv4(address)) {
    if (nowhere4.check(address, "ipv4")) return "nowhere";
    return private4.check(address, "ipv4") ? "private" : "public";
  }
  if (!isIPv6(address)) return "nowhere"; // (V1)
  const [bare = "", zone] = address.split("%");
  if (zone !== undefined) return bare.toLowerCase().startsWith("fe80:") ? "private" : "nowhere";
  if (nowhere6.check(bare, "ipv6")) return "nowhere";
  const mapped = mappedFrom(bare);
  if (mapped !== undefined) return reachOf(mapped) === "nowhere" ? "nowhere" : "private";
  return global6.check(bare, "ipv6") && !private6.check(bare, "ipv6") ? "public" : "private"; // (V2)
}

/** The IPv4 address inside `::ffff:a.b.c.d`: the system connects to that one. */
function mappedFrom(address: string): string | undefined {
  const text = new URL(`http://[${address}]`).hostname.slice(1, -1);
  if (!text.startsWith(MAPPED)) return undefined;
  const words = text.slice(MAPPED.length).split(":");
  if (words.length !== 2) return undefined;
  const [high = 0, low = 0] = words.map((word) => Number.parseInt(word, 16));
  return [high >> 8, high & 255, low >> 8, low & 255].join(".");
}

function listOf(subnets: readonly string[], family: "ipv4" | "ipv6"): BlockList {
  const list = new BlockList();
  for (const subnet of subnets) {
    const [network = "", bits] = subnet.split("/");
    list.addSubnet(network, Number(bits), family);
  }
  return list;
}
