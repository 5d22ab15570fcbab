/**
 * The medium under a simulated store: one database in memory for all seeds of a process, inside one transaction that is
 * rolled back when the seed is over. Each group of Changes is a savepoint, so that losing the open group (`kill -9`) or the
 * last groups that were not synced (a power cut) is a ROLLBACK TO, in any order of groups that a real log could lose.
 */
import Sqlite, { type Database, type Statement } from "better-sqlite3";
import { migrate, migrations } from "../../host/store/migrate.ts";
import { Applier } from "../../host/store/sqlite/apply.ts";

interface Group {
  savepoint: string;
  /** The last write in it. */
  upTo: number;
}

export class Disk {
  readonly db: Database;
  readonly applier: Applier;
  /** Ids come from the life that writes. */
  newId: () => number = () => 0;
  /** Writes so far; never goes back, so that a lost write's number is not used again. */
  written = 0;
  committedTo = 0;
  durableTo = 0;
  /** Writes that a crash took away, as closed ranges. */
  #lost: [from: number, to: number][] = [];
  #groups: Group[] = [];
  #open: string | undefined;
  #names = 0;
  readonly #statements = new Map<string, Statement>();

  constructor() {
    this.db = new Sqlite(":memory:");
    this.db.pragma("foreign_keys = ON");
    migrate(this.db, migrations(), 0);
    this.applier = new Applier(this.db, () => this.newId());
  }

  /** Blank again. */
  begin(): void {
    if (this.db.inTransaction) this.db.exec("ROLLBACK");
    this.db.exec("BEGIN");
    this.applier.forget();
    this.written = this.committedTo = this.durableTo = 0;
    this.#lost = [];
    this.#groups = [];
    this.#open = undefined;
    this.#names = 0;
  }

  /** The number of this write, in the group that is open. */
  write(): number {
    if (this.#open === undefined) {
      this.#open = `g${this.#names++}`;
      this.db.exec(`SAVEPOINT ${this.#open}`);
    }
    return ++this.written;
  }

  commit(): void {
    if (this.#open === undefined) return;
    this.#groups.push({ savepoint: this.#open, upTo: this.written });
    this.#open = undefined;
    this.committedTo = this.written;
  }

  /** What was committed up to this write is safe from now on. */
  sync(upTo: number): void {
    this.durableTo = Math.max(this.durableTo, upTo);
    const [oldest] = this.#groups;
    if (this.#open !== undefined || !oldest || this.durableTo < this.committedTo) return;
    this.db.exec(`RELEASE ${oldest.savepoint}`);
    this.#groups = [];
  }

  /** Groups that a power cut may take. */
  get unsynced(): number {
    return this.#groups.filter((one) => one.upTo > this.durableTo).length;
  }

  /** Loses the open group and the last `groups` of those that were not synced. */
  lose(groups: number): void {
    const kept = this.#groups.slice(0, this.#groups.length - groups);
    const target = this.#groups[kept.length]?.savepoint ?? this.#open;
    const from = kept.at(-1)?.upTo ?? Math.min(this.durableTo, this.committedTo);
    if (target !== undefined) {
      this.db.exec(`ROLLBACK TO ${target}`);
      this.db.exec(`RELEASE ${target}`);
    }
    this.applier.forget();
    const keptTo = groups > 0 ? from : this.committedTo;
    if (this.written > keptTo) this.#lost.push([keptTo + 1, this.written]);
    this.committedTo = this.written;
    this.#groups = kept;
    this.#open = undefined;
  }

  /** Prepared once for all seeds. */
  statement(sql: string): Statement {
    let known = this.#statements.get(sql);
    if (!known) {
      known = this.db.prepare(sql);
      this.#statements.set(sql, known);
    }
    return known;
  }

  isLost(write: number): boolean {
    return this.#lost.some(([from, to]) => write >= from && write <= to);
  }

  isDurable(write: number): boolean {
    return write <= this.durableTo && !this.isLost(write);
  }
}

let shared: Disk | undefined;

/** The process's one disk, blank. */
export function blankDisk(): Disk {
  shared ??= new Disk();
  shared.begin();
  return shared;
}
