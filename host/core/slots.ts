/**
 * A schedule's points in time, what becomes of each (02 §1.2, 1.3), and when a grid starts anew. Decides nothing about
 * whether a run may start (`trigger.ts`).
 *
 * S1. An interval's points are its anchor plus whole multiples of it, in both directions: no drift, and one next point
 *     however late it is (no burst).
 * S2. Work does not grow with the number of points passed over: arithmetic for intervals, per day for cron.
 * S3. Every due point gets exactly one fate: ranges are in order, do not overlap, and their counts add up.
 * S4. Points of equal fate next to each other are one range; a year of missed points is one row.
 * S5. The newest due point belongs to the run, even if the host was down at that point.
 */
import { type Count, countFires, nextFire, previousFire } from "./cron.ts";
import type { EpochMs, RunId } from "./ids.ts";
import type { Schedule } from "./workflow.ts";

/** A clock set back by less is not a jump: it would move a grid that has just fired. */
const CLOCK_STEP_MS = 1_000;

/** The first point after `afterMs`. */
export function nextSlot(schedule: Schedule, afterMs: EpochMs, anchorMs: EpochMs): EpochMs {
  if ("intervalMs" in schedule) return previousSlot(schedule, afterMs, anchorMs) + schedule.intervalMs;
  return orNever(schedule, nextFire(schedule.cron, schedule.timezone, afterMs));
}

/** The last point at or before `atMs`. */
export function previousSlot(schedule: Schedule, atMs: EpochMs, anchorMs: EpochMs): EpochMs {
  if ("intervalMs" in schedule)
    return anchorMs + Math.floor((atMs - anchorMs) / schedule.intervalMs) * schedule.intervalMs;
  return orNever(schedule, previousFire(schedule.cron, schedule.timezone, atMs));
}

export interface DuePoints extends Count {
  firstMs: EpochMs;
  newestMs: EpochMs;
}

/**
 * The points in [fromMs, toMs]; `undefined` when there is none. From the stored `nextRunAt` to now they are what is due,
 * and one run serves them all: the newest is its slot, the rest are `slotFates`' business.
 */
export function duePoints(
  schedule: Schedule,
  fromMs: EpochMs,
  toMs: EpochMs,
  anchorMs: EpochMs,
): DuePoints | undefined {
  const firstMs = nextSlot(schedule, fromMs - 1, anchorMs);
  if (firstMs > toMs) return undefined;
  const newestMs = previousSlot(schedule, toMs, anchorMs);
  const counted =
    "intervalMs" in schedule
      ? { count: (newestMs - firstMs) / schedule.intervalMs + 1, isFloor: false }
      : countFires(schedule.cron, schedule.timezone, firstMs, newestMs);
  return { firstMs, newestMs, ...counted };
}

/** What the store keeps of a producer's schedule. */
export interface SlotPlan {
  anchorMs: EpochMs;
  nextRunAtMs: EpochMs;
}

/** After a manual or deploy run at `atMs`: an interval's grid starts there, and that is not a slot; cron has no grid. */
export function reanchor(schedule: Schedule, atMs: EpochMs): SlotPlan {
  return { anchorMs: atMs, nextRunAtMs: nextSlot(schedule, atMs, atMs) };
}

/**
 * The plan to keep, seen at `nowMs`: the same one, unless the clock was set back so far that the next run would be more
 * than one interval away (02 §1.12). Cron: further away than the fire after the next, so that a fire which has run
 * before the clock was set back does not run again.
 */
export function afterClockJump(schedule: Schedule, plan: SlotPlan, nowMs: EpochMs): SlotPlan {
  const limitMs =
    "intervalMs" in schedule
      ? nowMs + schedule.intervalMs
      : nextSlot(schedule, nextSlot(schedule, nowMs, nowMs), nowMs);
  return plan.nextRunAtMs > limitMs + CLOCK_STEP_MS ? reanchor(schedule, nowMs) : plan;
}

export interface SlotRange {
  fromMs: EpochMs;
  toMs: EpochMs;
  count: number;
  /** There are at least `count` points; see `countFires`. */
  countIsFloor?: true;
  fate: "ran" | "coalesced" | "skipped" | "missed" | "failed";
  run?: RunId;
  why?: string;
}

/** From `fromMs` on, until just before `toMs`, the host was down. */
export interface DownSpan {
  fromMs: EpochMs;
  toMs: EpochMs;
}

export interface DueSlots {
  schedule: Schedule;
  anchorMs: EpochMs;
  /** The oldest and the newest due point, as `duePoints` gave them. */
  firstDueMs: EpochMs;
  newestDueMs: EpochMs;
  /** In any order; they may overlap. */
  down: readonly DownSpan[];
  /** What the run made of the newest point. */
  how: "ran" | "failed" | "skipped";
  /** Absent only when skipped by an archive: then no point can be coalesced into a run. */
  run?: RunId;
  why?: string;
}

export function slotFates(due: DueSlots): SlotRange[] {
  const { schedule, anchorMs, firstDueMs, newestDueMs, how, run, why } = due;
  if (run === undefined && how !== "skipped") throw new Error(`a point that ${how} names its run`);
  if (firstDueMs > newestDueMs) throw new Error(`first due ${firstDueMs} is after newest due ${newestDueMs}`);
  const named = run === undefined ? {} : { run };
  const newest = { fate: how, ...named, ...(why === undefined ? {} : { why }) };
  const older = run === undefined ? newest : ({ fate: "coalesced", run } as const);
  const ranges: SlotRange[] = [];
  for (const { fromMs, toMs, isDown } of segments(due)) {
    const points = duePoints(schedule, fromMs, toMs - 1, anchorMs);
    if (points === undefined) continue;
    const { firstMs, newestMs, count, isFloor } = points;
    const fate = isDown ? ({ fate: "missed", ...named } as const) : older;
    add(ranges, {
      fromMs: firstMs,
      toMs: newestMs,
      count,
      ...(isFloor ? { countIsFloor: true } : {}),
      ...fate,
    });
  }
  add(ranges, { fromMs: newestDueMs, toMs: newestDueMs, count: 1, ...newest }); // (S5)
  return ranges;
}

/** [firstDueMs, newestDueMs) cut where the host went down or came back. */
function segments({ firstDueMs, newestDueMs, down }: DueSlots): (DownSpan & { isDown: boolean })[] {
  const cut: (DownSpan & { isDown: boolean })[] = [];
  let atMs = firstDueMs;
  for (const span of [...down].sort((a, b) => a.fromMs - b.fromMs)) {
    const fromMs = Math.max(span.fromMs, atMs);
    const toMs = Math.min(span.toMs, newestDueMs);
    if (fromMs >= toMs) continue;
    if (atMs < fromMs) cut.push({ fromMs: atMs, toMs: fromMs, isDown: false });
    cut.push({ fromMs, toMs, isDown: true });
    atMs = toMs;
  }
  if (atMs < newestDueMs) cut.push({ fromMs: atMs, toMs: newestDueMs, isDown: false });
  return cut;
}

/** (S4) */
function add(ranges: SlotRange[], range: SlotRange): void {
  const last = ranges.at(-1);
  if (last === undefined || last.fate !== range.fate || last.run !== range.run || last.why !== range.why) {
    ranges.push(range);
    return;
  }
  last.toMs = range.toMs;
  last.count += range.count;
  if (range.countIsFloor) last.countIsFloor = true;
}

/** A schedule that `readSchedule` accepted fires, until the calendar ends; any other is a programmer's error. */
function orNever(schedule: Schedule, atMs: EpochMs | undefined): EpochMs {
  if (atMs === undefined) throw new Error(`the schedule ${JSON.stringify(schedule)} has no point there`);
  return atMs;
}
