/**
 * Inbound webhooks: what a sender must prove before a byte of its body is believed. No tools: a script's `hooks` name the
 * alias, and whoever receives the request asks `verifyHook` first (06, 08).
 *
 * B1. The signature covers the raw bytes; nothing is parsed before it holds.
 * B2. Signatures are compared in constant time; every candidate with every key, whatever the first of them says.
 * B3. Without a key nobody is let in, except where the operator has chosen the scheme `none`.
 * B4. Where a scheme signs a time, a request is believed only within the tolerance around now, in both directions.
 * B5. The generic scheme signs id, time and body; the id has no dot, so that no two requests share a signed text.
 */
import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import { z } from "zod";
import type { ConnectionRow } from "../ports/connections.ts";
import type { HookRequest, HookVerdict } from "../ports/hooks.ts";
import { defineConnector, type OpenConnection } from "./define.ts";
import { openConnection, type Opening } from "./opening.ts";

const header = z
  .string()
  .regex(/^[A-Za-z0-9-]{1,64}$/, "the name of a header")
  .transform((name) => name.toLowerCase());
const MEBIBYTE = 1_048_576;

const config = z.strictObject({
  scheme: z.enum(["hmac-sha256", "github", "stripe", "none"]),
  /** Only `hmac-sha256`. The defaults are those of Standard Webhooks. */
  signatureHeader: header.default("webhook-signature"),
  timestampHeader: header.default("webhook-timestamp"),
  /** Also under `none`, where a sender has one. */
  idHeader: header.default("webhook-id"),
  /** How far the sender's clock may be from ours. Also how long an id is remembered. */
  toleranceMs: z.int().min(1_000).max(86_400_000).default(300_000),
  maxBodyBytes: z
    .int()
    .min(1)
    .max(16 * MEBIBYTE)
    .default(MEBIBYTE),
});
const secrets = z.strictObject({
  /** As text, or `whsec_` and base64. */
  signingKey: z.string().min(1).optional(),
  /** During a rotation: what was signed with the last one is still believed. */
  previousKey: z.string().min(1).optional(),
});

export type HookConfig = z.infer<typeof config>;
export type HookSecrets = z.infer<typeof secrets>;

export const webhook = defineConnector({ name: "webhook", config, secrets, tools: {} });

/** What a scheme finds in a request, before anything is compared. */
interface Claim {
  signed: readonly (string | Uint8Array)[];
  /** Any of them may be the right one. */
  signatures: readonly Buffer[];
  atMs?: number;
  id?: string;
}

export function verifyHook(
  { config: set, secrets: keys }: { config: HookConfig; secrets: HookSecrets },
  request: HookRequest,
  nowMs: number,
): HookVerdict {
  const { body } = request;
  if (body.byteLength > set.maxBodyBytes)
    return { ok: false, status: 413, reason: `the body has more than ${set.maxBodyBytes} bytes` };
  const bodyHash = createHash("sha256").update(body).digest("base64url");
  const believed = (id: string | undefined): HookVerdict => ({
    ok: true,
    bodyHash,
    rememberMs: set.toleranceMs,
    ...(id === undefined ? {} : { id }),
  });
  const of = (name: string) => single(request.headers, name);
  if (set.scheme === "none") return believed(named(of(set.idHeader)));
  const given = [keys.signingKey, keys.previousKey].filter((key) => key !== undefined);
  if (given.length === 0) return no("the connection has no signing key"); // (B3)
  const claim = CLAIMS[set.scheme](set, of, body);
  if (typeof claim === "string") return no(claim);
  if (!isSigned(claim, given)) return no("the signature does not fit");
  if (claim.atMs !== undefined && !(Math.abs(nowMs - claim.atMs) <= set.toleranceMs))
    return no("the timestamp is too far from now"); // (B4)
  return believed(claim.id);
}

/** The same for a connection as it is stored. Never rejects because of what was sent. */
export async function verifyStored(
  row: ConnectionRow,
  request: HookRequest,
  { nowMs, opening }: { nowMs: number; opening: Opening },
): Promise<HookVerdict> {
  const opened = openConnection({ row, namespace: "", connector: webhook }, opening);
  if ("class" in opened) return no("the connection has no signing key that can be used"); // (B3)
  const { config: set, secrets: keys } = opened as OpenConnection<HookConfig, HookSecrets>;
  return verifyHook({ config: set, secrets: keys }, request, nowMs);
}

/** As the generic scheme wants it; what Pawl itself sends is signed like this. */
export function signHook(key: string, id: string, atMs: number, body: string): Record<string, string> {
  const timestamp = String(Math.floor(atMs / 1_000));
  const mac = hmac(key, [`${id}.${timestamp}.`, body]).toString("base64");
  return { "webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": `v1,${mac}` };
}

type Headers = (name: string) => string | undefined;

const CLAIMS: Record<
  Exclude<HookConfig["scheme"], "none">,
  (set: HookConfig, of: Headers, body: Uint8Array) => Claim | string
> = {
  "hmac-sha256": ({ signatureHeader, timestampHeader, idHeader }, of, body) => {
    const [value, time, id] = [of(signatureHeader), of(timestampHeader), named(of(idHeader))];
    if (value === undefined) return `the header ${signatureHeader} is missing`;
    if (id === undefined) return `the header ${idHeader} is missing or no id`; // (B5)
    const atMs = secondsOf(time);
    if (atMs === undefined) return `the header ${timestampHeader} is not a time in seconds`;
    const signatures = value.split(" ").slice(0, MOST_SIGNATURES).map(signatureOf);
    return { signed: [`${id}.${time}.`, body], signatures, atMs, id };
  },
  // GitHub signs the body alone: its time is unknown, and the id is believed only to tell deliveries apart.
  github: (_, of, body) => {
    const value = of("x-hub-signature-256");
    if (value === undefined) return "the header x-hub-signature-256 is missing";
    if (!value.startsWith("sha256=")) return "the header x-hub-signature-256 has another form";
    const id = named(of("x-github-delivery"));
    return { signed: [body], signatures: [signatureOf(value)], ...(id === undefined ? {} : { id }) };
  },
  stripe: (_, of, body) => {
    const value = of("stripe-signature");
    if (value === undefined) return "the header stripe-signature is missing";
    const parts = value.split(",").map((part) => part.trim());
    const after = (name: string) =>
      parts.filter((part) => part.startsWith(`${name}=`)).map((part) => part.slice(name.length + 1));
    const times = after("t");
    const atMs = times.length === 1 ? secondsOf(times[0]) : undefined;
    if (atMs === undefined) return "the header stripe-signature has no time";
    const signatures = after("v1").slice(0, MOST_SIGNATURES).map(signatureOf);
    return { signed: [`${times[0]}.`, body], signatures, atMs };
  },
};

const MOST_SIGNATURES = 8;

/** (B2) */
function isSigned({ signed, signatures }: Claim, keys: readonly string[]): boolean {
  let fits = false;
  for (const key of keys) {
    const wanted = hmac(key, signed);
    for (const one of signatures) if (isEqual(wanted, one)) fits = true;
  }
  return fits;
}

function hmac(key: string, parts: readonly (string | Uint8Array)[]): Buffer {
  const bytes = key.startsWith("whsec_") ? Buffer.from(key.slice(6), "base64") : key;
  const mac = createHmac("sha256", bytes);
  for (const part of parts) mac.update(part);
  return mac.digest();
}

function isEqual(wanted: Buffer, given: Buffer): boolean {
  const same = given.byteLength === wanted.byteLength;
  return timingSafeEqual(wanted, same ? given : wanted) && same;
}

/** `v1,<base64>`, `sha256=<hex>` or `<hex>`; anything else is empty, and equals nothing. */
function signatureOf(text: string): Buffer {
  if (text.startsWith("v1,")) return Buffer.from(text.slice(3), "base64");
  const hex = text.startsWith("sha256=") ? text.slice(7) : text;
  return /^[0-9a-fA-F]{64}$/.test(hex) ? Buffer.from(hex, "hex") : Buffer.alloc(0);
}

const secondsOf = (text: string | undefined): number | undefined =>
  text !== undefined && /^[0-9]{1,12}$/.test(text) ? Number(text) * 1_000 : undefined;

/** (B5) */
const named = (id: string | undefined): string | undefined =>
  id !== undefined && /^[A-Za-z0-9_:-]{1,128}$/.test(id) ? id : undefined;

/** A header that came twice is not a header: which of the two was signed? */
function single(headers: HookRequest["headers"], name: string): string | undefined {
  const found = Object.entries(headers).filter(([key]) => key.toLowerCase() === name);
  const values = found.flatMap(([, value]) => value ?? []);
  return values.length === 1 ? values[0] : undefined;
}

const no = (reason: string): HookVerdict => ({ ok: false, status: 401, reason });
