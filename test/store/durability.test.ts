import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { fdatasync, mkdtempSync, readFileSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test, vi } from "vitest";
import type { WorkflowFacts } from "../../host/core/facts.ts";
import { openStore, type SqliteStore } from "../../host/store/open.ts";
import { inspect } from "../../host/store/doctor.ts";
import { verify } from "../../host/store/verify.ts";
import { deployed, handlerOf, must, publish, wholeRun } from "../support/chain.ts";

const TRACER = "strace";
const CHILD = fileURLToPath(new URL("host-child.ts", import.meta.url));
const folder = () => mkdtempSync(join(tmpdir(), "pawl-durability-"));
const nowMs = () => 1_000;

const messages = (store: SqliteStore): string[] =>
  store.db.prepare("SELECT message_id FROM events ORDER BY seq").pluck().all() as string[];

const sound = (store: SqliteStore) => [...inspect(store.db), ...verify(store.db)];

const runs = (command: string, ...args: string[]): boolean => {
  try {
    execFileSync(command, args, { stdio: "ignore", timeout: 50_000 });
    return true;
  } catch {
    return false;
  }
};

const canTrace = () => runs(TRACER, "-o", "/dev/null", "true");

/** strace of a host that publishes. */
async function trace(durability: "barrier" | "full"): Promise<string[]> {
  const data = folder();
  const log = join(data, "trace");
  const options = JSON.stringify({ durability, checkpoints: false });
  const calls = "trace=fdatasync,fsync,pwrite64,write,writev,pwritev";
  const child = spawn(
    TRACER,
    ["-f", "-y", "-s", "64", "-e", calls, "-o", log, process.execPath, CHILD, "publish", data, options],
    { stdio: ["ignore", "ignore", "inherit"], env: { ...process.env, PAWL_TEST_FEW: "1" } },
  );
  await once(child, "exit");
  return readFileSync(log, "utf8").split("\n");
}

/** How often the host acknowledged something, and how often before a sync that began after the log's last write ended. */
function acknowledgements(lines: readonly string[]): { all: number; tooEarly: number } {
  const unfinished = new Map<string, number>();
  const seen = { all: 0, tooEarly: 0 };
  let lastWrite = -1;
  let covered = -1;
  for (const [i, line] of lines.entries()) {
    const thread = line.split(" ", 1)[0] as string;
    const ofLog = line.includes("pawl.db-wal>");
    if (ofLog && /\bp?writev?(64)?\(/.test(line)) lastWrite = i;
    if (ofLog && /\bf(data)?sync\(/.test(line)) {
      if (line.includes("<unfinished")) unfinished.set(thread, i);
      else if (line.endsWith("= 0")) covered = i;
    }
    const began = /<\.\.\. f(data)?sync resumed>.*= 0$/.test(line) ? unfinished.get(thread) : undefined;
    if (began !== undefined) {
      covered = began;
      unfinished.delete(thread);
    }
    if (!/\bwrite\(.*"acknowledged /.test(line)) continue;
    seen.all++;
    if (covered < lastWrite) seen.tooEarly++;
    // The next one needs a write and a sync of its own.
    lastWrite = i;
  }
  return seen;
}

describe("what durable means on disk (K2, G1)", () => {
  test.for(["barrier", "full"] as const)(
    "%s: the log's sync begins after its last write and has ended before apply resolves",
    { timeout: 120_000 },
    async (durability, { skip }) => {
      if (!canTrace()) runs("apt-get", "install", "-y", TRACER);
      skip(!canTrace(), "strace is not here, or may not trace");
      const lines = await trace(durability);
      expect(acknowledgements(lines)).toEqual({ all: 21, tooEarly: 0 });
      const without = lines.filter((line) => !line.includes("sync"));
      expect(acknowledgements(without), "canary").toEqual({ all: 21, tooEarly: 21 });
    },
  );

  test("every durable apply that is awaited is one barrier", async () => {
    let syncs = 0;
    const sync = (_: number, done: (error: Error | null) => void) => {
      syncs++;
      setImmediate(() => done(null));
    };
    await using store = openStore({ data: folder(), nowMs, group: { sync } });
    const workflow = await deployed(store, "orders", 1_000);
    const before = syncs;
    for (let i = 0; i < 5; i++) await publish(store, workflow, [`m${i}`], 1_000);
    expect(syncs).toBe(before + 5);
  });
});

/** A publish with this messageId, decided on the workflow's facts. */
const publishing = (facts: WorkflowFacts, messageId: string, payload = "{}") => ({
  verb: "publish",
  workflow: facts.id,
  atMs: 1_000,
  expect: {},
  writes: [
    {
      do: "publish" as const,
      publication: { topic: "order", messageId, payload, inputs: [], hops: 0 },
      subscribers: [handlerOf(facts, "book").id],
    },
  ],
});

describe("a disk that fails (G3)", () => {
  test("a failed sync rejects all who wait and all who come, is told once, and loses nothing acknowledged", async () => {
    const data = folder();
    const onBroken = vi.fn<(error: Error) => void>();
    let failing = false;
    const cause = new Error("EIO: i/o error, fdatasync");
    const sync = (fd: number, done: (error: Error | null) => void) =>
      failing ? setImmediate(() => done(cause)) : fdatasync(fd, done);
    const acknowledged: string[] = [];
    {
      await using store = openStore({ data, nowMs, onBroken, group: { sync } });
      const workflow = await deployed(store, "orders", 1_000);
      const facts = (await store.workflow(workflow)) as WorkflowFacts;
      const apply = async (id: string, level: "applied" | "committed" | "durable") => {
        await store.apply(publishing(facts, id), { level, fence: store.fence });
        if (level !== "applied") acknowledged.push(id);
      };
      for (let i = 0; i < 10; i++) await apply(`good-${i}`, "durable");
      failing = true;
      const all = await Promise.allSettled(
        Array.from({ length: 200 }, (_, i) => apply(`bad-${i}`, "durable")),
      );
      expect(new Set(all.map((one) => one.status))).toEqual(new Set(["rejected"]));
      for (const one of all)
        expect((one as PromiseRejectedResult).reason).toMatchObject({ code: "store-broken", cause });
      const broken = { code: "store-broken" };
      await expect(apply("late", "applied")).rejects.toMatchObject(broken);
      await expect(store.flush()).rejects.toMatchObject(broken);
      await expect(store.workflow(workflow)).rejects.toMatchObject(broken);
      await expect(store.workflowId("default", "new", 1)).rejects.toMatchObject(broken);
      expect(onBroken).toHaveBeenCalledTimes(1);
    }
    await using again = openStore({ data, nowMs });
    expect(messages(again)).toEqual(expect.arrayContaining(acknowledged));
    expect(acknowledged).toHaveLength(10);
    expect(sound(again)).toEqual([]);
  });

  test("a full disk: the Change that does not fit breaks the store, what was acknowledged is there", async () => {
    const data = folder();
    const acknowledged: string[] = [];
    {
      await using store = openStore({ data, nowMs });
      const workflow = await deployed(store, "orders", 1_000);
      await publish(store, workflow, ["a"], 1_000);
      await wholeRun(store, workflow, 1_000);
      const facts = (await store.workflow(workflow)) as WorkflowFacts;
      const pages = store.db.pragma("page_count", { simple: true }) as number;
      store.db.pragma(`max_page_count = ${pages + 40}`);
      const fill = async () => {
        for (let i = 0; ; i++) {
          await must(store, publishing(facts, `m${i}`, JSON.stringify("x".repeat(3_000))), "durable");
          acknowledged.push(`m${i}`);
        }
      };
      await expect(fill()).rejects.toMatchObject({ code: "store-broken", cause: { code: "SQLITE_FULL" } });
    }
    await using again = openStore({ data, nowMs });
    expect(messages(again).filter((one) => one.startsWith("m"))).toEqual(acknowledged);
    expect(acknowledged.length).toBeGreaterThan(5);
    expect(sound(again)).toEqual([]);
  });

  test("a write that the system refuses: the host says so and stops, what it acknowledged is there", async () => {
    const data = folder();
    // The log may not grow beyond two megabytes: the kernel refuses the write.
    const script = `ulimit -f 2048; exec "$0" "$@"`;
    const child = spawn(
      "bash",
      ["-c", script, process.execPath, CHILD, "publish", data, '{"checkpoints":false}'],
      {
        stdio: ["ignore", "pipe", "inherit"],
      },
    );
    let said = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => (said += text));
    await once(child, "close");
    const lines = said.trim().split("\n");
    expect(lines.at(-1)).toBe("failed store-broken");
    const acknowledged = lines
      .filter((line) => line.startsWith("acknowledged"))
      .map((line) => line.split(" ")[1]);
    expect(acknowledged.length).toBeGreaterThan(10);
    await using again = openStore({ data, nowMs });
    const found = messages(again).map((one) => one.split("-")[0]);
    expect(found.slice(0, acknowledged.length)).toEqual(acknowledged);
    expect(found.length - acknowledged.length).toBeLessThanOrEqual(1);
    expect(sound(again)).toEqual([]);
  });

  test("kill -9 under load: everything acknowledged is there, the rest is whole or absent", async () => {
    const data = folder();
    const child = spawn(process.execPath, [CHILD, "publish", data, "{}"], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    let said = "";
    const enough = Promise.withResolvers<void>();
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      said += text;
      if (said.includes("acknowledged m150\n")) enough.resolve();
    });
    await enough.promise;
    const exit = once(child, "close");
    child.kill("SIGKILL");
    await exit;
    const acknowledged = said.split("\n").filter((line) => line.startsWith("acknowledged")).length;
    await using again = openStore({ data, nowMs });
    const found = messages(again).length;
    expect(found === acknowledged || found === acknowledged + 1).toBe(true);
    expect(sound(again)).toEqual([]);
  });
});

describe("the write-ahead log", () => {
  test("stays within its cap under a burst of 200,000 rows", async () => {
    const data = folder();
    const sync = (_: number, done: (error: Error | null) => void) => setImmediate(() => done(null));
    await using store = openStore({ data, nowMs, group: { sync } });
    store.db.exec("CREATE TABLE burst (x INTEGER PRIMARY KEY, text TEXT) STRICT");
    const insert = store.db.prepare("INSERT INTO burst (text) VALUES (?)");
    const text = "x".repeat(400);
    const log = join(data, "pawl.db-wal");
    let largest = 0;
    for (let i = 0; i < 200_000; i += 100) {
      await store.maintain(() => {
        for (let n = 0; n < 100; n++) insert.run(text);
      }, "committed");
      if (i % 5_000 === 0) largest = Math.max(largest, statSync(log).size);
    }
    expect(largest).toBeGreaterThan(1_000_000);
    // 16,000 pages are 64 MiB; what is written while a checkpoint runs comes on top.
    expect(largest).toBeLessThan(2 * 64 * 1_048_576);
  });
});
