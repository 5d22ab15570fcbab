/**
 * The real SQLite adapter's rows on a database in memory, with a disk that forgets: what is applied, committed and
 * durable are three different states of it, and a crash goes back to one of them.
 */
import Sqlite, { type Database } from "better-sqlite3";
import type { Change, Fence } from "../../host/core/change.ts";
import type { Applied, Level, Refused, Store } from "../../host/ports/store.ts";
import { migrate, migrations } from "../../host/store/migrate.ts";
import { Applier } from "../../host/store/sqlite/apply.ts";
import { Reads } from "../../host/store/sqlite/reads.ts";
import type { Kernel } from "./kernel.ts";

/** The medium: what survives. */
export class Disk {
  committed: Buffer | undefined;
  durable: Buffer | undefined;
  nextIncarnation = 1;
}

export interface StoreFaults {
  /** Asked before and after each apply; true ends the host there. */
  crashNow?: (moment: "before" | "after" | "committed", change: Change) => boolean;
}

const ALL_MIGRATIONS = migrations();

export class SimStore implements Store {
  readonly fence: Fence;
  readonly db: Database;
  readonly #kernel: Kernel;
  readonly #disk: Disk;
  readonly #applier: Applier;
  readonly #reads: Reads;
  readonly #faults: StoreFaults;
  readonly #onCrash: () => void;
  #nextId: number;
  #commit: Promise<void> | undefined;
  #sync: Promise<void> | undefined;

  constructor(kernel: Kernel, disk: Disk, faults: StoreFaults, onCrash: () => void) {
    this.#kernel = kernel;
    this.#disk = disk;
    this.#faults = faults;
    this.#onCrash = onCrash;
    this.db = disk.committed ? new Sqlite(disk.committed) : new Sqlite(":memory:");
    if (!disk.committed) migrate(this.db, ALL_MIGRATIONS, kernel.nowMs());
    const incarnation = disk.nextIncarnation++;
    this.fence = { incarnation, epoch: 1 };
    // Ids of a life that was lost are never used again, as blocks on disk see to it in the real store.
    this.#nextId = incarnation * 1_000_000;
    this.db
      .prepare("INSERT OR REPLACE INTO meta (key, value) VALUES ('next_id', ?), ('epoch', '1')")
      .run(String((incarnation + 1) * 1_000_000));
    this.db
      .prepare(
        "INSERT INTO hosts (incarnation, name, epoch, started_at, heartbeat_at) VALUES (?, 'sim', 1, ?, ?)",
      )
      .run(incarnation, kernel.nowMs(), kernel.nowMs());
    disk.committed = this.db.serialize();
    disk.durable ??= disk.committed;
    this.#applier = new Applier(this.db, () => this.newId());
    this.#reads = new Reads(this.db);
  }

  newId(): number {
    return ++this.#nextId;
  }

  apply(change: Change, { level, fence }: { level: Level; fence: Fence }): Promise<Applied | Refused> {
    const applied = this.#kernel.task(`apply ${change.verb}`, () => {
      if (fence.incarnation !== this.fence.incarnation)
        return { ok: false as const, because: "stale-fence" as const };
      if (this.#faults.crashNow?.("before", change)) this.#crash();
      const result = this.db.transaction(() => this.#applier.apply(change))();
      if (this.#faults.crashNow?.("after", change)) this.#crash();
      return result;
    });
    return applied.then(async (result) => {
      if (!result.ok || level === "applied") return result;
      await this.#committed(change);
      if (level === "durable") await this.#durable();
      return result;
    });
  }

  /** One commit for all that wait for it, one barrier for all that were committed before it. */
  #committed(change: Change): Promise<void> {
    this.#commit ??= this.#kernel.task("commit", () => {
      this.#commit = undefined;
      this.#disk.committed = this.db.serialize();
      if (this.#faults.crashNow?.("committed", change)) this.#crash();
    });
    return this.#commit;
  }

  #durable(): Promise<void> {
    this.#sync ??= this.#kernel.task("fsync", () => {
      this.#sync = undefined;
      this.#disk.durable = this.#disk.committed;
    });
    return this.#sync;
  }

  #crash(): never {
    this.#onCrash();
    throw new HostDied("the host died");
  }

  async workflowId(namespace: string, name: string, atMs: number): Promise<number> {
    const known = this.db.prepare("SELECT id FROM workflows WHERE name = ?").pluck().get(name) as
      | number
      | undefined;
    if (known !== undefined) return known;
    this.db
      .prepare("INSERT OR IGNORE INTO namespaces (id, name, created_at) VALUES (?, ?, ?)")
      .run(this.newId(), namespace, atMs);
    const id = this.newId();
    this.db
      .prepare(
        "INSERT INTO workflows (id, namespace, name, created_at, updated_at) VALUES (?, (SELECT id FROM namespaces WHERE name = ?), ?, ?, ?)",
      )
      .run(id, namespace, name, atMs, atMs);
    return id;
  }

  due(nowMs: number, limit: number) {
    return this.#kernel.task("read due", () => this.#reads.due(nowMs, limit));
  }
  nextDueAt() {
    return this.#kernel.task("read next-due", () => this.#reads.nextDueAt());
  }
  workflow(id: number) {
    return this.#kernel.task("read workflow", () => this.#reads.workflow(id));
  }
  run(id: number) {
    return this.#kernel.task("read run", () => this.#reads.run(id));
  }
  delivery(id: number) {
    return this.#kernel.task("read delivery", () => this.#reads.delivery(id));
  }
  pending(handler: number, topic: string, options: Parameters<Store["pending"]>[2]) {
    return this.#kernel.task("read pending", () => this.#reads.pending(handler, topic, options));
  }
  causes(deliveries: readonly number[]) {
    return this.#kernel.task("read causes", () => this.#reads.causes(deliveries));
  }
  version(workflow: number, number: number) {
    return this.#kernel.task("read version", () => this.#reads.version(workflow, number));
  }
  versionNumbers(workflow: number, hash: string) {
    return this.#kernel.task("read versions", () => this.#reads.versionNumbers(workflow, hash));
  }
  interrupted(limit: number) {
    return this.#kernel.task("read interrupted", () =>
      this.#reads.interrupted(this.fence.incarnation, limit),
    );
  }
  checksDue(nowMs: number, limit: number) {
    return this.#kernel.task("read checks", () => this.#reads.checksDue(nowMs, limit));
  }
  async flush(): Promise<void> {
    this.#disk.committed = this.db.serialize();
    this.#disk.durable = this.#disk.committed;
  }
  async [Symbol.asyncDispose](): Promise<void> {
    this.db.close();
  }
}

/** Thrown into the dead host; nobody is there to catch it. */
export class HostDied extends Error {
  override readonly name = "HostDied";
}
