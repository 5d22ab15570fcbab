import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { HostAnswer, HostCall, SandboxResult, Script } from "../../host/ports/sandbox.ts";
import { openPool, type Pool, type PoolOptions } from "../../host/sandbox/pool.ts";
import { callFor, compiled, NOW_MS } from "../support/scripts.ts";
import { ATTEMPTS, leakScript } from "./leaks.ts";

const RUNS = 3;
const oneChild = (options: PoolOptions = {}): Pool =>
  openPool({ childrenPerNamespace: 1, maxChildren: 1, runsPerChild: 16, ...options });

let script: Script;
beforeAll(async () => {
  script = await compiled(leakScript(ATTEMPTS), { language: "js", file: "leaks.js" });
});

/** Slow answers come when the run that asked has ended and the next one is over. */
class Host {
  #held: (() => void)[] = [];
  readonly answer = ({ args }: HostCall): Promise<HostAnswer> => {
    const given: HostAnswer = { ok: true, value: '{"status":200,"headers":{},"body":null}', nowMs: NOW_MS };
    if (!args.includes("/slow")) return Promise.resolve(given);
    return new Promise((resolve) => this.#held.push(() => resolve(given)));
  };
  release(): void {
    for (const give of this.#held.splice(0)) give();
  }
}

/** Three runs of one attempt in an isolate of its own, all in one child. */
async function tries(pool: Pool, index: number, scope: "fresh" | "frozen"): Promise<SandboxResult[]> {
  const own = { ...script, hash: `${script.hash}-${index}` };
  const host = new Host();
  const results: SandboxResult[] = [];
  for (let run = 0; run < RUNS; run++) {
    const call = callFor(own, "producer", `a${index}`, {
      scope,
      state: '{"list":[1,2,3]}',
      params: '{"n":1}',
    });
    results.push(await pool.run(call, host.answer));
    host.release();
  }
  return results;
}

const shows = (result: SandboxResult): string =>
  JSON.stringify(result.logs.map(({ level, message, data }) => [level, message, data]));
const leaked = (results: SandboxResult[]): boolean => new Set(results.map(shows)).size > 1;
const verdict = (result: SandboxResult): string =>
  result.status === "done"
    ? "done"
    : result.error.code === "frozen-builtin"
      ? "frozen-builtin"
      : `${result.error.code}: ${result.error.message}`;

it("the suite makes at least 60 different attempts", () => {
  expect(new Set(ATTEMPTS.map(({ name }) => name)).size).toBe(ATTEMPTS.length);
  expect(ATTEMPTS.length).toBeGreaterThanOrEqual(60);
});

describe.each(["fresh", "frozen"] as const)("in the %s scope nothing passes from run to run", (scope) => {
  let pool: Pool;
  beforeAll(() => {
    pool = oneChild();
  });
  afterAll(() => pool[Symbol.asyncDispose]());

  it.each(ATTEMPTS.map(({ name }, index) => ({ name, index })))("$name", async ({ index }) => {
    const results = await tries(pool, index, scope);
    expect(results.map((result) => result.usage.scope)).toEqual(Array(RUNS).fill(scope));
    const allowed = scope === "frozen" ? ["done", "frozen-builtin"] : ["done"];
    for (const result of results) {
      expect(shows(result)).toContain('"sees"');
      expect(allowed).toContain(verdict(result));
    }
    expect(results.map(shows)).toEqual(Array(RUNS).fill(shows(results[0] as SandboxResult)));
  });
});

describe("a rejection that nobody handles", () => {
  const SOURCE = `import { workflow, producer } from "pawl";
export default workflow({ name: "rejects", topics: {}, producers: { once: producer({
  schedule: { interval: "1h" }, publishes: [],
  handler(ctx) { if (ctx.run.attempt === 1) (async () => { throw new RangeError("left behind"); })(); return ctx.run.attempt; },
}) } });`;

  it.each(["fresh", "frozen"] as const)(
    "ends its own run, and not the next, in the %s scope",
    async (scope) => {
      const rejects = await compiled(SOURCE, { language: "js", file: "rejects.js" });
      await using pool = oneChild();
      const run = (attempt: number) =>
        pool.run(
          callFor(rejects, "producer", "once", { scope, run: { id: "run_1", attempt } }),
          new Host().answer,
        );
      const results = [await run(1), await run(2), await run(3)];
      expect(results.map(verdict)).toEqual([
        "handler-throws: RangeError: left behind (in a promise that nobody awaited)",
        "done",
        "done",
      ]);
      expect(results.map((result) => result.usage.scope)).toEqual([scope, scope, scope]);
    },
  );
});

describe("two runs of one version alive at once", () => {
  const SOURCE = `import { workflow, producer } from "pawl";
export default workflow({ name: "both", connections: { shop: "http" }, topics: {}, producers: { wait: producer({
  schedule: { interval: "1h" }, publishes: [],
  async handler(ctx) {
    try { globalThis.mark = ctx.run.id; } catch {}
    console.log("before", ctx.run.id);
    await ctx.shop.get("/");
    console.log("after", ctx.run.id);
    return [globalThis.mark ?? ctx.run.id, crypto.randomUUID()];
  },
}) } });`;

  it.each(["fresh", "frozen"] as const)("share nothing in the %s scope", async (scope) => {
    const both = await compiled(SOURCE, { language: "js", file: "both.js" });
    await using pool = oneChild();
    let asked = 0;
    const together = Promise.withResolvers<void>();
    const answer = async (): Promise<HostAnswer> => {
      if (++asked === 2) together.resolve();
      await together.promise;
      return { ok: true, value: "null", nowMs: NOW_MS + 1 };
    };
    const start = (id: string) =>
      pool.run(callFor(both, "producer", "wait", { scope, run: { id, attempt: 1 }, seed: id }), answer);
    const [one, two] = await Promise.all([start("run_1"), start("run_2")]);
    expect(one.logs.map(({ message, data }) => [message, data])).toEqual([
      ["before", '"run_1"'],
      ["after", '"run_1"'],
    ]);
    expect(two.logs.map(({ data }) => data)).toEqual(['"run_2"', '"run_2"']);
    const states = [one, two].map((result) => JSON.parse((result.status === "done" && result.state) || "[]"));
    expect(states.map(([mark]) => mark)).toEqual(["run_1", "run_2"]);
    expect(states[0][1]).not.toBe(states[1][1]);
    expect([one.usage.scope, two.usage.scope]).toEqual([scope, "fresh"]);
  });
});

describe("on a reused scope", () => {
  it("at least 45 of the same attempts succeed, so the suite can see a leak", async () => {
    const pool = oneChild({ unsafe: { reuseScope: true } });
    const seen: string[] = [];
    for (const [index, { name }] of ATTEMPTS.entries())
      if (leaked(await tries(pool, index, "frozen"))) seen.push(name);
    await pool[Symbol.asyncDispose]();
    expect(seen.length).toBeGreaterThanOrEqual(45);
  });
});
