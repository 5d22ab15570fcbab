/**
 * A backup that is opened as a store: from then on it is another store than the one it was made of. Whoever opens it has
 * `restored.ts` settle its workflows before anything is scheduled; until that is done, the mark stays.
 *
 * L1. A new epoch, and ids beyond any that the original can have handed out since: no id and no idempotency key is ever
 *     used for two things. Once per backup, in one transaction.
 */
import type { Database } from "better-sqlite3";
import type { EpochMs } from "../core/ids.ts";

/** A thousand ids a second for thirty years. */
const IDS = 2 ** 40;

/** When the backup was made, if this store comes from one and is not settled yet. */
export function leap(db: Database): EpochMs | undefined {
  const meta = db.prepare("SELECT value FROM meta WHERE key = ?").pluck();
  const backedUpAt = meta.get("backed_up_at") as string | undefined;
  if (backedUpAt !== undefined)
    db.transaction(() => {
      const add = db.prepare(
        "UPDATE meta SET value = CAST(CAST(value AS INTEGER) + ? AS TEXT) WHERE key = ?",
      );
      add.run(IDS, "next_id");
      add.run(1, "epoch");
      db.prepare("DELETE FROM meta WHERE key = 'backed_up_at'").run();
      db.prepare("INSERT OR REPLACE INTO meta (key, value) VALUES ('restoring', ?)").run(backedUpAt);
    })(); // (L1)
  const restoring = meta.get("restoring") as string | undefined;
  return restoring === undefined ? undefined : Number(restoring);
}
