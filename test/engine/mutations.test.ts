import { expect, test } from "vitest";
import {
  ANN,
  DAY,
  harness,
  HOUR,
  MINUTE,
  nothing,
  post,
  SECOND,
  type Harness,
  type Spec,
  take,
} from "../support/host-harness.ts";
import { applied, failed, gate, unknown } from "../support/test-world.ts";

type Consumer = NonNullable<Spec["consumers"]>[string];
const booking = (more: Partial<Consumer> = {}): Spec => ({
  consumers: { book: { on: "order", prepare: take("order"), mutate: post, next: nothing, ...more } },
});
const rows = (h: Harness) =>
  h.store.db.prepare("SELECT status FROM mutations ORDER BY id").pluck().all() as string[];
const keys = (h: Harness) => h.world.sent.map((call) => call.idempotencyKey);
const quick = { match: "default" as const, policy: { backoff: "linear" as const, baseDelayMs: 1_000 } };

/** One order whose call has an unknown outcome. */
async function unsettled(h: Harness, spec = booking()): Promise<void> {
  h.world.onSend = (_, nth) => (nth === 1 ? unknown() : applied());
  await h.deploy("w", spec);
  await h.feed("order", "a");
}

test("5.1 a broken connection is unknown: never failed, never sent again by itself", async () => {
  await using h = await harness();
  await unsettled(h);
  expect(h.run("book")).toMatchObject({
    status: "paused:reconciliation",
    reason: "checking",
    phase: "mutating",
  });
  expect(rows(h)).toEqual(["needs_reconcile"]);
  expect(h.deliveries("book")).toEqual(["a reserved"]);
  await h.pass(DAY);
  expect(h.world.sent.length).toBe(1);
});

test("5.2 the check comes at once and applied goes on in place", async () => {
  await using h = await harness();
  h.world.onCheck = () => ({ says: "applied", result: '{"found":1}' });
  const seen: unknown[] = [];
  await unsettled(h, booking({ next: (_, __, outcome) => void seen.push(outcome) }));
  expect(h.world.checked.length).toBe(1);
  expect(seen.at(-1)).toEqual({ status: "applied", result: { found: 1 } });
  expect(h.runs("book").at(-1)).toMatchObject({ status: "committed", attempt: 1, outcome: "applied" });
});

test("5.2 notApplied is believed only settleMs after the call ended, then a new run sends again", async () => {
  await using h = await harness({ policy: [quick] });
  h.world.onCheck = () => ({ says: "notApplied" });
  await unsettled(h);
  expect(rows(h)).toEqual(["needs_reconcile"]);
  await h.pass(29 * SECOND);
  expect(rows(h)).toEqual(["needs_reconcile"]);
  await h.pass(MINUTE);
  expect(rows(h)).toEqual(["failed", "applied"]);
  expect(h.run("book")).toMatchObject({ status: "committed", attempt: 2 });
  expect(new Set(keys(h)).size).toBe(2);
});

test("5.2 unsure is asked again with backoff, then a person decides", async () => {
  await using h = await harness();
  await unsettled(h);
  await h.pass(HOUR);
  expect(h.world.checked.length).toBe(6);
  expect(h.statuses("book").at(-1)).toBe("paused:reconciliation indeterminate");
  expect(rows(h)).toEqual(["indeterminate"]);
  expect(h.inbox()).toEqual(["unknown_outcome"]);
});

test("5.2 a tool that cannot check goes to a person at once", async () => {
  await using h = await harness();
  h.world.tool_ = { canCheck: false, proof: "none" };
  await unsettled(h);
  expect(h.statuses("book").at(-1)).toBe("paused:reconciliation indeterminate");
  expect(h.world.checked).toEqual([]);
});

test("5.2 auth trouble of a check uses no attempt up and waits for the connection", async () => {
  await using h = await harness();
  h.world.onCheck = (_, nth) => (nth === 1 ? { says: "auth" } : { says: "applied" });
  await unsettled(h);
  await h.pass(HOUR);
  expect(h.world.checked.length).toBe(1);
  expect(h.statuses("book").at(-1)).toBe("paused:reconciliation auth");
  await h.act(h.operator.unblock(h.id(), "auth", ANN));
  expect(h.run("book").status).toBe("committed");
});

test("5.2 a check that does not answer in time is unsure", async () => {
  await using h = await harness();
  h.world.onCheck = (_, nth) => (nth === 1 ? new Promise(() => {}) : { says: "applied" });
  await unsettled(h);
  await h.pass(16 * SECOND);
  expect(h.statuses("book").at(-1)).toBe("paused:reconciliation checking");
  await h.pass(MINUTE);
  expect(h.run("book").status).toBe("committed");
});

test("5.2 proof class key: the check is the same bytes with the same key once more", async () => {
  await using h = await harness();
  h.world.tool_ = { proof: "key", canCheck: false };
  await unsettled(h);
  expect(h.world.sent.length).toBe(2);
  expect(new Set(keys(h)).size).toBe(1);
  expect(new Set(h.world.sent.map((call) => call.args)).size).toBe(1);
  expect(h.run("book").status).toBe("committed");
  expect(h.store.db.prepare("SELECT count(*) FROM sends WHERE ended_at IS NOT NULL").pluck().get()).toBe(2);
});

test("5.2 after a day the key proves nothing: no re-send", async () => {
  await using h = await harness({
    policy: [{ match: "default", policy: { check: { maxElapsedMs: 3 * DAY } } }],
  });
  h.world.tool_ = { proof: "key", canCheck: false };
  h.world.onSend = () => unknown();
  await h.deploy("w", booking());
  await h.feed("order", "a");
  await h.pass(HOUR);
  const sent = h.world.sent.length;
  expect(h.statuses("book").at(-1)).toBe("paused:reconciliation indeterminate");
  await h.pass(DAY);
  expect(await h.decide("book", { action: "check" })).toMatchObject({ ok: false });
  expect(h.world.sent.length).toBe(sent);
});

test("5.2 of a re-send only success is an answer", async () => {
  await using h = await harness();
  h.world.tool_ = { proof: "key", canCheck: false };
  h.world.onSend = (_, nth) => (nth === 1 ? unknown() : nth === 2 ? failed("logic") : applied());
  await h.deploy("w", booking());
  await h.feed("order", "a");
  expect(rows(h)).toEqual(["needs_reconcile"]);
  await h.pass(MINUTE);
  expect(rows(h)).toEqual(["applied"]);
});

test("5.2 a re-send that is told when to come back does not come sooner", async () => {
  await using h = await harness();
  h.world.tool_ = { proof: "key", canCheck: false };
  const limited = { ...failed("transient"), retryAfterMs: 5 * MINUTE };
  h.world.onSend = (_, nth) => (nth === 1 ? unknown() : nth === 2 ? limited : applied());
  await h.deploy("w", booking());
  await h.feed("order", "a");
  await h.pass(4 * MINUTE);
  expect(h.world.sent.length).toBe(2);
  await h.pass(2 * MINUTE);
  expect(rows(h)).toEqual(["applied"]);
});

test("5.2 with another config of the connection notApplied proves nothing", async () => {
  await using h = await harness();
  h.world.onCheck = () => ({ says: "notApplied" });
  await unsettled(h);
  h.world.tool_ = { configVersion: 2 };
  await h.pass(HOUR);
  expect(rows(h)).toEqual(["indeterminate"]);
  expect(h.world.sent.length).toBe(1);
});

test("5.1 a call that does not end in time is unknown", async () => {
  await using h = await harness();
  h.world.onSend = () => new Promise(() => {});
  await h.deploy("w", booking());
  await h.feed("order", "a");
  await h.pass(119 * SECOND);
  expect(h.run("book").status).toBe("active");
  await h.pass(2 * SECOND);
  expect(h.run("book")).toMatchObject({ status: "paused:reconciliation", error: "mutation-timeout" });
});

test("5.3 an answer that comes late settles the row", async () => {
  await using h = await harness();
  const answer = gate<ReturnType<typeof applied>>();
  h.world.onSend = () => answer.promise;
  await h.deploy("w", booking());
  await h.feed("order", "a");
  await h.pass(121 * SECOND);
  expect(rows(h)).toEqual(["needs_reconcile"]);
  answer.open(applied({ late: true }));
  await h.settle();
  expect(rows(h)).toEqual(["applied"]);
  expect(h.run("book")).toMatchObject({ status: "committed", attempt: 1 });
});

test("5.3 a late proof that nothing happened gives a new run", async () => {
  await using h = await harness({ policy: [quick] });
  const answer = gate<ReturnType<typeof failed>>();
  h.world.onSend = (_, nth) => (nth === 1 ? answer.promise : applied());
  await h.deploy("w", booking());
  await h.feed("order", "a");
  await h.pass(121 * SECOND);
  answer.open(failed("transient"));
  await h.settle();
  await h.pass(5 * SECOND);
  expect(rows(h)).toEqual(["failed", "applied"]);
});

test("5.3 a late answer that contradicts a settled row is evidence and opens an item", async () => {
  await using h = await harness();
  const answer = gate<ReturnType<typeof applied>>();
  h.world.onSend = () => answer.promise;
  await h.deploy("w", booking());
  await h.feed("order", "a");
  await h.pass(121 * SECOND);
  await h.decide("book", { action: "skip" });
  expect(h.run("book")).toMatchObject({ status: "committed", outcome: "skipped" });
  answer.open(applied());
  await h.settle();
  expect(rows(h)).toEqual(["skipped"]);
  expect(h.inbox()).toEqual(["contradiction"]);
});

test("5.4 a retry after a proven failure has a new key, after a person's word the old one", async () => {
  await using h = await harness({ policy: [quick] });
  h.world.tool_ = { canCheck: false, proof: "none" };
  h.world.onSend = (_, nth) => (nth === 1 ? failed("transient") : nth === 2 ? unknown() : applied());
  await h.deploy("w", booking());
  await h.feed("order", "a");
  await h.pass(10 * SECOND);
  await h.decide("book", { action: "not-applied" });
  const [first, second, third] = keys(h);
  expect(second).not.toBe(first);
  expect(third).toBe(second);
  expect(h.run("book").status).toBe("committed");
});

test("5.4 arguments that differ on every attempt raise a warning", async () => {
  await using h = await harness({ policy: [quick] });
  h.world.onSend = (_, nth) => (nth < 3 ? failed("transient") : applied());
  await h.deploy("w", booking({ mutate: (ctx) => ctx.bank.post({ at: ctx.now() }) }));
  await h.feed("order", "a");
  await h.pass(MINUTE);
  expect(h.warnings().filter((one) => one.startsWith("unstable-intent")).length).toBe(2);
});

test("5.1 a definite success whose body does not fit is applied with resultInvalid", async () => {
  await using h = await harness();
  const seen: unknown[] = [];
  h.world.onSend = () => ({ outcome: "applied", result: "null", resultInvalid: true, raw: '"?"' });
  await h.deploy("w", booking({ next: (_, __, outcome) => void seen.push(outcome) }));
  await h.feed("order", "a");
  expect(seen.at(-1)).toEqual({ status: "applied", result: null, resultInvalid: true });
});

test("3.3 an approved call waits for a person and leaves exactly as shown", async () => {
  await using h = await harness();
  h.world.tool_ = { grant: "approve" };
  await h.deploy("w", booking());
  await h.feed("order", "a");
  expect(h.statuses("book").at(-1)).toBe("paused:approval approval");
  expect(h.inbox()).toEqual(["approval"]);
  expect(h.world.sent).toEqual([]);
  expect(await h.decide("book", { action: "approve" })).toEqual({ ok: true });
  expect(h.world.args).toEqual([{ ids: ["a"] }]);
  expect(h.run("book")).toMatchObject({ status: "committed", attempt: 1 });
});

test("3.3 claim and in_flight of an approved call are one transaction", async () => {
  await using h = await harness();
  h.world.tool_ = { grant: "approve" };
  await h.deploy("w", booking());
  await h.feed("order", "a");
  await h.decide("book", { action: "approve" });
  const verbs = h.store.db
    .prepare("SELECT verb FROM journal WHERE run = ? ORDER BY first")
    .pluck()
    .all(h.run("book").id);
  expect(verbs).toContain("resume+sending");
});

test("3.3 an approval while the workflow is paused is kept until it is resumed", async () => {
  await using h = await harness();
  h.world.tool_ = { grant: "approve" };
  await h.deploy("w", booking());
  await h.feed("order", "a");
  await h.act(h.operator.pause(h.id(), ANN));
  await h.decide("book", { action: "approve" });
  await h.pass(HOUR);
  expect(h.world.sent).toEqual([]);
  await h.act(h.operator.resume(h.id(), ANN));
  expect(h.world.sent.length).toBe(1);
});

const voided: [name: string, change: (h: Harness) => void][] = [
  ["the config of the connection", (h) => (h.world.tool_ = { grant: "approve", configVersion: 2 })],
  ["the connection", (h) => (h.world.tool_ = { grant: "approve", connection: "other" })],
];
for (const [name, change] of voided)
  test(`3.4 an approval is void when ${name} has changed: asked again, nothing sent`, async () => {
    await using h = await harness();
    h.world.tool_ = { grant: "approve" };
    await h.deploy("w", booking());
    await h.feed("order", "a");
    change(h);
    await h.decide("book", { action: "approve" });
    expect(h.world.sent).toEqual([]);
    expect(rows(h)).toEqual(["failed", "proposed"]);
    expect(h.run("book")).toMatchObject({ status: "paused:approval", attempt: 2 });
  });

test("3.4 an approval is void when the grant was taken back", async () => {
  await using h = await harness();
  h.world.tool_ = { grant: "approve" };
  await h.deploy("w", booking());
  await h.feed("order", "a");
  h.world.tool_ = { grant: "deny" };
  await h.decide("book", { action: "approve" });
  expect(h.world.sent).toEqual([]);
  expect(h.statuses("book").at(-1)).toBe("paused:approval permission");
});

test("06 within a chain an identical intent after a proven failure needs no second approval", async () => {
  await using h = await harness({ policy: [quick] });
  h.world.tool_ = { grant: "approve" };
  h.world.onSend = (_, nth) => (nth === 1 ? failed("transient") : applied());
  await h.deploy("w", booking());
  await h.feed("order", "a");
  await h.decide("book", { action: "approve" });
  await h.pass(5 * SECOND);
  expect(h.world.sent.length).toBe(2);
  expect(h.run("book").status).toBe("committed");
});

test("6 reject with skip goes on with next(skipped); with release the deliveries wait untriggered", async () => {
  await using h = await harness();
  const seen: unknown[] = [];
  h.world.tool_ = { grant: "approve" };
  await h.deploy("w", booking({ next: (_, __, outcome) => void seen.push(outcome) }));
  await h.feed("order", "a");
  await h.decide("book", { action: "reject", deliveries: "skip" });
  expect(seen.at(-1)).toEqual({ status: "skipped" });
  await h.feed("order", "b");
  await h.decide("book", { action: "reject", deliveries: "release" });
  await h.pass(HOUR);
  expect(h.deliveries("book")).toEqual(["a consumed", "b pending"]);
  expect(h.world.sent).toEqual([]);
});

test("6 it happened, said by a person, goes on with the result given", async () => {
  await using h = await harness();
  const seen: unknown[] = [];
  h.world.tool_ = { canCheck: false };
  await unsettled(h, booking({ next: (_, __, outcome) => void seen.push(outcome) }));
  expect(await h.decide("book", { action: "applied" })).toEqual({ ok: true });
  expect(seen.at(-1)).toEqual({ status: "applied", result: null });
  expect(h.world.sent.length).toBe(1);
});

test("6 retry is refused while the outcome is unknown", async () => {
  await using h = await harness();
  await unsettled(h);
  expect(await h.decide("book", { action: "retry" })).toMatchObject({ ok: false, code: "wrong_state" });
  expect(await h.decide("book", { action: "close", deliveries: "release" })).toMatchObject({ ok: false });
});

test("6 check again resets the count and asks now", async () => {
  await using h = await harness();
  await unsettled(h);
  await h.pass(HOUR);
  h.world.onCheck = () => ({ says: "applied" });
  expect(await h.decide("book", { action: "check" })).toEqual({ ok: true });
  expect(h.run("book").status).toBe("committed");
});

test("6 of two decisions the second is told that something has changed", async () => {
  await using h = await harness();
  h.world.tool_ = { canCheck: false };
  await unsettled(h);
  const { id } = h.run("book");
  const both = await Promise.all([
    h.operator.decide(id, { action: "applied" }, ANN),
    h.operator.decide(id, { action: "not-applied" }, { by: "bob" }),
  ]);
  expect(both.map((one) => one.ok).toSorted((a, b) => Number(a) - Number(b))).toEqual([false, true]);
  await h.settle();
});

test("6 an expectation that no longer holds is refused", async () => {
  await using h = await harness();
  h.world.tool_ = { canCheck: false };
  await unsettled(h);
  const { id } = h.run("book");
  const decided = await h.operator.decide(id, { action: "applied" }, ANN, { ledger: "needs_reconcile" });
  expect(decided).toMatchObject({ ok: false, code: "changed" });
});

test("4 a tool that is not granted waits for a person, and nothing is sent", async () => {
  await using h = await harness();
  h.world.tool_ = { grant: "deny" };
  await h.deploy("w", booking());
  await h.feed("order", "a");
  expect(h.statuses("book").at(-1)).toBe("paused:approval permission");
  h.world.tool_ = {};
  await h.act(h.operator.unblock(h.id(), "permission", ANN));
  expect(h.run("book")).toMatchObject({ status: "committed", attempt: 1 });
  expect(h.world.sent.length).toBe(1);
});

test("3.4 a call refused for want of auth is issued as recorded once reconnected", async () => {
  await using h = await harness();
  h.world.onSend = (_, nth) => (nth === 1 ? failed("auth") : applied());
  await h.deploy("w", booking());
  await h.feed("order", "a");
  expect(h.statuses("book").at(-1)).toBe("paused:approval auth");
  expect(rows(h)).toEqual(["proposed"]);
  expect(h.deliveries("book")).toEqual(["a reserved"]);
  const units = h.calls.length;
  await h.act(h.operator.unblock(h.id(), "auth", ANN));
  expect(new Set(keys(h)).size).toBe(1);
  expect(h.calls.slice(units).map((call) => call.unit)).toEqual(["next"]);
  expect(h.run("book")).toMatchObject({ status: "committed", attempt: 1 });
});

test("3.4 reconnected, but to another config: a new run instead of the recorded call", async () => {
  await using h = await harness({ policy: [quick] });
  h.world.onSend = (_, nth) => (nth === 1 ? failed("auth") : applied());
  await h.deploy("w", booking());
  await h.feed("order", "a");
  h.world.tool_ = { configVersion: 2 };
  await h.act(h.operator.unblock(h.id(), "auth", ANN));
  await h.pass(5 * SECOND);
  expect(rows(h)).toEqual(["failed", "applied"]);
  expect(h.run("book")).toMatchObject({ status: "committed", attempt: 2 });
});
