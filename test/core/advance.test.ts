import { describe, expect, test } from "vitest";
import {
  again,
  awaitApproval,
  commit,
  emitting,
  hold,
  intended,
  mutated,
  prepared,
  redo,
  sending,
  withoutCall,
} from "../../host/core/advance.ts";
import { fuse } from "../../host/core/change.ts";
import { settleSchedule } from "../../host/core/close.ts";
import { follow } from "../../host/core/facts.ts";
import { mayAdvance, type Phase } from "../../host/core/run.ts";
import {
  facts,
  handlerSet,
  ID,
  MINUTE,
  moved,
  NOW,
  opened,
  row,
  rowSet,
  runSet,
  sound,
  outcome,
  withRow,
  writes,
} from "../support/facts.ts";

const PREPARED = { json: '{"a":1}', reservations: [1, 2] };
const ORDER: Phase[] = ["preparing", "prepared", "mutating", "mutated", "emitting", "committed"];
const SEND = { n: 1, atMs: NOW, bytesHash: "bytes", idempotencyKey: "key-1" };
const nothing = { publications: [], inputs: [] };

describe("2 phases only move forward", () => {
  for (const from of ORDER)
    for (const to of ORDER) {
      const one = ORDER.indexOf(to) === ORDER.indexOf(from) + 1;
      const skip = from === "prepared" && to === "emitting";
      test(`2 a consumer ${one || skip ? "may" : "may not"} go from ${from} to ${to}`, () => {
        expect(mayAdvance("consumer", from, to)).toBe(one || skip);
      });
    }
  test("2 a producer goes from executing to committed and nowhere else", () => {
    for (const to of ORDER) expect(mayAdvance("producer", "executing", to)).toBe(to === "committed");
    expect(mayAdvance("consumer", "executing", "committed")).toBe(false);
  });
});

describe("2.3, 2.4 the checkpoint `prepared`", () => {
  test("2.4 result, reservations and phase in one Change, on deliveries that are still pending", () => {
    const change = sound(prepared(facts(), PREPARED, NOW));
    expect(runSet(change)).toEqual({ phase: "prepared", prepared: '{"a":1}', wakeAtMs: null });
    expect(moved(change)).toEqual({ 1: "reserved", 2: "reserved" });
    expect(change.expect).toEqual({
      run: { id: ID.run, revision: 6 },
      deliveries: { ids: [1, 2], status: "pending", handler: ID.consumer },
    });
  });

  test("2.3 duplicates collapse", () => {
    const change = prepared(facts(), { ...PREPARED, reservations: [2, 1, 2, 1] }, NOW);
    expect(writes(change, "deliveries")[0]?.ids).toEqual([2, 1]);
  });

  test("2.3 an empty reservation reserves nothing and expects nothing of deliveries", () => {
    const change = sound(prepared(facts(), { ...PREPARED, reservations: [] }, NOW));
    expect(writes(change, "deliveries")).toEqual([]);
    expect(change.expect.deliveries).toBeUndefined();
  });

  test("2.2 an intent is dropped when the reservations are empty: its unit is skipped, once", () => {
    const change = prepared(facts(), { ...PREPARED, reservations: [] }, NOW);
    expect(writes(change, "unit.ended").map((one) => [one.units, one.end])).toEqual([
      [["prepare"], "completed"],
      [["mutate"], "skipped"],
    ]);
  });

  test("07 unfused, `mutate` is dispatched with the checkpoint; in step mode the run is held instead", () => {
    const units = (given = {}) =>
      writes(prepared(facts(given), { ...PREPARED, alone: true }, NOW), "unit.dispatched");
    expect(units()).toEqual([{ do: "unit.dispatched", run: ID.run, units: ["mutate"] }]);
    expect(units({ workflow: { mode: "step" } })).toEqual([]);
    expect(units({ handler: { hasMutate: false } })).toEqual([]);
  });

  test("1.6 wakeAt is recorded with empty and non-empty reservations alike", () => {
    for (const reservations of [[], [1]])
      expect(runSet(prepared(facts(), { json: "{}", reservations, wakeAtMs: 77 }, NOW))["wakeAtMs"]).toBe(77);
  });

  test("2.3 a redo is free: same run, same phase, counted, and it has seen what exists now", () => {
    const change = sound(redo(facts(), ["prepare", "mutate"], NOW));
    expect(runSet(change)).toEqual({ redos: 1, startSeq: 40 });
    expect(handlerSet(change)).toEqual({ seenSeq: "now" });
    expect(writes(change, "unit.ended")[0]).toMatchObject({ units: ["prepare", "mutate"], end: "lost" });
    expect(writes(change, "unit.dispatched")[0]?.units).toEqual(["prepare", "mutate"]);
  });
});

describe("4 a unit that was lost with its process is done again at no cost", () => {
  test("4 `prepare` looks again; nothing is counted", () => {
    const change = sound(again(facts(), ["prepare"], NOW));
    expect(runSet(change)).toEqual({ startSeq: 40 });
    expect(handlerSet(change)).toEqual({ seenSeq: "now" });
  });

  test("1.4 `next` and a producer look at no events: their seenSeq stays, or a wake-up would be lost", () => {
    for (const given of [{ run: { phase: "emitting" as const } }, { run: { kind: "producer" as const } }]) {
      const change = sound(again(facts(given), ["next"], NOW));
      expect(writes(change, "handler.set")).toEqual([]);
      expect(writes(change, "run.set")).toEqual([]);
      expect(writes(change, "unit.dispatched")).toHaveLength(1);
      expect(change.expect.run).toEqual({ id: ID.run, revision: 6 });
    }
  });
});

describe("2 from prepared on", () => {
  const before = facts({ run: { phase: "prepared", prepared: "{}" }, reserved: [1, 2] });

  test("2 reservations but no call: mutating, then mutated with outcome none, in one Change", () => {
    const change = sound(withoutCall(before, NOW));
    expect(writes(change, "run.set").map((one) => one.set)).toEqual([
      { phase: "mutating" },
      { phase: "mutated", outcome: "none" },
    ]);
    expect(writes(change, "unit.ended")[0]).toMatchObject({ units: ["mutate"], end: "completed" });
  });

  test("2 a consumer without `mutate` ends no unit of that name", () => {
    const change = withoutCall({ ...before, handler: { ...before.handler, hasMutate: false } }, NOW);
    expect(writes(change, "unit.ended")).toEqual([]);
  });

  test("2 no reservations: prepared goes to emitting, outcome none, and `next` is dispatched", () => {
    const change = sound(emitting(facts({ run: { phase: "prepared" } }), NOW));
    expect(runSet(change)).toEqual({ phase: "emitting", outcome: "none" });
    expect(writes(change, "unit.dispatched")[0]?.units).toEqual(["next"]);
  });

  test("2.3 a consumer without `next` dispatches none", () => {
    const change = emitting(
      facts({ run: { phase: "mutated", outcome: "applied" }, handler: { hasNext: false } }),
      NOW,
    );
    expect(writes(change, "unit.dispatched")).toEqual([]);
    expect(runSet(change)).toEqual({ phase: "emitting" });
  });

  test("3.4 what the active version has dropped does not take `next` from a run of the pinned one", () => {
    const change = emitting(
      facts({
        run: { phase: "mutated", version: 2 },
        handler: { hasNext: true },
        active: { hasNext: false },
      }),
      NOW,
    );
    expect(writes(change, "unit.dispatched")[0]?.units).toEqual(["next"]);
  });

  test("2.2 an intent is recorded as proposed, at mutating, and nothing has left", () => {
    const change = sound(intended(before, row("proposed"), NOW));
    expect(runSet(change)).toEqual({ phase: "mutating" });
    expect(writes(change, "mutation.create")[0]?.mutation.status).toBe("proposed");
    expect(writes(change, "send.create")).toEqual([]);
    expect(writes(change, "unit.ended")[0]).toMatchObject({ units: ["mutate"], end: "completed" });
  });

  test("2.4 in_flight and the send are one Change, before a byte leaves", () => {
    const flying = withRow({ run: { phase: "mutating" }, row: "proposed", reserved: [1] });
    const change = sound(sending(flying, SEND, NOW));
    expect(rowSet(change)).toEqual({ status: "in_flight", sends: 1 });
    expect(writes(change, "send.create")[0]).toMatchObject({ mutation: ID.row, run: ID.run, send: SEND });
  });

  test("6 waiting for approval keeps phase and row, asks, and forgets an older answer", () => {
    const resolution = { by: "ann", action: "step", atMs: 1 };
    const change = sound(
      awaitApproval(withRow({ run: { phase: "mutating", resolution }, row: "proposed" }), ID.inbox, NOW),
    );
    expect(runSet(change)).toEqual({ status: "paused:approval", pauseReason: "approval", resolution: null });
    expect(opened(change)).toEqual(["approval"]);
    expect(writes(change, "mutation.set")).toEqual([]);
  });

  test.each<[Phase]>([["preparing"], ["prepared"], ["mutating"], ["mutated"]])(
    "04 step mode can hold a run at %s: a pause reason, never another phase",
    (phase) => {
      const change = sound(hold(facts({ run: { phase } }), ID.inbox, NOW));
      expect(runSet(change)).toEqual({ status: "paused:approval", pauseReason: "step" });
      expect(opened(change)).toEqual(["step"]);
      expect(writes(change, "unit.dispatched")).toEqual([]);
    },
  );
});

describe("2.4 the checkpoint `mutated`", () => {
  const flying = () => withRow({ run: { phase: "mutating" }, row: "in_flight", reserved: [1, 2] });

  test("2.4 result, outcome, row and send end together", () => {
    const change = sound(mutated(flying(), { status: "applied", result: '{"id":7}' }, NOW, "raw"));
    expect(runSet(change)).toEqual({ phase: "mutated", outcome: "applied", result: '{"id":7}' });
    expect(rowSet(change)).toEqual({
      status: "applied",
      endedAtMs: NOW,
      nextCheckAtMs: null,
      result: '{"id":7}',
    });
    expect(writes(change, "send.end")[0]).toMatchObject({ n: 1, endedAtMs: NOW, answer: "raw" });
    expect(writes(change, "deliveries")).toEqual([]);
  });

  test("5.1 a definite success whose body does not fit is applied, marked resultInvalid", () => {
    const change = mutated(flying(), { status: "applied", result: "1", resultInvalid: true }, NOW);
    expect(rowSet(change)).toMatchObject({ status: "applied", resultInvalid: true });
  });

  test("2.3 confirmed without a result: applied, and there is none to hand over", () => {
    const change = mutated(flying(), { status: "applied" }, NOW);
    expect(runSet(change)).toEqual({ phase: "mutated", outcome: "applied" });
    expect(writes(change, "send.end")).toEqual([]);
  });

  test("07 mutated and emitting fuse into one Change of one revision", () => {
    const facts_ = flying();
    const done = mutated(facts_, { status: "applied", result: "1" }, NOW);
    const both = sound(fuse(done, emitting(follow(facts_, done), NOW)));
    expect(outcome(facts_, both)).toMatchObject({ phase: "emitting", outcome: "applied", revision: 7 });
  });
});

describe("2.4 the commit", () => {
  const at = (given = {}) =>
    facts({ run: { phase: "emitting", outcome: "applied", ...given }, row: "applied", reserved: [1, 2] });
  const end = (of = at(), emission = {}) =>
    sound(commit(of, { ...nothing, ...emission }, settleSchedule(of, "ran", []), NOW));

  test("2.4 run, deliveries, state, wakeAt and workflow are one Change", () => {
    const change = end(at({ wakeAtMs: 99 }), { state: '{"n":1}' });
    expect(runSet(change)).toEqual({ phase: "committed", status: "committed", open: false, endedAtMs: NOW });
    expect(moved(change)).toEqual({ 1: "consumed", 2: "consumed" });
    expect(handlerSet(change)).toEqual({ state: '{"n":1}', wakeAtMs: 99, triggerIfPending: true });
    expect(writes(change, "workflow.set")[0]?.set).toEqual({ openRun: null });
    expect(writes(change, "unit.ended")[0]).toMatchObject({ units: ["next"], end: "completed" });
  });

  test("1.6 a committed run without wakeAt clears it", () => {
    expect(handlerSet(end())).toMatchObject({ wakeAtMs: null });
  });

  test("1.5 after consuming, more that is pending triggers again; after an empty reservation nothing does", () => {
    expect(handlerSet(end())).toMatchObject({ triggerIfPending: true });
    expect(handlerSet(end({ ...at(), reserved: [] }))).not.toHaveProperty("triggerIfPending");
  });

  test("1.4 a commit never touches seenSeq or a trigger: what came in between triggers again", () => {
    const set = handlerSet(end());
    expect(set).not.toHaveProperty("seenSeq");
    expect(set).not.toHaveProperty("triggered");
    expect(set).not.toHaveProperty("queued");
  });

  test("2.1 state: absent keeps, null clears, a value replaces", () => {
    expect(handlerSet(end())).not.toHaveProperty("state");
    expect(handlerSet(end(at(), { state: null }))["state"]).toBeNull();
  });

  test("8 publications expect that the subscribers are still the same", () => {
    const publication = { topic: "t", messageId: "m", payload: "1", inputs: [], hops: 1 };
    const change = end(at(), { publications: [{ publication, subscribers: [12] }] });
    expect(change.expect.generation).toBe(2);
    expect(writes(change, "publish")[0]).toMatchObject({ run: ID.run, publication, subscribers: [12] });
    expect(end().expect.generation).toBeUndefined();
  });

  test("8 inputs are registered in the commit", () => {
    const input = { id: 5, source: "mail", type: "message", key: "k", title: "Q4" };
    expect(writes(end(at(), { inputs: [input] }), "input")[0]).toEqual({
      do: "input",
      ...input,
      run: ID.run,
    });
  });

  test("2 a consumer without `next` ends no unit when it commits", () => {
    const of = { ...at(), handler: { ...at().handler, hasNext: false } };
    expect(writes(end(of), "unit.ended")).toEqual([]);
  });

  test("2 a producer commits from executing: no wakeAt, no deliveries, its schedule moves", () => {
    const slot = { firstDueMs: NOW, newestDueMs: NOW };
    const of = facts({
      run: { kind: "producer", trigger: { reason: "due", atMs: NOW, slot }, chainStartedAtMs: NOW },
      handler: { anchorMs: NOW, nextRunAtMs: NOW },
    });
    const change = end(of, { state: "1" });
    expect(handlerSet(change)).toEqual({ state: "1", nextRunAtMs: NOW + 5 * MINUTE });
    expect(writes(change, "slot").map((one) => one.range.fate)).toEqual(["ran"]);
    expect(writes(change, "deliveries")).toEqual([]);
  });

  test("2.4 a commit by a run that is not active is refused, and so is a second one", () => {
    for (const status of ["crashed", "paused:approval", "failed:logic"] as const)
      expect(() => end(at({ status }))).toThrow("impossible Change");
    expect(() => end(at({ phase: "committed", status: "committed" }))).toThrow("impossible Change");
  });

  test("2.4 it expects the revision of the run: a stale one writes nothing", () => {
    expect(end().expect.run).toEqual({ id: ID.run, revision: 6 });
  });
});
