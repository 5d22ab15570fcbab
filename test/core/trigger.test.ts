import { describe, expect, test } from "vitest";
import type { HandlerFacts } from "../../host/core/facts.ts";
import { choose, handlerDueAt, workflowDueAt } from "../../host/core/trigger.ts";
import { consumer, ID, MINUTE, NOW, producer, workflow } from "../support/facts.ts";

const with_ = (handlers: HandlerFacts[], more = {}) => workflow({ handlers, ...more });
const due = producer({ nextRunAtMs: NOW - 1, anchorMs: NOW - 1 });
const fed = consumer({ oldestPendingAtMs: NOW - 5, newPendingAtMs: NOW - 5 });
const chosen = (handlers: HandlerFacts[], more = {}) => {
  const choice = choose(with_(handlers, more), NOW);
  return choice.next === "start" ? choice.handler.name : choice.next;
};
const reason = (handlers: HandlerFacts[]) => {
  const choice = choose(with_(handlers), NOW);
  return choice.next === "start" ? choice.trigger.reason : choice.next;
};

describe("1.1 one open run per workflow", () => {
  test.each([
    ["active", { id: 1, active: true }],
    ["waiting for a person", { id: 1, active: false }],
    ["retrying later", { id: 1, active: false, readyAtMs: NOW + 1 }],
    ["held step by step", { id: 1, active: false, held: true as const }],
  ])("1.1 while a run is %s nothing else starts", (_, openRun) => {
    expect(chosen([due, fed], { openRun })).toBe("nothing");
  });

  test("1.8 (T1) the open chain goes first once it is ready", () => {
    expect(choose(with_([due, fed], { openRun: { id: 1, active: false, readyAtMs: NOW } }), NOW)).toEqual({
      next: "chain",
      run: 1,
    });
  });

  test("1.1 an active run is never claimed, ready or not", () => {
    expect(chosen([due], { openRun: { id: 1, active: true, readyAtMs: NOW - 1 } })).toBe("nothing");
  });
});

describe("1.2 producers", () => {
  test("1.2 start when due", () => {
    expect(choose(with_([due]), NOW)).toMatchObject({
      next: "start",
      trigger: { reason: "due", atMs: NOW - 1, slot: { firstDueMs: NOW - 1, newestDueMs: NOW - 1 } },
    });
  });

  test("1.2 do not start before they are due", () => {
    expect(chosen([producer({ nextRunAtMs: NOW + 1 })])).toBe("nothing");
  });

  test("1.2 missed fires give one run, which answers from the first to the newest due point", () => {
    const late = producer({ nextRunAtMs: NOW - 12 * MINUTE, anchorMs: NOW - 12 * MINUTE });
    expect(choose(with_([late]), NOW)).toMatchObject({
      trigger: { slot: { firstDueMs: NOW - 12 * MINUTE, newestDueMs: NOW - 2 * MINUTE } },
    });
  });

  test("1.2 a queued run is manual and no slot; if a point is due as well it answers that too", () => {
    const queued = producer({ queued: { reason: "queued", atMs: NOW }, nextRunAtMs: NOW + MINUTE });
    const choice = choose(with_([queued]), NOW);
    expect(choice).toMatchObject({ trigger: { reason: "queued", manual: true } });
    expect(choice).not.toHaveProperty("trigger.slot");
    expect(choose(with_([{ ...queued, nextRunAtMs: NOW }]), NOW)).toMatchObject({
      trigger: { manual: true, slot: { newestDueMs: NOW } },
    });
  });

  test("1.2 the one that has waited longest first, ties in declaration order", () => {
    const early = producer({ id: 2, name: "early", order: 5, nextRunAtMs: NOW - 3 });
    const twin = producer({ id: 3, name: "twin", order: 4, nextRunAtMs: NOW - 3 });
    expect(chosen([due, early])).toBe("early");
    expect(chosen([early, twin])).toBe("twin");
  });
});

describe("1.4 consumers start when triggered", () => {
  test.each<[string, Partial<HandlerFacts>, string]>([
    ["by a new event or revision", { newPendingAtMs: NOW }, "event"],
    ["when wakeAt is reached", { wakeAtMs: NOW }, "wake"],
    ["by a deploy", { triggered: { reason: "deploy", atMs: NOW } }, "deploy"],
    ["by a person's wake", { triggered: { reason: "woken", atMs: NOW } }, "woken"],
    ["by more that is pending (1.5)", { triggered: { reason: "more", atMs: NOW } }, "more"],
    ["by a reset or a requeue", { triggered: { reason: "requeued", atMs: NOW } }, "requeued"],
    ["not by a wakeAt to come", { wakeAtMs: NOW + 1 }, "nothing"],
    ["not by events it has already declined (1.5)", { oldestPendingAtMs: NOW - MINUTE }, "nothing"],
    ["not once it is dropped", { newPendingAtMs: NOW, orphaned: true }, "nothing"],
  ])("1.4 %s", (_, more, expected) => {
    expect(reason([consumer(more)])).toBe(expected);
  });
});

describe("1.8 order in a workflow", () => {
  const a = consumer({ id: 21, name: "a", order: 2, oldestPendingAtMs: NOW - 10, newPendingAtMs: NOW - 1 });
  const b = consumer({ id: 22, name: "b", order: 1, oldestPendingAtMs: NOW - 5, newPendingAtMs: NOW - 5 });

  test("1.8 consumers before producers", () => {
    expect(chosen([due, fed])).toBe("book");
  });

  test("1.8 among consumers the oldest pending delivery first", () => {
    expect(chosen([b, a])).toBe("a");
  });

  test("1.8 ties in declaration order", () => {
    expect(chosen([a, { ...b, oldestPendingAtMs: NOW - 10 }])).toBe("b");
  });

  test("1.8 a wake-only consumer counts by its wake time", () => {
    const wakes = consumer({ id: 23, name: "wakes", order: 9, wakeAtMs: NOW - 7 });
    expect(chosen([b, wakes])).toBe("wakes");
    expect(chosen([a, wakes])).toBe("a");
  });

  test("1.8 after 100 consumer runs in a row a waiting producer gets one, not after 99", () => {
    expect(chosen([due, fed], { consumerStreak: 99 })).toBe("book");
    expect(chosen([due, fed], { consumerStreak: 100 })).toBe("poll");
  });

  test("1.8 a long row of consumer runs holds nobody up while no producer waits", () => {
    expect(chosen([producer({ nextRunAtMs: NOW + 1 }), fed], { consumerStreak: 500 })).toBe("book");
  });
});

describe("1.11 paused and archived start nothing", () => {
  test.each([{ paused: true }, { archived: true }])("1.11 %o", (more) => {
    expect(chosen([due, fed], more)).toBe("nothing");
    expect(chosen([due], { ...more, openRun: { id: 1, active: false, readyAtMs: NOW } })).toBe("nothing");
    expect(
      workflowDueAt({ paused: false, archived: false, ...more, earliestHandlerDueMs: NOW }),
    ).toBeUndefined();
  });
});

describe("1.12 the earliest moment somebody has to look", () => {
  test.each<[string, HandlerFacts, number | undefined]>([
    ["a producer's next point", producer({ nextRunAtMs: 5 }), 5],
    ["a producer's queue", producer({ nextRunAtMs: 9, queued: { reason: "queued", atMs: 4 } }), 4],
    ["a consumer's earliest of trigger, event and wake", consumer({ wakeAtMs: 7, newPendingAtMs: 3 }), 3],
    ["a consumer's trigger", consumer({ triggered: { reason: "more", atMs: 2 }, wakeAtMs: 7 }), 2],
    ["nothing", consumer(), undefined],
    ["nothing for a dropped handler", producer({ nextRunAtMs: 5, orphaned: true }), undefined],
  ])("1.12 %s", (_, handler, expected) => {
    expect(handlerDueAt(handler)).toBe(expected);
  });

  test("1.12 while a run is open only its own readiness counts", () => {
    const at = (openRun: { id: number; active: boolean; readyAtMs?: number }) =>
      workflowDueAt({ paused: false, archived: false, openRun, earliestHandlerDueMs: 1 });
    expect(at({ id: ID.run, active: true, readyAtMs: 5 })).toBeUndefined();
    expect(at({ id: ID.run, active: false })).toBeUndefined();
    expect(at({ id: ID.run, active: false, readyAtMs: 5 })).toBe(5);
  });

  test("1.12 what is chosen is what was due: no busy loop, no lost wake-up", () => {
    for (const handler of [
      due,
      fed,
      consumer({ wakeAtMs: NOW + 1 }),
      consumer(),
      producer({ nextRunAtMs: NOW + 5 }),
    ]) {
      const dueAt = handlerDueAt(handler);
      expect(chosen([handler]) !== "nothing").toBe(dueAt !== undefined && dueAt <= NOW);
    }
  });
});
