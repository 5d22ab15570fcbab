/**
 * One mail as bytes and envelope. Knows addresses and MIME, nothing of connections.
 *
 * L1. No text becomes a header or a command: what has a control character is refused, in addresses, names and subjects.
 * L2. An address is `local@domain`, with or without a name around it; lists, groups, comments and quoted local parts are
 *     refused rather than guessed at.
 * L3. The Message-ID and the boundaries come from the idempotency key, so that every send of one decision carries the same.
 */
import { createHash } from "node:crypto";
import { domainToASCII } from "node:url";
import MailComposer from "nodemailer/lib/mail-composer";

export interface Address {
  name: string;
  address: string;
}

export interface Draft {
  to: Address[];
  cc: Address[];
  bcc: Address[];
  replyTo?: Address | undefined;
  subject: string;
  text?: string | undefined;
  html?: string | undefined;
}

export interface Composed {
  messageId: string;
  envelope: { from: string; to: string[] };
  bytes: Buffer;
}

/** Control characters, and the separators that some readers take for a line's end. */
export const UNPLAIN = /[\p{Cc}\u2028\u2029]/u;
const LOCAL = /^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*$/;
const DOMAIN = /^(?=.{1,253}$)[a-z0-9_](?:[a-z0-9_-]{0,62})(?:\.[a-z0-9_][a-z0-9_-]{0,62})*$/;
const NAMED = /^(.*?)\s*<([^<>]*)>$/s;
const LONGEST = 320;

/** (L1, L2) Undefined where it is not one. */
export function addressOf(text: string): Address | undefined {
  if (text.length > LONGEST || UNPLAIN.test(text)) return undefined;
  const [, name = "", inside] = NAMED.exec(text.trim()) ?? [];
  const bare = inside === undefined ? text.trim() : inside.trim();
  const at = bare.lastIndexOf("@");
  const [local, domain] = [bare.slice(0, at), domainToASCII(bare.slice(at + 1))];
  if (at < 1 || local.length > 64 || !LOCAL.test(local) || !DOMAIN.test(domain)) return undefined;
  const plain = /^"(.*)"$/s.exec(name)?.[1]?.replace(/\\(.)/gs, "$1") ?? name;
  return { name: plain.trim(), address: `${local}@${domain}` };
}

/** Everybody it goes to, each once. */
export function recipientsOf({ to, cc, bcc }: Pick<Draft, "to" | "cc" | "bcc">): string[] {
  return [...new Set([...to, ...cc, ...bcc].map(({ address }) => address))];
}

/** (L3) A script sees it, so the key must not be found in it. */
function messageIdOf(idempotencyKey: string, from: Address): string {
  return `<${digestOf(idempotencyKey)}@${from.address.slice(from.address.lastIndexOf("@") + 1)}>`;
}

const digestOf = (idempotencyKey: string): string =>
  createHash("sha256").update(`pawl message-id ${idempotencyKey}`).digest("hex").slice(0, 40);

export async function composed(draft: Draft, from: Address, idempotencyKey: string): Promise<Composed> {
  const messageId = messageIdOf(idempotencyKey, from);
  const { replyTo, text, html } = draft;
  const mail = new MailComposer({
    from,
    to: draft.to,
    cc: draft.cc,
    // In the envelope alone; the composer writes no Bcc.
    bcc: draft.bcc,
    ...(replyTo === undefined ? {} : { replyTo }),
    subject: draft.subject,
    ...(text === undefined ? {} : { text }),
    ...(html === undefined ? {} : { html }),
    messageId,
    boundaryPrefix: "--pawl",
    baseBoundary: digestOf(idempotencyKey),
    disableFileAccess: true,
    disableUrlAccess: true,
  });
  return {
    messageId,
    envelope: { from: from.address, to: recipientsOf(draft) },
    bytes: await mail.compile().build(),
  };
}
