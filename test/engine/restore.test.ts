// A store that comes from a backup (02 §7): what happened since is known outside and nowhere here.
import { copyFileSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { backup } from "../../host/store/backup.ts";
import { openStore } from "../../host/store/open.ts";
import { openSettled } from "../../host/store/restored.ts";
import {
  ANN,
  harness,
  type Harness,
  HOUR,
  MINUTE,
  nothing,
  post,
  publishing,
  type Spec,
  take,
} from "../support/host-harness.ts";

const folder = mkdtempSync(join(tmpdir(), "pawl-restore-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
let files = 0;

async function backedUp(h: Harness): Promise<string> {
  const file = join(folder, `backup-${++files}`);
  await backup(h.store, file, h.clock.nowMs());
  return file;
}

const booking = (): Spec => ({
  consumers: { book: { on: "order", prepare: take("order"), mutate: post, next: nothing } },
});
const rows = (h: Harness) => h.store.db.prepare("SELECT status FROM mutations ORDER BY id").pluck().all();
const paused = (h: Harness) =>
  h.store.db.prepare("SELECT paused FROM workflows ORDER BY id").pluck().all() as number[];

describe.each(["by command", "by hand"] as const)("restored %s", (how) => {
  test("7 every workflow is paused under a new epoch, a person is told the gap, and resumes each", async () => {
    await using h = await harness({ file: true });
    await h.deploy("w", {
      producers: { tick: { every: "1h", publishes: ["order"], handler: publishing("order", "a") } },
      ...booking(),
    });
    await h.deploy("x", { producers: { tock: { every: "1h", handler: nothing } } });
    const file = await backedUp(h);
    const fromMs = h.clock.nowMs();
    const epoch = h.store.fence.epoch;
    await h.pass(2 * HOUR);
    await h.restore(file, how, 30 * MINUTE);
    const toMs = h.clock.nowMs();
    expect(h.store.fence.epoch).toBe(epoch + 1);
    expect(paused(h)).toEqual([1, 1]);
    const told = h.store.db
      .prepare("SELECT detail_json FROM inbox WHERE kind = 'missed_schedule' AND closed_at IS NULL")
      .pluck()
      .all() as string[];
    expect(told.map((one) => JSON.parse(one) as unknown)).toEqual([
      { restored: true, fromMs, toMs },
      { restored: true, fromMs, toMs },
    ]);
    const before = h.runs().length;
    await h.pass(3 * HOUR);
    expect(h.runs().length).toBe(before);
    await h.act(h.operator.resume(h.id("x"), ANN));
    expect(h.run("tock")).toMatchObject({ status: "committed", trigger: "due" });
    expect(paused(h)).toEqual([1, 0]);
  });

  test("7 a call that was on its way is checked while all is paused, and never sent again", async () => {
    await using h = await harness({ file: true });
    h.world.onSend = () => new Promise(() => {});
    h.world.onCheck = () => ({ says: "applied" });
    await h.deploy("w", booking());
    await h.feed("order", "a");
    expect(rows(h)).toEqual(["in_flight"]);
    await h.restore(await backedUp(h), how);
    expect(rows(h)).toEqual(["applied"]);
    expect(h.run("book")).toMatchObject({ status: "paused:reconciliation", phase: "mutated", attempt: 2 });
    await h.act(h.operator.resume(h.id(), ANN));
    expect(h.run("book")).toMatchObject({ status: "committed", outcome: "applied" });
    expect(h.world.sent.length).toBe(1);
  });

  test("7 no approval survives: not of the call that was shown, nor of those to come", async () => {
    await using h = await harness({ file: true });
    h.world.tool_ = { grant: "approve" };
    await h.deploy("w", booking());
    await h.feed("order", "a");
    await h.act(h.operator.pause(h.id(), ANN));
    await h.decide("book", { action: "approve", scope: { next: 5 } });
    await h.restore(await backedUp(h), how);
    await h.act(h.operator.resume(h.id(), ANN));
    expect(h.statuses("book").at(-1)).toBe("paused:approval approval");
    expect(h.inbox()).toContain("approval");
    expect(h.world.sent).toEqual([]);
    await h.decide("book", { action: "approve" });
    await h.feed("order", "b");
    expect(h.statuses("book").at(-1)).toBe("paused:approval approval");
    expect(h.world.sent.length).toBe(1);
  });

  test("7 what was done between the backup and the loss gets another key when it is done again", async () => {
    await using h = await harness({ file: true });
    await h.deploy("w", booking());
    await h.act(h.operator.pause(h.id(), ANN));
    await h.feed("order", "a");
    const file = await backedUp(h);
    await h.act(h.operator.resume(h.id(), ANN));
    expect(h.run("book").status).toBe("committed");
    await h.restore(file, how);
    expect(h.deliveries("book")).toEqual(["a pending"]);
    await h.act(h.operator.resume(h.id(), ANN));
    expect(new Set(h.world.sent.map((call) => call.idempotencyKey)).size).toBe(2);
  });
});

test("7 a restore that was killed half-way is finished by the next start, under the same epoch", async () => {
  await using h = await harness({ file: true });
  await h.deploy("w", booking());
  await h.deploy("x", booking());
  const { epoch } = h.store.fence;
  const data = join(folder, "half-way");
  const file = await backedUp(h);
  mkdirSync(data);
  copyFileSync(file, join(data, "pawl.db"));
  const nowMs = () => h.clock.nowMs();
  // Opened, and nothing settled yet.
  const opened = openStore({ data, nowMs });
  expect(opened.restoring).toBe(h.clock.nowMs());
  await opened[Symbol.asyncDispose]();
  const first = await openSettled({ data, nowMs });
  expect(first.restored).toEqual({ backedUpAtMs: h.clock.nowMs(), workflows: 2, epoch: epoch + 1 });
  await first.store[Symbol.asyncDispose]();
  const again = await openSettled({ data, nowMs });
  expect(again.restored).toBeUndefined();
  expect(again.store.fence.epoch).toBe(epoch + 1);
  expect(again.store.db.prepare("SELECT count(*) FROM inbox").pluck().get()).toBe(2);
  await again.store[Symbol.asyncDispose]();
});
