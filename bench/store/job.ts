/**
 * The one job that every way of storing does: a consumer run in five recorded transitions (started, prepared, about to
 * send, answered, committed) that takes one event, makes one outside change with its ledger row, and publishes one event.
 *
 * J1. The engine's reads are part of a run: the workflow's facts before it starts, the pending event after.
 * J2. Levels are those of the storage table: only "about to send" waits for the disk.
 * J3. Transitions that fall due together share a Change, as they do in the engine: prepared with about to send. The
 *     naive way knows nothing of this and writes each by itself.
 */
import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { commit, emitting, intended, mutated, prepared, sending } from "../../host/core/advance.ts";
import { after, type Change, fuse } from "../../host/core/change.ts";
import { settleSchedule } from "../../host/core/close.ts";
import type { RunFacts, WorkflowFacts } from "../../host/core/facts.ts";
import type { Run } from "../../host/core/run.ts";
import { start } from "../../host/core/start.ts";
import { choose } from "../../host/core/trigger.ts";
import type { Manifest } from "../../host/core/workflow.ts";
import type { Level, Store } from "../../host/ports/store.ts";
import { openStore, type SqliteStore, type StoreOptions } from "../../host/store/open.ts";
import { deployed, ledgerRow, MANIFEST, must, publish } from "../../test/support/chain.ts";

const AT_MS = Date.UTC(2026, 0, 2, 3, 4, 5);
const CONSUMER_ONLY: Manifest = { ...MANIFEST, producers: {} };

/** As much of a store as a run needs. */
export type OneByOne = Pick<Store, "fence" | "newId" | "apply" | "workflow" | "pending">;

export interface Ways {
  /** Called with each Change just before it is applied. */
  watch?: (change: Change) => void;
  /** Every transition by itself (J3). */
  apart?: boolean;
}

async function oneRun(store: OneByOne, workflow: number, { watch, apart }: Ways): Promise<void> {
  const apply = async (change: Change, level: Level): Promise<void> => {
    watch?.(change);
    await must(store, change, level);
  };
  let facts = await begin(store, workflow, apply);
  const [event] = await store.pending(facts.handler.id, "order", { limit: 1 });
  if (!event) throw new Error("the bench published too few events");
  const reservations = [event.delivery];

  const ready = prepared(facts, { json: `{"orders":[${event.payload}]}`, reservations }, AT_MS);
  if (apart) await apply(ready, "applied");
  const chosen = { ...facts, run: after(facts.run, ready), reserved: reservations };

  const mutation = ledgerRow(store, chosen, AT_MS);
  const intent = intended(chosen, mutation, AT_MS);
  const decided = { ...chosen, run: after(chosen.run, intent), mutation };
  const send = { n: 1, atMs: AT_MS, bytesHash: "bytes", idempotencyKey: mutation.idempotencyKey };
  const sent = fuse(intent, sending(decided, send, AT_MS));
  const leaving = apart ? sent : fuse(ready, sent); // (J3)
  await apply(leaving, "durable"); // (J2)
  facts = { ...chosen, run: after(apart ? chosen.run : facts.run, leaving) };

  const flying = { ...facts, mutation: { ...mutation, status: "in_flight" as const, sends: 1 } };
  const answer = '{"status":201,"body":{"id":"entry-1"}}';
  const answered = mutated(flying, { status: "applied", result: answer }, AT_MS, answer);
  const next = emitting({ ...facts, run: after(facts.run, answered) }, AT_MS);
  const done = fuse(answered, next);
  await apply(done, "committed");
  facts = { ...facts, run: after(facts.run, done) };

  const { id } = facts.run;
  const publication = { topic: "booked", messageId: `b-${id}`, payload: answer, inputs: [], hops: 1 };
  const emission = { publications: [{ publication, subscribers: [] }], inputs: [] };
  await apply(commit(facts, emission, settleSchedule(facts, "ran", []), AT_MS), "committed");
}

/** (J1): one read; what the Change itself says is not read again. */
async function begin(
  store: OneByOne,
  id: number,
  apply: (change: Change, level: Level) => Promise<void>,
): Promise<RunFacts> {
  const workflow = (await store.workflow(id)) as WorkflowFacts;
  const choice = choose(workflow, AT_MS);
  if (choice.next !== "start") throw new Error(`nothing to start: ${choice.next}`);
  const { handler, trigger } = choice;
  const attempt = { id: store.newId(), host: store.fence.incarnation, fused: true };
  const change = start(workflow, handler, trigger, attempt, AT_MS);
  await apply(change, "committed");
  const created = change.writes.find((write) => write.do === "run.create");
  return { workflow, handler, run: created?.run as Run, reserved: [], released: [] };
}

/** A database in which so many workflows have so many events waiting, kept to be copied for each measurement. */
export class Ground implements Disposable {
  readonly workflows: number[] = [];
  readonly #folder = mkdtempSync(join(tmpdir(), "pawl-bench-"));
  #copies = 0;

  static async lay(workflows: number, events: number): Promise<Ground> {
    const ground = new Ground();
    await using store = openStore({ data: ground.#folder, nowMs: () => AT_MS });
    for (let n = 0; n < workflows; n++)
      ground.workflows.push(await deployed(store, `w${n}`, AT_MS, CONSUMER_ONLY));
    const ids = Array.from({ length: events }, (_, n) => `order-${n}`);
    await Promise.all(ground.workflows.map((workflow) => publish(store, workflow, ids, AT_MS)));
    return ground;
  }

  /** A folder of its own with the same database in it. */
  copy(): string {
    const folder = mkdtempSync(join(this.#folder, `copy-${this.#copies++}-`));
    copyFileSync(join(this.#folder, "pawl.db"), join(folder, "pawl.db"));
    return folder;
  }

  open(group: StoreOptions["group"] = {}): SqliteStore {
    return openStore({ data: this.copy(), nowMs: () => AT_MS, group });
  }

  [Symbol.dispose](): void {
    rmSync(this.#folder, { recursive: true });
  }
}

/** Every workflow makes so many runs, one after another; all workflows at once. */
export async function allRuns(
  store: OneByOne,
  ground: Ground,
  runsEach: number,
  ways: Ways = {},
): Promise<void> {
  const one = async (workflow: number): Promise<void> => {
    for (let n = 0; n < runsEach; n++) await oneRun(store, workflow, ways);
  };
  await Promise.all(ground.workflows.map(one));
}
