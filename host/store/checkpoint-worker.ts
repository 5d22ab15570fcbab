/** A thread that moves the write-ahead log into the database, so that the host's loop never has to. */
import { parentPort, workerData } from "node:worker_threads";
import Sqlite from "better-sqlite3";

const EVERY_MS = 200;

const { file } = workerData as { file: string };
const db = new Sqlite(file, { timeout: 0 });
// With OFF the log could be overwritten before the database is on disk.
db.pragma("synchronous = NORMAL");

const timer = setInterval(() => {
  try {
    db.pragma("wal_checkpoint(PASSIVE)");
  } catch {
    // Busy, or the disk is full: the writer will say so, with its name on it.
  }
}, EVERY_MS);

parentPort?.once("message", () => {
  clearInterval(timer);
  db.close();
});
