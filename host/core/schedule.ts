/**
 * Schedules as authors write them: read and checked, once, at deploy. Decides nothing about points in time that pass
 * (`slots.ts`), nor about when the host is awake (`trigger.ts`).
 *
 * R1. A schedule that is accepted fires, in a zone that exists, and never more often than the host allows by the
 *     calendar; everything else is refused with the field to blame.
 */
import { nextFires, shortestGapMs } from "./cron.ts";
import type { ErrorCode } from "./errors.ts";
import type { EpochMs } from "./ids.ts";
import type { Schedule } from "./workflow.ts";
import { canonicalZone } from "./zone.ts";

const UNITS: Record<string, number> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
/** The last instant a date can name. */
const END_OF_TIME_MS = 8.64e15;

/** `"5m"` → 300000; `undefined` for anything that is not a positive whole number and one unit. */
export function parseInterval(text: string): number | undefined {
  const [, count, unit] = /^\s*(\d{1,9})\s*(ms|s|m|h|d)\s*$/.exec(text) ?? [];
  const ms = Number(count) * (UNITS[unit ?? ""] ?? Number.NaN);
  return Number.isSafeInteger(ms) && ms > 0 ? ms : undefined;
}

type GivenSchedule = { interval: string } | { cron: string; timezone?: string | undefined };

/** A schedule with its next three fires as if deployed now, or why it is refused and which field is to blame. */
export type ScheduleReading =
  | { schedule: Schedule; firesMs: EpochMs[] }
  | { code: ErrorCode; field: "interval" | "cron" | "timezone"; message: string; hint?: string };

/** The check at deploy (02 §1.2). */
export function readSchedule(given: GivenSchedule, nowMs: EpochMs, minSpacingMs: number): ScheduleReading {
  return "interval" in given
    ? readInterval(given.interval, nowMs, minSpacingMs)
    : readCron(given.cron, given.timezone ?? "UTC", nowMs, minSpacingMs);
}

function readInterval(interval: string, nowMs: EpochMs, minSpacingMs: number): ScheduleReading {
  const quoted = JSON.stringify(interval.slice(0, 80));
  const refuse = (code: ErrorCode, message: string) => ({ code, field: "interval" as const, message });
  const intervalMs = parseInterval(interval);
  if (intervalMs === undefined) return refuse("bad-interval", `cannot read the interval ${quoted}`);
  if (intervalMs < minSpacingMs) {
    const least = `${minSpacingMs / 1000} s`;
    const refused = refuse("interval-too-short", `${interval} is below the minimum of ${least}`);
    return { ...refused, hint: `Write ${least} or more.` };
  }
  if (nowMs + 3 * intervalMs > END_OF_TIME_MS)
    return refuse("bad-interval", `the interval ${quoted} reaches beyond the end of the calendar`);
  return { schedule: { interval, intervalMs }, firesMs: [1, 2, 3].map((k) => nowMs + k * intervalMs) };
}

function readCron(cron: string, timezone: string, nowMs: EpochMs, minSpacingMs: number): ScheduleReading {
  const quoted = JSON.stringify(cron.slice(0, 80));
  const refuse = (code: ErrorCode, message: string) => ({ code, field: "cron" as const, message });
  if (canonicalZone(timezone) === undefined) {
    const message = `there is no time zone ${JSON.stringify(timezone.slice(0, 80))}`;
    return { code: "bad-timezone", field: "timezone", message };
  }
  const reading = nextFires(cron, timezone, nowMs, 3);
  if ("problem" in reading)
    return reading.problem === "never"
      ? refuse("cron-never-fires", `${quoted} never fires`)
      : refuse("bad-cron", `cannot read the cron pattern ${quoted}`);
  if (shortestGapMs(cron) < minSpacingMs)
    return refuse("cron-too-often", `${quoted} fires more often than every ${minSpacingMs / 1000} s`);
  return { schedule: { cron, timezone }, firesMs: reading.fires };
}
