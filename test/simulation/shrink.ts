/** A failing simulation → the smallest one found that still fails, as a story that can be read and repeated. */
import { execFileSync } from "node:child_process";
import { FAULTS, simulate, type Simulated, type SimulationOptions } from "./simulate.ts";
import { ACTS, RESTLESS_ACTS } from "./people.ts";

const MOST_TRIES = 120;

interface Shrunk {
  options: SimulationOptions;
  result: Simulated;
}

async function shrink(given: SimulationOptions): Promise<Shrunk> {
  let best = { options: given, result: await simulate(given) };
  let tries = 0;
  const attempt = async (options: SimulationOptions): Promise<boolean> => {
    if (++tries > MOST_TRIES) return false;
    const result = await simulate(options);
    if (result.problems.length === 0) return false;
    best = { options, result };
    return true;
  };
  if (given.programs === undefined) {
    await attempt({ ...best.options, workflows: 1 });
    for (const what of [...new Set([...ACTS, ...RESTLESS_ACTS]), ...FAULTS])
      await attempt({ ...best.options, without: [...(best.options.without ?? []), what] });
  }
  for (let stormMs = best.options.stormMs ?? 1_500_000; stormMs > 20_000; stormMs /= 2)
    if (!(await attempt({ ...best.options, stormMs: Math.floor(stormMs / 2) }))) break;
  return best;
}

/** What to read when a seed fails. */
export async function story(given: SimulationOptions): Promise<string> {
  const { options, result } = await shrink(given);
  const { programs, ...short } = options;
  const repeat = JSON.stringify(programs ? { ...short, shape: programs[0]?.consumers["first"] } : short);
  return [
    `seed ${given.seed} on commit ${commit()}`,
    `shrunk to ${repeat}`,
    ...result.problems.map((one) => `  ${one}`),
    "what happened:",
    ...readable(result.trace),
  ].join("\n");
}

const MOST_LINES = 90;

/** Without the reads, with times from the start, up to the problem. */
function readable(trace: readonly string[]): string[] {
  const startMs = Number(trace[0]?.split(" ", 1)[0] ?? 0);
  const at = trace.findIndex((line) => line.includes("PROBLEM"));
  const lines = (at < 0 ? trace : trace.slice(0, at + 1)).flatMap((line) => {
    const space = line.indexOf(" ");
    const what = line.slice(space + 1);
    if (/^(read |somebody looks|commit$|fsync$)/.test(what)) return [];
    const seconds = ((Number(line.slice(0, space)) - startMs) / 1_000).toFixed(3);
    return [`  ${seconds.padStart(9)} s  ${what}`];
  });
  return lines.length > MOST_LINES ? ["  …", ...lines.slice(-MOST_LINES)] : lines;
}

function commit(): string {
  try {
    return execFileSync("git", ["rev-parse", "--short", "HEAD"], { encoding: "utf8" }).trim();
  } catch {
    return "unknown";
  }
}
