/** What was measured → the limits it is held to, and the page that says so. */
import { type Claim, spread } from "../measure.ts";
import { least, limits, most, preamble } from "../page.ts";

/** One measurement of the store itself. */
export interface Shot {
  perSecond: number;
  delayP99Ms: number;
  delayMaxMs: number;
}

/** Runs (or jobs) per second of everyone, in one round. */
export interface Round {
  alone: Shot;
  crowd: Shot;
  crowdOnSlowDisk: Shot;
  tight: number;
  naiveAlone: number;
  naiveCrowd: number;
  plainjob: number;
  plainjobFull: number;
}

export interface Findings {
  repeats: Round[];
  quick: boolean;
  runs: { alone: number; each: number; jobs: number; naive: number };
  plainjobSetting: string;
  /** Rows that one run, and one job of plainjob, changes. */
  rows: { run: number; job: number };
}

export function claimsOf({ repeats }: Findings): Claim[] {
  const of = (pick: (round: Round) => number): number[] => repeats.map(pick);
  return [
    least(
      "100 workflows ÷ raw tight loop (the aim is 0.8)",
      0.6,
      of((r) => r.crowd.perSecond / r.tight),
    ),
    least(
      "100 workflows ÷ one FULL transaction per transition",
      8,
      of((r) => r.crowd.perSecond / r.naiveCrowd),
    ),
    least(
      "100 workflows ÷ plainjob",
      1,
      of((r) => r.crowd.perSecond / r.plainjob),
    ),
    least(
      "one workflow ÷ one FULL transaction per transition",
      1.5,
      of((r) => r.alone.perSecond / r.naiveAlone),
    ),
    most(
      "loop delay p99 in ms, one workflow",
      10,
      of((r) => r.alone.delayP99Ms),
    ),
    most(
      "loop delay p99 in ms, 100 workflows",
      10,
      of((r) => r.crowd.delayP99Ms),
    ),
    most(
      "loop delay p99 in ms, 100 workflows, each fsync 10 ms longer",
      10,
      of((r) => r.crowdOnSlowDisk.delayP99Ms),
    ),
  ];
}

function rows({ repeats, plainjobSetting }: Findings): string[] {
  const shot = (name: string, pick: (round: Round) => Shot): string => {
    const cell = (figure: keyof Shot, digits: number): string =>
      spread(
        repeats.map((round) => pick(round)[figure]),
        digits,
      );
    return `| ${name} | ${cell("perSecond", 0)} | ${cell("delayP99Ms", 1)} | ${cell("delayMaxMs", 1)} |`;
  };
  const rate = (name: string, pick: (round: Round) => number): string =>
    `| ${name} | ${spread(repeats.map(pick), 0)} | | |`;
  return [
    shot("pawl, one workflow", (r) => r.alone),
    shot("pawl, 100 workflows", (r) => r.crowd),
    shot("pawl, 100 workflows, each fsync 10 ms longer", (r) => r.crowdOnSlowDisk),
    rate("raw tight loop: same writes, same groups, no fsync: the limit", (r) => r.tight),
    rate("the naive way: one FULL transaction per transition, one workflow", (r) => r.naiveAlone),
    rate("the naive way: one FULL transaction per transition, 100 workflows", (r) => r.naiveCrowd),
    rate(`plainjob, one job added, taken, done (${plainjobSetting}: no fsync)`, (r) => r.plainjob),
    rate("plainjob at synchronous=FULL, on disk when acknowledged, as ours", (r) => r.plainjobFull),
  ];
}

export function render(found: Findings, claims: Claim[]): string {
  const { alone, each, jobs, naive } = found.runs;
  return `# Bench of the store

Written by \`npm run bench:store\`; not edited by hand.

${preamble(found.quick)}
- One run = five transitions, each decided by the core on facts read from the store and applied as one Change with its journal: started, prepared (one delivery reserved), about to send (ledger row and send, durable before it resolves), answered, committed (delivery consumed, one event published). No sandbox.
- "Raw" replays the statements that the store wrote for the same runs, with the same parameters and groups, onto a copy of the same database: it decides, reads and hashes nothing and never waits for the disk. "The naive way" runs the same code as the store, but commits each transition by itself.
- A run changes ${found.rows.run.toFixed(1)} rows, a job of plainjob ${found.rows.job.toFixed(1)}; entries of indexes are not counted.
- Loop delay includes the 1 ms of its own timer.
- ${found.repeats.length} repeats, interleaved: ${alone} runs of one workflow, ${each} runs of each of 100 (a third of it on the slow disk), ${naive} runs one transaction at a time, ${jobs} jobs. Figures are the median (lowest–highest), ratios are taken repeat by repeat.

## Runs per second

| who | runs/s | loop delay p99 ms | max ms |
| --- | ---: | ---: | ---: |
${rows(found).join("\n")}

## Limits

${limits(claims)}
`;
}
