/**
 * When a cron pattern fires in its time zone. The only file of the core that uses a library; decides nothing about
 * what a fire means.
 *
 * C1. A pattern with one time a day fires exactly once for each matching day of the calendar: a local time that does not
 *     exist at the next valid instant, one that occurs twice at the first. croner alone drops the fire when the gap
 *     reaches midnight (America/Scoresbysund), so it counts the days and `zone.ts` places them.
 * C2. Any other pattern follows croner, which means: it fires at each instant at which the zone's clock shows a matching
 *     time; not in the hour that is left out, and in both passes of the hour that is repeated.
 * C3. One croner object costs 83 kB: they are kept by meaning and zone, and no more than `KEPT_CRONS` of them.
 * C4. Counting costs about 20 µs per day at most, never a step per fire; beyond `MAX_COUNTED_DAYS` it is a floor.
 */
import { Cron } from "croner";
import { type CronFields, daysOf, isOnceADay, patternOf, readCronFields } from "./cron-fields.ts";
import { canonicalZone, clockChanges, instantOfWall, offsetMs } from "./zone.ts";

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
const KEPT_CRONS = 256;
/** About eleven years of downtime. */
const MAX_COUNTED_DAYS = 4_000;

/** Why a pattern cannot be used, or its next fires. */
export type CronReading = { fires: number[] } | { problem: "pattern" | "never" };

export interface Count {
  count: number;
  /** There are at least so many; not all were counted (C4). */
  isFloor: boolean;
}

/** The next `count` fires after `fromMs`. The zone must be one that exists. */
export function nextFires(pattern: string, timezone: string, fromMs: number, count: number): CronReading {
  const fields = readCronFields(pattern);
  if (fields === undefined || !cronerReads(fields)) return { problem: "pattern" };
  const fires: number[] = [];
  for (let atMs: number | undefined = fromMs; fires.length < count; fires.push(atMs)) {
    atMs = nextFire(pattern, timezone, atMs);
    if (atMs === undefined) break;
  }
  return fires.length === 0 ? { problem: "never" } : { fires };
}

/** The first fire after `afterMs`; `undefined` when there is none. */
export function nextFire(pattern: string, timezone: string, afterMs: number): number | undefined {
  const { fields, zone } = known(pattern, timezone);
  if (!isOnceADay(fields)) return after(cronFor(patternOf(fields), zone), afterMs);
  const days = cronFor(patternOf(fields), undefined);
  let wallMs = after(days, afterMs + offsetMs(zone, afterMs));
  while (wallMs !== undefined) {
    const fireMs = instantOfWall(zone, wallMs);
    if (fireMs > afterMs) return fireMs; // not the second time the clock shows it (C1)
    wallMs = after(days, wallMs);
  }
  return undefined;
}

/** The last fire at or before `atMs`; `undefined` when there is none. */
export function previousFire(pattern: string, timezone: string, atMs: number): number | undefined {
  const { fields, zone } = known(pattern, timezone);
  if (!isOnceADay(fields)) return upTo(cronFor(patternOf(fields), zone), atMs);
  const days = cronFor(patternOf(fields), undefined);
  // A clock set back shows earlier times again, by at most a day: start beyond it.
  let wallMs = upTo(days, atMs + offsetMs(zone, atMs) + DAY_MS);
  while (wallMs !== undefined) {
    const fireMs = instantOfWall(zone, wallMs);
    if (fireMs <= atMs) return fireMs;
    wallMs = upTo(days, wallMs - 1);
  }
  return undefined;
}

/** How many fires lie in [fromMs, toMs]. */
export function countFires(pattern: string, timezone: string, fromMs: number, toMs: number): Count {
  const { fields, zone } = known(pattern, timezone);
  const startMs = Math.max(fromMs, toMs - MAX_COUNTED_DAYS * DAY_MS);
  const isFloor =
    startMs > fromMs && nextFire(pattern, timezone, fromMs - 1) !== nextFire(pattern, timezone, startMs - 1);
  let count = 0;
  if (isOnceADay(fields)) {
    for (let atMs = nextFire(pattern, timezone, startMs - 1); atMs !== undefined && atMs <= toMs; count += 1)
      atMs = nextFire(pattern, timezone, atMs);
    return { count, isFloor };
  }
  // Between two clock changes wall time is UTC plus a constant (C2).
  const bounds = [startMs, ...clockChanges(zone, startMs, toMs), toMs + 1];
  for (const [i, endMs] of bounds.slice(1).entries()) {
    const stretchMs = bounds[i] as number;
    const offset = offsetMs(zone, stretchMs);
    count += countWall(fields, stretchMs + offset, endMs - 1 + offset);
  }
  return { count, isFloor };
}

/** The shortest time between two fires by the calendar, clock changes aside. */
export function shortestGapMs(pattern: string): number {
  const { fields } = known(pattern, "UTC");
  const times = fields.hours.flatMap((hour) => fields.minutes.map((minute) => hour * 60 + minute));
  const gaps = times.slice(1).map((time, i) => time - (times[i] as number));
  const overnight = 1440 - (times.at(-1) as number) + (times[0] as number);
  const within = Math.min(...gaps, 1440);
  return (overnight < within && hasNeighbours(fields) ? overnight : within) * MINUTE_MS;
}

/** Two matching days in a row, within the next matching four hundred of any year's calendar. */
function hasNeighbours(fields: CronFields): boolean {
  const days = cronFor(`0 0 ${daysOf(fields)}`, undefined);
  let dayMs = after(days, 0);
  for (let seen = 0; dayMs !== undefined && seen < 400; seen += 1) {
    const next = after(days, dayMs);
    if (next === dayMs + DAY_MS) return true;
    dayMs = next;
  }
  return false;
}

function countWall(fields: CronFields, fromWallMs: number, toWallMs: number): number {
  const first = Math.ceil(fromWallMs / MINUTE_MS);
  const last = Math.floor(toWallMs / MINUTE_MS);
  if (first > last) return 0;
  const firstDay = Math.floor(first / 1440);
  const lastDay = Math.floor(last / 1440);
  const full = fields.minutes.length * fields.hours.length;
  let count = 0;
  const days = cronFor(`0 0 ${daysOf(fields)}`, undefined);
  for (let dayMs = after(days, firstDay * DAY_MS - 1); dayMs !== undefined; dayMs = after(days, dayMs)) {
    const day = dayMs / DAY_MS;
    if (day > lastDay) break;
    const head = day === firstDay ? timesBefore(fields, first - day * 1440) : 0;
    count += (day === lastDay ? timesBefore(fields, last - day * 1440 + 1) : full) - head;
  }
  return count;
}

/** How many times of a matching day lie before that minute of the day. */
function timesBefore({ hours, minutes }: CronFields, minuteOfDay: number): number {
  const hour = Math.floor(minuteOfDay / 60);
  const whole = hours.filter((one) => one < hour).length * minutes.length;
  return hours.includes(hour) ? whole + minutes.filter((one) => one < minuteOfDay % 60).length : whole;
}

const after = (cron: Cron, atMs: number): number | undefined => cron.nextRun(new Date(atMs))?.getTime();

/** croner looks back from whole seconds, exclusively: ask from the next one. */
const upTo = (cron: Cron, atMs: number): number | undefined =>
  cron.previousRuns(1, new Date(Math.floor(atMs / 1000) * 1000 + 1000))[0]?.getTime();

function known(pattern: string, timezone: string): { fields: CronFields; zone: string } {
  const fields = readCronFields(pattern);
  const zone = canonicalZone(timezone);
  if (fields === undefined) throw new Error(`not a cron pattern: ${JSON.stringify(pattern)}`);
  if (zone === undefined) throw new Error(`there is no time zone ${JSON.stringify(timezone)}`);
  return { fields, zone };
}

function cronerReads(fields: CronFields): boolean {
  try {
    return cronFor(patternOf(fields), undefined) !== undefined;
  } catch {
    return false;
  }
}

const crons = new Map<string, Cron>();

/** Without a zone: on wall times. The least recently used one gives way (C3). */
function cronFor(pattern: string, zone: string | undefined): Cron {
  const key = `${zone ?? ""} ${pattern}`;
  const where = zone === undefined ? { utcOffset: 0 } : { timezone: zone };
  const cron = crons.get(key) ?? new Cron(pattern, { ...where, mode: "5-part", paused: true });
  crons.delete(key);
  crons.set(key, cron);
  if (crons.size > KEPT_CRONS) crons.delete(crons.keys().next().value ?? key);
  return cron;
}
