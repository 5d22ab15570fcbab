/**
 * A host in a process of its own, as it would live on a server: what it takes to start, to serve again after a kill, and
 * to wait. Started by `residents.ts` with a data folder and what to report; says each finding as a line of JSON.
 *
 * R1. CPU time and memory are those of this process, its threads included; the sandbox's processes are told apart.
 * R2. Statements are heard where the driver executes them, so that none can be missed.
 */
import { setTimeout as after } from "node:timers/promises";
import Sqlite from "better-sqlite3";
import { createHost } from "../../host/host.ts";
import { expectCommits, outside } from "./drain.ts";

export interface Started {
  startMs: number;
  recovered: number;
}

export interface Idle {
  rssMb: number;
  /** Of one core, in percent. */
  cpuPercent: number;
  windowMs: number;
  /** Bursts of statements in the window: the scheduler's sweep, the store's heartbeat, and whatever else. */
  sweeps: number;
  heartbeats: number;
  others: string[];
}

export interface Working {
  runs: number;
  rssMb: number;
}

const SETTLE_MS = 2_000;
const APART_MS = 20;
const SWEEP = /FROM (workflows WHERE due_at|mutations WHERE next_check_at)/;
const HEARTBEAT = /^(BEGIN IMMEDIATE|COMMIT|UPDATE hosts SET heartbeat_at)/;
const MB = 1_048_576;

const [data = "", task = "", windowMs = "0"] = process.argv.slice(2);
const say = (finding: Started | Idle | Working): void => {
  process.stdout.write(`${JSON.stringify(finding)}\n`);
};
const rssMb = (): number => process.memoryUsage.rss() / MB;

interface Heard {
  atMs: number;
  sql: string;
}

/** (R2) */
function listen(): Heard[] {
  const heard: Heard[] = [];
  const memory = new Sqlite(":memory:");
  const statement = Object.getPrototypeOf(memory.prepare("SELECT 1")) as Record<
    string,
    (this: { source: string }, ...cells: unknown[]) => unknown
  >;
  memory.close();
  for (const verb of ["run", "get", "all", "iterate"]) {
    const original = statement[verb];
    statement[verb] = function hear(...cells) {
      heard.push({ atMs: performance.now(), sql: this.source });
      return original?.apply(this, cells);
    };
  }
  return heard;
}

function bursts(heard: Heard[]): string[][] {
  const all: string[][] = [];
  let lastMs = Number.NEGATIVE_INFINITY;
  for (const { atMs, sql } of heard) {
    if (atMs - lastMs > APART_MS) all.push([]);
    all.at(-1)?.push(sql);
    lastMs = atMs;
  }
  return all;
}

async function idle(): Promise<Idle> {
  const heard = listen();
  await after(SETTLE_MS);
  heard.length = 0;
  const cpu = process.cpuUsage();
  const startMs = performance.now();
  await after(Number(windowMs));
  const tookMs = performance.now() - startMs;
  const { user, system } = process.cpuUsage(cpu);
  const all = bursts(heard);
  return {
    rssMb: rssMb(),
    cpuPercent: ((user + system) / 1000 / tookMs) * 100,
    windowMs: tookMs,
    sweeps: all.filter((burst) => burst.some((sql) => SWEEP.test(sql))).length,
    heartbeats: all.filter((burst) => burst.some((sql) => HEARTBEAT.test(sql))).length,
    others: heard.map(({ sql }) => sql).filter((sql) => !SWEEP.test(sql) && !HEARTBEAT.test(sql)),
  };
}

let runs = 0;
const broke = (error: Error): never => {
  throw error;
};
const observe = expectCommits(() => say({ runs: ++runs, rssMb: rssMb() }), broke);
const host = createHost({ data, world: outside(), ...(task === "work" ? { observe } : {}) });
const startMs = performance.now();
const { recovered } = await host.start();
say({ startMs: performance.now() - startMs, recovered });
if (task === "idle") {
  say(await idle());
  await host.stop();
}
