/**
 * What waits for a person → the question, and what may be answered (02 §6, §9; kinds as in 05). One row per kind.
 *
 * Y1. Nothing is offered that the operator table refuses now.
 * Y2. Each action says what it will do, in words that hold for this run.
 */
import type { InboxKind } from "./change.ts";
import type { RunFacts } from "./facts.ts";
import { type Decision, refusal } from "./resolve.ts";
import { isPastBoundary } from "./run.ts";

export interface InboxAction {
  name: string;
  effect: string;
}

export interface InboxQuestion {
  question: string;
  actions: InboxAction[];
}

export interface InboxSubject {
  /** The run that waits, if it is about one. */
  facts?: RunFacts;
  canCheck?: boolean;
  /** Name of the handler, input or schedule it is about. */
  about?: string;
}

interface Row {
  question: (of: { what: string; connection: string; why: string; about: string }) => string;
  /** Answers that decide about the run, offered while they are allowed. */
  decisions: readonly Decision["action"][];
  /** Answers given elsewhere: a deploy, a connection, an acknowledgement. */
  others: readonly InboxAction[];
}

const ACKNOWLEDGE: InboxAction = { name: "acknowledge", effect: "The item is closed; nothing else happens" };
const DEPLOY: InboxAction = {
  name: "deploy",
  effect: "A new version is tried at once, from where the ledger allows",
};

const ROWS: Record<InboxKind, Row> = {
  unknown_outcome: {
    question: ({ what }) => `Did it happen? ${what}`,
    decisions: ["applied", "not-applied", "skip", "check"],
    others: [],
  },
  contradiction: {
    question: ({ what }) => `An answer says that it happened after all: ${what}`,
    decisions: [],
    others: [ACKNOWLEDGE],
  },
  approval: {
    question: ({ what }) => `May this be done? ${what}`,
    decisions: ["approve", "reject"],
    others: [],
  },
  reconnect: {
    question: ({ connection }) => `Please reconnect ${connection}`,
    decisions: ["retry", "close"],
    others: [{ name: "reconnect", effect: "Every run that waits for this connection goes on" }],
  },
  permission: {
    question: ({ why }) => `Is this workflow allowed to? ${why}`,
    decisions: ["retry", "close"],
    others: [{ name: "grant", effect: "The run goes on where it stopped" }],
  },
  precondition: {
    question: ({ why }) => `The outside is not as declared: ${why}`,
    decisions: ["retry", "close"],
    others: [DEPLOY],
  },
  binding: {
    question: ({ why }) => `Which connection should be used? ${why}`,
    decisions: ["retry", "close"],
    others: [{ name: "bind", effect: "The chain is made again with that connection" }],
  },
  capability: {
    question: ({ why }) => `This host cannot do that: ${why}`,
    decisions: ["retry", "close"],
    others: [DEPLOY],
  },
  script_error: {
    question: ({ why }) => `The script failed: ${why}`,
    decisions: ["retry", "close"],
    others: [DEPLOY],
  },
  internal: {
    question: ({ why }) => `The host failed: ${why}`,
    decisions: ["retry", "close"],
    others: [],
  },
  retries_exhausted: {
    question: ({ why }) => `It keeps failing: ${why}`,
    decisions: ["retry", "close"],
    others: [DEPLOY],
  },
  crash_loop: {
    question: () => "It was interrupted three times at the same place",
    decisions: ["retry", "close"],
    others: [DEPLOY],
  },
  step: {
    question: () => "Shall it go on?",
    decisions: ["close"],
    others: [
      { name: "step", effect: "Exactly one unit runs" },
      { name: "auto", effect: "It goes on, and later runs are not held" },
    ],
  },
  dead_letter: {
    question: ({ why }) => `Events were set aside after a failure: ${why}`,
    decisions: [],
    others: [
      { name: "requeue", effect: "The events are pending again and the consumer is triggered" },
      ACKNOWLEDGE,
    ],
  },
  orphaned: {
    question: ({ about }) => `Events wait for ${about}, which the active version does not have`,
    decisions: [],
    others: [
      { name: "keep", effect: "They stay, for a version that has the consumer again" },
      { name: "skip", effect: "They are skipped" },
      { name: "moveTo", effect: "They become pending for another consumer, which is triggered" },
    ],
  },
  stale_input: {
    question: ({ about }) => `Nothing has happened for a week with ${about}`,
    decisions: [],
    others: [
      { name: "skip", effect: "All it caused is skipped, where nothing can have happened yet" },
      ACKNOWLEDGE,
    ],
  },
  missed_schedule: {
    question: ({ about }) => `Scheduled times were missed: ${about}`,
    decisions: [],
    others: [ACKNOWLEDGE],
  },
};

export function inboxQuestion(kind: InboxKind, subject: InboxSubject): InboxQuestion {
  const { facts, about = "something" } = subject;
  const row = ROWS[kind];
  const what = facts?.mutation?.description ?? "an outside change";
  const connection = facts?.mutation?.connection ?? facts?.run.error?.tool?.split(".")[0] ?? "the connection";
  const why = facts?.run.error?.message ?? "no reason was recorded";
  return {
    question: row.question({ what, connection, why, about }),
    actions: [...row.decisions.flatMap((action) => offered(action, subject)), ...row.others],
  };
}

/** (Y1) */
function offered(action: Decision["action"], { facts, canCheck = false }: InboxSubject): InboxAction[] {
  if (!facts) return [];
  return answers(action, facts)
    .filter(({ decision }) => refusal(facts, decision, canCheck) === undefined)
    .map(({ name, effect }) => ({ name, effect }));
}

type Answer = InboxAction & { decision: Decision };

/** (Y2) */
function answers(action: Decision["action"], facts: RunFacts): Answer[] {
  const past = isPastBoundary(facts.mutation);
  const answer = (decision: Decision, effect: string, name: string = decision.action): Answer => ({
    name,
    decision,
    effect,
  });
  switch (action) {
    case "approve":
      return [answer({ action }, "It is done once, exactly as shown")];
    case "reject":
      return [
        answer({ action, deliveries: "skip" }, "It is not done; the run goes on without it", "reject-skip"),
        answer(
          { action, deliveries: "release" },
          "It is not done; its events stay pending and trigger nothing by themselves",
          "reject-release",
        ),
      ];
    case "check":
      return [answer({ action }, "The outside is asked again, now")];
    case "applied":
      return [answer({ action }, "It counts as made; the run goes on with what follows")];
    case "not-applied":
      return [answer({ action }, "It counts as not made; the run is made again from its beginning")];
    case "skip":
      return [answer({ action }, "The run goes on without it, whether it happened or not")];
    case "retry":
      return [
        answer(
          { action },
          past ? "What follows from the change is tried again" : "The run is tried again when its turn comes",
        ),
      ];
    case "close":
      return past
        ? [
            answer(
              { action, deliveries: "release", force: true },
              "The change stays made; its events are used up and nothing is published",
              "close-force",
            ),
          ]
        : [answer({ action, deliveries: "release" }, "It ends here; its events stay pending")];
  }
}
