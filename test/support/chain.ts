/** Drives a store through runs the way the engine will: reads facts, decides by the core, applies. */
import {
  commit,
  emitting,
  intended,
  mutated,
  type PreparedResult,
  prepared,
  sending,
} from "../../host/core/advance.ts";
import { after, type Change } from "../../host/core/change.ts";
import { settleSchedule } from "../../host/core/close.ts";
import { deploy } from "../../host/core/deploy.ts";
import type { RunFacts, WorkflowFacts } from "../../host/core/facts.ts";
import type { Mutation } from "../../host/core/mutation.ts";
import { start } from "../../host/core/start.ts";
import { choose } from "../../host/core/trigger.ts";
import type { Manifest } from "../../host/core/workflow.ts";
import type { Applied, Level, Store } from "../../host/ports/store.ts";

export const MANIFEST: Manifest = {
  name: "orders",
  description: "",
  connections: { bank: "http" },
  topics: { order: { output: false }, booked: { output: true } },
  params: {},
  hooks: {},
  producers: { poll: { schedule: { interval: "5m", intervalMs: 300_000 }, publishes: ["order"] } },
  consumers: { book: { subscribes: ["order"], publishes: ["booked"], hasMutate: true, hasNext: true } },
};

export async function must(
  store: Pick<Store, "apply" | "fence">,
  change: Change,
  level: Level = "applied",
): Promise<Applied> {
  const result = await store.apply(change, { level, fence: store.fence });
  if (!result.ok) throw new Error(`${change.verb} was refused: ${result.because}`);
  return result;
}

export async function deployed(
  store: Store,
  name: string,
  nowMs: number,
  manifest: Manifest = MANIFEST,
  namespace = "default",
): Promise<number> {
  const id = await store.workflowId(namespace, name, nowMs);
  const workflow = (await store.workflow(id)) as WorkflowFacts;
  const number = workflow.activeVersion + 1;
  const change = deploy(
    workflow,
    undefined,
    {
      number,
      manifest,
      by: "test",
      orphans: "keep",
      newId: () => store.newId(),
      version: {
        number,
        hash: `h${number}`,
        language: "ts",
        source: "",
        code: "",
        manifest,
        scope: "frozen",
      },
    },
    nowMs,
  );
  await must(store, change, "durable");
  return id;
}

export const handlerOf = (workflow: WorkflowFacts, name: string) => {
  const found = workflow.handlers.find((one) => one.name === name);
  if (!found) throw new Error(`no handler ${name}`);
  return found;
};

export async function publish(
  store: Store,
  workflow: number,
  ids: string[],
  nowMs: number,
): Promise<Applied> {
  const facts = (await store.workflow(workflow)) as WorkflowFacts;
  const subscribers = [handlerOf(facts, "book").id];
  return must(
    store,
    {
      verb: "publish",
      workflow,
      atMs: nowMs,
      expect: { generation: facts.generation },
      writes: ids.map((messageId) => ({
        do: "publish",
        publication: {
          topic: "order",
          messageId,
          payload: JSON.stringify({ messageId }),
          inputs: [],
          hops: 0,
        },
        subscribers,
      })),
    },
    "durable",
  );
}

/** Starts whatever the trigger rule says is next. */
export async function begin(
  store: Store,
  workflow: number,
  nowMs: number,
  level: Level = "committed",
): Promise<RunFacts> {
  const facts = (await store.workflow(workflow)) as WorkflowFacts;
  const choice = choose(facts, nowMs);
  if (choice.next !== "start") throw new Error(`nothing to start: ${choice.next}`);
  const id = store.newId();
  const attempt = { id, host: store.fence.incarnation, fused: true };
  await must(store, start(facts, choice.handler, choice.trigger, attempt, nowMs), level);
  return (await store.run(id)) as RunFacts;
}

function next(facts: RunFacts, change: Change): RunFacts {
  return { ...facts, run: after(facts.run, change) };
}

export const ledgerRow = (store: Pick<Store, "newId">, facts: RunFacts, nowMs: number): Mutation => ({
  id: store.newId(),
  originRun: facts.run.id,
  ownerRun: facts.run.id,
  status: "proposed",
  alias: "bank",
  connection: "bank",
  configVersion: 1,
  tool: "post",
  args: '{"path":"/x"}',
  description: "Post /x",
  proof: "none",
  idempotencyKey: `key-${facts.run.rootId}`,
  n: 0,
  sends: 0,
  settleMs: 30_000,
  checks: 0,
  createdAtMs: nowMs,
});

/** A whole consumer run: prepare one delivery, one outside change, one event. Five transitions. */
export async function wholeRun(store: Store, workflow: number, nowMs: number): Promise<RunFacts> {
  let facts = await begin(store, workflow, nowMs);
  const [event] = await store.pending(facts.handler.id, "order", { limit: 1 });
  const result: PreparedResult = { json: '{"data":1}', reservations: event ? [event.delivery] : [] };
  const ready = prepared(facts, result, nowMs);
  await must(store, ready, "applied");
  facts = { ...next(facts, ready), reserved: result.reservations };
  const mutation = ledgerRow(store, facts, nowMs);
  const intent = intended(facts, mutation, nowMs);
  await must(store, intent, "applied");
  facts = { ...next(facts, intent), mutation };
  const send = { n: 1, atMs: nowMs, bytesHash: "b", idempotencyKey: mutation.idempotencyKey };
  const sent = sending({ ...facts, mutation }, send, nowMs);
  await must(store, sent, "durable");
  facts = next(facts, sent);
  const flying = { ...mutation, status: "in_flight" as const, sends: 1 };
  const done = mutated({ ...facts, mutation: flying }, { status: "applied", result: "{}" }, nowMs, "{}");
  await must(store, done, "committed");
  facts = next(facts, done);
  const on = emitting(facts, nowMs);
  await must(store, on, "applied");
  facts = next(facts, on);
  const publications = [
    {
      publication: { topic: "booked", messageId: `b-${facts.run.id}`, payload: "{}", inputs: [], hops: 1 },
      subscribers: [],
    },
  ];
  await must(
    store,
    commit(facts, { publications, inputs: [] }, settleSchedule(facts, "ran", []), nowMs),
    "committed",
  );
  return (await store.run(facts.run.id)) as RunFacts;
}
