/**
 * What an operator does with a running store: a backup into the folder beside it, and the proof that its journal and
 * tables agree. Both on a thread of their own.
 *
 * U1. Nobody who asks names a path: backups go into one folder, under a name of the host's.
 */
import { once } from "node:events";
import { statSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { backup } from "./backup.ts";
import type { Finding } from "./doctor.ts";
import type { SqliteStore } from "./open.ts";
import { verify } from "./verify.ts";

const FOLDER = "backups";

export class Upkeep {
  readonly #store: SqliteStore;
  readonly #data: string | undefined;
  readonly #nowMs: () => number;
  #made = 0;

  constructor(store: SqliteStore, data: string | undefined, nowMs: () => number) {
    this.#store = store;
    this.#data = data;
    this.#nowMs = nowMs;
  }

  async backup(): Promise<{ file: string; bytes: number } | undefined> {
    if (this.#data === undefined) return undefined;
    const nowMs = this.#nowMs();
    const stamp = new Date(nowMs).toISOString().replaceAll(/[:.]/g, "-");
    const file = join(this.#data, FOLDER, `pawl-${stamp}-${++this.#made}.db`); // (U1)
    await backup(this.#store, file, nowMs);
    return { file: join(FOLDER, basename(file)), bytes: statSync(file).size };
  }

  async verify(): Promise<Finding[]> {
    await this.#store.flush();
    if (this.#data === undefined) return verify(this.#store.db);
    const worker = new Worker(fileURLToPath(new URL("verify-worker.ts", import.meta.url)), {
      workerData: { data: this.#data },
    });
    const [findings] = (await once(worker, "message")) as [Finding[]];
    return findings;
  }
}
