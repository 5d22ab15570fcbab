import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ERRORS, PawlError } from "../../host/core/errors.ts";
import type { Manifest } from "../../host/core/workflow.ts";
import { DEFAULT_LIMITS, type SandboxCall, type UnitCall } from "../../host/ports/sandbox.ts";
import { decodeDone, decodeLogs, parseBounded } from "../../host/sandbox/decode.ts";
import { callFor } from "../support/scripts.ts";

const manifest: Manifest = {
  name: "w",
  description: "",
  connections: { shop: "http" },
  topics: { order: { output: false }, booked: { output: true }, secret: { output: true } },
  params: {},
  hooks: {},
  producers: { poll: { schedule: { interval: "5m", intervalMs: 300_000 }, publishes: ["order"] } },
  consumers: { book: { subscribes: ["order"], publishes: ["booked"], hasMutate: true, hasNext: true } },
};
const script = {
  namespace: "test",
  workflow: "w",
  version: 1,
  hash: "0",
  file: "script.ts",
  source: "",
  code: "",
  manifest,
  scope: "frozen" as const,
};
const call = (unit: UnitCall): SandboxCall => callFor(script, unit, unit === "producer" ? "poll" : "book");
const decode = (unit: UnitCall, result: unknown, limits = DEFAULT_LIMITS) =>
  decodeDone(call(unit), limits, typeof result === "string" ? result : JSON.stringify(result));

/** The code with which a result is refused; a lie that passes is `undefined`. */
function refusal(unit: UnitCall, result: unknown, limits = DEFAULT_LIMITS): string | undefined {
  try {
    decode(unit, result, limits);
    return undefined;
  } catch (error) {
    if (!(error instanceof PawlError) || ERRORS[error.code].blame !== "script") throw error;
    return error.code;
  }
}

const nothing = { publishes: [], inputs: [] };
const published = (event: object) => ({
  ...nothing,
  publishes: [{ topics: ["order"], messageId: "1", payload: 1, ...event }],
});
const prepared = (result: unknown) => ({ ...nothing, prepared: result });
const reserving = { reservations: [{ topic: "order", ids: ["1"] }] };
const meaning = (intent: unknown, result: unknown = reserving) => ({ ...nothing, prepared: result, intent });
const post = { alias: "shop", tool: "post", args: { path: "/" } };

describe("an honest result", () => {
  test("of a producer", () => {
    const input = { source: "shop", type: "order", id: "1" };
    expect(
      decode("producer", {
        publishes: [{ topics: ["order", "order"], messageId: "1", payload: { a: [1] }, input }],
        inputs: [{ ...input, title: "Order 1" }],
        state: { after: "1" },
      }),
    ).toEqual({
      publishes: [{ topics: ["order"], messageId: "1", payload: '{"a":[1]}', input }],
      inputs: [{ ...input, title: "Order 1" }],
      state: '{"after":"1"}',
    });
  });

  test("of prepare and mutate", () => {
    const result = { ...reserving, data: 1, ui: { title: "Book 1" }, wakeAt: "2026-01-01T00:00:00Z" };
    expect(decode("prepare+mutate", meaning(post, result))).toEqual({
      ...nothing,
      prepared: {
        json: JSON.stringify(result),
        reservations: [{ topic: "order", ids: ["1"] }],
        title: "Book 1",
        wakeAt: "2026-01-01T00:00:00Z",
      },
      intent: { alias: "shop", tool: "post", args: '{"path":"/"}' },
    });
  });

  test("without a state keeps the old one; null clears it", () => {
    expect("state" in decode("next", nothing)).toBe(false);
    expect(decode("next", { ...nothing, state: null }).state).toBe("null");
  });

  test("reservations of one topic are one, each id once", () => {
    const list = [
      { topic: "order", ids: ["1", "2"] },
      { topic: "order", ids: ["2", "3"] },
      { topic: "order" },
    ];
    expect(decode("prepare", prepared({ reservations: list })).prepared?.reservations).toEqual([
      { topic: "order", ids: ["1", "2", "3"] },
    ]);
  });
});

describe("a lie is refused", () => {
  const big = "x".repeat(100);
  const lies: [what: string, unit: UnitCall, result: unknown, code: string][] = [
    ["text that is no JSON", "producer", "{", "bad-value"],
    ["nothing at all", "producer", "", "bad-value"],
    ["null", "producer", null, "bad-value"],
    ["a list", "producer", [], "bad-value"],
    ["no publishes", "producer", { inputs: [] }, "bad-value"],
    ["publishes as an object", "producer", { publishes: { length: 1 }, inputs: [] }, "bad-value"],
    ["inputs as a number", "producer", { publishes: [], inputs: 3 }, "bad-value"],
    ["an event that is a text", "producer", { publishes: ["x"], inputs: [] }, "bad-value"],
    ["topics as a text", "producer", published({ topics: "order" }), "bad-value"],
    [
      "a topic that the handler does not publish",
      "producer",
      published({ topics: ["secret"] }),
      "undeclared-topic",
    ],
    ["a topic that nobody declared", "producer", published({ topics: ["order", "x"] }), "undeclared-topic"],
    [
      "a topic named like a member of every object",
      "producer",
      published({ topics: ["toString"] }),
      "undeclared-topic",
    ],
    ["a topic that is no text", "producer", published({ topics: [{ toString: 1 }] }), "undeclared-topic"],
    ["a topic that another handler publishes", "next", published({ topics: ["order"] }), "undeclared-topic"],
    ["an event of prepare", "prepare", { ...published({}), prepared: {} }, "undeclared-topic"],
    ["an event of mutate", "mutate", published({}), "undeclared-topic"],
    ["an empty messageId", "producer", published({ messageId: "" }), "bad-call"],
    ["a messageId that is a number", "producer", published({ messageId: 1 }), "bad-call"],
    ["a messageId with NUL", "producer", published({ messageId: "a\0" }), "bad-call"],
    ["a messageId with half a character", "producer", published({ messageId: "\ud800" }), "bad-call"],
    ["a messageId of 513 characters", "producer", published({ messageId: "x".repeat(513) }), "bad-call"],
    [
      "an input without source",
      "producer",
      { publishes: [], inputs: [{ type: "a", id: "1", title: "" }] },
      "bad-call",
    ],
    ["an event whose input is a text", "producer", published({ input: "1" }), "bad-value"],
    ["prepare without a result", "prepare", nothing, "bad-result"],
    ["a list as the result of prepare", "prepare", prepared([]), "bad-result"],
    ["reservations as an object", "prepare", prepared({ reservations: {} }), "bad-result"],
    ["a reservation that is null", "prepare", prepared({ reservations: [null] }), "bad-result"],
    ["ids as a text", "prepare", prepared({ reservations: [{ topic: "order", ids: "1" }] }), "bad-result"],
    [
      "a reservation of a topic not subscribed",
      "prepare",
      prepared({ reservations: [{ topic: "booked", ids: ["1"] }] }),
      "bad-reservation",
    ],
    ["a reservation of no topic", "prepare", prepared({ reservations: [{ ids: ["1"] }] }), "bad-reservation"],
    [
      "a reserved id that is null",
      "prepare",
      prepared({ reservations: [{ topic: "order", ids: [null] }] }),
      "bad-reservation",
    ],
    [
      "10,001 reserved events",
      "prepare",
      prepared({ reservations: [{ topic: "order", ids: Array.from({ length: 10_001 }, (_, i) => `${i}`) }] }),
      "bad-reservation",
    ],
    ["a wakeAt that is a number", "prepare", prepared({ wakeAt: 5 }), "bad-result"],
    ["an intent that is a text", "mutate", { ...nothing, intent: "post" }, "bad-value"],
    [
      "an intent on an alias not declared",
      "mutate",
      { ...nothing, intent: { ...post, alias: "bank" } },
      "undeclared-alias",
    ],
    [
      "an intent on a member of every object",
      "mutate",
      { ...nothing, intent: { ...post, alias: "constructor" } },
      "undeclared-alias",
    ],
    ["an intent without tool", "mutate", { ...nothing, intent: { alias: "shop", args: {} } }, "bad-call"],
    [
      "an intent whose tool is no name",
      "mutate",
      { ...nothing, intent: { ...post, tool: "po\nst" } },
      "bad-call",
    ],
  ];
  test.each(lies)("%s", (_, unit, result, code) => {
    expect(refusal(unit, result)).toBe(code);
  });

  test("sizes are measured in bytes by the host, whatever the child counted", () => {
    const limits = {
      ...DEFAULT_LIMITS,
      stateBytes: 101,
      messageBytes: 101,
      preparedBytes: 101,
      maxPublishes: 1,
    };
    expect(refusal("producer", { ...nothing, state: big }, limits)).toBe("value-too-large");
    expect(refusal("producer", { ...nothing, state: "€".repeat(34) }, limits)).toBe("value-too-large");
    expect(refusal("producer", published({ payload: big }), limits)).toBe("value-too-large");
    expect(refusal("prepare", prepared({ data: big }), limits)).toBe("value-too-large");
    expect(refusal("mutate", { ...nothing, intent: { ...post, args: big } }, limits)).toBe("value-too-large");
    expect(refusal("producer", { ...nothing, publishes: [{}, {}] }, limits)).toBe("publish-limit");
    expect(refusal("producer", { ...nothing, state: "x".repeat(99) }, limits)).toBeUndefined();
  });
});

describe("what a phase may not do is not there", () => {
  test("prepare states no intent", () => {
    expect(decode("prepare", meaning(post)).intent).toBeUndefined();
  });

  test("prepare and mutate without a reservation state no intent", () => {
    expect(decode("prepare+mutate", meaning(post, {})).intent).toBeUndefined();
    expect(
      decode("prepare+mutate", meaning(post, { reservations: [{ topic: "order", ids: [] }] })).intent,
    ).toBeUndefined();
  });

  test("prepare and mutate set no state; next and producers prepare nothing", () => {
    expect(decode("prepare", { ...prepared({}), state: 1 }).state).toBeUndefined();
    expect(decode("mutate", { ...nothing, state: 1 }).state).toBeUndefined();
    for (const unit of ["next", "producer"] as const) {
      expect(decode(unit, meaning(post)).prepared).toBeUndefined();
      expect(decode(unit, meaning(post)).intent).toBeUndefined();
    }
  });

  test("only a producer names the input of an event", () => {
    const input = { source: "a", type: "b", id: "c" };
    expect(decode("next", published({ topics: ["booked"], input })).publishes[0]).not.toHaveProperty("input");
  });

  test("titles are cut and well-formed", () => {
    const title = `\ud800${"t".repeat(600)}`;
    expect(decode("prepare", prepared({ ui: { title } })).prepared?.title).toBe(`\ufffd${"t".repeat(499)}`);
    const inputs = [{ source: "a", type: "b", id: "c", title }];
    expect(decode("producer", { publishes: [], inputs }).inputs[0]?.title).toHaveLength(500);
    expect(decode("prepare", prepared({ ui: "x" })).prepared).not.toHaveProperty("title");
    expect(decode("prepare", prepared({ ui: null })).prepared).not.toHaveProperty("title");
  });
});

describe("depth", () => {
  const nested = (depth: number) => `${"[".repeat(depth)}${"]".repeat(depth)}`;
  test("200 levels are read, 201 are refused before parsing, a million too", () => {
    expect(() => parseBounded(nested(200))).not.toThrow();
    for (const depth of [201, 1_000_000]) expect(() => parseBounded(nested(depth))).toThrow("200 levels");
    expect(() => parseBounded("[".repeat(5_000_000))).toThrow("200 levels");
  });

  test("brackets inside texts do not count", () => {
    const text = `${"[".repeat(300)}\\"{`;
    expect(parseBounded(JSON.stringify({ text }))).toEqual({ text });
  });
});

describe("logs", () => {
  const limits = { ...DEFAULT_LIMITS, logLines: 2, logLineChars: 10 };
  const logs = (...lines: unknown[]) => decodeLogs(JSON.stringify(lines), limits);

  test("an honest line", () => {
    expect(logs({ level: "warn", message: "hi", data: '{"a":1}', atMs: 5 })).toEqual([
      { level: "warn", message: "hi", data: '{"a":1}', atMs: 5 },
    ]);
  });

  test("too many and too long lines are cut", () => {
    const line = { level: "info", message: "m".repeat(50), data: `"${"d".repeat(50)}"`, atMs: 0 };
    const got = logs(line, line, line, line, line);
    expect(got).toHaveLength(3);
    expect(got[0]?.message).toHaveLength(10);
    expect(() => JSON.parse(got[0]?.data ?? "")).not.toThrow();
  });

  test.each([null, 3, "x", [], {}, { level: "fatal", message: { a: 1 }, data: 3, atMs: "x" }])(
    "a line that is %j becomes an ordinary one",
    (line) => {
      expect(logs(line)).toEqual([{ level: "info", message: "", atMs: 0 }]);
    },
  );
});

test("no JSON whatever gets through as anything but a checked result", () => {
  const units: UnitCall[] = ["producer", "prepare", "mutate", "prepare+mutate", "next"];
  const part = fc.oneof(
    fc.jsonValue({ maxDepth: 3 }),
    fc.array(
      fc.record(
        { topics: fc.jsonValue(), messageId: fc.jsonValue(), payload: fc.jsonValue(), input: fc.jsonValue() },
        { requiredKeys: [] },
      ),
    ),
    fc.record(
      { reservations: fc.jsonValue(), ui: fc.jsonValue(), wakeAt: fc.jsonValue() },
      { requiredKeys: [] },
    ),
    fc.record({
      alias: fc.constantFrom("shop", "__proto__", "x"),
      tool: fc.jsonValue(),
      args: fc.jsonValue(),
    }),
  );
  const result = fc.record(
    { publishes: part, inputs: part, prepared: part, intent: part, state: part },
    { requiredKeys: [] },
  );
  fc.assert(
    fc.property(fc.constantFrom(...units), result, (unit, given) => {
      if (refusal(unit, given) !== undefined) return;
      const got = decode(unit, given);
      for (const event of got.publishes) {
        expect(event.topics.every((topic) => topic === (unit === "producer" ? "order" : "booked"))).toBe(
          true,
        );
        expect(typeof event.messageId).toBe("string");
        JSON.parse(event.payload);
      }
      const mayMutate = unit === "mutate" || unit === "prepare+mutate";
      expect([undefined, ...(mayMutate ? ["shop"] : [])]).toContain(got.intent?.alias);
    }),
    { numRuns: process.env["PAWL_PROOF"] === "1" ? 500_000 : 2_000 },
  );
});
