import { expect, test } from "vitest";
import {
  ANN,
  asking,
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
import { applied, failed, gate, ok, unknown } from "../support/test-world.ts";

type Consumer = NonNullable<Spec["consumers"]>[string];
const booking = (more: Partial<Consumer> = {}): Spec => ({
  consumers: { book: { on: "order", prepare: take("order"), mutate: post, next: nothing, ...more } },
});
const rows = (h: Harness) => h.store.db.prepare("SELECT status FROM mutations ORDER BY id").pluck().all();
/** A stop, and whether it has come to its end. */
function stopping(h: Harness): { isDone: () => boolean } {
  let done = false;
  void h.engine.stop().then(() => {
    done = true;
  });
  return { isDone: () => done };
}

const never = () => new Promise<never>(() => {});

test("7 a producer that was running is crashed and starts again from its beginning", async () => {
  await using h = await harness({ file: true });
  h.world.onRead = (_, nth) => (nth === 1 ? never() : ok());
  await h.deploy("w", { producers: { tick: { every: "1d", handler: asking(() => ({ n: 1 })) } } });
  await h.restart();
  expect(h.runs("tick")).toMatchObject([
    { status: "crashed", error: "host-crashed", phase: "executing" },
    { status: "committed", attempt: 2, trigger: "recovery", retries: 0 },
  ]);
});

test("7 a crash in prepare: a new run from prepare, nothing reserved", async () => {
  await using h = await harness({ file: true });
  h.world.onRead = (_, nth) => (nth === 2 ? never() : ok());
  await h.deploy("w", booking({ prepare: asking(take("order")) }));
  await h.feed("order", "a");
  await h.restart();
  expect(h.run("book")).toMatchObject({ status: "committed", attempt: 2 });
  expect(h.deliveries("book")).toEqual(["a consumed"]);
  expect(h.world.sent.length).toBe(1);
});

test("7 a crash while a call is in flight: an unknown row is checked first, on the pinned version", async () => {
  await using h = await harness({ file: true });
  h.world.onSend = (_, nth) => (nth === 1 ? never() : applied());
  h.world.onCheck = () => ({ says: "applied", result: "1" });
  await h.deploy("w", booking());
  await h.feed("order", "a");
  expect(rows(h)).toEqual(["in_flight"]);
  await h.restart();
  expect(h.world.sent.length).toBe(1);
  expect(h.runs("book").slice(1)).toMatchObject([
    { status: "crashed", phase: "mutating" },
    { status: "committed", attempt: 2, outcome: "applied", version: 1 },
  ]);
});

test("7 a crash in flight without a check waits for a person's word", async () => {
  await using h = await harness({ file: true });
  h.world.tool_ = { canCheck: false };
  h.world.onSend = (_, nth) => (nth === 1 ? never() : applied());
  await h.deploy("w", booking());
  await h.feed("order", "a");
  await h.restart();
  await h.pass(HOUR);
  expect(h.statuses("book").at(-1)).toBe("paused:reconciliation indeterminate");
  expect(h.inbox()).toEqual(["unknown_outcome"]);
  await h.decide("book", { action: "not-applied" });
  expect(h.deliveries("book")).toEqual(["a consumed"]);
  expect(h.world.sent.length).toBe(2);
});

test("7 after a crash notApplied counts from the recovery on", async () => {
  await using h = await harness({ file: true });
  h.world.onSend = (_, nth) => (nth === 1 ? never() : applied());
  h.world.onCheck = () => ({ says: "notApplied" });
  await h.deploy("w", booking());
  await h.feed("order", "a");
  await h.restart(10 * MINUTE);
  await h.pass(20 * SECOND);
  expect(h.world.sent.length).toBe(1);
  await h.pass(2 * MINUTE);
  expect(h.world.sent.length).toBe(2);
  expect(rows(h)).toEqual(["failed", "applied"]);
});

test("7 a crash in next: the change is not made again, next runs again with the same result", async () => {
  await using h = await harness({ file: true });
  const seen: unknown[] = [];
  let hang = true;
  h.world.onSend = () => applied({ id: 7 });
  const spec = booking({ next: (_, prepared, outcome) => void seen.push([prepared.data.ids, outcome]) });
  await h.deploy("w", spec);
  const run = h.parts.sandbox.run.bind(h.parts.sandbox);
  h.parts.sandbox.run = (call, answer) => (hang && call.unit === "next" ? never() : run(call, answer));
  await h.feed("order", "a");
  expect(h.run("book").phase).toBe("emitting");
  hang = false;
  await h.restart();
  expect(seen.at(-1)).toEqual([["a"], { status: "applied", result: { id: 7 } }]);
  expect(h.run("book")).toMatchObject({ status: "committed", attempt: 2, outcome: "applied" });
  expect(h.world.sent.length).toBe(1);
  expect(h.deliveries("book")).toEqual(["a consumed"]);
});

const kept: [name: string, set: (h: Harness) => void, status: string][] = [
  [
    "an approval that is asked for",
    (h) => (h.world.tool_ = { grant: "approve" }),
    "paused:approval approval",
  ],
  ["a failed run", (h) => (h.world.onSend = () => failed("logic")), "failed:logic"],
  ["auth trouble", (h) => (h.world.onSend = () => failed("auth")), "paused:approval auth"],
  [
    "an unknown outcome at a person's desk",
    (h) => {
      h.world.tool_ = { canCheck: false };
      h.world.onSend = () => unknown();
    },
    "paused:reconciliation indeterminate",
  ],
];
for (const [name, set, status] of kept)
  test(`7 ${name} survives a restart as it is`, async () => {
    await using h = await harness({ file: true });
    set(h);
    await h.deploy("w", booking());
    await h.feed("order", "a");
    const before = h.runs("book");
    expect(h.statuses("book").at(-1)).toBe(status);
    await h.restart();
    await h.pass(HOUR);
    expect(h.runs("book")).toEqual(before);
  });

test("7 a retry that waits keeps its time over a restart", async () => {
  await using h = await harness({ file: true });
  h.world.onSend = (_, nth) => (nth === 1 ? failed("transient", { retryAfterMs: 10 * MINUTE }) : applied());
  await h.deploy("w", booking());
  await h.feed("order", "a");
  await h.restart(MINUTE);
  await h.pass(8 * MINUTE);
  expect(h.world.sent.length).toBe(1);
  await h.pass(2 * MINUTE);
  expect(h.world.sent.length).toBe(2);
});

test("7 checks that were due go on after a restart", async () => {
  await using h = await harness({ file: true });
  h.world.onSend = () => unknown();
  await h.deploy("w", booking());
  await h.feed("order", "a");
  const before = h.world.checked.length;
  await h.restart(HOUR);
  expect(h.world.checked.length).toBeGreaterThan(before);
});

test("3.3 a crash between an approval and its claim does not lose the approval", async () => {
  await using h = await harness({ file: true });
  h.world.tool_ = { grant: "approve" };
  await h.deploy("w", booking());
  await h.feed("order", "a");
  await h.act(h.operator.pause(h.id(), ANN));
  await h.decide("book", { action: "approve" });
  await h.restart();
  await h.act(h.operator.resume(h.id(), ANN));
  expect(h.world.sent.length).toBe(1);
  expect(h.run("book").status).toBe("committed");
});

test("7 three crashes in a row at the same phase wait for a person", async () => {
  await using h = await harness({ file: true });
  h.world.onRead = () => never();
  await h.deploy("w", { producers: { tick: { every: "1d", handler: asking(nothing) } } });
  await h.restart();
  await h.restart();
  await h.restart();
  expect(h.statuses("tick")).toEqual(["crashed", "crashed", "crashed crash_loop"]);
  expect(h.inbox()).toEqual(["crash_loop"]);
  h.world.onRead = () => ok();
  await h.decide("tick", { action: "retry" });
  expect(h.statuses("tick").at(-1)).toBe("committed");
});

test("7 a deploy while the host was about to recover: the new run uses the new version", async () => {
  await using h = await harness({ file: true });
  h.world.onRead = (_, nth) => (nth === 1 ? never() : ok());
  await h.deploy("w", { producers: { tick: { every: "1d", handler: asking(nothing) } } });
  await h.act(h.operator.pause(h.id(), ANN));
  await h.restart();
  await h.deploy("w", { producers: { tick: { every: "1d", handler: nothing } } });
  await h.act(h.operator.resume(h.id(), ANN));
  expect(h.runs("tick").map((one) => [one.status, one.version])).toEqual([
    ["crashed", 1],
    ["committed", 2],
  ]);
});

test("7 recovering twice does nothing more", async () => {
  await using h = await harness({ file: true });
  h.world.onRead = (_, nth) => (nth === 1 ? never() : ok());
  await h.deploy("w", { producers: { tick: { every: "1d", handler: asking(nothing) } } });
  await h.act(h.operator.pause(h.id(), ANN));
  await h.restart();
  const after = h.runs("tick");
  await h.restart();
  expect(h.runs("tick")).toEqual(after);
});

test("7 a stop lets a call in flight finish and starts nothing more", async () => {
  await using h = await harness();
  const answer = gate<ReturnType<typeof applied>>();
  h.world.onSend = () => answer.promise;
  await h.deploy("w", booking());
  await h.feed("order", "a");
  await h.feed("order", "b");
  const stopped = h.engine.stop();
  await h.settle();
  answer.open(applied());
  await stopped;
  expect(h.deliveries("book")).toEqual(["a consumed", "b pending"]);
  expect(h.engine.active).toBe(0);
});

test("7 a stop waits for a call as long as the call's own policy lets it take", async () => {
  const policy = { match: { unit: "mutation" as const }, policy: { timeoutMs: 10 * MINUTE } };
  await using h = await harness({ policy: [policy] });
  const answer = gate<ReturnType<typeof applied>>();
  h.world.onSend = () => answer.promise;
  await h.deploy("w", booking());
  await h.feed("order", "a");
  const { isDone } = stopping(h);
  await h.pass(9 * MINUTE);
  expect(isDone()).toBe(false);
  answer.open(applied());
  await h.settle();
  expect(isDone()).toBe(true);
  expect(h.run("book")).toMatchObject({ status: "committed", outcome: "applied" });
});

test("7 at a stop a call that never answers ends in its time, as unknown", async () => {
  await using h = await harness();
  h.world.onSend = () => never();
  await h.deploy("w", booking());
  await h.feed("order", "a");
  const { isDone } = stopping(h);
  await h.pass(119 * SECOND);
  expect(isDone()).toBe(false);
  await h.pass(7 * SECOND);
  expect(isDone()).toBe(true);
  expect(h.run("book")).toMatchObject({ status: "paused:reconciliation", error: "mutation-timeout" });
});

test("7 a stop lets a re-send finish, too", async () => {
  await using h = await harness();
  h.world.tool_ = { proof: "key", canCheck: false };
  const answer = gate<ReturnType<typeof applied>>();
  h.world.onSend = (_, nth) => (nth === 1 ? unknown() : answer.promise);
  await h.deploy("w", booking());
  await h.feed("order", "a");
  const { isDone } = stopping(h);
  await h.pass(10 * SECOND);
  expect(isDone()).toBe(false);
  answer.open(applied());
  await h.settle();
  expect(isDone()).toBe(true);
  expect(h.run("book")).toMatchObject({ phase: "mutated", outcome: "applied" });
});

test("7 a stop gives scripts 5 s once no call is on its way, then ends them at no cost to them", async () => {
  await using h = await harness({ file: true, policy: [{ match: "default", policy: { timeoutMs: HOUR } }] });
  h.world.onRead = (_, nth) => (nth === 1 ? never() : ok());
  await h.deploy("w", { producers: { tick: { every: "1d", handler: asking(nothing) } } });
  const { isDone } = stopping(h);
  await h.pass(4 * SECOND);
  expect(isDone()).toBe(false);
  await h.pass(2 * SECOND);
  expect(isDone()).toBe(true);
  expect(h.runs("tick")).toMatchObject([{ status: "crashed", error: "aborted" }]);
  await h.restart();
  expect(h.runs("tick").at(-1)).toMatchObject({ status: "committed", retries: 0 });
});

test("7 a script that comes to its call while the host stops is let through to the end", async () => {
  await using h = await harness();
  const [read, answer] = [gate<ReturnType<typeof ok>>(), gate<ReturnType<typeof applied>>()];
  h.world.onRead = (_, nth) => (nth === 1 ? ok() : read.promise);
  h.world.onSend = () => answer.promise;
  await h.deploy("w", booking({ prepare: asking(take("order")) }));
  await h.feed("order", "a");
  const { isDone } = stopping(h);
  await h.pass(3 * SECOND);
  read.open(ok());
  await h.pass(MINUTE);
  expect(isDone()).toBe(false);
  answer.open(applied());
  await h.settle();
  expect(isDone()).toBe(true);
  expect(h.run("book")).toMatchObject({ status: "committed" });
});
