import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { measure } from "../support/measure.ts";
import { ACTS } from "./people.ts";
import { story } from "./shrink.ts";
import { FAULTS, simulate } from "./simulate.ts";

const PROOF = process.env["PAWL_PROOF"] === "1";
const SEEDS = PROOF ? 100_000 : 1_000;
const REPEATED = 100;

describe("seeds", () => {
  test(`no law is broken in ${SEEDS} seeds, each of which does some work, and every fault and act occurs`, async () => {
    const tally = new Map<string, number>();
    const sums = { commits: 0, effects: 0, lives: 0 };
    const startedMs = performance.now();
    for (let seed = 1; seed <= SEEDS; seed++) {
      const result = await simulate({ seed });
      if (result.problems.length > 0) throw new Error(await story({ seed }));
      for (const [what, times] of result.tally) tally.set(what, (tally.get(what) ?? 0) + times);
      for (const key of ["commits", "effects", "lives"] as const) sums[key] += result[key];
    }
    const missing = [...FAULTS, ...ACTS].filter((one) => !tally.has(one));
    expect(missing, "faults and acts that never occurred").toEqual([]);
    const suite = "simulation";
    measure({ suite, name: "simulation: seeds without a broken law", value: SEEDS, unit: "seeds" });
    measure({ suite, name: "simulation: runs committed", value: sums.commits, unit: "runs" });
    measure({ suite, name: "simulation: outside effects", value: sums.effects, unit: "effects" });
    measure({ suite, name: "simulation: lives of hosts", value: sums.lives, unit: "lives" });
    const msPerSeed = Math.round((performance.now() - startedMs) / SEEDS);
    measure({ suite, name: "simulation: time per seed", value: msPerSeed, unit: "ms" });
  }, 3_600_000);

  test("seeds that once failed do not", async () => {
    const file = new URL("regression-seeds.json", import.meta.url);
    const known = JSON.parse(readFileSync(file, "utf8")) as { seed: number; found: string }[];
    for (const { seed, found } of known) {
      const { problems } = await simulate({ seed });
      expect(problems, `seed ${seed}, again: ${found}`).toEqual([]);
    }
  });

  test(`${REPEATED} seeds repeated give equal fingerprints`, async () => {
    for (let seed = 1; seed <= REPEATED; seed++) {
      const [once, twice] = [await simulate({ seed }), await simulate({ seed })];
      expect(twice.hash, `seed ${seed}`).toBe(once.hash);
    }
  });
});
