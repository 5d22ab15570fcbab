/**
 * Runs that wait are made by a host as it is shipped: store on disk, real isolates, default settings; only the outside
 * answers from memory, at once.
 *
 * D1. Nothing is counted that is not committed, with its outside change in the ledger as applied; the database says so
 *     afterwards.
 * D2. The first runs of each workflow, in which its isolate is made, are left out unless they are what is measured.
 */
import { join } from "node:path";
import Sqlite from "better-sqlite3";
import { createHost, type HostEvent, worlds } from "../../host/host.ts";
import { quantile } from "../measure.ts";

/** What the ledger answers in `bench/sandbox`, too. */
const ANSWER = JSON.stringify({ status: 201, headers: {}, body: { id: "entry-1" } });

export const outside = () =>
  worlds.memory({ send: () => ({ outcome: "applied", result: ANSWER, raw: ANSWER }) });

export interface Drained {
  perSecond: number;
  /** From the end of a run to the end of the next: a whole run when one workflow is alone. */
  p50Ms: number;
  p99Ms: number;
  /** Of the host process, its disk thread included; scripts run in processes of their own. */
  hostCpuMs: number;
}

/** Calls `ended` for each run; anything but a commit is an error. */
export function expectCommits(ended: () => void, failed: (error: Error) => void): (event: HostEvent) => void {
  return (event) => {
    if (event.kind === "engine.warning") failed(new Error(event.message));
    if (event.kind !== "run.ended") return;
    const { status, error } = event.facts.run;
    if (status === "committed") ended();
    else failed(new Error(`a run ended as ${status}: ${error?.message}`));
  };
}

/** Makes the first `runs` runs of the stock in `data`; of these, the first `warm` are left out (D2). */
export async function drain(data: string, runs: number, warm: number): Promise<Drained> {
  const all = Promise.withResolvers<void>();
  const endedMs: number[] = [];
  let cpu = process.cpuUsage();
  const ended = (): void => {
    const count = endedMs.push(performance.now());
    if (count === warm + 1) cpu = process.cpuUsage();
    if (count !== runs) return;
    cpu = process.cpuUsage(cpu);
    all.resolve();
  };
  await using host = createHost({ data, world: outside(), observe: expectCommits(ended, all.reject) });
  await host.start();
  await all.promise;
  await host.stop();
  mustBeDone(data, runs);
  return summary(endedMs.slice(warm, runs), cpu);
}

function summary(endedMs: number[], cpu: NodeJS.CpuUsage): Drained {
  const tookMs = endedMs.slice(1).map((atMs, n) => atMs - (endedMs[n] ?? Number.NaN));
  const allMs = tookMs.reduce((sum, ms) => sum + ms, 0);
  tookMs.sort((a, b) => a - b);
  return {
    perSecond: (tookMs.length / allMs) * 1000,
    p50Ms: quantile(tookMs, 0.5),
    p99Ms: quantile(tookMs, 0.99),
    hostCpuMs: (cpu.user + cpu.system) / 1000 / tookMs.length,
  };
}

/** (D1) */
function mustBeDone(data: string, runs: number): void {
  const db = new Sqlite(join(data, "pawl.db"), { readonly: true });
  const count = (sql: string): number => db.prepare(sql).pluck().get() as number;
  const applied = count("SELECT count(*) FROM mutations WHERE status = 'applied'");
  const consumed = count("SELECT count(*) FROM deliveries WHERE status = 'consumed'");
  db.close();
  if (applied < runs || consumed !== applied)
    throw new Error(`of ${runs} runs ${applied} made their change and ${consumed} consumed their event`);
}
