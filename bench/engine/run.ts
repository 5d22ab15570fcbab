/**
 * `npm run bench:engine [-- --quick]`: whole runs through a host as it is shipped, for one workflow and for a hundred; what
 * ten thousand workflows cost at rest, at a start and per run; and the peers, interleaved, three repeats. Prints the
 * tables, writes RESULTS.md beside this file (not with --quick), and exits with 1 when a limit is missed.
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { holds } from "../measure.ts";
import { compiledConsumer } from "../sandbox/job.ts";
import { type Drained, drain } from "./drain.ts";
import { compiledWorkflow, Ground } from "./ground.ts";
import { latency, layLatency } from "./latency.ts";
import { openWorkflow, sandboxAlone, SLOTS, WARM } from "./peers.ts";
import { claimsOf, type Findings, render, type Round } from "./report.ts";
import { restart, watchIdle } from "./residents.ts";

const QUICK = process.argv.includes("--quick");
const REPEATS = 3;
const HUNDRED = 100;
const SIZE = QUICK
  ? {
      alone: 200,
      each: 12,
      sandboxMs: 600,
      peerRuns: 100,
      latencyRounds: 1,
      growth: [100, 300, 1_000],
      growthRuns: 600,
      idleMs: 4_000,
      pendingEach: 10,
      killAfter: 100,
    }
  : {
      alone: 1_000,
      each: 50,
      sandboxMs: 4_000,
      peerRuns: 600,
      latencyRounds: 5,
      growth: [100, 1_000, 10_000],
      growthRuns: 2_000,
      idleMs: 35_000,
      pendingEach: 10,
      killAfter: 500,
    };
const RESULTS = join(import.meta.dirname, "RESULTS.md");

const progress = (what: string): boolean => process.stderr.write(`${what}\n`);

async function shoot(
  ground: Ground,
  stock: { each: number; among?: number },
  { runs, warm }: { runs: number; warm: number },
): Promise<Drained> {
  const data = await ground.copy(stock.each, stock.among);
  const drained = await drain(data, runs, warm);
  ground.drop(data);
  return drained;
}

/** A hundred of them at work; then every one of them, each run by the next. */
async function grow(ground: Ground): Promise<Round["growth"][number]> {
  const { growthRuns: runs } = SIZE;
  const warm = HUNDRED * WARM;
  const some = { each: Math.ceil((runs + warm) / HUNDRED), among: HUNDRED };
  const everybody = { each: Math.ceil(runs / ground.workflows) };
  return {
    workflows: ground.workflows,
    some: await shoot(ground, some, { runs: runs + warm, warm }),
    everybody: await shoot(ground, everybody, { runs, warm: 0 }),
  };
}

async function main(): Promise<number> {
  const script = await compiledConsumer();
  const made = await compiledWorkflow();
  using one = await Ground.lay(made, 1);
  using stack = new DisposableStack();
  const grounds: Ground[] = [];
  for (const workflows of SIZE.growth) {
    progress(`laying ${workflows} workflows`);
    grounds.push(stack.use(await Ground.lay(made, workflows)));
  }
  const [hundred, most] = [grounds[0] as Ground, grounds.at(-1) as Ground];
  using asking = await layLatency(HUNDRED);
  const found: Findings = { repeats: [], quick: QUICK, size: SIZE };
  for (let repeat = 0; repeat < REPEATS; repeat++) {
    const step = (what: string): boolean => progress(`repeat ${repeat + 1} of ${REPEATS}: ${what}`);
    step("the sandbox alone");
    const { sandboxMs } = SIZE;
    const sandbox = await sandboxAlone(script, { workflows: HUNDRED, clients: SLOTS }, sandboxMs);
    const sandboxInTurn = await sandboxAlone(script, { workflows: HUNDRED, clients: 1 }, sandboxMs / 2);
    const sandboxOne = await sandboxAlone(script, { workflows: 1, clients: SLOTS }, sandboxMs / 2);
    step("100 workflows");
    const runs = SIZE.each * HUNDRED;
    const crowd = await shoot(hundred, { each: SIZE.each }, { runs, warm: WARM * HUNDRED });
    step("one workflow");
    const alone = await shoot(one, { each: SIZE.alone }, { runs: SIZE.alone, warm: SIZE.alone / 10 });
    step("OpenWorkflow");
    const peer = await openWorkflow(HUNDRED, SIZE.peerRuns);
    step("publish to prepare");
    const asked = await latency(asking, SIZE.latencyRounds);
    const growth: Round["growth"] = [];
    for (const ground of grounds) {
      step(`cost per run with ${ground.workflows} workflows`);
      growth.push(await grow(ground));
    }
    step("start and recovery");
    const restarted = await restart(most, SIZE.pendingEach, SIZE.killAfter);
    step("idle");
    const idle = await watchIdle(most, SIZE.idleMs);
    const sandboxes = { sandbox, sandboxInTurn, sandboxOne };
    found.repeats.push({ ...sandboxes, crowd, alone, peer, asked, growth, restarted, idle });
  }
  const claims = claimsOf(found);
  const text = render(found, claims);
  process.stdout.write(text);
  if (!QUICK) writeFileSync(RESULTS, text);
  return claims.every(holds) ? 0 : 1;
}

process.exitCode = await main();
