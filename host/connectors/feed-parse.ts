/**
 * A feed's text → title and items, whichever of its forms it has: RSS 0.9x, 1.0 (RDF) and 2.0, Atom, JSON Feed. Pure.
 *
 * G1. No document is expanded: declared entities are refused, nesting and counts are bounded.
 * G2. What a feed leaves out or writes badly is absent, never invented: no date of today, no link to nowhere. An item with
 *     nothing in it at all is dropped.
 * G3. Every item has an id, and no two the same one. It is the feed's own, else the link, else a digest of what the item
 *     says; where several different items claim one id, each of them gets a digest added, so that none is lost.
 * G4. Text is plain text on one line; links are http(s), absolute.
 */
import { createHash } from "node:crypto";
import { XMLParser } from "fast-xml-parser";
import { dateOf, decoded, lineOf, textOfHtml } from "./feed-text.ts";

export interface Item {
  id: string;
  title: string;
  link?: string;
  summary?: string;
  author?: string;
  publishedAt?: string;
}

export interface Feed {
  title: string;
  items: Item[];
}

export class NoFeed extends Error {
  override readonly name = "NoFeed";
}

const LONGEST = { id: 1_000, title: 500, link: 2_000, summary: 2_000, author: 200 };
const DEEPEST = 40;
const MOST_TAGS = 40_000;
const MOST_ATTRIBUTES = 30_000;
const LONGEST_DOCTYPE = 1_000;
const [LESS_THAN, EQUALS, GREATER_THAN] = [0x3c, 0x3d, 0x3e];
const TEXT = "#text";
const CDATA = "#cdata";

const parser = new XMLParser({
  ignoreAttributes: false,
  attributeNamePrefix: "@",
  textNodeName: TEXT,
  cdataPropName: CDATA,
  parseTagValue: false,
  parseAttributeValue: false,
  processEntities: false, // (G1) Decoded here, where it is known what was CDATA.
  maxNestedTags: DEEPEST,
  // Feeds put markup there, escaped or not, balanced or not: it is taken as it stands.
  stopNodes: ["title", "dc:title", "description", "summary", "content", "content:encoded"].map(
    (name) => `..${name}`,
  ),
});

type Node = string | { [name: string]: Node | Node[] | undefined };

/** Throws `NoFeed` for what is none. */
export function parseFeed(text: string, url: string, mostItems: number): Feed {
  const start = text.trimStart();
  const raw = start.startsWith("{") ? ofJson(start, url, mostItems) : ofXml(start, url, mostItems);
  const items = unique(raw.items.filter((item) => isSomething(item)));
  return { title: raw.title, items };
}

function ofXml(text: string, url: string, most: number): { title: string; items: Raw[] } {
  if (!text.startsWith("<")) throw new NoFeed("it is neither XML nor JSON");
  bounded(text);
  let root: Node;
  try {
    root = parser.parse(text) as Node;
  } catch (error) {
    throw new NoFeed(`its XML is broken: ${lineOf((error as Error).message, 200)}`);
  }
  const [rss, rdf, atom] = ["rss", "rdf:RDF", "feed"].map(
    (name) => child(root, name) ?? child(root, name.toLowerCase()),
  );
  if (rss !== undefined) {
    const channel = child(rss, "channel");
    return {
      title: titleOf(channel),
      items: all(channel, "item")
        .slice(0, most)
        .map((item) => ofRss(item, baseOf(channel, url))),
    };
  }
  if (rdf !== undefined) {
    const channel = child(rdf, "channel");
    return {
      title: titleOf(channel),
      items: all(rdf, "item")
        .slice(0, most)
        .map((item) => ofRss(item, baseOf(channel, url))),
    };
  }
  if (atom === undefined) throw new NoFeed("its XML is no RSS, RDF or Atom");
  const base = absolute(attribute(atom, "xml:base"), url) ?? url;
  return {
    title: lineOf(construct(child(atom, "title")), LONGEST.title),
    items: all(atom, "entry")
      .slice(0, most)
      .map((entry) => ofAtom(entry, base)),
  };
}

/** (G1) Before a parser sees it, whose time is by the tag and the attribute. */
function bounded(text: string): void {
  const doctype = text.search(/<!DOCTYPE/i);
  if (doctype >= 0 && /^[^>]*\[/.test(text.slice(doctype, doctype + LONGEST_DOCTYPE)))
    throw new NoFeed("it declares entities of its own");
  let tags = 0;
  let attributes = 0;
  let inTag = false;
  for (let at = 0; at < text.length; at++) {
    const char = text.charCodeAt(at);
    if (char === EQUALS && inTag) attributes++;
    if (char === GREATER_THAN) inTag = false;
    if (char !== LESS_THAN) continue;
    tags++;
    inTag = true;
    if (!text.startsWith("<![CDATA[", at)) continue;
    const end = text.indexOf("]]>", at);
    if (end < 0) break;
    at = end;
    inTag = false;
  }
  if (tags > MOST_TAGS || attributes > MOST_ATTRIBUTES)
    throw new NoFeed(`it has more than ${MOST_TAGS} tags or ${MOST_ATTRIBUTES} attributes`);
}

/** As the feed has it, cut to length. */
interface Raw {
  id: string | undefined;
  title: string;
  link: string | undefined;
  summary: string | undefined;
  author: string | undefined;
  publishedAt: string | undefined;
}

function ofRss(item: Node, base: string): Raw {
  const guid = child(item, "guid");
  const [named, permalink] = [plain(guid), attribute(guid, "isPermaLink") !== "false"];
  const own = absolute(plain(child(item, "link")), base);
  const summary = child(item, "description") ?? child(item, "content:encoded");
  return {
    id: named || attribute(item, "rdf:about"),
    title: lineOf(textOfHtml(plain(child(item, "title") ?? child(item, "dc:title"))), LONGEST.title),
    link:
      own ??
      absolute(attribute(child(item, "atom:link"), "href"), base) ??
      (permalink ? absolute(named, base, true) : undefined),
    summary: cut(textOfHtml(plain(summary)), LONGEST.summary),
    author: cut(textOfHtml(plain(child(item, "dc:creator") ?? child(item, "author"))), LONGEST.author),
    publishedAt: firstDate(
      ["pubDate", "dc:date", "published", "updated"].map((name) => plain(child(item, name))),
    ),
  };
}

function ofAtom(entry: Node, above: string): Raw {
  const base = absolute(attribute(entry, "xml:base"), above) ?? above;
  const links = all(entry, "link");
  const link = links.find((one) => ["alternate", undefined].includes(attribute(one, "rel"))) ?? undefined;
  const summary = child(entry, "summary") ?? child(entry, "content");
  return {
    id: plain(child(entry, "id")) || undefined,
    title: lineOf(construct(child(entry, "title")), LONGEST.title),
    link: absolute(attribute(link, "href"), base),
    summary: cut(construct(summary), LONGEST.summary),
    author: cut(
      all(entry, "author")
        .map((one) => plain(child(one, "name")))
        .filter(Boolean)
        .join(", "),
      LONGEST.author,
    ),
    publishedAt: firstDate(
      ["published", "issued", "updated", "modified"].map((name) => plain(child(entry, name))),
    ),
  };
}

function ofJson(text: string, url: string, most: number): { title: string; items: Raw[] } {
  let feed: unknown;
  try {
    feed = JSON.parse(text);
  } catch {
    throw new NoFeed("its JSON is broken");
  }
  const { items, title } = feed as { items?: unknown; title?: unknown };
  if (!Array.isArray(items)) throw new NoFeed("its JSON is no JSON Feed: it has no items");
  return {
    title: lineOf(said(title), LONGEST.title),
    items: items.slice(0, most).map((item) => ofJsonItem(item, url)),
  };
}

function ofJsonItem(given: unknown, url: string): Raw {
  const item = (typeof given === "object" && given !== null ? given : {}) as Record<string, unknown>;
  const authors = Array.isArray(item["authors"]) ? (item["authors"] as unknown[]) : [item["author"]];
  const names = authors.map((one) => said((one as { name?: unknown } | null | undefined)?.name));
  const html = textOfHtml(said(item["content_html"]));
  return {
    id: said(item["id"]) || undefined,
    title: lineOf(said(item["title"]), LONGEST.title),
    link: absolute(said(item["url"]), url) ?? absolute(said(item["external_url"]), url),
    summary: cut(said(item["summary"]) || said(item["content_text"]) || html, LONGEST.summary),
    author: cut(names.filter(Boolean).join(", "), LONGEST.author),
    publishedAt: firstDate([said(item["date_published"]), said(item["date_modified"])]),
  };
}

const said = (value: unknown): string =>
  typeof value === "string" ? value : typeof value === "number" ? String(value) : "";

/** (G2) */
const isSomething = (item: Raw): boolean => [item.id, item.link, item.title, item.summary].some(Boolean);

/** (G3) */
function unique(raws: readonly Raw[]): Item[] {
  const claimed = new Map<string, Map<string, Raw>>();
  for (const raw of raws) {
    const id = idOf(raw);
    const said = claimed.get(id) ?? new Map<string, Raw>();
    // The very same item again is one item.
    if (!said.has(digestOf(raw))) claimed.set(id, said.set(digestOf(raw), raw));
  }
  const items: Item[] = [];
  for (const raw of raws) {
    const id = idOf(raw);
    const sharing = claimed.get(id);
    if (sharing?.get(digestOf(raw)) !== raw) continue;
    items.push(itemOf(raw, sharing.size === 1 ? id : `${id.slice(0, LONGEST.id - 25)}#${digestOf(raw)}`));
  }
  return items;
}

function idOf(raw: Raw): string {
  const own = lineOf(raw.id ?? raw.link ?? "", Number.MAX_SAFE_INTEGER);
  if (own === "") return digestOf(raw);
  if (own.length <= LONGEST.id) return own;
  return `${own.slice(0, LONGEST.id - 25).toWellFormed()}#${createHash("sha256").update(own).digest("hex").slice(0, 24)}`;
}

/** Of what tells two items apart: not the summary, which is edited. */
function digestOf({ link, title, publishedAt, summary }: Raw): string {
  const tells = link === undefined && title === "" ? [summary] : [link, title, publishedAt];
  return createHash("sha256").update(JSON.stringify(tells)).digest("hex").slice(0, 24);
}

function itemOf({ title, link, summary, author, publishedAt }: Raw, id: string): Item {
  return {
    id,
    title,
    ...(link === undefined ? {} : { link }),
    ...(summary === undefined ? {} : { summary }),
    ...(author === undefined ? {} : { author }),
    ...(publishedAt === undefined ? {} : { publishedAt }),
  };
}

const cut = (text: string, most: number): string | undefined => lineOf(text, most) || undefined;
const titleOf = (channel: Node | undefined): string =>
  lineOf(textOfHtml(plain(child(channel, "title"))), LONGEST.title);
const baseOf = (channel: Node | undefined, url: string): string =>
  absolute(plain(child(channel, "link")), url) ?? url;

function firstDate(texts: readonly string[]): string | undefined {
  for (const text of texts) {
    const date = text === "" ? undefined : dateOf(text);
    if (date !== undefined) return date;
  }
  return undefined;
}

/** (G4) `whole`: only what is absolute by itself. */
function absolute(link: string | undefined, base: string, whole = false): string | undefined {
  const text = link?.trim() ?? "";
  if (text === "" || text.length > LONGEST.link || !URL.canParse(text, whole ? undefined : base))
    return undefined;
  const { protocol, href } = new URL(text, whole ? undefined : base);
  return protocol === "http:" || protocol === "https:" ? href : undefined;
}

function child(node: Node | undefined, name: string): Node | undefined {
  return all(node, name)[0];
}

function all(node: Node | undefined, name: string): Node[] {
  if (typeof node !== "object" || !Object.hasOwn(node, name)) return [];
  const found = node[name];
  return found === undefined ? [] : Array.isArray(found) ? found : [found];
}

const attribute = (node: Node | undefined, name: string): string | undefined => {
  const found = child(node, `@${name}`);
  return typeof found === "string" ? decoded(found).trim() : undefined;
};

/** The text of an element, its own entities decoded; CDATA has none. */
function plain(node: Node | undefined): string {
  return inner(node)
    .split(CDATA_SECTION)
    .map((piece, index) => (index % 2 === 0 ? decoded(piece) : piece))
    .join("")
    .trim();
}

const CDATA_SECTION = /<!\[CDATA\[([\s\S]*?)\]\]>/;

/** As it stands in the document. */
function inner(node: Node | undefined): string {
  if (node === undefined) return "";
  if (typeof node === "string") return node;
  const cdata = all(node, CDATA).map((one) => (typeof one === "string" ? `<![CDATA[${one}]]>` : ""));
  return [...all(node, TEXT).filter((one) => typeof one === "string"), ...cdata].join("");
}

/** An Atom text: plain, markup as text, or markup. */
function construct(node: Node | undefined): string {
  const type = attribute(node, "type") ?? "text";
  if (type === "xhtml") return textOfHtml(inner(node));
  return /html/i.test(type) ? textOfHtml(plain(node)) : plain(node);
}
