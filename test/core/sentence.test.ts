import { describe, expect, test } from "vitest";
import type { InboxKind } from "../../host/core/change.ts";
import { consequences, consequencesOf } from "../../host/core/consequences.ts";
import { inboxQuestion } from "../../host/core/inbox.ts";
import { pause, runNow } from "../../host/core/operate.ts";
import type { Decision } from "../../host/core/resolve.ts";
import { runSentence, workflowSentence, type WorkflowView } from "../../host/core/sentence.ts";
import { error, facts, factsOf, type Given, ID, NOW, reachableStates, workflow } from "../support/facts.ts";

const view = (given: Given) => {
  const { run, mutation } = facts(given);
  return { run, ...(mutation ? { mutation } : {}) };
};
const says = (given: Given) => runSentence(view(given), NOW);
const AT = NOW + 90_000;
const failed = error("transient", "network");

describe("9 a run in one sentence", () => {
  test.each<[string, Given]>([
    ["Looking for something new", { run: { kind: "producer" } }],
    ["Choosing what to work on", { run: { phase: "preparing" } }],
    ["Working out what to change", { run: { phase: "prepared" } }],
    ["About to make its outside change", { run: { phase: "mutating" }, row: "proposed" }],
    ["Waiting for the answer: Post 5 to the ledger", { run: { phase: "mutating" }, row: "in_flight" }],
    ["Publishing what follows", { run: { phase: "emitting" }, row: "applied" }],
    [
      "Tries again at 2026-01-02 03:01:30 UTC: it was network",
      { run: { status: "paused:transient", pauseReason: "retrying", readyAtMs: AT, error: failed } },
    ],
    [
      "Waiting for a limit, goes on at 2026-01-02 03:01:30 UTC",
      { run: { status: "paused:transient", pauseReason: "limited", readyAtMs: AT } },
    ],
    [
      "Waiting for a service that keeps failing, goes on at 2026-01-02 03:01:30 UTC",
      { run: { status: "paused:transient", pauseReason: "breaker_open", readyAtMs: AT } },
    ],
    [
      "Its retries are used up: it was network",
      { run: { status: "paused:transient", pauseReason: "retries_exhausted", error: failed } },
    ],
    [
      "Its time is up: it was network",
      { run: { status: "paused:transient", pauseReason: "deadline", error: failed } },
    ],
    [
      "Ready: goes on when its turn comes",
      { run: { status: "paused:transient", pauseReason: "retrying", readyAtMs: NOW } },
    ],
    [
      "Waiting for you to approve: Post 5 to the ledger",
      { run: { status: "paused:approval", pauseReason: "approval", phase: "mutating" }, row: "proposed" },
    ],
    [
      "Waiting for you to reconnect bank-prod",
      { run: { status: "paused:approval", pauseReason: "auth", phase: "mutating" }, row: "proposed" },
    ],
    [
      "Waiting for you to reconnect shop",
      { run: { status: "paused:approval", pauseReason: "auth", error: { ...failed, tool: "shop.list" } } },
    ],
    [
      "Waiting for you to grant shop.list",
      {
        run: {
          status: "paused:approval",
          pauseReason: "permission",
          error: { ...failed, tool: "shop.list" },
        },
      },
    ],
    [
      "Waiting for you: it was network",
      { run: { status: "paused:approval", pauseReason: "precondition", error: failed } },
    ],
    [
      "Waiting for you to choose a connection: it was network",
      { run: { status: "paused:approval", pauseReason: "binding", error: failed } },
    ],
    ["Held: waiting for your step", { run: { status: "paused:approval", pauseReason: "step" } }],
    [
      "Checking whether it happened: Post 5 to the ledger",
      { run: { status: "paused:reconciliation", pauseReason: "checking" }, row: "needs_reconcile" },
    ],
    [
      "Waiting for you to say whether it happened: Post 5 to the ledger",
      { run: { status: "paused:reconciliation", pauseReason: "indeterminate" }, row: "indeterminate" },
    ],
    [
      "Waiting for you to reconnect bank-prod, to check whether it happened: Post 5 to the ledger",
      { run: { status: "paused:reconciliation", pauseReason: "auth" }, row: "needs_reconcile" },
    ],
    [
      "The script failed at line 12: it was oops",
      {
        run: {
          status: "failed:logic",
          error: { ...error("logic", "oops"), location: { line: 12, column: 3 } },
        },
      },
    ],
    ["The host failed: it was bug", { run: { status: "failed:internal", error: error("internal", "bug") } }],
    ["Interrupted three times at the same place", { run: { status: "crashed", pauseReason: "crash_loop" } }],
    ["Ready: goes on when its turn comes", { run: { status: "crashed", readyAtMs: NOW } }],
    [
      "Done: Post 5 to the ledger",
      { run: { status: "committed", phase: "committed", open: false, outcome: "applied" }, row: "applied" },
    ],
    [
      "Done, without its outside change",
      { run: { status: "committed", phase: "committed", open: false, outcome: "skipped" }, row: "skipped" },
    ],
    ["Done", { run: { status: "committed", phase: "committed", open: false, outcome: "none" } }],
    ["Made again as another run", { run: { status: "crashed", open: false, successor: 5 } }],
    [
      "Closed by ann",
      { run: { status: "failed:logic", open: false, resolution: { by: "ann", action: "close", atMs: 1 } } },
    ],
    [
      "Given up by policy, its events set aside",
      {
        run: {
          status: "failed:logic",
          open: false,
          resolution: { by: "policy", action: "deadLetter", atMs: 1 },
        },
      },
    ],
    [
      "Closed: the active version no longer has this handler",
      {
        run: {
          status: "crashed",
          open: false,
          resolution: { by: "host", action: "handler_removed", atMs: 1 },
        },
      },
    ],
  ])("9 %s", (sentence, given) => {
    expect(says(given)).toBe(sentence);
  });

  test.each(reachableStates())("9 $name has a sentence, which names no phase and no status", (state) => {
    const { run, mutation } = factsOf(state);
    const sentence = runSentence({ run, ...(mutation ? { mutation } : {}) }, NOW);
    expect(sentence).toMatch(/^[A-Z].{3,}[^.]$/);
    expect(sentence).not.toMatch(/preparing|mutat|emitting|paused|undefined|null/);
  });
});

describe("9 a workflow in one word and one sentence", () => {
  const base: WorkflowView = { paused: false, archived: false, activeVersion: 3, questions: [] };
  const retrying = view({
    run: { status: "paused:transient", pauseReason: "retrying", readyAtMs: AT, error: failed },
  });
  const checking = view({
    run: { status: "paused:reconciliation", pauseReason: "checking" },
    row: "needs_reconcile",
  });
  const active = view({ run: { kind: "producer" } });
  test.each<[string, string, Partial<WorkflowView>]>([
    ["needs_attention", "Please reconnect Shop", { questions: ["Please reconnect Shop"] }],
    ["needs_attention", "A (and 2 more)", { questions: ["A", "B", "C"] }],
    ["needs_attention", "A", { questions: ["A"], paused: true }],
    ["needs_attention", "A", { questions: ["A"], archived: true }],
    ["needs_attention", "A", { questions: ["A"], open: active }],
    ["running", "Looking for something new", { open: active }],
    ["running", "Tries again at 2026-01-02 03:01:30 UTC: it was network", { open: retrying }],
    ["running", "Checking whether it happened: Post 5 to the ledger", { open: checking }],
    ["stopped", "Archived", { archived: true }],
    ["stopped", "Paused", { paused: true }],
    ["running", "Pausing: the current run finishes first", { paused: true, open: active }],
    [
      "stopped",
      "Paused, with a run waiting. Tries again at 2026-01-02 03:01:30 UTC: it was network",
      { paused: true, open: retrying },
    ],
    ["idle", "Nothing is deployed yet", { activeVersion: 0 }],
    ["idle", "Next at 2026-01-02 03:01:30 UTC", { nextDueAtMs: AT }],
    ["idle", "Starts when its turn comes", { nextDueAtMs: NOW }],
    ["idle", "Waiting for something new", {}],
  ])("9 %s: %s", (status, sentence, more) => {
    expect(workflowSentence({ ...base, ...more }, NOW)).toEqual({ status, sentence });
  });
});

describe("05 inbox questions, by kind", () => {
  const unknown: Given = {
    run: { status: "paused:reconciliation", pauseReason: "indeterminate", phase: "mutating" },
    row: "indeterminate",
  };
  const ROWS: [InboxKind, Given | undefined, string, string[]][] = [
    [
      "unknown_outcome",
      unknown,
      "Did it happen? Post 5 to the ledger",
      ["applied", "not-applied", "skip", "check"],
    ],
    [
      "contradiction",
      undefined,
      "An answer says that it happened after all: an outside change",
      ["acknowledge"],
    ],
    [
      "approval",
      { run: { status: "paused:approval", pauseReason: "approval", phase: "mutating" }, row: "proposed" },
      "May this be done? Post 5 to the ledger",
      ["approve", "reject-skip", "reject-release"],
    ],
    [
      "reconnect",
      { run: { status: "paused:approval", pauseReason: "auth", error: { ...failed, tool: "shop.list" } } },
      "Please reconnect shop",
      ["retry", "close", "reconnect"],
    ],
    [
      "reconnect",
      { run: { status: "paused:reconciliation", pauseReason: "auth" }, row: "needs_reconcile" },
      "Please reconnect bank-prod",
      ["reconnect"],
    ],
    [
      "permission",
      { run: { status: "paused:approval", pauseReason: "permission", error: failed } },
      "Is this workflow allowed to? it was network",
      ["retry", "close", "grant"],
    ],
    [
      "precondition",
      { run: { status: "paused:approval", pauseReason: "precondition", error: failed } },
      "The outside is not as declared: it was network",
      ["retry", "close", "deploy"],
    ],
    [
      "binding",
      { run: { status: "paused:approval", pauseReason: "binding", error: failed } },
      "Which connection should be used? it was network",
      ["retry", "close", "bind"],
    ],
    [
      "capability",
      { run: { status: "paused:approval", pauseReason: "precondition", error: failed } },
      "This host cannot do that: it was network",
      ["retry", "close", "deploy"],
    ],
    [
      "script_error",
      { run: { status: "failed:logic", error: failed } },
      "The script failed: it was network",
      ["retry", "close", "deploy"],
    ],
    [
      "script_error",
      { run: { status: "failed:logic", phase: "emitting", error: failed }, row: "applied" },
      "The script failed: it was network",
      ["retry", "close-force", "deploy"],
    ],
    [
      "internal",
      { run: { status: "failed:internal", error: failed } },
      "The host failed: it was network",
      ["retry", "close"],
    ],
    [
      "retries_exhausted",
      { run: { status: "paused:transient", pauseReason: "retries_exhausted", error: failed } },
      "It keeps failing: it was network",
      ["retry", "close", "deploy"],
    ],
    [
      "crash_loop",
      { run: { status: "crashed", pauseReason: "crash_loop" } },
      "It was interrupted three times at the same place",
      ["retry", "close", "deploy"],
    ],
    [
      "step",
      { run: { status: "paused:approval", pauseReason: "step" } },
      "Shall it go on?",
      ["close", "step", "auto"],
    ],
    [
      "dead_letter",
      { run: { status: "failed:logic", open: false, error: failed } },
      "Events were set aside after a failure: it was network",
      ["requeue", "acknowledge"],
    ],
    [
      "orphaned",
      undefined,
      "Events wait for book, which the active version does not have",
      ["keep", "skip", "moveTo"],
    ],
    ["stale_input", undefined, "Nothing has happened for a week with book", ["skip", "acknowledge"]],
    ["missed_schedule", undefined, "Scheduled times were missed: book", ["acknowledge"]],
  ];
  test.each(ROWS)("05 %s", (kind, given, question, names) => {
    const about = { about: "book", canCheck: true, ...(given ? { facts: facts(given) } : {}) };
    const { question: asked, actions } = inboxQuestion(kind, about);
    expect(asked).toBe(question);
    expect(actions.map((one) => one.name)).toEqual(names);
    for (const { effect } of actions) expect(effect).toMatch(/^[A-Z].{10,}/);
  });
  test("05 `check` is offered only where the tool can check", () => {
    expect(
      inboxQuestion("unknown_outcome", { facts: facts(unknown) }).actions.map((one) => one.name),
    ).not.toContain("check");
  });
  test("05 a question about a chain that has ended offers nothing that would be refused", () => {
    const { actions } = inboxQuestion("internal", {
      facts: facts({ run: { status: "failed:internal", open: false } }),
    });
    expect(actions).toEqual([]);
  });
});

describe("6 consequences: what a decision would do, without doing it", () => {
  const BY = { by: "ann", atMs: NOW, down: [], canCheck: true };
  const words = (given: Given, decision: Decision) => {
    const result = consequencesOf(facts(given), decision, BY);
    return "refused" in result ? result.refused : result.words;
  };
  const approval: Given = {
    run: { status: "paused:approval", pauseReason: "approval", phase: "mutating" },
    row: "proposed",
    reserved: [1, 2],
  };
  const unknown: Given = {
    run: { status: "paused:reconciliation", pauseReason: "indeterminate", phase: "mutating" },
    row: "indeterminate",
    reserved: [1],
  };
  test.each<[string, Given, Decision, string[]]>([
    ["approve", approval, { action: "approve" }, ["The run goes on when its turn comes."]],
    [
      "reject skip",
      approval,
      { action: "reject", deliveries: "skip" },
      ["The run goes on without its outside change.", "The run goes on when its turn comes."],
    ],
    [
      "reject release",
      approval,
      { action: "reject", deliveries: "release" },
      [
        "The chain ends here.",
        "The recorded call is never sent.",
        "2 events are pending again, without triggering by being so.",
      ],
    ],
    ["check", unknown, { action: "check" }, ["The outside is asked whether it happened, now."]],
    [
      "applied",
      unknown,
      { action: "applied" },
      ["The outside change counts as made.", "The run goes on when its turn comes."],
    ],
    [
      "not-applied",
      unknown,
      { action: "not-applied" },
      [
        "The run goes on when its turn comes.",
        "The outside change counts as not made, and may be decided again.",
        "1 event is pending again, without triggering by being so.",
      ],
    ],
    [
      "close dead",
      { run: { status: "failed:logic" }, released: [3] },
      { action: "close", deliveries: "dead" },
      ["The chain ends here.", "1 event is set aside.", "The consumer is triggered if more is pending."],
    ],
  ])("6 %s, in words", (_, given, decision, expected) => {
    expect(words(given, decision)).toEqual(expected);
  });
  test("6 in rows: those of the Change itself", () => {
    const result = consequencesOf(facts(approval), { action: "reject", deliveries: "release" }, BY);
    expect("rows" in result && result.rows.map((one) => `${one.row} ${one.becomes}`)).toEqual([
      `run_00000000034 open: false, readyAtMs: none, endedAtMs: ${NOW}, outcome: failed`,
      "mut_00000000068 status: failed, notSent: true",
      "dlv_00000000001 pending",
      "dlv_00000000002 pending",
    ]);
  });
  test("6 a refused decision says why instead", () => {
    expect(words({}, { action: "approve" })).toBe("nothing here waits for an approval");
  });
  test("6 acts on workflows read the same way", () => {
    expect(consequences(pause(workflow(), BY)).words).toEqual(["Nothing new starts; what runs is finished."]);
    const change = runNow(workflow(), undefined, BY);
    expect("refused" in change ? [] : consequences(change).words).toEqual(["The producer runs next."]);
    expect(
      consequences({ verb: "x", workflow: ID.workflow, atMs: NOW, expect: {}, writes: [] }).words,
    ).toEqual(["Nothing changes."]);
  });
});
