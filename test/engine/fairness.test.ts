import { expect, test } from "vitest";
import { asking, harness, type Harness, MINUTE, nothing, type Spec } from "../support/host-harness.ts";
import { gate, ok } from "../support/test-world.ts";

const asks = (): Spec => ({ producers: { tick: { every: "1h", handler: asking(nothing) } } });

test("1.8 no more runs at once than there are slots", async () => {
  await using h = await harness({ slots: 2 });
  const gates = Array.from({ length: 5 }, () => gate<ReturnType<typeof ok>>());
  h.world.onRead = (_, nth) => (gates[nth - 1] as (typeof gates)[number]).promise;
  for (let i = 0; i < 5; i++) await h.deploy(`w${i}`, asks());
  expect(h.world.reads.length).toBe(2);
  expect(h.engine.active).toBe(2);
  gates[0]?.open(ok());
  await h.settle();
  expect(h.world.reads.length).toBe(3);
  for (const one of gates) one.open(ok());
  await h.settle();
  expect(h.runs("tick").every((one) => one.status === "committed")).toBe(true);
});

test("1.8 namespaces take turns, however much one of them has waiting", async () => {
  await using h = await harness({ slots: 1 });
  const first = gate<ReturnType<typeof ok>>();
  h.world.onRead = (_, nth) => (nth === 1 ? first.promise : ok());
  for (let i = 0; i < 12; i++) await h.deploy(`a${i}`, asks(), { namespace: "a" });
  for (let i = 0; i < 2; i++) await h.deploy(`b${i}`, asks(), { namespace: "b" });
  first.open(ok());
  await h.settle();
  const order = h.calls.map((call) => call.script.workflow[0]).join("");
  expect(order.slice(0, 5)).toBe("ababa");
  expect(order.length).toBe(14);
});

test("1.8 within a namespace the longest waiting goes first", async () => {
  await using h = await harness({ slots: 1 });
  const first = gate<ReturnType<typeof ok>>();
  h.world.onRead = (_, nth) => (nth === 1 ? first.promise : ok());
  for (const name of ["z", "m", "a"]) {
    await h.deploy(name, asks());
    await h.pass(1_000);
  }
  first.open(ok());
  await h.settle();
  expect(h.calls.map((call) => call.script.workflow)).toEqual(["z", "m", "a"]);
});

/** With one slot, taken until all of these wait: the order in which they get it. */
async function order(h: Harness, names: string[], waitMs = 0): Promise<string[]> {
  const first = gate<ReturnType<typeof ok>>();
  h.world.onRead = (_, nth) => (nth === 1 ? first.promise : ok());
  await h.deploy("first", asks());
  for (const name of names) {
    await h.deploy(name, asks());
    await h.pass(waitMs);
  }
  first.open(ok());
  await h.settle();
  return h.calls.map((call) => call.script.workflow).slice(1);
}

const ranked = [
  { match: "low/*", policy: { priority: "low" as const } },
  { match: "high/*", policy: { preset: "critical" as const } },
];

test("1.8 a higher priority goes first, whoever waited longer", async () => {
  await using h = await harness({ slots: 1, policy: ranked });
  expect(await order(h, ["low", "normal", "high"], 1_000)).toEqual(["high", "normal", "low"]);
});

test("1.8 60 s of waiting raise one class", async () => {
  await using h = await harness({ slots: 1, policy: ranked });
  expect(await order(h, ["low", "normal", "high"], 61_000)).toEqual(["low", "normal", "high"]);
});

test("1.8 priority is that of the handler that would run, not of its workflow", async () => {
  await using h = await harness({
    slots: 1,
    policy: [{ match: "mixed/urgent", policy: { priority: "high" } }],
  });
  const first = gate<ReturnType<typeof ok>>();
  h.world.onRead = (_, nth) => (nth === 1 ? first.promise : ok());
  await h.deploy("first", asks());
  await h.deploy("plain", asks());
  await h.deploy("mixed", {
    producers: {
      urgent: { every: "1d", handler: asking(nothing) },
      idle: { every: "1d", handler: asking(nothing) },
    },
  });
  first.open(ok());
  await h.settle();
  expect(h.calls.map((call) => `${call.script.workflow}/${call.handler}`)).toEqual([
    "first/tick",
    "mixed/urgent",
    "plain/tick",
    "mixed/idle",
  ]);
});

test("1.8 where no rule sets a priority nothing is read to find one", async () => {
  await using h = await harness({ slots: 1 });
  const first = gate<ReturnType<typeof ok>>();
  h.world.onRead = (_, nth) => (nth === 1 ? first.promise : ok());
  await h.deploy("first", asks());
  for (let i = 0; i < 5; i++) await h.deploy(`w${i}`, asks());
  const before = h.moves;
  h.engine.poke();
  await h.settle();
  expect(h.moves - before).toBeLessThan(10);
  first.open(ok());
});

test("4 one workflow's failure stops nobody else", async () => {
  await using h = await harness({ slots: 1 });
  await h.deploy("bad", {
    producers: { bad: { every: "1m", handler: Array.from({ length: 50 }, () => new Error("no")) } },
  });
  await h.deploy("good", { producers: { good: { every: "1m", handler: nothing } } });
  await h.pass(10 * MINUTE);
  expect(h.runs("bad").length).toBe(1);
  expect(h.runs("good").length).toBe(11);
});
