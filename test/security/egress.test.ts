// The guard around requests to the outside, attacked: addresses in every spelling, redirects, names that change their
// mind, and answers that do not want to end (06, 08).
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingHttpHeaders, type Server, type ServerResponse } from "node:http";
import { connect, createServer as createTcpServer, type AddressInfo } from "node:net";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Network } from "../../host/connectors/egress.ts";
import { reachOf } from "../../host/connectors/egress-address.ts";
import { type GuardedRequest, guardedRequest, RequestFailed } from "../../host/connectors/egress-request.ts";
import { hosts, resolved, urls } from "../support/addresses.ts";
import { measure } from "../support/measure.ts";

const PUBLIC = "93.184.216.34";
const OTHER_PUBLIC = "2606:2800:220:1:248:1893:25c8:1946";

interface Seen {
  method: string;
  url: string;
  headers: IncomingHttpHeaders;
}

/** Stands for everything that has a public address. */
let outside: Server;
let outsidePort: number;
let seen: Seen[] = [];
let answer: (request: Seen, response: ServerResponse) => void;
/** Stands for whatever must not be reached. */
let canary: ReturnType<typeof createTcpServer>;
let canaryPort: number;
let reached = 0;

beforeAll(async () => {
  outside = createServer(({ method = "", url = "", headers }, response) => {
    const request = { method, url, headers };
    seen.push(request);
    answer(request, response);
  }).listen(0, "127.0.0.1");
  canary = createTcpServer((socket) => {
    reached++;
    socket.destroy();
  }).listen(0, "127.0.0.1");
  await Promise.all([once(outside, "listening"), once(canary, "listening")]);
  outsidePort = (outside.address() as AddressInfo).port;
  canaryPort = (canary.address() as AddressInfo).port;
});
afterAll(() => {
  outside.closeAllConnections();
  outside.close();
  canary.close();
});
beforeEach(() => {
  seen = [];
  answer = (_, response) => response.end("fine");
  reached = 0;
});

/** What is public leads to `outside`; what is not is dialled as it is, so that the canary would hear of it. */
function network(resolve: (hostname: string) => string[] = resolved) {
  const dialled: string[] = [];
  const asked: string[] = [];
  const made: Network = {
    resolve: async (hostname) => {
      asked.push(hostname);
      return hostname.endsWith("public.example") ? [PUBLIC] : resolve(hostname);
    },
    dial: ({ host, port }) => {
      dialled.push(host);
      const isPublic = reachOf(host) === "public";
      return connect(isPublic ? { host: "127.0.0.1", port: outsidePort } : { host, port });
    },
  };
  return { ...made, dialled, asked };
}

/** Everything is listed: what refuses is the address. */
function ruleFor(url: string, ...more: string[]): { hosts: string[] } {
  const { hostname, port } = URL.canParse(url) ? new URL(url) : { hostname: "", port: "" };
  return {
    hosts: [
      "public.example",
      "other-public.example",
      ...more,
      port === "" ? hostname : `${hostname}:${port}`,
    ],
  };
}

const get = (url: string, more: Partial<GuardedRequest> & Pick<GuardedRequest, "network" | "rule">) =>
  guardedRequest({ method: "GET", url: new URL(url), limits: { totalMs: 20_000 }, ...more });

/** How a request ended, in a word. */
async function tried(
  url: string,
  over: Network,
  { rule = ruleFor(url), redirects = 0 }: Partial<GuardedRequest> = {},
): Promise<{ why: string; sent: boolean }> {
  try {
    const { status } = await get(url, { rule, network: over, redirects });
    return { why: `status ${status}`, sent: true };
  } catch (error) {
    if (!(error instanceof RequestFailed)) throw error;
    return { why: error.why, sent: error.sent };
  }
}

const targets = [...hosts.map((host) => `http://${host}/`), ...urls];

describe("addresses", () => {
  test("there are at least 300 forms, no two the same", () => {
    expect(new Set(targets).size).toBe(targets.length);
    expect(targets.length).toBeGreaterThanOrEqual(300);
  });

  test("none of them is connected to, whatever the list of hosts says (E1, E2, V1, V2)", async () => {
    const outcomes: Record<string, number> = {};
    const breaches: unknown[] = [];
    for (const target of targets) {
      const over = network();
      const outcome = URL.canParse(target) ? await tried(target, over) : { why: "no URL" };
      outcomes[outcome.why] = (outcomes[outcome.why] ?? 0) + 1;
      if ("sent" in outcome && (outcome.sent || over.dialled.length > 0 || over.asked.length > 1))
        breaches.push({ target, outcome, dialled: over.dialled, asked: over.asked });
    }
    expect(breaches).toEqual([]);
    // Unreachable: a name without an address, or one that nobody knows.
    expect(outcomes["refused"]).toBeGreaterThanOrEqual(300);
    expect(Object.keys(outcomes).sort()).toEqual(["no URL", "refused", "unreachable"]);
    measure({ suite: "egress", name: "address forms refused", value: targets.length, unit: "forms" });
  });

  test("none of them is followed to by a redirect (Q2)", async () => {
    let followed = 0;
    const breaches: unknown[] = [];
    for (const target of targets) {
      const over = network();
      // As a header can hold it: a URL's reader decodes what is percent-encoded in a host.
      const location = target.replace(/[^\t\x20-\x7e]+/gu, (text) => encodeURIComponent(text));
      answer = (_, response) => response.writeHead(302, { location }).end();
      const start = "http://public.example/start";
      const { why } = await tried(start, over, { rule: ruleFor(target), redirects: 5 });
      if (over.dialled.some((host) => host !== PUBLIC)) breaches.push({ target, dialled: over.dialled });
      // What is no URL, or one on the same host, is an answer like another.
      if (why !== "status 302") followed++;
    }
    expect(breaches).toEqual([]);
    expect(followed).toBeGreaterThanOrEqual(300);
    expect(reached).toBe(0);
    measure({ suite: "egress", name: "redirects to them refused", value: followed, unit: "redirects" });
  });

  test("none of them is reached under a list that does not name it (E1)", async () => {
    const breaches: unknown[] = [];
    for (const target of targets.filter((one) => URL.canParse(one) && !one.includes("public.example"))) {
      const over = network();
      const { why } = await tried(target, over, {
        rule: { hosts: ["public.example"], allowPrivateNetwork: true },
      });
      if (why !== "refused" || over.asked.length > 0) breaches.push({ target, why, asked: over.asked });
    }
    expect(breaches).toEqual([]);
  });

  test("a connection that allows private networks reaches them, and nowhere addresses still not", async () => {
    const url = `http://127.0.0.1:${outsidePort}/`;
    const open = {
      ...ruleFor(url, "0.0.0.0", "255.255.255.255", "[ff02::1]", "[::]"),
      allowPrivateNetwork: true,
    };
    expect(await get(url, { rule: open, network: network() })).toMatchObject({ status: 200 });
    for (const nowhere of ["0.0.0.0", "255.255.255.255", "[ff02::1]", "[::]", "0"])
      await expect(get(`http://${nowhere}/`, { rule: open, network: network() })).rejects.toMatchObject({
        why: "refused",
      });
  });

  test("the public ones are not refused (so that the guard does not pass by refusing all)", () => {
    for (const address of [
      PUBLIC,
      OTHER_PUBLIC,
      "8.8.8.8",
      "1.1.1.1",
      "172.32.0.1",
      "192.167.0.1",
      "2a00:1450::1",
    ])
      expect([address, reachOf(address)]).toEqual([address, "public"]);
  });

  test("proxies of the environment are not asked", async () => {
    const before = { ...process.env };
    const proxy = `http://127.0.0.1:${canaryPort}`;
    Object.assign(process.env, {
      HTTP_PROXY: proxy,
      http_proxy: proxy,
      ALL_PROXY: proxy,
      NODE_USE_ENV_PROXY: "1",
    });
    try {
      await get("http://public.example/", { rule: { hosts: ["public.example"] }, network: network() });
    } finally {
      for (const name of ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "NODE_USE_ENV_PROXY"])
        if (before[name] === undefined) delete process.env[name];
        else process.env[name] = before[name];
    }
    expect([seen.length, reached]).toEqual([1, 0]);
  });
});

test("1,000 tries with names that change their address: the canary hears nothing (E2, E3)", async () => {
  const outcomes: Record<string, number> = {};
  const url = `http://rebind.example:${canaryPort}/`;
  answer = (_, response) => response.writeHead(302, { location: url }).end();
  const ways: ((call: number) => string[])[] = [
    (call) => [call === 0 ? PUBLIC : "127.0.0.1"],
    () => [PUBLIC, "127.0.0.1"],
    () => ["127.0.0.1", PUBLIC],
    (call) => (call % 2 === 0 ? [PUBLIC, OTHER_PUBLIC] : [PUBLIC, "::ffff:127.0.0.1"]),
    (call) => [[PUBLIC, "::1", "0.0.0.0", "localhost"][call % 4] ?? PUBLIC],
  ];
  const one = async (n: number): Promise<void> => {
    const way = ways[n % ways.length];
    let calls = 0;
    const over = network(() => way?.(calls++) ?? []);
    const rule = { hosts: [`rebind.example:${canaryPort}`] };
    // The server sends it back to the same name: that is resolved anew, and looked at anew.
    const got = await get(url, { rule, network: over, redirects: 1 + (n % 3) }).catch(
      (error: unknown) => error,
    );
    const outcome = got instanceof RequestFailed ? got.why : "answered";
    outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
    expect(over.dialled.filter((host) => reachOf(host) !== "public")).toEqual([]);
    // One connection, one resolution: nobody asks again between the look and the socket.
    expect(over.asked.length - over.dialled.length).toBeLessThanOrEqual(1);
  };
  for (let n = 0; n < 1_000; n += 20) await Promise.all(Array.from({ length: 20 }, (_, k) => one(n + k)));
  expect(reached).toBe(0);
  expect(outcomes).toEqual({ refused: 1_000 });
  measure({
    suite: "egress",
    name: "rebinding tries, connects to the canary",
    value: reached,
    unit: "of 1000",
  });
});

test("the canary does hear what is let through (so that its silence means something)", async () => {
  const rule = { hosts: [`rebind.example:${canaryPort}`], allowPrivateNetwork: true };
  const over = network(() => ["127.0.0.1"]);
  await expect(get(`http://rebind.example:${canaryPort}/`, { rule, network: over })).rejects.toThrow(
    RequestFailed,
  );
  expect(reached).toBe(1);
});

describe("redirects", () => {
  const rule = { hosts: ["public.example", "other-public.example"] };

  test.each(["POST", "PUT", "PATCH", "DELETE"] as const)(
    "a %s follows none unless told, and sends once (Q2)",
    async (method) => {
      for (const status of [301, 302, 303, 307, 308]) {
        seen = [];
        answer = (_, response) => response.writeHead(status, { location: "/elsewhere" }).end();
        const request = {
          method,
          url: new URL("http://public.example/"),
          body: "x",
          rule,
          network: network(),
        };
        expect(await guardedRequest(request)).toMatchObject({ status });
        expect(seen.map((one) => one.url)).toEqual(["/"]);
      }
    },
  );

  test("a body is never sent a second time, even where redirects are followed (Q2)", async () => {
    for (const method of ["POST", "PUT", "PATCH", "DELETE"] as const)
      for (const status of [301, 302, 303, 307, 308]) {
        seen = [];
        answer = ({ url }, response) =>
          url === "/" ? response.writeHead(status, { location: "/elsewhere" }).end() : response.end("fine");
        const request = {
          method,
          url: new URL("http://public.example/"),
          body: "x",
          rule,
          network: network(),
        };
        await guardedRequest({ ...request, redirects: 5 });
        const again = seen.slice(1);
        expect(again.every((one) => one.method === "GET" && !("content-length" in one.headers))).toBe(true);
        expect(again).toHaveLength(status <= 303 && method === "POST" ? 1 : 0);
      }
  });

  test("credentials stay with their origin, and do not come back to it (Q3)", async () => {
    const path = ["http://other-public.example/b", "http://public.example/c"];
    answer = (_, response) => {
      const location = path[seen.length - 1];
      if (location === undefined) response.end("fine");
      else response.writeHead(302, { location }).end();
    };
    await get("http://public.example/a", {
      rule,
      network: network(),
      redirects: 5,
      headers: {
        accept: "text/plain",
        authorization: "Bearer given",
        Cookie: "c=1",
        "X-Api-Key": "k",
        host: "public.example",
      },
      credentials: { headers: { "x-token": "secret" }, query: { key: "secret" } },
    });
    expect(seen.map(({ url }) => url)).toEqual(["/a?key=secret", "/b", "/c"]);
    expect(seen[0]?.headers).toMatchObject({
      "x-token": "secret",
      authorization: "Bearer given",
      "x-api-key": "k",
    });
    for (const { headers } of seen.slice(1)) {
      expect(headers["accept"]).toBe("text/plain");
      for (const name of ["authorization", "cookie", "x-api-key", "x-token"])
        expect(headers).not.toHaveProperty(name);
    }
    expect(seen[1]?.headers.host).toBe("other-public.example");
  });

  test("another port or scheme of the same host is another origin (Q3)", async () => {
    answer = ({ url }, response) =>
      url === "/"
        ? response.writeHead(302, { location: "http://public.example:8080/next" }).end()
        : response.end("fine");
    const credentials = { headers: { authorization: "Bearer secret" } };
    await get("http://public.example/", {
      rule: { hosts: ["public.example", "public.example:8080"] },
      network: network(),
      redirects: 1,
      credentials,
    });
    expect(seen[1]?.headers).not.toHaveProperty("authorization");
  });

  test("a loop ends after as many as were allowed", async () => {
    answer = (_, response) => response.writeHead(302, { location: "/" }).end();
    expect(await get("http://public.example/", { rule, network: network(), redirects: 5 })).toMatchObject({
      status: 302,
    });
    expect(seen).toHaveLength(6);
  });

  test("a list does not take a name for another (E1)", async () => {
    const over = network(() => [PUBLIC]);
    const listed = { hosts: ["public.example", "*.wild.example", "one.example:8443"] };
    const no = [
      "evil-public.example.evil.example",
      "xpublic.example",
      "wild.example",
      "evilwild.example",
      "one.example",
      "public.example:81",
      "public.example.",
    ];
    for (const host of no)
      expect([host, await tried(`http://${host}/`, over, { rule: listed })]).toMatchObject([
        host,
        { why: "refused" },
      ]);
    for (const host of ["PUBLIC.example", "a.wild.example", "a.b.wild.example", "one.example:8443"])
      expect(await get(`http://${host}/`, { rule: listed, network: over })).toMatchObject({ status: 200 });
  });
});

test("an answer that is large, compressed and followed by the end of the connection is read whole", async () => {
  const body = randomBytes(400_000);
  const packed = gzipSync(body);
  const server = createTcpServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", () => {
      const head = `HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: ${packed.byteLength}\r\n\r\n`;
      socket.write(head);
      socket.end(packed);
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  try {
    const rule = { ...ruleFor(url), allowPrivateNetwork: true };
    const { bytes, problem } = await get(url, { rule, network: network() });
    expect([problem, body.equals(bytes)]).toEqual([undefined, true]);
  } finally {
    server.close();
  }
});
