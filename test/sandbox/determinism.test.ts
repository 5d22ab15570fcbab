import { setImmediate as turn } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type {
  Done,
  HostAnswer,
  HostCall,
  SandboxCall,
  SandboxResult,
  Script,
  Transcript,
} from "../../host/ports/sandbox.ts";
import { openPool, type Pool } from "../../host/sandbox/pool.ts";
import { callFor, compiled, NOW_MS } from "../support/scripts.ts";

const SOURCE = `import { workflow, producer, consumer, topic } from "pawl";
const chance = () => ({
  random: [Math.random(), Math.random(), Math.random()],
  uuid: [crypto.randomUUID(), crypto.randomUUID()],
  bytes: [...crypto.getRandomValues(new Uint8Array(16))],
  words: [...crypto.getRandomValues(new Uint32Array(4))],
});
const clock = () => ({
  now: Date.now(),
  ctx: new Date().getTime(),
  text: Date(),
  iso: new Date().toISOString(),
  local: new Date().toLocaleString("en-US"),
  hours: new Date().getHours(),
  offset: new Date().getTimezoneOffset(),
  sub: new (class Later extends Date {})().getTime(),
  built: Reflect.construct(Date, []).getTime(),
  byConstructor: new Date(0).constructor.now(),
  intl: new Intl.DateTimeFormat("en-GB", { dateStyle: "full", timeStyle: "full" }).format(),
  parts: new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" }).formatToParts().map((part) => part.value).join(""),
});
export default workflow({
  name: "determinism",
  connections: { shop: "http" },
  topics: { t: topic({ output: true }) },
  producers: {
    values: producer({ schedule: { interval: "1h" }, publishes: [], handler: () => ({ ...chance(), ...clock() }) }),
    zone: producer({ schedule: { interval: "1h" }, publishes: [], handler: () => ({
      zone: new Intl.DateTimeFormat().resolvedOptions().timeZone,
      offset: new Date(2026, 6, 1).getTimezoneOffset(),
      local: new Date(2026, 6, 1, 12).toISOString(),
      text: String(new Date(0)),
      named: new Date(0).toLocaleTimeString("en-GB", { timeZone: "Asia/Tokyo" }),
    }) }),
    time: producer({ schedule: { interval: "1h" }, publishes: [], async handler(ctx) {
      const times = [Date.now()];
      const note = () => times.push(Date.now());
      for (let i = 0; i < 100_000; i++) Math.sqrt(i);
      note();
      await null;
      await new Promise((resolve) => resolve(1));
      note();
      await ctx.shop.get("/a");
      note();
      if (ctx.now() !== Date.now() || +new Date() !== Date.now()) throw new Error("the clocks differ");
      for (let i = 0; i < 100_000; i++) Math.sqrt(i);
      await null;
      note();
      await ctx.shop.get("/b");
      note();
      return times;
    } }),
    talk: producer({ schedule: { interval: "1h" }, publishes: ["t"], async handler(ctx, state) {
      const order = [];
      const ask = async (path) => { const answer = await ctx.shop.get(path); order.push([path, Date.now(), answer.body, Math.random()]); };
      await Promise.all([ask("/a"), ask("/b"), ask("/c")]);
      if (Math.random() < 0.5) await ask("/heads"); else await ask("/tails");
      ctx.log.info("asked", order.length);
      ctx.publish("t", { messageId: crypto.randomUUID(), payload: order });
      return { order, seen: (state?.seen ?? 0) + 1, at: new Date().toISOString() };
    } }),
  },
  consumers: {
    phases: consumer({
      subscribes: ["t"],
      publishes: [],
      prepare: () => ({ reservations: [{ topic: "t", ids: ["m"] }], data: chance() }),
      mutate: (ctx, prepared) => { ctx.shop.post("/x", { body: { again: chance(), before: prepared.data } }); },
    }),
  },
});`;

let script: Script;
let pool: Pool;
beforeAll(async () => {
  script = await compiled(SOURCE, { language: "js", file: "determinism.js" });
  pool = openPool({ childrenPerNamespace: 1, maxChildren: 1 });
});
afterAll(() => pool[Symbol.asyncDispose]());

const immediate = async ({ args }: HostCall): Promise<HostAnswer> => ({
  ok: true,
  value: `{"status":200,"headers":{},"body":${args}}`,
  nowMs: NOW_MS,
});
async function done(
  handler: string,
  overrides: Partial<SandboxCall> = {},
  answer: (call: HostCall) => Promise<HostAnswer> = immediate,
): Promise<Done> {
  const result: SandboxResult = await pool.run(callFor(script, "producer", handler, overrides), answer);
  if (result.status !== "done") throw new Error(`${result.error.code}: ${result.error.message}`);
  return result;
}
const stateOf = (result: Done) => JSON.parse(result.state ?? "null");

describe.each(["fresh", "frozen"] as const)("in the %s scope", (scope) => {
  it("the same seed and time give the same values, run after run", async () => {
    const first = await done("values", { scope });
    const again = await done("values", { scope, run: { id: "run_2", attempt: 5 } });
    expect(again.state).toBe(first.state);
  });

  it("another seed gives other values, and the same time", async () => {
    const [one, other] = [
      stateOf(await done("values", { scope })),
      stateOf(await done("values", { scope, seed: "seed2" })),
    ];
    for (const name of ["random", "uuid", "bytes", "words"]) expect(other[name]).not.toEqual(one[name]);
    expect(other.intl).toBe(one.intl);
    expect(other.now).toBe(one.now);
  });

  it("seeds that differ in one character, or in order, give unrelated values", async () => {
    const seeds = ["", "a", "b", "ab", "ba", "aa", "run_1:1", "run_1:2", "run_2:1", "\u0000", "é"];
    const seen = new Set<string>();
    for (const seed of seeds) {
      const { random, uuid, bytes, words } = stateOf(await done("values", { scope, seed }));
      for (const value of [...random, ...uuid, `${bytes}`, `${words}`]) seen.add(String(value));
    }
    expect(seen.size).toBe(seeds.length * 7);
  });

  it("every way to ask for the time gives the host's, in UTC", async () => {
    expect(stateOf(await done("values", { scope }))).toMatchObject({
      now: NOW_MS,
      ctx: NOW_MS,
      sub: NOW_MS,
      built: NOW_MS,
      byConstructor: NOW_MS,
      iso: "2026-01-02T03:04:05.000Z",
      text: "Fri Jan 02 2026 03:04:05 GMT+0000 (Coordinated Universal Time)",
      local: "1/2/2026, 3:04:05 AM",
      hours: 3,
      offset: 0,
      intl: "Friday, 2 January 2026 at 03:04:05 Coordinated Universal Time",
      parts: "03:04:05",
    });
  });

  it("random values look like what they are", async () => {
    const { random, uuid, bytes } = stateOf(await done("values", { scope }));
    for (const value of random) expect(value >= 0 && value < 1).toBe(true);
    for (const value of uuid)
      expect(value).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(new Set(bytes).size).toBeGreaterThan(8);
  });

  it("the default time zone is UTC, and named zones work", async () => {
    expect(stateOf(await done("zone", { scope }))).toEqual({
      zone: "UTC",
      offset: 0,
      local: "2026-07-01T12:00:00.000Z",
      text: "Thu Jan 01 1970 00:00:00 GMT+0000 (Coordinated Universal Time)",
      named: "09:00:00",
    });
  });

  it("time advances with each answer, and with nothing else", async () => {
    let nowMs = NOW_MS;
    const answer = async (): Promise<HostAnswer> => {
      nowMs += 1_000;
      return { ok: true, value: "null", nowMs };
    };
    expect(stateOf(await done("time", { scope }, answer))).toEqual(
      [0, 0, 0, 1_000, 1_000, 2_000].map((ms) => NOW_MS + ms),
    );
  });

  it("a replay of the transcript gives the identical result, whatever the world would say now", async () => {
    let nowMs = NOW_MS;
    const waiting: (() => void)[] = [];
    const inOddOrder = async () => {
      for (const at of [2, 0, 1]) {
        waiting[at]?.();
        await turn();
      }
    };
    const world = async (call: HostCall): Promise<HostAnswer> => {
      const { path } = JSON.parse(call.args) as { path: string };
      const asked = waiting.length;
      if (asked < 3)
        await new Promise<void>((resolve) => {
          waiting.push(resolve);
          if (waiting.length === 3) void inOddOrder();
        });
      nowMs += 7;
      return { ok: true, value: `{"status":200,"headers":{},"body":{"said":"${path}"}}`, nowMs };
    };
    const original = await done("talk", { scope, state: '{"seen":4}' }, world);
    expect(original.transcript.map(({ args }) => (JSON.parse(args) as { path: string }).path)).toEqual([
      "/c",
      "/a",
      "/b",
      expect.stringMatching(/heads|tails/),
    ]);
    const replayed = await done("talk", { scope, state: '{"seen":4}' }, replaying(original.transcript));
    for (const field of ["state", "publishes", "logs", "transcript"] as const)
      expect(replayed[field]).toEqual(original[field]);
  });

  it("a replay in the other scope gives the identical result too", async () => {
    const original = await done("talk", { scope });
    const other = scope === "fresh" ? "frozen" : "fresh";
    const replayed = await done("talk", { scope: other }, replaying(original.transcript));
    expect(replayed.usage.scope).toBe(other);
    for (const field of ["state", "publishes", "logs", "transcript"] as const)
      expect(replayed[field]).toEqual(original[field]);
  });

  it("prepare and mutate in one call give what they give in two", async () => {
    const one = await pool.run(callFor(script, "prepare+mutate", "phases", { scope }), immediate);
    const first = await pool.run(callFor(script, "prepare", "phases", { scope }), immediate);
    if (one.status !== "done" || first.status !== "done") throw new Error("it failed");
    const prepared = first.prepared?.json ?? "";
    const second = await pool.run(callFor(script, "mutate", "phases", { scope, prepared }), immediate);
    if (second.status !== "done") throw new Error("it failed");
    expect(one.prepared).toEqual(first.prepared);
    expect(one.intent).toEqual(second.intent);
  });
});

/** Gives each question the recorded answer, one at a time, in the recorded order of delivery. */
function replaying(transcript: Transcript): (call: HostCall) => Promise<HostAnswer> {
  const left = [...transcript];
  const waiting: { call: HostCall; give: (answer: HostAnswer) => void }[] = [];
  let delivering = false;
  const deliver = async () => {
    if (delivering) return;
    delivering = true;
    for (let next = left[0]; next; next = left[0]) {
      const { name, args, answer } = next;
      const at = waiting.findIndex(({ call }) => call.name === name && call.args === args);
      if (at < 0) break;
      left.shift();
      waiting.splice(at, 1)[0]?.give(answer);
      await turn();
    }
    delivering = false;
  };
  return (call) =>
    new Promise((give) => {
      waiting.push({ call, give });
      void deliver();
    });
}
