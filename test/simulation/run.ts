// Runs seeds from the command line: `node test/simulation/run.ts 1 100`, `… run.ts 17 --trace`, `… 1 100 --json`.
import { simulate } from "./simulate.ts";
import type { Totals } from "./shards.ts";

const [from = "1", to = from] = process.argv.slice(2).filter((one) => !one.startsWith("--"));
const asked = (flag: string) => process.argv.includes(flag);
const startedMs = performance.now();
const totals: Totals = { commits: 0, effects: 0, lives: 0, tally: {}, failed: [] };
for (let seed = Number(from); seed <= Number(to); seed++) {
  const result = await simulate({ seed });
  for (const key of ["commits", "effects", "lives"] as const) totals[key] += result[key];
  for (const [what, times] of result.tally) totals.tally[what] = (totals.tally[what] ?? 0) + times;
  if (asked("--trace")) console.log(result.trace.join("\n"));
  const [problem] = result.problems;
  if (problem === undefined) continue;
  totals.failed.push({ seed, problem });
  if (from === to) console.log(result.problems.join("\n"));
}
if (asked("--json")) process.stdout.write(JSON.stringify(totals));
else report();
process.exitCode = totals.failed.length > 0 ? 1 : 0;

function report(): void {
  const kinds = Map.groupBy(totals.failed, ({ problem }) => problem.replaceAll(/\d+/g, "#").slice(0, 120));
  for (const [kind, some] of kinds) {
    const seeds = some.slice(0, 5).map(({ seed }) => seed);
    console.log(`${some.length} × ${kind}  (${seeds.join(", ")})`);
  }
  if (asked("--tally")) console.log(totals.tally);
  const count = Number(to) - Number(from) + 1;
  const ms = ((performance.now() - startedMs) / count).toFixed(1);
  console.log(`${totals.failed.length} of ${count} failed, ${ms} ms a seed`);
}
