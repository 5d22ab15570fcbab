/**
 * The mutation ledger: one row per decision to change something outside (02 §5). Decides which transitions are legal
 * and what a row's state says about the world; never talks to the world.
 *
 * M1. Only the transitions of the table below exist.
 * M2. Unknown is not failed: a row is `failed` only with proof that nothing happened, or by a person's word.
 */
import type { EpochMs, MutationId, RunId } from "./ids.ts";
import type { JsonText } from "./workflow.ts";

export type MutationStatus =
  | "proposed"
  | "in_flight"
  | "needs_reconcile"
  | "indeterminate"
  | "applied"
  | "failed"
  | "skipped";

/** How a tool's outcome can be proved (06). */
export type ProofClass = "key" | "lookup" | "conditional" | "none";

const LEGAL: Record<MutationStatus, readonly MutationStatus[]> = {
  proposed: ["in_flight", "failed", "skipped"],
  in_flight: ["applied", "failed", "needs_reconcile", "proposed", "skipped"],
  needs_reconcile: ["applied", "failed", "indeterminate", "skipped"],
  indeterminate: ["needs_reconcile", "applied", "failed", "skipped"],
  applied: [],
  failed: [],
  skipped: [],
};

export function mayBecome(from: MutationStatus, to: MutationStatus): boolean {
  return LEGAL[from].includes(to); // (M1)
}

/** The call may have had its effect, or may yet have it: nobody may decide the same change again. */
export function isUnknown(status: MutationStatus | undefined): boolean {
  return status === "in_flight" || status === "needs_reconcile" || status === "indeterminate";
}

/** How long a service remembers an idempotency key: later a re-send could be a second effect. */
const KEY_LIFETIME_MS = 86_400_000;

/** The proof that is left now: a key outlives neither its day nor a new config of the connection (5.2). */
export function proofNow(
  { proof, configVersion, createdAtMs }: Pick<Mutation, "proof" | "configVersion" | "createdAtMs">,
  now: { configVersion: number; atMs: EpochMs },
): ProofClass {
  if (proof !== "key") return proof;
  const stale = configVersion !== now.configVersion || now.atMs - createdAtMs >= KEY_LIFETIME_MS;
  return stale ? "none" : "key";
}

export interface Mutation {
  id: MutationId;
  originRun: RunId;
  /** The run that acts on it now; recovery hands it on. */
  ownerRun: RunId;
  status: MutationStatus;
  alias: string;
  connection: string;
  /** Version of the connection's config at the decision; a check against another one proves nothing. */
  configVersion: number;
  tool: string;
  args: JsonText;
  /** Host-written, from the real arguments. */
  description: string;
  proof: ProofClass;
  /** What the tool's `before` saw, for a check that compares. */
  before?: JsonText;
  idempotencyKey: string;
  /** Grows only after a connector-proved failure (5.4). */
  n: number;
  sends: number;
  /** When the last call ended on our side; `notApplied` counts only `settleMs` later (5.2). */
  endedAtMs?: EpochMs;
  settleMs: number;
  checks: number;
  nextCheckAtMs?: EpochMs;
  /** Its bytes leave once more; until the check that sends them has ended, nobody's word settles the row. */
  resending?: boolean;
  result?: JsonText;
  resultInvalid?: boolean;
  /** True when the row failed without a byte having left. */
  notSent?: boolean;
  error?: JsonText;
  createdAtMs: EpochMs;
}

/** One time that bytes left, or were about to: a child row of the decision. */
export interface Send {
  n: number;
  atMs: EpochMs;
  bytesHash: string;
  idempotencyKey: string;
  endedAtMs?: EpochMs;
  answer?: JsonText;
}
