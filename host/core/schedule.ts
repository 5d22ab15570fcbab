/** Schedules as authors write them → milliseconds and fire times. Decides nothing about when the host is awake. */
const UNITS: Record<string, number> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** `"5m"` → 300000; `undefined` for anything that is not a positive whole number and one unit. */
export function parseInterval(text: string): number | undefined {
  const [, count, unit] = /^\s*(\d{1,9})\s*(ms|s|m|h|d)\s*$/.exec(text) ?? [];
  const ms = Number(count) * (UNITS[unit ?? ""] ?? Number.NaN);
  return Number.isSafeInteger(ms) && ms > 0 ? ms : undefined;
}
