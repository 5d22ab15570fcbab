import { describe, expect, test } from "vitest";
import type { Change } from "../../host/core/change.ts";
import type { MutationStatus } from "../../host/core/mutation.ts";
import type { PauseReason, Phase, Run, Status } from "../../host/core/run.ts";
import { claim, claimApproved, isClaimable, postpone, startsAt } from "../../host/core/retry.ts";
import {
  attempt,
  created,
  error,
  facts,
  type Given,
  handlerSet,
  ID,
  moved,
  NOW,
  opened,
  rowSet,
  runSet,
  sound,
  withRow,
  writes,
} from "../support/facts.ts";

const claimed = (given: Given, how = {}): Change => sound(claim(facts(given), attempt(how), NOW));
const ended = (more: Partial<Run> = {}): Partial<Run> => ({
  status: "paused:transient",
  pauseReason: "retrying",
  readyAtMs: NOW,
  endedAtMs: NOW - 5,
  ...more,
});
const person = (action = "retry") => ({ resolution: { by: "ann", action, atMs: NOW - 3 } });
const successor = (given: Given, how = {}): Run => {
  const run = created(claimed(given, how));
  if (!run) throw new Error("no successor");
  return run;
};

describe("3.1 what a new run starts from is decided by the ledger row", () => {
  /** Independently written from the table of 3.1. */
  const TABLE: [MutationStatus | undefined, Phase | undefined][] = [
    [undefined, "preparing"],
    ["failed", "preparing"],
    ["proposed", "preparing"],
    ["in_flight", undefined],
    ["needs_reconcile", undefined],
    ["indeterminate", undefined],
    ["applied", "emitting"],
    ["skipped", "emitting"],
  ];
  for (const [row, phase] of TABLE)
    test(`3.1 row ${row ?? "none"}: ${phase ?? "no new run"}`, () => {
      expect(startsAt({ kind: "consumer" }, row)).toBe(phase);
      expect(startsAt({ kind: "producer" }, undefined)).toBe("executing");
    });

  const CELLS = TABLE.flatMap(([row, phase]) =>
    (["preparing", "prepared", "mutating", "mutated", "emitting"] as Phase[]).map((at) => ({
      row: row ?? "none",
      at,
      phase,
      given: { run: ended({ phase: at }), ...(row ? { row } : {}) } satisfies Given,
    })),
  );
  test.each(CELLS.filter((one) => one.phase === undefined))(
    "3.1 row $row, the last attempt at $at: no new run",
    ({ given }) => {
      expect(() => claimed(given)).toThrow("unknown outcome");
    },
  );
  test.each(CELLS.filter((one) => one.phase !== undefined))(
    "3.1 row $row, the last attempt at $at: $phase, never by the phase",
    ({ given, phase }) => {
      expect(successor(given).phase).toBe(phase);
    },
  );

  test("3.1 row none or failed: nothing is copied", () => {
    for (const row of [undefined, "failed"] as const) {
      const run = successor({
        run: ended({ phase: "mutating", prepared: "P", result: "R", outcome: "failed", wakeAtMs: 5 }),
        ...(row ? { row } : {}),
      });
      for (const field of ["prepared", "result", "outcome", "wakeAtMs"])
        expect(run).not.toHaveProperty(field);
      expect(run.startSeq).toBe(40);
    }
  });

  test("3.1 row proposed becomes failed, not sent; what is still held goes back", () => {
    const change = claimed({
      run: {
        status: "paused:approval",
        pauseReason: "auth",
        phase: "mutating",
        version: 2,
        readyAtMs: NOW,
        ...person(),
      },
      row: "proposed",
      reserved: [1, 2],
    });
    expect(rowSet(change)).toEqual({ status: "failed", notSent: true });
    expect(moved(change)).toEqual({ 1: "pending", 2: "pending" });
    expect(created(change)?.phase).toBe("preparing");
  });

  test.each(["applied", "skipped"] as const)(
    "3.1 row %s: the successor starts at emitting with byte-equal copies",
    (row) => {
      const prepared = '{ "b": 1,  "a": [1.0] }';
      const result = '{"id":  7}';
      const given: Given = {
        run: ended({ phase: "emitting", prepared, result, outcome: row, wakeAtMs: 5 }),
        row,
        reserved: [1, 2],
      };
      const change = claimed(given);
      expect(created(change)).toMatchObject({
        phase: "emitting",
        prepared,
        result,
        outcome: row,
        wakeAtMs: 5,
        startSeq: 30,
      });
      expect(writes(change, "deliveries.handover")).toEqual([
        { do: "deliveries.handover", from: ID.run, to: ID.next },
      ]);
      expect(moved(change)).toEqual({});
      expect(rowSet(change)).toEqual({ ownerRun: ID.next });
      expect(writes(change, "unit.dispatched")).toEqual([
        { do: "unit.dispatched", run: ID.next, units: ["next"] },
      ]);
      expect(writes(change, "handler.set")).toEqual([]);
    },
  );

  test("3.1 after an attempt with outcome none that failed in next: preparing", () => {
    expect(successor({ run: ended({ phase: "emitting", outcome: "none" }) }).phase).toBe("preparing");
  });

  test("1.4 starting at preparing looks again: seen now, trigger used", () => {
    expect(handlerSet(claimed({ run: ended() }))).toEqual({ seenSeq: "now", triggered: null });
    expect(handlerSet(claimed({ run: ended({ kind: "producer", phase: "executing" }) }))).toEqual({
      queued: null,
    });
  });
});

describe("3 a run has at most one successor", () => {
  test("3 the predecessor gives way in the Change that makes the successor", () => {
    const change = claimed({ run: ended() });
    expect(runSet(change)).toEqual({ open: false, successor: ID.next, readyAtMs: null });
    expect(change.expect).toEqual({ run: { id: ID.run, revision: 6 }, workflowRevision: 5 });
    expect(writes(change, "workflow.set")[0]?.set.openRun).toBe(ID.next);
    expect(writes(change, "inbox.close")).toEqual([{ do: "inbox.close", run: ID.run }]);
  });

  test("3 it is linked, and carries the chain on", () => {
    expect(successor({ run: ended() })).toMatchObject({
      retryOf: ID.run,
      rootId: 90,
      attempt: 3,
      status: "active",
      open: true,
      chainStartedAtMs: NOW - 60_000,
      trigger: { reason: "retry" },
      revision: 1,
      redos: 0,
    });
  });

  test("1.8 the successor of a consumer counts as one more consumer run", () => {
    expect(writes(claimed({ run: ended() }), "workflow.set")[0]?.set.consumerStreak).toBe(5);
    expect(
      writes(claimed({ run: ended({ kind: "producer", phase: "executing" }) }), "workflow.set")[0]?.set
        .consumerStreak,
    ).toBe(0);
  });

  test("3.3 only a ready, open, waiting run without an unknown row can be claimed", () => {
    const can = (given: Given) => isClaimable(facts(given));
    expect(can({ run: ended() })).toBe(true);
    expect(can({ run: { ...ended(), open: false } })).toBe(false);
    expect(can({ run: { status: "active", readyAtMs: NOW } })).toBe(false);
    expect(can({ run: { status: "failed:logic" } })).toBe(false);
    for (const row of ["in_flight", "needs_reconcile", "indeterminate"] as const)
      expect(can({ run: ended(), row })).toBe(false);
  });
});

describe("4 budgets across a chain", () => {
  const retries = (more: Partial<Run>) => successor({ run: ended({ retries: 4, ...more }) }).retries;
  test("4 an automatic retry counts", () => {
    expect(retries({})).toBe(5);
  });
  test.each(["retry", "deploy", "not-applied", "reconnect"])(
    "4 reset by a human act or a deploy (%s)",
    (action) => {
      expect(retries(person(action))).toBe(0);
    },
  );
  test.each<[string, Partial<Run>]>([
    ["a limit", { pauseReason: "limited" }],
    ["an open breaker", { pauseReason: "breaker_open" }],
    ["another's sandbox death", { error: error("transient", "sandbox-lost") }],
    ["a crash", { status: "crashed" }],
  ])("4 %s costs nothing", (_, more) => {
    expect(retries(more)).toBe(4);
  });
  test("4 resuming in place after a human act resets as well", () => {
    const change = claimed({
      run: {
        status: "paused:approval",
        pauseReason: "auth",
        readyAtMs: NOW,
        retries: 4,
        ...person("reconnect"),
      },
    });
    expect(runSet(change)["retries"]).toBe(0);
  });
});

describe("04 deadlines across a chain", () => {
  test("04 the chain's deadline stays through automatic retries", () => {
    expect(successor({ run: ended({ deadlineAtMs: NOW + 9 }) }, { deadlineMs: 500 }).deadlineAtMs).toBe(
      NOW + 9,
    );
  });
  test("04 it counts anew from the last human act or deploy, not from the claim", () => {
    expect(
      successor({ run: ended({ deadlineAtMs: NOW + 9, ...person() }) }, { deadlineMs: 500 }).deadlineAtMs,
    ).toBe(NOW - 3 + 500);
    const resumed = claimed(
      {
        run: { status: "paused:approval", pauseReason: "auth", readyAtMs: NOW, deadlineAtMs: 1, ...person() },
      },
      { deadlineMs: 500 },
    );
    expect(runSet(resumed)["deadlineAtMs"]).toBe(NOW - 3 + 500);
  });
  test("04 checked before each attempt: past it, a person is asked and nothing starts", () => {
    const change = claimed({ run: ended({ deadlineAtMs: NOW }) });
    expect(created(change)).toBeUndefined();
    expect(runSet(change)).toEqual({ pauseReason: "deadline", readyAtMs: null });
    expect(opened(change)).toEqual(["retries_exhausted"]);
  });
  test("04 not past the boundary, and not after a person said to go on", () => {
    expect(successor({ run: ended({ deadlineAtMs: 1, phase: "emitting" }), row: "applied" }).phase).toBe(
      "emitting",
    );
    expect(successor({ run: ended({ deadlineAtMs: 1, ...person() }) }).phase).toBe("preparing");
    expect(successor({ run: ended({ deadlineAtMs: NOW + 1 }) }).phase).toBe("preparing");
  });
  test("04 it stands still while a person decides", () => {
    const change = claimed({
      run: {
        status: "paused:approval",
        pauseReason: "permission",
        readyAtMs: NOW,
        deadlineAtMs: 1,
        ...person("grant"),
      },
    });
    expect(runSet(change)).toMatchObject({ status: "active", deadlineAtMs: null });
  });
});

describe("3.4 resume continues the same run; otherwise it is a new run by 3.1", () => {
  const waits = (pauseReason: PauseReason, more: Partial<Run> = {}): Partial<Run> => ({
    status: "paused:approval",
    pauseReason,
    readyAtMs: NOW,
    ...person(),
    ...more,
  });
  test.each(["auth", "permission", "step"] as const)(
    "3.4 %s on the same version: the same run at its phase",
    (reason) => {
      const change = claimed({ run: waits(reason, { phase: "mutating" }), row: "proposed", reserved: [1] });
      expect(created(change)).toBeUndefined();
      expect(runSet(change)).toMatchObject({
        status: "active",
        pauseReason: null,
        readyAtMs: null,
        host: 10,
      });
      expect(moved(change)).toEqual({});
      expect(writes(change, "mutation.set")).toEqual([]);
    },
  );
  test.each(["precondition", "binding"] as const)("3.4 %s is not resumed: a new run", (reason) => {
    expect(successor({ run: waits(reason, { phase: "mutating" }), row: "failed" }).phase).toBe("preparing");
  });
  test.each(["auth", "permission", "step"] as const)(
    "3.4 %s on another version: a new run on the active one, the intent not sent",
    (reason) => {
      const change = claimed({
        run: waits(reason, { phase: "mutating", version: 2 }),
        row: "proposed",
        reserved: [1],
      });
      expect(created(change)).toMatchObject({
        phase: "preparing",
        version: 3,
        trigger: { reason: "decision" },
      });
      expect(rowSet(change)).toEqual({ status: "failed", notSent: true });
      expect(runSet(change)).toMatchObject({ open: false, endedAtMs: NOW });
    },
  );
  test.each<[Phase, number[], string[]]>([
    ["preparing", [], ["prepare", "mutate"]],
    ["prepared", [1], ["mutate"]],
    ["mutating", [1], []],
    ["mutated", [1], []],
    ["emitting", [1], ["next"]],
  ])("10 resuming at %s dispatches what will execute", (phase, reserved, units) => {
    const change = claimed({ run: waits("step", { phase }), reserved });
    expect(writes(change, "unit.dispatched").flatMap((one) => one.units)).toEqual(units);
    expect(handlerSet(change)).toEqual(phase === "preparing" ? { seenSeq: "now", triggered: null } : {});
  });
  test("5.2 applied by a check goes on in place, on its own version, also after a deploy", () => {
    const change = claimed({
      run: { status: "paused:reconciliation", phase: "mutated", readyAtMs: NOW, version: 2 },
      row: "applied",
      reserved: [1],
    });
    expect(created(change)).toBeUndefined();
    expect(runSet(change)).toMatchObject({ status: "active" });
  });
  test("3.1 an unknown outcome is never claimed, ready or not", () => {
    for (const row of ["in_flight", "needs_reconcile", "indeterminate"] as const)
      expect(() =>
        claimed({ run: { status: "paused:reconciliation", phase: "mutating", readyAtMs: NOW }, row }),
      ).toThrow("unknown outcome");
  });
});

describe("3.4 versions", () => {
  test("3.4 new runs use the active one", () => {
    expect(successor({ run: ended({ version: 1 }) }).version).toBe(3);
  });
  const past = (active: Given["active"]) =>
    successor({
      run: ended({ version: 1, phase: "emitting" }),
      row: "applied",
      ...(active ? { active } : {}),
    }).version;
  test("3.4 after the boundary the active one if it still has that consumer's `next`, else the pinned", () => {
    expect(past({})).toBe(3);
    expect(past({ hasNext: false })).toBe(1);
    expect(past({ orphaned: true })).toBe(1);
  });
  test("3.4 the units of the successor are those of the version it runs on", () => {
    const change = claimed({
      run: ended({ version: 1 }),
      handler: { hasMutate: false },
      active: { hasMutate: true },
    });
    expect(writes(change, "unit.dispatched")[0]?.units).toEqual(["prepare", "mutate"]);
  });
});

describe("1.10 the active version lacks the handler", () => {
  const gone = (more: Given = {}) => claimed({ run: ended(), active: { orphaned: true }, ...more });
  test("1.10 a successor that would start at preparing closes the chain instead", () => {
    const change = gone({ reserved: [], released: [4] });
    expect(created(change)).toBeUndefined();
    expect(runSet(change)).toMatchObject({
      open: false,
      resolution: { by: "host", action: "handler_removed" },
    });
    expect(writes(change, "workflow.set")[0]?.set).toEqual({ openRun: null });
  });
  test("1.10 its deliveries are orphaned: pending, and a person is asked once", () => {
    const change = gone({
      run: { ...ended(), status: "paused:approval", pauseReason: "auth", ...person() },
      row: "proposed",
      reserved: [1, 2],
    });
    expect(moved(change)).toEqual({ 1: "pending", 2: "pending" });
    expect(opened(change)).toEqual(["orphaned"]);
    expect(writes(change, "inbox.close")).toContainEqual({
      do: "inbox.close",
      kind: "orphaned",
      handler: ID.consumer,
    });
  });
  test("1.10 nothing held, nobody asked; a producer's slot failed", () => {
    expect(opened(gone())).toEqual([]);
    const slot = { firstDueMs: NOW, newestDueMs: NOW };
    const change = gone({
      run: ended({ kind: "producer", phase: "executing", trigger: { reason: "due", atMs: NOW, slot } }),
    });
    expect(writes(change, "slot")[0]?.range).toMatchObject({ fate: "failed", why: "handler_removed" });
    expect(handlerSet(change)).toEqual({});
  });
});

describe("3.3, 3.4 an approved call is executed exactly as shown or not at all", () => {
  const approved = (more: Partial<Run> = {}): Given & { row: "proposed" } => ({
    run: {
      status: "paused:approval",
      pauseReason: "approval",
      phase: "mutating",
      readyAtMs: NOW,
      resolution: { ...person("approve").resolution, grantVersion: 0 },
      ...more,
    },
    row: "proposed",
    reserved: [1, 2],
  });
  const call = {
    send: { n: 1, atMs: NOW, bytesHash: "b", idempotencyKey: "key-1" },
    isGranted: true,
    grantVersion: 0,
    connection: "bank-prod",
    configVersion: 4,
  };
  const go = (given: ReturnType<typeof approved>, more = {}) =>
    sound(claimApproved(withRow(given), attempt(), { ...call, ...more }, NOW));

  test("3.3 claim and in_flight are one Change, so a crash cannot lose an approval", () => {
    const change = go(approved());
    expect(runSet(change)).toMatchObject({ status: "active", readyAtMs: null, pauseReason: null });
    expect(rowSet(change)).toEqual({ status: "in_flight", sends: 1 });
    expect(writes(change, "send.create")).toHaveLength(1);
    expect(change.expect.run).toEqual({ id: ID.run, revision: 6 });
  });

  test("3.4 also when the active version changed, or lacks the handler", () => {
    expect(rowSet(go(approved({ version: 1 })))).toMatchObject({ status: "in_flight" });
    expect(
      rowSet(go({ ...approved({ version: 1 }), active: { orphaned: true } } as ReturnType<typeof approved>)),
    ).toMatchObject({ status: "in_flight" });
  });

  test.each([
    ["the grant", { isGranted: false }],
    ["the grant, and back again", { grantVersion: 7 }],
    ["the connection", { connection: "bank-test" }],
    ["the config version", { configVersion: 5 }],
  ])("3.4 if %s changed the approval is void: row failed, not sent, new run by 3.1", (_, more) => {
    const change = go(approved(), more);
    expect(rowSet(change)).toEqual({ status: "failed", notSent: true });
    expect(writes(change, "send.create")).toEqual([]);
    expect(created(change)).toMatchObject({ phase: "preparing", retryOf: ID.run });
    expect(moved(change)).toEqual({ 1: "pending", 2: "pending" });
  });

  test("3.4 it cannot be claimed without its send, nor can what nobody approved", () => {
    expect(() => claimed(approved())).toThrow("claimed with its send");
    expect(() => go(approved({ resolution: { by: "ann", action: "step", atMs: 1 } }))).toThrow(
      "no approved call",
    );
  });

  test("04 a limit or a breaker moves its time: run and approval stay", () => {
    const change = sound(postpone(facts(approved()), NOW + 700, NOW));
    expect(runSet(change)).toEqual({ readyAtMs: NOW + 700 });
    expect(change.writes).toHaveLength(1);
  });
});

describe("04 step mode", () => {
  test("04 a successor is held before its first unit", () => {
    const change = claimed({ run: ended(), workflow: { mode: "step" } }, { hold: ID.inbox });
    expect(created(change)).toMatchObject({ status: "paused:approval", pauseReason: "step" });
    expect(writes(change, "unit.dispatched")).toEqual([]);
    expect(opened(change)).toEqual(["step"]);
  });
});

test("3.3 every ended status can be claimed once it is ready", () => {
  for (const status of ["paused:transient", "failed:logic", "failed:internal", "crashed"] as Status[])
    expect(successor({ run: ended({ status }) })).toMatchObject({ status: "active", phase: "preparing" });
});
