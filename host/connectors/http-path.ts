/**
 * Where a script's path leads. What could be read in two ways is refused, not repaired: the URL that a person approves is
 * the one that is called.
 *
 * P1. A path stays below the connection's `baseUrl`: no dot segments, in whatever spelling, and no second host.
 * P2. A whole URL is followed only to the same place, or to a host that the connection lists.
 * P3. Nothing that a URL parser would drop or replace in silence: control characters, lone surrogates, fragments.
 */
import { invalid } from "./define.ts";
import { isListed } from "./egress.ts";

export interface Place {
  baseUrl: string;
  hosts: readonly string[];
}

type Query = Readonly<Record<string, string | number | boolean | null>>;

const LONGEST_PATH = 8_192;
const CONTROL = /\p{Cc}/u;
const ABSOLUTE = /^https?:\/\//i;

/** Why a path leads nowhere, whatever the connection. */
export function pathProblem(path: string): string | undefined {
  if (path.length > LONGEST_PATH) return `has more than ${LONGEST_PATH} characters`;
  if (CONTROL.test(path)) return "contains a control character, such as a line break"; // (P3)
  if (!path.isWellFormed()) return "contains half of a character (a lone surrogate)";
  if (path.includes("#")) return 'contains "#", which is never sent: write %23 for the character itself';
  if (path.endsWith(" ")) return "ends with a space: write %20 if it is meant";
  if (path !== "" && !path.startsWith("/") && !ABSOLUTE.test(path)) return 'must start with "/"';
  if (path.startsWith("//")) return 'starts with "//", which names another host';
  const plain = path.split("?")[0] ?? "";
  if (plain.includes("\\")) return "contains a backslash: write %5C if it is meant";
  if (/%00/.test(plain)) return "contains an encoded NUL";
  if (hasDots(plain)) return 'contains a "." or ".." segment';
  return undefined;
}

/** (P1) Also encoded, behind an encoded slash, and with path parameters. */
function hasDots(path: string): boolean {
  const plain = path.replace(/%2e/gi, ".").replace(/%2f|%5c/gi, "/");
  return plain.split("/").some((segment) => /^\.{1,2}(;|$)/.test(segment));
}

/** The URL of a call. Throws `invalid`. */
export function leadsTo({ baseUrl, hosts }: Place, path: string, query: Query = {}): URL {
  const problem = pathProblem(path);
  if (problem !== undefined) throw invalid(`the path ${shown(path)} ${problem}`);
  const base = new URL(baseUrl);
  const below = prefixOf(base);
  const text = ABSOLUTE.test(path) ? path : `${base.origin}${below}${path}`;
  if (!URL.canParse(text)) throw invalid(`the path ${shown(path)} makes no URL`);
  const url = new URL(text);
  if (url.username !== "" || url.password !== "")
    throw invalid(
      "a URL with a user or a password in it is not called: credentials belong to the connection",
    );
  const inside = isBelow(url, base);
  if (!inside && !hosts.some((entry) => isListed(url, entry)))
    throw invalid(`${url.origin}${url.pathname} is neither below ${baseUrl} nor on a listed host`); // (P1, P2)
  const added = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== null) added.append(name, String(value));
  if (added.size > 0) url.search = url.search === "" ? added.toString() : `${url.search}&${added.toString()}`;
  return url;
}

/** Credentials are for this one alone. */
export const isBaseOrigin = (url: URL, { baseUrl }: Place): boolean => url.origin === new URL(baseUrl).origin;

/** The path below `baseUrl`, or nothing if it is elsewhere. */
export function pathBelow(url: URL, { baseUrl }: Place): string | undefined {
  const base = new URL(baseUrl);
  return isBelow(url, base) ? url.pathname.slice(prefixOf(base).length) : undefined;
}

/**
 * Segment by segment; `*` is any one segment, a last `**` any rest. A segment with an encoded slash fits no star: some
 * services would read two.
 */
export function isPathLike(path: string, pattern: string): boolean {
  const wanted = pattern.split("/");
  const given = path.split("/");
  const isOpen = wanted.at(-1) === "**";
  if (isOpen) wanted.pop();
  if (isOpen ? given.length <= wanted.length : given.length !== wanted.length) return false;
  const isPlain = (segment: string): boolean => segment !== "" && !/%2f|%5c/i.test(segment);
  const fits = wanted.every((segment, at) =>
    segment === "*" ? isPlain(given[at] ?? "") : segment === given[at],
  );
  return fits && (!isOpen || given.slice(wanted.length).every(isPlain));
}

function isBelow(url: URL, base: URL): boolean {
  const below = prefixOf(base);
  return url.origin === base.origin && (url.pathname === below || url.pathname.startsWith(`${below}/`));
}

const prefixOf = ({ pathname }: URL): string => pathname.replace(/\/+$/, "");

const shown = (path: string): string => JSON.stringify(path.slice(0, 100).toWellFormed());
