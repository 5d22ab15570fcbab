/** A thread that writes one backup: the host's loop and its writes go on meanwhile. */
import { workerData } from "node:worker_threads";
import Sqlite from "better-sqlite3";

const { from, to, atMs } = workerData as { from: string; to: string; atMs: number };
const source = new Sqlite(from, { readonly: true });
try {
  source.prepare("VACUUM INTO ?").run(to);
} finally {
  source.close();
}
const copy = new Sqlite(to);
try {
  copy.pragma("synchronous = FULL");
  copy.prepare("INSERT OR REPLACE INTO meta (key, value) VALUES ('backed_up_at', ?)").run(String(atMs));
} finally {
  copy.close();
}
