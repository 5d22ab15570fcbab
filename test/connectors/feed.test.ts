// What the connector `feed` makes of feeds as they are found, and of a server on this machine.
import { createServer, type IncomingHttpHeaders, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { gzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import type { OpenConnection } from "../../host/connectors/define.ts";
import { feed } from "../../host/connectors/feed.ts";
import { NoFeed, parseFeed } from "../../host/connectors/feed-parse.ts";
import { charsetDecoded, dateOf, textOfHtml } from "../../host/connectors/feed-text.ts";
import { invokeRead } from "../../host/connectors/invoke.ts";
import type { ReadAnswer } from "../../host/ports/connector.ts";
import { ATOM, JSON_FEED, RDF, rss, RSS091, RSS2 } from "../support/feeds.ts";

const URL_ = "https://site.example/feed";
const parsed = (text: string, most = 1_000) => parseFeed(text, URL_, most);

function problemOf(text: string): string | undefined {
  try {
    parsed(text);
    return undefined;
  } catch (error) {
    return (error as Error).name;
  }
}

async function site(answer: RequestListener) {
  const seen: IncomingHttpHeaders[] = [];
  const server = createServer((request, response) => {
    seen.push(request.headers);
    answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    seen,
    url: `http://127.0.0.1:${port}`,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function opened(url: string, config: object = {}, secrets: object = {}): OpenConnection {
  return {
    namespace: "default",
    name: "news",
    config: feed.config.parse({ url, allowPrivateNetwork: true, ...config }),
    secrets: feed.secrets.parse(secrets),
    configVersion: 1,
    hide: () => {},
    replaceSecrets: async () => {},
  };
}

function fetch(connection: OpenConnection, args: object = {}): Promise<ReadAnswer> {
  const tool = feed.tools["fetch"];
  if (tool?.kind !== "read") throw new Error("no fetch");
  const context = { signal: AbortSignal.timeout(20_000) };
  return invokeRead(tool, { connection, args: JSON.stringify(args), label: "news.fetch", context });
}

interface Result {
  title: string;
  items: { id: string; title: string }[];
  etag?: string;
  notModified?: boolean;
}
const valueOf = (answer: ReadAnswer): Result => {
  expect(answer).toMatchObject({ ok: true });
  return JSON.parse((answer as { value: string }).value) as Result;
};

describe("every form of feed (G2, G4)", () => {
  test("RSS 2.0", () => {
    expect(parsed(RSS2)).toEqual({
      title: "Harbour & Sea",
      items: [
        {
          id: "harbour-2",
          title: "Ferry & cargo",
          link: "https://harbour.example/news/2?a=1&b=2",
          summary: "Two ships & a boat.",
          author: "Ann Bee",
          publishedAt: "2025-06-10T07:05:00.000Z",
        },
        {
          id: "https://harbour.example/news/1",
          title: "Open day",
          link: "https://harbour.example/news/1",
          summary: "All day long",
          publishedAt: "2025-06-10T03:00:00.000Z",
        },
      ],
    });
  });

  test("RSS 0.91, with its document type", () => {
    const items = [{ id: "http://old.example/1.html", title: "First", link: "http://old.example/1.html" }];
    expect(parsed(RSS091)).toEqual({ title: "Old paper", items });
  });

  test("RSS 1.0", () => {
    const item = { id: "http://rdf.example/a", title: "A", link: "http://rdf.example/a", author: "Cy" };
    const items = [{ ...item, publishedAt: "2024-02-29T12:00:00.000Z" }];
    expect(parsed(RDF)).toEqual({ title: "RDF site", items });
  });

  test("Atom", () => {
    expect(parsed(ATOM)).toEqual({
      title: "News & more",
      items: [
        {
          id: "tag:atom.example,2025:1",
          title: "A bold claim",
          link: "https://atom.example/blog/1.html",
          summary: "1 < 2",
          author: "Dee, Ed",
          publishedAt: "2025-02-28T23:00:00.000Z",
        },
        {
          id: "tag:atom.example,2025:2",
          title: "Second",
          link: "https://other.example/2",
          summary: "x",
          publishedAt: "2025-02-01T00:00:00.000Z",
        },
      ],
    });
  });

  test("JSON Feed", () => {
    expect(parsed(JSON_FEED)).toEqual({
      title: "JSON site",
      items: [
        {
          id: "7",
          title: "Seven",
          link: "https://site.example/seven",
          summary: "7 > 6",
          author: "Flo",
          publishedAt: "2025-05-05T05:05:05.000Z",
        },
        { id: "8", title: "", summary: "no title here", author: "Gus" },
      ],
    });
  });
});

describe("odd feeds", () => {
  test("an item without a guid is known by its link, without a link by what it says (G3)", () => {
    const twice = [1, 2].map(() =>
      parsed(rss("<item><link>/a</link></item><item><title>only this</title></item>")),
    );
    expect(twice[0]?.items[0]?.id).toBe("https://site.example/a");
    expect(twice[0]?.items[1]?.id).toMatch(/^[0-9a-f]{24}$/);
    expect(twice[1]).toEqual(twice[0]);
  });

  test("different items under one id are kept apart, the same item again is one (G3)", () => {
    const of = (title: string) => `<item><guid>same</guid><title>${title}</title></item>`;
    const { items } = parsed(rss(of("a") + of("b") + of("a")));
    expect(items.map(({ title }) => title)).toEqual(["a", "b"]);
    expect(new Set(items.map(({ id }) => id)).size).toBe(2);
    // In whatever order the next fetch brings them.
    const later = parsed(rss(of("c") + of("b") + of("a"))).items;
    expect(later.slice(1).map(({ id }) => id)).toEqual([items[1]?.id, items[0]?.id]);
  });

  test("an empty item is dropped, and an item without a date has none (G2)", () => {
    expect(
      parsed(rss("<item/><item><pubDate>now</pubDate></item><item><guid>1</guid></item>")).items,
    ).toEqual([{ id: "1", title: "" }]);
  });

  test.each([
    "javascript:alert(1)",
    "data:text/html,x",
    "file:///etc/passwd",
    "mailto:a@b.example",
    "http://",
    "",
  ])("%j is no link (G4)", (link) => {
    const { items } = parsed(rss(`<item><guid isPermaLink="false">1</guid><link>${link}</link></item>`));
    expect(items).toEqual([{ id: "1", title: "" }]);
  });

  test("markup that nobody escaped or closed is read as text (G4)", () => {
    const { items } = parsed(
      rss("<item><title>A <b>big</b> day<br></title><description>x<p>y<img src=z></description></item>"),
    );
    expect(items[0]).toMatchObject({ title: "A big day", summary: "x y" });
  });

  test("control characters, line breaks and turned text do not come through (G4)", () => {
    const { items } = parsed(rss("<item><title>a\u0007b\n\tc\u202ed &#8238;e&#0;</title></item>"));
    expect(items[0]?.title).toBe("a b c d e&#0;");
  });

  test("names of the language's own objects are only names, or no feed", () => {
    const odd = "<item><guid>1</guid><toString>x</toString><hasOwnProperty>y</hasOwnProperty></item>";
    expect(parsed(rss(odd)).items).toEqual([{ id: "1", title: "" }]);
    const worse = "<item><guid>1</guid><__proto__><polluted>1</polluted></__proto__></item>";
    expect(() => parsed(rss(worse))).toThrow(NoFeed);
    expect(({} as Record<string, unknown>)["polluted"]).toBeUndefined();
  });

  test("too long texts are cut, and a too long id stays unique (G3)", () => {
    const of = (end: string) =>
      `<item><guid>${"x".repeat(3_000)}${end}</guid><title>${"t".repeat(3_000)}</title></item>`;
    const { items } = parsed(rss(of("1") + of("2")));
    expect(items.map(({ id, title }) => [id.length <= 1_000, title.length])).toEqual([
      [true, 500],
      [true, 500],
    ]);
    expect(items[0]?.id).not.toBe(items[1]?.id);
  });

  test.each<[string, string | undefined]>([
    ["Tue, 10 Jun 2025 09:05:00 GMT", "2025-06-10T09:05:00.000Z"],
    ["10 Jun 2025 09:05:00 PDT", "2025-06-10T16:05:00.000Z"],
    ["Tues, 10 June 2025 9:05", "2025-06-10T09:05:00.000Z"],
    ["Tue, 10 Jun 2025 09:05:00 +02:00", "2025-06-10T07:05:00.000Z"],
    ["Tue, 10 Jun 2025 09:05:00 GMT+0200 (CEST)", "2025-06-10T07:05:00.000Z"],
    ["June 10, 2025 09:05:00", "2025-06-10T09:05:00.000Z"],
    ["2025-06-10T09:05:00.123-07:00", "2025-06-10T16:05:00.000Z"],
    ["2025-06-10 09:05", "2025-06-10T09:05:00.000Z"],
    ["20250610", "2025-06-10T00:00:00.000Z"],
    ["2025-06", "2025-06-01T00:00:00.000Z"],
    ["2025", "2025-01-01T00:00:00.000Z"],
    ["2025-02-30", undefined],
    ["2025-06-10T25:00:00Z", undefined],
    ["Tue, 10 Jun 2025 09:05:00 XYZ", undefined],
    ["Tue, 10 Foo 2025 09:05:00 GMT", undefined],
    ["yesterday", undefined],
    ["0000-00-00", undefined],
    ["", undefined],
  ])("the date %j", (text, date) => {
    expect(dateOf(text)).toBe(date);
  });

  test.each<[string, string]>([
    ["caf&eacute; &#8211; &#x20AC; &hellip; &unknown; &amp;lt;", "café – € … &unknown; &lt;"],
    ["a<!-- hidden -->b<style>p{}</style>c", "a b c"],
    ["1 < 2 and 3 > 2", "1 < 2 and 3 > 2"],
    ["<script>never closed", " "],
  ])("the markup %j", (html, text) => {
    expect(textOfHtml(html)).toBe(text);
  });

  test.each<[string, Uint8Array, string]>([
    ["its declaration", Buffer.from('<?xml version="1.0" encoding="ISO-8859-1"?><a>é</a>', "latin1"), ""],
    ["its header", Buffer.from("<a>é</a>", "latin1"), "text/xml; charset=windows-1252"],
    ["its mark", Buffer.from("\ufeff<a>é</a>", "utf16le"), "text/xml; charset=utf-8"],
    ["nothing", Buffer.from("<a>é</a>"), ""],
    ["a name that nobody knows", Buffer.from("<a>é</a>"), "text/xml; charset=klingon"],
  ])("the charset by %s", (_, bytes, type) => {
    expect(charsetDecoded(bytes, type)).toContain("<a>é</a>");
  });
});

describe("what is no feed (G1)", () => {
  const lol = Array.from({ length: 9 }, (_, n) => `<!ENTITY l${n + 1} "${`&l${n};`.repeat(10)}">`).join("");
  test.each<[string, string]>([
    ["a page", "<!doctype html><html><body>Back soon</body></html>"],
    ["nothing", ""],
    ["words", "Back soon"],
    ["broken JSON", '{"items": ['],
    ["JSON of another kind", '{"error": "no"}'],
    [
      "a billion laughs",
      `<!DOCTYPE rss [<!ENTITY l0 "lol">${lol}]>${rss("<item><title>&l9;</title></item>")}`,
    ],
    [
      "an entity from a file",
      `<!DOCTYPE rss [<!ENTITY x SYSTEM "file:///etc/passwd">]>${rss("<item><title>&x;</title></item>")}`,
    ],
    ["nesting without end", rss(`<item>${"<a>".repeat(10_000)}${"</a>".repeat(10_000)}</item>`)],
    ["an element that is never closed", "<rss><channel><item><title>"],
    ["a comment that is never closed", `<rss>${"<!--".repeat(10_000)}`],
  ])("%s", (_, text) => {
    expect(() => parsed(text)).toThrow(NoFeed);
  });

  // What takes a second here would take the host away from everybody else; a quarter of it is the most that is seen.
  test.each<[string, string]>([
    [
      "many attributes",
      `<rss><channel ${Array.from({ length: 60_000 }, (_, n) => `a${n}="1"`).join(" ")}></channel></rss>`,
    ],
    ["a long attribute", `<rss><channel a="${"x".repeat(1_000_000)}"></channel></rss>`],
    ["many open tags", `<rss><channel>${"<item>".repeat(100_000)}`],
    ["many small items", rss("<item/>".repeat(100_000))],
    ["many lesser-than signs", rss(`<item><title>${"&lt;".repeat(200_000)}</title></item>`)],
    ["many comments in markup", rss(`<item><title><![CDATA[${"<!--".repeat(200_000)}]]></title></item>`)],
    ["many scripts in markup", rss(`<item><title><![CDATA[${"<script>".repeat(100_000)}]]></title></item>`)],
    ["many CDATA sections", rss(`<item><title>${"<![CDATA[x]]>".repeat(60_000)}</title></item>`)],
    ["half CDATA sections", rss(`<item><title>${"<![CDATA[".repeat(60_000)}</title></item>`)],
    [
      "many blanks in a date",
      rss(`<item><guid>1</guid><pubDate>Tue,${" ".repeat(100_000)}x</pubDate></item>`),
    ],
    ["many brackets", rss(`<item><guid>1</guid><pubDate>${"(".repeat(200_000)}</pubDate></item>`)],
    ["many titles of one name", rss(`<item><title>${"<title>".repeat(60_000)}</title></item>`)],
  ])("does not hold up the host: %s", (_, text) => {
    const startedMs = performance.now();
    expect(problemOf(text)).toBeOneOf([undefined, "NoFeed"]);
    expect(performance.now() - startedMs).toBeLessThan(5_000);
  });
});

describe("fetching", () => {
  test("what has not changed is not read again, by ETag and by date (F1)", async () => {
    await using server = await site((request, response) => {
      const known = request.headers["if-none-match"] === '"v1"';
      response.writeHead(known ? 304 : 200, {
        etag: '"v1"',
        "last-modified": "Tue, 10 Jun 2025 09:05:00 GMT",
      });
      response.end(known ? "" : RSS2);
    });
    const connection = opened(`${server.url}/feed`);
    const first = valueOf(await fetch(connection));
    expect(first.items).toHaveLength(2);
    const second = valueOf(await fetch(connection, { etag: first.etag }));
    expect(second).toEqual({ title: "Harbour & Sea", items: [], etag: first.etag, notModified: true });
    expect(server.seen[1]).toMatchObject({ "if-modified-since": "Tue, 10 Jun 2025 09:05:00 GMT" });
  });

  test("a server that knows neither: the same items are notModified, others are not (F1)", async () => {
    let text = RSS2;
    await using server = await site((_, response) => void response.end(text));
    const connection = opened(server.url);
    const { etag } = valueOf(await fetch(connection));
    text = RSS2.replace("<channel>", "<channel><lastBuildDate>today</lastBuildDate>");
    expect(valueOf(await fetch(connection, { etag }))).toMatchObject({ items: [], notModified: true });
    text = RSS2.replace("Open day", "Open night");
    expect(valueOf(await fetch(connection, { etag })).items).toHaveLength(2);
  });

  test.each(["", '"v1"', "pawl1.", "pawl1.e30", "pawl1.%%%", "x".repeat(8_000)])(
    "an etag that is not ours (%j) or another feed's reads in full (F1)",
    async (etag) => {
      await using server = await site(
        (_, response) => void response.writeHead(200, { etag: '"v1"' }).end(RSS2),
      );
      const connection = opened(server.url);
      expect(valueOf(await fetch(connection, { etag })).items).toHaveLength(2);
      const other = valueOf(await fetch(connection, { url: "/other" })).etag;
      expect(valueOf(await fetch(connection, { etag: other })).items).toHaveLength(2);
      expect(server.seen.some((headers) => "if-none-match" in headers)).toBe(false);
    },
  );

  test("a validator cannot smuggle a header (F1)", async () => {
    await using server = await site((_, response) => void response.end(RSS2));
    const connection = opened(server.url);
    const { etag = "" } = valueOf(await fetch(connection));
    const held = JSON.parse(Buffer.from(etag.slice(6), "base64url").toString()) as object;
    const forged = Buffer.from(JSON.stringify({ ...held, etag: "x\r\nx-evil: 1" })).toString("base64url");
    expect(valueOf(await fetch(connection, { etag: `pawl1.${forged}` })).items).toHaveLength(2);
    expect(server.seen[1]).not.toHaveProperty("x-evil");
  });

  test.each<[number, object, object]>([
    [401, {}, { class: "auth" }],
    [403, {}, { class: "permission" }],
    [404, {}, { class: "logic" }],
    [410, {}, { class: "logic" }],
    [408, {}, { class: "transient" }],
    [412, {}, { class: "precondition" }],
    [429, { "retry-after": "120" }, { class: "transient", code: "rate-limited", retryAfterMs: 120_000 }],
    [429, { "retry-after": "-5" }, { class: "transient", code: "rate-limited" }],
    [429, { "retry-after": "9".repeat(400) }, { class: "transient", code: "rate-limited" }],
    [500, {}, { class: "transient" }],
    [503, {}, { class: "transient" }],
    [304, {}, { class: "transient" }],
    [302, {}, { class: "logic" }],
    [200, { "content-encoding": "gzip" }, { class: "transient" }],
    [200, { "content-encoding": "nonsense" }, { class: "transient" }],
    [200, {}, { class: "transient" }],
  ])("%i with %j is %j", async (status, headers, expected) => {
    await using server = await site(
      (_, response) => void response.writeHead(status, headers as Record<string, string>).end("no feed"),
    );
    expect(await fetch(opened(server.url))).toMatchObject({ ok: false, ...expected });
  });

  test("a compressed feed is read, and one that is larger than allowed is not", async () => {
    await using server = await site((request, response) => {
      const text = request.url === "/bomb" ? " ".repeat(50_000_000) : RSS2;
      response.writeHead(200, { "content-encoding": "gzip" }).end(gzipSync(text));
    });
    const connection = opened(server.url);
    expect(valueOf(await fetch(connection)).items).toHaveLength(2);
    const bomb = await fetch(connection, { url: "/bomb" });
    expect(bomb).toMatchObject({ ok: false, class: "logic", code: "answer-too-large" });
  });

  test("many and large items end where a script's answer does (F3)", async () => {
    const items = Array.from(
      { length: 1_000 },
      (_, n) => `<item><guid>${n}</guid><description>${"é".repeat(2_000)}</description></item>`,
    );
    await using server = await site((_, response) => void response.end(rss(items.join(""))));
    const limits = { items: 1_000, bodyBytes: 8_388_608 };
    const answer = await fetch(opened(server.url, { limits }));
    const kept = valueOf(answer).items;
    expect(kept.length).toBeGreaterThan(100);
    expect(kept[0]?.id).toBe("0");
    expect(Buffer.byteLength((answer as { value: string }).value)).toBeLessThan(1_000_000);
    expect(valueOf(await fetch(opened(server.url, { limits: { ...limits, items: 3 } }))).items).toHaveLength(
      3,
    );
  });

  test("credentials go to the connection's own origin, and not to another (F2)", async () => {
    await using other = await site((_, response) => void response.end(RSS2));
    await using server = await site((request, response) => {
      if (request.url === "/") response.end(RSS2);
      else response.writeHead(302, { location: other.url }).end();
    });
    const config = { hosts: [new URL(other.url).host], headers: { "x-key": "k" } };
    const connection = opened(server.url, config, { user: "u", password: "p" });
    for (const args of [{}, { url: "/moved" }, { url: other.url }]) valueOf(await fetch(connection, args));
    const authorization = "Basic dTpw";
    for (const headers of server.seen) expect(headers).toMatchObject({ authorization, "x-key": "k" });
    expect(other.seen).toHaveLength(2);
    for (const headers of other.seen) {
      expect(headers).not.toHaveProperty("authorization");
      expect(headers).not.toHaveProperty("x-key");
    }
  });

  test.each([
    ["another host", "http://other.example/feed"],
    ["another port", "http://127.0.0.1:1/feed"],
    ["another scheme", "file:///etc/passwd"],
    ["a user in the URL", "http://u:p@127.0.0.1/feed"],
  ])("%s is refused (F2)", async (_, url) => {
    const answer = await fetch(opened("http://127.0.0.1:9/feed"), { url });
    expect(answer).toMatchObject({ ok: false, class: "permission", code: "egress-refused" });
  });

  test("the check of a connection says what is wrong", async () => {
    let status = 200;
    await using server = await site((_, response) => void response.writeHead(status).end(RSS2));
    const check = () =>
      feed.check?.(opened(server.url) as Parameters<NonNullable<typeof feed.check>>[0], {
        signal: AbortSignal.timeout(20_000),
      });
    expect(await check()).toEqual({ status: "ok" });
    status = 401;
    expect(await check()).toMatchObject({ status: "auth" });
    status = 500;
    expect(await check()).toMatchObject({ status: "unreachable" });
  });
});
