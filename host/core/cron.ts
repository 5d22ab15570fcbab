/** Cron patterns in time zones, computed by croner. The only file of the core that uses a library. */
import { Cron } from "croner";

/** Why a pattern cannot be used, or its next fires. */
export type CronReading = { fires: number[] } | { problem: "pattern" | "never" };

/** The next `count` fires after `fromMs`. The zone must be one that exists. */
export function nextFires(pattern: string, timezone: string, fromMs: number, count: number): CronReading {
  let dates: Date[];
  try {
    dates = new Cron(pattern, { timezone, mode: "5-part", paused: true }).nextRuns(count, new Date(fromMs));
  } catch {
    return { problem: "pattern" };
  }
  return dates.length === 0 ? { problem: "never" } : { fires: dates.map((date) => date.getTime()) };
}
