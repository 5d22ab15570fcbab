import { describe, expect, test } from "vitest";
import {
  decidePublish,
  type DeliveryStatus,
  type ExistingEvent,
  hopsOf,
  publishProblem,
} from "../../host/core/event.ts";
import { idempotencyKey, isUnstable, nextN } from "../../host/core/intent.ts";
import { type Asked, reservation } from "../../host/core/reserve.ts";
import { formatId, parseId } from "../../host/core/ids.ts";
import { ID, NOW, row } from "../support/facts.ts";

const DAY = 86_400_000;
const existing = (...statuses: DeliveryStatus[]): ExistingEvent => ({
  id: 1,
  revision: 3,
  payloadHash: "old",
  lastSeenAtMs: NOW - DAY + 1,
  deliveries: statuses.map((status, i) => ({ id: 10 + i, handler: 50 + i, status })),
});

describe("8 re-publishing", () => {
  test("8 a new messageId is created", () => {
    expect(decidePublish(undefined, "h", NOW)).toEqual({ outcome: "created" });
  });
  test("8 an unchanged payload writes nothing but the dedup horizon, at most daily", () => {
    expect(decidePublish(existing("pending"), "old", NOW)).toEqual({ outcome: "unchanged", seen: false });
    expect(decidePublish(existing("pending"), "old", NOW + 1)).toEqual({ outcome: "unchanged", seen: true });
  });
  test.each<[DeliveryStatus, object]>([
    ["pending", { renewed: [10], late: [] }],
    ["reserved", { renewed: [], late: [10] }],
    ["consumed", { renewed: [], late: [] }],
    ["skipped", { renewed: [], late: [] }],
    ["dead", { renewed: [], late: [] }],
  ])("8 a changed payload and a %s delivery", (status, expected) => {
    expect(decidePublish(existing(status), "new", NOW)).toEqual({ outcome: "updated", ...expected });
  });
  test("8 each delivery by its own state", () => {
    const all = existing("pending", "reserved", "consumed", "skipped", "dead", "pending");
    expect(decidePublish(all, "new", NOW)).toEqual({ outcome: "updated", renewed: [10, 15], late: [11] });
  });
});

describe("1.13 loops", () => {
  test("1.13 hops = 1 + the most among the reserved", () => {
    expect(hopsOf("consumer", { reserved: [0, 4, 2], pendingAtStart: [9] })).toBe(5);
  });
  test("1.13 none reserved: among those pending at its start; none at all: 1", () => {
    expect(hopsOf("consumer", { reserved: [], pendingAtStart: [3, 1] })).toBe(4);
    expect(hopsOf("consumer", { reserved: [], pendingAtStart: [] })).toBe(1);
  });
  test("1.13 producers: 0", () => {
    expect(hopsOf("producer", { reserved: [7], pendingAtStart: [7] })).toBe(0);
  });
  const limits = { maxHops: 100, maxPublishes: 1_000 };
  test("1.13 publishing beyond maxHops is failed:logic, code loop", () => {
    expect(publishProblem(1, 100, limits)).toBeUndefined();
    expect(publishProblem(1, 101, limits)).toMatchObject({ class: "logic", code: "loop" });
    expect(publishProblem(0, 101, limits)).toBeUndefined();
  });
  test("1.13 at most maxPublishes per run", () => {
    expect(publishProblem(1_000, 1, limits)).toBeUndefined();
    expect(publishProblem(1_001, 1, limits)).toMatchObject({ class: "logic", code: "publish-limit" });
  });
});

describe("2.3 reservations", () => {
  const own = { id: ID.consumer, subscribes: ["order"] };
  const run = (redos = 0) => ({ redos, createdAtMs: NOW });
  const asked = (
    more: Partial<Asked> = {},
    delivery: Partial<NonNullable<Asked["delivery"]>> = {},
  ): Asked => ({
    topic: "order",
    messageId: "a",
    delivery: { id: 1, handler: ID.consumer, status: "pending", ...delivery },
    ...more,
  });
  const { delivery: _, ...unknownId } = asked();

  test("2.3 pending deliveries of this consumer are reserved; duplicates collapse", () => {
    const two = asked({ messageId: "b" }, { id: 2 });
    expect(reservation(run(), own, [asked(), two, asked()])).toEqual({ reserve: [1, 2] });
    expect(reservation(run(), own, [])).toEqual({ reserve: [] });
  });
  test.each<[string, Asked]>([
    ["unknown", unknownId],
    ["consumed", asked({}, { status: "consumed", settledAtMs: NOW + 5 })],
    ["of a foreign topic", asked({ topic: "other" })],
    ["another consumer's or workflow's", asked({}, { handler: 99 })],
    ["skipped before the run started", asked({}, { status: "skipped", settledAtMs: NOW - 1 })],
    ["dead before the run started", asked({}, { status: "dead", settledAtMs: NOW - 1 })],
    ["reserved", asked({}, { status: "reserved" })],
  ])("2.3 an id that is %s fails `prepare` as a whole", (_name, bad) => {
    expect(reservation(run(), own, [asked({ messageId: "ok" }), bad])).toMatchObject({
      fail: { class: "logic", code: "bad-reservation" },
    });
  });
  const changed = asked({ messageId: "gone" }, { status: "skipped", settledAtMs: NOW });
  test("2.3 pending at the start and changed since: not the script's fault, redone free, at most three times", () => {
    for (const redos of [0, 1, 2])
      expect(reservation(run(redos), own, [asked(), changed])).toEqual({ redo: ['order "gone"'] });
    expect(reservation(run(3), own, [changed])).toMatchObject({
      fail: { class: "transient", code: "reservations-changed" },
    });
  });
  test("2.3 a bad id beside a changed one is still the script's fault", () => {
    expect(reservation(run(), own, [changed, unknownId])).toMatchObject({
      fail: { code: "bad-reservation" },
    });
  });
});

describe("5.4 the idempotency key", () => {
  const hash = (text: string) => `h(${text})`;
  const intent = {
    rootId: 90,
    connection: "bank",
    tool: "post",
    args: '{"b":[1,{"y":1,"x":2}],"a":1}',
    n: 0,
  };
  const key = (more: Partial<typeof intent> = {}) => idempotencyKey({ ...intent, ...more }, hash);
  test("5.4 the same for the same decision, however its arguments are written", () => {
    expect(key({ args: '{ "a": 1, "b": [1, {"x":2,"y":1}] }' })).toBe(key());
  });
  test.each([
    { rootId: 91 },
    { connection: "bank2" },
    { tool: "put" },
    { args: '{"a":2}' },
    { n: 1 },
    { args: '{"a":1,"b":[{"y":1,"x":2},1]}' },
  ])("5.4 another for %o", (more) => {
    expect(key(more)).not.toBe(key());
  });

  test("5.4 n begins at 0", () => {
    expect(nextN(undefined)).toBe(0);
  });
  test.each<[string, Parameters<typeof row>[0], object, string | undefined, number]>([
    ["grows after a connector-proved failure", "failed", {}, undefined, 3],
    ["grows after one that a retry follows", "failed", {}, "retry", 3],
    ["not after a person's word", "failed", {}, "not-applied", 2],
    ["not when nothing was sent", "failed", { notSent: true }, undefined, 2],
    ["not after a skip", "skipped", {}, undefined, 2],
  ])("5.4 n %s", (_, status, more, action, expected) => {
    const run = action === undefined ? {} : { resolution: { by: "ann", action, atMs: 1 } };
    expect(nextN({ mutation: row(status, { n: 2, ...more }), run })).toBe(expected);
  });

  const stated = (args: string, reserved = [1, 2]) => ({ reserved, connection: "bank", tool: "post", args });
  test.each([
    ["one attempt", [stated("{}")], false],
    ["the same arguments, written differently", [stated('{"a":1,"b":2}'), stated('{"b":2,"a":1}')], false],
    ["others on every attempt", [stated('{"t":1}'), stated('{"t":2}'), stated('{"t":3}')], true],
    ["the same again after others", [stated('{"t":1}'), stated('{"t":2}'), stated('{"t":1}')], false],
    ["others for other deliveries", [stated('{"t":1}', [1]), stated('{"t":2}', [2])], false],
    ["the same deliveries in another order", [stated('{"t":1}', [2, 1]), stated('{"t":2}')], true],
    ["another tool", [{ ...stated('{"t":1}'), tool: "put" }, stated('{"t":2}')], false],
    ["nothing", [], false],
  ] as const)("5.4 unstable-intent: %s", (_, attempts, expected) => {
    expect(isUnstable(attempts)).toBe(expected);
  });
});

describe("ids", () => {
  test("an id reads back, sorts as text, and another kind's or a damaged one does not", () => {
    const ids = [1, 31, 32, 1_023, 2 ** 40, Number.MAX_SAFE_INTEGER];
    for (const id of ids) expect(parseId("run", formatId("run", id))).toBe(id);
    const texts = ids.map((id) => formatId("run", id));
    expect([...texts].sort()).toEqual(texts);
    for (const bad of [
      formatId("event", 1),
      "run_",
      "run_0000000000o",
      "run_00000000000",
      `${formatId("run", 1)}0`,
    ])
      expect(parseId("run", bad)).toBeUndefined();
  });
});
