/**
 * `npm run bench [-- --quick]`: the consumer of 200 lines through the real pool and through its peers, interleaved in
 * one process, three repeats. Prints the tables, writes bench/RESULTS.md, and fails when a named ratio does not hold.
 */
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { cpus, totalmem, type } from "node:os";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { openPool, type PoolOptions } from "../../host/sandbox/pool.ts";
import type { Script } from "../../host/ports/sandbox.ts";
import { compiledConsumer, runInPool } from "./job.ts";
import { type Claim, holds, median, type Sample, sample, spread } from "./measure.ts";
import { type Contender, freshProcess, nodeVm, plainCalls, quickJs, workerThread } from "./peers.ts";
import { type Namespaces, type Neighbour, namespaces, neighbour } from "./scenarios.ts";

const QUICK = process.argv.includes("--quick");
const REPEATS = 3;
const FOR_MS = QUICK ? 500 : 3_000;
const CLIENTS = 8;
const RESULTS = join(import.meta.dirname, "../RESULTS.md");

interface Entrant extends Contender {
  clients: number;
  samples: Sample[];
}

function pawl(name: string, script: Script, scope: "fresh" | "frozen", options: PoolOptions): Contender {
  const pool = openPool(options);
  return { name, run: () => runInPool(pool, script, scope), close: () => pool[Symbol.asyncDispose]() };
}

async function entrants(script: Script): Promise<Entrant[]> {
  const one = { childrenPerNamespace: 1, maxChildren: 1 };
  const two = { childrenPerNamespace: 2, maxChildren: 2 };
  const alone = [
    plainCalls(script.code),
    nodeVm(script.code),
    await quickJs(script.code),
    workerThread(script.code),
    freshProcess(script.code),
    pawl("pawl fresh, one child", script, "fresh", one),
    pawl("pawl frozen, one child", script, "frozen", one),
  ];
  const crowd = [
    pawl("pawl fresh, two children", script, "fresh", two),
    pawl("pawl frozen, two children", script, "frozen", two),
  ];
  return [
    ...alone.map((one) => ({ ...one, clients: 1, samples: [] })),
    ...crowd.map((one) => ({ ...one, clients: CLIENTS, samples: [] })),
  ];
}

async function measureAll(all: Entrant[]): Promise<void> {
  const expected = await all[0]?.run();
  for (const one of all) {
    const product = await one.run();
    if (product.publishes.length !== 1 || !isDeepStrictEqual(product.publishes, expected?.publishes))
      throw new Error(`${one.name} did not do the job: ${JSON.stringify(product)}`);
    await sample(() => one.run(), FOR_MS / 3, one.clients);
  }
  for (let repeat = 0; repeat < REPEATS; repeat++)
    for (const one of all) one.samples.push(await sample(() => one.run(), FOR_MS, one.clients));
}

function claimsOf(all: Entrant[], near: Neighbour[], many: Namespaces[]): Claim[] {
  const samplesOf = (part: string): Sample[] => all.find((one) => one.name.startsWith(part))?.samples ?? [];
  const ratio = (above: string, below: string, what: "meanMs" | "perSecond"): number[] =>
    samplesOf(above).map((s, i) => s[what] / (samplesOf(below)[i]?.[what] ?? Number.NaN));
  const claim = (name: string, values: number[], bound: number, atMost = true): Claim => ({
    name,
    values,
    bound,
    atMost,
  });
  return [
    claim("fresh, one child: mean ÷ quickjs", ratio("pawl fresh, one", "quickjs", "meanMs"), 0.45),
    claim("frozen, one child: mean ÷ quickjs", ratio("pawl frozen, one", "quickjs", "meanMs"), 0.25),
    claim("fresh, one child: mean ÷ new process", ratio("pawl fresh, one", "new process", "meanMs"), 1 / 25),
    claim(
      "frozen, one child: mean ÷ new process",
      ratio("pawl frozen, one", "new process", "meanMs"),
      1 / 25,
    ),
    claim(
      "frozen ÷ fresh, runs/s, two children",
      ratio("pawl frozen, two", "pawl fresh, two", "perSecond"),
      2,
      false,
    ),
    claim(
      "neighbour's p99, beset ÷ clean",
      near.map((n) => n.beset / n.clean),
      3,
    ),
    claim(
      "ten namespaces ÷ one, in turn",
      many.map((n) => n.tenInTurn / n.oneInTurn),
      0.5,
      false,
    ),
    claim(
      "ten namespaces ÷ one, ten clients",
      many.map((n) => n.tenAtOnce / n.oneAtOnce),
      0.5,
      false,
    ),
  ];
}

function commit(): string {
  try {
    const git = (...args: string[]): string =>
      execFileSync("git", args, { cwd: import.meta.dirname, encoding: "utf8" }).trim();
    return `${git("rev-parse", "HEAD")}${git("status", "--porcelain", "--", ":/host", ":/sandbox-api") === "" ? "" : " with uncommitted changes"}`;
  } catch {
    return "not committed";
  }
}

function render(all: Entrant[], near: Neighbour[], many: Namespaces[], claims: Claim[]): string {
  const plain = all[0]?.samples ?? [];
  const rows = all.map(({ name, samples, clients }) => {
    const slower = samples.map((s, i) => (plain[i]?.perSecond ?? Number.NaN) / s.perSecond);
    const of = (pick: (s: Sample) => number, digits: number): string => spread(samples.map(pick), digits);
    return `| ${name} | ${clients} | ${of((s) => s.perSecond, 0)} | ${of((s) => s.meanMs, 3)} | ${of((s) => s.p50Ms, 3)} | ${of((s) => s.p99Ms, 3)} | ${median(slower).toFixed(1)} |`;
  });
  const verdicts = claims.map((claim) => {
    const bound = `${claim.atMost ? "≤" : "≥"} ${claim.bound}`;
    return `| ${claim.name} | ${spread(claim.values, 3)} | ${bound} | ${holds(claim) ? "pass" : "FAIL"} |`;
  });
  const figures = [
    `- neighbour: p99 clean ${spread(
      near.map((n) => n.clean),
      2,
    )} ms, beset ${spread(
      near.map((n) => n.beset),
      2,
    )} ms; ${near.map((n) => n.attacks).join(" + ")} hostile runs`,
    `- namespaces, runs/s: one in turn ${spread(
      many.map((n) => n.oneInTurn),
      0,
    )}, ten in turn ${spread(
      many.map((n) => n.tenInTurn),
      0,
    )}, one with ten clients ${spread(
      many.map((n) => n.oneAtOnce),
      0,
    )}, ten with ten clients ${spread(
      many.map((n) => n.tenAtOnce),
      0,
    )}; processes started meanwhile: ${many.map((n) => n.spawnedInRuns).join(", ")}`,
  ];
  return `# Bench of the sandbox

Written by \`npm run bench\`; not edited by hand.

- Date: ${new Date().toISOString()}${QUICK ? ", quick: too short to quote" : ""}
- Commit: ${commit()}
- Machine: ${cpus().length} cores (${cpus()[0]?.model.trim()}), ${(totalmem() / 2 ** 30).toFixed(1)} GB, ${type()}, Node ${process.version}
- One run = prepare with one peek + mutate stating its intent, then next with one publish, of a script of 200 lines. In the pool these are two calls, each in its own scope; every peer makes its scope once per run.
- ${REPEATS} repeats of ${FOR_MS} ms each, interleaved; figures are the median (lowest–highest).

| contender | clients | runs/s | mean ms | p50 ms | p99 ms | × slower than plain |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
${rows.join("\n")}

| ratio | measured | bound | |
| --- | ---: | ---: | --- |
${verdicts.join("\n")}

${figures.join("\n")}
`;
}

async function main(): Promise<number> {
  const script = await compiledConsumer();
  const all = await entrants(script);
  await measureAll(all);
  for (const one of all) await one.close?.();
  const near: Neighbour[] = [];
  const many: Namespaces[] = [];
  for (let repeat = 0; repeat < REPEATS; repeat++) {
    near.push(await neighbour(script, FOR_MS * 2));
    many.push(await namespaces(script, FOR_MS));
  }
  const claims = claimsOf(all, near, many);
  const text = render(all, near, many, claims);
  process.stdout.write(text);
  if (!QUICK) writeFileSync(RESULTS, text);
  return claims.every(holds) ? 0 : 1;
}

process.exitCode = await main();
