import { describe, expect, test } from "vitest";
import { firstUnits, start, unitsAt } from "../../host/core/start.ts";
import {
  attempt,
  consumer,
  created,
  handlerSet,
  ID,
  NOW,
  opened,
  producer,
  sound,
  workflow,
  writes,
} from "../support/facts.ts";

const EVENT = { reason: "event" as const, atMs: NOW - 1 };
const DUE = { reason: "due" as const, atMs: NOW, slot: { firstDueMs: NOW, newestDueMs: NOW } };
const begin = (handler = consumer(), more = {}, how = {}) =>
  sound(start(workflow(more), handler, handler.kind === "producer" ? DUE : EVENT, attempt(how), NOW));

describe("2 a new chain", () => {
  test("2 a consumer begins at preparing, a producer at executing, both active and open", () => {
    const first = { status: "active", open: true, attempt: 1, retries: 0, crashes: 0, redos: 0, revision: 1 };
    expect(created(begin())).toMatchObject({
      ...first,
      phase: "preparing",
      kind: "consumer",
      trigger: EVENT,
    });
    expect(created(begin(producer()))).toMatchObject({
      ...first,
      phase: "executing",
      kind: "producer",
      trigger: DUE,
    });
  });

  test("3 it is its own root, on the active version, and no retry", () => {
    const run = created(begin());
    expect(run).toMatchObject({ id: ID.next, rootId: ID.next, version: 3, startSeq: 40 });
    expect(run).not.toHaveProperty("retryOf");
  });

  test("1.1 it takes the workflow, and is refused if anything of that kind happened since", () => {
    const change = begin();
    expect(change.expect).toEqual({ workflowRevision: 5 });
    expect(writes(change, "workflow.set")[0]?.set.openRun).toBe(ID.next);
  });

  test("10 the dispatch is in the Change that creates the run, before the unit executes", () => {
    expect(writes(begin(), "unit.dispatched")).toEqual([
      { do: "unit.dispatched", run: ID.next, units: ["prepare", "mutate"] },
    ]);
  });

  test("04 deadlineMs counts from the chain's start; without one there is none", () => {
    expect(created(begin(consumer(), {}, { deadlineMs: 500 }))?.deadlineAtMs).toBe(NOW + 500);
    expect(created(begin())).not.toHaveProperty("deadlineAtMs");
  });

  test("04 the effective policy is kept on the run", () => {
    expect(created(begin(consumer(), {}, { policy: "{}" }))?.policy).toBe("{}");
  });
});

describe("1.4 what a start uses up", () => {
  test("1.4 a consumer has seen everything that exists when it starts, and its trigger is used", () => {
    expect(handlerSet(begin())).toEqual({ seenSeq: "now", triggered: null });
  });

  test("1.4 a producer's queue is used; its schedule moves only when the chain ends", () => {
    expect(handlerSet(begin(producer()))).toEqual({ queued: null });
  });
});

describe("1.8 the row of consumer runs", () => {
  test("1.8 each consumer run adds one, a producer run begins anew", () => {
    expect(writes(begin(), "workflow.set")[0]?.set.consumerStreak).toBe(5);
    expect(writes(begin(producer()), "workflow.set")[0]?.set.consumerStreak).toBe(0);
  });
});

describe("04 step mode", () => {
  test("04 a run is held before its first unit: nothing is dispatched, a person is asked", () => {
    const change = begin(consumer(), { mode: "step" }, { hold: ID.inbox });
    expect(created(change)).toMatchObject({
      status: "paused:approval",
      pauseReason: "step",
      phase: "preparing",
    });
    expect(writes(change, "unit.dispatched")).toEqual([]);
    expect(opened(change)).toEqual(["step"]);
  });

  test("04 held without a question is a programmer's error", () => {
    expect(() => begin(consumer(), { mode: "step" })).toThrow("nobody would be asked");
  });
});

describe("07 fusing", () => {
  test.each([
    ["a consumer with mutate, fused", consumer(), true, ["prepare", "mutate"]],
    ["a consumer with mutate, unfused", consumer(), false, ["prepare"]],
    ["a consumer without mutate", consumer({ hasMutate: false }), true, ["prepare"]],
    ["a producer", producer(), true, ["producer"]],
  ] as const)("07 first units of %s", (_, handler, fused, units) => {
    expect(firstUnits(handler, fused)).toEqual(units);
  });

  test.each([
    ["executing", producer(), [], ["producer"]],
    ["preparing", consumer(), [], ["prepare", "mutate"]],
    ["prepared", consumer(), [1], ["mutate"]],
    ["prepared", consumer(), [], []],
    ["prepared", consumer({ hasMutate: false }), [1], []],
    ["mutating", consumer(), [1], []],
    ["mutated", consumer(), [1], []],
    ["emitting", consumer(), [1], ["next"]],
    ["emitting", consumer({ hasNext: false }), [1], []],
    ["committed", consumer(), [], []],
  ] as const)(
    "3.4 what is dispatched to go on at %s (%o, reserved %o)",
    (phase, handler, reserved, units) => {
      expect(unitsAt(phase, handler, { reserved, fused: true })).toEqual(units);
    },
  );
});
