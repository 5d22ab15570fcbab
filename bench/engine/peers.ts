/**
 * Who the engine is measured against, in the same process and the same minute.
 *
 * P1. The sandbox alone: the same script, the same pool with the same options, as many workflows in rotation and, where
 *     it is compared, as many calls at once as the host has slots; no store, no schedule, no ledger.
 * P2. OpenWorkflow on SQLite, as it comes: three steps that do next to nothing, in this process without any sandbox. Its
 *     runs are created beforehand and not timed; it gets the better of two numbers of workers.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { OpenWorkflow } from "openworkflow";
import { BackendSqlite } from "openworkflow/sqlite";
import type { Script } from "../../host/ports/sandbox.ts";
import { openPool } from "../../host/sandbox/pool.ts";
import { sample } from "../measure.ts";
import { order, runInPool } from "../sandbox/job.ts";

/** Runs at once: what a host has by default. */
export const SLOTS = 16;
const WORKERS = [SLOTS, 100];
/** Runs of each script in which its isolate is made and its code gets warm. */
export const WARM = 5;

export interface Alone {
  perSecond: number;
  /** Isolates made per workflow: 1 when each was kept. */
  isolates: number;
}

/** (P1) */
export async function sandboxAlone(
  script: Script,
  { workflows, clients }: { workflows: number; clients: number },
  forMs: number,
): Promise<Alone> {
  await using pool = openPool();
  const scripts = Array.from({ length: workflows }, (_, n) => ({ ...script, workflow: `bench-${n}` }));
  let turn = 0;
  const inTurn = () => runInPool(pool, scripts[turn++ % workflows] as Script, "auto");
  const warm = async (): Promise<void> => {
    while (turn < workflows * WARM) await inTurn();
  };
  await Promise.all(Array.from({ length: clients }, warm));
  const { perSecond } = await sample(inTurn, forMs, clients);
  return { perSecond, isolates: pool.stats().isolates / workflows };
}

export interface Peer {
  perSecond: number;
  workers: number;
  setting: string;
}

/** (P2) */
export async function openWorkflow(workflows: number, runs: number): Promise<Peer> {
  const all: Peer[] = [];
  for (const workers of WORKERS) all.push(await openWorkflowWith(workers, workflows, runs));
  return all.reduce((best, one) => (one.perSecond > best.perSecond ? one : best));
}

async function openWorkflowWith(workers: number, workflows: number, runs: number): Promise<Peer> {
  const folder = mkdtempSync(join(tmpdir(), "pawl-bench-"));
  const backend = BackendSqlite.connect(join(folder, "runs.db"));
  const client = new OpenWorkflow({ backend });
  const finished = Promise.withResolvers<void>();
  let done = 0;
  const defined = Array.from({ length: workflows }, (_, n) =>
    client.defineWorkflow<typeof order, { booked: number }>(
      { name: `bench-${n}` },
      async ({ input, step }) => {
        const prepared = await step.run({ name: "prepare" }, () => ({
          orderId: input.id,
          lines: input.lines,
        }));
        const answer = await step.run({ name: "mutate" }, () => ({ status: 201, body: { id: "entry-1" } }));
        await step.run({ name: "next" }, () => ({ orderId: prepared.orderId, entryId: answer.body.id }));
        if (++done === runs) finished.resolve();
        return { booked: 1 };
      },
    ),
  );
  for (let n = 0; n < runs; n++) await defined[n % workflows]?.run({ ...order, id: `order-${n}` });
  const worker = client.newWorker({ concurrency: workers });
  const startMs = performance.now();
  await worker.start();
  await finished.promise;
  const tookMs = performance.now() - startMs;
  await worker.stop();
  const setting = settingOf(backend);
  await backend.stop();
  rmSync(folder, { recursive: true });
  return { perSecond: (runs / tookMs) * 1000, workers, setting };
}

/** Read from its own connection: `synchronous` belongs to a connection, not to the file. */
function settingOf(backend: BackendSqlite): string {
  const { db } = backend as unknown as { db: { prepare(sql: string): { get(): Record<string, unknown> } } };
  return ["journal_mode", "synchronous"]
    .map((name) => `${name}=${String(db.prepare(`PRAGMA ${name}`).get()[name])}`)
    .join(", ");
}
