import { readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { fileURLToPath } from "node:url";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ERRORS } from "../../host/core/errors.ts";
import { codeFrame } from "../../host/sandbox/blame.ts";
import type { Problem, Upload } from "../../host/ports/sandbox.ts";
import { compileScript } from "../../host/sandbox/compile.ts";
import { NOW_MS } from "../support/scripts.ts";
import { accepted, MARK, refused, warned } from "./uploads.ts";

const proof = process.env["PAWL_PROOF"] === "1";
const upload = (source: string, rest: Partial<Upload> = {}) =>
  compileScript({ source, language: "ts", file: "script.ts", nowMs: NOW_MS, ...rest });

function unmarked(marked: string): { source: string; line: number; column: number } {
  const before = marked.slice(0, marked.indexOf(MARK)).split(/\r\n|\n/);
  return {
    source: marked.replace(MARK, ""),
    line: before.length,
    column: (before.at(-1) ?? "").length + 1,
  };
}

const shown = (problems: Problem[]) =>
  problems.map(({ code, hint, location }) => `${code} ${location.line}:${location.column} ${hint}`);

/** The runner cuts a title that it takes from an object. */
const named = <T extends { title: string }>(table: T[]) => table.map((one): [string, T] => [one.title, one]);

test("the table is one of different mistakes, each marked once", () => {
  const all = [...refused, ...warned];
  expect(refused.length).toBeGreaterThanOrEqual(40);
  expect(new Set(all.map((one) => one.title)).size).toBe(all.length);
  expect(all.filter((one) => one.source.split(MARK).length !== 2)).toEqual([]);
});

describe("refused, with one problem at its place", () => {
  test.each(named(refused))("%s", async (_, { source: marked, code, says, hint, upload: rest }) => {
    const { source, line, column } = unmarked(marked);
    const { ok, problems } = await upload(source, rest);
    expect(ok).toBe(false);
    expect(shown(problems)).toEqual([`${code} ${line}:${column} ${hint}`]);
    expect(problems[0]?.message).toContain(says);
    expect(problems[0]?.severity).toBe("error");
  });
});

describe("accepted, with one warning at its place", () => {
  test.each(named(warned))("%s", async (_, { source: marked, code, says, hint }) => {
    const { source, line, column } = unmarked(marked);
    const { ok, problems } = await upload(source);
    expect(ok).toBe(true);
    expect(shown(problems)).toEqual([`${code} ${line}:${column} ${hint}`]);
    expect(problems[0]?.message).toContain(says);
    expect(problems[0]?.severity).toBe("warning");
  });
});

describe("accepted without a word", () => {
  test.each(named(accepted))("%s", async (_, { source, upload: rest }) => {
    const { ok, problems } = await upload(source, rest);
    expect(shown(problems)).toEqual([]);
    expect(ok).toBe(true);
  });
});

test("several mistakes are all reported, each at its own place", async () => {
  const { problems } = await upload(`import { consumer, producer, topic, workflow } from "pawl";
export default workflow({
  name: "two words",
  topics: { order: topic() },
  producers: { p: producer({ schedule: { interval: "soon" }, publishes: ["ordr"], handler() {} }) },
  consumers: { c: consumer({ subscribes: ["order"], prepare() {} }) },
});
`);
  expect(problems.map((one) => [one.code, one.location.line, one.location.column])).toEqual([
    ["bad-name", 3, 3],
    ["bad-interval", 5, 42],
    ["undeclared-topic", 5, 74],
  ]);
});

test("every code that reading an upload can name is in the table", () => {
  const met = new Set(refused.map((one) => one.code));
  const named = ["compile", "compile-child", "module", "declaration", "check"].flatMap((file) => {
    const text = readFileSync(new URL(`../../host/sandbox/${file}.ts`, import.meta.url), "utf8");
    return [...text.matchAll(/"([a-z]+(?:-[a-z]+)+)"/g)].map(([, word]) => word as string);
  });
  const codes = new Set(named.filter((word) => Object.hasOwn(ERRORS, word)));
  expect(codes.size).toBeGreaterThanOrEqual(25);
  expect([...codes].filter((code) => !met.has(code))).toEqual([]);
});

test("the same content has the same hash, and another content another", async () => {
  const source = accepted[0]?.source ?? "";
  const hashes = await Promise.all([
    upload(source),
    upload(source, { nowMs: NOW_MS + 86_400_000, file: "other.ts" }),
    upload(`${source}\n`),
  ]);
  const [first, second, third] = hashes.map((one) => (one.ok ? one.script.hash : undefined));
  expect(first).toMatch(/^[0-9a-f]{64}$/);
  expect(second).toBe(first);
  expect(third).not.toBe(first);
});

const VALID = `// A script with a little of everything.
import { consumer, producer, topic, workflow } from "pawl";

interface Order { id: string; total: number }
const rate = 1.5;
const label = (order: Order): string => \`Order \${order.id} (\${(order.total * rate).toFixed(2)})\`;

export default workflow({
  name: "orders",
  description: "Books orders",
  connections: { shop: "http", hook: "webhook" },
  params: { region: { type: "string", default: "eu" } },
  topics: { "order.new": topic<Order>({ schema: { type: "object" } }), booked: topic({ output: true }) },
  hooks: { orders: { alias: "hook", topic: "order.new", messageId: "$.id" } },
  producers: {
    poll: producer({
      schedule: { cron: "0 9 * * 1-5", timezone: "Europe/Zurich" },
      publishes: ["order.new"],
      async handler(ctx, state: { after?: string } | undefined) {
        for (const order of [] as Order[]) ctx.publish("order.new", { messageId: order.id, payload: order });
        return { after: state?.after ?? "0" };
      },
    }),
  },
  consumers: {
    book: consumer({
      subscribes: ["order.new"],
      publishes: ["booked"],
      async prepare(ctx) {
        const [event] = await ctx.peek("order.new", { limit: 1 });
        if (!event) return {};
        return { reservations: [{ topic: "order.new", ids: [event.messageId] }], ui: { title: label(event.payload) } };
      },
      mutate(ctx) { ctx.shop.post("/entries", { body: { at: /a+b/.test("aab") } }); },
    }),
  },
});
`;

const SNIPPETS = [
  ...Array.from("(){}[]<>;:,.'\"`\\/@#$%^&*=+-|!?~\n\t\0\r"),
  "await ",
  "async ",
  "import ",
  "export default ",
  "enum A {}",
  "while(1);",
  "throw 1;",
  "/*",
  "*/",
  "//",
  "`${",
  "=>",
  "...",
  "<!--",
  "-->",
  "__proto__:",
  "null",
  "-1",
  "1e999",
  "10n",
  "class ",
  "function ",
  "return ",
  "\\u{",
  "😀",
  "\ud800",
  "\ufeff",
  "\u2028",
  "pawl",
  '"5s"',
  "as const",
  "satisfies X",
  "<T>",
  "get ",
  "static {",
  "yield ",
  "super",
];

type Mutation = { kind: "delete" | "insert" | "swap"; at: number; length: number; text: string };

function mutate(source: string, mutations: Mutation[]): string {
  let text = source;
  for (const { kind, at, length, text: snippet } of mutations) {
    const from = Math.floor(at * text.length);
    const to = Math.min(text.length, from + length);
    const far = Math.min(text.length, to + length);
    if (kind === "delete") text = text.slice(0, from) + text.slice(to);
    else if (kind === "insert") text = text.slice(0, from) + snippet + text.slice(from);
    else text = text.slice(0, from) + text.slice(to, far) + text.slice(from, to) + text.slice(far);
  }
  return text;
}

const root = fileURLToPath(new URL("../..", import.meta.url));
const hostPaths = [
  root,
  tmpdir() + "/",
  "node_modules",
  "compile-child",
  "host/sandbox",
  "node:internal",
  "file:///",
];

function expectUsable(source: string, problems: Problem[]): void {
  const lines = source.split("\n");
  for (const one of problems) {
    expect(one.code).toMatch(/^[a-z]+(-[a-z]+)+$/);
    expect(one.hint).toMatch(/\S{3}.*[.?]$/);
    expect(one.message.trim()).not.toBe("");
    expect(one.location.line).toBeGreaterThanOrEqual(1);
    expect(one.location.line).toBeLessThanOrEqual(
      lines.length + (source.match(/\r(?!\n)|[\u2028\u2029]/g)?.length ?? 0),
    );
    expect(one.location.column).toBeGreaterThanOrEqual(1);
    expect(one.location.column).toBeLessThanOrEqual(source.length + 1);
    codeFrame(source, one.location);
    const said = `${one.message}\n${one.hint}`;
    for (const path of hostPaths) expect(said).not.toContain(path);
  }
}

test(
  "a mutated script is accepted or refused with usable problems; nothing crashes, hangs or tells of the host",
  async () => {
    const mutation = fc.record({
      kind: fc.constantFrom("delete", "insert", "swap"),
      at: fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true }),
      length: fc.nat({ max: 12 }),
      text: fc.oneof(fc.constantFrom(...SNIPPETS), fc.string({ maxLength: 6, unit: "binary" })),
    }) as fc.Arbitrary<Mutation>;
    const sources = fc.array(mutation, { minLength: 1, maxLength: 4 }).map((all) => mutate(VALID, all));
    expect((await upload(VALID)).problems).toEqual([]);
    let refusals = 0;
    await fc.assert(
      fc.asyncProperty(
        fc.array(sources, { minLength: 2, maxLength: 2 }),
        fc.boolean(),
        async (pair, plain) => {
          await Promise.all(
            pair.map(async (source) => {
              const { ok, problems } = await upload(source, { language: plain ? "js" : "ts" });
              if (!ok) refusals++;
              expect(ok || problems.some((one) => one.severity === "error")).toBe(true);
              expectUsable(source, problems);
            }),
          );
        },
      ),
      { numRuns: proof ? 2_000 : 60 },
    );
    expect(refusals).toBeGreaterThan(30);
  },
  proof ? 3_600_000 : 180_000,
);
