/**
 * What a decision would do, in words and in rows, without doing it (02 §6, 05): read off the very Change that would be
 * applied, so that it cannot promise anything else.
 */
import { scopeProblem, type StandingApproval } from "./approval.ts";
import type { Change, HandlerPatch, Write, WorkflowPatch } from "./change.ts";
import type { RunFacts } from "./facts.ts";
import { type EpochMs, formatId } from "./ids.ts";
import { type Decision, decide, type Deciding, refusal } from "./resolve.ts";

export interface RowEffect {
  row: string;
  becomes: string;
}

export interface Consequences {
  words: string[];
  rows: RowEffect[];
}

/** Of a decision about a run, or why it is refused. */
export function consequencesOf(
  facts: RunFacts,
  decision: Decision,
  deciding: Deciding,
): Consequences | { refused: string } {
  const refused = refusalOf(facts, decision, deciding);
  return refused === undefined ? consequences(decide(facts, decision, deciding)) : { refused };
}

/** Why a person may not decide that now, or `undefined`: by the state, and by how far it is meant to go. */
export function refusalOf(
  facts: RunFacts,
  decision: Decision,
  { canCheck, atMs }: Pick<Deciding, "canCheck" | "atMs">,
): string | undefined {
  const scope = decision.action === "approve" ? decision.scope : undefined;
  return refusal(facts, decision, canCheck) ?? (scope && scopeProblem(facts, scope, atMs));
}

export function consequences(change: Change): Consequences {
  const words = [...new Set(change.writes.flatMap((write) => per(WORDS, write)))];
  return {
    words: words.length > 0 ? words : ["Nothing changes."],
    rows: change.writes.flatMap((write) => per(ROWS, write)),
  };
}

type RunSet = Extract<Write, { do: "run.set" }>["set"];
type RowSet = Extract<Write, { do: "mutation.set" }>["set"];

/** One row per kind of write that means something to a person; the others are book-keeping. */
type PerWrite<Result> = { [Kind in Write["do"]]?: (write: Extract<Write, { do: Kind }>) => Result };

function per<Result>(table: PerWrite<Result[]>, write: Write): Result[] {
  const tell = table[write.do] as ((write: Write) => Result[]) | undefined;
  return tell?.(write) ?? [];
}

const WORDS: PerWrite<string[]> = {
  "run.set": ({ set }) => runWords(set),
  "run.create": () => ["A new run takes over."],
  "mutation.set": ({ set }) => rowWords(set),
  deliveries: ({ ids, to }) => [`${count(ids.length, "event")} ${DELIVERED[to]}.`],
  "delivery.renew": ({ how }) =>
    how === "requeue"
      ? ["The event is pending again and triggers its consumer."]
      : ["The event is delivered once more, and triggers its consumer."],
  "orphans.move": () => ["The events become pending for the other consumer and trigger it."],
  "orphans.skip": () => ["The events that wait for the missing consumer are skipped."],
  "handler.set": ({ set }) => handlerWords(set),
  "workflow.set": ({ set }) => workflowWords(set),
  slot: ({ range }) => [`${count(range.count, "scheduled time")} recorded as ${range.fate}.`],
  "version.create": ({ version }) => [`Version ${version.number} is stored.`],
};

const DELIVERED = {
  pending: "pending again, without triggering by being so",
  reserved: "held by the run",
  consumed: "used up",
  skipped: "skipped",
  dead: "set aside",
} as const;

function runWords(set: RunSet): string[] {
  const words: string[] = [];
  if (set.phase === "mutated")
    words.push(
      set.outcome === "applied"
        ? "The outside change counts as made."
        : "The run goes on without its outside change.",
    );
  if (set.status === "crashed") words.push("The run is ended early.");
  if (set.open === false && set.successor === undefined) words.push("The chain ends here.");
  if (typeof set.readyAtMs === "number") words.push("The run goes on when its turn comes.");
  return words;
}

function rowWords({ status, notSent, nextCheckAtMs }: RowSet): string[] {
  if (status === "failed")
    return [
      notSent
        ? "The recorded call is never sent."
        : "The outside change counts as not made, and may be decided again.",
    ];
  return typeof nextCheckAtMs === "number" ? ["The outside is asked whether it happened, now."] : [];
}

function handlerWords(set: HandlerPatch): string[] {
  const words: string[] = [];
  if (set.queued) words.push("The producer runs next.");
  if (set.triggered) words.push("The consumer is triggered.");
  if (set.triggerIfPending) words.push("The consumer is triggered if more is pending.");
  if (set.state !== undefined) words.push("The handler's state is replaced.");
  if (typeof set.nextRunAtMs === "number") words.push(`The schedule goes on at ${iso(set.nextRunAtMs)}.`);
  if (set.orphaned) words.push("The handler is dropped; its events stay.");
  return words;
}

function workflowWords({ paused, archived, mode, activeVersion, approvals }: WorkflowPatch): string[] {
  const words: string[] = [];
  if (paused !== undefined)
    words.push(paused ? "Nothing new starts; what runs is finished." : "The workflow goes on.");
  if (archived !== undefined)
    words.push(archived ? "The workflow is put away; nothing of it is lost." : "The workflow is back.");
  if (mode !== undefined)
    words.push(mode === "step" ? "Runs are held before each unit." : "Runs are no longer held.");
  if (activeVersion !== undefined) words.push(`Version ${activeVersion} becomes the active one.`);
  if (approvals) words.push(approvalWords(approvals.at(-1)));
  return words;
}

/** The newest stands last. */
function approvalWords(given: StandingApproval | undefined): string {
  if (!given) return "What was approved beforehand ends.";
  const calls = `${given.alias}.${given.tool}`;
  return given.remaining === undefined
    ? `Until ${new Date(given.untilMs ?? 0).toISOString()} every call of ${calls} is made without asking.`
    : `The next ${count(given.remaining, "call")} of ${calls} made without asking.`;
}

const ROWS: PerWrite<RowEffect[]> = {
  "run.set": ({ id, set }) => row(formatId("run", id), set),
  "run.create": ({ run }) => [{ row: formatId("run", run.id), becomes: `${run.phase}, ${run.status}` }],
  "mutation.set": ({ id, set }) => row(formatId("mutation", id), set),
  deliveries: ({ ids, to }) => ids.map((id) => ({ row: formatId("delivery", id), becomes: to })),
  "delivery.renew": ({ id, how }) => [
    { row: formatId("delivery", id), becomes: how === "requeue" ? "pending" : "delivered again" },
  ],
  "handler.set": ({ set }) => row("handler", set),
  "workflow.set": ({ set }) => row("workflow", set),
};

const BOOK_KEEPING: readonly string[] = ["resolution", "openRun", "consumerStreak"];

/** "status: paused:transient, open: false" */
function row(name: string, set: object): RowEffect[] {
  const fields = Object.entries(set).filter(([field]) => !BOOK_KEEPING.includes(field));
  if (fields.length === 0) return [];
  const becomes = fields.map(([field, value]) => `${field}: ${show(value)}`).join(", ");
  return [{ row: name, becomes }];
}

const show = (value: unknown): string =>
  value === null ? "none" : typeof value === "string" ? value : JSON.stringify(value);

const count = (n: number, noun: string): string => (n === 1 ? `1 ${noun} is` : `${n} ${noun}s are`);

const iso = (atMs: EpochMs): string => new Date(atMs).toISOString();
