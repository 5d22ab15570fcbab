import { describe, expect, test } from "vitest";
import type { Change } from "../../host/core/change.ts";
import { consequencesOf } from "../../host/core/consequences.ts";
import { type Decision, decide, refusal, unblocked } from "../../host/core/resolve.ts";
import {
  factsOf,
  facts,
  type Given,
  handlerSet,
  ID,
  moved,
  NOW,
  reachableStates,
  row,
  rowSet,
  runSet,
  sound,
  type State,
  writes,
} from "../support/facts.ts";

const BY = { by: "ann", note: "because", atMs: NOW, down: [], canCheck: true, inbox: ID.inbox };
const did = (given: Given, decision: Decision): Change => sound(decide(facts(given), decision, BY));

const DECISIONS: Record<string, Decision> = {
  approve: { action: "approve" },
  "reject skip": { action: "reject", deliveries: "skip" },
  "reject release": { action: "reject", deliveries: "release" },
  check: { action: "check" },
  applied: { action: "applied", result: '{"id":7}' },
  "not-applied": { action: "not-applied" },
  skip: { action: "skip" },
  retry: { action: "retry" },
  close: { action: "close", deliveries: "release" },
  "close force": { action: "close", deliveries: "skip", force: true },
};

/** The table of §6, written a second time, from its text. */
function allowed(name: string, { status, reason, row: at }: State): boolean {
  const unknown = at === "in_flight" || at === "needs_reconcile" || at === "indeterminate";
  const boundary = at === "applied" || at === "skipped";
  const active = status === "active";
  switch (name) {
    case "approve":
    case "reject skip":
    case "reject release":
      return reason === "approval" && at === "proposed";
    case "check":
      return at === "needs_reconcile" || at === "indeterminate";
    case "applied":
    case "not-applied":
    case "skip":
      return unknown && !active;
    case "retry":
      if (active || unknown) return false;
      if (status === "paused:approval")
        return ["auth", "permission", "precondition", "binding"].includes(reason ?? "");
      return status === "paused:transient" || status.startsWith("failed:") || status === "crashed";
    case "close":
      return !active && !unknown && !boundary;
    case "close force":
      return !active && !unknown;
    default:
      throw new Error(name);
  }
}

const STATES = reachableStates();

describe("6 what a person may do, by state: the whole matrix", () => {
  test("6 the matrix covers every status, reason and row", () => {
    const of = (pick: (state: State) => string | undefined) => new Set(STATES.map(pick));
    expect(of((one) => one.status).size).toBe(7);
    expect(of((one) => one.reason).size).toBe(15);
    expect(of((one) => one.row).size).toBe(8);
  });

  for (const [name, decision] of Object.entries(DECISIONS)) {
    describe.each(STATES.filter((state) => allowed(name, state)))(`6 ${name}, allowed`, (state) => {
      test(`6 ${name}: ${state.name}: one sound, audited Change that makes nothing active`, () => {
        const of = factsOf(state);
        expect(refusal(of, decision, true)).toBeUndefined();
        const change = sound(decide(of, decision, BY));
        expect(writes(change, "audit")).toHaveLength(1);
        expect(change.expect.run).toEqual({ id: ID.run, revision: 6 });
        expect(runSet(change)["status"]).not.toBe("active");
      });
    });
    describe.each(STATES.filter((state) => !allowed(name, state)))(`6 ${name}, refused`, (state) => {
      test(`6 ${name}: ${state.name}: 409 with the reason`, () => {
        const why = refusal(factsOf(state), decision, true);
        expect(why).toMatch(/\w{3}/);
        expect(() => decide(factsOf(state), decision, BY)).toThrow("not allowed");
        expect(consequencesOf(factsOf(state), decision, BY)).toEqual({ refused: why });
      });
    });
    test(`6 ${name} is refused once the chain has ended`, () => {
      for (const state of STATES)
        expect(refusal(factsOf(state, { run: { open: false } }), decision, true)).toBe(
          "this chain has ended",
        );
    });
  }

  test.each(["retry", "close"] as const)(
    "6 %s with an unknown outcome says that this has to be settled first",
    (action) => {
      const decision: Decision =
        action === "retry" ? { action } : { action, deliveries: "release", force: true };
      for (const state of STATES.filter((one) => one.status === "paused:reconciliation"))
        expect(refusal(factsOf(state), decision, true)).toContain("say whether it happened");
    },
  );

  test.each(["applied", "not-applied", "skip"] as const)(
    "6 %s waits while the same bytes leave once more: their answer may say otherwise",
    (action) => {
      const run = { status: "paused:reconciliation", pauseReason: "checking", phase: "mutating" } as const;
      const about = (more: { resending?: boolean }) => facts({ run, row: row("needs_reconcile", more) });
      expect(refusal(about({ resending: true }), { action }, true)).toContain("being sent again");
      expect(refusal(about({}), { action }, true)).toBeUndefined();
    },
  );

  test("6 check again only if the tool can check", () => {
    for (const state of STATES) expect(refusal(factsOf(state), { action: "check" }, false)).toBeDefined();
  });
});

describe("6 effects", () => {
  const approval: Given = {
    run: { status: "paused:approval", pauseReason: "approval", phase: "mutating" },
    row: "proposed",
    reserved: [1, 2],
  };
  const unknown = (status: "needs_reconcile" | "indeterminate"): Given => ({
    run: {
      status: "paused:reconciliation",
      pauseReason: status === "indeterminate" ? "indeterminate" : "checking",
      phase: "mutating",
    },
    row: row(status, { checks: 5 }),
    reserved: [1, 2],
  });

  test("6 approve: ready, never active (3.3); row and reservations stay", () => {
    const change = did(approval, { action: "approve" });
    expect(runSet(change)).toEqual({
      readyAtMs: NOW,
      resolution: { by: "ann", action: "approve", atMs: NOW, note: "because", grantVersion: 0 },
    });
    expect(writes(change, "mutation.set")).toEqual([]);
    expect(writes(change, "inbox.close")).toEqual([{ do: "inbox.close", run: ID.run }]);
  });
  test("6 what is approved cannot be approved or rejected again", () => {
    const twice = { ...approval, run: { ...approval.run, readyAtMs: NOW } };
    expect(refusal(facts(twice), { action: "approve" }, true)).toContain("already");
    expect(refusal(facts(twice), { action: "reject", deliveries: "skip" }, true)).toContain("already");
  });
  test("6 reject skip: row skipped, next(skipped), reservations kept", () => {
    const change = did(approval, { action: "reject", deliveries: "skip" });
    expect(runSet(change)).toMatchObject({
      phase: "mutated",
      outcome: "skipped",
      readyAtMs: NOW,
      resolution: { action: "reject" },
    });
    expect(rowSet(change)).toMatchObject({ status: "skipped" });
    expect(moved(change)).toEqual({});
  });
  test("6 reject release: chain closed, deliveries pending, no trigger; row failed, not sent", () => {
    const change = did(approval, { action: "reject", deliveries: "release" });
    expect(runSet(change)).toMatchObject({ open: false });
    expect(moved(change)).toEqual({ 1: "pending", 2: "pending" });
    expect(rowSet(change)).toEqual({ status: "failed", notSent: true });
    expect(handlerSet(change)).toEqual({});
  });

  test.each(["needs_reconcile", "indeterminate"] as const)(
    "6 check again from %s: count reset, check now",
    (status) => {
      const change = did(unknown(status), { action: "check" });
      expect(rowSet(change)).toEqual({
        ...(status === "indeterminate" ? { status: "needs_reconcile" } : {}),
        checks: 0,
        nextCheckAtMs: NOW,
      });
      expect(runSet(change)).toMatchObject({ pauseReason: "checking" });
      expect(runSet(change)).not.toHaveProperty("readyAtMs");
    },
  );
  test.each(["needs_reconcile", "indeterminate"] as const)(
    "6 it happened, from %s: applied, on to next",
    (status) => {
      const change = did(unknown(status), { action: "applied", result: "R" });
      expect(runSet(change)).toMatchObject({
        phase: "mutated",
        outcome: "applied",
        result: "R",
        readyAtMs: NOW,
      });
      expect(rowSet(change)).toMatchObject({ status: "applied", result: "R" });
    },
  );
  test("2.3 it happened, without a result", () => {
    expect(runSet(did(unknown("indeterminate"), { action: "applied" }))).not.toHaveProperty("result");
  });
  test.each(["needs_reconcile", "indeterminate"] as const)(
    "6 it did not happen, from %s: failed, new run by 3.1",
    (status) => {
      const change = did(unknown(status), { action: "not-applied" });
      expect(rowSet(change)).toMatchObject({ status: "failed" });
      expect(runSet(change)).toMatchObject({
        status: "paused:transient",
        readyAtMs: NOW,
        resolution: { action: "not-applied" },
      });
      expect(moved(change)).toEqual({ 1: "pending", 2: "pending" });
    },
  );
  test.each(["needs_reconcile", "indeterminate"] as const)(
    "6 skip, from %s: skipped, next(skipped)",
    (status) => {
      const change = did(unknown(status), { action: "skip" });
      expect(rowSet(change)).toMatchObject({ status: "skipped" });
      expect(runSet(change)).toMatchObject({ phase: "mutated", outcome: "skipped", readyAtMs: NOW });
      expect(moved(change)).toEqual({});
    },
  );
  test("08 (9, 24) a decision on an unknown row expects the row it was shown", () => {
    expect(did(unknown("indeterminate"), { action: "not-applied" }).expect.mutation).toEqual({
      id: ID.row,
      status: "indeterminate",
    });
  });

  test("6 retry: ready now, with its call-time policy for the chain", () => {
    const change = did({ run: { status: "failed:logic" } }, { action: "retry", policy: '{"maxRetries":1}' });
    expect(runSet(change)).toEqual({
      readyAtMs: NOW,
      resolution: { by: "ann", action: "retry", atMs: NOW, note: "because", policy: '{"maxRetries":1}' },
    });
  });
  test("6 close past the boundary only with force: consumes, keeps the state, publishes nothing", () => {
    const change = did(
      { run: { status: "failed:logic", phase: "emitting" }, row: "applied", reserved: [1] },
      { action: "close", deliveries: "release", force: true },
    );
    expect(moved(change)).toEqual({ 1: "consumed" });
    expect(handlerSet(change)).toEqual({ triggerIfPending: true });
    expect(writes(change, "publish")).toEqual([]);
    expect(writes(change, "mutation.set")).toEqual([]);
  });
  test("1.7 close of a producer's chain: the slot failed, the schedule advances", () => {
    const slot = { firstDueMs: NOW - 1, newestDueMs: NOW - 1 };
    const change = did(
      {
        run: { kind: "producer", status: "failed:logic", trigger: { reason: "due", atMs: NOW, slot } },
        handler: { anchorMs: NOW - 1 - 300_000 },
      },
      { action: "close", deliveries: "release" },
    );
    expect(writes(change, "slot")[0]?.range).toMatchObject({ fate: "failed" });
    expect(handlerSet(change)).toMatchObject({ nextRunAtMs: NOW - 1 + 300_000 });
  });
  test("6 the audit says who, what, from which state, and the note", () => {
    const audit = writes(did(approval, { action: "approve" }), "audit")[0];
    expect(audit).toMatchObject({ actor: "ann", action: "run.approve", run: ID.run, note: "because" });
    expect(JSON.parse(audit?.detail ?? "")).toEqual({
      action: "approve",
      from: { status: "paused:approval", row: "proposed" },
    });
  });
});

describe("3.4 what a run waited for is there", () => {
  test.each([
    ["auth", "reconnect"],
    ["permission", "grant"],
    ["binding", "bind"],
  ] as const)("3.4 %s: ready, audited as %s", (what, action) => {
    const change = sound(
      unblocked(facts({ run: { status: "paused:approval", pauseReason: what } }), what, BY) as Change,
    );
    expect(runSet(change)).toMatchObject({ readyAtMs: NOW, resolution: { action } });
    expect(writes(change, "audit")[0]).toMatchObject({ action: `run.${action}` });
  });
  test("5.2 an unknown outcome that waited for auth is checked now; its count stays", () => {
    const change = sound(
      unblocked(
        facts({
          run: { status: "paused:reconciliation", pauseReason: "auth", phase: "mutating" },
          row: row("needs_reconcile", { checks: 3 }),
        }),
        "auth",
        BY,
      ) as Change,
    );
    expect(rowSet(change)).toEqual({ checks: 3, nextCheckAtMs: NOW });
    expect(runSet(change)).toMatchObject({ pauseReason: "checking" });
    expect(runSet(change)).not.toHaveProperty("readyAtMs");
  });
  test("3.4 whoever waits for something else, or is ready already, is left alone", () => {
    expect(
      unblocked(facts({ run: { status: "paused:approval", pauseReason: "approval" } }), "auth", BY),
    ).toBeUndefined();
    expect(
      unblocked(facts({ run: { status: "paused:approval", pauseReason: "auth", readyAtMs: 1 } }), "auth", BY),
    ).toBeUndefined();
  });
});
