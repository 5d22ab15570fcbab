/** Many seeds, on every core: each process takes its share, and what they counted is added up. */
import { execFile } from "node:child_process";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";

export interface Totals {
  commits: number;
  effects: number;
  lives: number;
  /** How often each fault and act occurred. */
  tally: Record<string, number>;
  failed: { seed: number; problem: string }[];
}

const RUN = fileURLToPath(new URL("run.ts", import.meta.url));

export async function simulateAll(seeds: number): Promise<Totals> {
  const share = Math.ceil(seeds / availableParallelism());
  const parts: Promise<Totals>[] = [];
  for (let from = 1; from <= seeds; from += share) parts.push(shard(from, Math.min(from + share - 1, seeds)));
  return (await Promise.all(parts)).reduce(sum);
}

/** A failed seed is in what was counted; a shard that says nothing has come to grief itself. */
function shard(from: number, to: number): Promise<Totals> {
  const args = ["--no-warnings", RUN, String(from), String(to), "--json"];
  return new Promise((resolve, reject) => {
    execFile(process.execPath, args, { maxBuffer: 64 << 20 }, (error, stdout, stderr) => {
      if (stdout === "") reject(new Error(`seeds ${from} to ${to}: ${stderr}`, { cause: error }));
      else resolve(JSON.parse(stdout) as Totals);
    });
  });
}

function sum(one: Totals, other: Totals): Totals {
  const tally = { ...one.tally };
  for (const [what, times] of Object.entries(other.tally)) tally[what] = (tally[what] ?? 0) + times;
  return {
    commits: one.commits + other.commits,
    effects: one.effects + other.effects,
    lives: one.lives + other.lives,
    tally,
    failed: [...one.failed, ...other.failed],
  };
}
