import { describe, expect, test } from "vitest";
import { after, assertChange, type Change, type Expect, fuse, type Write } from "../../host/core/change.ts";
import { follow } from "../../host/core/facts.ts";
import { isEnded, isPastBoundary, MUTABLE_AFTER_END, type Phase, type Status } from "../../host/core/run.ts";
import { facts, ID, NOW, row, run } from "../support/facts.ts";

const change = (writes: Write[], expect_: Expect = { run: { id: ID.run, revision: 6 } }): Change => ({
  verb: "test",
  workflow: ID.workflow,
  atMs: NOW,
  expect: expect_,
  writes,
});
const set = (
  from: { kind?: "producer" | "consumer"; phase?: Phase; status?: Status },
  patch: Extract<Write, { do: "run.set" }>["set"],
): Write => ({
  do: "run.set",
  id: ID.run,
  from: { kind: "consumer", phase: "preparing", status: "active", ...from },
  set: patch,
});
/** Why a Change with these writes is impossible. */
function problem(writes: Write[], expect_?: Expect): string {
  try {
    assertChange(change(writes, expect_));
    return "none";
  } catch (thrown) {
    return String(thrown);
  }
}

describe("08 what no Change may contain", () => {
  test("08 (1) a phase going back or jumping", () => {
    expect(problem([set({ phase: "prepared" }, { phase: "preparing" })])).toContain(
      "cannot go from prepared to preparing",
    );
    expect(problem([set({ phase: "preparing" }, { phase: "mutating" })])).toContain("cannot go");
    expect(problem([set({ kind: "producer", phase: "executing" }, { phase: "prepared" })])).toContain(
      "cannot go",
    );
  });
  test("08 (1) committed as a phase without the status, or the other way round", () => {
    expect(problem([set({ phase: "emitting" }, { phase: "committed" })])).toContain("at once");
    expect(problem([set({ phase: "emitting" }, { status: "committed" })])).toContain("at once");
    expect(problem([{ do: "run.create", run: run({ phase: "committed" }) }])).toContain("at once");
  });
  test("08 (2) a run that is not active advancing, but for its ledger row", () => {
    expect(problem([set({ phase: "mutated", status: "paused:approval" }, { phase: "emitting" })])).toContain(
      "advances only because",
    );
    expect(() =>
      assertChange(change([set({ phase: "mutating", status: "paused:approval" }, { phase: "mutated" })])),
    ).not.toThrow();
  });
  const ended = (
    ["paused:transient", "failed:logic", "failed:internal", "committed", "crashed"] as Status[]
  ).map(
    (status) =>
      [
        status,
        { status, phase: status === "committed" ? ("committed" as const) : ("preparing" as const) },
      ] as const,
  );
  test.each(ended)("3 an attempt that is %s is never rewritten but for the named fields", (status, from) => {
    expect(isEnded(status)).toBe(true);
    for (const patch of [
      { error: { class: "logic" as const, code: "x", message: "" } },
      { outcome: "none" as const },
      { prepared: "1" },
      { result: "1" },
      { retries: 1 },
      { endedAtMs: 1 },
      { wakeAtMs: 1 },
    ])
      expect(problem([set(from, patch)])).toContain("an ended run keeps its");
    const patch = {
      open: true,
      successor: 5,
      readyAtMs: 1,
      pauseReason: "retrying" as const,
      deadlineAtMs: 1,
      resolution: null,
    };
    expect(
      Object.keys(patch).every((field) => (MUTABLE_AFTER_END as readonly string[]).includes(field)),
    ).toBe(true);
    expect(() => assertChange(change([set(from, patch)]))).not.toThrow();
  });
  test("3 the statuses that are not ended", () => {
    expect((["active", "paused:approval", "paused:reconciliation"] as Status[]).filter(isEnded)).toEqual([]);
  });
  test("08 (4) a successor whose predecessor stays open; a first attempt that is not its own root", () => {
    expect(
      problem([
        { do: "run.create", run: run() },
        { do: "workflow.set", set: { openRun: ID.run } },
      ]),
    ).toContain("predecessor stays open");
    const { retryOf: _, ...first } = run();
    expect(problem([{ do: "run.create", run: first }])).toContain("its own root");
  });
  test("08 (3) an open run that its workflow does not know of, and one that closes behind its back", () => {
    const { retryOf: _, ...first } = run({ rootId: ID.run });
    expect(problem([{ do: "run.create", run: first }])).toContain("does not know of");
    expect(problem([set({ status: "failed:logic" }, { open: false })])).toContain("still waits for it");
  });
  test("08 (6) an illegal ledger transition", () => {
    expect(problem([{ do: "mutation.set", id: 1, from: "applied", set: { status: "failed" } }])).toContain(
      "cannot go from applied to failed",
    );
  });
  test("08 (7) a ledger row settled without its run", () => {
    for (const status of ["applied", "skipped"] as const)
      expect(problem([{ do: "mutation.set", id: 1, from: "in_flight", set: { status } }])).toContain(
        "only together with its run",
      );
  });
  test("08 (13) a reservation without its run, or of what may not be pending", () => {
    expect(problem([{ do: "deliveries", ids: [1], to: "reserved" }])).toContain("without its run");
    expect(problem([{ do: "deliveries", ids: [1], to: "reserved", run: ID.run }])).toContain(
      "may not be pending",
    );
  });
  test("08 (24) a run set by somebody who does not know its revision", () => {
    expect(problem([set({}, { readyAtMs: 1 })], { workflowRevision: 1 })).toContain("know its revision");
    expect(problem([set({}, { readyAtMs: 1 })], { run: { id: 999, revision: 1 } })).toContain(
      "know its revision",
    );
  });
});

describe("2.4 what a Change leaves", () => {
  test("A2 the run after it: fields set, null cleared, one revision more however many writes", () => {
    const made = change([
      set({}, { phase: "prepared", prepared: "P" }),
      set({ phase: "prepared" }, { wakeAtMs: null, retries: 9 }),
    ]);
    const next = after(run({ wakeAtMs: 5 }), made);
    expect(next).toMatchObject({ phase: "prepared", prepared: "P", retries: 9, revision: 7 });
    expect(next.wakeAtMs).toBeUndefined();
  });
  test("A2 touching its row or its deliveries raises the run's revision; another's does not", () => {
    expect(after(run(), change([])).revision).toBe(7);
    expect(after(run(), change([], { workflowRevision: 1 })).revision).toBe(6);
  });
  test("07 fused: the first step's expectations hold, the second adds its own", () => {
    const first = change([], {
      run: { id: ID.run, revision: 6 },
      deliveries: { ids: [1], status: "pending" },
    });
    const second = change([set({}, { retries: 1 })], { run: { id: ID.run, revision: 7 }, generation: 2 });
    expect(fuse(first, second)).toMatchObject({
      verb: "test+test",
      expect: { run: { id: ID.run, revision: 6 }, deliveries: { ids: [1] }, generation: 2 },
    });
    expect(() => fuse(first, change([], { run: { id: 999, revision: 1 } }))).toThrow("only steps of one run");
  });
  test("07 the facts after a step: run, row, deliveries and state", () => {
    const made = change([
      { do: "mutation.create", mutation: row("proposed") },
      {
        do: "mutation.set",
        id: ID.row,
        from: "proposed",
        set: { status: "in_flight", sends: 1, error: null },
      },
      { do: "deliveries", ids: [3], to: "reserved", run: ID.run },
      { do: "handler.set", id: ID.consumer, set: { state: "S" } },
    ]);
    expect(follow(facts(), made)).toMatchObject({
      mutation: { status: "in_flight", sends: 1 },
      reserved: [3],
      handler: { state: "S" },
      run: { revision: 7 },
    });
  });
});

test("3.2 the boundary is the ledger row, applied or skipped, and nothing else", () => {
  const past = (
    ["proposed", "in_flight", "needs_reconcile", "indeterminate", "applied", "failed", "skipped"] as const
  ).filter((status) => isPastBoundary({ status }));
  expect(past).toEqual(["applied", "skipped"]);
  expect(isPastBoundary(undefined)).toBe(false);
});
