// Approvals that go beyond the call that was shown: the next N, or until a time (02 §6, 06).
import { expect, test } from "vitest";
import { Pages } from "../../host/store/sqlite/pages.ts";
import {
  ANN,
  asking,
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
import { applied, failed, gate, ok, unknown } from "../support/test-world.ts";

type Consumer = NonNullable<Spec["consumers"]>[string];
const booking = (more: Partial<Consumer> = {}): Spec => ({
  consumers: { book: { on: "order", prepare: take("order"), mutate: post, next: nothing, ...more } },
});

/** One order is shown, and approved together with what `scope` says. */
async function approved(
  h: Harness,
  scope: { next: number } | { untilMs: number },
  spec: Spec = booking(),
): Promise<void> {
  h.world.tool_ = { grant: "approve", grantVersion: 1, ...h.world.tool_ };
  await h.deploy("w", spec);
  await h.feed("order", "shown");
  expect(await h.decide("book", { action: "approve", scope })).toEqual({ ok: true });
  expect(h.run("book")).toMatchObject({ status: "committed", outcome: "applied" });
}

const waits = "paused:approval approval";
const left = (h: Harness) =>
  (
    JSON.parse(
      h.store.db.prepare("SELECT approvals_json FROM workflows WHERE name = 'w'").pluck().get() as string,
    ) as { remaining?: number }[]
  ).map((one) => one.remaining);
const audit = (h: Harness) =>
  h.store.db.prepare("SELECT action FROM audit WHERE actor = 'host' ORDER BY seq").pluck().all();

test("6 approve next N: so many further calls leave without asking, the one after them asks again", async () => {
  await using h = await harness();
  await approved(h, { next: 2 });
  await h.feed("order", "a");
  await h.feed("order", "b");
  expect(h.world.sent.length).toBe(3);
  expect(left(h)).toEqual([]);
  await h.feed("order", "c");
  expect(h.statuses("book").at(-1)).toBe(waits);
  expect(h.inbox()).toEqual(["approval"]);
  expect(audit(h)).toEqual(["approval.use", "approval.use"]);
});

test("6 approve until T: every call before it leaves, those after it ask", async () => {
  await using h = await harness();
  await approved(h, { untilMs: h.clock.nowMs() + HOUR });
  for (const id of ["a", "b", "c"]) await h.feed("order", id);
  expect(h.world.sent.length).toBe(4);
  await h.pass(HOUR);
  await h.feed("order", "d");
  expect(h.statuses("book").at(-1)).toBe(waits);
  expect(h.world.sent.length).toBe(4);
});

test("6 what was approved beforehand survives a restart", async () => {
  await using h = await harness({ file: true });
  await approved(h, { next: 2 });
  await h.feed("order", "a");
  await h.restart();
  expect(left(h)).toEqual([1]);
  await h.feed("order", "b");
  await h.feed("order", "c");
  expect(h.world.args).toEqual([{ ids: ["shown"] }, { ids: ["a"] }, { ids: ["b"] }]);
  expect(h.statuses("book").at(-1)).toBe(waits);
});

test("6 it is used up in the transaction that lets the call leave: a crash in flight uses one, not two", async () => {
  await using h = await harness({ file: true });
  h.world.onSend = (_, nth) => (nth === 2 ? new Promise(() => {}) : applied());
  h.world.onCheck = () => ({ says: "applied" });
  await approved(h, { next: 2 });
  await h.feed("order", "a");
  expect(left(h)).toEqual([1]);
  const rows = h.store.db
    .prepare("SELECT entries_json FROM journal WHERE entries_json LIKE '%approval.use%'")
    .pluck()
    .all() as string[];
  expect(rows.length).toBe(1);
  expect(rows[0]).toContain('"kind":"mutation.sent"');
  await h.restart();
  expect(h.run("book")).toMatchObject({ status: "committed", outcome: "applied" });
  expect(left(h)).toEqual([1]);
});

test.each([
  ["the connection is configured differently", { configVersion: 2 }],
  ["the alias is bound to another connection", { connection: "other-bank" }],
  ["the grant has changed", { grantVersion: 2 }],
])("6 an approval beforehand is void when %s", async (because, tool) => {
  await using h = await harness();
  await approved(h, { next: 5 });
  const before = h.world.tool_;
  h.world.tool_ = { ...before, ...tool };
  await h.feed("order", "a");
  expect(h.statuses("book").at(-1)).toBe(waits);
  expect(h.world.sent.length).toBe(1);
  expect(left(h)).toEqual([]);
  expect(
    h.store.db
      .prepare("SELECT detail_json ->> '$.because' FROM audit WHERE action = 'approval.void'")
      .pluck()
      .all(),
  ).toEqual([because]);
  // Set back as it was, it stays void.
  h.world.tool_ = before;
  await h.decide("book", { action: "reject", deliveries: "skip" });
  await h.feed("order", "b");
  expect(h.statuses("book").at(-1)).toBe(waits);
});

test.each(["deny", "allow"] as const)("6 a grant that became %s and back again asks anew", async (grant) => {
  await using h = await harness();
  await approved(h, { untilMs: h.clock.nowMs() + DAY });
  h.world.tool_ = { ...h.world.tool_, grant };
  await h.feed("order", "a");
  expect(h.world.sent.length).toBe(grant === "allow" ? 2 : 1);
  h.world.tool_ = { ...h.world.tool_, grant: "approve" };
  if (grant === "deny") await h.decide("book", { action: "close", deliveries: "skip" });
  await h.feed("order", "b");
  expect(h.statuses("book").at(-1)).toBe(waits);
  expect(left(h)).toEqual([]);
});

test("6 what was approved beforehand ends with a new version", async () => {
  await using h = await harness();
  await approved(h, { next: 5 });
  await h.deploy("w", booking({ next: () => undefined }));
  await h.feed("order", "a");
  expect(h.statuses("book").at(-1)).toBe(waits);
});

test("6 a deploy between the start of a run and its call ends what the run had counted on", async () => {
  await using h = await harness();
  const read = gate<ReturnType<typeof ok>>();
  const spec = booking({ prepare: asking(take("order")) });
  await approved(h, { next: 5 }, spec);
  h.world.onRead = () => read.promise;
  await h.feed("order", "a");
  await h.deploy("w", booking());
  read.open(ok());
  await h.settle();
  expect(h.run("book")).toMatchObject({ status: "paused:approval", version: 1 });
  expect(h.world.sent.length).toBe(1);
});

test("6 a run that waits since before a deploy can be approved, but nothing beyond it", async () => {
  await using h = await harness();
  h.world.tool_ = { grant: "approve" };
  await h.deploy("w", booking());
  await h.feed("order", "a");
  await h.deploy("w", booking({ next: () => undefined }));
  expect(await h.decide("book", { action: "approve", scope: { next: 3 } })).toMatchObject({
    ok: false,
    code: "wrong_state",
  });
  expect(await h.decide("book", { action: "approve" })).toEqual({ ok: true });
  expect(h.world.sent.length).toBe(1);
});

test("6 a scope that means nothing is refused, and the run still waits", async () => {
  await using h = await harness();
  h.world.tool_ = { grant: "approve" };
  await h.deploy("w", booking());
  await h.feed("order", "a");
  const nowMs = h.clock.nowMs();
  const scopes = [
    { next: 0 },
    { next: 1.5 },
    { next: 1e9 },
    { untilMs: nowMs },
    { untilMs: nowMs + 40 * DAY },
  ];
  for (const scope of scopes)
    expect(await h.decide("book", { action: "approve", scope })).toMatchObject({ ok: false });
  expect(h.statuses("book")).toEqual(["committed", waits]);
});

test("6 another tool and another workflow still ask", async () => {
  await using h = await harness();
  await approved(h, { next: 5 });
  await h.deploy("x", booking());
  await h.feed("order", "a", {}, "x");
  expect(h.run("book")).toMatchObject({ status: "paused:approval" });
  await h.deploy("y", {
    consumers: {
      put: {
        on: "order",
        prepare: take("order"),
        mutate: (ctx, { data }: { data: { ids: string[] } }) => {
          if (data.ids[0] === "a") ctx.bank.post({});
          else ctx.bank.put({});
        },
      },
    },
  });
  await h.feed("order", "a", {}, "y");
  await h.decide("put", { action: "approve", scope: { next: 5 } });
  await h.feed("order", "b", {}, "y");
  expect(h.statuses("put").at(-1)).toBe(waits);
});

test("06 within a chain an identical intent after a proven failure uses no second one up", async () => {
  await using h = await harness({
    policy: [{ match: "default", policy: { backoff: "linear", baseDelayMs: 1_000 } }],
  });
  h.world.onSend = (_, nth) => (nth === 2 ? failed("transient") : applied());
  await approved(h, { next: 2 });
  await h.feed("order", "a");
  await h.pass(MINUTE);
  expect(h.run("book")).toMatchObject({ status: "committed", attempt: 2 });
  expect(h.world.sent.length).toBe(3);
  expect(left(h)).toEqual([1]);
});

test("6 unfused and paused in between, it is still used once", async () => {
  await using h = await harness({ fused: false });
  const read = gate<ReturnType<typeof ok>>();
  await approved(h, { next: 5 }, booking({ prepare: asking(take("order")) }));
  h.world.onRead = () => read.promise;
  await h.feed("order", "a");
  await h.act(h.operator.pause(h.id(), ANN));
  read.open(ok());
  await h.settle();
  expect(h.run("book")).toMatchObject({ status: "committed", outcome: "applied" });
  expect(left(h)).toEqual([4]);
  expect(audit(h)).toEqual(["approval.use"]);
});

test("6 a check or a re-send of an unknown outcome uses nothing up", async () => {
  await using h = await harness();
  h.world.tool_ = { proof: "key", canCheck: false };
  h.world.onSend = (_, nth) => (nth === 2 ? unknown() : applied());
  await approved(h, { next: 2 });
  await h.feed("order", "a");
  await h.pass(30 * SECOND);
  expect(h.world.sent.length).toBe(3);
  expect(h.run("book")).toMatchObject({ status: "committed" });
  expect(left(h)).toEqual([1]);
});

test("6 what is approved beforehand is listed, and its decision is on record with its scope", async () => {
  await using h = await harness();
  await approved(h, { next: 3 });
  const pages = new Pages(h.store.db);
  const namespace = (await pages.namespace("default")) as number;
  const record = await pages.workflow(namespace, h.id(), { sinceMs: 0 });
  expect(record?.approvals).toMatchObject([{ alias: "bank", tool: "post", remaining: 3, by: "ann" }]);
  const detail = h.store.db
    .prepare("SELECT detail_json FROM audit WHERE action = 'run.approve'")
    .pluck()
    .get();
  expect(JSON.parse(detail as string)).toMatchObject({ scope: { next: 3 } });
});
