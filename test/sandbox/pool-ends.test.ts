// How a run ends when it does not end by itself: limits, aborts, dying processes, a closing pool, a dying host.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Limits, SandboxCall, Script } from "../../host/ports/sandbox.ts";
import { openPool, type Pool } from "../../host/sandbox/pool.ts";
import { noAnswers } from "../support/scripts.ts";
import {
  answered,
  asVersion,
  cpuTicks,
  heldAnswers,
  jobCall,
  jobsScript,
  processTree,
  runs,
  said,
  until,
} from "./pool-jobs.ts";

const ORPHANS = fileURLToPath(new URL("./pool-orphans.ts", import.meta.url));
const linux = process.platform === "linux";
let script: Script;
let shared: Pool;
beforeAll(async () => {
  script = await jobsScript();
  shared = openPool();
});
afterAll(async () => {
  await shared[Symbol.asyncDispose]();
});

const fine = async (pool: Pool): Promise<string> =>
  said(await pool.run(jobCall(script, "echo", 1), noAnswers));

describe("a limit ends the run with its own code", () => {
  const cases: [string, Parameters<typeof jobCall>[1], number, Partial<Limits>, string][] = [
    ["CPU time of one section", "spin", 0, { sectionMs: 50 }, "failed cpu-limit"],
    [
      "CPU time of the whole call",
      "askForever",
      0,
      { cpuMs: 60, hostCalls: 1e6, outputBytes: 1e9 },
      "failed cpu-limit",
    ],
    ["a section that cannot be interrupted", "hang", 0, { sectionMs: 50 }, "failed cpu-limit"],
    ["memory", "grow", 0, { sectionMs: 10_000, cpuMs: 10_000, memoryMb: 16 }, "failed memory-limit"],
    ["the last host call that is allowed", "askAll", 5, { hostCalls: 5 }, "done 5"],
    ["one host call too many", "askAll", 6, { hostCalls: 5 }, "failed host-call-limit"],
    ["a host call of too many bytes", "askLong", 2_000, { messageBytes: 1_000 }, "failed value-too-large"],
    ["few characters that are many bytes", "askWide", 600, { messageBytes: 1_000 }, "failed value-too-large"],
    ["too many bytes in all", "askLong", 5_000, { outputBytes: 4_000 }, "failed output-limit"],
  ];
  test.each(cases)("%s", async (name, job, n, limits, outcome) => {
    const call = jobCall(asVersion(script, name), job, n, { limits });
    expect(said(await shared.run(call, answered))).toBe(outcome);
    expect(await fine(shared)).toBe("done 1");
  });

  test("wall time, while an answer is outstanding", async () => {
    const { answer, release } = heldAnswers();
    const call = jobCall(asVersion(script, "wall"), "ask", 0, { limits: { wallMs: 50 } });
    expect(said(await shared.run(call, answer))).toBe("failed wall-limit");
    release();
    expect(await fine(shared)).toBe("done 1");
  });

  test("host calls beyond `hostCallsAtOnce` wait their turn", async () => {
    let [now, most] = [0, 0];
    const counted = async () => {
      most = Math.max(most, ++now);
      await new Promise(setImmediate);
      now--;
      return answered();
    };
    const call = jobCall(script, "askAll", 20, { limits: { hostCallsAtOnce: 3 } });
    expect(said(await shared.run(call, counted))).toBe("done 20");
    expect(most).toBe(3);
  });
});

describe("an abort ends the run", () => {
  const abortable = (job: Parameters<typeof jobCall>[1]): [AbortController, SandboxCall] => {
    const controller = new AbortController();
    return [controller, jobCall(asVersion(script, "aborted"), job, 0, { signal: controller.signal })];
  };

  test("while it waits for an answer", async () => {
    const [controller, call] = abortable("ask");
    const { answer, asked, release } = heldAnswers();
    const result = shared.run(call, answer);
    await asked;
    controller.abort();
    expect(said(await result)).toBe("failed run-aborted");
    release();
    expect(await fine(shared)).toBe("done 1");
  });

  test("while it waits for a child", async () => {
    await using pool = openPool({ maxChildren: 1, childrenPerNamespace: 1, runsPerChild: 1 });
    const { answer, asked, release } = heldAnswers();
    const first = pool.run(jobCall(script, "ask", 3), answer);
    await asked;
    const [controller, call] = abortable("echo");
    const queued = pool.run(call, noAnswers);
    const behind = pool.run(jobCall(script, "echo", 4), noAnswers);
    expect(pool.stats().queued).toBe(2);
    controller.abort();
    expect(said(await queued)).toBe("failed run-aborted");
    expect(pool.stats().queued).toBe(1);
    release();
    expect([said(await first), said(await behind)]).toEqual(["done 3", "done 4"]);
  });

  test("before it starts: the script never runs", async () => {
    const [controller, call] = abortable("ask");
    controller.abort();
    const { loads } = shared.stats();
    call.script = asVersion(script, "aborted before");
    expect(said(await shared.run(call, answered))).toBe("failed run-aborted");
    expect(shared.stats().loads).toBe(loads);
  });
});

describe("a death", () => {
  test("of the isolate gives back the runs of the same version that waited in it", async () => {
    await using pool = openPool({ childrenPerNamespace: 1 });
    const { answer, asked, release } = heldAnswers();
    const waiting = pool.run(jobCall(script, "ask"), answer);
    await asked;
    const spinning = await pool.run(jobCall(script, "spin", 0, { limits: { sectionMs: 50 } }), noAnswers);
    expect(said(spinning)).toBe("failed cpu-limit");
    release();
    expect(said(await waiting)).toBe("lost sandbox-lost");
    expect(await fine(pool)).toBe("done 1");
  });

  test("of the process gives back the runs of others and blames the one that was computing (K2)", async () => {
    await using pool = openPool({ childrenPerNamespace: 1 });
    const { answer, asked } = heldAnswers();
    const waiting = pool.run(jobCall(script, "ask"), answer);
    await asked;
    const hanging = pool.run(
      jobCall(asVersion(script, "hangs"), "hang", 0, { limits: { sectionMs: 50 } }),
      noAnswers,
    );
    expect([said(await hanging), said(await waiting)]).toEqual(["failed cpu-limit", "lost sandbox-lost"]);
    expect(await fine(pool)).toBe("done 1");
  });

  test.runIf(linux).each(["the outermost", "the innermost"])(
    "by SIGKILL from outside, at %s process, is nobody's fault",
    async (which) => {
      await using pool = openPool({ childrenPerNamespace: 1 });
      for (let time = 0; time < 2; time++) {
        const held = heldAnswers();
        const limits = { sectionMs: 20_000, cpuMs: 20_000 };
        const result = pool.run(jobCall(script, "askThenSpin", 0, { limits }), held.answer);
        await held.asked;
        const { pids, namespaces } = pool.stats();
        const tree = processTree(pids[namespaces.indexOf(script.namespace)] ?? 0);
        const innermost = tree.at(-1) ?? 0;
        const ticks = cpuTicks(innermost);
        held.release();
        await until(() => cpuTicks(innermost) > ticks + 2);
        process.kill(which === "the outermost" ? (tree[0] ?? 0) : innermost, "SIGKILL");
        expect(said(await result)).toBe("lost sandbox-lost");
        expect(await fine(pool)).toBe("done 1");
      }
    },
  );
});

test("closing the pool ends what runs and what waits, as lost, and leaves no process", async () => {
  const pool = openPool({ maxChildren: 2, runsPerChild: 2 });
  await fine(pool);
  const held = heldAnswers();
  const jobs = ["ask", "spin", "ask", "echo", "ask", "echo"] as const;
  const results = jobs.map((job) => pool.run(jobCall(script, job), held.answer));
  await held.asked;
  const pids = pool.stats().pids.flatMap(processTree);
  await pool[Symbol.asyncDispose]();
  expect(new Set((await Promise.all(results)).map(said))).toEqual(new Set(["lost sandbox-closed"]));
  expect(said(await pool.run(jobCall(script, "echo"), noAnswers))).toBe("lost sandbox-closed");
  expect(pool.stats().children).toBe(0);
  await until(() => !pids.some(runs));
});

describe.runIf(linux)("kill -9 of the host leaves no process behind", () => {
  test.each([1, 2, 3])("at level %i at most", async (level) => {
    const host = spawn(process.execPath, [ORPHANS, String(level)], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const [line] = (await once(createInterface({ input: host.stdout }), "line")) as [string];
    const pids = (JSON.parse(line) as number[]).flatMap(processTree);
    expect(pids.length).toBeGreaterThanOrEqual(2);
    expect(pids.every(runs)).toBe(true);
    host.kill("SIGKILL");
    await until(() => !pids.some(runs));
  });
});
