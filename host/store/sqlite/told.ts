/** What the journal tells about one run, for decisions that no row of its own remembers. By index, newest or oldest first. */
import type { Entry } from "../../core/journal.ts";
import type { LastWord } from "../../ports/store.ts";
import type { Row } from "../rows.ts";
import type { Statements } from "./statements.ts";

const OLDEST_FIRST = "SELECT entries_json FROM journal WHERE run = ?+0 AND run IS NOT NULL ORDER BY first";
const NEWEST_FIRST =
  "SELECT verb, at, entries_json FROM journal WHERE run = ?+0 AND run IS NOT NULL ORDER BY first DESC LIMIT 50";
const APPROVED = `SELECT 1 FROM journal WHERE run = ?+0 AND run IS NOT NULL AND
  (verb = 'approve' OR entries_json LIKE '%"action":"approval.use"%') LIMIT 1`;

/** Acts that ask the outside, or let it be asked: they settle nothing themselves. */
const ASKS: readonly string[] = ["run.check", "run.reconnect"];

export class Telling {
  readonly #statements: Statements;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  /** What a run had reserved; its deliveries may have gone to others since. */
  reservedOnce(run: number): number[] {
    for (const row of this.#statements.sql(OLDEST_FIRST).pluck().all(run) as string[])
      for (const entry of JSON.parse(row) as Entry[])
        if (entry.kind === "deliveries.reserved") return entry.ids;
    return [];
  }

  /** A person allowed the run's call, for itself or beforehand. */
  approved(run: number): boolean {
    return this.#statements.sql(APPROVED).get(run) !== undefined;
  }

  /** A person's answer speaks until the outcome becomes unknown after it; from then on the host's own steps do. */
  lastWord(run: number): LastWord | undefined {
    let settled: LastWord | undefined;
    let asked: LastWord | undefined;
    let ended: LastWord | undefined;
    for (const row of this.#statements.sql(NEWEST_FIRST).all(run) as Row[]) {
      const entries = JSON.parse(row["entries_json"] as string) as Entry[];
      const atMs = row["at"] as number;
      const act = entries.find((one) => one.kind === "operator.acted" && one.actor !== "host");
      const person = act?.kind === "operator.acted" && { by: act.actor, action: act.action, atMs };
      if (person && !ASKS.includes(person.action)) return person;
      if (person) asked ??= person;
      const moves = entries.map(movedTo);
      const host = { by: "host", action: row["verb"] as string, atMs };
      if (moves.includes("settled")) settled ??= host;
      else if (moves.includes("unknown") && !person) return settled ?? asked ?? host;
      else if (moves.includes("ended")) ended ??= host;
    }
    return settled ?? asked ?? ended;
  }
}

const SETTLED: readonly unknown[] = ["applied", "failed", "skipped"];
const UNKNOWN: readonly unknown[] = ["needs_reconcile", "indeterminate"];

/** What an entry says of the outside change, or that the attempt is over. */
function movedTo(entry: Entry): "settled" | "unknown" | "ended" | undefined {
  if (entry.kind === "status.changed") return entry.set.open === false ? "ended" : undefined;
  if (entry.kind !== "mutation.changed") return undefined;
  if (SETTLED.includes(entry.set.status)) return "settled";
  return UNKNOWN.includes(entry.set.status) ? "unknown" : undefined;
}
