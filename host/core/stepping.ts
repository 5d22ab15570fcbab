/**
 * Step mode (04): a run is held before each unit and shown; a person lets it go on. Holding is `advance.ts`.
 *
 * I1. A step lets exactly one unit through; it is not an approval.
 * I2. Switching to `auto` lets held work go on.
 */
import type { Change, Write } from "./change.ts";
import { type RunFacts, stateOf, type WorkflowFacts } from "./facts.ts";
import { type Operator, operation, type Refused } from "./operate.ts";

/** Lets the held run go on by one unit. */
export function stepOnce(open: RunFacts | undefined, operator: Operator): Change | Refused {
  if (!open || !isHeld(open)) return { refused: "no run is held", code: "nothing_held" };
  const change = operation("step", open.workflow, operator, letGo(open, "step", operator), {});
  const { id, revision } = open.run;
  return { ...change, expect: { run: { id, revision } } }; // (I1)
}

/** `auto` lets what is held go on; `step` holds from the next unit on. */
export function setMode(
  workflow: WorkflowFacts,
  open: RunFacts | undefined,
  mode: "auto" | "step",
  operator: Operator,
): Change {
  const held = mode === "auto" && open !== undefined && isHeld(open);
  const writes: Write[] = [{ do: "workflow.set", set: { mode } }];
  if (held) writes.push(...letGo(open, "mode", operator));
  const change = operation("mode", workflow, operator, writes, { mode });
  return held
    ? { ...change, expect: { ...change.expect, run: { id: open.run.id, revision: open.run.revision } } }
    : change;
}

const isHeld = ({ run }: RunFacts): boolean =>
  run.open && run.status === "paused:approval" && run.pauseReason === "step" && run.readyAtMs === undefined;

function letGo({ run }: RunFacts, action: string, { by, note, atMs }: Operator): Write[] {
  const resolution = { by, action, atMs, ...(note === undefined ? {} : { note }) };
  return [
    { do: "run.set", id: run.id, from: stateOf(run), set: { readyAtMs: atMs, resolution } },
    { do: "inbox.close", run: run.id },
  ];
}
