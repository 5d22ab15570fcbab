import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { measure } from "../support/measure.ts";
import { ACTS, RESTLESS_ACTS } from "./people.ts";
import { simulateAll } from "./shards.ts";
import { story } from "./shrink.ts";
import { FAULTS, simulate } from "./simulate.ts";

const PROOF = process.env["PAWL_PROOF"] === "1";
const SEEDS = PROOF ? 100_000 : 1_000;
const REPEATED = 100;

describe("seeds", () => {
  test(`no law is broken in ${SEEDS} seeds, each of which does some work, and every fault and act occurs`, async () => {
    const startedMs = performance.now();
    const { tally, failed, ...sums } = await simulateAll(SEEDS);
    const [first] = failed;
    if (first) throw new Error(`${failed.length} seeds failed\n${await story({ seed: first.seed })}`);
    const missing = [...FAULTS, ...ACTS, ...RESTLESS_ACTS].filter((one) => tally[one] === undefined);
    expect(missing, "faults and acts that never occurred").toEqual([]);
    const suite = "simulation";
    measure({ suite, name: "simulation: seeds without a broken law", value: SEEDS, unit: "seeds" });
    measure({ suite, name: "simulation: runs committed", value: sums.commits, unit: "runs" });
    measure({ suite, name: "simulation: outside effects", value: sums.effects, unit: "effects" });
    measure({ suite, name: "simulation: lives of hosts", value: sums.lives, unit: "lives" });
    const msPerSeed = Math.round((performance.now() - startedMs) / SEEDS);
    measure({ suite, name: "simulation: time per seed", value: msPerSeed, unit: "ms" });
  }, 5_400_000);

  test("seeds that once failed do not", async () => {
    const file = new URL("regression-seeds.json", import.meta.url);
    const known = JSON.parse(readFileSync(file, "utf8")) as { seed: number; steady?: true; found: string }[];
    for (const { seed, steady = false, found } of known) {
      const { problems } = await simulate({ seed, steady });
      expect(problems, `seed ${seed}, again: ${found}`).toEqual([]);
    }
  });

  test(`${REPEATED} seeds repeated give equal fingerprints`, async () => {
    for (let seed = 1; seed <= REPEATED; seed++) {
      const [once, twice] = [await simulate({ seed }), await simulate({ seed })];
      expect(twice.hash, `seed ${seed}`).toBe(once.hash);
    }
  }, 300_000);
});
