import { expect, test } from "vitest";
import { simulate } from "./simulate.ts";

const SEEDS = process.env["PAWL_PROOF"] === "1" ? 100_000 : 200;

test("no seed breaks a law", async () => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const { problems, trace } = await simulate({ seed });
    expect(problems, `seed ${seed}\n${trace.slice(-60).join("\n")}`).toEqual([]);
  }
}, 3_600_000);
