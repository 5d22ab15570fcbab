/**
 * Time zones: which exist, what their clocks show, when those clocks change. Decides nothing about schedules.
 * A *wall* time is what a zone's clock shows, written as if it were UTC.
 *
 * Z1. A zone is a name; bare offsets ("+02:00") are none, because they hide which clock changes apply.
 * Z2. A wall time that never is stands for the first instant after the gap; one that is twice, for the first.
 * Z3. What is kept in memory is bounded, whatever names scripts invent.
 */
const DAY_MS = 86_400_000;
const KEPT_ZONES = 128;

interface Zone {
  /** One spelling per zone: names are read in any case, and several name the same zone. */
  canonical: string;
  offsets: Intl.DateTimeFormat;
}

const kept = new Map<string, Zone>();

/** The zone's one spelling, `undefined` when there is no such zone. */
export function canonicalZone(name: string): string | undefined {
  return zoneNamed(name)?.canonical;
}

/** Wall time minus UTC at that instant. */
export function offsetMs(zone: string, atMs: number): number {
  const found = zoneNamed(zone);
  if (found === undefined) throw new Error(`there is no time zone ${JSON.stringify(zone)}`);
  const text = found.offsets.format(atMs);
  const [, sign, hours, minutes, seconds] = /GMT(?:([+-])(\d\d):(\d\d)(?::(\d\d))?)?$/.exec(text) ?? [];
  const size = (Number(hours ?? 0) * 3600 + Number(minutes ?? 0) * 60 + Number(seconds ?? 0)) * 1000;
  return sign === "-" ? -size : size;
}

/** The instant at which the zone's clock shows this wall time (Z2). */
export function instantOfWall(zone: string, wallMs: number): number {
  const before = offsetMs(zone, wallMs - DAY_MS);
  const after = offsetMs(zone, wallMs + DAY_MS);
  const shown = [wallMs - before, wallMs - after].filter((atMs) => atMs + offsetMs(zone, atMs) === wallMs);
  if (shown.length > 0) return Math.min(...shown);
  return changeWithin(zone, wallMs - Math.max(before, after), wallMs - Math.min(before, after));
}

/** The instants in (fromMs, toMs] at which the zone's clock changes, in order. Costs about 1 µs per day. */
export function clockChanges(zone: string, fromMs: number, toMs: number): number[] {
  const changes: number[] = [];
  for (let atMs = fromMs, offset = offsetMs(zone, fromMs); atMs < toMs; ) {
    const nextMs = Math.min(atMs + DAY_MS, toMs);
    const nextOffset = offsetMs(zone, nextMs);
    if (nextOffset !== offset) changes.push(changeWithin(zone, atMs, nextMs));
    atMs = nextMs;
    offset = nextOffset;
  }
  return changes;
}

/** The first instant in (fromMs, toMs] with the offset that `toMs` has. */
function changeWithin(zone: string, fromMs: number, toMs: number): number {
  const offset = offsetMs(zone, toMs);
  let low = fromMs;
  let high = toMs;
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (offsetMs(zone, middle) === offset) high = middle;
    else low = middle;
  }
  return high;
}

function zoneNamed(name: string): Zone | undefined {
  const known = kept.get(name);
  if (known !== undefined) return known;
  if (!/^[A-Za-z][A-Za-z0-9_+/-]{0,63}$/.test(name)) return undefined; // (Z1)
  let offsets: Intl.DateTimeFormat;
  try {
    offsets = new Intl.DateTimeFormat("en-US", { timeZone: name, timeZoneName: "longOffset" });
  } catch {
    return undefined;
  }
  if (kept.size >= KEPT_ZONES) kept.delete(kept.keys().next().value ?? name); // (Z3)
  const zone = { canonical: offsets.resolvedOptions().timeZone, offsets };
  kept.set(name, zone);
  return zone;
}
