import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Sqlite, { type Database } from "better-sqlite3";
import { describe, expect, test, vi } from "vitest";
import { Group, type GroupOptions } from "../../host/store/group.ts";

type Done = (error: Error | null) => void;

/** A group over a real file, with barriers that the test ends by hand, and a second pair of eyes on the file. */
function grouped(options: GroupOptions = {}) {
  const file = join(mkdtempSync(join(tmpdir(), "pawl-group-")), "group.db");
  const db = new Sqlite(file);
  db.pragma("journal_mode = WAL");
  db.exec("CREATE TABLE t (x INTEGER PRIMARY KEY, p INTEGER REFERENCES t (x) DEFERRABLE INITIALLY DEFERRED)");
  const barriers: Done[] = [];
  const group = new Group(db, { logFd: 1, maxMs: 1e9, sync: (_, done) => barriers.push(done), ...options });
  const others = new Sqlite(file, { timeout: 0 });
  const count = (from: Database) => from.prepare("SELECT count(*) FROM t").pluck().get() as number;
  const insert = db.prepare("INSERT INTO t (p) VALUES (?)");
  return {
    group,
    db,
    barriers,
    add: () => group.run(() => insert.run(null)),
    orphan: () => group.run(() => insert.run(999_999)),
    seenByOthers: () => count(others),
    writeByOther: () => others.exec("INSERT INTO t DEFAULT VALUES"),
  };
}

const turn = () => new Promise<void>((resolve) => setImmediate(resolve));

/** Whether a promise has settled by now, without waiting for it. */
function watch(promise: Promise<unknown>) {
  const state = { settled: "no" as "no" | "resolved" | "rejected", error: undefined as unknown };
  promise.then(
    () => (state.settled = "resolved"),
    (error: unknown) => {
      state.settled = "rejected";
      state.error = error;
    },
  );
  return state;
}

describe("commit", () => {
  test("nothing is committed in the turn of the call, everything in the next", async () => {
    const { add, group, seenByOthers } = grouped();
    add();
    add();
    const committed = watch(group.reached("committed"));
    expect(seenByOthers()).toBe(0);
    await turn();
    await turn();
    expect([seenByOthers(), committed.settled]).toEqual([2, "resolved"]);
  });

  test("a group that is full commits at once, though nobody waits (G4)", () => {
    const { add, seenByOthers } = grouped({ maxMs: 1e9 });
    for (let i = 0; i < 63; i++) add();
    expect(seenByOthers()).toBe(0);
    add();
    expect(seenByOthers()).toBe(64);
  });

  test("a group that is old commits at once, though nobody waits (G4)", () => {
    const { add, seenByOthers } = grouped({ maxMs: 0 });
    add();
    expect(seenByOthers()).toBe(1);
  });

  test("a group of applied Changes commits on the next turn, though nobody waits", async () => {
    const { add, group, seenByOthers } = grouped();
    add();
    await group.reached("applied");
    expect(seenByOthers()).toBe(0);
    await turn();
    expect(seenByOthers()).toBe(1);
  });

  test("who fills a group goes on only after a turn of the loop (G4)", async () => {
    const { add, group } = grouped({ maxChanges: 4, maxMs: 1e9 });
    let turns = 0;
    setImmediate(() => turns++);
    for (let i = 0; i < 3; i++) {
      add();
      await group.reached("applied");
    }
    expect(turns).toBe(0);
    add();
    await group.reached("applied");
    expect(turns).toBe(1);
  });

  test("many who wait for a commit all go on, the first of them first (G6)", async () => {
    const { add, group } = grouped();
    const told: number[] = [];
    const tell = async (i: number) => {
      add();
      await group.reached("committed");
      told.push(i);
    };
    await Promise.all(Array.from({ length: 1_000 }, (_, i) => tell(i)));
    expect(told).toEqual(Array.from({ length: 1_000 }, (_, i) => i));
  });
});

describe("the barrier", () => {
  test("durable waits for an fdatasync that began after its COMMIT (G1)", async () => {
    const { add, group, barriers, seenByOthers } = grouped();
    add();
    const durable = watch(group.reached("durable"));
    await turn();
    await turn();
    expect([seenByOthers(), barriers.length, durable.settled]).toEqual([1, 1, "no"]);
    barriers[0]?.(null);
    await turn();
    await turn();
    expect(durable.settled).toBe("resolved");
  });

  test("who commits while a barrier runs waits for the next one, and one runs at a time (G2)", async () => {
    const { add, group, barriers } = grouped();
    add();
    const first = watch(group.reached("durable"));
    await turn();
    add();
    const second = watch(group.reached("durable"));
    await turn();
    expect(barriers).toHaveLength(1);
    barriers[0]?.(null);
    await turn();
    await turn();
    expect([first.settled, second.settled, barriers.length]).toEqual(["resolved", "no", 2]);
    barriers[1]?.(null);
    await turn();
    await turn();
    expect(second.settled).toBe("resolved");
  });

  test("a hundred who wait share one barrier", async () => {
    const { add, group, barriers } = grouped({ maxChanges: 1_000, maxMs: 1e9 });
    const all = Array.from({ length: 100 }, () => {
      add();
      return group.reached("durable");
    });
    await turn();
    barriers[0]?.(null);
    await Promise.all(all);
    expect(barriers).toHaveLength(1);
  });

  test("who asks while a barrier runs that already covers it joins that one", async () => {
    const { add, group, barriers } = grouped();
    add();
    const first = watch(group.reached("durable"));
    await turn();
    const joined = watch(group.reached("durable"));
    barriers[0]?.(null);
    await turn();
    await turn();
    expect([first.settled, joined.settled, barriers.length]).toEqual(["resolved", "resolved", 1]);
    await group.reached("durable");
    expect(barriers).toHaveLength(1);
  });

  test("what nobody waits for is synced all the same, soon (G5)", async () => {
    const { add, barriers } = grouped();
    add();
    await vi.waitFor(() => expect(barriers).toHaveLength(1), { timeout: 5_000 });
  });

  test("what is committed, unawaited, during a barrier gets a barrier of its own (G5)", async () => {
    const { add, group, barriers } = grouped();
    add();
    void group.reached("durable");
    await turn();
    add();
    await turn();
    barriers[0]?.(null);
    await vi.waitFor(() => expect(barriers).toHaveLength(2), { timeout: 5_000 });
  });

  test("without a log to sync, durable is committed", async () => {
    const db = new Sqlite(":memory:");
    const group = new Group(db, {});
    group.run(() => db.exec("CREATE TABLE t (x)"));
    expect(db.inTransaction).toBe(true);
    await group.reached("durable");
    expect(db.inTransaction).toBe(false);
  });
});

describe("breaking (G3)", () => {
  test("a failed barrier rejects everybody, whatever they wait for, and is told once", async () => {
    const onBroken = vi.fn<(error: Error) => void>();
    const { add, group, barriers } = grouped({ onBroken });
    add();
    const covered = watch(group.reached("durable"));
    await turn();
    add();
    const next = watch(group.reached("durable"));
    await turn();
    add();
    const open = [watch(group.reached("committed")), watch(group.reached("durable"))];
    const cause = new Error("EIO: i/o error, fdatasync");
    barriers[0]?.(cause);
    await turn();
    expect([covered, next, ...open].map((one) => one.settled)).toEqual(Array(4).fill("rejected"));
    expect(covered.error).toMatchObject({ code: "store-broken", cause });
    expect(() => add()).toThrow("EIO");
    await expect(group.reached("applied")).rejects.toMatchObject({ code: "store-broken" });
    expect(onBroken.mock.calls).toEqual([[group.broken]]);
    expect(barriers).toHaveLength(1);
  });

  test("a failed COMMIT rejects the whole group, rolls it back and lets the file go", async () => {
    const { add, orphan, group, seenByOthers, writeByOther } = grouped();
    add();
    const good = watch(group.reached("committed"));
    orphan();
    const bad = watch(group.reached("committed"));
    await turn();
    expect([good.settled, bad.settled]).toEqual(["rejected", "rejected"]);
    expect(good.error).toMatchObject({
      code: "store-broken",
      cause: { code: "SQLITE_CONSTRAINT_FOREIGNKEY" },
    });
    expect(seenByOthers()).toBe(0);
    writeByOther();
  });

  test("a COMMIT that fails because the group is full throws at the call that filled it", () => {
    const { add, orphan, group } = grouped({ maxChanges: 2, maxMs: 1e9 });
    add();
    expect(orphan).toThrow("the store stopped");
    expect(group.broken).toMatchObject({ code: "store-broken" });
  });

  test("work that throws may have written half a Change: the group is rolled back", async () => {
    const { add, group, seenByOthers } = grouped();
    add();
    const before = watch(group.reached("committed"));
    const half = () => {
      add();
      throw new Error("half-way");
    };
    expect(() => group.run(half)).toThrow("half-way");
    await turn();
    expect([before.settled, seenByOthers()]).toEqual(["rejected", 0]);
  });

  test("a barrier that succeeds after the store broke still tells the truth to whom it covers", async () => {
    const { add, group, barriers } = grouped();
    add();
    const covered = watch(group.reached("durable"));
    await turn();
    group.break(new Error("something else"));
    barriers[0]?.(null);
    await turn();
    await turn();
    expect(covered.settled).toBe("resolved");
  });
});

describe("closing", () => {
  test("waits for the barrier, and refuses whoever comes later", async () => {
    const { add, group, barriers } = grouped();
    add();
    const applied = watch(group.reached("applied"));
    const closed = watch(group.close());
    expect(() => add()).toThrow("the store is closed");
    await turn();
    await turn();
    expect([applied.settled, closed.settled, barriers.length]).toEqual(["resolved", "no", 1]);
    barriers[0]?.(null);
    await turn();
    await turn();
    expect(closed.settled).toBe("resolved");
  });

  test("during a barrier: the one after it is waited for, too", async () => {
    const { add, group, barriers } = grouped();
    add();
    void group.reached("durable");
    await turn();
    add();
    const closed = watch(group.close());
    await turn();
    barriers[0]?.(null);
    await turn();
    expect([closed.settled, barriers.length]).toEqual(["no", 2]);
    barriers[1]?.(null);
    await turn();
    await turn();
    expect(closed.settled).toBe("resolved");
  });

  test("of a broken store waits only for the barrier that still runs", async () => {
    const { add, group, barriers } = grouped();
    add();
    group.reached("durable").catch(() => undefined);
    await turn();
    group.break(new Error("gone"));
    const closed = watch(group.close());
    await turn();
    expect(closed.settled).toBe("no");
    barriers[0]?.(null);
    await turn();
    await turn();
    expect(closed.settled).toBe("resolved");
  });
});
