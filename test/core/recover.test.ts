import { describe, expect, test } from "vitest";
import { claim } from "../../host/core/retry.ts";
import { abort, recover } from "../../host/core/recover.ts";
import type { Change } from "../../host/core/change.ts";
import type { Phase, Run, Status } from "../../host/core/run.ts";
import {
  attempt,
  created,
  error,
  facts,
  type Given,
  ID,
  moved,
  NOW,
  opened,
  rowSet,
  runSet,
  sound,
  writes,
} from "../support/facts.ts";

const CRASH = {
  error: error("internal", "host-crashed"),
  inbox: ID.inbox,
  attempt: attempt(),
  canCheck: true,
};
const crashed = (given: Given, more = {}): Change => {
  const change = recover(facts(given), { ...CRASH, ...more }, NOW);
  if (!change) throw new Error("nothing to recover");
  return sound(change);
};

describe("7 runs that were active under an incarnation that is gone", () => {
  test.each<[string, Given, Record<number, string>]>([
    ["producer", { run: { kind: "producer" } }, {}],
    ["preparing", { run: { phase: "preparing" } }, {}],
    ["prepared", { run: { phase: "prepared" }, reserved: [1] }, { 1: "pending" }],
    [
      "mutating, row proposed",
      { run: { phase: "mutating" }, row: "proposed", reserved: [1] },
      { 1: "pending" },
    ],
    ["mutated, no call", { run: { phase: "mutated", outcome: "none" }, reserved: [1] }, { 1: "pending" }],
    ["mutated, row applied", { run: { phase: "mutated" }, row: "applied", reserved: [1] }, {}],
    ["emitting, row skipped", { run: { phase: "emitting" }, row: "skipped", reserved: [1] }, {}],
  ])("7, 3.3 %s: crashed at once, ready, its successor made when claimed", (_, given, released) => {
    const change = crashed(given);
    expect(runSet(change)).toEqual({ status: "crashed", error: CRASH.error, endedAtMs: NOW, readyAtMs: NOW });
    expect(created(change)).toBeUndefined();
    expect(moved(change)).toEqual(released);
    expect(writes(change, "unit.ended")[0]).toMatchObject({ units: "open", end: "lost" });
    expect(opened(change)).toEqual([]);
  });

  test("3.1 a recorded intent that never left is failed, not sent", () => {
    expect(rowSet(crashed({ run: { phase: "mutating" }, row: "proposed" }))).toEqual({
      status: "failed",
      notSent: true,
    });
  });

  test("4 an answer of a person before the crash no longer counts as one after it", () => {
    expect(
      runSet(crashed({ run: { resolution: { by: "ann", action: "retry", atMs: 1 } } }))["resolution"],
    ).toBeNull();
  });

  test.each<Status>([
    "paused:transient",
    "paused:approval",
    "paused:reconciliation",
    "failed:logic",
    "failed:internal",
    "crashed",
    "committed",
  ])("7 %s stays as it is: recovery is idempotent (08, 22)", (status) => {
    const given = {
      run: { status, phase: status === "committed" ? ("committed" as const) : ("preparing" as const) },
    };
    expect(recover(facts(given), CRASH, NOW)).toBeUndefined();
  });
});

describe("3.3 a crash with an unknown row", () => {
  const flying = (more: Partial<Run> = {}, how = {}) =>
    crashed(
      {
        run: {
          phase: "mutating",
          prepared: '{ "a": 1}',
          version: 2,
          crashes: 2,
          crashPhase: "mutating",
          ...more,
        },
        row: "in_flight",
        reserved: [1, 2],
      },
      how,
    );

  test("3.3 the same Change makes the successor: mutating, paused:reconciliation, no slot needed", () => {
    const change = flying();
    expect(runSet(change)).toMatchObject({ status: "crashed", open: false, successor: ID.next });
    expect(created(change)).toMatchObject({
      phase: "mutating",
      status: "paused:reconciliation",
      pauseReason: "checking",
      open: true,
      retryOf: ID.run,
    });
    expect(writes(change, "unit.dispatched")).toEqual([]);
  });

  test("3.1 it owns the row from then on, keeps the reservations and copies the prepare result", () => {
    const change = flying();
    expect(rowSet(change)).toMatchObject({ ownerRun: ID.next, status: "needs_reconcile" });
    expect(writes(change, "deliveries.handover")).toEqual([
      { do: "deliveries.handover", from: ID.run, to: ID.next },
    ]);
    expect(moved(change)).toEqual({});
    expect(created(change)?.prepared).toBe('{ "a": 1}');
  });

  test("3.3 version pinned also after a deploy, and not counted among the three", () => {
    expect(created(flying())).toMatchObject({ version: 2, crashes: 0 });
    expect(opened(flying())).toEqual([]);
  });

  test("5.2 the row is checked at once; settleMs counts from the recovery's start", () => {
    expect(rowSet(flying())).toMatchObject({ nextCheckAtMs: NOW, endedAtMs: NOW });
  });

  test("5.2 without a check it is indeterminate, and a person is asked about the successor", () => {
    const change = flying({}, { canCheck: false });
    expect(rowSet(change)).toMatchObject({ status: "indeterminate", nextCheckAtMs: null });
    expect(created(change)).toMatchObject({ pauseReason: "indeterminate" });
    expect(writes(change, "inbox.open")).toEqual([
      { do: "inbox.open", id: ID.inbox, kind: "unknown_outcome", run: ID.next },
    ]);
  });

  test("3.3 one revision of the crashed run, whatever the number of writes", () => {
    expect(flying().expect.run).toEqual({ id: ID.run, revision: 6 });
  });
});

describe("3 three crashes in a row at the same phase wait for a person", () => {
  /** Plays a chain of attempts, each ending as told, and says how many crashes in a row the next one remembers. */
  const chain = (ends: { at: Phase; code?: string; status?: Status }[]): Run => {
    let run: Partial<Run> = { phase: "preparing", crashes: 0 };
    for (const { at, code = "host-crashed", status = "crashed" } of ends) {
      const ended = {
        ...run,
        phase: at,
        status,
        error: error("internal", code),
        readyAtMs: NOW,
        endedAtMs: NOW,
      };
      const { crashPhase, ...rest } = created(claim(facts({ run: ended }), attempt(), NOW)) as Run;
      run = { ...rest, id: ID.run, revision: 6, ...(crashPhase ? { crashPhase } : {}) };
    }
    return run as Run;
  };
  const loops = (run: Run, at: Phase) =>
    opened(crashed({ run: { ...run, phase: at } })).includes("crash_loop");

  test("3 the third in a row asks, and does not make itself ready", () => {
    const run = chain([{ at: "preparing" }, { at: "preparing" }]);
    expect(loops(run, "preparing")).toBe(true);
    const change = crashed({ run: { ...run, phase: "preparing" } });
    expect(runSet(change)).toMatchObject({ status: "crashed", pauseReason: "crash_loop" });
    expect(runSet(change)).not.toHaveProperty("readyAtMs");
  });
  test("3 two in a row do not", () => {
    expect(loops(chain([{ at: "preparing" }]), "preparing")).toBe(false);
  });
  test("3 another phase begins a new row", () => {
    expect(loops(chain([{ at: "preparing" }, { at: "preparing" }]), "prepared")).toBe(false);
    expect(loops(chain([{ at: "preparing" }, { at: "prepared" }]), "preparing")).toBe(false);
  });
  test("3 crashes at two phases are two rows: neither counts for the other", () => {
    expect(loops(chain([{ at: "preparing" }, { at: "prepared" }]), "prepared")).toBe(false);
  });
  test("3 a failure in between breaks the row", () => {
    expect(
      loops(
        chain([{ at: "preparing" }, { at: "preparing" }, { at: "preparing", status: "paused:transient" }]),
        "preparing",
      ),
    ).toBe(false);
  });
  test("3 `aborted` does not count, and does not break the row either", () => {
    const row = chain([{ at: "preparing" }, { at: "preparing" }, { at: "preparing", code: "aborted" }]);
    expect(loops(row, "preparing")).toBe(true);
    expect(
      loops(
        chain([
          { at: "preparing", code: "aborted" },
          { at: "preparing", code: "aborted" },
        ]),
        "preparing",
      ),
    ).toBe(false);
  });
  test("3 a person's retry begins a new row", () => {
    const looping = facts({
      run: {
        status: "crashed",
        pauseReason: "crash_loop",
        crashes: 2,
        crashPhase: "preparing",
        readyAtMs: NOW,
        endedAtMs: NOW,
        resolution: { by: "ann", action: "retry", atMs: NOW },
      },
    });
    expect(created(claim(looping, attempt(), NOW))).toMatchObject({
      crashes: 0,
      retries: 0,
      trigger: { reason: "decision" },
    });
  });
});

describe("1.11 pause { abort: true }", () => {
  const end = (given: Given) => abort(facts(given), { inbox: ID.inbox, attempt: attempt() }, NOW);
  test.each<[string, Given]>([
    ["producer", { run: { kind: "producer" } }],
    ["prepare", { run: { phase: "preparing" } }],
    ["next", { run: { phase: "emitting" }, row: "applied", reserved: [1] }],
  ])("1.11 ends %s early: crashed, code aborted, ready for when the workflow is resumed", (_, given) => {
    const change = sound(end(given) as Change);
    expect(runSet(change)).toMatchObject({ status: "crashed", error: { code: "aborted" }, readyAtMs: NOW });
  });
  test("1.11 never a call in flight", () => {
    expect(end({ run: { phase: "mutating" }, row: "in_flight" })).toBeUndefined();
  });
  test("1.11 an abort is not a crash in a row", () => {
    const change = end({ run: { crashes: 2, crashPhase: "preparing" } }) as Change;
    expect(opened(change)).toEqual([]);
    expect(runSet(change)).not.toHaveProperty("pauseReason");
  });
});
