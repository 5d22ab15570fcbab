/** What happens to a run when others share the pool: hostile neighbours, many namespaces, many workflows. */
import type { Script } from "../../host/ports/sandbox.ts";
import { openPool } from "../../host/sandbox/pool.ts";
import { compiledSource, NOW_MS, runInPool } from "./job.ts";
import { sample } from "../measure.ts";

const NAMESPACES = 10;
const WORKFLOWS = 100;

const hostileSource = (body: string): string => `import { producer, workflow } from "pawl";
export default workflow({ name: "hostile", producers: { go: producer({ schedule: { interval: "5m" }, async handler() { ${body} } }) } });`;

const HOSTILE = [
  "for (;;) {}",
  'const kept: unknown[] = []; for (;;) kept.push(new Array(10_000).fill("x"));',
  'return /^(a+)+$/.test(`${"a".repeat(60)}!`) ? 1 : 2;',
];

export interface Neighbour {
  clean: number;
  beset: number;
  attacks: number;
}

/** The benign namespace's p99 alone, then while the other of two children runs one hostile script after another. */
export async function neighbour(script: Script, forMs: number): Promise<Neighbour> {
  await using pool = openPool({ childrenPerNamespace: 1, maxChildren: 2 });
  const hostile = await Promise.all(HOSTILE.map((body) => compiledSource(hostileSource(body), "hostile.ts")));
  const benign = () => runInPool(pool, script, "auto");
  await sample(benign, forMs / 4);
  const clean = await sample(benign, forMs);
  let attacking = true;
  let attacks = 0;
  const attack = async (): Promise<void> => {
    while (attacking) {
      const bad = hostile[attacks % hostile.length] as Script;
      const version = { ...bad, namespace: "hostile", hash: `${bad.hash}${++attacks}` }; // A new one has its whole death budget.
      const run = { id: `run_${attacks}`, attempt: 1 };
      const call = {
        script: version,
        unit: "producer",
        handler: "go",
        run,
        nowMs: NOW_MS,
        seed: "bench",
      } as const;
      const result = await pool.run(call, async () => ({ ok: true, value: "null", nowMs: NOW_MS }));
      if (result.status === "done") throw new Error("a hostile script came to an end");
    }
  };
  const attacker = attack();
  const beset = await sample(benign, forMs);
  attacking = false;
  await attacker;
  return { clean: clean.p99Ms, beset: beset.p99Ms, attacks };
}

export interface Namespaces {
  oneInTurn: number;
  tenInTurn: number;
  oneAtOnce: number;
  tenAtOnce: number;
  spawnedInRuns: number;
}

/** Runs per second of one namespace and of ten taking turns, with one client and with ten. */
export async function namespaces(script: Script, forMs: number): Promise<Namespaces> {
  await using one = openPool();
  await using ten = openPool();
  const scripts = Array.from({ length: NAMESPACES }, (_, i) => ({ ...script, namespace: `bench-${i}` }));
  let turn = 0;
  const single = () => runInPool(one, script, "auto");
  const inTurn = () => runInPool(ten, scripts[turn++ % NAMESPACES] as Script, "auto");
  const own = (client: number) => runInPool(ten, scripts[client] as Script, "auto");
  await sample(single, forMs / 2, NAMESPACES);
  await sample(own, forMs / 2, NAMESPACES);
  const spawned = ten.stats().spawned;
  const oneInTurn = await sample(single, forMs);
  const tenInTurn = await sample(inTurn, forMs);
  const oneAtOnce = await sample(single, forMs, NAMESPACES);
  const tenAtOnce = await sample(own, forMs, NAMESPACES);
  return {
    oneInTurn: oneInTurn.perSecond,
    tenInTurn: tenInTurn.perSecond,
    oneAtOnce: oneAtOnce.perSecond,
    tenAtOnce: tenAtOnce.perSecond,
    spawnedInRuns: ten.stats().spawned - spawned,
  };
}

export interface Workflows {
  one: number;
  hundred: number;
  /** Runs of the hundred, and the isolates that these took: a hundred when each is kept. */
  runs: number;
  isolates: number;
}

/** A hundred workflows in rotation: the isolates they need, and their runs per second beside those of one workflow. */
export async function workflows(script: Script, forMs: number, rounds: number): Promise<Workflows> {
  await using single = openPool();
  await using many = openPool();
  const scripts = Array.from({ length: WORKFLOWS }, (_, i) => ({ ...script, workflow: `bench-${i}` }));
  for (let round = 0; round < rounds; round++) for (const one of scripts) await runInPool(many, one, "auto");
  const { isolates } = many.stats();
  let turn = 0;
  const alone = () => runInPool(single, script, "auto");
  const inTurn = () => runInPool(many, scripts[turn++ % WORKFLOWS] as Script, "auto");
  await sample(alone, forMs / 2);
  const one = await sample(alone, forMs);
  const hundred = await sample(inTurn, forMs);
  return { one: one.perSecond, hundred: hundred.perSecond, runs: rounds * WORKFLOWS, isolates };
}
