import { expect, test } from "vitest";
import {
  ANN,
  asking,
  harness,
  HOUR,
  nothing,
  post,
  SECOND,
  type Harness,
  type Spec,
  take,
} from "../support/host-harness.ts";
import { ProcessLost } from "../support/scripted-sandbox.ts";
import { applied, gate, ok } from "../support/test-world.ts";

type Consumer = NonNullable<Spec["consumers"]>[string];
const booking = (more: Partial<Consumer> = {}): Spec => ({
  consumers: { book: { on: "order", prepare: take("order"), mutate: post, ...more } },
});
const phases = (h: Harness): string[] =>
  (
    h.store.db
      .prepare("SELECT entries_json FROM journal WHERE run = ? ORDER BY first")
      .pluck()
      .all(h.run("book").id) as string[]
  )
    .flatMap((text) => JSON.parse(text) as { kind: string; phase?: string }[])
    .flatMap((one) => (one.kind === "phase.advanced" ? [one.phase as string] : []));

for (const fused of [true, false]) {
  const how = fused ? "fused" : "unfused";

  test(`2 a call goes through every phase, ${how}`, async () => {
    await using h = await harness({ fused });
    await h.deploy("w", booking({ next: nothing }));
    await h.feed("order", "a");
    expect(phases(h)).toEqual(["prepared", "mutating", "mutated", "emitting", "committed"]);
    expect(h.run("book")).toMatchObject({ status: "committed", outcome: "applied" });
  });

  test(`2 without reservations a run goes from prepared to emitting, ${how}`, async () => {
    await using h = await harness({ fused });
    await h.deploy("w", booking({ next: nothing }));
    expect(phases(h)).toEqual(["prepared", "emitting", "committed"]);
    expect(h.run("book").outcome).toBe("none");
  });

  test(`2 reservations without a call are consumed with outcome none, ${how}`, async () => {
    await using h = await harness({ fused });
    const seen: unknown[] = [];
    await h.deploy("w", booking({ mutate: nothing, next: (_, __, outcome) => void seen.push(outcome) }));
    await h.feed("order", "a");
    expect(seen.at(-1)).toEqual({ status: "none" });
    expect(h.deliveries("book")).toEqual(["a consumed"]);
    expect(h.world.sent).toEqual([]);
  });
}

test("2.1 a failing next leaves nothing behind: no event, no state", async () => {
  await using h = await harness();
  await h.deploy(
    "w",
    booking({
      publishes: ["done"],
      next: [
        nothing,
        (ctx: { publish: (topic: string, event: object) => void }) => {
          ctx.publish("done", { messageId: "1", payload: 1 });
          throw new Error("no");
        },
        { count: 1 },
      ],
    }),
  );
  await h.feed("order", "a");
  expect(h.run("book")).toMatchObject({ status: "failed:logic", phase: "emitting" });
  expect(h.events("done")).toEqual([]);
  expect(h.handler("book").state).toBeNull();
  await h.decide("book", { action: "retry" });
  expect(h.handler("book").state).toEqual({ count: 1 });
  expect(h.world.sent.length).toBe(1);
});

test("2.1 a call from the wrong phase ends the run, also when the script catches it", async () => {
  await using h = await harness();
  await h.deploy("w", {
    consumers: {
      book: {
        on: "order",
        prepare: (ctx) => {
          try {
            ctx.publish("order", { messageId: "x", payload: 1 });
          } catch {}
          return {};
        },
      },
    },
  });
  expect(h.run("book")).toMatchObject({ status: "failed:logic", error: "phase-violation" });
});

test("2.2 two calls are an error and nothing is sent", async () => {
  await using h = await harness();
  await h.deploy(
    "w",
    booking({
      mutate: (ctx) => {
        ctx.bank.post({ n: 1 });
        ctx.bank.post({ n: 2 });
      },
    }),
  );
  await h.feed("order", "a");
  expect(h.run("book")).toMatchObject({ status: "failed:logic", error: "two-mutations" });
  expect(h.world.sent).toEqual([]);
  expect(h.deliveries("book")).toEqual(["a pending"]);
});

test("2.2 a throw after the call is an error and nothing is sent", async () => {
  await using h = await harness();
  await h.deploy(
    "w",
    booking({
      mutate: (ctx) => {
        ctx.bank.post({});
        throw new Error("changed my mind");
      },
    }),
  );
  await h.feed("order", "a");
  expect(h.run("book")).toMatchObject({ status: "failed:logic", error: "handler-throws" });
  expect(h.world.sent).toEqual([]);
});

test("2.2 an intent is dropped when nothing is reserved", async () => {
  await using h = await harness();
  await h.deploy("w", booking({ prepare: () => ({ reservations: [] }), mutate: (ctx) => ctx.bank.post({}) }));
  await h.feed("order", "a");
  expect(h.world.sent).toEqual([]);
  expect(h.statuses("book")).toEqual(["committed", "committed"]);
});

const bad: [name: string, reservations: unknown, why: string][] = [
  ["an unknown id", [{ topic: "order", ids: ["zzz"] }], "zzz"],
  ["a good id beside an unknown one", [{ topic: "order", ids: ["a", "zzz"] }], "zzz"],
  ["a topic it does not subscribe to", [{ topic: "other", ids: ["a"] }], "other"],
];
for (const [name, reservations, why] of bad)
  test(`2.3 ${name} fails prepare as a whole`, async () => {
    await using h = await harness();
    await h.deploy("w", {
      ...booking({ prepare: [{}, { reservations }], mutate: nothing }),
      topics: { other: {} },
    });
    await h.feed("order", "a");
    expect(h.run("book").status).toBe("failed:logic");
    expect(h.run("book").message).toContain(why);
    expect(h.deliveries("book")).toEqual(["a pending"]);
  });

test("2.3 a consumed id fails prepare", async () => {
  await using h = await harness();
  const again = { reservations: [{ topic: "order", ids: ["a"] }] };
  await h.deploy("w", booking({ prepare: [{}, take("order"), again], mutate: undefined as never }));
  await h.feed("order", "a");
  await h.feed("order", "b");
  expect(h.run("book")).toMatchObject({ status: "failed:logic", error: "bad-reservation" });
  expect(h.run("book").message).toContain("consumed");
});

test("2.3 duplicates collapse, and empty lists mean empty", async () => {
  await using h = await harness();
  const twice = {
    reservations: [
      { topic: "order", ids: ["a", "a"] },
      { topic: "order", ids: ["a"] },
    ],
  };
  const empty = { reservations: [{ topic: "order", ids: [] }] };
  await h.deploy("w", booking({ prepare: [empty, twice], mutate: nothing }));
  await h.feed("order", "a");
  expect(h.statuses("book")).toEqual(["committed", "committed"]);
  expect(h.deliveries("book")).toEqual(["a consumed"]);
});

test("2.3 an id that a person skipped meanwhile is not the script's fault: prepare is redone, free", async () => {
  await using h = await harness();
  const answer = gate<ReturnType<typeof ok>>();
  await h.deploy("w", booking({ prepare: asking(take("order")) }));
  h.world.onRead = () => answer.promise;
  await h.act(h.operator.pause(h.id(), ANN));
  await h.feed("order", "a");
  await h.feed("order", "b");
  await h.act(h.operator.resume(h.id(), ANN));
  await h.act(h.operator.skipDelivery(h.delivery("book", "a"), ANN));
  answer.open(ok());
  await h.settle();
  expect(h.deliveries("book")).toEqual(["a skipped", "b consumed"]);
  expect(h.run("book")).toMatchObject({ status: "committed", redos: 1, retries: 0, attempt: 1 });
});

test("2.3 a redo is free three times, then it waits", async () => {
  await using h = await harness();
  await h.deploy("w", booking());
  await h.act(h.operator.pause(h.id(), ANN));
  for (const id of ["a", "b", "c", "d", "e"]) await h.feed("order", id);
  const spec = booking({ prepare: asking(take("order")) });
  let gates = [gate<ReturnType<typeof ok>>()];
  h.world.onRead = () => (gates.at(-1) as (typeof gates)[number]).promise;
  await h.deploy("w", spec);
  await h.act(h.operator.resume(h.id(), ANN));
  for (const id of ["a", "b", "c", "d"]) {
    await h.act(h.operator.skipDelivery(h.delivery("book", id), ANN));
    const last = gates.at(-1);
    gates = [...gates, gate()];
    last?.open(ok());
    await h.settle();
  }
  expect(h.run("book")).toMatchObject({
    status: "paused:transient",
    error: "reservations-changed",
    redos: 3,
  });
  gates.at(-1)?.open(ok());
  await h.pass(10 * SECOND);
  expect(h.deliveries("book").at(-1)).toBe("e consumed");
});

test("2.3 next runs also when nothing was reserved", async () => {
  await using h = await harness();
  await h.deploy("w", booking({ next: () => ({ looked: true }) }));
  expect(h.handler("book").state).toEqual({ looked: true });
});

test("2.4 the ledger row is on record before a byte leaves", async () => {
  await using h = await harness();
  const rows: unknown[] = [];
  h.world.onSend = () => {
    rows.push(h.store.db.prepare("SELECT status, sends FROM mutations").get());
    return applied();
  };
  await h.deploy("w", booking());
  await h.feed("order", "a");
  expect(rows).toEqual([{ status: "in_flight", sends: 1 }]);
});

test("2 null clears the state, undefined keeps it", async () => {
  await using h = await harness();
  await h.deploy("w", { producers: { tick: { every: "1h", handler: [{ n: 1 }, undefined, null] } } });
  expect(h.handler("tick").state).toEqual({ n: 1 });
  await h.pass(HOUR);
  expect(h.handler("tick").state).toEqual({ n: 1 });
  await h.pass(HOUR);
  expect(h.handler("tick").state).toBeNull();
});

test("4 a run whose process was lost through no fault of its own is redone at no cost", async () => {
  await using h = await harness();
  await h.deploy("w", booking({ prepare: [new ProcessLost(), {}], mutate: nothing }));
  expect(h.runs("book")).toMatchObject([{ status: "committed", attempt: 1, retries: 0, redos: 0 }]);
});
