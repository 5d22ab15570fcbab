import { describe, expect, test } from "vitest";
import { close, closeProblem, type Closing, settleSchedule } from "../../host/core/close.ts";
import type { Run } from "../../host/core/run.ts";
import {
  facts,
  type Given,
  handlerSet,
  ID,
  MINUTE,
  moved,
  NOW,
  opened,
  rowSet,
  runSet,
  sound,
  writes,
} from "../support/facts.ts";

const RESOLUTION = { by: "ann", action: "close", atMs: NOW };
const shut = (given: Given, deliveries: Closing["deliveries"] = "release", inbox?: number) =>
  sound(
    close(
      facts(given),
      { deliveries, resolution: RESOLUTION, ending: { handler: {}, slots: [] }, inbox },
      NOW,
    ),
  );
const failed: Partial<Run> = { status: "failed:logic", endedAtMs: NOW - 1 };

describe("1.7 a chain that ends without commit", () => {
  test("1.7 is closed for good, in one Change, and the workflow is free", () => {
    const change = shut({ run: failed });
    expect(runSet(change)).toEqual({ open: false, readyAtMs: null, resolution: RESOLUTION });
    expect(writes(change, "workflow.set")[0]?.set).toEqual({ openRun: null });
    expect(writes(change, "inbox.close")[0]).toEqual({ do: "inbox.close", run: ID.run });
  });

  test("1.7 uses its trigger up: wakeAt at or before its start is cleared, a later one stays", () => {
    const wake = (wakeAtMs: number) => handlerSet(shut({ run: failed, handler: { wakeAtMs } }));
    expect(wake(NOW - MINUTE)).toEqual({ wakeAtMs: null });
    expect(wake(NOW - MINUTE + 1)).toEqual({});
  });

  test("1.7 released deliveries do not trigger by themselves", () => {
    const change = shut({
      run: { status: "paused:approval", phase: "mutating" },
      row: "proposed",
      reserved: [1],
    });
    expect(moved(change)).toEqual({ 1: "pending" });
    expect(handlerSet(change)).toEqual({});
    expect(rowSet(change)).toEqual({ status: "failed", notSent: true });
    expect(runSet(change)).toMatchObject({ endedAtMs: NOW, outcome: "failed" });
  });

  test.each([
    ["skip", "skipped"],
    ["dead", "dead"],
    ["consume", "consumed"],
  ] as const)("1.7 an ending that does %s triggers for what is still pending (1.5)", (how, to) => {
    const change = shut({ run: { phase: "emitting", ...failed }, row: "applied", reserved: [1, 2] }, how);
    expect(moved(change)).toEqual({ 1: to, 2: to });
    expect(handlerSet(change)).toEqual({ triggerIfPending: true });
  });

  test("6 skip and dead reach what the failed attempt had already given back", () => {
    expect(moved(shut({ run: failed, released: [7, 8] }, "skip"))).toEqual({ 7: "skipped", 8: "skipped" });
    expect(moved(shut({ run: failed, released: [7] }, "release"))).toEqual({});
  });

  test("1.10 released to a consumer that is gone: orphaned, and a person is asked", () => {
    const given = {
      run: { status: "paused:approval" as const, phase: "mutating" as const },
      row: "proposed" as const,
      reserved: [1],
      active: { orphaned: true },
    };
    expect(opened(shut(given, "release", ID.inbox))).toEqual(["orphaned"]);
    expect(() => shut(given)).toThrow("nobody would be asked");
    expect(opened(shut(given, "skip"))).toEqual([]);
  });
});

describe("6 when a chain may be closed", () => {
  test.each<[string, Given, boolean, string | undefined]>([
    ["active", {}, true, "active"],
    ["row in_flight", { run: { status: "crashed" }, row: "in_flight" }, true, "unknown-outcome"],
    [
      "row needs_reconcile",
      { run: { status: "paused:reconciliation" }, row: "needs_reconcile" },
      true,
      "unknown-outcome",
    ],
    [
      "row indeterminate",
      { run: { status: "paused:reconciliation" }, row: "indeterminate" },
      true,
      "unknown-outcome",
    ],
    ["row applied", { run: failed, row: "applied" }, false, "past-boundary"],
    ["row skipped", { run: failed, row: "skipped" }, false, "past-boundary"],
    ["row applied, forced", { run: failed, row: "applied" }, true, undefined],
    ["row failed", { run: failed, row: "failed" }, false, undefined],
    ["row proposed", { run: { status: "paused:approval" }, row: "proposed" }, false, undefined],
    ["no row", { run: failed }, false, undefined],
  ])("6 %s", (_, given, force, expected) => {
    expect(closeProblem(facts(given), force)).toBe(expected);
  });
});

describe("1.2, 1.3 what an ending does to the schedule", () => {
  const producer = (run: Partial<Run>, handler: Given["handler"] = {}, active: Given["active"] = {}) =>
    facts({
      run: { kind: "producer", chainStartedAtMs: NOW, ...run },
      handler: { anchorMs: NOW - 10 * MINUTE, nextRunAtMs: NOW - 10 * MINUTE, ...handler },
      active,
    });
  const slot = { firstDueMs: NOW - 10 * MINUTE, newestDueMs: NOW };
  const due = { trigger: { reason: "due" as const, atMs: NOW, slot } };

  test.each(["ran", "failed", "skipped"] as const)(
    "1.3 the newest due point %s, the older ones are coalesced into the run",
    (how) => {
      const { slots } = settleSchedule(producer(due), how, []);
      expect(slots.map(({ fate, count, run }) => [fate, count, run])).toEqual([
        ["coalesced", 2, ID.run],
        [how, 1, ID.run],
      ]);
    },
  );

  test("1.3 missed while the host was down", () => {
    const down = [{ fromMs: NOW - 11 * MINUTE, toMs: NOW - 6 * MINUTE }];
    const { slots } = settleSchedule(producer(due), "ran", down);
    expect(slots.map(({ fate, count }) => [fate, count])).toEqual([
      ["missed", 1],
      ["coalesced", 1],
      ["ran", 1],
    ]);
  });

  test("1.2 the grid is kept: the next point after the newest one answered", () => {
    expect(settleSchedule(producer(due), "ran", []).handler).toEqual({ nextRunAtMs: NOW + 5 * MINUTE });
  });

  test("1.2 a manual or deploy run re-anchors, and is not a slot", () => {
    const { handler, slots } = settleSchedule(
      producer({ trigger: { reason: "queued", atMs: NOW, manual: true } }),
      "ran",
      [],
    );
    expect(slots).toEqual([]);
    expect(handler).toEqual({ anchorMs: NOW, nextRunAtMs: NOW + 5 * MINUTE });
  });

  test("1.2 a manual run that found points due answers those too", () => {
    const { slots, handler } = settleSchedule(
      producer({ trigger: { reason: "queued", atMs: NOW, manual: true, slot } }),
      "ran",
      [],
    );
    expect(slots.at(-1)).toMatchObject({ fate: "ran", toMs: NOW });
    expect(handler).toEqual({ anchorMs: NOW, nextRunAtMs: NOW + 5 * MINUTE });
  });

  test("1.10 a plan that a deploy made while the chain was open stands", () => {
    const active = { schedule: { interval: "1h", intervalMs: 60 * MINUTE }, anchorMs: NOW + MINUTE };
    const { handler, slots } = settleSchedule(producer(due, {}, active), "ran", []);
    expect(handler).toEqual({});
    expect(slots.map(({ fate, count }) => [fate, count])).toEqual([
      ["coalesced", 2],
      ["ran", 1],
    ]);
  });

  test("1.10 a dropped producer's slot gets its fate, its schedule stays off", () => {
    const { handler, slots } = settleSchedule(producer(due, {}, { orphaned: true }), "ran", []);
    expect(handler).toEqual({});
    expect(slots).not.toEqual([]);
  });

  test("1.3 consumers have no slots", () => {
    expect(settleSchedule(facts(), "ran", [])).toEqual({ handler: {}, slots: [] });
  });
});
