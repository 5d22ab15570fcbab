/**
 * `npm run bench:store [-- --quick]`: whole runs through the store, for one workflow and for a hundred, and the ways to
 * do without it, interleaved in one process, three repeats. Prints the tables, writes RESULTS.md beside this file (not
 * with --quick), and exits with 1 when a limit is missed.
 */
import { fdatasync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { monitorEventLoopDelay } from "node:perf_hooks";
import type { GroupOptions } from "../../host/store/group.ts";
import { holds } from "../measure.ts";
import { allRuns, Ground } from "./job.ts";
import { naive, plainjob, record, replay } from "./peers.ts";
import { claimsOf, type Findings, render, type Shot } from "./report.ts";

const QUICK = process.argv.includes("--quick");
const REPEATS = 3;
const RUNS = QUICK
  ? { alone: 200, each: 6, jobs: 400, naive: 100 }
  : { alone: 1_500, each: 150, jobs: 10_000, naive: 500 };
const RESULTS = join(import.meta.dirname, "RESULTS.md");

/** As if the disk took ten milliseconds longer. */
const slowSync: NonNullable<GroupOptions["sync"]> = (fd, done) =>
  fdatasync(fd, (error) => setTimeout(() => done(error), 10));

async function shoot(
  ground: Ground,
  runsEach: number,
  group: Omit<GroupOptions, "logFd"> = {},
): Promise<Shot> {
  await using store = ground.open(group);
  const delay = monitorEventLoopDelay({ resolution: 1 });
  delay.enable();
  const startMs = performance.now();
  await allRuns(store, ground, runsEach);
  await store.flush();
  const tookMs = performance.now() - startMs;
  delay.disable();
  return {
    perSecond: ((ground.workflows.length * runsEach) / tookMs) * 1000,
    delayP99Ms: delay.percentile(99) / 1e6,
    delayMaxMs: delay.max / 1e6,
  };
}

async function main(): Promise<number> {
  using one = await Ground.lay(1, RUNS.alone);
  using hundred = await Ground.lay(100, RUNS.each);
  const recorded = await record(hundred, RUNS.each);
  const found: Findings = {
    repeats: [],
    quick: QUICK,
    runs: RUNS,
    plainjobSetting: "",
    rows: { run: 0, job: 0 },
  };
  // The first round only warms up.
  for (let repeat = 0; repeat <= REPEATS; repeat++) {
    const alone = await shoot(one, RUNS.alone);
    const naiveAlone = await naive(one, RUNS.naive);
    const crowd = await shoot(hundred, RUNS.each);
    const tight = replay(hundred, recorded);
    const queue = await plainjob(hundred.copy(), RUNS.jobs);
    const naiveCrowd = await naive(hundred, RUNS.naive / 100);
    const crowdOnSlowDisk = await shoot(hundred, Math.ceil(RUNS.each / 3), { sync: slowSync });
    const { perSecond: plainjobFull } = await plainjob(hundred.copy(), RUNS.jobs / 10, "FULL");
    found.plainjobSetting = queue.setting;
    found.rows = { run: tight.rows, job: queue.rows };
    const rates = { tight: tight.perSecond, naiveAlone, naiveCrowd, plainjob: queue.perSecond, plainjobFull };
    if (repeat > 0) found.repeats.push({ alone, crowd, crowdOnSlowDisk, ...rates });
  }
  const claims = claimsOf(found);
  const text = render(found, claims);
  process.stdout.write(text);
  if (!QUICK) writeFileSync(RESULTS, text);
  return claims.every(holds) ? 0 : 1;
}

process.exitCode = await main();
