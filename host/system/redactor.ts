/**
 * Takes registered values out of text, wherever they stand. By value, never by field name or path: an upstream may echo a
 * credential anywhere.
 *
 * V1. A value is found plain, in hex, in base64 at any offset and in both alphabets, and through up to three layers of URL,
 *     JSON and HTML escapes and folded lines, however the escapes are mixed.
 * V2. Everything that belongs to any find is hidden; where finds overlap, all of them are.
 * V3. JSON stays JSON, and text in which nothing is found stays as it is, byte for byte.
 * V4. What is cut off is hidden too, as long as half of the value and 16 characters of it are there.
 * V5. Values below four characters are not hidden: they would take half of every line with them.
 */
import { Needles } from "./needles.ts";

const HIDDEN = "[redacted]";
const SHORTEST = 4;
/** Of a value that changes often, such as an access token, so many stay hidden. */
const KEPT = 16;
const LAYERS = 3;

interface View {
  text: string;
  /** Where in the original each character begins and ends; absent for the original itself. */
  from?: Uint32Array;
  to?: Uint32Array;
}

export class Redactor {
  readonly #needles = new Needles();
  readonly #slots = new Map<string, string[]>();

  /** Of a named slot the newest 16 values stay hidden; without one the value stays hidden for good. */
  register(secret: string, slot?: string): void {
    if (secret.length < SHORTEST) return; // (V5)
    if (slot !== undefined) {
      const held = this.#slots.get(slot) ?? [];
      if (held.includes(secret)) return;
      held.push(secret);
      this.#slots.set(slot, held);
      if (held.length > KEPT) for (const form of formsOf(held.shift() as string)) this.#needles.remove(form);
    }
    for (const form of formsOf(secret)) this.#needles.add(form);
  }

  /** Every text and number in it, whatever its shape. */
  registerAll(secrets: unknown, slot: string): void {
    if (typeof secrets === "string") this.register(secrets, slot);
    else if (typeof secrets === "number") this.register(String(secrets), slot);
    else if (typeof secrets === "object" && secrets !== null)
      for (const [key, one] of Object.entries(secrets)) this.registerAll(one, `${slot}/${key}`);
  }

  clean(text: string): string {
    return hide(text, this.#spans(text, LAYERS));
  }

  /** JSON in, JSON out; taken apart only when something in it has to go. */
  cleanJson(json: string): string {
    if (this.#spans(json, LAYERS + 1).length === 0) return json; // (V3)
    try {
      const value: unknown = JSON.parse(json);
      const cleaned = this.#cleanValue(value);
      return cleaned === value ? json : JSON.stringify(cleaned);
    } catch {
      return this.clean(json);
    }
  }

  /** The same value if nothing in it has to go. */
  #cleanValue(value: unknown): unknown {
    if (typeof value === "string") return this.clean(value);
    if (typeof value === "number") return this.clean(String(value)) === String(value) ? value : HIDDEN;
    if (typeof value !== "object" || value === null) return value;
    const entries = Object.entries(value);
    const cleaned = entries.map(([key, one]) => [this.clean(key), this.#cleanValue(one)] as const);
    if (entries.every(([key, one], at) => cleaned[at]?.[0] === key && cleaned[at][1] === one)) return value;
    return Array.isArray(value) ? cleaned.map(([, one]) => one) : Object.fromEntries(cleaned);
  }

  /** Where something stands that has to go, over all layers of escapes, in no order. */
  #spans(text: string, layers: number): [from: number, to: number][] {
    const spans: [number, number][] = [];
    if (this.#needles.isEmpty) return spans;
    let view: View | undefined = { text };
    for (let layer = 0; view && layer <= layers; layer++) {
      const { text: seen, from, to } = view;
      this.#needles.find(seen, (start, length) => {
        const last = start + length - 1;
        spans.push([from ? (from[start] as number) : start, to ? (to[last] as number) : last + 1]);
      });
      view = unescaped(view);
    }
    return spans;
  }
}

/** (V2) */
function hide(text: string, spans: [from: number, to: number][]): string {
  if (spans.length === 0) return text;
  spans.sort((a, b) => a[0] - b[0]);
  let cleaned = "";
  let at = 0;
  for (let next = 0; next < spans.length; ) {
    const [from] = spans[next] as [number, number];
    let to = from;
    for (; next < spans.length && (spans[next] as [number, number])[0] <= to; next++)
      to = Math.max(to, (spans[next] as [number, number])[1]);
    cleaned += text.slice(at, from) + HIDDEN;
    at = to;
  }
  return cleaned + text.slice(at);
}

/** A URL's `%41`; JSON's `\u0041`, `\/`; HTML's `&#65;`, `&amp;`; the fold of a header or of a base64 body. */
const ESCAPE =
  /%([0-9a-f]{2})|\\(?:u([0-9a-f]{4})|x([0-9a-f]{2})|(["'\\/bfnrt]))|&(?:#x([0-9a-f]{1,4})|#([0-9]{1,5})|(amp|lt|gt|quot|apos));|\r?\n[ \t]*/gi;
const CONTROLS: Record<string, string> = { b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };
const ENTITIES: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" };

function meaningOf([, percent, unicode, short, control, hex, decimal, entity]: RegExpExecArray): string {
  const code = percent ?? unicode ?? short ?? hex;
  if (code !== undefined) return String.fromCharCode(Number.parseInt(code, 16));
  if (decimal !== undefined) return String.fromCharCode(Number(decimal));
  if (control !== undefined) return CONTROLS[control] ?? control;
  return entity === undefined ? "" : (ENTITIES[entity.toLowerCase()] as string);
}

/** One layer of escapes undone, bytes as characters; nothing when there was none. */
function unescaped({ text, from: outerFrom, to: outerTo }: View): View | undefined {
  ESCAPE.lastIndex = 0;
  let found = ESCAPE.exec(text);
  if (!found) return undefined;
  const [from, to] = [new Uint32Array(text.length), new Uint32Array(text.length)];
  let [inner, at, seen] = ["", 0, 0];
  const keep = (start: number, end: number) => {
    from[at] = outerFrom ? (outerFrom[start] as number) : start;
    to[at] = outerTo ? (outerTo[end - 1] as number) : end;
    at++;
  };
  for (; found; found = ESCAPE.exec(text)) {
    const [whole] = found;
    inner += text.slice(seen, found.index);
    for (; seen < found.index; seen++) keep(seen, seen + 1);
    const meaning = meaningOf(found);
    inner += meaning;
    seen += whole.length;
    if (meaning !== "") keep(found.index, seen);
  }
  inner += text.slice(seen);
  for (; seen < text.length; seen++) keep(seen, seen + 1);
  return { text: inner, from, to };
}

/** (V1) How the value looks when nobody escaped it. */
function formsOf(secret: string): Set<string> {
  const forms = new Set<string>();
  for (const part of partsOf(secret)) {
    const bytes = Buffer.from(part.toWellFormed());
    for (const plain of [part, part.replace(/\r?\n[ \t]*/g, ""), bytes.toString("latin1")]) {
      forms.add(plain);
      forms.add(plain.replaceAll(" ", "+"));
    }
    const hex = bytes.toString("hex");
    forms.add(hex).add(hex.toUpperCase());
    for (const form of inBase64(bytes)) forms.add(form);
  }
  for (const form of forms) if (form.length < SHORTEST) forms.delete(form);
  return forms;
}

/** The value, and what of it gives access by itself: the lines of a key, the password of an address. */
function partsOf(secret: string): string[] {
  const parts = [secret, secret.trim()];
  if (secret.includes("\n"))
    parts.push(...secret.split(/\s*\n\s*/).filter((line) => line.length >= 16 && !line.startsWith("-----")));
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(secret) && URL.canParse(secret)) {
    const { password, pathname, search } = new URL(secret);
    parts.push(password, unescaped({ text: password })?.text ?? password);
    if (pathname.length + search.length >= 16) parts.push(pathname + search);
  }
  return parts.filter((part) => part.length >= SHORTEST);
}

function* inBase64(bytes: Buffer): Generator<string> {
  for (const offset of [0, 1, 2]) {
    const padded = Buffer.concat([Buffer.alloc(offset), bytes]).toString("base64url");
    // Characters that the neighbours of the value have a part in differ from place to place.
    const from = offset === 0 ? 0 : offset + 1;
    const inner = padded.slice(from, Math.floor(((offset + bytes.length) * 8) / 6));
    yield inner;
    yield inner.replaceAll("-", "+").replaceAll("_", "/");
  }
}
