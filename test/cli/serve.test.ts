// `pawl serve` as an operator runs it: what it refuses to start on, and how it stops. The real binary, real signals.
import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { examine } from "../../host/host.ts";
import { takeLock } from "../../host/store/open.ts";

const bin = fileURLToPath(new URL("../../bin/pawl", import.meta.url));
let folder: string;

const scriptOf = (name: string, schedule = '"5m"') => `import { producer, topic, workflow } from "pawl";
export default workflow({
  name: "${name}",
  topics: { a: topic({ output: true }) },
  producers: { p: producer({ schedule: { interval: ${schedule} }, publishes: ["a"],
    handler(ctx) { ctx.publish("a", { messageId: "1", payload: { n: 1 } }); } }) },
});
`;

const BOOKING = `import { consumer, producer, topic, workflow } from "pawl";
export default workflow({
  name: "booking",
  connections: { ledger: "http" },
  topics: { order: topic<{ id: string }>() },
  producers: { poll: producer({ schedule: { interval: "1d" }, publishes: ["order"],
    handler(ctx) { ctx.publish("order", { messageId: "a", payload: { id: "a" } }); } }) },
  consumers: { book: consumer({ subscribes: ["order"],
    async prepare(ctx) {
      const [event] = await ctx.peek("order", { limit: 1 });
      return { reservations: event ? [{ topic: "order", ids: [event.messageId] }] : [], ui: { title: "Book" } };
    },
    mutate(ctx) { ctx.ledger.post("/entries", { body: {} }); } }) },
});
`;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "pawl-serve-"));
  for (const name of ["good", "mixed", "scripts"]) mkdirSync(join(folder, name));
  writeFileSync(join(folder, "a-file"), "hello");
  writeFileSync(join(folder, "scripts/booking.ts"), BOOKING);
  writeFileSync(join(folder, "good/one.ts"), scriptOf("one"));
  writeFileSync(join(folder, "mixed/one.ts"), scriptOf("one"));
  writeFileSync(join(folder, "mixed/bad.ts"), scriptOf("bad", '"5 minutes"'));
  writeFileSync(join(folder, "mixed/bytes.ts"), Uint8Array.of(0x7f, 0xff, 0xfe));
  writeFileSync(
    join(folder, "mixed/schema.ts"),
    scriptOf("schema").replace(
      "topic({ output: true })",
      'topic({ output: true, schema: { pattern: "(a+)+" } })',
    ),
  );
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Served {
  child: ChildProcess;
  out: () => string;
  err: () => string;
  /** Resolves once it has said this, or has ended. */
  said: (what: RegExp) => Promise<void>;
  ended: Promise<number | null>;
}

function serve(...args: string[]): Served {
  return serveWith({}, ...args);
}

function serveWith(env: Record<string, string>, ...args: string[]): Served {
  const child = spawn(process.execPath, [bin, "serve", ...args], {
    cwd: folder,
    env: { PATH: process.env["PATH"] ?? "", PAWL_PORT: "0", ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const text = { out: "", err: "" };
  const waiting: { what: RegExp; done: () => void }[] = [];
  const look = () => {
    for (const { what, done } of waiting) if (what.test(text.out + text.err)) done();
  };
  child.stdout.on("data", (piece: Buffer) => {
    text.out += piece.toString();
    look();
  });
  child.stderr.on("data", (piece: Buffer) => {
    text.err += piece.toString();
    look();
  });
  const { promise: ended, resolve } = Promise.withResolvers<number | null>();
  child.once("close", (code) => {
    for (const { done } of waiting) done();
    resolve(code);
  });
  const said = (what: RegExp) =>
    new Promise<void>((done) => {
      waiting.push({ what, done });
      look();
    });
  return { child, out: () => text.out, err: () => text.err, said, ended };
}

/** Asks a host that says where it listens. */
async function asked(host: Served, path: string, token: string): Promise<number> {
  const [, url = ""] = /listening: (\S+)/.exec(host.out()) ?? [];
  return (await fetch(`${url}${path}`, { headers: { authorization: `Bearer ${token}` } })).status;
}

describe("requests", () => {
  const TOKEN = "0123456789abcdef0123456789abcdef";

  test("are taken in without a folder of scripts, once one line says where; SIGTERM lets them end", async () => {
    const host = serveWith({ PAWL_ADMIN_TOKEN: TOKEN }, "--data", "api-data");
    await host.said(/^ready: /m);
    expect(host.out().match(/^listening: http:\/\/127\.0\.0\.1:\d+$/gm)).toHaveLength(1);
    expect(await asked(host, "/readyz", "")).toBe(200);
    expect(await asked(host, "/api/v1/workflows", TOKEN)).toBe(200);
    expect(await asked(host, "/api/v1/workflows", "")).toBe(401);
    host.child.kill("SIGTERM");
    expect([await host.ended, (host.out() + host.err()).includes(TOKEN)]).toEqual([0, false]);
  });

  test("the first admin's token is made and shown once, on stderr", async () => {
    const host = serve("--data", "first-data");
    await host.said(/^ready: /m);
    const [, token = ""] = /shown this once: (\S+)/.exec(host.err()) ?? [];
    expect(await asked(host, "/api/v1/me", token)).toBe(200);
    host.child.kill("SIGTERM");
    await host.ended;
    const again = serve("--data", "first-data");
    await again.said(/^ready: /m);
    expect(again.err()).not.toContain("shown this once");
    expect(await asked(again, "/api/v1/me", token)).toBe(200);
    again.child.kill("SIGTERM");
    expect(await again.ended).toBe(0);
  });

  test("an address that others can reach needs the names it may be asked by", async () => {
    const { code, err } = await refusal("--data", "open-data", "--listen", "0.0.0.0");
    expect([code, err]).toEqual([1, expect.stringContaining("listen-unsafe")]);
  });
});

/** What it said when it refused to start; no word of the host's own insides. */
async function refusal(...args: string[]): Promise<{ code: number | null; err: string }> {
  const host = serve(...args);
  const code = await host.ended;
  expect(host.out() + host.err()).not.toMatch(/\n\s+at /);
  return { code, err: host.err() };
}

describe("what cannot be served is refused at once, with a reason and what to do", () => {
  test.runIf(process.platform === "linux")("a data folder that can never be made", async () => {
    const { code, err } = await refusal("--scripts", "good", "--data", "/proc/pawl-data");
    expect(code).toBe(1);
    expect(err).toContain("store-unreadable: /proc/pawl-data");
    expect(err).toContain("may be written by this user");
  });

  test.runIf(process.platform === "linux")("a data folder that may only be read", async () => {
    const { code, err } = await refusal("--scripts", "good", "--data", "/proc/self");
    expect({ code, said: err.includes("store-unreadable: /proc/self") }).toEqual({ code: 1, said: true });
  });

  test.each(["a-file", "a-file/below"])("data in a file: %s", async (data) => {
    const { code, err } = await refusal("--scripts", "good", "--data", data);
    expect({ code, said: err.includes("is not a folder") }).toEqual({ code: 1, said: true });
  });

  test("data of another host that runs", async () => {
    const lock = takeLock(join(folder, "taken"));
    const { code, err } = await refusal("--scripts", "good", "--data", "taken");
    lock.close();
    expect(code).toBe(5);
    expect(err).toContain("store-locked: another host has taken/pawl.lock open");
    expect(err).toContain("Stop the other host");
  });

  test("a first token that can be guessed, also with scripts loaded: nothing keeps the process alive", async () => {
    const host = serveWith({ PAWL_ADMIN_TOKEN: "let-me-in" }, "--scripts", "good", "--data", "weak");
    expect(await host.ended).toBe(1);
    expect(host.err()).toContain("admin-token-weak");
    expect(host.err()).toContain("openssl rand -hex 32");
  });

  test("scripts that are not there, or no folder", async () => {
    expect(await refusal("--scripts", "nowhere", "--data", "never")).toMatchObject({
      code: 3,
      err: "pawl: there is no folder nowhere\n",
    });
    expect(await refusal("--scripts", "a-file", "--data", "never")).toMatchObject({ code: 2 });
  });
});

describe("a folder with broken scripts", () => {
  test("the others are served, and each broken one is named with its problem", async () => {
    const host = serve("--scripts", "mixed", "--data", "mixed-data");
    await host.said(/p +1 event published/);
    host.child.kill("SIGTERM");
    expect(await host.ended).toBe(0);
    expect(host.out()).toContain("ready: 1 workflow from mixed, 3 not deployed");
    expect(host.out()).toMatch(/error bad-interval {2}mixed\/bad\.ts:5/);
    expect(host.out()).toContain("mixed/bytes.ts is not text in UTF-8");
    expect(host.out()).toMatch(/mixed\/schema\.ts:\d+:\d+ .*pattern/);
    expect(host.out()).toContain("not deployed  mixed/schema.ts");
  });

  test("with --json every line on stdout is one, and the problems are talk", async () => {
    const host = serve("--scripts", "mixed", "--data", "json-data", "--json");
    await host.said(/^ready: /m);
    host.child.kill("SIGTERM");
    expect(await host.ended).toBe(0);
    for (const line of host.out().split("\n").filter(Boolean)) expect(() => JSON.parse(line)).not.toThrow();
    expect(host.err()).toContain("not deployed  mixed/bad.ts");
  });
});

/** An outside that holds every change back until the test lets it through. */
async function slowWorld() {
  const held: ServerResponse[] = [];
  const { promise: called, resolve } = Promise.withResolvers<void>();
  const server = createServer((_, response) => {
    held.push(response);
    resolve();
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return {
    env: { PAWL_TEST_WORLD: `http://127.0.0.1:${(server.address() as AddressInfo).port}` },
    called,
    answer: () => {
      for (const response of held) response.writeHead(200).end('{"status":201,"headers":{},"body":{}}');
    },
    calls: () => held.length,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    },
  };
}

const findings = (data: string) => [
  ...examine(join(folder, data), "laws"),
  ...examine(join(folder, data), "journal"),
];

describe("7 stopping", () => {
  test("SIGTERM: the call in flight finishes and is committed, exit code 0", async () => {
    await using world = await slowWorld();
    const host = serveWith(world.env, "--scripts", "scripts", "--data", "drained");
    await world.called;
    host.child.kill("SIGTERM");
    await host.said(/^stopping: /m);
    world.answer();
    expect(await host.ended).toBe(0);
    expect(host.out()).toMatch(/book .*changed via ledger\.post/);
    expect(host.out()).toContain("1 outside changes");
    expect(findings("drained")).toEqual([]);
  });

  test("a second SIGINT does not wait: exit code 130, and the next start asks what became of the call", async () => {
    await using world = await slowWorld();
    const host = serveWith(world.env, "--scripts", "scripts", "--data", "cut-short");
    await world.called;
    host.child.kill("SIGINT");
    await host.said(/^stopping: /m);
    host.child.kill("SIGINT");
    expect(await host.ended).toBe(130);
    expect(world.calls()).toBe(1);
    world.answer();
    expect(findings("cut-short")).toEqual([]);
    const again = serveWith(world.env, "--scripts", "scripts", "--data", "cut-short");
    await again.said(/^ready: .*1 interrupted runs recovered/m);
    again.child.kill("SIGKILL");
    await again.ended;
  });
});
