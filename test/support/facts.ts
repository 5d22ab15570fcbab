/** Hand-made facts for the core's verbs, and a way to look at what they decide. Every id says what it is. */
import { after, assertChange, type Change, type Write } from "../../host/core/change.ts";
import type { HandlerFacts, RunFacts, WorkflowFacts } from "../../host/core/facts.ts";
import type { FailurePolicy } from "../../host/core/failure.ts";
import { type Effect, journalOf } from "../../host/core/journal.ts";
import type { Mutation, MutationStatus } from "../../host/core/mutation.ts";
import { rebuild } from "../../host/core/rebuild.ts";
import type { Kind, PauseReason, Phase, Run, RunError, Status } from "../../host/core/run.ts";
import type { Attempt } from "../../host/core/start.ts";

export const NOW = Date.UTC(2026, 0, 2, 3, 0, 0);
export const MINUTE = 60_000;

export const ID = {
  workflow: 1,
  producer: 11,
  consumer: 12,
  run: 100,
  next: 101,
  row: 200,
  inbox: 300,
  host: 9,
};

export const producer = (more: Partial<HandlerFacts> = {}): HandlerFacts => ({
  id: ID.producer,
  kind: "producer",
  name: "poll",
  order: 0,
  orphaned: false,
  hasMutate: false,
  hasNext: false,
  seenSeq: 0,
  schedule: { interval: "5m", intervalMs: 5 * MINUTE },
  ...more,
});

export const consumer = (more: Partial<HandlerFacts> = {}): HandlerFacts => ({
  id: ID.consumer,
  kind: "consumer",
  name: "book",
  order: 1,
  orphaned: false,
  hasMutate: true,
  hasNext: true,
  seenSeq: 0,
  ...more,
});

export const workflow = (more: Partial<WorkflowFacts> = {}): WorkflowFacts => ({
  id: ID.workflow,
  namespace: 7,
  name: "orders",
  revision: 5,
  generation: 2,
  activeVersion: 3,
  seq: 40,
  paused: false,
  archived: false,
  mode: "auto",
  consumerStreak: 4,
  handlers: [producer(), consumer()],
  ...more,
});

export const run = (more: Partial<Run> = {}): Run => ({
  id: ID.run,
  workflow: ID.workflow,
  version: 3,
  handler: more.kind === "producer" ? ID.producer : ID.consumer,
  kind: "consumer",
  trigger: { reason: "event", atMs: NOW - MINUTE },
  rootId: 90,
  retryOf: 95,
  attempt: 2,
  phase: more.kind === "producer" ? "executing" : "preparing",
  status: "active",
  open: true,
  retries: 1,
  crashes: 0,
  redos: 0,
  startSeq: 30,
  chainStartedAtMs: NOW - MINUTE,
  createdAtMs: NOW - MINUTE,
  host: ID.host,
  revision: 6,
  ...more,
});

export const row = (status: MutationStatus, more: Partial<Mutation> = {}): Mutation => ({
  id: ID.row,
  originRun: ID.run,
  ownerRun: ID.run,
  status,
  alias: "bank",
  connection: "bank-prod",
  configVersion: 4,
  tool: "post",
  args: '{"amount":5}',
  description: "Post 5 to the ledger",
  proof: "lookup",
  idempotencyKey: "key-1",
  n: 0,
  sends: status === "proposed" ? 0 : 1,
  settleMs: 30_000,
  checks: 0,
  createdAtMs: NOW - MINUTE,
  ...(status === "needs_reconcile" || status === "indeterminate" ? { endedAtMs: NOW - MINUTE } : {}),
  ...more,
});

export interface Given {
  run?: Partial<Run>;
  handler?: Partial<HandlerFacts>;
  /** The handler as the active version declares it, where that differs. */
  active?: Partial<HandlerFacts>;
  workflow?: Partial<WorkflowFacts>;
  row?: MutationStatus | Mutation;
  reserved?: number[];
  released?: number[];
}

export function facts(given: Given = {}): RunFacts {
  const made = run(given.run);
  const make = made.kind === "producer" ? producer : consumer;
  const handler = make(given.handler);
  const active = { ...handler, ...given.active };
  const others = [producer(), consumer()].filter((one) => one.id !== handler.id);
  return {
    workflow: workflow({
      handlers: [active, ...others],
      openRun: { id: made.id, active: made.status === "active" },
      ...given.workflow,
    }),
    handler: { ...handler, ...(given.active?.orphaned ? { orphaned: true } : {}) },
    run: made,
    reserved: given.reserved ?? [],
    released: given.released ?? [],
    ...(given.row === undefined
      ? {}
      : { mutation: typeof given.row === "string" ? row(given.row) : given.row }),
  };
}

export const withRow = (
  given: Given & { row: MutationStatus | Mutation },
): RunFacts & { mutation: Mutation } => facts(given) as RunFacts & { mutation: Mutation };

/** A state that a run can be in, as the model's tables name it. */
export interface State {
  name: string;
  kind: Kind;
  phase: Phase;
  status: Status;
  reason?: PauseReason;
  row?: MutationStatus;
  reserved?: number[];
}

const CONSUMER_PHASES: Phase[] = ["preparing", "prepared", "mutating", "mutated", "emitting"];

/** Every combination of phase, status, reason and ledger row that the model can reach with the chain open. */
export function reachableStates(): State[] {
  const states: State[] = [];
  const add = (state: Omit<State, "name">) =>
    states.push({
      ...state,
      name: `${state.kind} ${state.phase} ${state.status}${state.reason ? `(${state.reason})` : ""} row ${state.row ?? "none"}`,
    });
  const ended: [Status, PauseReason | undefined][] = [
    ["paused:transient", "retrying"],
    ["paused:transient", "limited"],
    ["paused:transient", "breaker_open"],
    ["paused:transient", "retries_exhausted"],
    ["paused:transient", "deadline"],
    ["failed:logic", undefined],
    ["failed:internal", undefined],
    ["crashed", undefined],
    ["crashed", "crash_loop"],
  ];
  const waits: PauseReason[] = ["auth", "permission", "precondition", "binding", "step"];
  add({ kind: "producer", phase: "executing", status: "active" });
  for (const [status, reason] of ended)
    add({ kind: "producer", phase: "executing", status, ...(reason ? { reason } : {}) });
  for (const reason of waits)
    add({ kind: "producer", phase: "executing", status: "paused:approval", reason });
  for (const phase of CONSUMER_PHASES) {
    for (const [rowStatus, reserved] of rowsAt(phase)) {
      const with_ = { ...(rowStatus ? { row: rowStatus } : {}), reserved };
      if (rowStatus !== "failed") add({ kind: "consumer", phase, status: "active", ...with_ });
      for (const [status, reason] of ended) {
        if (rowStatus === "in_flight" || rowStatus === "proposed") continue;
        const kept = rowStatus === "applied" || rowStatus === "skipped" ? reserved : [];
        add({ kind: "consumer", phase, status, ...with_, reserved: kept, ...(reason ? { reason } : {}) });
      }
      for (const reason of waits)
        if (rowStatus !== "in_flight" && !(rowStatus === "failed" && reason !== "precondition"))
          add({ kind: "consumer", phase, status: "paused:approval", reason, ...with_ });
    }
  }
  add({
    kind: "consumer",
    phase: "mutating",
    status: "paused:approval",
    reason: "approval",
    row: "proposed",
    reserved: [1, 2],
  });
  for (const reason of ["checking", "auth"] as const)
    add({
      kind: "consumer",
      phase: "mutating",
      status: "paused:reconciliation",
      reason,
      row: "needs_reconcile",
      reserved: [1, 2],
    });
  add({
    kind: "consumer",
    phase: "mutating",
    status: "paused:reconciliation",
    reason: "indeterminate",
    row: "indeterminate",
    reserved: [1, 2],
  });
  return states;
}

function rowsAt(phase: Phase): [MutationStatus | undefined, number[]][] {
  if (phase === "preparing") return [[undefined, []]];
  if (phase === "prepared") return [[undefined, [1, 2]]];
  if (phase === "mutating")
    return [
      ["proposed", [1, 2]],
      ["in_flight", [1, 2]],
      ["failed", []],
    ];
  return [
    [undefined, [1, 2]],
    ["applied", [1, 2]],
    ["skipped", [1, 2]],
  ];
}

export function factsOf(state: State, more: Given = {}): RunFacts {
  const { kind, phase, status, reason, reserved = [] } = state;
  const isOver = status !== "active" && status !== "paused:approval" && status !== "paused:reconciliation";
  return facts({
    ...more,
    run: {
      kind,
      handler: kind === "producer" ? ID.producer : ID.consumer,
      phase,
      status,
      ...(reason ? { pauseReason: reason } : {}),
      ...(isOver ? { endedAtMs: NOW - 1_000 } : {}),
      ...(phase !== "preparing" && kind === "consumer" ? { prepared: '{"a":1}' } : {}),
      ...(state.row === "applied" ? { outcome: "applied" as const, result: '{"id":7}' } : {}),
      ...(state.row === "skipped" ? { outcome: "skipped" as const } : {}),
      ...more.run,
    },
    reserved: more.reserved ?? reserved,
    ...(state.row ? { row: more.row ?? state.row } : {}),
  });
}

export const attempt = (more: Partial<Attempt> = {}): Attempt => ({
  id: ID.next,
  host: 10,
  fused: true,
  ...more,
});

export const HALT: FailurePolicy = {
  maxRetries: 12,
  retryOn: ["transient"],
  neverRetryOn: [],
  onFailure: "halt",
};

export const error = (kind: RunError["class"] = "transient", code = "network"): RunError => ({
  class: kind,
  code,
  message: `it was ${code}`,
});

/** What a Change writes of one kind. */
export function writes<Kind extends Write["do"]>(change: Change, kind: Kind): Extract<Write, { do: Kind }>[] {
  return change.writes.filter((one): one is Extract<Write, { do: Kind }> => one.do === kind);
}

/** Everything that a Change sets on the run it is about. */
export function runSet(change: Change, id = ID.run): Record<string, unknown> {
  return Object.assign(
    {},
    ...writes(change, "run.set")
      .filter((one) => one.id === id)
      .map((one) => one.set),
  );
}

export function rowSet(change: Change): Record<string, unknown> {
  return Object.assign({}, ...writes(change, "mutation.set").map((one) => one.set));
}

export function handlerSet(change: Change, id?: number): Record<string, unknown> {
  const own = writes(change, "handler.set").filter((one) => id === undefined || one.id === id);
  return Object.assign({}, ...own.map((one) => one.set));
}

/** ids → where they went; the last one counts. */
export function moved(change: Change): Record<number, string> {
  const to: Record<number, string> = {};
  for (const write of writes(change, "deliveries")) for (const id of write.ids) to[id] = write.to;
  return to;
}

export const opened = (change: Change): string[] => writes(change, "inbox.open").map((one) => one.kind);

export const created = (change: Change): Run | undefined => writes(change, "run.create")[0]?.run;

/** A Change is whole, its journal can be written and read back, and its expectations are there. */
export function sound(change: Change): Change {
  assertChange(change);
  const expects = Object.keys(change.expect);
  if (expects.length === 0) throw new Error(`${change.verb} expects nothing`);
  const effects = new Map<Write, Effect>();
  for (const write of change.writes)
    if (write.do === "orphans.move" || write.do === "orphans.skip")
      effects.set(write, { of: "orphans", ids: [] });
    else if (write.do === "publish") {
      const { topic, messageId } = write.publication;
      const face = { event: 1, topic, messageId, revision: 1, created: [], late: [] };
      effects.set(write, { of: "publish", published: { ...face, outcome: "created" } });
    } else if (write.do === "delivery.renew")
      effects.set(write, { of: "renew", delivery: 900, event: 1, handler: ID.consumer });
  rebuild(journalOf(change, effects, (text) => `#${text.length}`));
  return change;
}

export const outcome = (given: RunFacts, change: Change): Run => after(given.run, sound(change));
