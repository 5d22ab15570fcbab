/** What was measured → the limits it is held to, and the page that says so. */
import { type Claim, spread } from "../measure.ts";
import { least, limits, most, preamble } from "../page.ts";
import type { Drained } from "./drain.ts";
import type { Latency } from "./latency.ts";
import type { Alone, Peer } from "./peers.ts";
import type { Idle } from "./resident.ts";
import type { Restart } from "./residents.ts";

/** Everybody, once. */
export interface Round {
  sandbox: Alone;
  sandboxInTurn: Alone;
  sandboxOne: Alone;
  crowd: Drained;
  alone: Drained;
  peer: Peer;
  asked: Latency;
  growth: { workflows: number; some: Drained; everybody: Drained }[];
  restarted: Restart;
  idle: Idle;
}

export interface Findings {
  repeats: Round[];
  quick: boolean;
  size: {
    alone: number;
    each: number;
    sandboxMs: number;
    peerRuns: number;
    latencyRounds: number;
    growth: number[];
    growthRuns: number;
    idleMs: number;
    pendingEach: number;
    killAfter: number;
  };
}

const SWEEP_MS = 30_000;

export function claimsOf({ repeats, size }: Findings): Claim[] {
  const of = (pick: (round: Round) => number): number[] => repeats.map(pick);
  const many = thousands(size.growth.at(-1) ?? 0);
  return [
    least(
      "100 workflows: runs/s ÷ the sandbox alone, 16 at once",
      0.6,
      of((r) => r.crowd.perSecond / r.sandbox.perSecond),
    ),
    least(
      "100 workflows: runs/s ÷ OpenWorkflow on SQLite",
      2,
      of((r) => r.crowd.perSecond / r.peer.perSecond),
    ),
    most(
      "one workflow alone: p50 of a run in ms",
      10,
      of((r) => r.alone.p50Ms),
    ),
    most(
      "idle, publish → prepare: p50 in ms",
      5,
      of((r) => r.asked.p50Ms),
    ),
    most(
      "idle, publish → prepare: p99 in ms",
      25,
      of((r) => r.asked.p99Ms),
    ),
    most(
      `${many} idle workflows: percent of one core`,
      2,
      of((r) => r.idle.cpuPercent),
    ),
    most(
      `${many} idle workflows: MB of the host process`,
      300,
      of((r) => r.idle.rssMb),
    ),
    most(
      `${many} idle workflows: statements that are neither sweep nor heartbeat`,
      0,
      of((r) => r.idle.others.length),
    ),
    most(
      `${many} idle workflows: sweeps per ${SWEEP_MS / 1000} s`,
      2,
      of((r) => r.idle.sweeps / Math.max(1, r.idle.windowMs / SWEEP_MS)),
    ),
  ];
}

const thousands = (count: number): string => count.toLocaleString("en-US");

function rateRows({ repeats }: Findings): string[] {
  const cell = (pick: (round: Round) => number, digits: number): string => spread(repeats.map(pick), digits);
  const host = (name: string, pick: (round: Round) => Drained, isAlone: boolean): string => {
    const of = (figure: keyof Drained, digits: number): string => cell((r) => pick(r)[figure], digits);
    const times = isAlone ? `${of("p50Ms", 2)} | ${of("p99Ms", 2)}` : " | ";
    return `| ${name} | ${of("perSecond", 0)} | ${times} | ${of("hostCpuMs", 2)} |`;
  };
  const rate = (name: string, pick: (round: Round) => number): string =>
    `| ${name} | ${cell(pick, 0)} | | | |`;
  const [last] = repeats.slice(-1);
  const workers = repeats.map((r) => r.peer.workers).join(", ");
  return [
    host("pawl, one workflow", (r) => r.alone, true),
    host("pawl, 100 workflows", (r) => r.crowd, false),
    rate("the sandbox alone, 100 workflows, 16 at once", (r) => r.sandbox.perSecond),
    rate("the sandbox alone, 100 workflows, one at a time", (r) => r.sandboxInTurn.perSecond),
    rate("the sandbox alone, one workflow's script, 16 at once", (r) => r.sandboxOne.perSecond),
    rate(
      `OpenWorkflow, three steps, unsandboxed (${last?.peer.setting}; workers: ${workers})`,
      (r) => r.peer.perSecond,
    ),
  ];
}

function growthRows({ repeats, size }: Findings): string[] {
  return size.growth.map((workflows, n) => {
    const of = (pick: (one: Round["growth"][number]) => number, digits: number): string =>
      spread(
        repeats.map((r) => pick(r.growth[n] as Round["growth"][number])),
        digits,
      );
    const cells = [
      of((one) => one.some.perSecond, 0),
      of((one) => one.some.hostCpuMs, 2),
      of((one) => one.everybody.perSecond, 0),
      of((one) => one.everybody.hostCpuMs, 2),
    ];
    return `| ${thousands(workflows)} | ${cells.join(" | ")} |`;
  });
}

function startLines({ repeats, size }: Findings): string[] {
  const of = (pick: (round: Round) => number, digits: number): string => spread(repeats.map(pick), digits);
  const many = size.growth.at(-1) ?? 0;
  return [
    `- ${thousands(many)} workflows with ${thousands(many * size.pendingEach)} events waiting: \`start\` takes ${of((r) => r.restarted.coldMs, 0)} ms; killed at run ${size.killAfter} in full work and started again, ${of((r) => r.restarted.recoveryMs, 0)} ms with ${of((r) => r.restarted.recovered, 0)} interrupted runs recovered; first commit ${of((r) => r.restarted.firstRunMs, 0)} ms after the process was started; ${of((r) => r.restarted.rssMb, 0)} MB after another ${size.killAfter} runs.`,
    `- At rest, in ${(size.idleMs / 1000).toFixed(0)} s: ${of((r) => r.idle.sweeps, 0)} sweeps, ${of((r) => r.idle.heartbeats, 0)} heartbeats (one UPDATE every 10 s), ${of((r) => r.idle.others.length, 0)} other statements${othersOf(repeats)}.`,
    `- Publish → prepare when the workflow's isolate has to be made first: p50 ${of((r) => r.asked.firstP50Ms, 2)} ms.`,
    `- The sandbox alone made ${of((r) => r.sandbox.isolates, 1)} isolates per workflow (1 when each is kept).`,
  ];
}

function othersOf(repeats: Round[]): string {
  const seen = new Set(repeats.flatMap((r) => r.idle.others));
  return seen.size === 0 ? "" : ` (${[...seen].map((sql) => `\`${sql.slice(0, 60)}\``).join(", ")})`;
}

export function render(found: Findings, claims: Claim[]): string {
  const { size } = found;
  return `# Bench of the engine

Written by \`npm run bench:engine\`; not edited by hand.

${preamble(found.quick)}
- One run = an event that waits is taken by the consumer of \`bench/sandbox\` (200 lines): \`prepare\` and the intent of \`mutate\` in an isolate, ledger row on disk before the call leaves, the call (answered in memory, at once), \`next\` with one publish in an isolate, commit. A host as \`createHost\` makes it, with its defaults (16 slots, \`barrier\`), a database on disk and real sandbox processes. Every workflow has a producer beside its consumer. Afterwards the database is asked whether each change is applied and each event consumed.
- "The sandbox alone" is the same script in the same pool, with no store, schedule or ledger. OpenWorkflow runs three steps that only return a value, in the bench's own process without a sandbox, its runs created beforehand; its database is left as it opens it.
- p50 and p99 of one workflow's runs are taken from the end of one to the end of the next; "host CPU" is the time of the host process per run, scripts run in others.
- Publish → prepare: from before the call of \`publish\` until the first question of \`prepare\` is back in the host; 100 workflows in turn, one event at a time, nothing else to do.
- ${found.repeats.length} repeats, interleaved: ${size.alone} runs of one workflow, ${size.each} of each of 100, ${size.peerRuns} of OpenWorkflow, ${size.latencyRounds * 100} latencies, ${thousands(size.growthRuns)} runs for each line of the growth table. The first runs of a workflow, which make its isolate, are left out but where said. Figures are the median (lowest–highest), ratios are taken repeat by repeat.

## Runs per second

| who | runs/s | p50 ms | p99 ms | host CPU ms a run |
| --- | ---: | ---: | ---: | ---: |
${rateRows(found).join("\n")}

## What a run costs as workflows are added

| deployed | runs/s, 100 of them at work | host CPU ms | runs/s, each in turn, isolates not kept or made yet | host CPU ms |
| ---: | ---: | ---: | ---: | ---: |
${growthRows(found).join("\n")}

## Start, recovery, rest

${startLines(found).join("\n")}

## Limits

${limits(claims)}
`;
}
