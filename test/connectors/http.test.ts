// The `http` connector against a server on this machine: every row of the answer table, paths, headers, bodies, recipes.
import { gzipSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { http } from "../../host/connectors/http.ts";
import type { SendAnswer } from "../../host/ports/connector.ts";
import { checks, foretold, opened, reads, sends, Stand, type Told } from "../support/http-stand.ts";

let stand: Stand;
beforeEach(async () => {
  stand = await Stand.open();
});
afterEach(() => stand[Symbol.asyncDispose]());

const shop = (config: object = {}, secrets: object = {}) =>
  opened({ baseUrl: stand.url, ...config }, secrets);
const tell = (told: Told) => (stand.answers = () => told);
const json = (value: unknown, status = 200): Told => ({
  status,
  headers: { "content-type": "application/json" },
  body: JSON.stringify(value),
});
/** "ok", or class and code. */
const word = (answer: { ok?: boolean; outcome?: string; class?: string; code?: string }): string =>
  answer.ok === true
    ? "ok"
    : [answer.outcome, answer.class, answer.code].filter((one) => one !== undefined).join(" ");

const LOGIC = "logic tool-input-invalid";
const BUSY = "transient tool-unavailable";
const UNKNOWN = "unknown transient outcome-unknown";
const table: [status: number, read: string, change: string][] = [
  [200, "ok", "applied"],
  [201, "ok", "applied"],
  [204, "ok", "applied"],
  [300, LOGIC, UNKNOWN],
  [301, LOGIC, UNKNOWN],
  [302, LOGIC, UNKNOWN],
  [303, LOGIC, UNKNOWN],
  [304, LOGIC, UNKNOWN],
  [307, LOGIC, `failed ${LOGIC}`],
  [308, LOGIC, `failed ${LOGIC}`],
  [400, LOGIC, `failed ${LOGIC}`],
  [401, "auth tool-auth", "failed auth tool-auth"],
  [403, "permission tool-permission", "failed permission tool-permission"],
  [404, LOGIC, `failed ${LOGIC}`],
  [408, BUSY, UNKNOWN],
  [409, LOGIC, `failed ${LOGIC}`],
  [412, "precondition tool-precondition", "failed precondition tool-precondition"],
  [422, LOGIC, `failed ${LOGIC}`],
  [423, "precondition tool-precondition", "failed precondition tool-precondition"],
  [425, BUSY, UNKNOWN],
  [428, "precondition tool-precondition", "failed precondition tool-precondition"],
  [429, "transient rate-limited", "failed transient rate-limited"],
  [500, BUSY, UNKNOWN],
  [502, BUSY, UNKNOWN],
  [503, BUSY, UNKNOWN],
  [504, BUSY, UNKNOWN],
  [599, BUSY, UNKNOWN],
  [799, BUSY, UNKNOWN],
];

describe("the answer table (A1, A2)", () => {
  test.each(table)("%i: a read is %s, a change %s", async (status, read, change) => {
    tell({ status, headers: { "content-type": "application/json" }, body: status === 204 ? "" : "{}" });
    const connection = shop({ readOnly: ["/x"] });
    for (const tool of ["get", "head", "query"])
      expect(word(await reads(connection, tool, { path: "/x" }))).toBe(read);
    for (const tool of ["post", "put", "patch", "delete"])
      expect(word(await sends(connection, tool, { path: "/x" }))).toBe(change);
    expect(stand.seen).toHaveLength(7);
  });

  test.each([404, 409, 429, 500])("a status that the call accepts, %i, is an answer", async (status) => {
    tell(json({ why: "so" }, status));
    const args = { path: "/x", accept: [status] };
    const answer = await reads(shop(), "get", args);
    expect(answer.ok && JSON.parse(answer.value)).toMatchObject({ status, body: { why: "so" } });
    const sent = await sends(shop(), "post", args);
    expect(sent.outcome === "applied" && JSON.parse(sent.result)).toMatchObject({
      status,
      body: { why: "so" },
    });
  });

  test.each([
    [true, "7", "failed transient rate-limited"],
    [true, "when the moon is full", UNKNOWN],
    [true, undefined, UNKNOWN],
    [false, "7", UNKNOWN],
  ])("503 with retryAfterIsProof %s and Retry-After %s is %s", async (retryAfterIsProof, wish, expected) => {
    tell({ status: 503, headers: wish === undefined ? {} : { "retry-after": wish } });
    expect(word(await sends(shop({ retryAfterIsProof }), "post", { path: "/x" }))).toBe(expected);
  });

  test.each([
    ["7", 7_000],
    ["0", 0],
    ["100000", 86_400_000],
    ["-5", undefined],
    ["1.5", undefined],
    ["9".repeat(400), undefined],
    ["when the moon is full", undefined],
    ["Wed, 21 Oct 2015 07:28:00 GMT", 0],
    ["Wed, 99 Oct 2015 07:28:00 GMT", undefined],
    ["Fri, 31 Dec 2100 23:59:59 GMT", 86_400_000],
  ])("Retry-After %s is a wish of %s ms (A3)", async (wish, expected) => {
    tell({ status: 429, headers: { "retry-after": wish } });
    expect(await sends(shop(), "post", { path: "/x" })).toMatchObject({
      outcome: "failed",
      class: "transient",
    });
    const answer = (await reads(shop(), "get", { path: "/x" })) as { retryAfterMs?: number };
    expect(answer.retryAfterMs).toBe(expected);
  });

  test("nobody there: nothing was sent", async () => {
    const connection = shop();
    await stand[Symbol.asyncDispose]();
    expect(word(await reads(connection, "get", { path: "/x" }))).toBe(BUSY);
    expect(word(await sends(connection, "post", { path: "/x" }))).toBe(`failed ${BUSY}`);
    stand = await Stand.open();
  });

  test("no such name, and no TLS: nothing was sent", async () => {
    const lost = opened({ baseUrl: "https://pawl-test.invalid" });
    expect(word(await sends(lost, "post", { path: "/x" }))).toBe(`failed ${BUSY}`);
    const plain = opened({ baseUrl: stand.url.replace("http:", "https:") });
    expect(word(await sends(plain, "post", { path: "/x" }))).toBe(`failed ${BUSY}`);
    expect(stand.seen).toEqual([]);
  });

  test("no answer in time: a change is unknown, a read is made again by the host", async () => {
    stand.answers = () => undefined;
    const args = { path: "/x", timeoutMs: 150 };
    expect(word(await sends(shop(), "post", args))).toBe(UNKNOWN);
    expect(word(await reads(shop(), "get", args))).toBe(BUSY);
    expect(stand.seen).toHaveLength(2);
  });

  test("called off: before it leaves it is proven unsent, afterwards unknown", async () => {
    const before = AbortSignal.abort();
    expect(word(await sends(shop(), "post", { path: "/x" }, { signal: before }))).toBe(`failed ${BUSY}`);
    expect(stand.seen).toEqual([]);
    const late = new AbortController();
    stand.answers = () => {
      late.abort();
      return undefined;
    };
    expect(word(await sends(shop(), "post", { path: "/x" }, { signal: late.signal }))).toBe(UNKNOWN);
  });

  test.each([
    ["no protocol at all", "\0\x01 nothing\r\n\r\n"],
    ["a body that breaks off", "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf"],
    ["two lengths", "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab"],
    ["nothing", ""],
  ])("framing that is no answer, %s: unknown", async (_, bytes) => {
    stand.answers = (__, { request }) => void request.socket.end(bytes);
    expect(word(await sends(shop(), "post", { path: "/x" }))).toBe(UNKNOWN);
    expect(word(await reads(shop(), "get", { path: "/x" }))).toBe(BUSY);
  });

  test("an address that the guard refuses is never called", async () => {
    const connection = shop({ allowPrivateNetwork: false });
    expect(word(await sends(connection, "post", { path: "/x" }))).toBe("failed permission egress-refused");
    expect(word(await reads(connection, "get", { path: "/x" }))).toBe("permission egress-refused");
    expect(stand.seen).toEqual([]);
  });
});

describe("bodies that come back", () => {
  const body = async (told: Told, method = "get") => {
    tell(told);
    const answer = await reads(shop(), method, { path: "/x" });
    return answer.ok ? (JSON.parse(answer.value) as { body: unknown }).body : word(answer);
  };
  const typed = (type: string, content: string | Uint8Array): Told => ({
    status: 200,
    headers: { "content-type": type },
    body: content,
  });

  test("are parsed if they are JSON, else text, else bytes in base64", async () => {
    expect(await body(typed("application/problem+json; charset=utf-8", '{"a":[1]}'))).toEqual({ a: [1] });
    expect(await body(typed("text/html", "<p>é"))).toBe("<p>é");
    expect(await body(typed("text/plain; charset=latin1", Buffer.from([0xe9])))).toBe("é");
    expect(await body(typed("image/png", Buffer.from([0x89, 0xff, 0])))).toEqual({ base64: "if8A" });
    expect(await body({ status: 200 })).toBeNull();
    expect(await body(json({ a: 1 }), "head")).toBeNull();
  });

  test("are decompressed", async () => {
    const packed = gzipSync('{"a":1}');
    const headers = { "content-type": "application/json", "content-encoding": "gzip" };
    expect(await body({ status: 200, headers, body: packed })).toEqual({ a: 1 });
  });

  test("that promise JSON and are none, or that nest without end, are no answer to a read", async () => {
    expect(await body(typed("application/json", "<html>"))).toBe(BUSY);
    expect(await body(typed("application/json", "[".repeat(100_000)))).toBe(BUSY);
  });

  test("a success whose body is of no use is a success still: flawed, never unknown (A1)", async () => {
    const flawed: Told[] = [
      typed("application/json", "<html>"),
      typed("application/json", `${"[".repeat(100_000)}${"]".repeat(100_000)}`),
      typed("text/plain", "x".repeat(3_000_000)),
      { status: 200, headers: { "content-encoding": "gzip" }, body: gzipSync("x".repeat(3_000_000)) },
      { status: 200, headers: { "content-encoding": "zip" }, body: "x" },
    ];
    for (const told of flawed) {
      tell(told);
      const answer = await sends(shop(), "post", { path: "/x" });
      expect(answer).toMatchObject({ outcome: "applied", resultInvalid: true });
      expect((answer as SendAnswer & { result: string }).result.length).toBeLessThan(5_000);
    }
  });

  test("a read of more than the limit says so", async () => {
    expect(await body(typed("text/plain", "x".repeat(2_000_000)))).toBe("logic answer-too-large");
  });

  test("cookies of the service are not for scripts", async () => {
    tell({ status: 200, headers: { "set-cookie": "session=1", location: "/x/1" } });
    const answer = await reads(shop(), "get", { path: "/x" });
    expect(answer.ok && (JSON.parse(answer.value) as { headers: object }).headers).toMatchObject({
      location: "/x/1",
    });
    expect(JSON.stringify(answer)).not.toContain("session");
  });
});

describe("redirects", () => {
  test("of a read are followed, five at most", async () => {
    stand.answers = ({ url }) => {
      const left = Number(url.slice(1));
      return left === 0 ? json("there") : { status: 302, headers: { location: `/${left - 1}` } };
    };
    expect(word(await reads(shop(), "get", { path: "/5" }))).toBe("ok");
    expect(word(await reads(shop(), "get", { path: "/6" }))).toBe(LOGIC);
  });

  test("of a read to another host are refused, or go there without credentials (T2)", async () => {
    await using other = await Stand.open();
    tell({ status: 302, headers: { location: `${other.url}/x` } });
    const auth = { auth: { scheme: "bearer" } };
    const secrets = { token: "secret-token" };
    expect(word(await reads(shop(auth, secrets), "get", { path: "/x" }))).toBe("permission egress-refused");
    expect(other.seen).toEqual([]);
    const listed = shop({ ...auth, hosts: [new URL(other.url).host] }, secrets);
    expect(word(await reads(listed, "get", { path: "/x" }))).toBe("ok");
    expect(stand.seen.at(-1)?.headers["authorization"]).toBe("Bearer secret-token");
    expect(other.seen.map(({ headers }) => headers["authorization"])).toEqual([undefined]);
  });

  test("that the call accepts are its answer", async () => {
    tell({ status: 302, headers: { location: "/elsewhere" } });
    expect(word(await reads(shop(), "get", { path: "/x", accept: [302] }))).toBe("ok");
    expect(stand.seen).toHaveLength(1);
  });

  test("of a change are never followed (T1)", async () => {
    for (const status of [301, 302, 303, 307, 308]) {
      tell({ status, headers: { location: "/elsewhere" } });
      await sends(shop(), "post", { path: "/x" });
    }
    expect(stand.seen.map(({ url }) => url)).toEqual(Array.from({ length: 5 }, () => "/x"));
  });
});

describe("paths (P1, P2, P3)", () => {
  const TRICKS = [
    "//evil.example/x",
    "/\\evil.example",
    "\\\\evil.example",
    "http://evil.example/x",
    "HTTPS://evil.example",
    "http:evil.example",
    "javascript:alert(1)",
    "x",
    "?x=1",
    "@evil.example/",
    ":80/x",
    "/..",
    "/../x",
    "/a/../../x",
    "/a/./x",
    "/%2e%2e/x",
    "/%2E./x",
    "/.%2e",
    "/a/%2e%2e/b",
    "/a/%2E/b",
    "/a%2f%2e%2e%2fb",
    "/a%2f..%2f..%2fx",
    "/a%5c..%5cx",
    "/..;/x",
    "/a\r\nX-Evil: 1",
    "/a\nb",
    "/a\tb",
    "/a\0b",
    "/a%00",
    "/a\u007f",
    "/a\u0085",
    "/\ud800",
    "/x?q=\udfff",
    "/a#b",
    "/a ",
    `/${"x".repeat(9_000)}`,
  ];
  test.each(TRICKS)("%j is refused before anything leaves", async (path) => {
    const connection = opened({ baseUrl: `${stand.url}/v1` });
    expect(word(await reads(connection, "get", { path }))).toBe(LOGIC);
    expect(word(await sends(connection, "post", { path }))).toBe(`failed ${LOGIC}`);
    expect(stand.seen).toEqual([]);
  });

  test.each([
    ["/orders", "/v1/orders"],
    ["", "/v1"],
    ["/", "/v1/"],
    ["/a b/é", "/v1/a%20b/%C3%A9"],
    ["/a%2Fb?x=1&y=%20", "/v1/a%2Fb?x=1&y=%20"],
    ["/a//b", "/v1/a//b"],
    ["/x:80@y", "/v1/x:80@y"],
    ["/..a/b..", "/v1/..a/b.."],
  ])("%j is called as %s", async (path, url) => {
    expect(word(await reads(opened({ baseUrl: `${stand.url}/v1/` }), "get", { path }))).toBe("ok");
    expect(stand.seen.map((seen) => seen.url)).toEqual([url]);
  });

  test("a whole URL leads below baseUrl, or to a listed host; credentials only to the first (T2)", async () => {
    await using other = await Stand.open();
    const config = {
      baseUrl: `${stand.url}/v1`,
      hosts: [new URL(other.url).host],
      auth: { scheme: "bearer" },
    };
    const connection = opened(config, { token: "secret-token" });
    expect(word(await reads(connection, "get", { path: `${stand.url}/v1/x` }))).toBe("ok");
    expect(word(await reads(connection, "get", { path: `${stand.url}/v2/x` }))).toBe(LOGIC);
    expect(word(await reads(connection, "get", { path: `${stand.url}/v1x` }))).toBe(LOGIC);
    expect(word(await sends(connection, "post", { path: `${other.url}/x` }))).toBe("applied");
    expect(word(await sends(connection, "post", { path: other.url.replace("//", "//joe:pw@") }))).toBe(
      `failed ${LOGIC}`,
    );
    expect(stand.seen.map(({ headers }) => headers["authorization"])).toEqual(["Bearer secret-token"]);
    expect(other.seen.map(({ headers }) => headers["authorization"])).toEqual([undefined]);
  });

  test("query values are encoded and join those of the path; null is left out", async () => {
    const query = { a: "x&y=1", b: 2, c: true, d: null, "e f": "é" };
    await reads(shop(), "get", { path: "/x?z=0", query });
    expect(stand.seen[0]?.url).toBe("/x?z=0&a=x%26y%3D1&b=2&c=true&e+f=%C3%A9");
    expect(word(await reads(shop(), "get", { path: "/x", query: { a: "\ud800" } }))).toBe(LOGIC);
    expect(word(await reads(shop(), "get", { path: "/x", query: { a: { b: 1 } } }))).toBe(LOGIC);
  });
});

describe("headers (N2)", () => {
  const TRICKS: Record<string, string>[] = [
    { Authorization: "Bearer mine" },
    { cookie: "a=b" },
    { Host: "evil.example" },
    { "Content-Length": "0" },
    { "Transfer-Encoding": "chunked" },
    { connection: "upgrade" },
    { "proxy-authorization": "x" },
    { "X-HTTP-Method-Override": "DELETE" },
    { "x-forwarded-for": "127.0.0.1" },
    { "X-Original-URL": "/admin" },
    { "idempotency-key": "mine" },
    { "x-tenant": "other" },
    { "X-Api-Key": "mine" },
    { "x-a": "1\r\nauthorization: Bearer mine" },
    { "x-a": "1\0" },
    { "x-a": "é" },
    { "x a": "1" },
    { "": "1" },
    { "x:": "1" },
  ];
  test.each(TRICKS)("%j is refused", async (headers) => {
    const config = { headers: { "x-tenant": "acme" }, auth: { scheme: "api-key-header", name: "X-Api-Key" } };
    const connection = shop(config, { apiKey: "secret-key" });
    expect(word(await reads(connection, "get", { path: "/x", headers }))).toBe(LOGIC);
    expect(word(await sends(connection, "post", { path: "/x", headers }))).toBe(`failed ${LOGIC}`);
    expect(stand.seen).toEqual([]);
  });

  test("others are sent, beside those of the connection and the credentials", async () => {
    const config = { headers: { "X-Tenant": "acme" }, auth: { scheme: "api-key-header", name: "X-Api-Key" } };
    const headers = { Accept: "text/csv", "X-Trace": "1" };
    await reads(shop(config, { apiKey: "secret-key" }), "get", { path: "/x", headers });
    expect(stand.seen[0]?.headers).toMatchObject({
      accept: "text/csv",
      "x-trace": "1",
      "x-tenant": "acme",
      "x-api-key": "secret-key",
      "user-agent": "pawl",
    });
  });
});

describe("bodies that leave", () => {
  const sent = async (body: unknown, type?: string) => {
    const headers = type === undefined ? {} : { headers: { "content-type": type } };
    const answer = await sends(shop(), "post", { path: "/x", body, ...headers });
    const seen = stand.seen.at(-1);
    return answer.outcome === "applied" ? [seen?.headers["content-type"], seen?.body] : word(answer);
  };

  test("are JSON unless the call says otherwise", async () => {
    expect(await sent({ a: [1, null] })).toEqual(["application/json", '{"a":[1,null]}']);
    expect(await sent(null)).toEqual(["application/json", "null"]);
    expect(await sent("text")).toEqual(["text/plain; charset=utf-8", "text"]);
    expect(await sent('{"a":1}', "application/json")).toEqual(["application/json", '{"a":1}']);
    const form = "application/x-www-form-urlencoded";
    expect(await sent({ a: "x&y", b: [1, 2], c: null }, form)).toEqual([form, "a=x%26y&b=1&b=2"]);
    expect(await sent({ base64: "if8A" }, "image/png")).toEqual(["image/png", "\x89\xff\0"]);
  });

  test("that fit no type are refused", async () => {
    expect(await sent({ a: 1 }, "image/png")).toBe(`failed ${LOGIC}`);
    expect(await sent({ a: { b: 1 } }, "application/x-www-form-urlencoded")).toBe(`failed ${LOGIC}`);
    expect(await sent("\ud800")).toBe(`failed ${LOGIC}`);
  });

  test("an option that means nothing is refused by name", async () => {
    expect(await sends(shop(), "post", { path: "/x", retries: 3 })).toMatchObject({
      outcome: "failed",
      message: expect.stringContaining("retries"),
    });
  });
});

describe("what is said before a call is made", () => {
  test("names method, URL, body and own headers, on one line, with nothing hidden (N1)", () => {
    const connection = shop({ auth: { scheme: "api-key-query", name: "key" } }, { apiKey: "secret-key" });
    const body = { note: "a\nb\u202etxt", amount: 12 };
    const args = { path: "/x", query: { q: "1" }, body, headers: { "If-Match": '"v1"' } };
    expect(foretold(connection, "put", args).describe()).toBe(
      `PUT ${stand.url}/x?q=1 {"note":"a\\nb\\u{202e}txt","amount":12} (33 bytes) [if-match: "v1"]`,
    );
    const long = foretold(connection, "post", { path: "/x", body: "y".repeat(10_000) }).describe();
    expect(long.length).toBeLessThan(1_000);
    expect(long).toContain("(10000 bytes)");
  });

  test("the bytes are those of the call, without credentials and key (N1)", async () => {
    const config = { headers: { "x-tenant": "acme" }, auth: { scheme: "bearer" }, idempotency: "key" };
    const connection = shop(config, { token: "secret-token" });
    const args = { path: "/x", body: { a: 1 } };
    const bytes = foretold(connection, "post", args).bytes();
    expect(bytes).toBe(
      [
        `POST ${stand.url}/x`,
        "accept: application/json, text/plain;q=0.9, */*;q=0.5",
        "content-type: application/json",
        "user-agent: pawl",
        "x-tenant: acme",
        "",
        '{"a":1}',
      ].join("\n"),
    );
    await sends(connection, "post", args);
    expect(stand.seen[0]).toMatchObject({
      headers: { authorization: "Bearer secret-token", "idempotency-key": "key/1" },
      body: '{"a":1}',
    });
  });

  const verify = { url: "/x/{args.body.id}", appliedIf: { status: 200 }, notAppliedIf: { status: 404 } };
  test.each<[string, object, object]>([
    ["none", {}, {}],
    ["lookup", {}, { verify }],
    ["lookup", { verify: [verify] }, {}],
    ["lookup", { verify: [{ on: "POST /x", ...verify }], idempotency: "key" }, {}],
    ["key", { verify: [{ on: "PUT /x", ...verify }], idempotency: "key" }, {}],
    ["none", { verify: [{ on: "/y/*", ...verify }] }, {}],
    ["key", { idempotency: "key" }, {}],
    ["key", {}, { idempotency: "key" }],
    ["key", { idempotency: "key" }, { headers: { "if-match": '"v1"' } }],
    ["conditional", {}, { headers: { "If-Match": '"v1"' } }],
    ["conditional", {}, { headers: { "If-Match": "v1" } }],
    ["none", {}, { headers: { "If-Match": "*" } }],
    ["none", {}, { headers: { "If-Match": '"a", "b"' } }],
    ["none", {}, { headers: { "If-Match": 'W/"a"' } }],
  ])("the proof is %s with %j and %j", (proof, config, call) => {
    expect(foretold(shop(config), "post", { path: "/x", body: { id: 1 }, ...call }).proof()).toBe(proof);
  });
});

describe("recipes", () => {
  const call = (verify: object, more: object = {}) => ({
    path: "/x",
    query: { q: "a/b" },
    body: { id: "é/1", n: 7, yes: true, list: [{ id: "first" }], empty: "", dots: "..", nul: "\0" },
    verify: { appliedIf: { status: 200 }, notAppliedIf: { status: 404 }, ...verify },
    ...more,
  });

  test("are filled from the recorded call, URL-encoded (R1)", async () => {
    const url =
      "/y/{args.body.id}/{args.body.n}/{args.body.yes}/{args.body.list.0.id}?q={args.query.q}&p={args.path}&k={key}";
    expect(await checks(shop(), "post", call({ url }))).toMatchObject({ says: "applied" });
    expect(stand.seen.map((seen) => `${seen.method} ${seen.url}`)).toEqual([
      "GET /y/%C3%A9%2F1/7/true/first?q=a%2Fb&p=%2Fx&k=key%2F1",
    ]);
  });

  test("that need the key have it sent", async () => {
    await sends(shop(), "post", call({ url: "/y/{key}" }));
    await sends(shop({ idempotencyHeader: "X-Request-Id" }), "post", call({ url: "/y/{key}" }));
    await sends(shop(), "post", call({ url: "/y" }));
    const keys = stand.seen.map(({ headers }) => headers["idempotency-key"] ?? headers["x-request-id"]);
    expect(keys).toEqual(["key/1", "key/1", undefined]);
  });

  test.each(["missing", "list", "empty", "dots", "nul", "id.length", "__proto__", "constructor.name"])(
    "whose placeholder {args.body.%s} has no usable value are refused before the call leaves (R1)",
    async (name) => {
      const args = call({ url: `/y/{args.body.${name}}` });
      expect(word(await sends(shop(), "post", args))).toBe(`failed ${LOGIC}`);
      expect(await checks(shop(), "post", args)).toEqual({ says: "unsure" });
      expect(stand.seen).toEqual([]);
    },
  );

  test.each([
    [{ url: "/y/{args.headers.x}" }],
    [{ url: "/y/{secrets.token}" }],
    [{ url: "/y/{" }],
    [{ url: "//evil.example/{key}" }],
    [{ url: "/y", appliedIf: {} }],
    [{ url: "/y", appliedIf: { path: "$.a" } }],
    [{ url: "/y", appliedIf: { path: "a..b", equals: 1 } }],
    [{ url: "/y", also: 1 }],
  ])("that make no sense are refused: %j", async (verify) => {
    expect(word(await sends(shop(), "post", call(verify)))).toBe(`failed ${LOGIC}`);
    expect(stand.seen).toEqual([]);
  });

  const deep = { path: "$.items[0].id", equals: "e-1" };
  const none = { path: "$.items", equals: [] };
  test.each<[string, object, object, Told]>([
    ["applied", { status: 200 }, { status: 404 }, json({})],
    ["notApplied", { status: 200 }, { status: 404 }, json({}, 404)],
    ["notApplied", { status: [200, 201] }, { status: [404, 410] }, json({}, 410)],
    ["unsure", { status: 200 }, { status: 404 }, json({}, 204)],
    ["unsure", { status: 200 }, { status: [200, 404] }, json({})],
    ["unsure", { status: 200 }, { status: 404 }, json({}, 500)],
    ["unsure", { status: 200 }, { status: 404 }, json({}, 429)],
    ["applied", deep, none, json({ items: [{ id: "e-1" }] })],
    ["notApplied", deep, none, json({ items: [] })],
    ["unsure", deep, none, json({ items: [{ id: "e-2" }] })],
    ["unsure", deep, none, json({})],
    ["unsure", deep, none, json({ items: [] }, 503)],
    ["notApplied", deep, { status: 404, ...none }, json({ items: [] }, 404)],
    ["unsure", deep, none, { status: 200, body: '{"items":[]}' }],
    ["applied", { path: '$["a b"].c', equals: { x: 1, y: 2 } }, none, json({ "a b": { c: { y: 2, x: 1 } } })],
    ["notApplied", deep, { path: "$.found", equals: null }, json({ found: null })],
    ["unsure", deep, { path: "$.found", equals: null }, json({})],
    ["unsure", deep, { path: "$.constructor.name", equals: "Object" }, json({})],
    ["auth", { status: 200 }, { status: 401 }, json({}, 401)],
    ["auth", { status: 200 }, { status: 403 }, json({}, 403)],
  ])("say %s: applied if %j, not if %j (R2, R3, T4)", async (says, appliedIf, notAppliedIf, told) => {
    tell(told);
    const args = call({ url: "/y", appliedIf, notAppliedIf });
    expect((await checks(shop(), "post", args)).says).toBe(says);
  });

  test("that find the effect give what they found as the result", async () => {
    tell(json({ id: "e-1" }));
    const found = await checks(shop(), "post", call({ url: "/y" }));
    expect(found.says === "applied" && JSON.parse(found.result ?? "")).toMatchObject({
      status: 200,
      body: { id: "e-1" },
    });
  });

  test("are asked behind the same guard, with the connection's credentials and headers (T4)", async () => {
    const config = { auth: { scheme: "bearer" }, headers: { "x-tenant": "acme" } };
    const args = call({ url: "/y" });
    await checks(shop(config, { token: "secret-token" }), "post", args);
    expect(stand.seen[0]?.headers).toMatchObject({
      authorization: "Bearer secret-token",
      "x-tenant": "acme",
    });
    expect(await checks(shop({ allowPrivateNetwork: false }), "post", args)).toEqual({ says: "unsure" });
    const elsewhere = call({ url: "http://evil.example/y" });
    expect(word(await sends(shop(), "post", elsewhere))).toBe(`failed ${LOGIC}`);
    expect(stand.seen).toHaveLength(1);
  });

  test.each<[string, Told]>([
    ["notApplied", { status: 200, headers: { etag: '"v1"' } }],
    ["unsure", { status: 200, headers: { etag: '"v2"' } }],
    ["unsure", { status: 200, headers: { etag: 'W/"v1"' } }],
    ["unsure", { status: 200 }],
    ["unsure", { status: 404, headers: { etag: '"v1"' } }],
    ["auth", { status: 401 }],
  ])("without one, If-Match is compared with the tag as it is now: %s", async (says, told) => {
    tell(told);
    const args = { path: "/x", query: { q: "1" }, body: {}, headers: { "If-Match": '"v1"' } };
    expect((await checks(shop(), "put", args)).says).toBe(says);
    expect(stand.seen).toMatchObject([{ method: "GET", url: "/x?q=1" }]);
  });

  test("without anything to ask nobody is asked", async () => {
    expect(await checks(shop({ idempotency: "key" }), "post", { path: "/x" })).toEqual({ says: "unsure" });
    expect(await checks(shop(), "post", { path: "/x" })).toEqual({ says: "unsure" });
    expect(stand.seen).toEqual([]);
  });
});

describe("query: a POST that the connection lists", () => {
  const readOnly = [
    "/search",
    "/models/*/run",
    "/all/**",
    { path: "/graphql", graphql: true },
    { path: "/rpc", methods: ["eth_call"] },
  ];
  const asks = async (path: string, body: unknown = {}, query = {}) =>
    word(await reads(shop({ readOnly }), "query", { path, body, query }));

  test.each<[string, unknown?, object?]>([
    ["/search"],
    ["/search?x=1"],
    ["/models/a/run"],
    ["/all/a/b"],
    ["/graphql", { query: "{ a { b } }" }],
    ["/graphql", { query: 'query A($x: In = {a: "mutation {"}) { mutation(x: $x) } # mutation' }],
    ["/graphql", [{ query: "query { a }" }]],
    ["/rpc", { method: "eth_call" }],
  ])("%s with %j is sent", async (path, body, query) => {
    expect(await asks(path, body, query)).toBe("ok");
    expect(stand.seen[0]?.method).toBe("POST");
  });

  test.each<[string, unknown?, object?]>([
    ["/"],
    ["/search/x"],
    ["/search/"],
    ["/SEARCH"],
    ["/models/a%2Fdelete/run"],
    ["/models//run"],
    ["/all"],
    ["/all/a%2fb"],
    ["/search", {}, { _method: "DELETE" }],
    ["/search", { _method: "DELETE" }],
    ["/graphql"],
    ["/graphql", { query: "mutation { a }" }],
    ["/graphql", { query: "query A { a } mutation B { b }", operationName: "B" }],
    ["/graphql", { query: '{ a } "" mutation B { b }' }],
    ["/graphql", { query: '{ a(x: "\\"") } mutation B { b(y: "") }' }],
    ["/graphql", { query: '{ a } """ " """ subscription B { b }' }],
    ["/graphql", { query: "{ a } # {\nmutation B { b }" }],
    ["/graphql", { query: "} mutation {" }],
    ["/graphql", [{ query: "{ a }" }, { query: "mutation { a }" }]],
    ["/graphql", []],
    ["/graphql", "mutation { a }"],
    ["/rpc", { method: "eth_sendTransaction" }],
    ["/rpc", [{ method: "eth_call" }, { method: "eth_sendTransaction" }]],
  ])("%s with %j is refused", async (path, body, query) => {
    expect(await asks(path, body, query)).toBe(LOGIC);
    expect(stand.seen).toEqual([]);
  });
});

describe("a connection", () => {
  const problems = (config: object) =>
    http.config
      .safeParse({ baseUrl: "https://api.example.com", ...config })
      .error?.issues.map(({ path, message }) => `${path.join(".")} ${message}`)
      .join("; ");

  test.each<[string, object]>([
    ["baseUrl", { baseUrl: "ftp://x" }],
    ["baseUrl", { baseUrl: "x" }],
    ["baseUrl", { baseUrl: "https://joe:pw@x" }],
    ["baseUrl", { baseUrl: "https://x/?a=1" }],
    ["baseUrl", { baseUrl: "https://x/#a" }],
    ["hosts.0", { hosts: ["https://x"] }],
    ["hosts.0", { hosts: ["*"] }],
    ["headers.authorization", { headers: { Authorization: "Bearer x" } }],
    ["headers.host", { headers: { host: "x" } }],
    ["headers.x-a", { headers: { "x-a": "1\n" } }],
    ["auth", { auth: { scheme: "digest" } }],
    ["auth.tokenUrl", { auth: { scheme: "oauth2-refresh-token", clientId: "x" } }],
    ["ca", { ca: "-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----" }],
    ["limits.totalMs", { limits: { totalMs: 1 } }],
    ["readOnly.0", { readOnly: ["graphql"] }],
    ["verify.0.on", { verify: [{ on: "GET /x", url: "/x", appliedIf: { status: 1 } }] }],
    ["retries", { retries: 1 }],
  ])("whose %s makes no sense is refused: %j", (where, config) => {
    expect(problems(config)).toContain(where);
  });

  test.each([{ token: "a b" }, { token: "abc\n" }, { apiKey: "" }, { secret: "x" }])(
    "does not take secrets that cannot be sent: %j",
    (secrets) => {
      expect(http.secrets.safeParse(secrets).success).toBe(false);
    },
  );

  test.each<[string, object, object, RegExp, string[]]>([
    ["basic", { username: "joe" }, { password: "pä:w" }, /^Basic am9lOnDDpDp3$/, ["am9lOnDDpDp3"]],
    ["bearer", {}, { token: "secret-token" }, /^Bearer secret-token$/, []],
  ])("%s: shows itself, and hides what it made", async (scheme, more, secrets, expected, hidden) => {
    const connection = shop({ auth: { scheme, ...more } }, secrets);
    await reads(connection, "get", { path: "/x" });
    expect(stand.seen[0]?.headers["authorization"]).toMatch(expected);
    expect(connection.hidden).toEqual(hidden);
  });

  test("api-key-query: the key joins the query, and a script cannot bring its own", async () => {
    const connection = shop({ auth: { scheme: "api-key-query", name: "key" } }, { apiKey: "s&=1" });
    await sends(connection, "post", { path: "/x?a=b%20c" });
    await sends(connection, "post", { path: "/x" });
    expect(stand.seen.map(({ url }) => url)).toEqual(["/x?a=b%20c&key=s%26%3D1", "/x?key=s%26%3D1"]);
    expect(word(await sends(connection, "post", { path: "/x?key=mine" }))).toBe(`failed ${LOGIC}`);
    expect(word(await sends(connection, "post", { path: "/x", query: { key: "mine" } }))).toBe(
      `failed ${LOGIC}`,
    );
  });

  test("that lacks its secret is let in nowhere, and sends nothing", async () => {
    const connection = shop({ auth: { scheme: "bearer" } });
    expect(await sends(connection, "post", { path: "/x" })).toMatchObject({
      outcome: "failed",
      class: "auth",
      message: expect.stringContaining("token"),
    });
    expect(stand.seen).toEqual([]);
  });

  test.each<[string, object, Told]>([
    ["ok", {}, { status: 200 }],
    ["ok", {}, { status: 404 }],
    ["ok", { checkPath: "/me" }, { status: 204 }],
    ["unreachable", { checkPath: "/me" }, { status: 404 }],
    ["unreachable", {}, { status: 502 }],
    ["auth", {}, { status: 401 }],
    ["auth", { checkPath: "/me" }, { status: 403 }],
    ["unreachable", { allowPrivateNetwork: false }, { status: 200 }],
    ["auth", { auth: { scheme: "bearer" } }, { status: 200 }],
  ])("is %s with %j when the service answers %j", async (status, config, told) => {
    tell(told);
    const found = await http.check?.(shop(config) as never, { signal: AbortSignal.timeout(10_000) });
    expect(found?.status).toBe(status);
    const asked = "checkPath" in config ? "/me" : "/";
    expect(stand.seen.filter(({ url }) => url !== asked)).toEqual([]);
  });
});
