// What a new run starts from is decided by the ledger row (02 §3.1), and what a checkpoint refuses (2.4).
import { expect, test } from "vitest";
import type { Change } from "../../host/core/change.ts";
import {
  ANN,
  harness,
  type Harness,
  MINUTE,
  nothing,
  post,
  SECOND,
  type Spec,
  take,
} from "../support/host-harness.ts";
import { applied, failed, gate, unknown } from "../support/test-world.ts";

type Consumer = NonNullable<Spec["consumers"]>[string];
const booking = (more: Partial<Consumer> = {}): Spec => ({
  consumers: { book: { on: "order", prepare: take("order"), mutate: post, next: nothing, ...more } },
});
const quick = { match: "default" as const, policy: { backoff: "linear" as const, baseDelayMs: 1_000 } };
const rows = (h: Harness) => h.store.db.prepare("SELECT status FROM mutations ORDER BY id").pluck().all();
const copies = (h: Harness) =>
  h.store.db
    .prepare(
      "SELECT prepared_json AS prepared, result_json AS result, outcome FROM runs WHERE attempt > 0 ORDER BY id",
    )
    .all() as { prepared: string | null; result: string | null; outcome: string | null }[];

test("3.1 no row: the new run starts at preparing, with nothing copied and nothing held", async () => {
  await using h = await harness();
  await h.deploy("w", booking({ mutate: [new Error("no"), post] }));
  await h.feed("order", "a");
  expect(h.run("book")).toMatchObject({ status: "failed:logic" });
  expect(h.deliveries("book")).toEqual(["a pending"]);
  await h.decide("book", { action: "retry" });
  expect(h.units().slice(-3)).toEqual(["book prepare+mutate", "book prepare+mutate", "book next"]);
  expect(h.run("book")).toMatchObject({ status: "committed", attempt: 2 });
});

test("3.1 a row that failed: from preparing, its deliveries given back when the failure was recorded", async () => {
  await using h = await harness({ policy: [quick] });
  h.world.onSend = (_, nth) => (nth === 1 ? failed("transient") : applied());
  await h.deploy("w", booking());
  await h.feed("order", "a");
  expect(h.deliveries("book")).toEqual(["a pending"]);
  expect(rows(h)).toEqual(["failed"]);
  await h.pass(5 * SECOND);
  expect(rows(h)).toEqual(["failed", "applied"]);
  expect(h.units().filter((one) => one === "book prepare+mutate").length).toBe(3);
});

test("3.1 a row that was only proposed becomes failed, not sent", async () => {
  await using h = await harness();
  h.world.tool_ = { grant: "approve" };
  await h.deploy("w", booking());
  await h.feed("order", "a");
  await h.act(h.operator.pause(h.id(), ANN));
  await h.decide("book", { action: "approve" });
  h.world.tool_ = { grant: "approve", configVersion: 2 };
  await h.act(h.operator.resume(h.id(), ANN));
  expect(
    h.store.db
      .prepare("SELECT status || iif(not_sent, ' unsent', '') FROM mutations ORDER BY id")
      .pluck()
      .all(),
  ).toEqual(["failed unsent", "proposed"]);
  expect(h.run("book")).toMatchObject({ status: "paused:approval", attempt: 2 });
  expect(h.world.sent).toEqual([]);
});

test("3.1 an unknown row: no new run, whatever time passes", async () => {
  await using h = await harness();
  h.world.onSend = () => unknown();
  await h.deploy("w", booking());
  await h.feed("order", "a");
  await h.pass(60 * MINUTE);
  expect(h.runs("book").length).toBe(2);
  expect(h.run("book")).toMatchObject({ status: "paused:reconciliation", attempt: 1 });
  expect(h.deliveries("book")).toEqual(["a reserved"]);
});

test("3.1 a row that was applied: from emitting, with byte-equal copies, deliveries taken over", async () => {
  await using h = await harness();
  h.world.onSend = () => applied({ id: 7 });
  const seen: unknown[] = [];
  const next = [nothing, new Error("no"), (_: unknown, ...rest: unknown[]) => void seen.push(rest)];
  await h.deploy("w", booking({ next }));
  await h.feed("order", "a");
  expect(h.run("book")).toMatchObject({ status: "failed:logic", phase: "emitting" });
  expect(h.deliveries("book")).toEqual(["a reserved"]);
  await h.decide("book", { action: "retry" });
  const [before, after] = copies(h).slice(-2);
  expect(after).toEqual(before);
  expect(after).toMatchObject({ outcome: "applied", result: '{"id":7}' });
  expect(seen).toEqual([
    [expect.objectContaining({ data: expect.anything() }), { status: "applied", result: { id: 7 } }],
  ]);
  expect(h.world.sent.length).toBe(1);
  expect(h.deliveries("book")).toEqual(["a consumed"]);
});

test("3.1 a row that was skipped: from emitting, next(skipped)", async () => {
  await using h = await harness();
  h.world.onSend = () => unknown();
  const seen: unknown[] = [];
  const next = [
    nothing,
    new Error("no"),
    (_: unknown, __: unknown, outcome: unknown) => void seen.push(outcome),
  ];
  await h.deploy("w", booking({ next }));
  await h.feed("order", "a");
  await h.decide("book", { action: "skip" });
  await h.decide("book", { action: "retry" });
  expect(seen).toEqual([{ status: "skipped" }]);
  expect(h.run("book")).toMatchObject({ status: "committed", outcome: "skipped", attempt: 2 });
});

test("3.1 after an attempt with outcome none that failed in next: from preparing", async () => {
  await using h = await harness();
  await h.deploy("w", booking({ mutate: nothing, next: [nothing, new Error("no"), nothing] }));
  await h.feed("order", "a");
  expect(h.run("book")).toMatchObject({ status: "failed:logic", phase: "emitting", outcome: "none" });
  expect(h.deliveries("book")).toEqual(["a pending"]);
  await h.decide("book", { action: "retry" });
  expect(h.units().slice(-2)).toEqual(["book prepare+mutate", "book next"]);
  expect(h.deliveries("book")).toEqual(["a consumed"]);
});

test("2.3 next gets null when a person confirmed without a result", async () => {
  await using h = await harness();
  h.world.onSend = () => unknown();
  const seen: unknown[] = [];
  await h.deploy("w", booking({ next: (_, __, outcome) => void seen.push(outcome) }));
  await h.feed("order", "a");
  await h.decide("book", { action: "applied" });
  expect(seen.at(-1)).toEqual({ status: "applied", result: null });
});

test("2.4 a second commit, one by a run that is active no more, and one with a stale fence are refused", async () => {
  await using h = await harness();
  const commits: Change[] = [];
  const { store } = h.parts;
  h.parts.store = new Proxy(store, {
    get: (target, name) =>
      name === "apply"
        ? (...args: Parameters<typeof store.apply>) => {
            if (args[0].verb === "commit") commits.push(args[0]);
            return target.apply(...args);
          }
        : (Reflect.get(target, name, target) as unknown),
  });
  await h.deploy("w", booking());
  await h.feed("order", "a");
  const commit = commits.at(-1) as Change;
  const { fence } = h.store;
  expect(await h.store.apply(commit, { level: "durable", fence })).toMatchObject({
    ok: false,
    because: "stale-run",
  });
  for (const stale of [
    { ...fence, epoch: fence.epoch - 1 },
    { ...fence, incarnation: fence.incarnation - 1 },
  ])
    expect(await h.store.apply(commit, { level: "durable", fence: stale })).toMatchObject({
      because: "stale-fence",
    });
  expect(h.deliveries("book")).toEqual(["a consumed"]);
});

test("6 a delivery whose call is said to have happened after all is requeued only with the word that it did not", async () => {
  await using h = await harness();
  const answer = gate<ReturnType<typeof applied>>();
  h.world.onSend = (_, nth) => (nth === 1 ? answer.promise : applied());
  await h.deploy("w", booking({ prepare: [take("order"), take("order"), {}, take("order")] }));
  await h.feed("order", "a");
  await h.pass(121 * SECOND);
  await h.decide("book", { action: "not-applied" });
  await h.act(h.operator.skipDelivery(h.delivery("book", "a"), ANN));
  answer.open(applied());
  await h.settle();
  expect(h.inbox()).toEqual(["contradiction"]);
  const id = h.delivery("book", "a");
  expect(await h.act(h.operator.requeue(id, ANN))).toMatchObject({ ok: false, code: "unknown_outcome" });
  expect(h.world.sent.length).toBe(1);
  expect(await h.act(h.operator.requeue(id, ANN, "not-applied"))).toEqual({ ok: true });
  expect(h.world.sent.length).toBe(2);
});
