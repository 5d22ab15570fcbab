import { createHash } from "node:crypto";
import {
  closeSync,
  fdatasync,
  fstatSync,
  mkdtempSync,
  openSync,
  readSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Sqlite, { type Database } from "better-sqlite3";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Change } from "../../host/core/change.ts";
import type { RunFacts } from "../../host/core/facts.ts";
import { recover } from "../../host/core/recover.ts";
import type { Level, Store } from "../../host/ports/store.ts";
import { inspect } from "../../host/store/doctor.ts";
import { openStore, type SqliteStore, type StoreOptions } from "../../host/store/open.ts";
import { verify } from "../../host/store/verify.ts";
import { deployed } from "../support/chain.ts";
import { LongChain } from "./long-chain.ts";

const root = mkdtempSync(join(tmpdir(), "pawl-crash-"));
const folder = () => mkdtempSync(join(root, "data-"));
afterAll(() => rmSync(root, { recursive: true, force: true }));
const nowMs = () => 1_000;

/** Everything in the database, as one hash: two states are equal or they are not. */
function stateOf(db: Database): string {
  const tables = db
    .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
    .pluck()
    .all();
  const hash = createHash("sha256");
  for (const table of tables as string[]) {
    const rows = db.prepare(`SELECT * FROM "${table}"`).raw().all();
    hash.update(JSON.stringify([table, rows.map((row) => JSON.stringify(row)).toSorted()]));
  }
  return hash.digest("hex");
}

/** The files as they are at one moment, and what the host had promised by then. */
interface Moment {
  when: string;
  db: Buffer;
  log: Buffer;
  /** How much of the log the disk has confirmed. */
  synced: number;
  /** Changes of which `committed`, and of which `durable` had been said. */
  committed: number;
  durable: number;
  applied: number;
}

/** A store that is photographed before, inside and after every apply. */
class Watched {
  readonly moments: Moment[] = [];
  /** The state after each Change. */
  readonly states: string[] = [];
  readonly store: SqliteStore;
  readonly #fds: { db: number; log: number };
  #synced = 0;
  #committed = 0;
  #durable = 0;

  constructor(data: string) {
    this.store = openStore({
      data,
      nowMs,
      checkpoints: false,
      group: {
        sync: (fd, done) => {
          const length = fstatSync(fd).size;
          fdatasync(fd, (error) => {
            this.#synced = length;
            done(error);
          });
        },
      },
    });
    // Dirty pages reach the log before their COMMIT: what is torn off then must not count.
    this.store.db.pragma("cache_size = 5");
    // Held open: closing a descriptor of its own would take the database's locks away.
    this.#fds = { db: openSync(join(data, "pawl.db"), "r"), log: openSync(join(data, "pawl.db-wal"), "r") };
    this.#synced = fstatSync(this.#fds.log).size;
    this.store.db.function("photograph", () => {
      this.#photograph("inside");
      return 0;
    });
    this.store.db.exec(
      "CREATE TEMP TRIGGER inside AFTER INSERT ON main.journal BEGIN SELECT photograph(); END",
    );
  }

  begin(): Store {
    this.states.push(stateOf(this.store.db));
    const { store } = this;
    return Object.assign(Object.create(store) as Store, {
      fence: store.fence,
      apply: (change: Change, options: { level: Level; fence: Store["fence"] }) =>
        this.#apply(change, options),
      ...bound(store),
    });
  }

  close(): void {
    closeSync(this.#fds.db);
    closeSync(this.#fds.log);
  }

  async #apply(change: Change, options: { level: Level; fence: Store["fence"] }) {
    this.#photograph(`before ${change.verb}`);
    const applying = this.store.apply(change, options);
    this.states.push(stateOf(this.store.db));
    const n = this.states.length - 1;
    this.#photograph(`applied ${change.verb}`);
    const result = await applying;
    if (options.level !== "applied") this.#committed = Math.max(this.#committed, n);
    if (options.level === "durable") this.#durable = Math.max(this.#durable, n);
    this.#photograph(`after ${change.verb} ${options.level}`);
    return result;
  }

  #photograph(when: string): void {
    this.moments.push({
      when,
      db: whole(this.#fds.db),
      log: whole(this.#fds.log),
      synced: this.#synced,
      committed: this.#committed,
      durable: this.#durable,
      applied: this.states.length - 1,
    });
  }
}

/** The port's methods, bound: private fields do not travel through prototypes. */
function bound(store: SqliteStore): Partial<Store> {
  return {
    newId: () => store.newId(),
    workflow: (id) => store.workflow(id),
    run: (id) => store.run(id),
    delivery: (id) => store.delivery(id),
    pending: (handler, topic, options) => store.pending(handler, topic, options),
    due: (at, limit) => store.due(at, limit),
    flush: () => store.flush(),
  };
}

function whole(fd: number): Buffer {
  const buffer = Buffer.alloc(fstatSync(fd).size);
  readSync(fd, buffer, 0, buffer.length, 0);
  return buffer;
}

function reviveAt(db: Buffer, log: Buffer): string {
  const data = folder();
  writeFileSync(join(data, "pawl.db"), db);
  writeFileSync(join(data, "pawl.db-wal"), log);
  return data;
}

/** Which Change the revived database ends with; −1 if it is in no state that ever was. */
function lastChange(data: string, states: readonly string[]): number {
  const db = new Sqlite(join(data, "pawl.db"));
  const state = stateOf(db);
  db.close();
  return states.lastIndexOf(state);
}

const known = new Map<string, number>();

/** The same of files that never touch the disk again; most moments look alike. */
function lastChangeIn(db: Buffer, log: Buffer, states: readonly string[]): number {
  const key = createHash("sha256").update(db).update(log).digest("hex");
  const found = known.get(key);
  if (found !== undefined) return found;
  const data = reviveAt(db, log);
  const last = lastChange(data, states);
  rmSync(data, { recursive: true });
  known.set(key, last);
  return last;
}

/** What a host does first: marks what its predecessor left behind. Returns what is wrong afterwards. */
async function restart(data: string): Promise<unknown[]> {
  await using store = openStore({ data, nowMs, checkpoints: false });
  const problems: unknown[] = [...inspect(store.db), ...verify(store.db)];
  for (let round = 0; round < 2; round++)
    for (const id of await store.interrupted(10)) {
      const facts = (await store.run(id)) as RunFacts;
      const error = { class: "internal" as const, code: "host-lost", message: "gone" };
      const attempt = { id: store.newId(), host: store.fence.incarnation, fused: true };
      const change = recover(facts, { error, attempt, canCheck: true, inbox: store.newId() }, 9_000);
      if (change) await store.apply(change, { level: "applied", fence: store.fence });
    }
  if ((await store.interrupted(10)).length > 0) problems.push("still interrupted");
  return [...problems, ...inspect(store.db), ...verify(store.db)];
}

async function setUp(data: string): Promise<number> {
  await using store = openStore({ data, nowMs, checkpoints: false });
  return await deployed(store, "orders", 1_000);
}

describe("the long chain, killed or without power at every moment", () => {
  const watched: { it?: Watched } = {};
  const moments = () => watched.it?.moments ?? [];
  const states = () => watched.it?.states ?? [];

  beforeAll(async () => {
    const data = folder();
    const workflow = await setUp(data);
    const it = new Watched(data);
    await new LongChain(it.begin(), workflow).play();
    watched.it = it;
    it.close();
    await it.store[Symbol.asyncDispose]();
  });

  test("the story was told: every kind of moment was photographed", () => {
    expect(states().length).toBeGreaterThan(35);
    expect(new Set(states()).size).toBe(states().length);
    const kinds = new Set(moments().map(({ when }) => when.split(" ")[0]));
    expect(kinds).toEqual(new Set(["before", "inside", "applied", "after"]));
    expect(moments().filter(({ when }) => when === "inside").length).toBeGreaterThan(35);
    expect(moments().some(({ log, synced }) => log.length > synced)).toBe(true);
  });

  test("kill -9: everything committed is there, everything else is whole or absent", () => {
    const wrong: string[] = [];
    for (const { when, db, log, committed, applied } of moments()) {
      const last = lastChangeIn(db, log, states());
      if (last < committed || last > applied) wrong.push(`${when}: ${last}, not ${committed} to ${applied}`);
    }
    expect(wrong).toEqual([]);
  });

  test.each([
    ["to the last barrier", (log: Buffer, synced: number) => log.subarray(0, synced)],
    [
      "inside the frame after it",
      (log: Buffer, synced: number) => log.subarray(0, Math.min(log.length, synced + 1_000)),
    ],
    [
      "somewhere in what was not synced",
      (log: Buffer, synced: number) => log.subarray(0, synced + Math.floor((log.length - synced) / 2)),
    ],
    [
      "to a tail of noise",
      (log: Buffer, synced: number) => {
        const torn = Buffer.from(log);
        for (let at = synced; at < torn.length; at += 512) torn[at] = 255 - (torn[at] as number);
        return torn;
      },
    ],
    [
      "to a hole before pages that made it",
      (log: Buffer, synced: number) => {
        const torn = Buffer.from(log);
        torn.fill(0, synced, Math.min(torn.length, synced + 4_120));
        return torn;
      },
    ],
  ])("a power cut that leaves the log %s: everything durable is there", (_, cut) => {
    const wrong: string[] = [];
    for (const { when, db, log, synced, durable, applied } of moments()) {
      const last = lastChangeIn(db, cut(log, synced), states());
      if (last < durable || last > applied) wrong.push(`${when}: ${last}, not ${durable} to ${applied}`);
    }
    expect(wrong).toEqual([]);
  });

  test("whatever is left, a host starts on it, recovers, and breaks no invariant", async () => {
    const seen = new Set<number>();
    for (const { when, db, log, synced } of moments())
      for (const end of [log.length, synced]) {
        const last = lastChangeIn(db, log.subarray(0, end), states());
        if (seen.has(last)) continue;
        seen.add(last);
        const problems = await restart(reviveAt(db, log.subarray(0, end)));
        expect({ when, last, problems }).toEqual({ when, last, problems: [] });
      }
    expect(seen.size).toBeGreaterThan(25);
  });
});

describe("the long chain on a disk that fails", () => {
  /** Plays until something breaks; resolves with how far the promises went. */
  async function playOn(options: Partial<StoreOptions>, sabotage: (store: SqliteStore) => void) {
    const data = folder();
    const workflow = await setUp(data);
    const store = openStore({ data, nowMs, checkpoints: false, ...options });
    const states = [stateOf(store.db)];
    let promised = 0;
    sabotage(store);
    const apply = async (change: Change, how: { level: Level; fence: Store["fence"] }) => {
      const applying = store.apply(change, how);
      states.push(stateOf(store.db));
      const n = states.length - 1;
      const result = await applying;
      if (how.level !== "applied") promised = Math.max(promised, n);
      return result;
    };
    const port = Object.assign(Object.create(store) as Store, { fence: store.fence, apply, ...bound(store) });
    const ended = await new LongChain(port, workflow).play().then(
      () => "played",
      (error: { code?: string }) => error.code,
    );
    await store[Symbol.asyncDispose]().catch(() => undefined);
    return { ended, data, states, promised };
  }

  test("each apply fails half-way, one after the other: no half of it stays", {
    timeout: 240_000,
  }, async () => {
    let breaks = 0;
    for (let n = 1; ; n++) {
      const { ended, data, states, promised } = await playOn({}, (store) => {
        let left = n;
        store.db.function("sabotage", () => {
          if (--left === 0) throw new Error("the disk is on fire");
          return 0;
        });
        store.db.exec("CREATE TEMP TRIGGER inside AFTER INSERT ON main.journal BEGIN SELECT sabotage(); END");
      });
      if (ended === "played") break;
      breaks++;
      expect(ended).toBe("store-broken");
      expect(lastChange(data, states)).toBeGreaterThanOrEqual(promised);
      expect(await restart(data)).toEqual([]);
    }
    expect(breaks).toBeGreaterThan(35);
  });

  test("each sync fails, one after the other: the host stops, what it promised is there", {
    timeout: 240_000,
  }, async () => {
    let breaks = 0;
    for (let n = 1; ; n++) {
      let left = n;
      const sync = (fd: number, done: (error: Error | null) => void) =>
        --left === 0 ? setImmediate(() => done(new Error("EIO"))) : fdatasync(fd, done);
      const { ended, data, states, promised } = await playOn({ group: { sync } }, () => undefined);
      if (ended === "played") break;
      breaks++;
      expect(ended).toBe("store-broken");
      const last = lastChange(data, states);
      expect(last).toBeGreaterThanOrEqual(promised);
    }
    expect(breaks).toBeGreaterThan(8);
  });
});
