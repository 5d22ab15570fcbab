/**
 * Scheduled times that passed while no host was there: too many of them, and a person is told (05, `missed_schedule`).
 *
 * M1. Told once per gap: with the run that catches up, in its transaction, and only of points whose fate is `missed`.
 * M2. Few points, or a short gap, are recorded like all others and bother nobody.
 */
import type { Write } from "./change.ts";
import type { HandlerId, InboxId } from "./ids.ts";
import type { SlotRange } from "./slots.ts";

const FEW = 3;
const SHORT_MS = 3_600_000;

export interface Gap {
  fromMs: number;
  toMs: number;
  count: number;
}

/** The points that were missed, if they are worth a word (M2). */
function gapOf(slots: readonly SlotRange[]): Gap | undefined {
  const missed = slots.filter(({ fate }) => fate === "missed");
  const [first, last] = [missed[0], missed.at(-1)];
  if (!first || !last) return undefined;
  const gap = {
    fromMs: first.fromMs,
    toMs: last.toMs,
    count: missed.reduce((sum, one) => sum + one.count, 0),
  };
  return gap.count > FEW && gap.toMs - gap.fromMs > SHORT_MS ? gap : undefined;
}

/** (M1) */
export function missedBy(
  handler: HandlerId,
  slots: readonly SlotRange[],
  inbox: InboxId | undefined,
): Write[] {
  const gap = gapOf(slots);
  if (!gap) return [];
  if (inbox === undefined) throw new Error(`handler ${handler} has missed points, but nobody would be told`);
  return [{ do: "inbox.open", id: inbox, kind: "missed_schedule", handler, detail: JSON.stringify(gap) }];
}
