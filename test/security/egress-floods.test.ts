// Answers that do not want to end: each is cut off at its cap, and none of them fills the host's memory (06, 08).
import { spawn } from "node:child_process";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { ENDED_BY_TIME, FLOODS, floodServer, GZIP_BYTES } from "../support/floods.ts";
import type { FloodReport } from "../support/flooded-client.ts";
import { measure } from "../support/measure.ts";

const CLIENT = fileURLToPath(new URL("../support/flooded-client.ts", import.meta.url));
const MOST_GROWTH_BYTES = 32 * 1_048_576;
/** Of those that drip for ever. */
const SHORT_MS = 200;
/** Of those that end by what they send: far more than that takes. */
const LONG_MS = 30_000;

test("bombs, drips and answers without end are capped, with at most 32 MiB of memory for all of them (Q4)", async () => {
  await using server = await floodServer();
  const names = Object.keys(FLOODS);
  const floods = names.map((name) => ({ name, totalMs: ENDED_BY_TIME.includes(name) ? SHORT_MS : LONG_MS }));
  const child = spawn(process.execPath, [CLIENT], { stdio: ["pipe", "pipe", "inherit"] });
  child.stdin.end(JSON.stringify({ url: server.url, floods }));
  const { reports, growthBytes } = JSON.parse(await text(child.stdout)) as {
    reports: FloodReport[];
    growthBytes: number;
  };
  expect(reports.map(({ name }) => name)).toEqual(names);
  const byTime = reports.filter(({ name }) => ENDED_BY_TIME.includes(name));
  expect(byTime.map(({ name, outcome }) => [name, outcome])).toEqual(
    byTime.map(({ name }) => [name, "timeout"]),
  );
  expect(Math.max(...byTime.map(({ tookMs }) => tookMs))).toBeLessThan(SHORT_MS * 25);
  const ends = ["too-large", "undecodable", "broken", "1 bytes", `${GZIP_BYTES} bytes`];
  const others = reports.filter(({ name }) => !ENDED_BY_TIME.includes(name));
  expect(others.filter(({ outcome }) => !ends.includes(outcome))).toEqual([]);
  const outcomes = Object.fromEntries(reports.map(({ name, outcome }) => [name, outcome]));
  for (const bomb of ["gzip bomb", "brotli bomb", "deflate bomb", "concatenated gzip"])
    expect([bomb, outcomes[bomb]]).toEqual([bomb, "too-large"]);
  expect(outcomes["nested gzip"]).toBe("undecodable");
  expect(outcomes["gzip of gzip"]).toBe(`${GZIP_BYTES} bytes`);
  // Only the first of many answers is anybody's.
  expect(reports.filter(({ outcome }) => outcome === "1 bytes").map(({ name }) => name)).toEqual([
    "answers without end",
  ]);
  measure({ suite: "egress", name: "floods capped", value: reports.length, unit: "answers" });
  measure({ suite: "egress", name: "memory growth over all floods", value: growthBytes, unit: "bytes" });
  expect(growthBytes).toBeLessThanOrEqual(MOST_GROWTH_BYTES);
});
