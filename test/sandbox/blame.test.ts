// What an author reads when a script fails: from the real sandbox, and for hostile stacks from the function itself.
import { tmpdir } from "node:os";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  DEFAULT_LIMITS,
  type Sandbox,
  type SandboxCall,
  type SandboxError,
  type Script,
  type UnitCall,
} from "../../host/ports/sandbox.ts";
import { codeFrame, limitError, thrownError } from "../../host/sandbox/blame.ts";
import { openPool } from "../../host/sandbox/pool.ts";
import { callFor, compiled, noAnswers } from "../support/scripts.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const MARK = "⌖";

/** One script whose four handlers run the same lines; ⌖ marks the place to blame. */
const SOURCE = (lines: string) => `import { consumer, producer, topic, workflow } from "pawl";

class OutOfStock extends Error {
  override name = "OutOfStock";
}
const inner = (id: string) => {
  throw new OutOfStock(\`no \${id} left\`);
};
function outer(id: string): never {
  return inner(id);
}
async function later(id: string): Promise<never> {
  await null;
  return outer(id);
}
async function work(): Promise<void> {
${lines}
}
void [OutOfStock, later];

export default workflow({
  name: "w",
  topics: { a: topic() },
  producers: { poll: producer({ schedule: { interval: "5m" }, handler: work }) },
  consumers: {
    book: consumer({
      subscribes: ["a"],
      async prepare() { await work(); return { ui: { title: "" } }; },
      mutate: work,
      next: work,
    }),
  },
});
`;
const WORK_LINE = 17;

let sandbox: Sandbox;
beforeAll(() => {
  sandbox = openPool({ childrenPerNamespace: 1 });
});
afterAll(async () => {
  await sandbox[Symbol.asyncDispose]();
});

const UNITS: [unit: UnitCall, handler: string][] = [
  ["producer", "poll"],
  ["prepare", "book"],
  ["mutate", "book"],
  ["next", "book"],
];

async function failure(
  source: string,
  unit: UnitCall = "producer",
  handler = "poll",
  overrides: Partial<SandboxCall> = {},
): Promise<SandboxError> {
  const script = await compiled(source, { file: "orders.ts" });
  const result = await sandbox.run(callFor(script, unit, handler, overrides), noAnswers);
  if (result.status !== "failed") throw new Error(`expected a failure, got ${result.status}`);
  const shown = JSON.stringify(result.error);
  for (const path of [
    root,
    tmpdir(),
    "node_modules",
    "host/sandbox",
    "sandbox-api",
    "prelude",
    "node:",
    "isolated",
  ])
    if (shown.includes(path)) throw new Error(`tells of the host: ${shown}`);
  return result.error;
}

describe.each(UNITS)("in %s", (unit, handler) => {
  test("an error of a function in a function: class, code, message, place, frame, names", async () => {
    const error = await failure(SOURCE('  outer("tea");'), unit, handler);
    expect(error).toMatchObject({
      class: "logic",
      code: "handler-throws",
      message: "OutOfStock: no tea left",
      at: "orders.ts:7:9",
      location: { line: 7, column: 9 },
    });
    expect(error.frame).toBe(
      [
        "   5 | }",
        "   6 | const inner = (id: string) => {",
        ">  7 |   throw new OutOfStock(`no ${id} left`);",
        "     |         ^",
        "   8 | };",
      ]
        .map((line) => line.replace(/^(.) {1}/, "$1"))
        .join("\n"),
    );
    expect(error.stack?.slice(0, 3)).toEqual([
      "inner (orders.ts:7:9)",
      "outer (orders.ts:10:10)",
      `work (orders.ts:${WORK_LINE}:3)`,
    ]);
  });

  test("an error after an await keeps its place", async () => {
    const error = await failure(SOURCE('  await later("milk");'), unit, handler);
    expect(error).toMatchObject({ message: "OutOfStock: no milk left", at: "orders.ts:7:9" });
    expect(error.stack).toContain(`work (orders.ts:${WORK_LINE}:3)`);
  });
});

describe("what a script can throw", () => {
  const work = (lines: string) => failure(SOURCE(lines));
  /** Where the handler is declared: what is left when a throw tells no place. */
  const handlerLine =
    SOURCE("")
      .split("\n")
      .findIndex((line) => line.includes("poll:")) + 1;

  test.each([
    ["a text", 'throw "gone";', 'threw "gone"'],
    ["null", "throw null;", "threw null"],
    ["undefined", "throw undefined;", "threw undefined"],
    ["a number", "throw 42;", "threw 42"],
    ["a symbol", "throw Symbol('s');", "threw a symbol"],
    ["a function", "throw () => 1;", /threw|Error/],
    ["an object", "throw { reason: 1 };", "threw an object"],
    ["a promise", "throw Promise.resolve(1);", "threw an object"],
  ])("%s", async (_, lines, message) => {
    const error = await work(`  ${lines}`);
    expect(error).toMatchObject({ class: "logic", code: "handler-throws" });
    expect(error.message).toMatch(message);
    expect(error.location?.line).toBe(handlerLine);
    expect(error.frame).toContain(`> ${handlerLine} |`);
  });

  test.each([
    ["text", 'throw "x".repeat(3_000_000);'],
    ["message", 'throw new Error("x".repeat(3_000_000));'],
    ["name", 'const e = new Error("m"); e.name = "n".repeat(3_000_000); throw e;'],
  ])("a huge %s is cut", async (_, lines) => {
    const error = await work(`  ${lines}`);
    expect(error.code).toBe("handler-throws");
    expect(JSON.stringify(error).length).toBeLessThan(20_000);
  });

  test.each([
    ["a message getter that throws", "throw { get message() { throw 1; } };"],
    ["a stack getter that throws", "throw { message: 'm', get stack() { throw 1; } };"],
    [
      "a name that cannot become text",
      "const e = new Error('m'); Object.defineProperty(e, 'name', { value: Object.create(null) }); throw e;",
    ],
    [
      "a proxy that refuses everything",
      "throw new Proxy({}, { get() { throw 1; }, has() { throw 1; }, getPrototypeOf() { throw 1; } });",
    ],
    ["an error without prototype", "const e = new Error('m'); Object.setPrototypeOf(e, null); throw e;"],
    [
      "a toString that loops",
      "throw { message: { toString() { return this.valueOf(); }, valueOf() { return {}; } } };",
    ],
  ])("%s still ends as the author's error", async (_, lines) => {
    const error = await work(`  ${lines}`);
    expect(error).toMatchObject({ class: "logic", code: "handler-throws" });
    expect(error.message).not.toBe("");
    expect(error.at).toMatch(/^orders\.ts:\d+:\d+$/);
  });

  test("a getter that never ends meets the limit like any loop", async () => {
    const error = await failure(SOURCE("  throw { get message() { for (;;) {} } };"), "producer", "poll", {
      limits: { sectionMs: 100 },
    });
    expect(error).toMatchObject({ class: "logic", code: "cpu-limit" });
  });

  test("an invented stack cannot name a file, nor a place that the file does not have", async () => {
    const invent = (stack: string) =>
      work(`  const e = new Error("m");\n  e.stack = ${JSON.stringify(stack)};\n  throw e;`);
    const foreign = await invent("Error: m\n    at f (/etc/passwd:1:1)\n    at g (file:///etc/shadow:2:2)");
    expect(JSON.stringify(foreign)).not.toContain("/etc/shadow:");
    expect(foreign.location?.line).toBe(handlerLine + 2);
    for (const place of ["99999:1", "0:0", "-5:3", "3:0", "3:99999", "3:999999999999999999999"]) {
      const error = await invent(`Error: m\n    at f (pawl-script:orders.ts:${place})`);
      expect(error.at).toMatch(new RegExp(`^orders\\.ts:${handlerLine + 2}:\\d+$`));
    }
  });

  test("an error that claims a code of the host keeps that of the script", async () => {
    const error = await work(
      '  throw Object.assign(new Error("m"), { code: "sandbox-protocol", class: "internal" });',
    );
    expect(error).toMatchObject({ class: "logic", code: "handler-throws" });
  });

  test("errors of the language name the place", async () => {
    const lines = `  const order: { id?: { n: number } } = {};\n  order.id!.n = 1;`;
    const error = await work(lines);
    expect(error.message).toBe("TypeError: Cannot set properties of undefined (setting 'n')");
    expect(error.at).toBe(`orders.ts:${WORK_LINE + 1}:15`);
  });

  test("a comment cannot rename the file in stacks", async () => {
    const error = await work('  //# sourceURL=/etc/hosts\n  outer("x");');
    expect(error.at).toBe("orders.ts:7:9");
  });
});

describe("a handler that ends by a limit", () => {
  test("an endless loop is blamed at the loop", async () => {
    const source = SOURCE(`  let n = 0;\n  ${MARK}while (n >= 0) n += 1;`);
    const before = source.slice(0, source.indexOf(MARK)).split("\n").length;
    const error = await failure(source.replace(MARK, ""), "producer", "poll", { limits: { sectionMs: 100 } });
    expect(error).toMatchObject({ class: "logic", code: "cpu-limit" });
    expect(error.message).toContain("100 ms");
    expect(error.location?.line).toBe(before);
    expect(error.stack?.[0]).toMatch(/^work \(orders\.ts:/);
  });

  test("a wait that can never end is blamed on the handler", async () => {
    const error = await failure(SOURCE("  await new Promise(() => {});"));
    expect(error).toMatchObject({ class: "logic", code: "never-settles" });
    expect(error.at).toMatch(/^orders\.ts:\d+:\d+$/);
  });
});

describe("the function itself", () => {
  const script: Script = {
    namespace: "n",
    workflow: "w",
    version: 1,
    hash: "0",
    file: "bundle.ts",
    source: "a\nb\nc\nd\n",
    code: "(function(){\na a a\nb b b\nc\nd\n})",
    manifest: {
      name: "w",
      description: "",
      connections: {},
      topics: {},
      params: {},
      hooks: {},
      producers: {
        p: {
          schedule: { interval: "5m", intervalMs: 300_000 },
          publishes: [],
          location: { line: 4, column: 1 },
        },
      },
      consumers: {},
    },
    scope: "frozen",
  };
  const call = callFor(script, "producer", "p");
  const report = (given: object) =>
    thrownError(
      call,
      DEFAULT_LIMITS,
      JSON.stringify({ code: "handler-throws", name: "Error", message: "m", stack: "", ...given }),
      "frozen",
    );

  test.each(["null", "3", "[]", "{}", '{"code":{},"name":[],"message":7,"stack":null}'])(
    "a report that is %s is still an error of the script",
    (json) => {
      expect(thrownError(call, DEFAULT_LIMITS, json, "fresh")).toMatchObject({
        class: "logic",
        code: "handler-throws",
        at: "bundle.ts:4:1",
      });
    },
  );

  test.each(["sandbox-protocol", "sandbox-lost", "run-aborted", "__proto__", "constructor", ""])(
    "the code %j cannot be claimed",
    (code) => {
      expect(report({ code })).toMatchObject({ class: "logic", code: "handler-throws" });
    },
  );

  test("what the frozen scope forbids has a code of its own, in that scope only", () => {
    const json = JSON.stringify({
      code: "handler-throws",
      name: "TypeError",
      message: "Cannot add property x, object is not extensible",
      stack: "",
    });
    expect(thrownError(call, DEFAULT_LIMITS, json, "frozen").code).toBe("frozen-builtin");
    expect(thrownError(call, DEFAULT_LIMITS, json, "fresh").code).toBe("handler-throws");
  });

  test("a source map leads to the author's own file, for the place and for every name on the stack", () => {
    // One mapping per line of the bundle's first two: line 1 → src/a.ts 11:3, line 2 → src/b.ts 21:5.
    const sourceMap = JSON.stringify({
      version: 3,
      sources: ["src/a.ts", "src/b.ts"],
      names: [],
      mappings: "AAUE;ACUE",
    });
    const stack = "Error: m\n    at f (pawl-script:bundle.ts:2:1)\n    at g (pawl-script:bundle.ts:1:1)";
    const mapped = thrownError(
      { ...call, script: { ...script, sourceMap } },
      DEFAULT_LIMITS,
      JSON.stringify({ code: "handler-throws", name: "Error", message: "m", stack }),
      "fresh",
    );
    expect(mapped.at).toBe("src/b.ts:21:5");
    expect(mapped.stack).toEqual(["f (src/b.ts:21:5)", "g (src/a.ts:11:3)"]);
    expect(mapped.frame).toBeUndefined();
  });

  test("a source map that is nonsense changes nothing", () => {
    for (const sourceMap of [
      "",
      "null",
      "{",
      '{"version":3}',
      '{"version":3,"sources":[],"mappings":"!!!!"}',
    ]) {
      const error = thrownError(
        { ...call, script: { ...script, sourceMap } },
        DEFAULT_LIMITS,
        JSON.stringify({
          code: "handler-throws",
          name: "E",
          message: "m",
          stack: "    at f (pawl-script:b.ts:1:2)",
        }),
        "fresh",
      );
      expect(error.at).toBe("bundle.ts:1:2");
    }
  });

  test("a limit says who and how much", () => {
    expect(limitError(call, DEFAULT_LIMITS, "wall-limit").message).toBe(
      "producer of p did not end within 60000 ms",
    );
    expect(limitError(call, DEFAULT_LIMITS, "memory-limit", "killed").message).toBe(
      "producer of p needed more memory than its 64 MB (killed)",
    );
  });

  test("a handler that the manifest does not know has no place, and no crash", () => {
    expect(limitError({ ...call, handler: "gone" }, DEFAULT_LIMITS, "cpu-limit")).not.toHaveProperty("at");
  });
});

describe("the code frame", () => {
  test("first line, last line, one line", () => {
    expect(codeFrame("a\nb\nc", { line: 1, column: 1 })).toBe("> 1 | a\n    | ^\n  2 | b");
    expect(codeFrame("a\nb\nc", { line: 3, column: 2 })).toBe("  1 | a\n  2 | b\n> 3 | c\n    |  ^");
    expect(codeFrame("", { line: 1, column: 1 })).toBe("> 1 | \n    | ^");
  });

  test("line numbers align, tabs and Windows lines keep the caret in its column", () => {
    const source = Array.from({ length: 12 }, (_, i) => `\tline ${i + 1}`).join("\r\n");
    expect(codeFrame(source, { line: 9, column: 2 })).toBe(
      "   7 |  line 7\n   8 |  line 8\n>  9 |  line 9\n     |  ^\n  10 |  line 10",
    );
  });

  test("a line of a megabyte stays short", () => {
    expect(codeFrame("x".repeat(1_000_000), { line: 1, column: 500_000 }).length).toBeLessThan(500);
  });
});
