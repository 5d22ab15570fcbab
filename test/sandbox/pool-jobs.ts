/** One script for the tests of the pool: its `job` param says what a run does. And a look at processes from outside. */
import { readdirSync, readFileSync } from "node:fs";
import type { HostAnswer, HostCall, SandboxCall, SandboxResult, Script } from "../../host/ports/sandbox.ts";
import { callFor, compiled, NOW_MS } from "../support/scripts.ts";

type Job =
  | "echo"
  | "ask"
  | "askAll"
  | "askLong"
  | "askWide"
  | "askThenSpin"
  | "askForever"
  | "spin"
  | "hang"
  | "grow";

const SOURCE = `import { producer, workflow } from "pawl";

const jobs = {
  echo: () => {},
  ask: (ctx) => ctx.web.get("/"),
  askAll: (ctx) => Promise.all(Array.from({ length: ctx.params.n }, () => ctx.web.get("/"))),
  askLong: (ctx) => ctx.web.get("/".padEnd(ctx.params.n, "x")),
  askWide: (ctx) => ctx.web.get("/".padEnd(ctx.params.n, "\u00fc")),
  async askThenSpin(ctx) {
    await ctx.web.get("/");
    for (;;);
  },
  async askForever(ctx) {
    for (let sum = 0; ; ) {
      await ctx.web.get("/");
      for (let i = 0; i < 1_000_000; i++) sum += i;
    }
  },
  spin() {
    for (;;);
  },
  hang() {
    const sparse = [];
    sparse[4_294_967_294] = 1;
    sparse.indexOf(2);
  },
  grow() {
    const kept = [];
    for (;;) kept.push(new Array(10_000).fill("x"));
  },
};

export default workflow({
  name: "jobs",
  connections: { web: "http" },
  params: { job: { type: "string" }, n: { type: "number", default: 0 } },
  producers: {
    go: producer({
      schedule: { interval: "1h" },
      async handler(ctx) {
        await jobs[ctx.params.job](ctx);
        return { n: ctx.params.n };
      },
    }),
  },
});
`;

export const jobsScript = (): Promise<Script> => compiled(SOURCE, { language: "js", file: "jobs.js" });

export function jobCall(script: Script, job: Job, n = 0, overrides: Partial<SandboxCall> = {}): SandboxCall {
  return callFor(script, "producer", "go", { params: JSON.stringify({ job, n }), ...overrides });
}

/** The same script as another workflow, or of another version. */
export const asWorkflow = (script: Script, name: string): Script => ({ ...script, workflow: name });
export const asVersion = (script: Script, name: string): Script => ({ ...script, hash: script.hash + name });

export const answered = async (): Promise<HostAnswer> => ({ ok: true, value: "{}", nowMs: NOW_MS });

/** Answers nothing until told to, and says when it was asked. */
export function heldAnswers(): {
  answer: (call: HostCall) => Promise<HostAnswer>;
  asked: Promise<void>;
  release: () => void;
} {
  const asked = Promise.withResolvers<void>();
  const held = Promise.withResolvers<HostAnswer>();
  return {
    answer: () => {
      asked.resolve();
      return held.promise;
    },
    asked: asked.promise,
    release: () => held.resolve({ ok: true, value: "{}", nowMs: NOW_MS }),
  };
}

/** `done` with its number, or the status and code. */
export function said(result: SandboxResult): string {
  if (result.status !== "done") return `${result.status} ${result.error.code}`;
  return `done ${(JSON.parse(result.state ?? "{}") as { n: number }).n}`;
}

/** A process and everything it started, outermost first. */
export function processTree(pid: number): number[] {
  try {
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim();
    const below = children === "" ? [] : children.split(" ").map(Number);
    return [pid, ...below.flatMap(processTree)];
  } catch {
    return [];
  }
}

/** A killed process that its parent has not yet collected is gone, too. */
export function runs(pid: number): boolean {
  try {
    return !/^\d+ \(.*\) [ZX]/s.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}

/** User CPU time, in clock ticks. */
export function cpuTicks(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
  return Number(fields[11]);
}

export function openFiles(pid: number | "self"): number {
  return readdirSync(`/proc/${pid}/fd`).length;
}

export async function until(holds: () => boolean, deadlineMs = 20_000): Promise<void> {
  const endMs = performance.now() + deadlineMs;
  while (!holds()) {
    if (performance.now() > endMs) throw new Error(`not within ${deadlineMs} ms: ${holds.toString()}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
