/** Runs, outside changes and what follows them, in the shapes of the contract. */
import type { z } from "zod";
import { formatId } from "../core/ids.ts";
import { isUnknown, type Mutation, type MutationStatus } from "../core/mutation.ts";
import type { Run } from "../core/run.ts";
import { runSentence } from "../core/sentence.ts";
import type { Json } from "../core/workflow.ts";
import type {
  EventRecord,
  Evidence,
  InputFace,
  InputRecord,
  OutputRecord,
  RunDetail,
  RunRecord,
} from "../ports/records.ts";
import type * as shapes from "./contract-shapes.ts";
import { given } from "./call.ts";

export const iso = (ms: number): string => new Date(ms).toISOString();
export const isoOr = (ms: number | undefined): string | null => (ms === undefined ? null : iso(ms));
export const parsed = (text: string | undefined): Json =>
  text === undefined ? null : (JSON.parse(text) as Json);
const idOr = (kind: "run", id: number | undefined): string | null =>
  id === undefined ? null : formatId(kind, id);

type RunShape = z.output<typeof shapes.run>;
type MutationShape = z.output<typeof shapes.mutation>;

export interface RunOf {
  namespace: string;
  nowMs: number;
  canCheck: boolean;
}

export function runView(record: RunRecord, of: RunOf): RunShape {
  const { run, workflow, handler, mutation } = record;
  const sentence = runSentence({ run, ...(mutation ? { mutation } : {}) }, of.nowMs);
  const isRetrying = run.open && (run.status === "paused:transient" || run.status === "crashed");
  return {
    id: formatId("run", run.id),
    namespace: of.namespace,
    workflow,
    version: run.version,
    handler,
    type: run.kind,
    trigger: triggerOf(run),
    retryOf: idOr("run", run.retryOf),
    successor: idOr("run", run.successor),
    rootId: formatId("run", run.rootId),
    attempt: run.attempt,
    phase: run.phase,
    status: run.status,
    pauseReason: run.pauseReason ?? null,
    open: run.open,
    readyAt: isoOr(run.readyAtMs),
    revision: run.revision,
    sentence,
    prepareResult: parsed(run.prepared),
    mutation: mutation ? mutationView(mutation, of.canCheck) : null,
    error: errorOf(run),
    policy: parsed(run.policy),
    resources: resourcesOf(run),
    timings: {
      ranMs: run.endedAtMs === undefined ? null : run.endedAtMs - run.createdAtMs,
      chainStartedAt: iso(run.chainStartedAtMs),
      retries: run.retries,
      crashes: run.crashes,
    },
    nextRetryAt: isRetrying ? isoOr(run.readyAtMs) : null,
    deadlineAt: isoOr(run.deadlineAtMs),
    resolution: resolutionOf(run),
    hostId: formatId("host", run.host),
    createdAt: iso(run.createdAtMs),
    startedAt: iso(run.createdAtMs),
    updatedAt: iso(updatedMs(run, mutation)),
    endedAt: isoOr(run.endedAtMs),
  };
}

export function runDetailView(detail: RunDetail, of: RunOf): z.output<typeof shapes.runDetail> {
  return {
    ...runView(detail, of),
    chain: detail.chain.map(({ id, attempt, phase, status, version, createdAtMs, endedAtMs }) => ({
      id: formatId("run", id),
      attempt,
      phase,
      status,
      version,
      createdAt: iso(createdAtMs),
      endedAt: isoOr(endedAtMs),
    })),
    reserved: detail.reserved.map((id) => formatId("delivery", id)),
    causedBy: (detail.mutation?.causedBy ?? []).map(faceOf),
    transcripts: detail.transcripts,
  };
}

function triggerOf({ trigger }: Run): RunShape["trigger"] {
  const { reason, atMs, slot, manual } = trigger;
  return {
    reason,
    at: iso(atMs),
    ...(slot ? { slot: { firstDueAt: iso(slot.firstDueMs), newestDueAt: iso(slot.newestDueMs) } } : {}),
    ...(manual ? { manual } : {}),
  };
}

function errorOf({ error }: Run): RunShape["error"] {
  if (!error) return null;
  const { class: kind, code, message, location, frame, tool, evidence } = error;
  return {
    class: kind,
    code,
    message,
    ...given({ location, frame, tool }),
    ...(evidence === undefined ? {} : { evidence: parsed(evidence) }),
  };
}

function resourcesOf({ resources }: Run): RunShape["resources"] {
  if (resources === undefined) return null;
  const {
    cpuMs = 0,
    wallMs = 0,
    heapBytes = 0,
    hostCalls = 0,
  } = JSON.parse(resources) as Record<string, number>;
  return { cpuMs, wallMs, heapBytes, hostCalls };
}

function resolutionOf({ resolution }: Run): RunShape["resolution"] {
  if (!resolution) return null;
  const { by, action, atMs, note } = resolution;
  return { by, action, at: iso(atMs), ...given({ note }) };
}

/** The newest moment that is on record for it. */
function updatedMs(run: Run, mutation: Mutation | undefined): number {
  const { createdAtMs, endedAtMs = 0, resolution } = run;
  return Math.max(
    createdAtMs,
    endedAtMs,
    resolution?.atMs ?? 0,
    mutation?.createdAtMs ?? 0,
    mutation?.endedAtMs ?? 0,
  );
}

const OUTCOMES: Record<MutationStatus, MutationShape["outcome"]> = {
  proposed: null,
  in_flight: "unknown",
  needs_reconcile: "unknown",
  indeterminate: "unknown",
  applied: "applied",
  failed: "failed",
  skipped: "skipped",
};

function mutationView(mutation: Mutation & { evidence: Evidence[] }, canCheck: boolean): MutationShape {
  const { checks, nextCheckAtMs, evidence, status } = mutation;
  return {
    ...changeView(mutation),
    reconcile: { attempts: checks, nextAt: isoOr(nextCheckAtMs), canCheck: canCheck && isUnknown(status) },
    evidence: evidence.map(({ what, detail, run, atMs }) => ({
      what,
      detail: parsed(detail),
      run: formatId("run", run),
      at: iso(atMs),
    })),
  };
}

function changeView(mutation: Mutation): Omit<MutationShape, "reconcile" | "evidence"> {
  const { id, status, proof, alias, connection, tool, args, description, idempotencyKey, result, sends } =
    mutation;
  return {
    id: formatId("mutation", id),
    status,
    proof,
    alias,
    connection,
    tool,
    args: parsed(args),
    description,
    idempotencyKey,
    outcome: OUTCOMES[status],
    result: parsed(result),
    sends,
  };
}

const faceOf = ({ id, source, type, key, title }: InputFace) => ({
  id: formatId("input", id),
  source,
  type,
  key,
  title,
});

export const outputView = ({
  mutation,
  handler,
  causedBy,
}: OutputRecord): z.output<typeof shapes.output> => ({
  ...changeView(mutation),
  run: formatId("run", mutation.ownerRun),
  handler,
  causedBy: causedBy.map(faceOf),
  createdAt: iso(mutation.createdAtMs),
});

export const inputView = (record: InputRecord): z.output<typeof shapes.input> => ({
  ...faceOf(record),
  run: idOr("run", record.run),
  createdAt: iso(record.createdAtMs),
  became: record.became,
});

export function eventView(
  record: EventRecord,
  consumers: ReadonlyMap<number, string>,
): z.output<typeof shapes.event> {
  const { id, topic, messageId, payload, revision, seq, hops, run, causedBy } = record;
  return {
    id: formatId("event", id),
    topic,
    messageId,
    payload: parsed(payload),
    revision,
    seq,
    hops,
    run: idOr("run", run),
    causedBy: causedBy.map((input) => formatId("input", input)),
    createdAt: iso(record.createdAtMs),
    updatedAt: iso(record.updatedAtMs),
    deliveries: record.deliveries.map((one) => ({
      id: formatId("delivery", one.id),
      consumer: consumers.get(one.handler) ?? "",
      status: one.status,
      reservedBy: idOr("run", one.reservedBy),
      attempts: one.attempts,
    })),
  };
}
