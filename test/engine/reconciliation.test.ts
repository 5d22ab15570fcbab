// Unknown outcomes from every side (02 §5.2, 5.3): checks that answer, refuse, break, hang; late results in each state;
// pauses, deploys and restarts in between. What a single check does is in `mutations.test.ts`.
import { describe, expect, test } from "vitest";
import {
  ANN,
  DAY,
  harness,
  type Harness,
  HOUR,
  MINUTE,
  nothing,
  post,
  SECOND,
  type Spec,
  take,
} from "../support/host-harness.ts";
import { applied, failed, gate, unknown } from "../support/test-world.ts";

type Consumer = NonNullable<Spec["consumers"]>[string];
type Answer = ReturnType<typeof applied>;
const booking = (more: Partial<Consumer> = {}): Spec => ({
  consumers: { book: { on: "order", prepare: take("order"), mutate: post, next: nothing, ...more } },
});
const rows = (h: Harness) =>
  h.store.db.prepare("SELECT status FROM mutations ORDER BY id").pluck().all() as string[];
const checks = (h: Harness) => h.store.db.prepare("SELECT checks FROM mutations").pluck().get();
const quick = { match: "default" as const, policy: { backoff: "linear" as const, baseDelayMs: 1_000 } };

async function begun(h: Harness, spec = booking()): Promise<void> {
  await h.deploy("w", spec);
  await h.feed("order", "a");
}

/** The one call of an order is lost. */
async function unsettled(h: Harness, spec?: Spec): Promise<void> {
  h.world.onSend = (_, nth) => (nth === 1 ? unknown() : applied());
  await begun(h, spec);
}

/** The call gets no answer until the test gives one; the host has given up on it by then. */
async function overdue(h: Harness): Promise<(answer: Answer) => Promise<void>> {
  const answer = gate<Answer>();
  h.world.onSend = (_, nth) => (nth === 1 ? answer.promise : applied());
  await begun(h);
  await h.pass(121 * SECOND);
  return async (given) => {
    answer.open(given);
    await h.settle();
  };
}

describe("5.2 what a check says", () => {
  test("unsure n times, then applied: goes on in place, with one effect", async () => {
    await using h = await harness();
    h.world.onCheck = (_, nth) => (nth < 5 ? { says: "unsure" } : { says: "applied" });
    await unsettled(h);
    await h.pass(HOUR);
    expect(h.world.checked.length).toBe(5);
    expect(h.run("book")).toMatchObject({ status: "committed", attempt: 1, outcome: "applied" });
    expect(h.world.sent.length).toBe(1);
    expect(h.inbox()).toEqual([]);
  });

  test("a check that throws is unsure, and counts as an attempt", async () => {
    await using h = await harness();
    h.world.onCheck = () => {
      throw new Error("the tool is broken");
    };
    await unsettled(h);
    expect(checks(h)).toBe(1);
    await h.pass(HOUR);
    expect(rows(h)).toEqual(["indeterminate"]);
    expect(h.inbox()).toEqual(["unknown_outcome"]);
  });

  test("a check that always hangs is given up each time by its own timeout, and a person is asked in the end", async () => {
    await using h = await harness();
    h.world.onCheck = () => new Promise(() => {});
    await unsettled(h);
    expect(checks(h)).toBe(0);
    await h.pass(16 * SECOND);
    expect(checks(h)).toBe(1);
    await h.pass(HOUR);
    expect(h.world.checked.length).toBe(6);
    expect(rows(h)).toEqual(["indeterminate"]);
  });

  test("what a hanging check says after its timeout settles nothing", async () => {
    await using h = await harness();
    const answer = gate<{ says: "notApplied" }>();
    h.world.onCheck = (_, nth) => (nth === 1 ? answer.promise : { says: "unsure" });
    await unsettled(h);
    await h.pass(40 * SECOND);
    answer.open({ says: "notApplied" });
    await h.settle();
    expect(rows(h)).toEqual(["needs_reconcile"]);
    expect(h.world.sent.length).toBe(1);
  });

  test("auth trouble uses no attempt up, however often the connection is good and bad again", async () => {
    await using h = await harness();
    h.world.onCheck = (_, nth) => (nth <= 8 ? { says: "auth" } : { says: "applied" });
    await unsettled(h);
    for (let i = 0; i < 8; i++) {
      expect(h.statuses("book").at(-1)).toBe("paused:reconciliation auth");
      expect(h.inbox()).toEqual(["reconnect"]);
      expect(checks(h)).toBe(0);
      await h.act(h.operator.unblock(h.id(), "auth", ANN));
    }
    expect(h.run("book")).toMatchObject({ status: "committed", attempt: 1 });
    expect(h.inbox()).toEqual([]);
  });

  test("auth trouble outlives a restart, and asks nobody meanwhile", async () => {
    await using h = await harness({ file: true });
    h.world.onCheck = (_, nth) => (nth === 1 ? { says: "auth" } : { says: "applied" });
    await unsettled(h);
    await h.restart(HOUR);
    await h.pass(DAY);
    expect(h.world.checked.length).toBe(1);
    await h.act(h.operator.unblock(h.id(), "auth", ANN));
    expect(h.run("book").status).toBe("committed");
  });
});

describe("5.2 notApplied and time", () => {
  const earliest = async (h: Harness, fromMs: number): Promise<number> => {
    while (rows(h)[0] !== "failed") await h.pass(SECOND);
    return h.clock.nowMs() - fromMs;
  };

  test("settling counts from the abort of a call that got no answer, not from when it left", async () => {
    await using h = await harness({ policy: [quick] });
    h.world.onCheck = () => ({ says: "notApplied" });
    await overdue(h);
    const endedMs = h.store.db.prepare("SELECT ended_at FROM mutations").pluck().get() as number;
    expect(await earliest(h, endedMs)).toBeGreaterThanOrEqual(30 * SECOND);
  });

  test("after a crash it counts from the recovery, however long nobody was there", async () => {
    await using h = await harness({ file: true, policy: [quick] });
    h.world.onSend = (_, nth) => (nth === 1 ? new Promise(() => {}) : applied());
    h.world.onCheck = () => ({ says: "notApplied" });
    await begun(h);
    await h.restart(HOUR);
    const recoveredMs = h.clock.nowMs();
    expect(rows(h)).toEqual(["needs_reconcile"]);
    expect(await earliest(h, recoveredMs)).toBeGreaterThanOrEqual(30 * SECOND);
    await h.pass(MINUTE);
    expect(rows(h)).toEqual(["failed", "applied"]);
    expect(h.world.sent.length).toBe(2);
  });

  test("the tool's own settling time counts where it is longer", async () => {
    await using h = await harness({ policy: [quick] });
    h.world.tool_ = { settleMs: 5 * MINUTE };
    h.world.onCheck = () => ({ says: "notApplied" });
    await unsettled(h);
    await h.pass(4 * MINUTE);
    expect(rows(h)).toEqual(["needs_reconcile"]);
    await h.pass(20 * MINUTE);
    expect(rows(h)[0]).toBe("failed");
  });

  test("a config that is raised while the check is under way makes notApplied unsure", async () => {
    await using h = await harness();
    // The first that would be believed, had nobody configured the connection anew while it was asked.
    h.world.onCheck = (_, nth) => {
      if (nth < 4) return { says: "unsure" };
      h.world.tool_ = { configVersion: 2 };
      return { says: "notApplied" };
    };
    await unsettled(h);
    await h.pass(HOUR);
    expect(rows(h)).toEqual(["indeterminate"]);
    expect(h.world.sent.length).toBe(1);
  });

  test("a connection that is gone when the check has ended makes notApplied unsure", async () => {
    await using h = await harness();
    h.world.onCheck = (_, nth) => {
      if (nth < 4) return { says: "unsure" };
      h.world.missing = { class: "precondition", code: "not-bound", message: "gone" };
      return { says: "notApplied" };
    };
    await unsettled(h);
    await h.pass(HOUR);
    expect(rows(h)).toEqual(["indeterminate"]);
  });
});

describe("5.2 proof class key", () => {
  const keyed = { proof: "key" as const, canCheck: false };

  test("a crash during a re-send: the next life sends the same bytes with the same key", async () => {
    await using h = await harness({ file: true });
    h.world.tool_ = keyed;
    h.world.onSend = (_, nth) => (nth === 1 ? unknown() : nth === 2 ? new Promise(() => {}) : applied());
    await begun(h);
    expect(h.world.sent.length).toBe(2);
    await h.restart();
    await h.pass(5 * MINUTE);
    expect(h.world.sent.length).toBe(3);
    expect(new Set(h.world.sent.map((call) => call.idempotencyKey + call.args)).size).toBe(1);
    expect(h.run("book")).toMatchObject({ status: "committed", attempt: 1 });
  });

  test.each([
    ["a refusal", failed("logic")],
    ["a limit", failed("transient")],
    ["a server's failure", unknown()],
  ])("%s is no answer to a re-send: the row stays unknown", async (_, answer) => {
    await using h = await harness();
    h.world.tool_ = keyed;
    h.world.onSend = (__, nth) => (nth === 1 ? unknown() : answer);
    await begun(h);
    await h.pass(HOUR);
    expect(rows(h)).toEqual(["indeterminate"]);
    expect(h.run("book")).toMatchObject({ status: "paused:reconciliation", attempt: 1 });
  });

  test.each(["auth", "permission"] as const)("%s trouble of a re-send uses no attempt up", async (kind) => {
    await using h = await harness();
    h.world.tool_ = keyed;
    h.world.onSend = (_, nth) => (nth === 1 ? unknown() : nth === 2 ? failed(kind) : applied());
    await begun(h);
    expect(h.statuses("book").at(-1)).toBe("paused:reconciliation auth");
    expect(checks(h)).toBe(0);
    await h.act(h.operator.unblock(h.id(), "auth", ANN));
    expect(h.run("book")).toMatchObject({ status: "committed", attempt: 1 });
  });

  test("another config: not sent again, and a person is asked at the next check", async () => {
    await using h = await harness();
    h.world.tool_ = keyed;
    h.world.onSend = () => unknown();
    await begun(h);
    const sent = h.world.sent.length;
    h.world.tool_ = { ...keyed, configVersion: 2 };
    await h.pass(MINUTE);
    expect(h.world.sent.length).toBe(sent);
    expect(rows(h)).toEqual(["indeterminate"]);
    expect(h.inbox()).toEqual(["unknown_outcome"]);
  });

  test("a crash that lasts longer than the key lives: a person is asked, nothing is sent", async () => {
    await using h = await harness({ file: true });
    h.world.tool_ = keyed;
    h.world.onSend = () => new Promise(() => {});
    await begun(h);
    await h.restart(DAY);
    await h.pass(HOUR);
    expect(h.world.sent.length).toBe(1);
    expect(rows(h)).toEqual(["indeterminate"]);
  });
});

describe("5.3 a result that arrives late", () => {
  test("needs_reconcile: settles the row, and a check under way loses", async () => {
    await using h = await harness();
    const check = gate<{ says: "notApplied" }>();
    h.world.onCheck = () => check.promise;
    const answer = await overdue(h);
    expect(rows(h)).toEqual(["needs_reconcile"]);
    await answer(applied());
    check.open({ says: "notApplied" });
    await h.settle();
    expect(rows(h)).toEqual(["applied"]);
    expect(h.run("book")).toMatchObject({ status: "committed", attempt: 1 });
  });

  test("indeterminate: settles the row and closes the question", async () => {
    await using h = await harness();
    h.world.tool_ = { canCheck: false, proof: "none" };
    const answer = await overdue(h);
    expect(h.inbox()).toEqual(["unknown_outcome"]);
    await answer(applied());
    expect(rows(h)).toEqual(["applied"]);
    expect(h.inbox()).toEqual([]);
  });

  test("applied: what is settled stays as it was settled", async () => {
    await using h = await harness();
    h.world.tool_ = { canCheck: false, proof: "none" };
    const answer = await overdue(h);
    await h.decide("book", { action: "applied", result: '{"said":"ann"}' });
    await answer(applied({ said: "service" }));
    expect(h.store.db.prepare("SELECT status, result_json FROM mutations").get()).toEqual({
      status: "applied",
      result_json: '{"said":"ann"}',
    });
    expect(h.inbox()).toEqual([]);
  });

  test.each([
    ["failed, by a person's word", { action: "not-applied" as const }, ["failed", "applied"]],
    ["skipped", { action: "skip" as const }, ["skipped"]],
  ])("%s: evidence and a contradiction, the row stays", async (_, decision, after) => {
    await using h = await harness();
    h.world.tool_ = { canCheck: false, proof: "none" };
    const answer = await overdue(h);
    await h.decide("book", decision);
    await answer(applied());
    expect(rows(h)).toEqual(after);
    expect(h.inbox()).toEqual(["contradiction"]);
    const evidence = h.store.db.prepare("SELECT what, detail_json FROM evidence").all();
    expect(evidence).toEqual([{ what: "late-answer", detail_json: '{"done":true}' }]);
  });

  test("failed, by a check: evidence and a contradiction", async () => {
    await using h = await harness({ policy: [quick] });
    h.world.onCheck = () => ({ says: "notApplied" });
    const answer = await overdue(h);
    await h.pass(5 * MINUTE);
    expect(rows(h)).toEqual(["failed", "applied"]);
    await answer(applied());
    expect(rows(h)).toEqual(["failed", "applied"]);
    expect(h.inbox()).toEqual(["contradiction"]);
  });

  test("a late refusal says nothing about a row that a person has settled", async () => {
    await using h = await harness();
    h.world.tool_ = { canCheck: false, proof: "none" };
    const answer = await overdue(h);
    await h.decide("book", { action: "applied" });
    await answer(failed("logic"));
    expect(rows(h)).toEqual(["applied"]);
    expect(h.inbox()).toEqual([]);
  });
});

describe("what happens around an unknown outcome", () => {
  test("1.11 paused while checking: a proof is recorded, nothing is sent, and it goes on once resumed", async () => {
    await using h = await harness({ policy: [quick] });
    h.world.onCheck = () => ({ says: "notApplied" });
    await unsettled(h);
    await h.act(h.operator.pause(h.id(), ANN));
    await h.pass(HOUR);
    expect(rows(h)).toEqual(["failed"]);
    expect(h.world.sent.length).toBe(1);
    await h.act(h.operator.resume(h.id(), ANN));
    expect(rows(h)).toEqual(["failed", "applied"]);
  });

  const states: [name: string, make: (h: Harness) => Promise<void>][] = [
    ["needs_reconcile", (h) => unsettled(h)],
    [
      "auth",
      async (h) => {
        h.world.onCheck = (_, nth) => (nth === 1 ? { says: "auth" } : { says: "unsure" });
        await unsettled(h);
      },
    ],
    [
      "indeterminate",
      async (h) => {
        h.world.tool_ = { canCheck: false, proof: "none" };
        await unsettled(h);
      },
    ],
  ];

  test.each(states)(
    "1.10 a deploy while %s waits for the answer; the call is not made anew",
    async (_, make) => {
      await using h = await harness({ policy: [quick] });
      await make(h);
      await h.deploy("w", booking({ next: () => undefined }));
      expect(h.run("book")).toMatchObject({ status: "paused:reconciliation", version: 1, attempt: 1 });
      expect(h.world.sent.length).toBe(1);
      await h.decide("book", { action: "not-applied" });
      expect(h.run("book")).toMatchObject({ status: "committed", version: 2, attempt: 2 });
      expect(h.world.sent.length).toBe(2);
    },
  );

  test.each(states)(
    "1.10 a deploy while %s that drops the consumer closes the chain on not-applied",
    async (_, make) => {
      await using h = await harness();
      await make(h);
      await h.deploy("w", { consumers: { other: { on: "order", prepare: () => ({}) } } });
      expect(h.run("book")).toMatchObject({ status: "paused:reconciliation", open: true });
      await h.decide("book", { action: "not-applied" });
      expect(h.run("book").open).toBe(false);
      expect(h.inbox()).toEqual(["orphaned"]);
      expect(h.world.sent.length).toBe(1);
    },
  );

  test.each(states)("7 a restart while %s changes nothing of what is known", async (_, make) => {
    await using h = await harness({ file: true });
    await make(h);
    const before = [rows(h), h.statuses("book"), h.inbox()];
    await h.restart();
    expect([rows(h), h.statuses("book"), h.inbox()]).toEqual(before);
    await h.decide("book", { action: "applied" });
    expect(h.run("book")).toMatchObject({ status: "committed", attempt: 1 });
    expect(h.world.sent.length).toBe(1);
  });

  test("7 a crash during a check: another life waits the claim out, then asks again", async () => {
    await using h = await harness({ file: true });
    h.world.onCheck = (_, nth) => (nth === 1 ? new Promise(() => {}) : { says: "applied" });
    await unsettled(h);
    await h.restart();
    expect(h.world.checked.length).toBe(1);
    await h.pass(MINUTE);
    expect(h.world.checked.length).toBe(2);
    expect(h.run("book")).toMatchObject({ status: "committed", attempt: 1 });
  });
});
