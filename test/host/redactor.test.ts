import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { redactedWorld } from "../../host/system/redacted-world.ts";
import { Redactor } from "../../host/system/redactor.ts";
import type { World } from "../../host/ports/connector.ts";

const SECRET = 'k3y/"ä <pass>&wörd+1? %';

function hiding(...secrets: string[]): Redactor {
  const redactor = new Redactor();
  for (const secret of secrets) redactor.register(secret);
  return redactor;
}

const bytewise = (write: (byte: number) => string) => (text: string) =>
  [...Buffer.from(text)].map(write).join("");
const unitwise = (write: (code: number) => string) => (text: string) =>
  Array.from({ length: text.length }, (_, at) => write(text.charCodeAt(at))).join("");
const hex = (code: number, length: number) => code.toString(16).padStart(length, "0");

/** Ways in which an upstream writes down what it was sent. */
const ENCODINGS: Record<string, (text: string) => string> = {
  plain: (text) => text,
  JSON: (text) => JSON.stringify(text).slice(1, -1),
  "JSON with escaped slashes": (text) => JSON.stringify(text).slice(1, -1).replaceAll("/", "\\/"),
  "JSON in ASCII": (text) =>
    JSON.stringify(text)
      .slice(1, -1)
      .replace(/[^\x20-\x7e]/g, (one) => `\\u${hex(one.charCodeAt(0), 4)}`),
  "JSON, every character": unitwise((code) => `\\u${hex(code, 4)}`),
  URL: encodeURIComponent,
  "URL in lower case": (text) => encodeURIComponent(text).replace(/%../g, (one) => one.toLowerCase()),
  "a form": (text) => new URLSearchParams({ "": text }).toString().slice(1),
  "URL, every byte": bytewise((byte) => `%${hex(byte, 2).toUpperCase()}`),
  "URL, twice": (text) => encodeURIComponent(encodeURIComponent(text)),
  HTML: (text) =>
    text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;"),
  "HTML, numbers": unitwise((code) => `&#${code};`),
  hex: (text) => Buffer.from(text).toString("hex"),
  "hex in upper case": (text) => Buffer.from(text).toString("hex").toUpperCase(),
  base64: (text) => Buffer.from(text).toString("base64"),
  "base64 after one byte": (text) => Buffer.from(`a${text}yz`).toString("base64"),
  "base64 after two bytes": (text) => Buffer.from(`ab${text}z`).toString("base64"),
  base64url: (text) => Buffer.from(text).toString("base64url"),
  "base64url after one byte": (text) => Buffer.from(`a${text}y`).toString("base64url"),
  "base64url after two bytes": (text) => Buffer.from(`ab${text}`).toString("base64url"),
  "base64 in lines": (text) =>
    Buffer.from(text)
      .toString("base64")
      .replace(/.{8}/g, (line) => `${line}\r\n`),
  "base64 in a URL": (text) => encodeURIComponent(Buffer.from(text).toString("base64")),
};

/** The longest piece of `form` that is still there; base64 shares its outermost characters with its neighbours. */
function leftOf(form: string, cleaned: string): number {
  for (let length = form.length; length > 0; length--)
    for (let at = 0; at + length <= form.length; at++)
      if (cleaned.includes(form.slice(at, at + length))) return length;
  return 0;
}

describe("(V1) a value is found", () => {
  test.each(Object.keys(ENCODINGS))("as %s", (name) => {
    const form = (ENCODINGS[name] as (text: string) => string)(SECRET);
    const cleaned = hiding(SECRET).clean(`<< ${form} >>`);
    expect(cleaned).toContain("[redacted]");
    expect(leftOf(form, cleaned)).toBeLessThanOrEqual(name.includes("base64") ? 8 : 1);
  });

  test("whatever it is made of, and whatever stands around it", () => {
    const secret = fc.string({ unit: "grapheme", minLength: 8, maxLength: 60 });
    const way = fc.constantFrom(...Object.keys(ENCODINGS));
    fc.assert(
      fc.property(secret, way, fc.string(), fc.string(), (value, name, before, after) => {
        const form = (ENCODINGS[name] as (text: string) => string)(value);
        const cleaned = hiding(value).clean(`${before} ${form} ${after}`);
        expect(cleaned).toContain("[redacted]");
        expect(cleaned.includes(form) && !`${before}${after}`.includes(form)).toBe(false);
      }),
      { numRuns: 2_000 },
    );
  });

  test("as the password of an address, a line of a key, without the blanks at its end", () => {
    const key = `-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQC7\n-----END KEY-----\n`;
    const redactor = hiding("smtp://joe:p%40ssw0rd@mail.example", key, "token-with-end\n");
    expect(redactor.clean("535 joe p@ssw0rd refused")).toBe("535 joe [redacted] refused");
    expect(redactor.clean("near MIIEvQIBADANBgkqhkiG9w0BAQEFAASC")).toBe("near [redacted]");
    expect(redactor.clean("Bearer token-with-end;")).toBe("Bearer [redacted];");
  });
});

describe("(V2) where finds overlap, all of them are hidden", () => {
  test.each([
    [["abcdef", "defghi"], "abcdefghi"],
    [["abcdef", "abcdefgh", "abcd"], "abcdefgh"],
    [["cdef", "abcdefgh"], "abcdefgh"],
    [["abcdef", "ghij"], "abcdefghij"],
  ])("%j in %s", (secrets, text) => {
    expect(hiding(...secrets).clean(`-${text}-`)).toBe("-[redacted]-");
  });

  test("a shorter one is found where a longer one only begins", () => {
    expect(hiding("abcd", "abcdaaa", "abcdaab", "abcz").clean("abcdaac abcz")).toBe(
      "[redacted]aac [redacted]",
    );
  });
});

describe("(V3)", () => {
  test("text without a find stays as it is, byte for byte", () => {
    const redactor = hiding(SECRET);
    fc.assert(
      fc.property(fc.json(), fc.string({ unit: "binary" }), (json, text) => {
        expect(redactor.cleanJson(json)).toBe(json);
        expect(redactor.clean(text)).toBe(text);
      }),
    );
  });

  test("JSON stays JSON, with the secret in keys, values, numbers and JSON within JSON", () => {
    const redactor = hiding(SECRET, "1234567");
    const echo = { [SECRET]: [SECRET, { n: 1_234_567 }], text: JSON.stringify({ t: SECRET }), ok: true };
    expect(JSON.parse(redactor.cleanJson(JSON.stringify(echo)))).toEqual({
      "[redacted]": ["[redacted]", { n: "[redacted]" }],
      text: '{"t":"[redacted]"}',
      ok: true,
    });
  });
});

test("(V4) what is left of a value that was cut off is hidden, from half of it on", () => {
  const token = "tok_0123456789abcdefghijklmnopqrstuvwxyz";
  const redactor = hiding(token);
  expect(redactor.clean(`cut ${token.slice(0, 20)}… off`)).toBe("cut [redacted]… off");
  expect(redactor.clean(`cut ${token.slice(0, 15)}… off`)).toBe(`cut ${token.slice(0, 15)}… off`);
});

test("(V5) values below four characters hide nothing", () => {
  expect(hiding("", "a", "abc").clean("abc a")).toBe("abc a");
});

test("of a slot the newest sixteen values are hidden, also when two slots hold the same", () => {
  const redactor = new Redactor();
  redactor.registerAll({ token: "token-number-0" }, "other");
  for (let n = 0; n < 20; n++) redactor.registerAll({ deep: [`token-number-${n}`] }, "mine");
  expect(redactor.clean("token-number-3,")).toBe("token-number-3,");
  expect(redactor.clean("token-number-4, token-number-19,")).toBe("[redacted], [redacted],");
  expect(redactor.clean("token-number-0,")).toBe("[redacted],");
});

test("(L1) thousands of secrets that begin alike are found in megabytes that begin alike", () => {
  const secrets = Array.from({ length: 3_000 }, (_, n) => `sk-live-0123456789abcdef-${n}-${n * n}!`);
  const redactor = hiding(...secrets);
  const text = `${"sk-live-0123456789abcdef-".repeat(40_000)}${secrets[1_234]}`;
  const startedMs = performance.now();
  expect(redactor.clean(text).endsWith("[redacted]")).toBe(true);
  expect(performance.now() - startedMs).toBeLessThan(20_000);
});

describe("(W1) no word of a world comes in unclean", () => {
  const echo = { says: SECRET, encoded: encodeURIComponent(SECRET) };
  const json = JSON.stringify(echo);
  const failure = { class: "auth", code: `bad-${SECRET}`, message: `not ${SECRET}` } as const;
  const call = { workflow: 1, alias: "a", tool: "t", args: "{}" };
  const recorded = { ...call, idempotencyKey: "k", connection: "a", configVersion: 1 };
  const world = (over: Partial<World>): World =>
    redactedWorld(
      {
        tool: async () => failure,
        describe: async () => `send ${SECRET}`,
        fingerprint: async () => "hash",
        before: async () => json,
        read: async () => ({ ok: true, value: json }),
        send: async () => ({ outcome: "applied", result: json, raw: json }),
        check: async () => ({ says: "applied", result: json }),
        ...over,
      },
      hiding(SECRET),
    );
  const asks: Record<string, [Partial<World>, (world: World) => Promise<unknown>]> = {
    tool: [{}, (one) => one.tool(call)],
    describe: [{}, (one) => one.describe(call)],
    before: [{}, async (one) => one.before?.(call)],
    read: [{}, (one) => one.read(call)],
    "a read that fails": [{ read: async () => ({ ok: false, ...failure }) }, (one) => one.read(call)],
    send: [{}, (one) => one.send(recorded)],
    "a send that fails": [
      { send: async () => ({ outcome: "failed", raw: json, ...failure }) },
      (one) => one.send(recorded),
    ],
    "an outcome that is unknown": [
      { send: async () => ({ outcome: "unknown", raw: json, ...failure }) },
      (one) => one.send(recorded),
    ],
    check: [{}, (one) => one.check(recorded)],
    "a world that rejects": [
      { read: async () => Promise.reject(new Error(SECRET)) },
      (one) => one.read(call).catch((error: unknown) => String(error)),
    ],
  };

  test.each(Object.keys(asks))("%s", async (name) => {
    const [over, ask] = asks[name] as (typeof asks)[string];
    const said = JSON.stringify(await ask(world(over)));
    expect(said).toContain("[redacted]");
    expect(said).not.toMatch(/k3y|pass|rd\+1/);
  });

  test("(W2) what an answer means stays", async () => {
    const clean = world({ send: async () => ({ outcome: "unknown", raw: json, ...failure }) });
    expect(await clean.send(recorded)).toMatchObject({ outcome: "unknown", class: "auth" });
    expect(await clean.fingerprint(recorded)).toBe("hash");
    expect("before" in redactedWorld({} as World, hiding())).toBe(false);
  });
});
