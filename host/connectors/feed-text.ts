/** Text as feeds have it: bytes in some charset, entities, markup and dates in every form. Never throws, never guesses a value. */

const NAMED: Record<string, string> = {
  amp: "&",
  lt: "<",
  gt: ">",
  quot: '"',
  apos: "'",
  nbsp: "\u00a0",
  ...Object.fromEntries(
    [
      ..."iexcl cent pound curren yen brvbar sect uml copy ordf laquo not shy reg macr deg plusmn sup2 sup3 acute micro para".split(
        " ",
      ),
      ..."middot cedil sup1 ordm raquo frac14 frac12 frac34 iquest Agrave Aacute Acirc Atilde Auml Aring AElig Ccedil".split(
        " ",
      ),
      ..."Egrave Eacute Ecirc Euml Igrave Iacute Icirc Iuml ETH Ntilde Ograve Oacute Ocirc Otilde Ouml times Oslash".split(
        " ",
      ),
      ..."Ugrave Uacute Ucirc Uuml Yacute THORN szlig agrave aacute acirc atilde auml aring aelig ccedil egrave eacute".split(
        " ",
      ),
      ..."ecirc euml igrave iacute icirc iuml eth ntilde ograve oacute ocirc otilde ouml divide oslash ugrave uacute".split(
        " ",
      ),
      ..."ucirc uuml yacute thorn yuml".split(" "),
    ].map((name, index) => [name, String.fromCharCode(0xa1 + index)]),
  ),
  ndash: "–",
  mdash: "—",
  lsquo: "‘",
  rsquo: "’",
  sbquo: "‚",
  ldquo: "“",
  rdquo: "”",
  bdquo: "„",
  bull: "•",
  hellip: "…",
  prime: "′",
  euro: "€",
  trade: "™",
  larr: "←",
  rarr: "→",
  minus: "−",
};
const ENTITY = /&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|([A-Za-z][A-Za-z0-9]{1,7}));/g;
const BLOCKS = /<\/?(?:p|div|br|li|ul|ol|h[1-6]|tr|table|blockquote|hr)\b[^<>]*>/gi;
const UNREAD = /<(script|style)\b[^<>]*>[\s\S]*?(?:<\/\1\s*>|$)|<!--[\s\S]*?(?:-->|$)/gi;
const TAGS = /<\/?[A-Za-z!?][^<>]*>/g;

/** One layer of entities; what is none stays as it is. */
export function decoded(text: string): string {
  if (!text.includes("&")) return text;
  return text.replace(ENTITY, (whole, decimal?: string, hex?: string, name?: string) => {
    if (name !== undefined) return Object.hasOwn(NAMED, name) ? (NAMED[name] ?? whole) : whole;
    const point = decimal === undefined ? Number.parseInt(hex ?? "", 16) : Number(decimal);
    const isText = point > 0 && point <= 0x10ffff && !(point >= 0xd800 && point <= 0xdfff);
    return isText ? String.fromCodePoint(point) : whole;
  });
}

/** Markup as somebody reads it who sees none. */
export function textOfHtml(html: string): string {
  if (!html.includes("<")) return decoded(html);
  return decoded(html.replace(UNREAD, " ").replace(BLOCKS, " ").replace(TAGS, ""));
}

/** On one line, without what a terminal or a page would obey, and no longer than it may be. */
export function lineOf(text: string, mostChars: number): string {
  const line = text
    .toWellFormed()
    .replace(/[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069\s]+/gu, " ")
    .trim();
  return line.length <= mostChars ? line : `${line.slice(0, mostChars - 1).toWellFormed()}…`;
}

const ISO = /^(\d{4})(?:-?(\d\d)(?:-?(\d\d)(?:[T\s]+(\d\d):?(\d\d)(?::?(\d\d)(?:[.,]\d+)?)?\s*(.*))?)?)?$/;
const RFC =
  /^(?:[A-Za-z]+\.?,?\s+)?(\d{1,2})[\s-]+([A-Za-z]{3})[a-z]*\.?,?[\s-]+(\d{4}|\d\d)(?:,?\s+(\d{1,2}):(\d\d)(?::(\d\d))?\s*(.*))?$/;
const AMERICAN =
  /^(?:[A-Za-z]+\.?,?\s+)?([A-Za-z]{3})[a-z]*\.?\s+(\d{1,2}),?\s+(\d{4})(?:,?\s+(\d{1,2}):(\d\d)(?::(\d\d))?\s*(.*))?$/;
const LONGEST_DATE = 80;
const MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split(" ");
/** In hours. */
const ZONES: Record<string, number> = {
  UT: 0,
  UTC: 0,
  GMT: 0,
  Z: 0,
  WET: 0,
  BST: 1,
  CET: 1,
  WEST: 1,
  CEST: 2,
  EET: 2,
  EEST: 3,
  MSK: 3,
  EST: -5,
  EDT: -4,
  CST: -6,
  CDT: -5,
  MST: -7,
  MDT: -6,
  PST: -8,
  PDT: -7,
  JST: 9,
};

/** ISO 8601 in UTC; undefined for what is no date, or is in a zone that nobody knows. A time without a zone is in UTC. */
export function dateOf(text: string): string | undefined {
  if (text.length > LONGEST_DATE) return undefined;
  const given = text.trim().replace(/\s*\([^()]*\)$/, "");
  const iso = ISO.exec(given);
  if (iso) return made(iso.slice(1, 4), iso.slice(4));
  const rfc = RFC.exec(given);
  if (rfc) return made([yearOf(rfc[3]), monthOf(rfc[2]), rfc[1]], rfc.slice(4));
  const american = AMERICAN.exec(given);
  if (american) return made([american[3], monthOf(american[1]), american[2]], american.slice(4));
  return undefined;
}

type Part = string | undefined;

function made(
  [year, month = "1", day = "1"]: Part[],
  [hour = "0", minute = "0", second = "0", zone = ""]: Part[],
) {
  const offset = minutesOf(zone.trim());
  if (offset === undefined) return undefined;
  const [y, mo, d, h, mi, s] = [year, month, day, hour, minute, second].map(Number) as [
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  const date = new Date(Date.UTC(y, mo - 1, d));
  // The calendar rolls over; a date that is none is no date.
  if (date.getUTCMonth() !== mo - 1 || date.getUTCDate() !== d || h > 24 || mi > 59 || s > 60)
    return undefined;
  const atMs = date.getTime() + ((h * 60 + mi - offset) * 60 + s) * 1_000;
  const found = new Date(atMs);
  return Number.isNaN(atMs) || y < 1_000 ? undefined : found.toISOString();
}

function minutesOf(zone: string): number | undefined {
  if (zone === "") return 0;
  const [, sign, hours, minutes = "0"] = /^(?:GMT|UTC)?([+-])(\d\d?):?(\d\d)?$/.exec(zone) ?? [];
  if (sign !== undefined) return (sign === "-" ? -1 : 1) * (Number(hours) * 60 + Number(minutes));
  const known = zone.toUpperCase();
  return Object.hasOwn(ZONES, known) ? (ZONES[known] ?? 0) * 60 : undefined;
}

const monthOf = (name = ""): string => String(MONTHS.indexOf(name.toLowerCase()) + 1);
const yearOf = (year = ""): string =>
  year.length === 2 ? String(Number(year) + (Number(year) < 70 ? 2000 : 1900)) : year;

/** By mark, header, declaration, in this order; UTF-8 otherwise. Bytes that are none become replacement characters. */
export function charsetDecoded(bytes: Uint8Array, contentType: string): string {
  const head = Buffer.from(bytes.subarray(0, 256)).toString("latin1").replaceAll("\0", "");
  const named =
    markOf(bytes) ??
    /charset\s*=\s*["']?([A-Za-z0-9_:.-]+)/i.exec(contentType)?.[1] ??
    /^\s*<\?xml[^>]*?encoding\s*=\s*["']([A-Za-z0-9_:.-]+)/.exec(head)?.[1] ??
    "utf-8";
  try {
    return new TextDecoder(named).decode(bytes);
  } catch {
    return new TextDecoder("utf-8").decode(bytes);
  }
}

function markOf([first, second, third]: Uint8Array): string | undefined {
  if (first === 0xef && second === 0xbb && third === 0xbf) return "utf-8";
  if ((first === 0xfe && second === 0xff) || (first === 0 && second === 0x3c)) return "utf-16be";
  if ((first === 0xff && second === 0xfe) || (first === 0x3c && second === 0)) return "utf-16le";
  return undefined;
}
