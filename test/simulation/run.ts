// Runs seeds from the command line: `node test/simulation/run.ts 1 100` or `… run.ts 17 --trace`.
import { simulate } from "./simulate.ts";

const [from = "1", to = from] = process.argv.slice(2).filter((one) => !one.startsWith("--"));
const startedMs = performance.now();
let failures = 0;
const tally = new Map<string, number>();
const kinds = new Map<string, number[]>();
for (let seed = Number(from); seed <= Number(to); seed++) {
  const result = await simulate({ seed });
  for (const [what, times] of result.tally) tally.set(what, (tally.get(what) ?? 0) + times);
  if (process.argv.includes("--trace")) console.log(result.trace.join("\n"));
  if (result.problems.length === 0) continue;
  failures++;
  const kind = (result.problems[0] ?? "").replaceAll(/\d+/g, "#").slice(0, 120);
  kinds.set(kind, [...(kinds.get(kind) ?? []), seed]);
  if (from === to) console.log(result.problems.join("\n"));
}
const count = Number(to) - Number(from) + 1;
for (const [kind, seeds] of kinds)
  console.log(`${seeds.length} × ${kind}  (${seeds.slice(0, 5).join(", ")})`);
if (process.argv.includes("--tally")) console.log(tally);
console.log(
  `${failures} of ${count} failed, ${((performance.now() - startedMs) / count).toFixed(1)} ms a seed`,
);
process.exitCode = failures > 0 ? 1 : 0;
