/**
 * Which headers may be set, and by whom. Nobody sets those of the wire; credentials are the secrets' alone; a script may
 * not pretend to be another caller, nor turn a method or a path into another one.
 */
import { z } from "zod";

const WIRE = [
  "host",
  "connection",
  "keep-alive",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "content-length",
  "expect",
  "http2-settings",
  "accept-encoding",
];
const CREDENTIALS = ["authorization", "cookie", "cookie2"];
/** Services believe these about who calls, and what. */
const PRETENCE = [
  "forwarded",
  "via",
  "x-real-ip",
  "x-http-method",
  "x-http-method-override",
  "x-method-override",
  "x-original-url",
  "x-original-method",
  "x-rewrite-url",
];

export const headerName = z
  .string()
  .regex(/^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$/, "is no name of a header")
  .transform((name) => name.toLowerCase());
export const headerValue = z
  .string()
  .max(4_096)
  .regex(/^[\t\x20-\x7e]*$/, "holds a line break or a character outside of ASCII");

export type Headers = Readonly<Record<string, string>>;

/** Why nobody, or no script, may set it. */
export function headerProblem(
  name: string,
  { operator = false }: { operator?: boolean } = {},
): string | undefined {
  const lower = name.toLowerCase();
  if (WIRE.includes(lower) || lower.startsWith("proxy-"))
    return `the header ${lower} belongs to the connection`;
  if (CREDENTIALS.includes(lower))
    return `the header ${lower} carries credentials: those are the connection's secrets`;
  const pretends = PRETENCE.includes(lower) || lower.startsWith("x-forwarded-");
  if (pretends && !operator) return `the header ${lower} would change who calls, or what`;
  return undefined;
}
