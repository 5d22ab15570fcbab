/**
 * Databases to measure on: so many workflows deployed and settled, nothing due; kept to be copied, and stocked with
 * events, for each measurement.
 *
 * G1. Every workflow is the consumer of `bench/sandbox` with a producer beside it, deployed under a name of its own by
 *     the engine's own code, compiled once.
 * G2. The runs that a deploy asks for are made before anything is measured, by an engine with a sandbox that does nothing.
 */
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { publish } from "../../host/core/publish.ts";
import { Engine } from "../../host/engine/engine.ts";
import type { Parts } from "../../host/engine/parts.ts";
import { policiesOf } from "../../host/engine/policies.ts";
import { scriptsOf } from "../../host/engine/scripts.ts";
import type { Compilation, Sandbox, SandboxResult } from "../../host/ports/sandbox.ts";
import type { Store } from "../../host/ports/store.ts";
import { worlds } from "../../host/host.ts";
import { compileScript } from "../../host/sandbox/compile.ts";
import { openStore, type SqliteStore } from "../../host/store/open.ts";
import { systemClock } from "../../host/system/clock.ts";
import { order } from "../sandbox/job.ts";

export const TOPIC = "order.placed";
const AT_ONCE = 200;
const PRODUCER = `producers: { poll: producer({ schedule: { interval: "6h" }, async handler() {} }) },
  consumers: {`;

type Made = Compilation & { ok: true };

export const workflowName = (n: number): string => `bench-${n}`;

/** (G1) */
export async function compiledWorkflow(): Promise<Made> {
  const consumer = readFileSync(join(import.meta.dirname, "../sandbox/consumer.ts.txt"), "utf8");
  const source = consumer.replace("import { ", "import { producer, ").replace("consumers: {", PRODUCER);
  return compiled(source);
}

export async function compiled(source: string): Promise<Made> {
  const made = await compileScript({ source, language: "ts", file: "bench.ts", nowMs: Date.now() });
  if (!made.ok) throw new Error(made.problems.map((one) => `${one.code} ${one.message}`).join("\n"));
  return made;
}

export class Ground implements Disposable {
  readonly workflows: number;
  readonly #folder = mkdtempSync(join(tmpdir(), "pawl-bench-"));
  #copies = 0;

  private constructor(workflows: number) {
    this.workflows = workflows;
  }

  static async lay(made: Made, workflows: number): Promise<Ground> {
    const ground = new Ground(workflows);
    await using store = openStore({ data: ground.#folder, nowMs: Date.now });
    const { producers, consumers } = made.script.manifest;
    let left = workflows * (Object.keys(producers).length + Object.keys(consumers).length);
    const settled = Promise.withResolvers<void>();
    const parts = idleParts(store, () => --left === 0 && settled.resolve());
    const engine = new Engine(parts, { slots: AT_ONCE, compile: async () => made });
    const upload = { source: "", file: "bench.ts", language: "ts" as const };
    await eachOf(workflows, async (n) => {
      await engine.deploys.deploy({ namespace: "default", name: workflowName(n), upload, by: "bench" });
    });
    await engine.start(); // (G2)
    await settled.promise;
    await engine.stop();
    return ground;
  }

  /** A folder of its own with the same database in it, and so many events waiting for each of the first `among`. */
  async copy(eventsEach = 0, among = this.workflows): Promise<string> {
    const folder = mkdtempSync(join(this.#folder, `copy-${this.#copies++}-`));
    copyFileSync(join(this.#folder, "pawl.db"), join(folder, "pawl.db"));
    if (eventsEach > 0) {
      await using store = openStore({ data: folder, nowMs: Date.now });
      await eachOf(among, (n) => stock(store, workflowName(n), eventsEach));
    }
    return folder;
  }

  drop(folder: string): void {
    rmSync(folder, { recursive: true });
  }

  [Symbol.dispose](): void {
    rmSync(this.#folder, { recursive: true });
  }
}

/** So many at a time, so that their fsyncs are shared. */
async function eachOf(count: number, work: (n: number) => Promise<void>): Promise<void> {
  let next = 0;
  const one = async (): Promise<void> => {
    while (next < count) await work(next++);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, one));
}

async function stock(store: SqliteStore, name: string, events: number): Promise<void> {
  const id = await store.workflowId("default", name, Date.now());
  const workflow = await store.workflow(id);
  const { manifest } = await scriptsOf(store).script(id, workflow?.activeVersion ?? 0);
  if (!workflow) throw new Error(`${name} is not deployed`);
  const incoming = Array.from({ length: events }, (_, n) => {
    const messageId = `order-${n}`;
    return { topic: TOPIC, messageId, payload: JSON.stringify({ ...order, id: messageId }) };
  });
  const change = publish(workflow, manifest, incoming, Date.now());
  const result = await store.apply(change, { level: "durable", fence: store.fence });
  if (!result.ok) throw new Error(`${name}: ${result.because}`);
}

/** An engine whose scripts do nothing and take no time (G2). */
function idleParts(store: Store, ended: () => void): Parts {
  return {
    store,
    sandbox: doesNothing,
    world: worlds.memory(),
    clock: systemClock,
    policies: policiesOf([]),
    scripts: scriptsOf(store),
    downtime: [],
    fused: true,
    hash: () => "",
    tell: ({ kind }) => kind === "run.ended" && ended(),
  };
}

const NOTHING: SandboxResult = {
  status: "done",
  prepared: { json: "{}", reservations: [] },
  publishes: [],
  inputs: [],
  logs: [],
  transcript: [],
  usage: { cpuMs: 0, wallMs: 0, heapBytes: 0, hostCalls: 0, scope: "frozen" },
};
const doesNothing = {
  run: async () => NOTHING,
  async [Symbol.asyncDispose]() {},
} as unknown as Sandbox;
