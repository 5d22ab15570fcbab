import { expect, test } from "vitest";
import {
  ANN,
  asking,
  harness,
  HOUR,
  MINUTE,
  nothing,
  post,
  type Harness,
  type Spec,
  take,
} from "../support/host-harness.ts";
import { applied, failed, gate, ok, unknown } from "../support/test-world.ts";

type Consumer = NonNullable<Spec["consumers"]>[string];
const booking = (more: Partial<Consumer> = {}): Spec => ({
  consumers: { book: { on: "order", prepare: take("order"), mutate: post, next: nothing, ...more } },
});
const ticking = (): Spec => ({ producers: { tick: { every: "1d", handler: nothing } } });
const audit = (h: Harness) => h.store.db.prepare("SELECT action FROM audit ORDER BY seq").pluck().all();

test("1.9 run now queues every producer", async () => {
  await using h = await harness();
  await h.deploy("w", { producers: { a: { handler: nothing }, b: { handler: nothing } } });
  expect(await h.runNow()).toEqual({ ok: true });
  expect(h.runs("a").map((one) => one.trigger)).toEqual(["deploy", "queued"]);
  expect(h.runs("b").map((one) => one.trigger)).toEqual(["deploy", "queued"]);
});

test("1.9 one handler may be named: a producer runs, a consumer is woken", async () => {
  await using h = await harness();
  await h.deploy("w", { ...ticking(), ...booking() });
  await h.runNow("book");
  expect(h.run("book").trigger).toBe("woken");
  expect(h.runs("tick").length).toBe(1);
  expect(await h.runNow("nobody")).toMatchObject({ ok: false });
});

test("1.9 run now is refused with the reason while a run is open, or the workflow is paused or archived", async () => {
  await using h = await harness();
  h.world.onSend = () => failed("logic");
  await h.deploy("w", { ...ticking(), ...booking() });
  await h.feed("order", "a");
  expect(await h.runNow()).toMatchObject({ ok: false, code: "workflow_blocked" });
  await h.decide("book", { action: "close", deliveries: "skip" });
  await h.act(h.operator.pause(h.id(), ANN));
  expect(await h.runNow()).toMatchObject({ ok: false, code: "workflow_paused" });
  await h.act(h.operator.archive(h.id(), ANN));
  expect(await h.runNow()).toMatchObject({ ok: false, code: "workflow_archived" });
});

test("1.9 run now is refused while a run is active", async () => {
  await using h = await harness();
  h.world.onRead = () => new Promise(() => {});
  await h.deploy("w", { producers: { tick: { handler: asking(nothing) } } });
  expect(await h.runNow()).toMatchObject({ ok: false, code: "run_active" });
});

test("1.9 the same key again is the same request", async () => {
  await using h = await harness();
  await h.deploy("w", ticking());
  expect(await h.runNow(undefined, "k1")).toEqual({ ok: true });
  expect(await h.runNow(undefined, "k1")).toEqual({ ok: true });
  expect(h.runs("tick").length).toBe(2);
  await h.runNow(undefined, "k2");
  expect(h.runs("tick").length).toBe(3);
});

test("1.11 a pause drains: the current run finishes, nothing starts", async () => {
  await using h = await harness();
  const answer = gate<ReturnType<typeof applied>>();
  h.world.onSend = () => answer.promise;
  await h.deploy("w", booking());
  await h.feed("order", "a");
  await h.act(h.operator.pause(h.id(), ANN));
  await h.feed("order", "b");
  answer.open(applied());
  await h.settle();
  await h.pass(HOUR);
  expect(h.deliveries("book")).toEqual(["a consumed", "b pending"]);
  await h.act(h.operator.resume(h.id(), ANN));
  expect(h.deliveries("book")).toEqual(["a consumed", "b consumed"]);
});

test("1.11 while paused decisions are recorded and checks go on; nothing runs", async () => {
  await using h = await harness();
  h.world.onSend = () => unknown();
  h.world.onCheck = (_, nth) => (nth < 3 ? { says: "unsure" } : { says: "applied" });
  await h.deploy("w", booking());
  await h.feed("order", "a");
  await h.act(h.operator.pause(h.id(), ANN));
  await h.pass(5 * MINUTE);
  expect(h.world.checked.length).toBe(3);
  expect(h.run("book")).toMatchObject({ status: "paused:reconciliation", phase: "mutated" });
  await h.act(h.operator.resume(h.id(), ANN));
  expect(h.run("book").status).toBe("committed");
});

test("1.11 pause with abort ends a script early: crashed, code aborted, and it starts again after the resume", async () => {
  await using h = await harness();
  h.world.onRead = (_, nth) => (nth === 1 ? new Promise(() => {}) : ok());
  await h.deploy("w", { producers: { tick: { every: "1d", handler: asking(nothing) } } });
  await h.act(h.operator.pause(h.id(), ANN, { abort: true }));
  expect(h.runs("tick")).toMatchObject([{ status: "crashed", error: "aborted" }]);
  await h.pass(HOUR);
  expect(h.runs("tick").length).toBe(1);
  await h.act(h.operator.resume(h.id(), ANN));
  expect(h.statuses("tick")).toEqual(["crashed", "committed"]);
});

test("1.11 pause with abort never ends a call in flight", async () => {
  await using h = await harness();
  const answer = gate<ReturnType<typeof applied>>();
  h.world.onSend = () => answer.promise;
  await h.deploy("w", booking());
  await h.feed("order", "a");
  await h.act(h.operator.pause(h.id(), ANN, { abort: true }));
  expect(h.run("book").status).toBe("active");
  answer.open(applied());
  await h.settle();
  expect(h.run("book")).toMatchObject({
    status: "crashed",
    error: "aborted",
    phase: "emitting",
    outcome: "applied",
  });
  await h.act(h.operator.resume(h.id(), ANN));
  expect(h.run("book")).toMatchObject({ status: "committed", attempt: 2 });
  expect(h.world.sent.length).toBe(1);
});

test("1.11 three aborts in a row are no crash loop", async () => {
  await using h = await harness();
  h.world.onRead = (_, nth) => (nth <= 4 ? new Promise(() => {}) : ok());
  await h.deploy("w", { producers: { tick: { every: "1d", handler: asking(nothing) } } });
  for (let i = 0; i < 4; i++) {
    await h.act(h.operator.pause(h.id(), ANN, { abort: true }));
    await h.act(h.operator.resume(h.id(), ANN));
  }
  expect(h.statuses("tick")).toEqual(["crashed", "crashed", "crashed", "crashed", "committed"]);
});

test("1.11 archive is refused while a run is active or an outcome unknown", async () => {
  await using h = await harness();
  const answer = gate<ReturnType<typeof unknown>>();
  h.world.onSend = () => answer.promise;
  await h.deploy("w", booking());
  await h.feed("order", "a");
  expect(await h.act(h.operator.archive(h.id(), ANN))).toMatchObject({ ok: false, code: "run_active" });
  answer.open(unknown());
  await h.settle();
  expect(await h.act(h.operator.archive(h.id(), ANN))).toMatchObject({ ok: false, code: "unknown_outcome" });
});

test("1.11 archive closes any other open chain and releases; unarchiving brings it back", async () => {
  await using h = await harness();
  h.world.onSend = (_, nth) => (nth === 1 ? failed("auth") : applied());
  await h.deploy("w", booking());
  await h.feed("order", "a");
  expect(await h.act(h.operator.archive(h.id(), ANN))).toEqual({ ok: true });
  expect(h.run("book").open).toBe(false);
  expect(h.deliveries("book")).toEqual(["a pending"]);
  expect(h.inbox()).toEqual([]);
  await h.act(h.operator.unarchive(h.id(), ANN));
  await h.runNow("book");
  expect(h.deliveries("book")).toEqual(["a consumed"]);
});

test("6 a pending delivery may be skipped", async () => {
  await using h = await harness();
  await h.deploy("w", booking({ prepare: () => ({}) }));
  await h.feed("order", "a");
  expect(await h.act(h.operator.skipDelivery(h.delivery("book", "a"), ANN))).toEqual({ ok: true });
  expect(h.deliveries("book")).toEqual(["a skipped"]);
  expect(audit(h)).toEqual(["deploy", "delivery.skip"]);
});

test("6 skipping what a waiting run holds resets that run and triggers for the rest", async () => {
  await using h = await harness();
  h.world.tool_ = { grant: "approve" };
  await h.deploy("w", booking({ prepare: take("order", 2) }));
  await h.act(h.operator.pause(h.id(), ANN));
  await h.feed("order", "a");
  await h.feed("order", "b");
  await h.act(h.operator.resume(h.id(), ANN));
  const first = h.run("book").id;
  await h.act(h.operator.skipDelivery(h.delivery("book", "a"), ANN));
  expect(h.runs("book").find((one) => one.id === first)?.open).toBe(false);
  expect(h.deliveries("book")).toEqual(["a skipped", "b reserved"]);
  expect(h.run("book")).toMatchObject({ status: "paused:approval", trigger: "requeued", attempt: 1 });
  expect(h.inbox()).toEqual(["approval"]);
});

test("6 what an active run works on, or an unknown outcome holds, is not skipped", async () => {
  await using h = await harness();
  const answer = gate<ReturnType<typeof unknown>>();
  h.world.onSend = () => answer.promise;
  await h.deploy("w", booking());
  await h.feed("order", "a");
  const skip = () => h.act(h.operator.skipDelivery(h.delivery("book", "a"), ANN));
  expect(await skip()).toMatchObject({ ok: false, code: "run_active" });
  answer.open(unknown());
  await h.settle();
  expect(await skip()).toMatchObject({ ok: false, code: "unknown_outcome" });
});

test("6 requeue brings a skipped or dead delivery back and triggers", async () => {
  await using h = await harness();
  await h.deploy("w", booking({ prepare: [{}, {}, take("order")] }));
  await h.feed("order", "a");
  await h.act(h.operator.skipDelivery(h.delivery("book", "a"), ANN));
  expect(await h.act(h.operator.requeue(h.delivery("book", "a"), ANN))).toEqual({ ok: true });
  expect(h.deliveries("book")).toEqual(["a consumed"]);
  expect(await h.act(h.operator.requeue(h.delivery("book", "a"), ANN))).toMatchObject({ ok: false });
});

test("6 reprocess makes a new delivery of the same event", async () => {
  await using h = await harness();
  await h.deploy("w", booking());
  await h.feed("order", "a");
  expect(await h.act(h.operator.reprocess(h.delivery("book", "a"), ANN))).toEqual({ ok: true });
  expect(h.deliveries("book")).toEqual(["a consumed", "a consumed"]);
  expect(h.world.sent.length).toBe(2);
});

test("6 handler state may be edited while no run of it is open, with before and after on record", async () => {
  await using h = await harness();
  await h.deploy("w", { producers: { tick: { every: "1d", handler: (_, state) => state ?? { n: 1 } } } });
  expect(await h.act(h.operator.editState(h.id(), { name: "tick" }, '{"n":5}', ANN))).toEqual({ ok: true });
  expect(h.handler("tick").state).toEqual({ n: 5 });
  const detail = h.store.db
    .prepare("SELECT detail_json FROM audit WHERE action = 'state.edit'")
    .pluck()
    .get() as string;
  expect(JSON.parse(detail)).toMatchObject({ before: '{"n":1}', after: '{"n":5}' });
});

test("6 handler state is not edited under a run", async () => {
  await using h = await harness();
  h.world.onRead = () => new Promise(() => {});
  await h.deploy("w", { producers: { tick: { every: "1d", handler: asking(nothing) } } });
  const edited = await h.act(h.operator.editState(h.id(), { name: "tick" }, null, ANN));
  expect(edited).toMatchObject({ ok: false, code: "run_active" });
});

test("6 every decision leaves one audit row", async () => {
  await using h = await harness();
  h.world.tool_ = { canCheck: false };
  h.world.onSend = () => unknown();
  await h.deploy("w", booking());
  await h.feed("order", "a");
  await h.act(h.operator.pause(h.id(), ANN));
  await h.act(h.operator.resume(h.id(), ANN));
  await h.decide("book", { action: "applied" });
  expect(audit(h)).toEqual(["deploy", "pause", "resume", "run.applied"]);
});

test("6 what is not there is said not to be there", async () => {
  await using h = await harness();
  const answers = await Promise.all([
    h.operator.pause(1, ANN),
    h.operator.decide(1, { action: "retry" }, ANN),
    h.operator.skipDelivery(1, ANN),
    h.operator.skipInput(1, 1, ANN),
  ]);
  expect(answers.map((one) => !one.ok && one.code)).toEqual(Array.from({ length: 4 }, () => "not_found"));
});
