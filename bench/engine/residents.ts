/** Starts hosts in processes of their own, ends them, and times what they say (`resident.ts`). */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { Ground } from "./ground.ts";
import type { Idle, Started, Working } from "./resident.ts";

const PROGRAM = fileURLToPath(new URL("resident.ts", import.meta.url));

class Resident {
  readonly #process: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  readonly #startMs = performance.now();

  constructor(data: string, task: "idle" | "work", windowMs = 0) {
    this.#process = spawn(process.execPath, [PROGRAM, data, task, String(windowMs)], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    if (!this.#process.stdout) throw new Error("no pipe");
    this.#lines = createInterface({ input: this.#process.stdout })[Symbol.asyncIterator]();
  }

  async hear<Finding>(): Promise<Finding> {
    const { value, done } = (await this.#lines.next()) as IteratorResult<string, undefined>;
    if (done || value === undefined) throw new Error("the host ended before it had said everything");
    return JSON.parse(value) as Finding;
  }

  get ageMs(): number {
    return performance.now() - this.#startMs;
  }

  async ended(): Promise<void> {
    if (this.#process.exitCode === null && this.#process.signalCode === null)
      await once(this.#process, "exit");
  }

  async kill(): Promise<void> {
    this.#process.kill("SIGKILL");
    await this.ended();
  }
}

/** A host that has nothing to do, watched for so long. */
export async function watchIdle(ground: Ground, windowMs: number): Promise<Idle> {
  const data = await ground.copy();
  const resident = new Resident(data, "idle", windowMs);
  await resident.hear<Started>();
  const found = await resident.hear<Idle>();
  await resident.ended();
  ground.drop(data);
  return found;
}

export interface Restart {
  /** A first start, and one after a kill in full work: from the call of `start` until it serves. */
  coldMs: number;
  recoveryMs: number;
  recovered: number;
  /** From the birth of the second process until the first run is committed. */
  firstRunMs: number;
  rssMb: number;
}

/** A host with work for everybody is killed after so many runs, and started again. */
export async function restart(ground: Ground, eventsEach: number, runs: number): Promise<Restart> {
  const data = await ground.copy(eventsEach);
  const first = new Resident(data, "work");
  const cold = await first.hear<Started>();
  for (let heard = 0; heard < runs; ) heard = (await first.hear<Working>()).runs;
  await first.kill();
  const second = new Resident(data, "work");
  const again = await second.hear<Started>();
  await second.hear<Working>();
  const firstRunMs = second.ageMs;
  let working: Working = { runs: 0, rssMb: 0 };
  while (working.runs < runs) working = await second.hear<Working>();
  await second.kill();
  ground.drop(data);
  return {
    coldMs: cold.startMs,
    recoveryMs: again.startMs,
    recovered: again.recovered,
    firstRunMs,
    rssMb: working.rssMb,
  };
}
