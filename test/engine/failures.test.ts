import { expect, test } from "vitest";
import {
  ANN,
  asking,
  harness,
  HOUR,
  MINUTE,
  MONDAY,
  nothing,
  post,
  SECOND,
  type Spec,
  take,
} from "../support/host-harness.ts";
import { applied, failed, ok, readFails } from "../support/test-world.ts";

const asks = (every = "1d"): Spec => ({
  producers: { tick: { every, handler: asking(() => ({ ok: true })) } },
});
const booking = (more: Partial<NonNullable<Spec["consumers"]>[string]> = {}): Spec => ({
  consumers: { book: { on: "order", prepare: take("order"), mutate: post, ...more } },
});
const quick = {
  match: "default" as const,
  policy: { maxRetries: 2, backoff: "linear" as const, baseDelayMs: 1_000 },
};

test("4 a transient failure is retried as a new run after its backoff", async () => {
  await using h = await harness({ policy: [quick] });
  h.world.onRead = (_, nth) => (nth <= 3 ? readFails("transient") : ok());
  await h.deploy("w", asks());
  await h.pass(4 * SECOND);
  await h.pass(2 * SECOND);
  expect(h.runs("tick")).toMatchObject([
    { status: "paused:transient", reason: "retrying", open: false },
    { status: "committed", attempt: 2, trigger: "retry", retries: 1 },
  ]);
});

test("4 a read is tried again in place, within the phase, before the run fails", async () => {
  await using h = await harness();
  h.world.onRead = (_, nth) => (nth <= 2 ? readFails("transient") : ok());
  await h.deploy("w", asks());
  await h.pass(MINUTE);
  expect(h.world.reads.length).toBe(3);
  expect(h.statuses("tick")).toEqual(["committed"]);
});

test("4 a read that does not answer in time is transient", async () => {
  await using h = await harness({ policy: [{ match: { unit: "read" }, policy: { maxRetries: 0 } }, quick] });
  h.world.onRead = (_, nth) => (nth === 1 ? new Promise(() => {}) : ok());
  await h.deploy("w", asks());
  await h.pass(14 * SECOND);
  expect(h.statuses("tick")).toEqual(["active"]);
  await h.pass(3 * SECOND);
  expect(h.runs("tick")).toMatchObject([
    { status: "paused:transient", error: "read-timeout" },
    { status: "committed" },
  ]);
});

test("4 when retries are spent a person is asked, and a retry begins a new budget", async () => {
  await using h = await harness({ policy: [quick] });
  let broken = true;
  h.world.onRead = () => (broken ? readFails("transient") : ok());
  await h.deploy("w", asks());
  await h.pass(HOUR);
  expect(h.statuses("tick")).toEqual([
    "paused:transient retrying",
    "paused:transient retrying",
    "paused:transient retries_exhausted",
  ]);
  expect(h.inbox()).toEqual(["retries_exhausted"]);
  broken = false;
  expect(await h.decide("tick", { action: "retry" })).toEqual({ ok: true });
  expect(h.run("tick")).toMatchObject({ status: "committed", attempt: 4, retries: 0, trigger: "decision" });
  expect(h.inbox()).toEqual([]);
});

test("4 a logic failure waits for a person or a new version", async () => {
  await using h = await harness();
  await h.deploy("w", { producers: { tick: { every: "2h", handler: [new Error("typo"), null] } } });
  await h.pass(HOUR);
  expect(h.runs("tick")).toMatchObject([{ status: "failed:logic", error: "handler-throws", open: true }]);
  await h.decide("tick", { action: "retry" });
  expect(h.statuses("tick")).toEqual(["failed:logic", "committed"]);
});

test("4 a failed attempt gives its reservations back in the same transaction", async () => {
  await using h = await harness({ policy: [quick] });
  h.world.onSend = (_, nth) => (nth === 1 ? failed("transient") : applied());
  await h.deploy("w", booking());
  await h.feed("order", "a");
  expect(h.deliveries("book")).toEqual(["a pending"]);
  expect(h.run("book")).toMatchObject({ status: "paused:transient", outcome: "failed" });
  await h.pass(5 * SECOND);
  expect(h.deliveries("book")).toEqual(["a consumed"]);
});

test("4 a host fault is a person's business", async () => {
  await using h = await harness({ policy: [quick] });
  h.world.onRead = () => readFails("internal");
  await h.deploy("w", asks());
  await h.pass(HOUR);
  expect(h.statuses("tick")).toEqual(["failed:internal"]);
  expect(h.inbox()).toEqual(["internal"]);
});

test("4 the deadline of a chain ends its retries before they are spent", async () => {
  const deadline = {
    match: "default" as const,
    policy: { ...quick.policy, maxRetries: 50, deadlineMs: 2_500 },
  };
  await using h = await harness({
    policy: [{ match: { unit: "read" }, policy: { maxRetries: 0 } }, deadline],
  });
  h.world.onRead = () => readFails("transient");
  await h.deploy("w", asks());
  await h.pass(HOUR);
  expect(h.statuses("tick")).toEqual(["paused:transient retrying", "paused:transient deadline"]);
  await h.decide("tick", { action: "retry" });
  expect(h.runs("tick").length).toBe(3);
  expect(h.run("tick").status).toBe("paused:transient");
});

test("4 a server's own wish for a delay wins over the backoff", async () => {
  await using h = await harness({ policy: [quick] });
  h.world.onSend = (_, nth) => (nth === 1 ? failed("transient", { retryAfterMs: 90_000 }) : applied());
  await h.deploy("w", booking());
  await h.feed("order", "a");
  expect(h.run("book").readyAtMs).toBe(MONDAY + 90 * SECOND);
});

test("5.1 onFailure skip on a proven failure goes on with next(skipped)", async () => {
  await using h = await harness({
    policy: [{ match: "default", policy: { maxRetries: 0, onFailure: "skip" } }],
  });
  const seen: unknown[] = [];
  h.world.onSend = () => failed("transient");
  await h.deploy("w", booking({ next: (_, __, outcome) => void seen.push(outcome) }));
  await h.feed("order", "a");
  expect(seen.at(-1)).toEqual({ status: "skipped" });
  expect(h.run("book")).toMatchObject({ status: "committed", outcome: "skipped" });
  expect(h.deliveries("book")).toEqual(["a consumed"]);
});

test("5.1 onFailure deadLetter buries the deliveries and asks", async () => {
  await using h = await harness({
    policy: [{ match: "default", policy: { maxRetries: 0, onFailure: "deadLetter" } }],
  });
  h.world.onSend = () => failed("logic");
  await h.deploy("w", booking());
  await h.feed("order", "a");
  expect(h.deliveries("book")).toEqual(["a dead"]);
  expect(h.inbox()).toEqual(["dead_letter"]);
  expect(h.run("book").open).toBe(false);
});

test("5.1 skip in mutate itself goes on with next(skipped), never fused with prepare", async () => {
  await using h = await harness({
    policy: [{ match: "default", policy: { maxRetries: 0, onFailure: "skip" } }],
  });
  await h.deploy(
    "w",
    booking({
      mutate: () => {
        throw new Error("no");
      },
    }),
  );
  await h.feed("order", "a");
  expect(h.run("book")).toMatchObject({ status: "committed", outcome: "skipped" });
});

test("3.2 past the boundary a failing next is retried for ever by hand, never abandoned by policy", async () => {
  await using h = await harness({
    policy: [{ match: "default", policy: { maxRetries: 0, onFailure: "skip" } }],
  });
  await h.deploy("w", booking({ next: [nothing, new Error("no"), new Error("no"), nothing] }));
  await h.feed("order", "a");
  expect(h.run("book")).toMatchObject({ status: "failed:logic", phase: "emitting", open: true });
  expect(await h.decide("book", { action: "close", deliveries: "skip" })).toMatchObject({ ok: false });
  await h.decide("book", { action: "retry" });
  await h.decide("book", { action: "retry" });
  expect(h.run("book")).toMatchObject({
    status: "committed",
    phase: "committed",
    attempt: 3,
    outcome: "applied",
  });
  expect(h.world.sent.length).toBe(1);
});

test("3.2 a forced close past the boundary consumes and publishes nothing", async () => {
  await using h = await harness();
  await h.deploy("w", booking({ publishes: ["done"], next: [nothing, new Error("no")] }));
  await h.feed("order", "a");
  const closed = await h.decide("book", { action: "close", deliveries: "release", force: true });
  expect(closed).toEqual({ ok: true });
  expect(h.deliveries("book")).toEqual(["a consumed"]);
  expect(h.events("done")).toEqual([]);
});

test("04 a person's retry may carry a policy for the chain from there on", async () => {
  await using h = await harness({ policy: [{ match: "default", policy: { maxRetries: 0 } }] });
  h.world.onRead = () => readFails("transient");
  await h.deploy("w", asks());
  const policy = JSON.stringify({
    rules: [{ match: "default", policy: { ...quick.policy, maxRetries: 1 } }],
  });
  await h.decide("tick", { action: "retry", policy });
  await h.pass(HOUR);
  expect(h.statuses("tick")).toEqual([
    "paused:transient retries_exhausted",
    "paused:transient retrying",
    "paused:transient retries_exhausted",
  ]);
});

test("4 auth trouble of a read waits for a person and goes on in place", async () => {
  await using h = await harness();
  let known = false;
  h.world.onRead = () => (known ? ok() : readFails("auth"));
  await h.deploy("w", asks());
  expect(h.statuses("tick")).toEqual(["paused:approval auth"]);
  expect(h.inbox()).toEqual(["reconnect"]);
  known = true;
  expect(await h.act(h.operator.unblock(h.id(), "auth", ANN))).toEqual({ ok: true });
  expect(h.runs("tick")).toMatchObject([{ status: "committed", attempt: 1 }]);
});

test("4 what the host itself cannot do is failed:internal, never a run left active", async () => {
  await using h = await harness();
  await h.deploy("w", { producers: { tick: { every: "1d", handler: [] } } });
  expect(h.runs("tick")).toMatchObject([{ status: "failed:internal", error: "engine-failed", open: true }]);
  expect(h.inbox()).toEqual(["internal"]);
});
