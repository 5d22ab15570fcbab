import { describe, expect, test } from "vitest";
import type { Change } from "../../host/core/change.ts";
import { isUnknown, mayBecome, type MutationStatus, proofNow } from "../../host/core/mutation.ts";
import {
  checked,
  type CheckAnswer,
  checking,
  late,
  notApplied,
  resending,
  unknown,
} from "../../host/core/settle.ts";
import {
  error,
  type Given,
  HALT,
  ID,
  moved,
  NOW,
  opened,
  row,
  rowSet,
  runSet,
  sound,
  withRow,
  writes,
} from "../support/facts.ts";

const ROWS: MutationStatus[] = [
  "proposed",
  "in_flight",
  "needs_reconcile",
  "indeterminate",
  "applied",
  "failed",
  "skipped",
];

describe("5 legal transitions of the ledger", () => {
  /** Independently written from the text of 5. */
  const LEGAL = new Set(
    `proposed>in_flight proposed>failed proposed>skipped
     in_flight>applied in_flight>failed in_flight>needs_reconcile in_flight>proposed in_flight>skipped
     needs_reconcile>applied needs_reconcile>failed needs_reconcile>indeterminate needs_reconcile>skipped
     indeterminate>needs_reconcile indeterminate>applied indeterminate>failed indeterminate>skipped`.split(
      /\s+/,
    ),
  );
  for (const from of ROWS)
    for (const to of ROWS)
      test(`5 ${from} ${LEGAL.has(`${from}>${to}`) ? "may" : "may not"} become ${to}`, () => {
        expect(mayBecome(from, to)).toBe(LEGAL.has(`${from}>${to}`));
      });
  test("5.1 unknown are in_flight, needs_reconcile and indeterminate, and nothing else", () => {
    expect(ROWS.filter(isUnknown)).toEqual(["in_flight", "needs_reconcile", "indeterminate"]);
  });
});

describe("5.1 a call that ended without proof", () => {
  const lost = (canCheck: boolean, given: Partial<Given> = {}) =>
    sound(
      unknown(
        withRow({ run: { phase: "mutating" }, row: "in_flight", reserved: [1, 2], ...given }),
        { error: error("transient", "timeout"), answer: "none", canCheck, inbox: ID.inbox },
        NOW,
      ),
    );

  test("5.2 with a check: needs_reconcile, checked at once, nobody asked, nothing released", () => {
    const change = lost(true);
    expect(runSet(change)).toMatchObject({ status: "paused:reconciliation", pauseReason: "checking" });
    expect(rowSet(change)).toMatchObject({ status: "needs_reconcile", endedAtMs: NOW, nextCheckAtMs: NOW });
    expect(opened(change)).toEqual([]);
    expect(moved(change)).toEqual({});
    expect(writes(change, "send.end")[0]).toMatchObject({ n: 1, endedAtMs: NOW });
  });

  test("5.2 without a check: indeterminate, and a person is asked", () => {
    const change = lost(false);
    expect(runSet(change)).toMatchObject({ status: "paused:reconciliation", pauseReason: "indeterminate" });
    expect(rowSet(change)).toMatchObject({ status: "indeterminate", nextCheckAtMs: null });
    expect(opened(change)).toEqual(["unknown_outcome"]);
  });

  test("3 the run is not ended, and keeps its phase: it owns the row", () => {
    expect(runSet(lost(true))).not.toHaveProperty("endedAtMs");
    expect(runSet(lost(true))).not.toHaveProperty("phase");
  });

  test("5.1 an approval that led to it speaks for it no more", () => {
    const resolution = { by: "ann", action: "approve", atMs: 1 };
    expect(runSet(lost(true, { run: { phase: "mutating", resolution } }))["resolution"]).toBeNull();
  });
});

const CHECK = {
  maxAttempts: 6,
  delayMs: 10_000,
  maxElapsedMs: 86_400_000,
  configVersion: 4,
  proven: { policy: HALT, delayMs: 500, down: [] },
};
const waiting = (more: Parameters<typeof row>[1] = {}, run: Given["run"] = {}) =>
  withRow({
    run: { phase: "mutating", status: "paused:reconciliation", pauseReason: "checking", ...run },
    row: row("needs_reconcile", { endedAtMs: NOW - 30_000, ...more }),
    reserved: [1, 2],
  });
const ask = (answer: CheckAnswer, of = waiting(), policy: Partial<typeof CHECK> = {}): Change =>
  sound(checked(of, answer, { ...CHECK, ...policy }, ID.inbox, NOW));

describe("5.2 what a check's answer does", () => {
  test("5.2 applied: goes on in place, ready and not active (3.3)", () => {
    const change = ask({ says: "applied", result: '{"id":7}' });
    expect(runSet(change)).toEqual({
      phase: "mutated",
      outcome: "applied",
      result: '{"id":7}',
      readyAtMs: NOW,
      pauseReason: null,
    });
    expect(rowSet(change)).toMatchObject({ status: "applied", result: '{"id":7}', nextCheckAtMs: null });
    expect(moved(change)).toEqual({});
    expect(writes(change, "inbox.close")).toHaveLength(1);
  });

  test("5.1 applied with a body that does not fit", () => {
    expect(rowSet(ask({ says: "applied", result: "1", resultInvalid: true }))).toMatchObject({
      resultInvalid: true,
    });
  });

  test("5.2 notApplied, settled: row failed, released, a new run within its budget", () => {
    const change = ask({ says: "notApplied" });
    expect(runSet(change)).toMatchObject({
      status: "paused:transient",
      pauseReason: "retrying",
      readyAtMs: NOW + 500,
      outcome: "failed",
    });
    expect(rowSet(change)).toMatchObject({ status: "failed", nextCheckAtMs: null });
    expect(rowSet(change)).not.toHaveProperty("notSent");
    expect(moved(change)).toEqual({ 1: "pending", 2: "pending" });
  });

  test("4 notApplied beyond the budget: a person, not one more call", () => {
    const change = ask({ says: "notApplied" }, waiting({}, { retries: 12 }));
    expect(runSet(change)).toMatchObject({ pauseReason: "retries_exhausted" });
    expect(opened(change)).toEqual(["retries_exhausted"]);
  });

  test("5.1 notApplied is a proven failure: onFailure is decided in the same Change", () => {
    const proven = (onFailure: "skip" | "deadLetter") => ({
      proven: { ...CHECK.proven, policy: { ...HALT, maxRetries: 0, onFailure } },
    });
    const skip = ask({ says: "notApplied" }, waiting(), proven("skip"));
    expect(runSet(skip)).toMatchObject({ phase: "mutated", outcome: "skipped", readyAtMs: NOW });
    expect(rowSet(skip)).toMatchObject({ status: "skipped" });
    const dead = ask({ says: "notApplied" }, waiting(), proven("deadLetter"));
    expect(moved(dead)).toEqual({ 1: "dead", 2: "dead" });
    expect(rowSet(dead)).toMatchObject({ status: "failed" });
  });

  test("5.2 notApplied is believed only settleMs after the call ended on our side; before, it means unsure", () => {
    const change = ask({ says: "notApplied" }, waiting({ endedAtMs: NOW - 29_999 }));
    expect(rowSet(change)).toEqual({ checks: 1, nextCheckAtMs: NOW + 10_000 });
    expect(moved(change)).toEqual({});
    expect(rowSet(ask({ says: "notApplied" }, waiting({ endedAtMs: NOW - 30_000 })))["status"]).toBe(
      "failed",
    );
  });

  test("5.2 if the config changed since the send, notApplied is unsure", () => {
    expect(rowSet(ask({ says: "notApplied" }, waiting(), { configVersion: 5 }))).toEqual({
      checks: 1,
      nextCheckAtMs: NOW + 10_000,
    });
    expect(rowSet(ask({ says: "applied" }, waiting(), { configVersion: 5 }))["status"]).toBe("applied");
  });

  test("5.2 for a re-send only 2xx is an answer: everything else is unsure", () => {
    expect(rowSet(ask({ says: "notApplied" }, waiting({ proof: "key" })))).toEqual({
      checks: 1,
      nextCheckAtMs: NOW + 10_000,
    });
  });

  test("5.2 unsure: again, with backoff, still checking", () => {
    const change = ask({ says: "unsure" }, waiting({ checks: 4 }));
    expect(rowSet(change)).toEqual({ checks: 5, nextCheckAtMs: NOW + 10_000 });
    expect(runSet(change)).toEqual({ pauseReason: "checking" });
  });

  test("5.2 exhausted: one at once and five more, then indeterminate and a person", () => {
    const change = ask({ says: "unsure" }, waiting({ checks: 5 }));
    expect(rowSet(change)).toMatchObject({ status: "indeterminate", checks: 6, nextCheckAtMs: null });
    expect(runSet(change)).toEqual({ pauseReason: "indeterminate" });
    expect(opened(change)).toEqual(["unknown_outcome"]);
  });

  test("04 check.maxElapsedMs: no check begins later", () => {
    expect(rowSet(ask({ says: "unsure" }, waiting(), { maxElapsedMs: 39_999 }))["status"]).toBe(
      "indeterminate",
    );
    expect(rowSet(ask({ says: "unsure" }, waiting(), { maxElapsedMs: 40_000 }))["status"]).toBeUndefined();
  });

  test("5.2 auth trouble: reason auth, no attempt used up, a person reconnects, asked once", () => {
    const change = ask({ says: "auth" });
    expect(runSet(change)).toEqual({ pauseReason: "auth" });
    expect(rowSet(change)).toEqual({ nextCheckAtMs: null });
    expect(opened(change)).toEqual(["reconnect"]);
    expect(opened(ask({ says: "auth" }, waiting({}, { pauseReason: "auth" })))).toEqual([]);
  });
});

describe("5.2 checks are claimed, and re-sent only where the key proves something", () => {
  test("5.2 claimed atomically: by the run's revision; due again should this host die", () => {
    const change = sound(checking(waiting(), NOW + 15_000, NOW));
    expect(rowSet(change)).toEqual({ nextCheckAtMs: NOW + 15_000 });
    expect(change.expect.run).toEqual({ id: ID.run, revision: 6 });
  });

  const SEND = { n: 2, atMs: NOW, bytesHash: "b", idempotencyKey: "key-1" };
  test("5.2 a re-send keeps the row's state and is one more send of the recorded key", () => {
    const change = sound(resending(waiting({ proof: "key" }), SEND, 4, NOW));
    expect(rowSet(change)).toEqual({ sends: 2, resending: true });
    expect(writes(change, "send.create")[0]?.send).toEqual(SEND);
  });
  test.each(["auth", "unsure"] as const)("5.2 a re-send that says %s is over", (says) => {
    const facts = waiting({ proof: "key", resending: true });
    const policy = { maxAttempts: 6, delayMs: 10_000 };
    expect(rowSet(checked(facts, { says }, policy, ID.inbox, NOW))).toMatchObject({ resending: null });
  });
  test.each([
    ["the tool has no key", { proof: "lookup" as const }, 4, SEND],
    ["the config changed", { proof: "key" as const }, 5, SEND],
    ["the key is a day old", { proof: "key" as const, createdAtMs: NOW - 86_400_000 }, 4, SEND],
    ["the key is another", { proof: "key" as const }, 4, { ...SEND, idempotencyKey: "other" }],
  ])("5.2 never if %s", (_, more, config, send) => {
    expect(() => resending(waiting(more), send, config, NOW)).toThrow("may not be sent again");
  });
  test("5.2 the class of proof that is left", () => {
    const left = (proof: "key" | "lookup" | "none", configVersion: number, ageMs: number) =>
      proofNow({ proof, configVersion: 4, createdAtMs: NOW - ageMs }, { configVersion, atMs: NOW });
    expect([
      left("key", 4, 86_399_999),
      left("key", 4, 86_400_000),
      left("key", 5, 0),
      left("lookup", 5, 1e9),
      left("none", 4, 0),
    ]).toEqual(["key", "none", "none", "lookup", "none"]);
  });
});

describe("3.1 a person's word that nothing happened", () => {
  test("3.1 row failed, released, ready at once", () => {
    const change = sound(notApplied(waiting(), NOW));
    expect(runSet(change)).toMatchObject({ status: "paused:transient", readyAtMs: NOW, outcome: "failed" });
    expect(rowSet(change)).toEqual({ status: "failed", nextCheckAtMs: null });
    expect(moved(change)).toEqual({ 1: "pending", 2: "pending" });
  });
});

describe("5.3 a result that arrives late", () => {
  const arrives = (
    status: MutationStatus,
    run: Given["run"] = { phase: "mutating", status: "paused:reconciliation" },
  ) => {
    const change = late(
      withRow({ run, row: status, reserved: [1] }),
      { result: "1", raw: "raw" },
      ID.inbox,
      NOW,
    );
    return change && sound(change);
  };
  test.each(["needs_reconcile", "indeterminate"] as const)(
    "5.3 settles a row that is %s, by compare-and-set",
    (status) => {
      const change = arrives(status) as Change;
      expect(rowSet(change)).toMatchObject({ status: "applied", result: "1" });
      expect(change.expect).toEqual({ run: { id: ID.run, revision: 6 }, mutation: { id: ID.row, status } });
      expect(runSet(change)).toMatchObject({ phase: "mutated", readyAtMs: NOW });
    },
  );
  test.each(["failed", "skipped"] as const)(
    "5.3 on a row already %s it is evidence and a contradiction, and changes nothing",
    (status) => {
      const change = arrives(status, { phase: "preparing", status: "paused:transient" }) as Change;
      expect(change.writes.map((one) => one.do)).toEqual(["evidence", "inbox.open"]);
      expect(opened(change)).toEqual(["contradiction"]);
      expect(change.expect).toEqual({ mutation: { id: ID.row, status } });
    },
  );
  test("5.3 on a row already applied it says nothing new", () => {
    expect(arrives("applied")).toBeUndefined();
  });
});
