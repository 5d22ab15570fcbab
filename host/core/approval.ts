/**
 * What a person allowed beforehand: the next calls of a tool, or those until a time (02 §6, 06). Kept with the workflow,
 * and used up by the very Change that lets a call leave.
 *
 * S1. It speaks for one alias and tool as they were when it was given. Another connection, config or grant: void.
 * S2. It ends with a new version and with a restore; nobody has allowed what a script has become since.
 * S3. Each use, and each end before its time, is on record with who had allowed it.
 */
import type { Write } from "./change.ts";
import type { RunFacts } from "./facts.ts";
import type { EpochMs } from "./ids.ts";

export interface StandingApproval {
  alias: string;
  tool: string;
  connection: string;
  configVersion: number;
  grantVersion: number;
  /** Calls that are left. */
  remaining?: number;
  untilMs?: EpochMs;
  by: string;
  atMs: EpochMs;
}

/** Beyond the call that was shown. */
export type ApprovalScope = { next: number } | { untilMs: EpochMs };

const MOST_CALLS = 1_000;
const LONGEST_MS = 31 * 86_400_000;

/** Why a person may not allow that much, or `undefined`. */
export function scopeProblem(
  { run, workflow }: Pick<RunFacts, "run" | "workflow">,
  scope: ApprovalScope,
  atMs: EpochMs,
): string | undefined {
  if (run.version !== workflow.activeVersion)
    return "another version is active by now: only this one call can be approved"; // (S2)
  if ("next" in scope)
    return Number.isInteger(scope.next) && scope.next >= 1 && scope.next <= MOST_CALLS
      ? undefined
      : `approve the next 1 to ${MOST_CALLS} calls`;
  const aheadMs = scope.untilMs - atMs;
  return aheadMs > 0 && aheadMs <= LONGEST_MS ? undefined : "approve until a time within the next 31 days";
}

/** What stands behind an alias and a tool when it is asked about. */
export type Behind = Pick<
  StandingApproval,
  "alias" | "tool" | "connection" | "configVersion" | "grantVersion"
> & { needsApproval: boolean };

/** A newer one for the same tool replaces the older. */
export function allow(
  { workflow }: Pick<RunFacts, "workflow">,
  behind: Omit<Behind, "needsApproval">,
  scope: ApprovalScope,
  { by, atMs }: { by: string; atMs: EpochMs },
): Write {
  const { alias, tool, connection, configVersion, grantVersion } = behind;
  const extent = "next" in scope ? { remaining: scope.next } : { untilMs: scope.untilMs };
  const given = { alias, tool, connection, configVersion, grantVersion, ...extent, by, atMs };
  const others = (workflow.approvals ?? []).filter((one) => !isFor(one, behind));
  return { do: "workflow.set", set: { approvals: [...others, given] } };
}

/** What a call finds: whether somebody has allowed it beforehand, and what becomes of that permission with it. */
export interface Allowance {
  allowed: boolean;
  writes: Write[];
}

const NONE: Allowance = { allowed: false, writes: [] };

export function allowanceOf({ run, workflow }: RunFacts, behind: Behind, atMs: EpochMs): Allowance {
  const approvals = workflow.approvals ?? [];
  const found = approvals.find((one) => isFor(one, behind));
  if (!found) return NONE;
  const others = approvals.filter((one) => one !== found);
  const keep = (list: StandingApproval[]): Write => ({ do: "workflow.set", set: { approvals: list } });
  const told = (action: string, more: object): Write => {
    const { alias, tool, by } = found;
    const detail = JSON.stringify({ alias, tool, by, ...more });
    return { do: "audit", actor: "host", action, run: run.id, detail }; // (S3)
  };
  const why = voidedBy(found, behind); // (S1)
  if (why !== undefined)
    return { allowed: false, writes: [keep(others), told("approval.void", { because: why })] };
  if (found.untilMs !== undefined && found.untilMs <= atMs) return { allowed: false, writes: [keep(others)] };
  if (run.version !== workflow.activeVersion) return NONE; // (S2)
  if (found.remaining === undefined)
    return { allowed: true, writes: [told("approval.use", { untilMs: found.untilMs })] };
  const remaining = found.remaining - 1;
  const left =
    remaining > 0 ? approvals.map((one) => (one === found ? { ...found, remaining } : one)) : others;
  return { allowed: true, writes: [keep(left), told("approval.use", { remaining })] };
}

const isFor = (one: StandingApproval, { alias, tool }: Pick<Behind, "alias" | "tool">): boolean =>
  one.alias === alias && one.tool === tool;

function voidedBy(given: StandingApproval, now: Behind): string | undefined {
  if (!now.needsApproval || now.grantVersion !== given.grantVersion) return "the grant has changed";
  if (now.connection !== given.connection) return "the alias is bound to another connection";
  return now.configVersion === given.configVersion ? undefined : "the connection is configured differently";
}
