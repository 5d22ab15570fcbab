import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import Sqlite from "better-sqlite3";
import { afterEach, describe, expect, test, vi } from "vitest";
import { configure, openStore, type StoreOptions } from "../../host/store/open.ts";
import { deployed, publish } from "../support/chain.ts";

const CHILD = fileURLToPath(new URL("host-child.ts", import.meta.url));
const MIGRATIONS = fileURLToPath(new URL("../../migrations/sqlite", import.meta.url));
const folder = () => mkdtempSync(join(tmpdir(), "pawl-open-"));
const nowMs = () => 1_000;

const children: ChildProcess[] = [];
afterEach(async () => {
  await Promise.all(children.splice(0).map(kill));
});

/** Every file of a folder, byte by byte. */
const bytes = (data: string) =>
  Object.fromEntries(
    readdirSync(data)
      .filter((name) => !name.startsWith("pawl.lock") && !name.endsWith("-shm"))
      .map((name) => [name, readFileSync(join(data, name)).toString("base64")]),
  );

async function host(
  act: "hold" | "publish",
  data: string,
  options: Partial<StoreOptions> = {},
): Promise<{ child: ChildProcess; said: string; lines: AsyncIterableIterator<string> }> {
  const child = spawn(process.execPath, [CHILD, act, data, JSON.stringify(options)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  children.push(child);
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  return { child, said: (await lines.next()).value as string, lines };
}

async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, "exit");
  child.kill("SIGKILL");
  await exit;
}

describe("the durability mode (K2)", () => {
  test.each([
    ["barrier", 1],
    ["full", 2],
  ] as const)("%s: set and in force on the first, second and third open", async (durability, synchronous) => {
    const data = folder();
    for (let i = 0; i < 3; i++) {
      await using store = openStore({ data, nowMs, durability });
      expect([
        store.db.pragma("journal_mode", { simple: true }),
        store.db.pragma("synchronous", { simple: true }),
      ]).toEqual(["wal", synchronous]);
    }
  });

  test("the mode follows the setting, whatever the file was opened with before", async () => {
    const data = folder();
    const seen = [];
    for (const durability of ["full", "barrier", "full"] as const) {
      await using store = openStore({ data, nowMs, durability });
      seen.push(store.db.pragma("synchronous", { simple: true }));
    }
    expect(seen).toEqual([2, 1, 2]);
  });

  test("canary: by itself the database starts at NORMAL when it reopens a WAL file", async () => {
    const data = folder();
    await openStore({ data, nowMs, durability: "full" })[Symbol.asyncDispose]();
    const db = new Sqlite(join(data, "pawl.db"));
    db.prepare("SELECT count(*) FROM meta").get();
    expect(db.pragma("synchronous", { simple: true })).toBe(1);
    db.close();
  });

  test("a database that refuses the mode is refused, with what it said instead", () => {
    const db = new Sqlite(":memory:");
    expect(() => configure(db, "barrier")).toThrow(
      expect.objectContaining({
        code: "store-durability",
        message: "the database refused its durability mode: journal memory, synchronous 1",
      }),
    );
  });

  test("a new database can give space back, and is checked for foreign keys", async () => {
    await using store = openStore({ data: folder(), nowMs });
    expect(store.db.pragma("auto_vacuum", { simple: true })).toBe(2);
    expect(store.db.pragma("foreign_keys", { simple: true })).toBe(1);
  });
});

describe("one host per folder (K1)", () => {
  test("a second process is refused before it touches anything; kill -9 frees the lock at once", async () => {
    const data = folder();
    const { child, said } = await host("hold", data, { checkpoints: false });
    expect(said).toBe("open");
    const before = bytes(data);
    expect(() => openStore({ data, nowMs })).toThrow(
      expect.objectContaining({ code: "store-locked", message: expect.stringContaining(data) as string }),
    );
    expect((await host("hold", data)).said).toBe("failed store-locked");
    expect(bytes(data)).toEqual(before);
    await kill(child);
    await using store = openStore({ data, nowMs });
    expect(store.fence.incarnation).toBeGreaterThan(0);
  });

  test("a second store in the same process is refused, and leaves the first one its lock", async () => {
    const data = folder();
    await using store = openStore({ data, nowMs });
    for (let i = 0; i < 2; i++)
      expect(() => openStore({ data, nowMs })).toThrow(expect.objectContaining({ code: "store-locked" }));
    expect((await host("hold", data)).said).toBe("failed store-locked");
    expect(await store.nextDueAt()).toBeUndefined();
  });

  test("a clean close frees it", async () => {
    const data = folder();
    await openStore({ data, nowMs })[Symbol.asyncDispose]();
    await openStore({ data, nowMs })[Symbol.asyncDispose]();
    expect(existsSync(join(data, "pawl.db-wal"))).toBe(false);
  });

  test("a folder that does not exist is made; a file in its place is named", async () => {
    const data = join(folder(), "a", "b");
    await openStore({ data, nowMs })[Symbol.asyncDispose]();
    expect(existsSync(join(data, "pawl.db"))).toBe(true);
    expect(() => openStore({ data: join(data, "pawl.db"), nowMs })).toThrow(
      expect.objectContaining({ code: "store-unreadable", message: expect.stringContaining(data) as string }),
    );
  });

  test("a file that is no database is refused, untouched", () => {
    const data = folder();
    writeFileSync(join(data, "pawl.db"), "hello, this is not a database at all".repeat(100));
    const before = bytes(data);
    for (let i = 0; i < 2; i++)
      expect(() => openStore({ data, nowMs })).toThrow(expect.objectContaining({ code: "store-unreadable" }));
    expect(bytes(data)).toEqual(before);
  });
});

/** The real migrations, and one more. */
function withMigration(sql: string): string {
  const into = folder();
  for (const name of readdirSync(MIGRATIONS)) copyFileSync(join(MIGRATIONS, name), join(into, name));
  const number = String(readdirSync(MIGRATIONS).length + 1).padStart(4, "0");
  writeFileSync(join(into, `${number}-more.sql`), sql);
  return into;
}

describe("migrations", () => {
  test("a newer database is refused, byte for byte as it was, also when its host was killed (K4)", async () => {
    const data = folder();
    const migrations = withMigration("CREATE TABLE more (x INTEGER) STRICT;");
    const { child } = await host("hold", data, { migrations });
    await kill(child);
    const before = bytes(data);
    expect(Object.keys(before)).toContain("pawl.db-wal");
    for (let i = 0; i < 2; i++)
      expect(() => openStore({ data, nowMs })).toThrow(expect.objectContaining({ code: "store-newer" }));
    expect(bytes(data)).toEqual(before);
    await openStore({ data, nowMs, migrations })[Symbol.asyncDispose]();
  });

  test("a database whose migration ran with other content is refused, untouched (K4)", async () => {
    const data = folder();
    const [one, two] = ["one", "two"].map((name) =>
      withMigration(`CREATE TABLE ${name} (x INTEGER) STRICT;`),
    );
    await openStore({ data, nowMs, migrations: one as string })[Symbol.asyncDispose]();
    const before = bytes(data);
    expect(() => openStore({ data, nowMs, migrations: two as string })).toThrow(
      expect.objectContaining({ code: "store-migrated-differently" }),
    );
    expect(bytes(data)).toEqual(before);
  });

  test("each migration runs once, in order, and is on record", async () => {
    const data = folder();
    const migrations = withMigration("CREATE TABLE more (x INTEGER) STRICT; INSERT INTO more VALUES (1);");
    for (let i = 0; i < 2; i++) {
      await using store = openStore({ data, nowMs, migrations });
      expect(store.db.prepare("SELECT count(*) FROM more").pluck().get()).toBe(1);
      expect(store.db.prepare("SELECT number FROM migrations").pluck().all()).toEqual(
        readdirSync(migrations).map((_, index) => index + 1),
      );
    }
  });

  test("one whose second statement fails leaves nothing of itself, and frees the folder", async () => {
    const data = folder();
    await openStore({ data, nowMs })[Symbol.asyncDispose]();
    const migrations = withMigration("CREATE TABLE more (x INTEGER) STRICT; INSERT INTO nowhere VALUES (1);");
    expect(() => openStore({ data, nowMs, migrations })).toThrow("nowhere");
    await using store = openStore({ data, nowMs });
    expect(store.db.prepare("SELECT name FROM sqlite_schema WHERE name = 'more'").all()).toEqual([]);
  });

  test("one killed half-way leaves the one before it, and the next start finishes it", async () => {
    const data = folder();
    const endless = withMigration(
      `CREATE TABLE more (x TEXT) STRICT;
       WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
       INSERT INTO more SELECT hex(randomblob(1000)) FROM n;`,
    );
    const child = spawn(process.execPath, [CHILD, "hold", data, JSON.stringify({ migrations: endless })], {
      stdio: ["ignore", "ignore", "inherit"],
    });
    children.push(child);
    const log = join(data, "pawl.db-wal");
    await vi.waitFor(() => expect(statSync(log).size).toBeGreaterThan(70_000_000), {
      timeout: 50_000,
      interval: 20,
    });
    await kill(child);
    await using store = openStore({ data, nowMs });
    expect(store.db.prepare("SELECT name FROM sqlite_schema WHERE name = 'more'").all()).toEqual([]);
    await store[Symbol.asyncDispose]();
    const migrations = withMigration("CREATE TABLE more (x TEXT) STRICT; INSERT INTO more VALUES ('done');");
    await using finished = openStore({ data, nowMs, migrations });
    expect(finished.db.prepare("SELECT x FROM more").pluck().all()).toEqual(["done"]);
    const workflow = await deployed(finished, "orders", 1_000);
    expect((await publish(finished, workflow, ["a"], 1_000)).ok).toBe(true);
  });

  test("a gap in the numbers is a programmer's error, found before the database is opened", () => {
    const migrations = join(folder(), "gap");
    mkdirSync(migrations);
    writeFileSync(join(migrations, "0002-late.sql"), "SELECT 1;");
    const data = folder();
    expect(() => openStore({ data, nowMs, migrations })).toThrow("without gaps");
    expect(existsSync(join(dirname(join(data, "x")), "pawl.db"))).toBe(false);
  });
});

test("1.3 a host knows when none was there: from the last sign of the one before it", async () => {
  const data = folder();
  let nowMs = 1_000;
  const first = openStore({ data, nowMs: () => nowMs });
  expect(first.downtime).toEqual([]);
  nowMs = 5_000;
  await first[Symbol.asyncDispose]();
  nowMs = 9_000;
  await using second = openStore({ data, nowMs: () => nowMs });
  expect(second.downtime).toEqual([{ fromMs: 5_000, toMs: 9_000 }]);
});
