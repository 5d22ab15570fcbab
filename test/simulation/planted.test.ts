import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { measure } from "../support/measure.ts";
import { Garden } from "../support/planted.ts";
import { BUGS } from "./planted-bugs.ts";

/** So many seeds are tried, and between them every single crash of some shapes. */
const SEEDS = 300;

const garden = new Garden(["host", "migrations", "test/simulation"]);
afterAll(() => garden.clear());

/** Which seed found a bug the last time. Only where to look first: what it no longer finds is looked for as ever. */
const found = JSON.parse(readFileSync(new URL("planted-seeds.json", import.meta.url), "utf8")) as Record<
  string,
  number
>;

function hunt(copy: string, seeds: number, what = ""): { by?: string; problem?: string } {
  const known = found[what] === undefined ? [] : [String(found[what])];
  const args = ["--no-warnings", join(copy, "test/simulation/hunt.ts"), String(seeds), ...known];
  const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
  if (stdout === "") throw new Error(stderr);
  return JSON.parse(stdout) as { by?: string; problem?: string };
}

describe("bugs planted in a copy of the host", () => {
  let caught = 0;
  afterAll(() =>
    measure({
      suite: "simulation",
      name: `simulation: planted bugs caught, of ${BUGS.length}`,
      value: caught,
      unit: "bugs",
    }),
  );

  test("nothing is caught where nothing is planted", () => {
    expect(hunt(garden.plant([]), 10)).toEqual({});
  });

  test.each(BUGS.map(([what, ...patches]) => ({ what, patches })))(
    "caught: $what",
    ({ what, patches }) => {
      const { by, problem } = hunt(garden.plant(patches), SEEDS, what);
      expect(by, `nobody noticed: ${what}`).toBeDefined();
      caught++;
      process.stdout.write(`planted "${what}" was caught by ${by}: ${problem?.slice(0, 150)}\n`);
    },
    300_000,
  );
});
