/**
 * From `publish` to the first line of `prepare`, on a host with nothing else to do: one event at a time, in each of its
 * workflows in turn.
 *
 * L1. The clock starts before `publish` is called, and stops when the question that `prepare` asks first has arrived
 *     back in the host: event on disk, run on record, script entered, and one way out of the sandbox.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as after } from "node:timers/promises";
import { createHost, worlds } from "../../host/host.ts";
import { quantile } from "../measure.ts";
import { expectCommits } from "./drain.ts";
import { compiled, Ground, TOPIC, workflowName } from "./ground.ts";

const GAP_MS = 10;
const ANSWER = '{"status":200,"headers":{},"body":{}}';

export interface Latency {
  p50Ms: number;
  p99Ms: number;
  /** The first run of a workflow in this host: its isolate is made. */
  firstP50Ms: number;
}

export async function layLatency(workflows: number): Promise<Ground> {
  const source = readFileSync(join(import.meta.dirname, "latency.ts.txt"), "utf8");
  return Ground.lay(await compiled(source), workflows);
}

export async function latency(ground: Ground, rounds: number): Promise<Latency> {
  let [asked, ended] = [Promise.withResolvers<number>(), Promise.withResolvers<void>()];
  const read = () => {
    asked.resolve(performance.now()); // (L1)
    return { ok: true as const, value: ANSWER };
  };
  const observe = expectCommits(
    () => ended.resolve(),
    (error) => asked.reject(error),
  );
  const data = await ground.copy();
  await using host = createHost({ data, world: worlds.memory({ read }), observe });
  await host.start();
  const one = async (name: string, messageId: string): Promise<number> => {
    [asked, ended] = [Promise.withResolvers(), Promise.withResolvers()];
    await after(GAP_MS);
    const startMs = performance.now();
    const answer = await host.publish(name, { topic: TOPIC, messageId, payload: { id: messageId } });
    if (!answer.ok) throw new Error(answer.message);
    const atMs = await asked.promise;
    await ended.promise;
    return atMs - startMs;
  };
  const took: number[][] = [];
  for (let round = 0; round <= rounds; round++) {
    const times: number[] = [];
    for (let n = 0; n < ground.workflows; n++) times.push(await one(workflowName(n), `order-${round}`));
    took.push(times);
  }
  await host.stop();
  ground.drop(data);
  const sorted = (times: number[]): number[] => times.toSorted((a, b) => a - b);
  const [first = [], ...others] = took;
  const warm = sorted(others.flat());
  return {
    p50Ms: quantile(warm, 0.5),
    p99Ms: quantile(warm, 0.99),
    firstP50Ms: quantile(sorted(first), 0.5),
  };
}
