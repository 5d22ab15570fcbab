/**
 * The connector `smtp`: one mail per call (06). Nobody can ask a mail server later whether it took a message, so there is no
 * proof, and an unknown outcome goes to a person.
 *
 * N1. One connection and one attempt per call.
 * N2. A mail that somebody gets is sent, although others were refused: the result names both. One that nobody gets is not.
 */
import { z } from "zod";
import { plainLine } from "../core/plain-line.ts";
import {
  type Connector,
  defineConnector,
  invalid,
  mutation,
  type OpenConnection,
  type SendContext,
} from "./define.ts";
import { type Network, SYSTEM_NETWORK } from "./egress.ts";
import { type Address, addressOf, composed, type Draft, recipientsOf, UNPLAIN } from "./mail.ts";
import { urlOf, withSession } from "./smtp-session.ts";

const MEBIBYTE = 1_048_576;
const MOST_RECIPIENTS = 100;
const MOST_SHOWN = 10;

const address = z.string().transform((text, context): Address => {
  const read = addressOf(text);
  if (read) return read;
  const message =
    "not one mail address: write name@example.com or Name <name@example.com>, a list for several";
  context.addIssue({ code: "custom", message });
  return z.NEVER;
});
const addresses = z
  .union([z.string(), z.array(z.string())])
  .transform((given) => (typeof given === "string" ? [given] : given))
  .pipe(z.array(address));
const line = z
  .string()
  .max(998)
  .refine((text) => !UNPLAIN.test(text), "a line break or another control character in it");

const input = z
  .strictObject({
    to: addresses.refine((list) => list.length > 0, "nobody to send to"),
    cc: addresses.default([]),
    bcc: addresses.default([]),
    replyTo: address.optional(),
    subject: line,
    text: z.string().optional(),
    html: z.string().optional(),
  })
  .refine(({ text, html }) => text !== undefined || html !== undefined, "neither text nor html")
  .refine((mail) => recipientsOf(mail).length <= MOST_RECIPIENTS, `more than ${MOST_RECIPIENTS} recipients`);

const output = z.object({
  messageId: z.string(),
  accepted: z.array(z.string()),
  rejected: z.array(z.string()),
});

const isHost = (host: string): boolean =>
  /^[^\s/@?#\\[\]%]+$/.test(host) && URL.canParse(`http://${host.includes(":") ? `[${host}]` : host}:25`);

const limits = z.strictObject({
  /** All of it; a server may take its time after a message. */
  totalMs: z.int().min(100).max(600_000).default(60_000),
  connectMs: z.int().min(100).max(60_000).default(10_000),
  messageBytes: z
    .int()
    .min(1_024)
    .max(32 * MEBIBYTE)
    .default(2 * MEBIBYTE),
});
const config = z.strictObject({
  host: z.string().max(253).refine(isHost, "not the name or address of a host"),
  port: z.int().min(1).max(65_535).default(587),
  /** `tls` from the first byte (465), `starttls` or nothing (587), `none`. */
  security: z.enum(["tls", "starttls", "none"]).default("starttls"),
  from: address,
  /** Admins only. */
  allowPrivateNetwork: z.boolean().default(false),
  /** PEM of further certificate authorities. */
  ca: z.string().optional(),
  limits: limits.default(limits.parse({})),
});
const secrets = z
  .strictObject({ user: z.string().min(1).optional(), password: z.string().min(1).optional() })
  .refine(({ user, password }) => (user === undefined) === (password === undefined), "both or neither");

type Config = z.infer<typeof config>;
type Secrets = z.infer<typeof secrets>;
type Mail = z.infer<typeof input>;

export function smtpOver(network: Network): Connector<Config, Secrets> {
  return defineConnector<Config, Secrets>({
    name: "smtp",
    config,
    secrets,
    check: async ({ config: server, secrets: login }, { signal }) => {
      try {
        await withSession(server, login, { signal, network }, async () => undefined);
        return { status: "ok" };
      } catch (error) {
        const { class: kind, message } = error as { class?: string; message: string };
        return { status: kind === "auth" ? "auth" : "unreachable", message };
      }
    },
    tools: {
      send: mutation({
        input,
        output,
        describe,
        proof: "none",
        run: (connection: OpenConnection<Config, Secrets>, mail: Mail, context) =>
          sent(connection, mail, context, network),
      }),
    },
  });
}

export const smtp = smtpOver(SYSTEM_NETWORK);

async function sent(
  { config: server, secrets: login }: OpenConnection<Config, Secrets>,
  mail: Draft,
  { idempotencyKey, signal }: SendContext,
  network: Network,
): Promise<z.infer<typeof output>> {
  const { messageId, envelope, bytes } = await composed(mail, server.from, idempotencyKey);
  const { messageBytes } = server.limits;
  if (bytes.byteLength > messageBytes)
    throw invalid(`the mail has ${bytes.byteLength} bytes; the connection allows ${messageBytes}`);
  const { accepted, rejected } = await withSession(server, login, { signal, network }, (session) =>
    session.send(envelope, bytes),
  );
  return { messageId, accepted, rejected }; // (N2)
}

function describe({ to, cc, bcc, subject }: Mail, { config: { from, host, port } }: OpenConnection<Config>) {
  const copies = [
    ...(cc.length > 0 ? [`copy to ${shown(cc)}`] : []),
    ...(bcc.length > 0 ? [`blind copy to ${shown(bcc)}`] : []),
  ];
  const what = `Send the mail "${plainLine(subject, 200)}" to ${[shown(to), ...copies].join(", ")}`;
  return plainLine(`${what}, from ${from.address} through ${urlOf({ host, port }).host}`, 1_000);
}

function shown(list: readonly Address[]): string {
  const names = list.slice(0, MOST_SHOWN).map((one) => one.address);
  return list.length > MOST_SHOWN
    ? `${names.join(", ")} and ${list.length - MOST_SHOWN} more`
    : names.join(", ");
}
