// What a host does about its data before and while it works: open work is examined, a backup is settled, old records go.
import { copyFileSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Sqlite from "better-sqlite3";
import { afterAll, expect, test } from "vitest";
import { createHost, type HostEvent, type HostOptions } from "../../host/index.ts";
import { backup } from "../../host/store/backup.ts";
import { DATABASE, openStore } from "../../host/store/open.ts";
import { TestClock } from "../support/test-clock.ts";

const folder = mkdtempSync(join(tmpdir(), "pawl-startup-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const MONDAY = Date.UTC(2026, 0, 5, 8);
const DAY = 86_400_000;

const scriptOf = (body: string) => `import { producer, topic, workflow } from "pawl";
export default workflow({
  name: "w",
  topics: { a: topic({ output: true }) },
  producers: { p: producer({ schedule: { interval: "7d" }, publishes: ["a"], handler(ctx) { ${body} } }) },
});`;

/** One life of a host in which its producer runs once. */
async function lived(data: string, body: string, options: HostOptions = {}): Promise<void> {
  const { promise: ended, resolve } = Promise.withResolvers<void>();
  await using host = createHost({
    ...options,
    data,
    observe: (event) => {
      if (event.kind === "run.ended") resolve();
    },
  });
  await host.start();
  await host.deploy({ source: scriptOf(body) });
  await ended;
}

test("7 a start examines the open work and reports a breach loudly; nothing is repaired", async () => {
  const data = join(folder, "breach");
  await lived(data, 'throw new Error("no")');
  const db = new Sqlite(join(data, DATABASE));
  db.prepare("DELETE FROM inbox").run();
  db.close();
  const { promise: warned, resolve } = Promise.withResolvers<HostEvent>();
  await using host = createHost({
    data,
    observe: (event) => {
      if (event.kind === "engine.warning") resolve(event);
    },
  });
  await host.start();
  expect(await warned).toMatchObject({
    message: expect.stringMatching(
      /^invariant 21 is broken in workflow \d+, run pawl doctor: .*a person who is told/,
    ),
  });
  expect((await host.runs({ open: true })).items.map(({ run }) => run.status)).toEqual(["failed:logic"]);
});

test("7 a backup that lies in the data folder is settled before anything runs, and start says so", async () => {
  const [data, copy] = [join(folder, "lost"), join(folder, "found")];
  await lived(data, 'ctx.publish("a", { messageId: "1", payload: {} });');
  const store = openStore({ data, nowMs: () => Date.now() });
  const backedUpAtMs = Date.now();
  await backup(store, join(folder, "the-backup"), backedUpAtMs);
  await store[Symbol.asyncDispose]();
  mkdirSync(copy);
  copyFileSync(join(folder, "the-backup"), join(copy, DATABASE));
  await using host = createHost({ data: copy });
  expect(await host.start()).toEqual({ recovered: 0, restored: { backedUpAtMs, workflows: 1, epoch: 2 } });
  expect(await host.workflow("w")).toMatchObject({ paused: true });
  await host.resume("w");
  expect(await host.workflow("w")).toMatchObject({ paused: false });
});

test("10 a host tidies up: what has outlived its retention goes", async () => {
  const data = join(folder, "old");
  await lived(data, 'ctx.log.info("hello");', { clock: new TestClock(MONDAY) });
  const clock = new TestClock(MONDAY + 20 * DAY);
  await using host = createHost({ data, clock });
  await host.start();
  await host.pause("w");
  const db = new Sqlite(join(data, DATABASE), { readonly: true });
  const old = db.prepare("SELECT count(*) FROM logs WHERE at < ?").pluck();
  expect(old.get(MONDAY + DAY)).toBe(1);
  await clock.pass(11 * 60_000, async () => {});
  while (old.get(MONDAY + DAY) !== 0) await new Promise((resolve) => setImmediate(resolve));
  db.close();
});
