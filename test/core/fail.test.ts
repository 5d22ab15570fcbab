import { describe, expect, test } from "vitest";
import { fail, type FailedStep } from "../../host/core/fail.ts";
import { type FailurePolicy, isFree, judge } from "../../host/core/failure.ts";
import type { ErrorClass } from "../../host/core/errors.ts";
import type { Phase } from "../../host/core/run.ts";
import {
  error,
  facts,
  type Given,
  HALT,
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
  writes,
} from "../support/facts.ts";

const step = (
  kind: ErrorClass,
  policy: Partial<FailurePolicy> = {},
  more: Partial<FailedStep> = {},
): FailedStep => ({
  units: [],
  inbox: ID.inbox,
  down: [],
  failure: {
    error: error(kind, `${kind}-x`),
    policy: { ...HALT, ...policy },
    retries: 0,
    delayMs: 2_000,
    pastBoundary: false,
  },
  ...more,
});
const broken = (
  given: Given,
  kind: ErrorClass,
  policy: Partial<FailurePolicy> = {},
  more: Partial<FailedStep> = {},
) => sound(fail(facts(given), step(kind, policy, more), NOW));

/** Where a run stands when it fails, by unit: phase, row, what it holds. */
const PLACES: [name: string, given: Given, pastBoundary: boolean][] = [
  ["producer", { run: { kind: "producer" } }, false],
  ["prepare", { run: { phase: "preparing" } }, false],
  ["mutate", { run: { phase: "prepared" }, reserved: [1, 2] }, false],
  ["a recorded intent", { run: { phase: "mutating" }, row: "proposed", reserved: [1, 2] }, false],
  ["the call, proven", { run: { phase: "mutating" }, row: "in_flight", reserved: [1, 2] }, false],
  ["next after no call", { run: { phase: "emitting", outcome: "none" }, reserved: [1, 2] }, false],
  [
    "next past the boundary",
    { run: { phase: "emitting", outcome: "applied" }, row: "applied", reserved: [1, 2] },
    true,
  ],
  [
    "next after a skip",
    { run: { phase: "emitting", outcome: "skipped" }, row: "skipped", reserved: [1, 2] },
    true,
  ],
];

const ENDS: Record<ErrorClass, [status: string, reason: string | null, inbox: string]> = {
  transient: ["paused:transient", "retries_exhausted", "retries_exhausted"],
  auth: ["paused:approval", "auth", "reconnect"],
  permission: ["paused:approval", "permission", "permission"],
  precondition: ["paused:approval", "precondition", "precondition"],
  logic: ["failed:logic", null, "script_error"],
  internal: ["failed:internal", null, "internal"],
};
const CLASSES = Object.keys(ENDS) as ErrorClass[];

describe("4 class × place, onFailure halt, no retries left", () => {
  for (const [place, given] of PLACES)
    for (const kind of CLASSES)
      test(`4 ${kind} in ${place} waits as ${ENDS[kind][0]}, reason ${ENDS[kind][1]}, inbox ${ENDS[kind][2]}`, () => {
        const change = broken(given, kind, { maxRetries: 0 });
        const [status, pauseReason, inbox] = ENDS[kind];
        expect(runSet(change)).toMatchObject({ status, pauseReason, error: { code: `${kind}-x` } });
        expect(runSet(change)).not.toHaveProperty("readyAtMs");
        expect(runSet(change)).not.toHaveProperty("phase");
        expect(runSet(change)).not.toHaveProperty("open");
        expect(opened(change)).toEqual([inbox]);
        expect("endedAtMs" in runSet(change)).toBe(status !== "paused:approval");
      });
});

describe("3.1 reservations go back in the Change that records the failure", () => {
  for (const [place, given, past] of PLACES)
    for (const kind of CLASSES) {
      const stays = past || kind === "auth" || kind === "permission";
      const held = given.reserved ?? [];
      if (held.length === 0) continue;
      test(`3.1 ${kind} in ${place}: ${stays ? "kept" : "released"}`, () => {
        const change = broken(given, kind, { maxRetries: 0 });
        expect(moved(change)).toEqual(stays ? {} : { 1: "pending", 2: "pending" });
      });
    }
});

describe("5.1 the ledger row after a proven failure", () => {
  for (const kind of CLASSES) {
    const inPlace = kind === "auth" || kind === "permission";
    test(`5 ${kind}: in_flight becomes ${inPlace ? "proposed: it waits to be sent as recorded" : "failed"}`, () => {
      const change = broken(
        { run: { phase: "mutating" }, row: "in_flight", reserved: [1] },
        kind,
        { maxRetries: 0 },
        { answer: "no" },
      );
      expect(rowSet(change)).toMatchObject({ status: inPlace ? "proposed" : "failed", endedAtMs: NOW });
      expect(rowSet(change)).not.toHaveProperty("notSent");
      expect(writes(change, "send.end")[0]).toMatchObject({ n: 1, endedAtMs: NOW, answer: "no" });
      expect(runSet(change)["outcome"]).toBe(inPlace ? undefined : "failed");
    });
    test(`5 ${kind}: proposed ${inPlace ? "stays proposed" : "becomes failed, not sent"}`, () => {
      const change = broken({ run: { phase: "mutating" }, row: "proposed", reserved: [1] }, kind, {
        maxRetries: 0,
      });
      expect(rowSet(change)["status"]).toBe(inPlace ? undefined : "failed");
      expect(rowSet(change)["notSent"]).toBe(inPlace ? undefined : true);
      expect(String(rowSet(change)["error"]).includes(`${kind}-x`)).toBe(!inPlace);
    });
    test(`3.2 ${kind}: applied and skipped stay as they are`, () => {
      for (const status of ["applied", "skipped"] as const)
        expect(
          writes(
            broken({ run: { phase: "emitting" }, row: status, reserved: [1] }, kind, { maxRetries: 0 }),
            "mutation.set",
          ),
        ).toEqual([]);
    });
  }

  test.each(["needs_reconcile", "indeterminate"] as const)(
    "5.1 %s is never failed here without proof",
    (status) => {
      expect(() =>
        broken({ run: { phase: "mutating", status: "paused:reconciliation" }, row: status }, "transient"),
      ).toThrow("only a check or a person");
    },
  );
});

describe("4 budgets", () => {
  test("4 within its budget a transient failure waits and tries again by itself", () => {
    const change = broken({ run: { retries: 11 } }, "transient");
    expect(runSet(change)).toMatchObject({
      status: "paused:transient",
      pauseReason: "retrying",
      readyAtMs: NOW + 2_000,
    });
    expect(opened(change)).toEqual([]);
  });

  test("4 the run's own count decides, whatever the caller says", () => {
    expect(runSet(broken({ run: { retries: 12 } }, "transient"))["pauseReason"]).toBe("retries_exhausted");
  });

  test("4 past the boundary retries go on within budget, and end with a person, never abandoned (3.2)", () => {
    const given = { run: { phase: "emitting" as const, retries: 3 }, row: "applied" as const, reserved: [1] };
    expect(runSet(broken(given, "transient"))["pauseReason"]).toBe("retrying");
    const spent = broken({ ...given, run: { ...given.run, retries: 12 } }, "transient", {
      onFailure: "skip",
    });
    expect(runSet(spent)).toMatchObject({ pauseReason: "retries_exhausted" });
    expect(runSet(spent)).not.toHaveProperty("open");
  });

  test("04 retryOn names classes or codes; neverRetryOn wins", () => {
    const reason = (policy: Partial<FailurePolicy>) => runSet(broken({}, "logic", policy))["pauseReason"];
    expect(reason({})).toBeNull();
    expect(reason({ retryOn: ["logic"] })).toBe("retrying");
    expect(reason({ retryOn: ["logic-x"] })).toBe("retrying");
    expect(reason({ retryOn: ["logic"], neverRetryOn: ["logic-x"] })).toBeNull();
  });

  test("3 failed:internal is never automatic, whatever the policy names", () => {
    const change = broken({}, "internal", { retryOn: ["internal", "internal-x"], onFailure: "skip" });
    expect(runSet(change)).toMatchObject({ status: "failed:internal" });
    expect(runSet(change)).not.toHaveProperty("open");
  });

  test("4 a server's own wish for a later retry wins", () => {
    const failure = { ...step("transient").failure, retryAfterMs: 9_000 };
    expect(runSet(broken({}, "transient", {}, { failure }))["readyAtMs"]).toBe(NOW + 9_000);
    expect(
      runSet(broken({}, "transient", {}, { failure: { ...failure, retryAfterMs: 5 } }))["readyAtMs"],
    ).toBe(NOW + 2_000);
  });

  test.each(["limited", "breaker_open"] as const)(
    "04 waiting because %s is free and asks nobody, even without retries",
    (waiting) => {
      const failure = { ...step("transient", { maxRetries: 0 }).failure, waiting };
      const change = broken({}, "transient", {}, { failure });
      expect(runSet(change)).toMatchObject({
        status: "paused:transient",
        pauseReason: waiting,
        readyAtMs: NOW + 2_000,
      });
      expect(isFree({ pauseReason: waiting })).toBe(true);
    },
  );

  test("4 runs of a killed process that had no open section are redone free", () => {
    const failure = {
      ...step("transient", { maxRetries: 0 }).failure,
      error: error("transient", "sandbox-lost"),
    };
    expect(runSet(broken({}, "transient", {}, { failure }))).toMatchObject({ pauseReason: "retrying" });
    expect(isFree({ error: { code: "sandbox-lost" } })).toBe(true);
    expect(isFree({ error: { code: "network" }, pauseReason: "retrying" })).toBe(false);
  });

  test("4 a failure makes an older answer of a person void: it no longer resets the budget", () => {
    const resolution = { by: "ann", action: "retry", atMs: 1 };
    expect(runSet(broken({ run: { resolution } }, "transient"))["resolution"]).toBeNull();
    expect(runSet(broken({}, "transient"))).not.toHaveProperty("resolution");
  });
});

describe("04 deadline", () => {
  test("04 fails at once if the wait would cross it", () => {
    const change = broken({ run: { deadlineAtMs: NOW + 2_000 } }, "transient");
    expect(runSet(change)).toMatchObject({ status: "paused:transient", pauseReason: "deadline" });
    expect(runSet(change)).not.toHaveProperty("readyAtMs");
    expect(opened(change)).toEqual(["retries_exhausted"]);
    expect(runSet(broken({ run: { deadlineAtMs: NOW + 2_001 } }, "transient"))["pauseReason"]).toBe(
      "retrying",
    );
  });

  test("04 a free wait does not cross it either", () => {
    const failure = { ...step("transient").failure, waiting: "limited" as const };
    expect(
      runSet(broken({ run: { deadlineAtMs: NOW + 1 } }, "transient", {}, { failure }))["pauseReason"],
    ).toBe("deadline");
  });

  test("3.2 never past the boundary", () => {
    const given = { run: { phase: "emitting" as const, deadlineAtMs: NOW - 1 }, row: "applied" as const };
    expect(runSet(broken(given, "transient"))["pauseReason"]).toBe("retrying");
  });

  test("04 spent retries are called so even past the deadline", () => {
    expect(runSet(broken({ run: { deadlineAtMs: NOW, retries: 12 } }, "transient"))["pauseReason"]).toBe(
      "retries_exhausted",
    );
  });
});

describe("04 onFailure × place", () => {
  /** Independently written: what skip and deadLetter mean where (04), for logic, which is not retried. */
  const MEANS: Record<string, { skip: string; deadLetter: string }> = {
    producer: { skip: "closed", deadLetter: "halt" },
    prepare: { skip: "closed", deadLetter: "halt" },
    mutate: { skip: "next(skipped)", deadLetter: "dead" },
    "a recorded intent": { skip: "next(skipped)", deadLetter: "dead" },
    "the call, proven": { skip: "next(skipped)", deadLetter: "dead" },
    "next after no call": { skip: "halt", deadLetter: "halt" },
    "next past the boundary": { skip: "halt", deadLetter: "halt" },
    "next after a skip": { skip: "halt", deadLetter: "halt" },
  };
  const seen = (change: ReturnType<typeof broken>) => {
    const set = runSet(change);
    if (set["phase"] === "mutated" && set["outcome"] === "skipped") return "next(skipped)";
    if (Object.values(moved(change)).includes("dead")) return "dead";
    return set["open"] === false ? "closed" : "halt";
  };
  for (const [place, given] of PLACES)
    for (const onFailure of ["skip", "deadLetter"] as const)
      test(`04 ${onFailure} in ${place}: ${MEANS[place]?.[onFailure]}`, () => {
        expect(seen(broken(given, "logic", { onFailure }))).toBe(MEANS[place]?.[onFailure]);
        expect(seen(broken(given, "transient", { onFailure, maxRetries: 0 }))).toBe(
          MEANS[place]?.[onFailure],
        );
      });

  test("04 it is asked only when retries are spent", () => {
    expect(seen(broken({}, "transient", { onFailure: "skip" }))).toBe("halt");
  });

  test.each(["auth", "permission", "precondition"] as const)(
    "4 %s waits for a person whatever onFailure says",
    (kind) => {
      for (const [, given] of PLACES) expect(seen(broken(given, kind, { onFailure: "skip" }))).toBe("halt");
    },
  );

  test("5.1 skip: row skipped with the failure as evidence, reservations kept, still active", () => {
    for (const status of ["in_flight", "proposed"] as const) {
      const change = broken({ run: { phase: "mutating" }, row: status, reserved: [1] }, "logic", {
        onFailure: "skip",
      });
      expect(rowSet(change)).toMatchObject({ status: "skipped" });
      expect(writes(change, "evidence")[0]).toMatchObject({
        what: "failed",
        detail: expect.stringContaining("logic-x") as string,
      });
      expect(moved(change)).toEqual({});
      expect(runSet(change)).not.toHaveProperty("status");
      expect(writes(change, "send.end")).toHaveLength(status === "in_flight" ? 1 : 0);
    }
  });

  test("04 skip of a `mutate` that threw before it asked: there is no row to skip", () => {
    const change = broken(
      { run: { phase: "prepared" }, reserved: [1] },
      "logic",
      { onFailure: "skip" },
      { units: ["mutate"] },
    );
    expect(writes(change, "mutation.set")).toEqual([]);
    expect(moved(change)).toEqual({});
    expect(writes(change, "unit.ended")[0]).toMatchObject({ units: ["mutate"], end: "failed" });
  });

  test("5.1 deadLetter: row failed, deliveries dead, nothing released, an item for a person, 1.5 applies", () => {
    const change = broken({ run: { phase: "mutating" }, row: "in_flight", reserved: [1, 2] }, "logic", {
      onFailure: "deadLetter",
    });
    expect(rowSet(change)).toMatchObject({ status: "failed" });
    expect(moved(change)).toEqual({ 1: "dead", 2: "dead" });
    expect(opened(change)).toEqual(["dead_letter"]);
    expect(handlerSet(change)).toMatchObject({ triggerIfPending: true });
    expect(runSet(change)).toMatchObject({
      status: "failed:logic",
      open: false,
      outcome: "failed",
      resolution: { by: "policy", action: "deadLetter" },
    });
  });

  test("04 producer skip: recorded, and the schedule advances; the slot is skipped, with the code", () => {
    const slot = { firstDueMs: NOW - MINUTE, newestDueMs: NOW - MINUTE };
    const change = broken(
      {
        run: { kind: "producer", trigger: { reason: "due", atMs: NOW, slot } },
        handler: { anchorMs: NOW - MINUTE },
      },
      "logic",
      { onFailure: "skip" },
      { units: ["producer"] },
    );
    expect(writes(change, "slot")[0]?.range).toMatchObject({ fate: "skipped", why: "logic-x", run: ID.run });
    expect(handlerSet(change)).toMatchObject({ nextRunAtMs: NOW + 4 * MINUTE });
    expect(runSet(change)).toMatchObject({ status: "failed:logic", open: false });
  });

  test("04 prepare skip waits for the next trigger: closed, nothing triggers (1.7)", () => {
    const change = broken({ handler: { wakeAtMs: NOW - MINUTE } }, "logic", { onFailure: "skip" });
    expect(handlerSet(change)).toEqual({ wakeAtMs: null });
    expect(writes(change, "workflow.set")[0]?.set).toEqual({ openRun: null });
  });
});

describe("10 every dispatched unit ends once", () => {
  test("10 the units of the round trip that failed are failed", () => {
    const change = broken({}, "logic", {}, { units: ["prepare", "mutate"] });
    expect(writes(change, "unit.ended")).toEqual([
      { do: "unit.ended", run: ID.run, units: ["prepare", "mutate"], end: "failed" },
    ]);
  });
});

describe("3 the status `binding`", () => {
  test("3 an alias without a connection waits for a person to bind it", () => {
    const failure = { ...step("precondition").failure, error: error("precondition", "not-bound") };
    const change = broken({}, "precondition", {}, { failure });
    expect(runSet(change)).toMatchObject({ status: "paused:approval", pauseReason: "binding" });
    expect(opened(change)).toEqual(["binding"]);
  });
});

test("4 the verdict depends on class and code, never on message text", () => {
  const of = (message: string) =>
    judge(
      {
        error: { class: "transient", code: "network", message },
        policy: HALT,
        unit: "prepare",
        retries: 0,
        delayMs: 1,
        pastBoundary: false,
      },
      NOW,
    );
  expect(of("401 unauthorized logic error")).toEqual(of("x"));
});

test("2 a failure never changes the phase, but for a skipped call (R1)", () => {
  for (const phase of ["preparing", "prepared", "mutating", "mutated", "emitting"] as Phase[])
    expect(
      runSet(broken({ run: { phase }, ...(phase === "mutating" ? { row: row("in_flight") } : {}) }, "logic")),
    ).not.toHaveProperty("phase");
});
