import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Sqlite from "better-sqlite3";
import { describe, expect, test } from "vitest";
import { awaitApproval, intended, prepared, sending } from "../../host/core/advance.ts";
import type { Change } from "../../host/core/change.ts";
import type { RunFacts, WorkflowFacts } from "../../host/core/facts.ts";
import type { Mutation } from "../../host/core/mutation.ts";
import { decide } from "../../host/core/resolve.ts";
import { backup, restore } from "../../host/store/backup.ts";
import { inspect } from "../../host/store/doctor.ts";
import { openStore, type SqliteStore } from "../../host/store/open.ts";
import { verify } from "../../host/store/verify.ts";
import { begin, deployed, ledgerRow, must, publish, wholeRun } from "../support/chain.ts";

const folder = () => mkdtempSync(join(tmpdir(), "pawl-backup-"));
const open = (data = folder()) => openStore({ data, nowMs: () => 5_000 });
const later = () => 90_000;

async function act(
  store: SqliteStore,
  run: number,
  verb: (facts: RunFacts & { mutation: Mutation }) => Change,
): Promise<RunFacts> {
  await must(store, verb((await store.run(run)) as RunFacts & { mutation: Mutation }));
  return (await store.run(run)) as RunFacts;
}

/** A run at `mutating` with its decision on record. */
async function intending(store: SqliteStore, name: string): Promise<RunFacts> {
  const workflow = await deployed(store, name, 1_000);
  await publish(store, workflow, ["a"], 1_000);
  const { run, handler } = await begin(store, workflow, 2_000);
  const reservations = (await store.pending(handler.id, "order", { limit: 9 })).map((one) => one.delivery);
  await act(store, run.id, (facts) => prepared(facts, { json: "{}", reservations }, 2_000));
  return act(store, run.id, (facts) => intended(facts, ledgerRow(store, facts, 2_000), 2_000));
}

const send = ({ mutation }: { mutation: Mutation }) => ({
  n: 1,
  atMs: 2_000,
  bytesHash: "b",
  idempotencyKey: mutation.idempotencyKey,
});

/** Backs a store up, restores it and opens the result. */
async function roundTrip(store: SqliteStore): Promise<SqliteStore> {
  const file = join(folder(), "pawl.backup");
  await backup(store, file, 6_000);
  const data = join(folder(), "restored");
  await restore(file, data, later);
  return openStore({ data, nowMs: later });
}

const sound = (store: SqliteStore) => [...inspect(store.db), ...verify(store.db)];

describe("backup", () => {
  test("under write load: holds everything acknowledged before, and restores to a sound store (P1)", async () => {
    await using store = open();
    const workflows = await Promise.all(Array.from({ length: 8 }, (_, i) => deployed(store, `w${i}`, 1_000)));
    let stop = false;
    const load = workflows.map(async (workflow, i) => {
      for (let n = 0; !stop; n++) {
        await publish(store, workflow, [`${i}-${n}`], 1_000);
        await wholeRun(store, workflow, 2_000);
      }
    });
    await publish(store, workflows[0] as number, ["before"], 1_500);
    const file = join(folder(), "sub", "pawl.backup");
    await backup(store, file, 6_000);
    stop = true;
    await Promise.all(load);
    const data = join(folder(), "restored");
    expect(await restore(file, data, later)).toEqual({ backedUpAtMs: 6_000, workflows: 8, epoch: 2 });
    await using restored = openStore({ data, nowMs: later });
    expect(sound(restored)).toEqual([]);
    expect(restored.db.prepare("SELECT count(*) FROM events WHERE message_id = 'before'").pluck().get()).toBe(
      1,
    );
    expect(sound(store)).toEqual([]);
  });

  test("never writes over a file, and leaves nothing behind when it fails", async () => {
    await using store = open();
    const into = folder();
    const taken = join(into, "taken");
    writeFileSync(taken, "mine");
    await expect(backup(store, taken, 1)).rejects.toMatchObject({ code: "backup-target-taken" });
    expect(readFileSync(taken, "utf8")).toBe("mine");
    mkdirSync(join(into, "x.partial", "in the way"), { recursive: true });
    await expect(backup(store, join(into, "x"), 1)).rejects.toMatchObject({ code: "backup-failed" });
    expect(readdirSync(into).toSorted()).toEqual(["taken", "x.partial"]);
    await must(store, {
      verb: "still-works",
      workflow: await store.workflowId("default", "w", 1),
      atMs: 1,
      expect: {},
      writes: [],
    });
  });
});

describe("restore", () => {
  test("a new epoch, ids far beyond the old ones, every workflow paused with the gap named (P3, L1)", async () => {
    await using store = open();
    const names = ["one", "two", "three"];
    for (const name of names) await deployed(store, name, 1_000);
    const file = join(folder(), "pawl.backup");
    await backup(store, file, 6_000);
    const handedOutSince = store.newId() + 100_000_000;
    const data = join(folder(), "restored");
    await restore(file, data, later);
    await using restored = openStore({ data, nowMs: later });
    expect(restored.fence.epoch).toBe(store.fence.epoch + 1);
    expect(restored.newId()).toBeGreaterThan(handedOutSince);
    expect(restored.fence.incarnation).toBeGreaterThan(handedOutSince);
    expect(restored.db.prepare("SELECT paused, due_at FROM workflows").all()).toEqual(
      names.map(() => ({ paused: 1, due_at: null })),
    );
    expect(restored.db.prepare("SELECT kind, detail_json FROM inbox WHERE closed_at IS NULL").all()).toEqual(
      names.map(() => ({
        kind: "missed_schedule",
        detail_json: '{"restored":true,"fromMs":6000,"toMs":90000}',
      })),
    );
    expect(await restored.due(9e12, 9)).toEqual([]);
    expect(readdirSync(data).filter((name) => !/^pawl\.(db|lock)/.test(name))).toEqual([]);
  });

  test("a call that may have left is checked, never repeated (L2)", async () => {
    await using store = open();
    const { run, mutation } = await intending(store, "orders");
    await act(store, run.id, (facts) => sending(facts, send(facts), 2_000));
    await using restored = await roundTrip(store);
    const facts = (await restored.workflow(run.workflow)) as WorkflowFacts;
    const now = (await restored.run(facts.openRun?.id as number)) as RunFacts;
    expect(now.run).toMatchObject({ status: "paused:reconciliation", retryOf: run.id, phase: "mutating" });
    expect(now.mutation).toMatchObject({ id: mutation?.id, status: "needs_reconcile", sends: 1 });
    expect(
      restored.db.prepare("SELECT count(*) FROM mutations WHERE status = 'in_flight'").pluck().get(),
    ).toBe(0);
    expect(await restored.checksDue(later(), 9)).toEqual([now.run.id]);
    expect(sound(restored)).toEqual([]);
  });

  test("no approval survives: it is asked again (L3)", async () => {
    await using store = open();
    const { run } = await intending(store, "orders");
    await act(store, run.id, (facts) => awaitApproval(facts, store.newId(), 2_100));
    await act(store, run.id, (facts) =>
      decide(
        facts,
        { action: "approve", scope: { next: 3 } },
        { by: "ada", atMs: 2_200, down: [], canCheck: false },
      ),
    );
    expect((await store.workflow(run.workflow))?.approvals).toMatchObject([{ by: "ada", remaining: 3 }]);
    await using restored = await roundTrip(store);
    const now = (await restored.run(run.id)) as RunFacts;
    expect(now.run).toMatchObject({ status: "paused:approval", pauseReason: "approval", open: true });
    expect(now.run).not.toHaveProperty("readyAtMs");
    expect(now.run).not.toHaveProperty("resolution");
    expect(
      restored.db.prepare("SELECT kind FROM inbox WHERE closed_at IS NULL AND run = ?").pluck().all(run.id),
    ).toEqual(["approval"]);
    expect(await restored.workflow(run.workflow)).not.toHaveProperty("approvals");
    expect(sound(restored)).toEqual([]);
  });

  test("a run that was active before its decision is ready again, behind the pause", async () => {
    await using store = open();
    const workflow = await deployed(store, "orders", 1_000);
    const { run } = await begin(store, workflow, 2_000);
    await using restored = await roundTrip(store);
    expect(((await restored.run(run.id)) as RunFacts).run).toMatchObject({ status: "crashed", open: true });
    expect(await restored.due(9e12, 9)).toEqual([]);
    expect(await restored.interrupted(9)).toEqual([]);
    expect(sound(restored)).toEqual([]);
  });

  test("a folder that holds anything is refused, untouched (P2)", async () => {
    await using store = open();
    const file = join(folder(), "pawl.backup");
    await backup(store, file, 6_000);
    const data = folder();
    writeFileSync(join(data, "pawl.db"), "mine");
    await expect(restore(file, data, later)).rejects.toMatchObject({ code: "backup-target-taken" });
    expect(readdirSync(data)).toEqual(["pawl.db"]);
  });

  test("killed half-way it leaves no store, and can be started again (P2)", async () => {
    await using store = open();
    await deployed(store, "orders", 1_000);
    const file = join(folder(), "pawl.backup");
    await backup(store, file, 6_000);
    const data = folder();
    mkdirSync(join(data, ".restoring"));
    copyFileSync(file, join(data, ".restoring", "pawl.db"));
    expect(existsSync(join(data, "pawl.db"))).toBe(false);
    await restore(file, data, later);
    await using restored = openStore({ data, nowMs: later });
    expect(restored.fence.epoch).toBe(2);
  });

  test.each([
    ["nothing there", undefined],
    ["no database", "not a database, not a database, not a database"],
  ])("%s is no backup", async (_, text) => {
    const file = join(folder(), "file");
    if (text !== undefined) writeFileSync(file, text);
    const data = join(folder(), "restored");
    await expect(restore(file, data, later)).rejects.toMatchObject({ code: "backup-unusable" });
    expect(existsSync(data)).toBe(false);
  });

  test("neither is a damaged one, nor a database of somebody else", async () => {
    await using store = open();
    const workflow = await deployed(store, "orders", 1_000);
    for (let i = 0; i < 50; i++) await publish(store, workflow, [`${i}`], 1_000);
    const file = join(folder(), "pawl.backup");
    await backup(store, file, 6_000);
    const bytes = readFileSync(file);
    bytes.fill(0x5a, 4_096 * 5, 4_096 * 12);
    writeFileSync(file, bytes);
    const data = join(folder(), "restored");
    await expect(restore(file, data, later)).rejects.toMatchObject({ code: "backup-unusable" });
    const other = join(folder(), "other.db");
    const db = new Sqlite(other);
    db.exec("CREATE TABLE t (x)");
    db.close();
    await expect(restore(other, data, later)).rejects.toMatchObject({ code: "backup-unusable" });
    expect(existsSync(data)).toBe(false);
  });
});
