/**
 * What the core is shown before it decides: one workflow, its handlers, and the run at stake, as the store read them in
 * one snapshot. The verbs take these and return a Change.
 */
import type { StandingApproval } from "./approval.ts";
import { after, type Change, type Write } from "./change.ts";
import type { DeliveryId, EpochMs, HandlerId, NamespaceId, RunId, WorkflowId } from "./ids.ts";
import type { Mutation } from "./mutation.ts";
import type { Kind, Run, RunState } from "./run.ts";
import type { JsonText, Schedule } from "./workflow.ts";

export interface WorkflowFacts {
  id: WorkflowId;
  namespace: NamespaceId;
  name: string;
  revision: number;
  generation: number;
  activeVersion: number;
  seq: number;
  paused: boolean;
  archived: boolean;
  mode: "auto" | "step";
  consumerStreak: number;
  /** As the operator has set them; absent when there are none. */
  params?: JsonText;
  /** What a person allowed beforehand; absent when there is nothing. */
  approvals?: StandingApproval[];
  openRun?: OpenRunFacts;
  handlers: HandlerFacts[];
}

export interface OpenRunFacts {
  id: RunId;
  active: boolean;
  readyAtMs?: EpochMs;
  /** Step mode: it waits for a person before its next unit. */
  held?: true;
}

export interface HandlerFacts {
  id: HandlerId;
  kind: Kind;
  name: string;
  order: number;
  /** Dropped by the active version; its deliveries stay, nothing runs. */
  orphaned: boolean;
  schedule?: Schedule;
  hasMutate: boolean;
  hasNext: boolean;
  state?: JsonText;
  seenSeq: number;
  queued?: { reason: "queued" | "deploy"; atMs: EpochMs };
  triggered?: { reason: "deploy" | "woken" | "more" | "requeued"; atMs: EpochMs };
  wakeAtMs?: EpochMs;
  nextRunAtMs?: EpochMs;
  anchorMs?: EpochMs;
  /** Publishing time of the oldest pending delivery, if there is one. */
  oldestPendingAtMs?: EpochMs;
  /** When the oldest pending delivery beyond `seenSeq` changed, if there is one. */
  newPendingAtMs?: EpochMs;
}

/** Everything the verbs look at when a run is at stake. */
export interface RunFacts {
  workflow: WorkflowFacts;
  /** As the run's own version declares it; `activeHandler` is as the active one does. */
  handler: HandlerFacts;
  run: Run;
  mutation?: Mutation;
  /** Deliveries that the run holds. */
  reserved: DeliveryId[];
  /** Deliveries that the run had held and gave back when it failed, still pending. */
  released: DeliveryId[];
}

/** The handler as the next run would have it: a deploy may have changed it while this run goes on (3.4). */
export const activeHandler = ({ workflow, handler }: Pick<RunFacts, "workflow" | "handler">): HandlerFacts =>
  workflow.handlers.find((one) => one.id === handler.id) ?? handler;

/** What happened now is not what a person has answered: the old answer no longer speaks for the run. */
export const unanswered = ({ resolution }: Run): { resolution?: null } =>
  resolution ? { resolution: null } : {};

export const stateOf = ({ kind, phase, status }: Run): RunState => ({ kind, phase, status });

/** The frame of every step of a run: who it is about and what it expects. */
export function step(verb: string, { run }: Pick<RunFacts, "run">, atMs: EpochMs, writes: Write[]): Change {
  return {
    verb,
    workflow: run.workflow,
    atMs,
    expect: { run: { id: run.id, revision: run.revision } },
    writes,
  };
}

/** The facts as they will be once the Change is applied: what the next step of the same loop decides on. */
export function follow(facts: RunFacts, change: Change): RunFacts {
  const next = { ...facts, run: after(facts.run, change) };
  for (const write of change.writes)
    if (write.do === "mutation.create") next.mutation = write.mutation;
    else if (write.do === "mutation.set" && next.mutation?.id === write.id)
      next.mutation = withoutNulls({ ...next.mutation, ...write.set });
    else if (write.do === "deliveries" && write.run === facts.run.id)
      next.reserved = write.to === "reserved" ? write.ids : [];
    else if (write.do === "handler.set" && write.id === facts.handler.id && write.set.state !== undefined)
      next.handler = withoutNulls({ ...next.handler, state: write.set.state });
  return next;
}

function withoutNulls<Noun>(noun: { [Field in keyof Noun]: Noun[Field] | null }): Noun {
  const kept: Partial<Noun> = {};
  for (const field in noun) if (noun[field] !== null) kept[field] = noun[field] as Noun[typeof field];
  return kept as Noun;
}
