/** What every adapter of `ports/sandbox.ts` promises. Call it with the adapter's name and a way to open one. */
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type {
  Done,
  Failed,
  HostAnswer,
  HostCall,
  Sandbox,
  SandboxCall,
  SandboxResult,
  Script,
  UnitCall,
} from "../../host/ports/sandbox.ts";
import { callFor, compiled, noAnswers, NOW_MS } from "../support/scripts.ts";

const FILE = "sandbox-script.ts";

/** The script that `open`'s sandbox is asked to run. */
export const contractScript = (): Promise<Script> =>
  compiled(readFileSync(new URL(FILE, import.meta.url), "utf8"), { file: FILE });

const http = (body: unknown, nowMs = NOW_MS): HostAnswer => ({
  ok: true,
  value: JSON.stringify({ status: 200, headers: {}, body }),
  nowMs,
});
const EVENTS = Array.from({ length: 5 }, (_, n) => ({
  messageId: `m${n}`,
  payload: { n },
  publishedAt: "2026-01-01T00:00:00Z",
}));
const given = (count: number) => EVENTS.slice(0, count).map((event) => ({ ...event, id: event.messageId }));

export function describeSandboxContract(name: string, open: () => Sandbox): void {
  describe(`${name} keeps the contract of a sandbox`, () => {
    let script: Script;
    let sandbox: Sandbox;
    beforeAll(async () => {
      script = await contractScript();
      sandbox = open();
    });
    afterAll(() => sandbox[Symbol.asyncDispose]());

    type Answerer = (call: HostCall) => Promise<HostAnswer>;
    const run = (
      unit: UnitCall,
      handler: string,
      overrides: Partial<SandboxCall> = {},
      answer: Answerer = noAnswers,
      on: Sandbox = sandbox,
    ): Promise<SandboxResult> => on.run(callFor(script, unit, handler, overrides), answer);
    const done = async (...args: Parameters<typeof run>): Promise<Done> => {
      const result = await run(...args);
      if (result.status !== "done") throw new Error(`${result.error.code}: ${result.error.message}`);
      return result;
    };
    const failed = async (...args: Parameters<typeof run>): Promise<Failed> => {
      const result = await run(...args);
      if (result.status !== "failed") throw new Error(`it is ${result.status}`);
      return result;
    };
    const stateOf = async (...args: Parameters<typeof run>) =>
      JSON.parse((await done(...args)).state ?? "null");

    describe("what a run is given and gives back", () => {
      it("a producer gets its state, params, run and time, and returns its new state as JSON text", async () => {
        const result = await done("producer", "echo", {
          state: '{"cursor":3}',
          params: '{"region":"ch"}',
          run: { id: "run_9", attempt: 4 },
        });
        expect(JSON.parse(result.state ?? "")).toEqual({
          state: { cursor: 3 },
          params: { region: "ch" },
          run: { id: "run_9", attempt: 4 },
          now: NOW_MS,
        });
        expect(result).toMatchObject({ publishes: [], inputs: [], logs: [], transcript: [] });
        expect(result.prepared).toBeUndefined();
        expect(result.intent).toBeUndefined();
      });

      it("returning nothing keeps the state, returning null clears it", async () => {
        expect((await done("producer", "keeps", { state: "1" })).state).toBeUndefined();
        expect((await done("producer", "clears", { state: "1" })).state).toBe("null");
      });

      it("published events come back in order, with topics, payload text and input", async () => {
        const { publishes, inputs } = await done("producer", "publishes");
        const input = { source: "shop", type: "order", id: "7" };
        expect(publishes).toEqual([
          { topics: ["order.new"], messageId: "b", payload: '{"n":1}', input },
          { topics: ["order.new", "order.other"], messageId: "a", payload: '{"n":2}' },
        ]);
        expect(inputs).toEqual([{ ...input, title: "Order 7" }]);
      });

      it("prepare gives its checkpoint, reservations without doubles, title and wakeAt", async () => {
        const { prepared, intent, state } = await done("prepare", "book", { state: '"old"' });
        expect(prepared?.reservations).toEqual([{ topic: "order.new", ids: ["a", "b", "c"] }]);
        expect(prepared?.title).toBe("Book 3 orders");
        expect(prepared?.wakeAt).toBe("2026-01-03T00:00:00Z");
        expect(JSON.parse(prepared?.json ?? "").data).toEqual({ total: 5, state: "old" });
        expect([intent, state]).toEqual([undefined, undefined]);
      });

      it("prepare+mutate gives the intent in the same call, from a copy of what prepare returned", async () => {
        const { prepared, intent } = await done("prepare+mutate", "book");
        expect(JSON.parse(prepared?.json ?? "").data.total).toBe(5);
        expect(intent).toMatchObject({ alias: "shop", tool: "post" });
        expect(JSON.parse(intent?.args ?? "")).toEqual({ path: "/entries", body: { total: 6 } });
      });

      it("mutate alone gives the same intent from the checkpoint", async () => {
        const fused = await done("prepare+mutate", "book");
        const alone = await done("mutate", "book", { prepared: fused.prepared?.json ?? "" });
        expect(alone.intent).toEqual(fused.intent);
        expect(alone.prepared).toBeUndefined();
      });

      it("without reservations there is no mutation", async () => {
        const { prepared, intent } = await done("prepare+mutate", "idle");
        expect(prepared?.reservations).toEqual([]);
        expect(intent).toBeUndefined();
      });

      it("a mutate that asks for nothing states no intent", async () => {
        const { prepared, intent } = await done("prepare+mutate", "abstains");
        expect(prepared?.reservations).toEqual([{ topic: "order.new", ids: ["a"] }]);
        expect(intent).toBeUndefined();
      });

      it("next gets the checkpoint and the outcome, publishes and returns state", async () => {
        const result = await done("next", "book", {
          prepared: '{"data":{"total":5}}',
          outcome: '{"status":"applied","result":{"body":{"id":"e1"}}}',
        });
        expect(result.publishes).toEqual([
          {
            topics: ["order.done"],
            messageId: "done",
            payload: '[{"total":5},{"status":"applied","result":{"body":{"id":"e1"}}}]',
          },
        ]);
        expect(result.state).toBe('{"booked":true}');
      });

      it("what a run does to the values it was handed stays in that run", async () => {
        const call = { state: '{"list":[1]}', params: '{"region":"eu"}' };
        for (let i = 0; i < 3; i++)
          expect(await stateOf("producer", "spoils", call)).toEqual({ list: [1, 9], region: "eu!" });
      });

      it("log lines come back with level, data and time, cut to the limit", async () => {
        const { logs } = await done("producer", "logs", { limits: { logLineChars: 40 } }, async () =>
          http(null, NOW_MS + 5),
        );
        expect(logs).toEqual([
          { level: "debug", message: "one", atMs: NOW_MS },
          { level: "info", message: "two", data: '{"a":[1]}', atMs: NOW_MS },
          { level: "warn", message: "three ".repeat(50).slice(0, 40), atMs: NOW_MS + 5 },
          { level: "error", message: "four", data: "null", atMs: NOW_MS + 5 },
        ]);
      });

      it("log lines over the limit are dropped, and the last line says so", async () => {
        const { logs } = await done("producer", "logsMany", { limits: { logLines: 10 } });
        expect(logs).toHaveLength(11);
        expect(logs[9]?.message).toBe("line 9");
        expect(logs[10]).toMatchObject({ level: "warn", message: "more than 10 lines; the rest is dropped" });
      });
    });

    describe("questions to the host", () => {
      it("a read tool asks by alias and tool, gets the answer's value, and its time", async () => {
        const asked: HostCall[] = [];
        const result = await done("producer", "reads", {}, async (call) => {
          asked.push(call);
          return http(["o1"], NOW_MS + 1_500);
        });
        expect(asked.map(({ name }) => name)).toEqual(["shop.get"]);
        expect(JSON.parse(asked[0]?.args ?? "")).toEqual({ path: "/orders", query: { after: "x" } });
        expect(JSON.parse(result.state ?? "")).toEqual({
          body: ["o1"],
          before: NOW_MS,
          after: NOW_MS + 1_500,
        });
        expect(result.usage.hostCalls).toBe(1);
        expect(result.transcript).toEqual([
          { call: 1, name: "shop.get", args: asked[0]?.args, answer: http(["o1"], NOW_MS + 1_500) },
        ]);
      });

      it("peek uses what was shipped with the call, and asks nothing", async () => {
        const peek = { "order.new": { events: JSON.stringify(EVENTS), count: 5, complete: false } };
        const { prepared } = await done("prepare", "peeks", { peek, state: "3" });
        expect(JSON.parse(prepared?.json ?? "").data).toEqual(given(3));
        const whole = {
          "order.new": { events: JSON.stringify(EVENTS.slice(0, 2)), count: 2, complete: true },
        };
        const all = await done("prepare", "peeks", { peek: whole });
        expect(JSON.parse(all.prepared?.json ?? "").data).toEqual(given(2));
      });

      it("peek asks when too little was shipped: 100 by default, 1000 at most, never more than it wanted", async () => {
        const asked: unknown[] = [];
        const answer: Answerer = async ({ name, args }) => {
          asked.push([name, JSON.parse(args)]);
          return { ok: true, value: JSON.stringify(EVENTS), nowMs: NOW_MS };
        };
        const peek = { "order.new": { events: JSON.stringify(EVENTS), count: 5, complete: false } };
        await done("prepare", "peeks", { peek }, answer);
        await done("prepare", "peeks", { state: "5000" }, answer);
        const two = await done("prepare", "peeks", { state: "2" }, answer);
        expect(asked).toEqual([100, 1_000, 2].map((limit) => ["peek", { topic: "order.new", limit }]));
        expect(JSON.parse(two.prepared?.json ?? "").data).toEqual(given(2));
      });

      it("getByIds asks for the ids", async () => {
        const asked: unknown[] = [];
        const { prepared } = await done("prepare", "finds", {}, async ({ name, args }) => {
          asked.push([name, JSON.parse(args)]);
          return { ok: true, value: JSON.stringify(EVENTS.slice(0, 1)), nowMs: NOW_MS };
        });
        expect(asked).toEqual([["getByIds", { topic: "order.new", ids: ["x", "y"] }]]);
        expect(JSON.parse(prepared?.json ?? "").data).toEqual(given(1));
      });

      it("asks at most so many at once, and all of them in the end", async () => {
        let [open, most, total] = [0, 0, 0];
        const state = await stateOf("producer", "readsMany", { limits: { hostCallsAtOnce: 3 } }, async () => {
          most = Math.max(most, ++open);
          const mine = total++;
          await new Promise(setImmediate);
          open--;
          return http(mine);
        });
        expect(most).toBe(3);
        expect(state).toEqual(Array.from({ length: 12 }, (_, i) => i));
      });

      it("more questions than allowed end the run", async () => {
        const { error } = await failed("producer", "readsMany", { limits: { hostCalls: 11 } }, async () =>
          http(1),
        );
        expect(error).toMatchObject({ class: "logic", code: "host-call-limit" });
      });

      it("an answer that failed ends the run with its class and code; the script cannot catch it", async () => {
        const result = await failed("producer", "catches", {}, async () => ({
          ok: false,
          class: "auth",
          code: "http-401",
          message: "the token has expired",
        }));
        expect(result.error).toMatchObject({
          class: "auth",
          code: "http-401",
          message: "the token has expired",
          tool: "shop.get",
        });
        expect(result.transcript).toHaveLength(1);
      });

      it("an answerer that breaks its promise ends the run, and run() still resolves", async () => {
        const { error } = await failed("producer", "catches", {}, () =>
          Promise.reject(new Error("secret detail")),
        );
        expect(error.class).toBe("internal");
        expect(error.message).not.toContain("secret detail");
      });
    });

    describe("faults of the script", () => {
      it("a throw is handler-throws, with what was thrown, the author's file, and the log so far", async () => {
        const { error, logs } = await failed("producer", "throws");
        expect(error).toMatchObject({
          class: "logic",
          code: "handler-throws",
          message: "RangeError: out of orders",
          at: expect.stringMatching(/^sandbox-script\.ts:\d+:\d+$/),
          frame: expect.stringContaining("^"),
        });
        expect(logs).toEqual([{ level: "warn", message: "about to throw", data: '{"n":1}', atMs: NOW_MS }]);
      });

      it("a thrown text is reported as such", async () => {
        const { error } = await failed("producer", "throwsText");
        expect(error).toMatchObject({ code: "handler-throws", message: 'threw "just text"' });
      });

      it.each<[string, UnitCall, string, string]>([
        ["a mutation in a producer, caught or not", "producer", "wrongPhase", "phase-violation"],
        ["a read in mutate", "prepare+mutate", "readsLate", "phase-violation"],
        ["a second mutation, caught or not", "prepare+mutate", "twice", "two-mutations"],
        ["a topic the handler does not publish", "producer", "foreignTopic", "undeclared-topic"],
        ["a peek at a topic it does not subscribe to", "prepare", "peeksForeign", "undeclared-topic"],
        ["a reservation in a foreign topic", "prepare", "reservesForeign", "bad-reservation"],
        ["a result of prepare that is no object", "prepare", "wrongResult", "bad-result"],
        ["a wakeAt that is no text", "prepare", "wrongWake", "bad-result"],
        ["an infinite number in a payload", "producer", "badPayload", "bad-value"],
        ["a NUL in a messageId", "producer", "badId", "bad-call"],
        ["a wait for nothing", "producer", "waitsForEver", "never-settles"],
      ])("%s", async (_, unit, handler, code) => {
        const result = await failed(unit, handler);
        expect(result.error).toMatchObject({ class: "logic", code });
        expect(result.transcript).toEqual([]);
      });

      it.each(["cycle", "nan", "big", "call", "date"])(
        "state that is not plain data (%s) is refused by its path",
        async (kind) => {
          const { error } = await failed("producer", "badState", { state: JSON.stringify(kind) });
          expect(error).toMatchObject({ class: "logic", code: "bad-value" });
          expect(error.message).toContain("the state.list[1]");
        },
      );

      it.each<[string, UnitCall, string, Partial<SandboxCall>, string]>([
        ["state over its size", "producer", "large", { limits: { stateBytes: 1_000 } }, "value-too-large"],
        [
          "a checkpoint over its size",
          "prepare",
          "book",
          { limits: { preparedBytes: 50 } },
          "value-too-large",
        ],
        [
          "a payload over its size",
          "producer",
          "publishes",
          { limits: { messageBytes: 5 } },
          "value-too-large",
        ],
        ["too many events", "producer", "publishesMany", { limits: { maxPublishes: 19 } }, "publish-limit"],
        ["too much in all", "producer", "large", { limits: { outputBytes: 1_000 } }, "output-limit"],
      ])("%s", async (_, unit, handler, overrides, code) => {
        expect((await failed(unit, handler, overrides)).error).toMatchObject({ class: "logic", code });
      });

      it("what is just within the limits passes", async () => {
        const result = await done("producer", "publishesMany", { limits: { maxPublishes: 20 } });
        expect(result.publishes).toHaveLength(20);
        expect((await done("producer", "large", { limits: { stateBytes: 2_002 } })).state).toHaveLength(
          2_002,
        );
      });
    });

    describe("ends from outside", () => {
      const slow = () => {
        const asked = Promise.withResolvers<void>();
        const answer: Answerer = () => {
          asked.resolve();
          return new Promise(() => {});
        };
        return { asked: asked.promise, answer };
      };

      it("a run aborted before it starts asks nothing", async () => {
        const { error } = await failed("producer", "waitsForHost", { signal: AbortSignal.abort() });
        expect(error).toMatchObject({ class: "transient", code: "run-aborted" });
      });

      it("a run aborted while it waits ends at once; the next one is not touched by it", async () => {
        const { asked, answer } = slow();
        const stop = new AbortController();
        const running = failed("producer", "waitsForHost", { signal: stop.signal }, answer);
        await asked;
        stop.abort();
        expect((await running).error.code).toBe("run-aborted");
        expect(await stateOf("producer", "waitsForHost", {}, async () => http(1))).toBe("went on");
      });

      it("a run that waits longer than its wall time ends", async () => {
        const { answer } = slow();
        const { error } = await failed("producer", "waitsForHost", { limits: { wallMs: 50 } }, answer);
        expect(error.code).toBe("wall-limit");
      });

      it("closing gives back what runs, and takes nothing more", async () => {
        const closing = open();
        const { asked, answer } = slow();
        const running = run("producer", "waitsForHost", {}, answer, closing);
        await asked;
        await closing[Symbol.asyncDispose]();
        const results = [await running, await run("producer", "keeps", {}, noAnswers, closing)];
        expect(results.map(({ status }) => status)).toEqual(["lost", "lost"]);
        for (const result of results)
          expect(result.status === "lost" && result.error).toMatchObject({
            class: "transient",
            code: "sandbox-closed",
          });
      });

      it("many runs at once all end, each with its own values", async () => {
        const runs = Array.from({ length: 40 }, (_, i) =>
          stateOf("producer", "echo", { state: String(i), run: { id: `run_${i}`, attempt: 1 } }),
        );
        const states = await Promise.all(runs);
        expect(states.map(({ state, run: { id } }) => [state, id])).toEqual(
          Array.from({ length: 40 }, (_, i) => [i, `run_${i}`]),
        );
      });

      it("says what protects this machine", async () => {
        const report = await sandbox.hardening();
        expect([1, 2, 3]).toContain(report.level);
        for (const layer of report.layers)
          expect(layer).toEqual({
            name: expect.any(String),
            inForce: expect.any(Boolean),
            detail: expect.any(String),
          });
        expect(report.layers.length).toBeGreaterThan(0);
      });
    });
  });
}
