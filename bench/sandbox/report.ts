/** What was measured → the limits it is held to, and the page that says so. */
import { type Claim, median, type Sample, spread } from "../measure.ts";
import { least, limits, most, preamble } from "../page.ts";
import type { Contender } from "./peers.ts";
import type { Namespaces, Neighbour, Workflows } from "./scenarios.ts";

export interface Entrant extends Contender {
  clients: number;
  samples: Sample[];
}

export interface Findings {
  all: Entrant[];
  near: Neighbour[];
  spaces: Namespaces[];
  flows: Workflows[];
  quick: boolean;
  forMs: number;
}

type Figure = "meanMs" | "perSecond";

/** One entrant's figure over another's, repeat by repeat; each is named by what its name begins and ends with. */
function ratio(all: Entrant[], above: string, below: string, what: Figure): number[] {
  const samplesOf = (name: string): Sample[] => {
    const [start = "", end = ""] = name.split("…");
    return all.find((one) => one.name.startsWith(start) && one.name.endsWith(end))?.samples ?? [];
  };
  return samplesOf(above).map((s, i) => s[what] / (samplesOf(below)[i]?.[what] ?? Number.NaN));
}

export function claimsOf({ all, near, spaces, flows }: Findings): Claim[] {
  const mean = (above: string, below: string): number[] => ratio(all, above, below, "meanMs");
  const [fresh, frozen] = ["pawl fresh, one…", "pawl frozen, one…"];
  const [quickjs, process] = ["quickjs…same scope", "new process…"];
  return [
    most("fresh, one child: mean ÷ quickjs", 0.45, mean(fresh, quickjs)),
    most("frozen, one child: mean ÷ quickjs", 0.25, mean(frozen, quickjs)),
    most("fresh, one child: mean ÷ new process", 1 / 25, mean(fresh, process)),
    most("frozen, one child: mean ÷ new process", 1 / 25, mean(frozen, process)),
    least(
      "two children: runs/s frozen ÷ fresh",
      2,
      ratio(all, "pawl frozen, two…", "pawl fresh, two…", "perSecond"),
    ),
    most(
      "neighbour's p99 while hostile scripts run ÷ clean",
      3,
      near.map((n) => n.beset / n.clean),
    ),
    least(
      "runs/s of ten namespaces taking turns ÷ one",
      0.5,
      spaces.map((n) => n.tenInTurn / n.oneInTurn),
    ),
    most(
      "processes started while they take turns",
      0,
      spaces.map((n) => n.spawnedInRuns),
    ),
    most(
      `isolates made in ${flows[0]?.runs} runs of a hundred active workflows`,
      100,
      flows.map((n) => n.isolates),
    ),
  ];
}

function contenderRows({ all }: Findings): string[] {
  const plain = all[0]?.samples ?? [];
  return all.map(({ name, samples, clients }) => {
    const of = (pick: (s: Sample) => number, digits: number): string => spread(samples.map(pick), digits);
    const slower = median(samples.map((s, i) => (plain[i]?.perSecond ?? Number.NaN) / s.perSecond));
    const cells = [
      of((s) => s.perSecond, 0),
      of((s) => s.meanMs, 3),
      of((s) => s.p50Ms, 3),
      of((s) => s.p99Ms, 3),
    ];
    return `| ${name} | ${clients} | ${cells.join(" | ")} | ${slower.toFixed(1)} |`;
  });
}

function orientation({ all, near, spaces, flows }: Findings): string[] {
  const of = <T>(list: T[], pick: (one: T) => number, digits = 0): string => spread(list.map(pick), digits);
  const bare = (name: string): string => spread(ratio(all, name, "quickjs…bare", "meanMs"), 3);
  return [
    `- Mean ÷ bare quickjs (an engine with nothing of the product in it): fresh ${bare("pawl fresh, one…")}, frozen ${bare("pawl frozen, one…")}.`,
    `- Neighbour, p99 in ms: clean ${of(near, (n) => n.clean, 2)}, beset ${of(near, (n) => n.beset, 2)}; hostile runs meanwhile: ${near.map((n) => n.attacks).join(", ")}.`,
    `- Namespaces, runs/s: one, one client ${of(spaces, (n) => n.oneInTurn)}; ten taking turns ${of(spaces, (n) => n.tenInTurn)}; one, ten clients ${of(spaces, (n) => n.oneAtOnce)}; ten at once ${of(spaces, (n) => n.tenAtOnce)}.`,
    `- Workflows, runs/s: one ${of(flows, (n) => n.one)}; a hundred in rotation ${of(flows, (n) => n.hundred)}.`,
  ];
}

export function render(found: Findings, claims: Claim[]): string {
  return `# Bench of the sandbox

Written by \`npm run bench\`; not edited by hand.

${preamble(found.quick)}
- One run = \`prepare\` with one \`peek\` and the intent of \`mutate\`, then \`next\` with one publish, of a script of 200 lines: two calls, the same text in and out for everyone, read by the same decoder. The pool gives each call a scope of its own; every peer makes one scope per run. "Same scope" means the script finds the same globals and the same \`ctx\`, by the same prelude; "bare" means a \`ctx\` of a dozen lines and no prelude.
- ${found.near.length} repeats of ${found.forMs} ms each, interleaved; figures are the median (lowest–highest), ratios are taken repeat by repeat.

## Contenders

| contender | clients | runs/s | mean ms | p50 ms | p99 ms | × slower than plain |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
${contenderRows(found).join("\n")}

## Limits

${limits(claims)}

## For orientation, without a limit

${orientation(found).join("\n")}
`;
}
