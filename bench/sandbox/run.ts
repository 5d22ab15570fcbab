/**
 * `npm run bench [-- --quick]`: the consumer of 200 lines through the real pool and through its peers, interleaved in
 * one process, three repeats. Prints the tables, writes RESULTS.md beside this file (not with --quick), and exits with 1
 * when a limit is missed.
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import type { Script } from "../../host/ports/sandbox.ts";
import { openPool, type PoolOptions } from "../../host/sandbox/pool.ts";
import { compiledConsumer, runInPool } from "./job.ts";
import { holds, sample } from "../measure.ts";
import { type Contender, freshProcess, nodeVm, plainCalls, quickJs, workerThread } from "./peers.ts";
import { claimsOf, type Entrant, type Findings, render } from "./report.ts";
import { namespaces, neighbour, workflows } from "./scenarios.ts";

const QUICK = process.argv.includes("--quick");
const REPEATS = 3;
const FOR_MS = QUICK ? 300 : 3_000;
const CLIENTS = 8;
const ROUNDS = QUICK ? 3 : 20;
const RESULTS = join(import.meta.dirname, "RESULTS.md");

function pawl(name: string, script: Script, scope: "fresh" | "frozen", options: PoolOptions): Contender {
  const pool = openPool(options);
  return { name, run: () => runInPool(pool, script, scope), close: () => pool[Symbol.asyncDispose]() };
}

async function entrants(script: Script): Promise<Entrant[]> {
  const one = { childrenPerNamespace: 1, maxChildren: 1 };
  const two = { childrenPerNamespace: 2, maxChildren: 2 };
  const alone = [
    plainCalls(script),
    nodeVm(script),
    await quickJs(script, "same scope"),
    await quickJs(script, "bare"),
    workerThread(script),
    freshProcess(script),
    pawl("pawl fresh, one child", script, "fresh", one),
    pawl("pawl frozen, one child", script, "frozen", one),
  ];
  const crowd = [
    pawl("pawl fresh, two children", script, "fresh", two),
    pawl("pawl frozen, two children", script, "frozen", two),
  ];
  return [
    ...alone.map((entrant) => ({ ...entrant, clients: 1, samples: [] })),
    ...crowd.map((entrant) => ({ ...entrant, clients: CLIENTS, samples: [] })),
  ];
}

/** Nobody is measured who does not come to the same intent and the same event. */
async function mustAgree(all: Entrant[]): Promise<void> {
  const expected = await all.at(-1)?.run();
  for (const one of all) {
    const product = await one.run();
    const same =
      isDeepStrictEqual(product.publishes, expected?.publishes) &&
      isDeepStrictEqual(JSON.parse(product.intent.args), JSON.parse(expected?.intent.args ?? ""));
    if (!same || product.publishes.length !== 1)
      throw new Error(`${one.name} did not do the job: ${JSON.stringify(product)}`);
  }
}

async function main(): Promise<number> {
  const script = await compiledConsumer();
  const all = await entrants(script);
  await mustAgree(all);
  for (const one of all) await sample(() => one.run(), FOR_MS / 3, one.clients);
  for (let repeat = 0; repeat < REPEATS; repeat++)
    for (const one of all) one.samples.push(await sample(() => one.run(), FOR_MS, one.clients));
  for (const one of all) await one.close?.();
  const found: Findings = { all, near: [], spaces: [], flows: [], quick: QUICK, forMs: FOR_MS };
  for (let repeat = 0; repeat < REPEATS; repeat++) {
    found.near.push(await neighbour(script, FOR_MS * 2));
    found.spaces.push(await namespaces(script, FOR_MS));
    found.flows.push(await workflows(script, FOR_MS, ROUNDS));
  }
  const claims = claimsOf(found);
  const text = render(found, claims);
  process.stdout.write(text);
  if (!QUICK) writeFileSync(RESULTS, text);
  return claims.every(holds) ? 0 : 1;
}

process.exitCode = await main();
