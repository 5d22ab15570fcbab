/**
 * A store for a host: opened, and if it comes from a backup, settled first (02 §7): every workflow paused, its open run no
 * longer believed blindly, a person told what is missing. Killed half-way it is settled again, and nothing is done twice.
 */
import type { Database } from "better-sqlite3";
import type { Change } from "../core/change.ts";
import type { RunFacts, WorkflowFacts } from "../core/facts.ts";
import type { EpochMs } from "../core/ids.ts";
import { restoreRun, restoreWorkflow } from "../core/restore.ts";
import { inspect, workflowIds } from "./doctor.ts";
import { openStore, type SqliteStore, type StoreOptions } from "./open.ts";

/** What was found in a backup. */
export interface Restored {
  backedUpAtMs: EpochMs;
  workflows: number;
  epoch: number;
}

export async function openSettled(
  options: StoreOptions,
): Promise<{ store: SqliteStore; restored?: Restored }> {
  const store = openStore(options);
  try {
    const restored = await settle(store, options.nowMs);
    return { store, ...(restored ? { restored } : {}) };
  } catch (error) {
    await store[Symbol.asyncDispose]().catch(() => {});
    throw error;
  }
}

async function settle(store: SqliteStore, nowMs: () => EpochMs): Promise<Restored | undefined> {
  const { fence, restoring: backedUpAtMs } = store;
  if (backedUpAtMs === undefined) return undefined;
  let workflows = 0;
  for (const id of workflowIds(store.db)) {
    workflows++;
    if (isSettled(store.db, id, backedUpAtMs)) continue;
    const attempt = { id: store.newId(), host: fence.incarnation, fused: false };
    const restoring = { backedUpAtMs, atMs: nowMs(), attempt };
    const facts = (await store.workflow(id)) as WorkflowFacts;
    if (facts.openRun) {
      const run = (await store.run(facts.openRun.id)) as RunFacts;
      const change = restoreRun(run, { ...restoring, inbox: store.newId() });
      if (change) await applied(store, change);
    }
    const now = (await store.workflow(id)) as WorkflowFacts;
    await applied(store, restoreWorkflow(now, { ...restoring, inbox: store.newId() }));
  }
  await store.maintain(() => store.db.prepare("DELETE FROM meta WHERE key = 'restoring'").run(), "durable");
  return { backedUpAtMs, workflows, epoch: fence.epoch };
}

/** The item that names the gap is written last. */
function isSettled(db: Database, workflow: number, backedUpAtMs: EpochMs): boolean {
  const told = db.prepare(
    `SELECT 1 FROM inbox WHERE workflow = ? AND kind = 'missed_schedule' AND closed_at IS NULL AND
     detail_json ->> '$.restored' = 1 AND detail_json ->> '$.fromMs' = ?`,
  );
  return told.get(workflow, backedUpAtMs) !== undefined;
}

async function applied(store: SqliteStore, change: Change): Promise<void> {
  const result = await store.apply(change, { level: "applied", fence: store.fence });
  if (!result.ok) throw new Error(`${change.verb} was refused while nobody else was here: ${result.because}`);
}

/** What is broken in the open work, told and never repaired; a workflow at a time, between the turns of the loop. */
export async function examineOpenWork(
  db: Database,
  tell: (message: string) => void,
  isOver: () => boolean,
): Promise<void> {
  const page = db
    .prepare("SELECT id FROM workflows WHERE id > ? AND open_run IS NOT NULL ORDER BY id LIMIT 500")
    .pluck();
  for (let after = 0; ; ) {
    const ids = isOver() ? [] : (page.all(after) as number[]);
    for (const id of ids) {
      if (isOver()) return;
      for (const { invariant, message } of inspect(db, { workflow: id, quick: true }))
        tell(`invariant ${invariant} is broken in workflow ${id}, run pawl doctor: ${message}`);
      await new Promise((resolve) => setImmediate(resolve));
    }
    const last = ids.at(-1);
    if (last === undefined) return;
    after = last;
  }
}
