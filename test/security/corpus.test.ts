/**
 * Every hostile script against the real pool: its exact outcome, and that neither the host nor a neighbour noticed.
 * Times are asserted with a fivefold margin; with PAWL_PROOF=1 every script runs in every position and the exact
 * figures are written down.
 */
import { appendFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ERRORS } from "../../host/core/errors.ts";
import { DEFAULT_LIMITS, type SandboxResult, type Script } from "../../host/ports/sandbox.ts";
import { openPool, type Pool } from "../../host/sandbox/pool.ts";
import { callFor, noAnswers } from "../support/scripts.ts";
import { attackCall, benignScript, type Felt, felt, hostileScript } from "./arena.ts";
import { type Attack, LIMITS_AND_BOUNDARY, type Outcome, POSITIONS, type Position } from "./corpus.ts";
import { AUTHORITY_AND_PHASES } from "./corpus-authority.ts";

const CORPUS = [...LIMITS_AND_BOUNDARY, ...AUTHORITY_AND_PHASES];
const PROOF = process.env["PAWL_PROOF"] === "1";
const MB = 1_048_576;
const RSS_CAP_MB = 256;
const [GAP_MS, KILL_MS, MARGIN] = [250, 500, 5];
const GUARDS = ["cpu-limit", "wall-limit", "memory-limit", "sandbox-killed", "never-settles"];

let pool: Pool;
let hostile: Script;
let benign: Script;
let allowedRss: number;
const worst = { gapMs: 0, overMs: 0, rssMb: 0 };

beforeAll(async () => {
  pool = openPool({ maxChildren: 4, rssMb: RSS_CAP_MB, recycleRssMb: 150, isolatesPerChild: 4 });
  [hostile, benign] = await Promise.all([hostileScript(CORPUS), benignScript()]);
  const cgroup = (await pool.hardening()).layers.find((layer) => layer.name === "memory cgroup");
  allowedRss = (RSS_CAP_MB + (cgroup?.inForce ? 64 : 256)) * MB;
});

afterAll(async () => {
  await pool[Symbol.asyncDispose]();
  if (!PROOF) return;
  const held = (value: number, bound: number) => `bound ${bound}: ${value <= bound ? "held" : "NOT HELD"}`;
  write("hostile corpus: longest gap in the host's heartbeat", worst.gapMs, "ms", held(worst.gapMs, GAP_MS));
  write("hostile corpus: longest end after its deadline", worst.overMs, "ms", held(worst.overMs, KILL_MS));
  write("hostile corpus: largest child", worst.rssMb, "MB", held(worst.rssMb, allowedRss / MB));
});

const CASES = CORPUS.flatMap((attack, i) =>
  POSITIONS.filter((_, j) => PROOF || !attack.costly || j === i % POSITIONS.length).map(
    (position) => [`${attack.group}: ${attack.name}, in ${position}`, attack, position] as const,
  ),
);

describe("hostile scripts", () => {
  it.each(CASES)("%s", async (_, attack, position) => {
    const [seen, neighbour] = await Promise.all([
      felt(pool, attackCall(hostile, attack, position)),
      runBenign("neighbour"),
    ]);
    note(attack, position, seen);
    const expected = outcomeOf(attack, position);
    expect(told(seen.result, position)).toEqual(wanted(expected, position));
    expect(said(seen.result)).toContain("message" in expected ? expected.message : "");
    expectNothingLeaked(seen.result);
    expect(seen.heartbeatGapMs).toBeLessThanOrEqual(GAP_MS * MARGIN);
    expect(seen.tookMs).toBeLessThanOrEqual(deadlineMs(attack) + KILL_MS * MARGIN);
    expect(seen.peakRssBytes).toBeLessThanOrEqual(allowedRss);
    expectBenign(neighbour);
    expectBenign(await runBenign("test"));
  });
});

describe("the corpus itself", () => {
  it("names every script once and holds at least sixty", () => {
    expect(new Set(CORPUS.map(({ name }) => name)).size).toBe(CORPUS.length);
    expect(CORPUS.length).toBeGreaterThanOrEqual(60);
  });

  it("expects only codes that blame the script", () => {
    const codes = CORPUS.flatMap((attack) =>
      POSITIONS.map((position) => outcomeOf(attack, position)),
    ).flatMap((outcome) => ("code" in outcome ? [outcome.code] : []));
    expect([...new Set(codes)].filter((code) => ERRORS[code].blame !== "script")).toEqual([]);
  });
});

function outcomeOf({ outcome }: Attack, position: Position): Outcome {
  return "code" in outcome || "says" in outcome ? outcome : outcome[position];
}

function deadlineMs({ limits, deadlineMs, costly }: Attack): number {
  return deadlineMs ?? limits?.sectionMs ?? (costly ? 100 : DEFAULT_LIMITS.sectionMs);
}

function runBenign(namespace: string): Promise<SandboxResult> {
  return pool.run(callFor({ ...benign, namespace }, "producer", "count"), noAnswers);
}

function expectBenign(result: SandboxResult): void {
  expect(result).toMatchObject({
    status: "done",
    state: '{"count":1}',
    publishes: [{ topics: ["numbers"], messageId: "n", payload: "[2,4,6]" }],
  });
}

/** What a run came to, without what differs from time to time. */
function told(result: SandboxResult, position: Position): object {
  if (result.status !== "done")
    return { status: result.status, code: result.error.code, class: result.error.class };
  const { status, logs, publishes, state, prepared } = result;
  const json = position === "prepare" ? prepared?.json : state;
  return { status, says: logs.map((line) => line.message), publishes: publishes.length, json };
}

function wanted(outcome: Outcome, position: Position): object {
  if ("code" in outcome)
    return { status: "failed", code: outcome.code, class: outcome.class ?? ERRORS[outcome.code].class };
  const { says, publishes = 0, json = position === "prepare" ? "{}" : undefined } = outcome;
  return { status: "done", says, publishes, json };
}

function said(result: SandboxResult): string {
  return result.status === "done" ? "" : result.error.message;
}

/** The host's own objects are untouched, and nothing the author reads names a file of the host. */
function expectNothingLeaked(result: SandboxResult): void {
  expect(Object.keys(Object.prototype)).toEqual([]);
  expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
  const error = result.status === "done" ? undefined : result.error;
  const shown = [error?.message, error?.at, ...(error?.stack ?? [])].join("\n");
  expect(shown).not.toContain(process.cwd());
  expect(shown).not.toMatch(/node_modules|node:|file:\/\/|isolated-vm|prelude/);
  expect(error?.at ?? "hostile.js:1:1").toMatch(/^hostile\.js:\d+:\d+$/);
}

function note(
  attack: Attack,
  position: Position,
  { result, tookMs, heartbeatGapMs, peakRssBytes }: Felt,
): void {
  const code = result.status === "done" ? "done" : result.error.code;
  const killedAfterMs = GUARDS.includes(code) ? Math.round(tookMs) : undefined;
  worst.gapMs = Math.max(worst.gapMs, Math.round(heartbeatGapMs));
  worst.rssMb = Math.max(worst.rssMb, Math.round(peakRssBytes / MB));
  if (killedAfterMs !== undefined)
    worst.overMs = Math.max(worst.overMs, Math.round(tookMs - deadlineMs(attack)));
  if (!PROOF) return;
  const gap = Math.round(heartbeatGapMs);
  const rssMb = Math.round(peakRssBytes / MB);
  write(
    `hostile: ${attack.name}, ${position}`,
    Math.round(tookMs),
    "ms",
    `${code}; gap ${gap} ms; ${rssMb} MB`,
    {
      script: attack.name,
      position,
      code,
      killedAfterMs,
      heartbeatGapMs: gap,
      peakRss: peakRssBytes,
    },
  );
}

function write(name: string, value: number, unit: string, text: string, more: object = {}): void {
  const folder = join(import.meta.dirname, "../../test-results");
  mkdirSync(folder, { recursive: true });
  appendFileSync(
    join(folder, "measurements.jsonl"),
    `${JSON.stringify({ name, value, unit, note: text, ...more })}\n`,
  );
}
