/**
 * Web globals that V8 alone does not have. URLs are parsed by the process around the isolate (text in, text out), so
 * they behave as everywhere; the rest is written here. Built on first use, see `prelude-globals.ts`.
 */
import type { Native } from "./prelude.ts";

export function web(native: Native): Record<string, unknown> {
  type Parts = Record<string, string>;
  const { parse, stringify } = JSON;

  let reread: (params: URLSearchParams, text: string) => void;
  class URLSearchParams {
    #pairs: [string, string][] = [];
    #changed: (() => void) | undefined;
    constructor(init: unknown = "", changed?: () => void) {
      if (typeof init === "object" && init !== null) {
        const source = init as Iterable<[string, string]>;
        const pairs = typeof source[Symbol.iterator] === "function" ? source : Object.entries(init as Parts);
        for (const [k, v] of pairs) this.#pairs.push([`${k}`.toWellFormed(), `${v}`.toWellFormed()]);
      } else this.#read(`${init}`);
      if (typeof changed === "function") this.#changed = changed;
    }
    #read(text: string) {
      this.#pairs = [];
      for (const part of (text.startsWith("?") ? text.slice(1) : text).split("&")) {
        if (part === "") continue;
        const at = part.indexOf("=");
        this.#pairs.push(
          at < 0 ? [decode(part), ""] : [decode(part.slice(0, at)), decode(part.slice(at + 1))],
        );
      }
    }
    static {
      reread = (params, text) => params.#read(text);
    }
    get size() {
      return this.#pairs.length;
    }
    append(name: string, value: string) {
      this.#pairs.push([`${name}`.toWellFormed(), `${value}`.toWellFormed()]);
      this.#changed?.();
    }
    delete(name: string, value?: string) {
      this.#pairs = this.#pairs.filter(
        ([k, v]) => k !== `${name}` || (value !== undefined && v !== `${value}`),
      );
      this.#changed?.();
    }
    get(name: string) {
      return this.#pairs.find(([k]) => k === `${name}`)?.[1] ?? null;
    }
    getAll(name: string) {
      return this.#pairs.filter(([k]) => k === `${name}`).map(([, v]) => v);
    }
    has(name: string, value?: string) {
      return this.#pairs.some(([k, v]) => k === `${name}` && (value === undefined || v === `${value}`));
    }
    set(name: string, value: string) {
      const at = this.#pairs.findIndex(([k]) => k === `${name}`);
      if (at < 0) return this.append(name, value);
      this.#pairs = this.#pairs.filter(([k], i) => k !== `${name}` || i === at);
      (this.#pairs[at] as [string, string])[1] = `${value}`.toWellFormed();
      this.#changed?.();
    }
    sort() {
      this.#pairs.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
      this.#changed?.();
    }
    forEach(visit: (value: string, name: string, params: URLSearchParams) => void, self?: unknown) {
      for (const [k, v] of this.#pairs) visit.call(self, v, k, this);
    }
    *entries() {
      for (const [k, v] of this.#pairs) yield [k, v];
    }
    *keys() {
      for (const [k] of this.#pairs) yield k;
    }
    *values() {
      for (const [, v] of this.#pairs) yield v;
    }
    [Symbol.iterator]() {
      return this.entries();
    }
    toString() {
      return this.#pairs.map(([k, v]) => `${encode(k)}=${encode(v)}`).join("&");
    }
  }
  const encode = (text: string) =>
    encodeURIComponent(text)
      .replace(/[!'()~]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`)
      .replace(/%20/g, "+");
  const decode = (text: string) => {
    const raw: number[] = [];
    const plain = utf8(text.replace(/\+/g, " "));
    for (let i = 0; i < plain.length; i++) {
      const hex =
        plain[i] === 37
          ? Number(`0x${String.fromCharCode(plain[i + 1] ?? 120, plain[i + 2] ?? 120)}`)
          : Number.NaN;
      if (Number.isNaN(hex)) raw.push(plain[i] as number);
      else {
        raw.push(hex);
        i += 2;
      }
    }
    return text8(Uint8Array.from(raw), false);
  };

  const partsOf = (op: string, text: string, extra: string): Parts => {
    const answer = native(op, text, extra);
    if (answer === "") throw new TypeError(`Invalid URL: ${text.slice(0, 200)}`);
    return parse(answer);
  };
  let read: (url: URL, name: string) => string;
  let write: (url: URL, name: string, value: string) => void;
  class URL {
    #parts: Parts;
    #query: URLSearchParams | undefined;
    constructor(input: unknown, base?: unknown) {
      this.#parts = partsOf("url", `${input}`, base === undefined ? "" : `${base}`);
    }
    static canParse(input: unknown, base?: unknown) {
      return native("url", `${input}`, base === undefined ? "" : `${base}`) !== "";
    }
    static parse(input: unknown, base?: unknown) {
      return URL.canParse(input, base) ? new URL(input, base) : null;
    }
    static {
      read = (url, name) => url.#parts[name] as string;
      write = (url, name, value) => {
        url.#parts = partsOf("url.set", url.#parts["href"] as string, stringify([name, value]));
        if (url.#query && name !== "hash") reread(url.#query, url.#parts["search"] as string);
      };
    }
    get searchParams() {
      this.#query ??= new URLSearchParams(this.#parts["search"], () => {
        this.#parts = partsOf(
          "url.set",
          this.#parts["href"] as string,
          stringify(["search", `${this.#query}`]),
        );
      });
      return this.#query;
    }
    toString() {
      return this.#parts["href"] as string;
    }
    toJSON() {
      return this.#parts["href"] as string;
    }
  }
  const accessor = (name: string, readonly: boolean) =>
    Object.defineProperty(URL.prototype, name, {
      get(this: URL) {
        return read(this, name);
      },
      ...(readonly
        ? {}
        : {
            set(this: URL, value: unknown) {
              write(this, name, `${value}`);
            },
          }),
      configurable: true,
      enumerable: true,
    });
  accessor("origin", true);
  for (const name of [
    "href",
    "protocol",
    "username",
    "password",
    "host",
    "hostname",
    "port",
    "pathname",
    "search",
    "hash",
  ])
    accessor(name, false);

  const utf8 = (text: string): Uint8Array<ArrayBuffer> => {
    const out: number[] = [];
    for (const ch of text.toWellFormed()) {
      const c = ch.codePointAt(0) as number;
      if (c < 128) out.push(c);
      else if (c < 2048) out.push(192 | (c >> 6), 128 | (c & 63));
      else if (c < 65536) out.push(224 | (c >> 12), 128 | ((c >> 6) & 63), 128 | (c & 63));
      else out.push(240 | (c >> 18), 128 | ((c >> 12) & 63), 128 | ((c >> 6) & 63), 128 | (c & 63));
    }
    return Uint8Array.from(out);
  };
  const text8 = (bytes: Uint8Array, fatal: boolean): string => {
    let out = "";
    const bad = (): string => {
      if (fatal) throw new TypeError("The encoded data was not valid UTF-8");
      return "\ufffd";
    };
    for (let i = 0; i < bytes.length; ) {
      const c = bytes[i++] as number;
      if (c < 128) {
        out += String.fromCharCode(c);
        continue;
      }
      const more = c >= 0xc2 && c < 0xe0 ? 1 : c >= 0xe0 && c < 0xf0 ? 2 : c >= 0xf0 && c < 0xf5 ? 3 : 0;
      let code = c & (0x3f >> more);
      let low = c === 0xe0 ? 0xa0 : c === 0xf0 ? 0x90 : 0x80;
      let high = c === 0xed ? 0x9f : c === 0xf4 ? 0x8f : 0xbf;
      let seen = 0;
      while (seen < more && i < bytes.length && (bytes[i] as number) >= low && (bytes[i] as number) <= high) {
        code = (code << 6) | ((bytes[i++] as number) & 63);
        low = 0x80;
        high = 0xbf;
        seen++;
      }
      out += more > 0 && seen === more ? String.fromCodePoint(code) : bad();
    }
    return out;
  };
  const bytesOf = (data: unknown): Uint8Array => {
    if (data === undefined) return new Uint8Array();
    if (data instanceof ArrayBuffer) return new Uint8Array(data);
    if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    throw new TypeError("TextDecoder.decode wants an ArrayBuffer or a view of one");
  };
  class TextEncoder {
    get encoding() {
      return "utf-8";
    }
    encode(text: unknown = "") {
      return utf8(`${text}`);
    }
    encodeInto(text: unknown, target: Uint8Array) {
      let [readUnits, written] = [0, 0];
      for (const ch of `${text}`) {
        const bytes = utf8(ch);
        if (written + bytes.length > target.length) break;
        target.set(bytes, written);
        written += bytes.length;
        readUnits += ch.length;
      }
      return { read: readUnits, written };
    }
  }
  class TextDecoder {
    #fatal: boolean;
    #ignoreBOM: boolean;
    constructor(label: unknown = "utf-8", options?: { fatal?: boolean; ignoreBOM?: boolean }) {
      if (!/^\s*(utf-?8|unicode-1-1-utf-8)\s*$/i.test(`${label}`))
        throw new RangeError(`TextDecoder here reads utf-8 only, not ${label}`);
      this.#fatal = Boolean(options?.fatal);
      this.#ignoreBOM = Boolean(options?.ignoreBOM);
    }
    get encoding() {
      return "utf-8";
    }
    get fatal() {
      return this.#fatal;
    }
    get ignoreBOM() {
      return this.#ignoreBOM;
    }
    decode(data?: unknown) {
      const text = text8(bytesOf(data), this.#fatal);
      return !this.#ignoreBOM && text.startsWith("\ufeff") ? text.slice(1) : text;
    }
  }

  const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const btoa = (input: unknown): string => {
    const text = `${input}`;
    let out = "";
    for (let i = 0; i < text.length; i += 3) {
      const [a, b, c] = [text.charCodeAt(i), text.charCodeAt(i + 1), text.charCodeAt(i + 2)] as [
        number,
        number,
        number,
      ];
      if (a > 255 || b > 255 || c > 255) throw new RangeError("btoa takes only characters up to U+00FF");
      out += (ALPHABET[a >> 2] as string) + ALPHABET[((a & 3) << 4) | (b >> 4)];
      out +=
        (Number.isNaN(b) ? "=" : ALPHABET[((b & 15) << 2) | (c >> 6)]) +
        (Number.isNaN(c) ? "=" : (ALPHABET[c & 63] as string));
    }
    return out;
  };
  const atob = (input: unknown): string => {
    let text = `${input}`.replace(/[\t\n\f\r ]/g, "");
    if (text.length % 4 === 0) text = text.replace(/==?$/, "");
    if (text.length % 4 === 1 || /[^A-Za-z0-9+/]/.test(text))
      throw new RangeError("atob: this is not base64");
    let [out, bits, held] = ["", 0, 0];
    for (const ch of text) {
      bits = ((bits << 6) | ALPHABET.indexOf(ch)) & 0xffffff;
      held += 6;
      if (held >= 8) {
        held -= 8;
        out += String.fromCharCode((bits >> held) & 255);
      }
    }
    return out;
  };

  const structuredClone = (root: unknown): unknown => {
    const seen = new Map<unknown, unknown>();
    const keep = <T>(value: unknown, copy: T): T => {
      seen.set(value, copy);
      return copy;
    };
    const clone = (value: unknown): unknown => {
      if (typeof value === "function" || typeof value === "symbol")
        throw new TypeError(`structuredClone cannot copy a ${typeof value}`);
      if (typeof value !== "object" || value === null) return value;
      if (seen.has(value)) return seen.get(value);
      if (Array.isArray(value)) {
        const copy: unknown[] = keep(value, []);
        copy.length = value.length;
        for (const key of Object.keys(value)) copy[Number(key)] = clone(value[Number(key)]);
        return copy;
      }
      if (value instanceof Date) return keep(value, new Date(value.getTime()));
      if (value instanceof RegExp) return keep(value, new RegExp(value.source, value.flags));
      if (value instanceof Map) {
        const copy = keep(value, new Map());
        for (const [k, v] of value) copy.set(clone(k), clone(v));
        return copy;
      }
      if (value instanceof Set) {
        const copy = keep(value, new Set());
        for (const v of value) copy.add(clone(v));
        return copy;
      }
      if (value instanceof ArrayBuffer) return keep(value, value.slice(0));
      if (ArrayBuffer.isView(value)) {
        const buffer = clone(value.buffer) as ArrayBuffer;
        const Kind = value.constructor as new (b: ArrayBuffer, o: number, n: number) => unknown;
        const length = value instanceof DataView ? value.byteLength : (value as Uint8Array).length;
        return keep(value, new Kind(buffer, value.byteOffset, length));
      }
      if (value instanceof Error) {
        const kinds: Record<string, ErrorConstructor> = {
          EvalError,
          RangeError,
          ReferenceError,
          SyntaxError,
          TypeError,
          URIError,
        };
        return keep(value, new (kinds[value.name] ?? Error)(value.message));
      }
      const copy: Record<string, unknown> = keep(value, {});
      for (const key of Object.keys(value))
        Object.defineProperty(copy, key, {
          value: clone((value as Record<string, unknown>)[key]),
          writable: true,
          enumerable: true,
          configurable: true,
        });
      return copy;
    };
    return clone(root);
  };
  return { URL, URLSearchParams, TextEncoder, TextDecoder, atob, btoa, structuredClone };
}
