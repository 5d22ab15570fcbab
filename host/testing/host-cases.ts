/**
 * The connector in a whole host: does a decision end well, by itself where it can, with one effect, whatever happens?
 *
 * H1. However often the host tries, the outside has one effect in the end.
 * H2. Where the tool promises a proof the run ends by itself once all is well; where there is none a person is asked.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { RunDetail } from "../ports/records.ts";
import { type Fault, faultNames, HOLDING, type Outside } from "./faults.ts";
import { type Cast, inWords, Stage } from "./stage.ts";
import { type ConnectorSpec, type ContractCase, demand, openOn, proofOf, toolOf } from "./spec.ts";

const KILLS: readonly Fault[] = ["killed-before-effect", "killed-after-effect"];
const NEEDS_PERSON: readonly Fault[] = ["unauthorized", "forbidden"];
/** Many senders run the same code: only the first has to compile it. */
const CACHE = fileURLToPath(new URL("../../.cache/node", import.meta.url));
const SENDER = fileURLToPath(new URL("./sender.ts", import.meta.url));

export interface Job {
  from: string;
  connector: string;
  tool: string;
  config: unknown;
  secrets: unknown;
  input: Record<string, unknown>;
  data: string;
}

/** One host and one outside for all cases; new ones after a case that failed. */
interface Shared {
  stage: Stage;
  outside: Outside;
}

export function hostCases(spec: ConnectorSpec): { cases: ContractCase[]; close: () => Promise<void> } {
  let shared: Promise<Shared> | undefined;
  let n = 100;
  const close = async () => {
    const open = await shared;
    shared = undefined;
    await open?.stage[Symbol.asyncDispose]();
    await open?.outside[Symbol.asyncDispose]();
  };
  const onStage = async (fault: Fault) => {
    const { stage, outside } = await (shared ??= openOnce(spec));
    try {
      await ends(spec, stage, outside, fault, ++n);
    } catch (error) {
      await close();
      throw error;
    }
  };
  const cases = faultNames.map((fault): ContractCase => {
    const kills = KILLS.includes(fault);
    const skipped = spec.cannot?.[fault] ?? unfit(spec, fault);
    return {
      name: `${fault}: in a host, one effect in the end`,
      ...(skipped === undefined ? {} : { skipped }),
      run: () => (kills ? survives(spec, fault) : onStage(fault)),
    };
  });
  return { cases, close };
}

function unfit(spec: ConnectorSpec, fault: Fault): string | undefined {
  if (KILLS.includes(fault) && spec.from === undefined) return "no module to load the connector from";
  if (fault === "late-effect" && toolOf(spec).settleMs === 0)
    return "the tool says that no effect comes late";
  return undefined;
}

const castOf = ({ connector, tool }: ConnectorSpec, { config, secrets = {} }: Outside): Cast => ({
  connector,
  tool,
  config,
  secrets,
});

async function openOnce(spec: ConnectorSpec): Promise<Shared> {
  const outside = await spec.outside();
  return { outside, stage: await Stage.open(castOf(spec, outside)) };
}

async function ends(
  spec: ConnectorSpec,
  stage: Stage,
  outside: Outside,
  fault: Fault,
  n: number,
): Promise<void> {
  const before = await outside.effects();
  await outside.breakWith(fault);
  let isHeld = false;
  if (HOLDING.includes(fault)) void outside.held().then(() => (isHeld = true));
  await stage.ask(n, spec.input(n));
  await stage.until(
    (run) => run !== undefined && run.run.status !== "active",
    "an end of the call",
    () => isHeld,
  );
  await outside.release();
  await outside.heal();
  await concludes(spec, stage, outside, { fault, n, before });
}

/** All is well again: what becomes of the decision? */
async function concludes(
  spec: ConnectorSpec,
  stage: Stage,
  outside: Outside,
  { fault, n, before }: { fault: Fault; n: number; before: number },
): Promise<void> {
  const made = async () => (await outside.effects()) - before;
  const run = await stage.until(isOver, "an end of the run, or a question");
  demand((await made()) <= 1, `one decision had ${await made()} effects`); // (H1)
  if (run.run.status !== "committed") {
    const effects = await made();
    const unknown = run.run.status === "paused:reconciliation";
    const proof = proofOf(spec, openOn(spec, outside), n);
    const promised = proof === "key" || proof === "lookup" || (proof === "conditional" && effects === 0);
    if (unknown)
      demand(!promised, `class ${proof}, and a person is asked: ${inWords(run)}`); // (H2)
    else demand(NEEDS_PERSON.includes(fault), `all is well, and a person is asked: ${inWords(run)}`);
    await stage.decide(
      run,
      unknown ? { action: effects === 1 ? "applied" : "not-applied" } : { action: "retry" },
    );
    await stage.until((next) => next?.run.status === "committed", "an end after the person's answer");
  }
  demand((await made()) === 1, `the run is done, and ${await made()} effects were made`); // (H1)
}

/** Committed, or nothing will change by itself. */
function isOver(detail: RunDetail | undefined): boolean {
  if (!detail) return false;
  const { status, pauseReason } = detail.run;
  if (status === "paused:reconciliation") return pauseReason === "indeterminate" || pauseReason === "auth";
  if (status === "paused:transient") return pauseReason === "retries_exhausted" || pauseReason === "deadline";
  return status === "committed" || status === "paused:approval" || status.startsWith("failed:");
}

/** The process that sends is killed while its call is held; a new host goes on with its folder. */
async function survives(spec: ConnectorSpec, fault: Fault): Promise<void> {
  const data = mkdtempSync(join(tmpdir(), "pawl-conformance-"));
  await using outside = await spec.outside();
  try {
    await outside.breakWith(fault);
    await sendAndDie(spec, outside, data);
    await outside.release();
    await outside.heal();
    await using stage = await Stage.open(castOf(spec, outside), { data, isNew: false });
    await concludes(spec, stage, outside, { fault, n: 1, before: 0 });
  } finally {
    rmSync(data, { recursive: true, force: true });
  }
}

async function sendAndDie(spec: ConnectorSpec, outside: Outside, data: string): Promise<void> {
  const { connector, tool, from } = spec;
  const { config, secrets = {} } = outside;
  const names = { from: String(from), connector: connector.name, tool };
  const job: Job = { ...names, config, secrets, input: spec.input(1), data };
  const env = { NODE_COMPILE_CACHE: CACHE, ...process.env };
  const child = spawn(process.execPath, [SENDER], { env, stdio: ["pipe", "ignore", "pipe"] });
  let complaint = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (complaint += text));
  child.stdin.on("error", () => {}).end(JSON.stringify(job));
  const exited = once(child, "exit");
  const died = exited.then(() => demand(false, `the process that sends ended by itself: ${complaint}`));
  await Promise.race([outside.held(), died]);
  died.catch(() => {});
  child.kill("SIGKILL");
  await exited;
}
