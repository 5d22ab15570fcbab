import { describe, expect, test } from "vitest";
import { measure } from "../support/measure.ts";
import { doubles, momentsOf, SHAPE_NAMES, singles } from "./exhaust.ts";
import { story } from "./shrink.ts";
import { simulate, type SimulationOptions } from "./simulate.ts";

const PROOF = process.env["PAWL_PROOF"] === "1";
const CASES = SHAPE_NAMES.flatMap((shape) => [true, false].map((fused) => ({ shape, fused })));

async function survive(all: Iterable<SimulationOptions>): Promise<number> {
  let count = 0;
  for (const options of all) {
    const { problems } = await simulate(options);
    if (problems.length > 0) throw new Error(await story(options));
    count++;
  }
  return count;
}

describe("a host that dies at every moment, before, within and after each write, killed or without power", () => {
  test.each(CASES)("$shape, fused $fused: once", async (shape) => {
    const moments = await momentsOf(shape);
    expect(moments).toBeGreaterThan(20);
    const value = await survive(singles(shape, moments));
    const name = `simulation: single crash points, ${shape.shape}, ${shape.fused ? "fused" : "unfused"}`;
    measure({ suite: "simulation", name, value, unit: "crashes" });
  });

  test.runIf(PROOF).each(CASES)("$shape, fused $fused: and again while it recovers", async (shape) => {
    const value = await survive(doubles(shape, await momentsOf(shape)));
    expect(value).toBeGreaterThan(500);
    const name = `simulation: double crash points, ${shape.shape}, ${shape.fused ? "fused" : "unfused"}`;
    measure({ suite: "simulation", name, value, unit: "crashes" });
  });
});
