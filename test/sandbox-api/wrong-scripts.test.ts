import { readFile } from "node:fs/promises";
import { beforeAll, describe, expect, test } from "vitest";
import { compileWithBoth, type Findings } from "./compilers.ts";
import { mistakes, scriptWith } from "./wrong-scripts.ts";

const cases = mistakes.map((mistake, i) => ({
  ...mistake,
  wrongFile: `wrong-${i}.ts`,
  rightFile: `right-${i}.ts`,
  wrongScript: scriptWith(mistake.place, mistake.wrong),
  rightScript: scriptWith(mistake.place, mistake.right),
}));

const merging = `
import { producer, workflow } from "pawl";
declare module "pawl" {
  interface Connectors { crm: { read: { find(q: string): Promise<{ id: string }[]> }; mutation: { add(p: { id: string }): void }; result: { n: number } } }
}
export default workflow({
  name: "merged",
  connections: { crm: "crm" },
  producers: { p: producer({ schedule: { interval: "1m" }, async handler(ctx) {
    const found: { id: string }[] = await ctx.crm.find("x");
    ctx.log.info("n", found);
    ctx.crm.add({ id: "1" }); // HERE
  } }) },
});
`;

// A workflow that leaves out connections, topics and params must not end up with a ctx on which everything goes.
const bare = `
import { producer, workflow } from "pawl";
export default workflow({ name: "bare", producers: { p: producer({ schedule: { interval: "1m" }, handler(ctx) {
  ctx.log.info(ctx.run.id);
  ctx.shop; // HERE
  ctx.params.x; // HERE
  ctx.publish("a", { messageId: "1", payload: 1 }); // HERE
} }) } });
`;

// Errors about a returned value stand at the method's name.
const returns = `
import { consumer, producer, topic, workflow } from "pawl";
export default workflow({
  name: "returns",
  topics: { a: topic<{ id: string }>(), b: topic<{ id: string }>({ output: true }) },
  producers: { p: producer({ schedule: { interval: "1m" },
    handler(ctx, state: { cursor?: string } | undefined) { // HERE
      ctx.log.info("s", state);
      return { cursor: 1 };
    } }) },
  consumers: {
    foreign: consumer({ subscribes: ["a"],
      prepare() { // HERE
        return { reservations: [{ topic: "b", ids: ["1"] }] };
      } }),
    state: consumer({ subscribes: ["a"],
      prepare(_ctx, state: { n: number } | undefined) { return { data: state?.n ?? 0 }; },
      next() { // HERE
        return { n: "1" };
      } }),
    fine: consumer({ subscribes: ["a"],
      prepare(_ctx, state: { n?: number } | undefined) { return { data: state?.n, wakeAt: "2026-01-01T00:00:00Z" }; },
      next(_ctx, prepared) { return { n: prepared.data }; } }),
  },
});
`;

const marked = (source: string) =>
  source.split("\n").flatMap((text, i) => (text.includes("// HERE") ? [i + 1] : []));
const linesOf = (findings: Findings, file: string) =>
  [...new Set((findings.get(file) ?? []).map((f) => f.line))].toSorted((a, b) => a - b);

let compiled: Record<"TypeScript 6" | "TypeScript 7", Findings>;
beforeAll(async () => {
  const sources = new Map([
    ["example.ts", await readFile(new URL("orders-to-ledger.ts.txt", import.meta.url), "utf8")],
    ["merging.ts", merging],
    ["bare.ts", bare],
    ["returns.ts", returns],
  ]);
  for (const c of cases)
    sources.set(c.wrongFile, c.wrongScript.source).set(c.rightFile, c.rightScript.source);
  const { v6, v7 } = await compileWithBoth(sources);
  compiled = { "TypeScript 6": v6, "TypeScript 7": v7 };
}, 120_000);

describe.each(["TypeScript 6", "TypeScript 7"] as const)("%s", (compiler) => {
  test("the example of the documentation compiles as it stands", () => {
    expect(compiled[compiler].get("example.ts") ?? []).toEqual([]);
  });

  test("no error belongs to the library or to no file", () => {
    const files = [...compiled[compiler].keys()].filter(
      (name) => !/^(wrong-\d+|merging|bare|returns)\.ts$/.test(name),
    );
    expect(files.map((file) => [file, compiled[compiler].get(file)])).toEqual([]);
  });

  test.each(cases)("$title is an error on its line", ({ wrongFile, wrongScript, cascades }) => {
    const lines = linesOf(compiled[compiler], wrongFile);
    expect(cascades ? lines.slice(0, 1) : lines).toEqual([wrongScript.line]);
  });

  test.each(cases)("$title, repaired, is none", ({ rightFile }) => {
    expect(compiled[compiler].get(rightFile) ?? []).toEqual([]);
  });

  test("a script can add a connector's types by declaration merging", () => {
    expect(linesOf(compiled[compiler], "merging.ts")).toEqual(marked(merging));
  });

  test("a workflow without connections, topics and params has a ctx without them", () => {
    expect(linesOf(compiled[compiler], "bare.ts")).toEqual(marked(bare));
  });

  test("a returned state or reservation that does not fit is an error", () => {
    expect(linesOf(compiled[compiler], "returns.ts")).toEqual(marked(returns));
  });
});
