/**
 * `wakeAt`: when a consumer asked to be looked at again (02 §1.6). Decides the time only: it takes effect at commit.
 *
 * W1. A wake is clamped once, against the time `prepare` returned, and lies in [that + min, that + max].
 * W2. Only an instant is a time: ISO 8601 date, `T`, time, and `Z` or an offset. A date alone and a time without a zone
 *     mean different instants to different readers, so they cannot be read.
 */
import type { EpochMs } from "./ids.ts";

export interface ClampedWake {
  wakeAtMs?: EpochMs;
  warning?: string;
}

const INSTANT =
  /^(\d{4}|[+-]\d{6})-(\d\d)-(\d\d)T([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:[.,](\d{1,9}))?)?(?:Z|([+-])([01]\d|2[0-3]):?([0-5]\d))$/;

export function clampWake(
  wakeAt: string | undefined,
  preparedAtMs: EpochMs,
  minMs: number,
  maxMs: number,
): ClampedWake {
  if (minMs > maxMs) throw new Error(`the shortest wake ${minMs} ms is above the longest ${maxMs} ms`);
  if (wakeAt === undefined) return {};
  const askedMs = parseInstant(wakeAt);
  if (askedMs !== undefined)
    return { wakeAtMs: Math.min(Math.max(askedMs, preparedAtMs + minMs), preparedAtMs + maxMs) };
  const given = JSON.stringify(wakeAt.slice(0, 80));
  return {
    wakeAtMs: preparedAtMs + maxMs,
    warning: `wakeAt ${given} is not a time with a zone, like "2027-03-01T09:00:00Z": the longest wait is used`,
  };
}

/** Milliseconds since 1970; `undefined` for anything but an instant (W2) that is on the calendar. */
function parseInstant(text: string): EpochMs | undefined {
  const [, year, month, day, hour, minute, second, fraction, sign, offsetHours, offsetMinutes] =
    INSTANT.exec(text) ?? [];
  if (year === undefined || year === "-000000") return undefined;
  const date = new Date(0);
  date.setUTCFullYear(Number(year), Number(month) - 1, Number(day));
  if (date.getUTCMonth() !== Number(month) - 1 || date.getUTCDate() !== Number(day)) return undefined;
  const ms = Number((fraction ?? "").padEnd(3, "0").slice(0, 3));
  date.setUTCHours(Number(hour), Number(minute), Number(second ?? 0), ms);
  const offset = (Number(offsetHours ?? 0) * 60 + Number(offsetMinutes ?? 0)) * 60_000;
  const atMs = date.getTime() - (sign === "-" ? -offset : offset);
  return Number.isNaN(atMs) ? undefined : atMs;
}
