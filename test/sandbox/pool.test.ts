// Which process runs what: affinity, turns, isolates kept, and replacement of worn children.
import { beforeAll, describe, expect, test } from "vitest";
import type { Script } from "../../host/ports/sandbox.ts";
import { openPool, type Pool } from "../../host/sandbox/pool.ts";
import { noAnswers } from "../support/scripts.ts";
import { answered, asVersion, asWorkflow, jobCall, jobsScript, openFiles, said } from "./pool-jobs.ts";

let script: Script;
beforeAll(async () => {
  script = await jobsScript();
});

const echo = async (pool: Pool, of: Script, n = 0): Promise<string> =>
  said(await pool.run(jobCall(of, "echo", n), noAnswers));
const tenants = (): Script[] =>
  Array.from({ length: 10 }, (_, i) => ({ ...script, namespace: `space-${i}` }));

describe("processes", () => {
  test("many runs of one namespace share its process and its isolate", async () => {
    await using pool = openPool();
    await echo(pool, script);
    const { spawned, pids } = pool.stats();
    for (let n = 0; n < 50; n++) expect(await echo(pool, script, n)).toBe(`done ${n}`);
    expect(pool.stats()).toMatchObject({ spawned: Math.max(spawned, 2), isolates: 1, loads: 1 });
    expect(pool.stats().pids).toContain(pids[0]);
  });

  test("ten namespaces taking turns get one process each, and start none after that", async () => {
    await using pool = openPool({ maxChildren: 10 });
    for (const one of tenants()) await echo(pool, one);
    const { spawned } = pool.stats();
    expect(spawned).toBeLessThanOrEqual(11);
    for (let turn = 0; turn < 5; turn++)
      for (const one of tenants()) expect(await echo(pool, one, turn)).toBe(`done ${turn}`);
    expect(pool.stats().spawned).toBeLessThanOrEqual(11);
  });

  test("a process never serves a second namespace, even when namespaces outnumber processes (S1)", async () => {
    await using pool = openPool({ maxChildren: 2 });
    const servedBy = new Map<number, Set<string>>();
    let most = 0;
    const look = () => {
      const { pids, namespaces } = pool.stats();
      most = Math.max(most, namespaces.filter((name) => name !== undefined).length);
      for (const [i, pid] of pids.entries()) {
        const name = namespaces[i];
        if (name !== undefined) servedBy.set(pid, (servedBy.get(pid) ?? new Set()).add(name));
      }
    };
    const turn = async (one: Script, n: number) => {
      expect(await echo(pool, one, n)).toBe(`done ${n}`);
      look();
    };
    for (let round = 0; round < 2; round++)
      await Promise.all(
        tenants()
          .slice(0, 5)
          .map((one) => turn(one, round)),
      );
    expect(servedBy.size).toBeGreaterThanOrEqual(5);
    for (const names of servedBy.values()) expect(names.size).toBe(1);
    expect(most).toBeLessThanOrEqual(4); // two, and two that are just ending
  });

  test("a namespace that floods the only process does not starve another (S2)", async () => {
    await using pool = openPool({ maxChildren: 1 });
    const flood = 3_000;
    let flooded = 0;
    const all = Array.from({ length: flood }, async (_, n) => {
      const result = await echo(pool, { ...script, namespace: "loud" }, n);
      flooded++;
      return result;
    });
    expect(await echo(pool, { ...script, namespace: "quiet" }, 7)).toBe("done 7");
    expect(flooded).toBeLessThan(flood);
    expect(await Promise.all(all)).toEqual(Array.from({ length: flood }, (_, n) => `done ${n}`));
    expect(pool.stats().spawned).toBeLessThan(flood / 50);
  });

  test.each(["fresh", "frozen"] as const)(
    "200 runs at once, scope %s, each get their own result",
    async (scope) => {
      await using pool = openPool();
      const results = await Promise.all(
        Array.from({ length: 200 }, (_, n) => pool.run(jobCall(script, "ask", n, { scope }), answered)),
      );
      expect(results.map(said)).toEqual(Array.from({ length: 200 }, (_, n) => `done ${n}`));
      expect(pool.stats().queued).toBe(0);
    },
  );
});

describe("isolates", () => {
  test("a hundred active workflows keep theirs", async () => {
    await using pool = openPool();
    const workflows = Array.from({ length: 100 }, (_, i) => asWorkflow(script, `workflow-${i}`));
    for (let round = 0; round < 5; round++)
      for (const one of workflows) expect(await echo(pool, one, round)).toBe(`done ${round}`);
    expect(pool.stats()).toMatchObject({ loads: 100, isolates: 100 });
  });

  test("beyond the limit the one unused for longest goes, never one with a live run", async () => {
    await using pool = openPool({ isolatesPerChild: 4, childrenPerNamespace: 1 });
    const release = Promise.withResolvers<void>();
    const asked = Promise.withResolvers<void>();
    const waiting = pool.run(jobCall(asWorkflow(script, "waiting"), "ask", 1), async () => {
      asked.resolve();
      await release.promise;
      return answered();
    });
    await asked.promise;
    for (let i = 0; i < 12; i++) expect(await echo(pool, asWorkflow(script, `w-${i}`), i)).toBe(`done ${i}`);
    release.resolve();
    expect(said(await waiting)).toBe("done 1");
    const { loads } = pool.stats();
    expect(await echo(pool, asWorkflow(script, "w-11"))).toBe("done 0");
    expect(pool.stats().loads).toBe(loads);
    expect(await echo(pool, asWorkflow(script, "w-0"))).toBe("done 0");
    expect(pool.stats().loads).toBe(loads + 1);
  });
});

describe("a worn child is replaced between runs", () => {
  test.runIf(process.platform === "linux")("and leaves no file open in the host", async () => {
    await using pool = openPool({ childrenPerNamespace: 1, recycleRuns: 1 });
    await echo(pool, script);
    const before = openFiles("self");
    for (let n = 0; n < 20; n++) await echo(pool, script);
    expect(openFiles("self")).toBeLessThan(before + 10); // some for those that are just starting and ending
  });

  test.each([
    ["use", { recycleRuns: 10 }, 3],
    ["age", { recycleMs: 1 }, 20],
    ["memory", { recycleRssMb: 16 }, 20],
  ])("by %s", async (_, options, replaced) => {
    await using pool = openPool({ childrenPerNamespace: 1, ...options });
    for (let n = 0; n < 30; n++) expect(await echo(pool, script, n)).toBe(`done ${n}`);
    expect(pool.stats().spawned).toBeGreaterThanOrEqual(replaced);
    expect(pool.stats().children).toBeLessThanOrEqual(3);
  });

  test("and under a load that never pauses, at no run's cost", async () => {
    await using pool = openPool({ childrenPerNamespace: 1, recycleRuns: 50 });
    let n = 0;
    const client = async (): Promise<string[]> => {
      const results: string[] = [];
      while (n < 400) {
        n++;
        results.push(said(await pool.run(jobCall(script, "ask"), answered)));
      }
      return results;
    };
    const results = (await Promise.all(Array.from({ length: 8 }, client))).flat();
    expect(new Set(results)).toEqual(new Set(["done 0"]));
    expect(pool.stats().spawned).toBeGreaterThanOrEqual(5);
  });
});

test("the third death ends a version's runs unstarted, while another version runs on (S3)", async () => {
  await using pool = openPool();
  const limits = { sectionMs: 50 };
  const deadly = asVersion(script, "deadly");
  for (let death = 0; death < 3; death++)
    expect(said(await pool.run(jobCall(deadly, "hang", 0, { limits }), noAnswers))).toBe("failed cpu-limit");
  const { spawned } = pool.stats();
  expect(await echo(pool, deadly)).toBe("failed sandbox-death-budget");
  expect(pool.stats().spawned).toBe(spawned);
  expect(await echo(pool, asVersion(script, "mended"), 4)).toBe("done 4");
});
