import { describe, expect, test } from "vitest";
import { archive, unarchive } from "../../host/core/archive.ts";
import type { Change } from "../../host/core/change.ts";
import type { Delivery, DeliveryStatus } from "../../host/core/event.ts";
import type { RunFacts } from "../../host/core/facts.ts";
import {
  type DeliveryFacts,
  editState,
  pause,
  type Refused,
  renewDelivery,
  resume,
  runNow,
  skipDelivery,
  skipInput,
} from "../../host/core/operate.ts";
import { settleOrphans } from "../../host/core/orphans.ts";
import { setMode, stepOnce } from "../../host/core/stepping.ts";
import {
  consumer,
  facts,
  factsOf,
  type Given,
  handlerSet,
  ID,
  MINUTE,
  moved,
  NOW,
  opened,
  producer,
  reachableStates,
  rowSet,
  runSet,
  sound,
  type State,
  workflow,
  writes,
} from "../support/facts.ts";

const ANN = { by: "ann", note: "why", atMs: NOW };
const ok = (result: Change | Refused): Change => {
  if ("refused" in result) throw new Error(result.refused);
  const change = sound(result);
  expect(writes(change, "audit")).toHaveLength(1);
  return change;
};
const code = (result: Change | Refused) => ("refused" in result ? result.code : "allowed");

describe("1.9 run now", () => {
  test("1.9 queues every producer that there is", () => {
    const handlers = [
      producer(),
      producer({ id: 13, name: "two" }),
      producer({ id: 14, orphaned: true }),
      consumer(),
    ];
    const change = ok(runNow(workflow({ handlers }), undefined, ANN));
    expect(writes(change, "handler.set").map((one) => [one.id, one.set.queued])).toEqual([
      [11, { reason: "queued", atMs: NOW }],
      [13, { reason: "queued", atMs: NOW }],
    ]);
  });
  test("1.9 one named handler: runs a producer, wakes a consumer", () => {
    expect(handlerSet(ok(runNow(workflow(), producer(), ANN)))).toEqual({
      queued: { reason: "queued", atMs: NOW },
    });
    expect(handlerSet(ok(runNow(workflow(), consumer(), ANN)))).toEqual({
      triggered: { reason: "woken", atMs: NOW },
    });
  });
  test.each([
    ["a run is active", { openRun: { id: 1, active: true } }, "run_active"],
    ["a run is open", { openRun: { id: 1, active: false } }, "workflow_blocked"],
    ["a run is held", { openRun: { id: 1, active: false, held: true as const } }, "workflow_held"],
    ["the workflow is paused", { paused: true }, "workflow_paused"],
    ["the workflow is archived", { archived: true }, "workflow_archived"],
    ["it has no producer", { handlers: [consumer()] }, "wrong_state"],
  ])("1.9 409 while %s", (_, more, expected) => {
    expect(code(runNow(workflow(more), undefined, ANN))).toBe(expected);
  });
  test("1.9 a handler that is gone cannot be run", () => {
    expect(code(runNow(workflow(), consumer({ orphaned: true }), ANN))).toBe("wrong_state");
  });
});

describe("1.11 pause and resume", () => {
  test("1.11 pause starts nothing and ends nothing; resume un-pauses and clears nothing else", () => {
    for (const [act, paused] of [
      [pause, true],
      [resume, false],
    ] as const) {
      const change = ok(act(workflow(), ANN));
      expect(change.writes.map((one) => one.do)).toEqual(["workflow.set", "audit"]);
      expect(writes(change, "workflow.set")[0]?.set).toEqual({ paused });
      expect(change.expect).toEqual({ workflowRevision: 5 });
    }
  });
});

describe("1.11 archive", () => {
  const has = { down: [], inbox: ID.inbox };
  const away = (open?: RunFacts, more = {}) => archive(open?.workflow ?? workflow(more), open, ANN, has);

  const UNKNOWN = ["in_flight", "needs_reconcile", "indeterminate"];
  const verdict = ({ status, row: at }: State) =>
    status === "active" ? "run_active" : UNKNOWN.includes(at ?? "") ? "unknown_outcome" : "allowed";
  test.each(reachableStates())("1.11 $name: refused while active or unknown, else allowed", (state) => {
    expect(code(away(factsOf(state)))).toBe(verdict(state));
  });
  test.each(reachableStates().filter((one) => verdict(one) === "allowed"))(
    "1.11 $name: the chain is closed with release, past the boundary used up",
    (state) => {
      const change = ok(away(factsOf(state)));
      const to = state.row === "applied" || state.row === "skipped" ? "consumed" : "pending";
      expect(Object.values(moved(change)).filter((one) => one !== to)).toEqual([]);
      expect(Object.keys(moved(change))).toHaveLength(state.reserved?.length ?? 0);
      expect(runSet(change)).toMatchObject({ open: false, resolution: { action: "archive" } });
    },
  );

  test("1.11 without an open chain", () => {
    const change = ok(away());
    expect(writes(change, "workflow.set")[0]?.set).toEqual({ archived: true });
    expect(code(away(undefined, { archived: true }))).toBe("workflow_archived");
  });

  test("1.3 points that were due are skipped, by no run; the schedule stands still", () => {
    const poll = producer({ nextRunAtMs: NOW - 10 * MINUTE, anchorMs: NOW - 10 * MINUTE });
    const change = ok(away(undefined, { handlers: [poll, consumer()] }));
    expect(writes(change, "slot").map((one) => one.range)).toEqual([
      { fromMs: NOW - 10 * MINUTE, toMs: NOW, count: 3, fate: "skipped", why: "archived" },
    ]);
    expect(handlerSet(change)).toEqual({ nextRunAtMs: null, queued: null });
  });

  test("1.3 a closed producer chain's own points are skipped once, later ones beside them", () => {
    const slot = { firstDueMs: NOW - 10 * MINUTE, newestDueMs: NOW - 10 * MINUTE };
    const open = facts({
      run: {
        kind: "producer",
        status: "failed:logic",
        chainStartedAtMs: NOW - 9 * MINUTE,
        trigger: { reason: "due", atMs: NOW, slot },
      },
      handler: { nextRunAtMs: NOW - 10 * MINUTE, anchorMs: NOW - 10 * MINUTE },
    });
    const ranges = writes(ok(away(open)), "slot").map((one) => one.range);
    expect(ranges.map(({ fromMs, count, fate, run }) => [fromMs, count, fate, run])).toEqual([
      [NOW - 10 * MINUTE, 1, "skipped", ID.run],
      [NOW - 5 * MINUTE, 2, "skipped", undefined],
    ]);
  });

  test("1.11 unarchive: schedules begin anew, nothing else is cleared", () => {
    const change = ok(unarchive(workflow({ archived: true }), ANN));
    expect(handlerSet(change)).toEqual({ anchorMs: NOW, nextRunAtMs: NOW + 5 * MINUTE });
    expect(writes(change, "workflow.set")[0]?.set).toEqual({ archived: false });
    expect(code(unarchive(workflow(), ANN))).toBe("wrong_state");
  });
});

const delivery = (status: DeliveryStatus, id = 1): Delivery => ({
  id,
  event: 500 + id,
  handler: ID.consumer,
  status,
  attempts: 1,
  revision: 1,
  changeSeq: 10,
  ...(status === "reserved" ? { reservedBy: ID.run } : {}),
});
const held = (status: DeliveryStatus, holder?: RunFacts, id = 1): DeliveryFacts => ({
  delivery: delivery(status, id),
  workflow: holder?.workflow ?? workflow(),
  handler: consumer(),
  ...(holder ? { holder } : {}),
});

describe("6 skip a delivery", () => {
  test("6 pending: skipped, if it still is", () => {
    const change = ok(skipDelivery(held("pending"), ANN));
    expect(moved(change)).toEqual({ 1: "skipped" });
    expect(change.expect).toEqual({ deliveries: { ids: [1], status: "pending" } });
  });
  test.each(["consumed", "skipped", "dead"] as const)("6 %s: refused", (status) => {
    expect(code(skipDelivery(held(status), ANN))).toBe("wrong_state");
  });

  /** From the row of §6: reserved by a non-active run whose row is absent, proposed or failed. */
  const holders = reachableStates().filter((one) => (one.reserved ?? []).length > 0);
  const free = ({ status, row: at }: State) =>
    status !== "active" && (at === undefined || at === "proposed" || at === "failed");
  test.each(holders.filter(free))("6 reserved by $name: allowed, the chain is reset", (state) => {
    const change = ok(skipDelivery(held("reserved", factsOf(state)), ANN));
    expect(moved(change)).toEqual({ 1: "skipped", 2: "pending" });
    expect(runSet(change)).toMatchObject({ open: false, resolution: { action: "reset", by: "ann" } });
    expect(rowSet(change)).toEqual(state.row === "proposed" ? { status: "failed", notSent: true } : {});
    expect(handlerSet(change)).toMatchObject({ triggered: { reason: "requeued", atMs: NOW } });
    expect(change.expect.run).toEqual({ id: ID.run, revision: 6 });
  });
  test.each(holders.filter((one) => !free(one)))("6 reserved by $name: refused", (state) => {
    const unknown = ["in_flight", "needs_reconcile", "indeterminate"].includes(state.row ?? "");
    const expected = state.status === "active" ? "run_active" : unknown ? "unknown_outcome" : "wrong_state";
    expect(code(skipDelivery(held("reserved", factsOf(state)), ANN))).toBe(expected);
  });
  test("1.7 the chain's wake is used up with it", () => {
    const holder = facts({
      run: { status: "paused:approval", pauseReason: "approval", phase: "mutating" },
      row: "proposed",
      reserved: [1],
      handler: { wakeAtMs: NOW - MINUTE },
    });
    expect(handlerSet(ok(skipDelivery(held("reserved", holder), ANN)))).toMatchObject({ wakeAtMs: null });
  });
});

describe("6 skip an input: all it caused", () => {
  const waiting = facts({
    run: { status: "paused:approval", pauseReason: "approval", phase: "mutating" },
    row: "proposed",
    reserved: [2, 3, 9],
  });
  test("6 pending and held ones are skipped in one Change; the rest of the run goes back; what is not allowed is named", () => {
    const caused = [
      held("pending"),
      held("reserved", waiting, 2),
      held("reserved", waiting, 3),
      held("consumed", undefined, 4),
      held("dead", undefined, 5),
      held("skipped", undefined, 6),
    ];
    const { change, left } = skipInput(workflow(), 77, caused, ANN);
    const made = ok(change as Change);
    expect(moved(made)).toEqual({ 1: "skipped", 2: "skipped", 3: "skipped", 9: "pending" });
    expect(left).toEqual([
      { delivery: 4, why: "the delivery is consumed" },
      { delivery: 5, why: "the delivery is dead" },
    ]);
    expect(made.expect).toEqual({
      deliveries: { ids: [1], status: "pending" },
      run: { id: ID.run, revision: 6 },
    });
    expect(runSet(made)).toMatchObject({ open: false, resolution: { action: "reset" } });
  });
  test("6 what an active run or an unknown outcome holds is left", () => {
    const busy = facts({ run: { phase: "prepared" }, reserved: [2] });
    const { change, left } = skipInput(workflow(), 77, [held("pending"), held("reserved", busy, 2)], ANN);
    expect(moved(ok(change as Change))).toEqual({ 1: "skipped" });
    expect(left).toEqual([{ delivery: 2, why: "a run is working on it" }]);
  });
  test("6 nothing to skip, nothing written", () => {
    expect(skipInput(workflow(), 77, [held("consumed")], ANN)).toEqual({
      left: [{ delivery: 1, why: "the delivery is consumed" }],
    });
  });
});

describe("6 requeue and reprocess", () => {
  const STATUSES: DeliveryStatus[] = ["pending", "reserved", "consumed", "skipped", "dead"];
  for (const status of STATUSES) {
    test(`6 requeue ${status}`, () => {
      expect(code(renewDelivery(held(status), "requeue", undefined, ANN))).toBe(
        status === "dead" || status === "skipped" ? "allowed" : "wrong_state",
      );
    });
    test(`6 reprocess ${status}`, () => {
      expect(code(renewDelivery(held(status), "reprocess", undefined, ANN))).toBe(
        status === "consumed" ? "allowed" : "wrong_state",
      );
    });
  }
  test("6 requeue after an unknown outcome only with priorOutcome not-applied", () => {
    const unknown = { ...held("dead"), contradicted: true as const };
    expect(code(renewDelivery(unknown, "requeue", undefined, ANN))).toBe("unknown_outcome");
    const change = ok(renewDelivery(unknown, "requeue", "not-applied", ANN));
    expect(writes(change, "audit")[0]?.detail).toContain("not-applied");
  });
  test("6 it expects the state it was shown, and leaves numbering to the store", () => {
    const change = ok(renewDelivery(held("dead"), "requeue", undefined, ANN));
    expect(change.expect).toEqual({ deliveries: { ids: [1], status: "dead" } });
    expect(writes(change, "delivery.renew")).toEqual([{ do: "delivery.renew", id: 1, how: "requeue" }]);
  });
});

describe("6 edit a handler's state", () => {
  test("6 only while no run of it is open; before and after stand in the audit", () => {
    const change = ok(editState(workflow(), consumer({ state: '{"n":1}' }), '{"n":2}', ANN));
    expect(change.expect).toEqual({ handlerIdle: ID.consumer });
    expect(handlerSet(change)).toEqual({ state: '{"n":2}' });
    expect(JSON.parse(writes(change, "audit")[0]?.detail ?? "")).toEqual({
      handler: "book",
      before: '{"n":1}',
      after: '{"n":2}',
    });
  });
});

describe("1.10 orphans on demand", () => {
  const gone = consumer({ id: 15, name: "old", orphaned: true });
  const flow = workflow({ handlers: [producer(), consumer(), gone] });
  test("1.10 keep asks no more; skip skips; moveTo gives them to another consumer", () => {
    const kinds = (action: "keep" | "skip" | { moveTo: string }) =>
      ok(settleOrphans(flow, gone, action, ANN)).writes.map((one) => one.do);
    expect(kinds("keep")).toEqual(["inbox.close", "audit"]);
    expect(kinds("skip")).toEqual(["orphans.skip", "inbox.close", "audit"]);
    const change = ok(settleOrphans(flow, gone, { moveTo: "book" }, ANN));
    expect(writes(change, "orphans.move")).toEqual([{ do: "orphans.move", from: 15, to: ID.consumer }]);
    expect(writes(change, "inbox.close")).toEqual([{ do: "inbox.close", kind: "orphaned", handler: 15 }]);
  });
  test("1.10 refused for a consumer that is there, for producers, and towards one that is not", () => {
    expect(code(settleOrphans(flow, consumer(), "keep", ANN))).toBe("wrong_state");
    expect(code(settleOrphans(flow, producer({ orphaned: true }), "keep", ANN))).toBe("wrong_state");
    expect(code(settleOrphans(flow, gone, { moveTo: "old" }, ANN))).toBe("wrong_state");
    expect(code(settleOrphans(flow, gone, { moveTo: "poll" }, ANN))).toBe("wrong_state");
  });
});

describe("04 step mode", () => {
  const at = (run: Given["run"]) =>
    facts({ run: { status: "paused:approval", pauseReason: "step", ...run } });
  test("04 step lets the held run go on: ready, not active", () => {
    const change = ok(stepOnce(at({}), ANN));
    expect(runSet(change)).toMatchObject({ readyAtMs: NOW, resolution: { action: "step" } });
    expect(change.expect).toEqual({ run: { id: ID.run, revision: 6 } });
  });
  test("04 nothing held: 409, also for an approval, which a step is not", () => {
    expect(code(stepOnce(undefined, ANN))).toBe("nothing_held");
    expect(code(stepOnce(at({ pauseReason: "approval" }), ANN))).toBe("nothing_held");
    expect(code(stepOnce(at({ readyAtMs: NOW }), ANN))).toBe("nothing_held");
  });
  test("04 mode auto lets held work go on; mode step touches no run", () => {
    const auto = ok(setMode(workflow(), at({}), "auto", ANN));
    expect(writes(auto, "workflow.set")[0]?.set).toEqual({ mode: "auto" });
    expect(runSet(auto)).toMatchObject({ readyAtMs: NOW });
    expect(auto.expect).toEqual({ workflowRevision: 5, run: { id: ID.run, revision: 6 } });
    expect(writes(ok(setMode(workflow(), at({}), "step", ANN)), "run.set")).toEqual([]);
    expect(opened(auto)).toEqual([]);
  });
});
