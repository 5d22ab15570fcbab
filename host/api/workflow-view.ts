/** Workflows, handlers, topics and versions, in the shapes of the contract. */
import type { z } from "zod";
import { formatId } from "../core/ids.ts";
import { describeSchedule } from "../core/schedule-words.ts";
import { workflowSentence } from "../core/sentence.ts";
import type { Json } from "../core/workflow.ts";
import type { HandlerRecord, TopicRecord, VersionRecord, WorkflowRecord } from "../ports/records.ts";
import type * as shapes from "./contract-shapes.ts";
import type { Desk } from "./desk.ts";
import { iso, isoOr, parsed } from "./run-view.ts";

type WorkflowShape = z.output<typeof shapes.workflow>;
type HandlerShape = z.output<typeof shapes.handler>;

const UNITS = { producer: ["producer"], consumer: ["prepare", "mutate", "next"] } as const;

export async function workflowView(
  desk: Desk,
  record: WorkflowRecord,
  nowMs: number,
): Promise<WorkflowShape> {
  const { name } = record;
  const [handlers, topics, bindings, grants, staleInputs] = await Promise.all([
    handlersView(desk, record),
    topicsView(desk, name),
    desk.place.open.parts.outside ? desk.bindings(name) : [],
    desk.history.grants(name),
    desk.history.staleInputs(name),
  ]);
  return {
    namespace: desk.name,
    name,
    description: record.description,
    ...(await standingOf(desk, record, nowMs)),
    schedule: handlers.flatMap((one) => (one.schedule === undefined ? [] : [`${one.name}: ${one.schedule}`])),
    mode: record.mode,
    paused: record.paused,
    archived: record.archived,
    activeVersion: record.activeVersion,
    openRun: openOf(record),
    handlers,
    topics,
    counts: { ...record.counts, staleInputs },
    recent: record.recent,
    nextDueAt: isoOr(record.nextDueAtMs),
    bindings: bindings.map((one) => ({ ...one, connection: one.connection ?? null })),
    grants: grants.map(({ alias, tool, mode, name: connection }) => ({ alias, tool, mode, connection })),
    params: parsed(record.params) as Record<string, Json>,
    labels: parsed(record.labels) as Record<string, string>,
    createdAt: iso(record.createdAtMs),
    updatedAt: iso(record.updatedAtMs),
  };
}

function openOf({ openRun }: WorkflowRecord): WorkflowShape["openRun"] {
  if (!openRun) return null;
  const { id, status, phase, pauseReason } = openRun;
  return { id: formatId("run", id), status, phase, pauseReason: pauseReason ?? null };
}

async function standingOf(
  desk: Desk,
  record: WorkflowRecord,
  nowMs: number,
): Promise<Pick<WorkflowShape, "status" | "sentence">> {
  const { paused, archived, activeVersion, openRun, nextDueAtMs } = record;
  const [open, asked] = await Promise.all([
    openRun ? desk.run(formatId("run", openRun.id)) : undefined,
    desk.history.questions(record.name),
  ]);
  const questions = asked.first === undefined ? [] : Array<string>(asked.count).fill(asked.first);
  const view = {
    paused,
    archived,
    activeVersion,
    questions,
    ...(open ? { open: { run: open.run, ...(open.mutation ? { mutation: open.mutation } : {}) } } : {}),
    ...(nextDueAtMs === undefined ? {} : { nextDueAtMs }),
  };
  return workflowSentence(view, nowMs);
}

export async function handlersView(
  desk: Desk,
  { id, name }: Pick<WorkflowRecord, "id" | "name">,
): Promise<HandlerShape[]> {
  const { parts } = desk.place.open;
  const [records, facts] = await Promise.all([desk.history.handlers(name), parts.store.workflow(id)]);
  return records.map((record) => {
    const handler = facts?.handlers.find((one) => one.id === record.id);
    const policy: Record<string, Json> = {};
    if (facts && handler)
      for (const unit of UNITS[record.kind])
        policy[unit] = parts.policies.effective(unit, { workflow: facts, handler }) as unknown as Json;
    return { ...handlerView(record), policy };
  });
}

function handlerView(record: HandlerRecord): Omit<HandlerShape, "policy"> {
  const { name, kind, declared, lastRun, triggered, queued, pending, dead, orphaned } = record;
  const happened = (one: typeof triggered) => (one ? { reason: one.reason, at: iso(one.atMs) } : null);
  return {
    name,
    type: kind,
    ...(declared && "schedule" in declared ? { schedule: describeSchedule(declared.schedule) } : {}),
    ...(declared && "subscribes" in declared ? { subscribes: declared.subscribes } : {}),
    publishes: declared?.publishes ?? [],
    nextRunAt: isoOr(record.nextRunAtMs),
    wakeAt: isoOr(record.wakeAtMs),
    triggered: happened(triggered),
    queued: happened(queued),
    state: parsed(record.state),
    pending,
    dead,
    lastRun: lastRun
      ? {
          id: formatId("run", lastRun.id),
          status: lastRun.status,
          phase: lastRun.phase,
          createdAt: iso(lastRun.createdAtMs),
          endedAt: isoOr(lastRun.endedAtMs),
        }
      : null,
    orphaned,
  };
}

export async function topicsView(desk: Desk, workflow: string): Promise<z.output<typeof shapes.topic>[]> {
  const [records, manifest, consumers] = await Promise.all([
    desk.history.topics(workflow),
    desk.history.manifest(workflow),
    namesOf(desk, workflow),
  ]);
  return records.map(({ topic, newestAtMs, pending }: TopicRecord) => ({
    topic,
    output: manifest.topics?.[topic]?.output ?? false,
    newestAt: isoOr(newestAtMs),
    pending: pending.map(({ handler, count, oldestAtMs }) => ({
      consumer: consumers.get(handler) ?? "",
      count,
      oldestAt: isoOr(oldestAtMs),
    })),
  }));
}

/** Of handlers by their id. */
export async function namesOf(desk: Desk, workflow: string): Promise<Map<number, string>> {
  const id = await desk.place.workflow(workflow);
  const facts = id === undefined ? undefined : await desk.place.open.parts.store.workflow(id);
  return new Map(facts?.handlers.map((one) => [one.id, one.name]));
}

export const versionView = (
  {
    number,
    hash,
    language,
    scope,
    note,
    createdAtMs,
  }: Omit<VersionRecord, "createdAtMs"> & { createdAtMs?: number },
  activeVersion: number,
): z.output<typeof shapes.version> => ({
  number,
  hash,
  language,
  scope,
  active: number === activeVersion,
  note: note ?? null,
  createdAt: isoOr(createdAtMs),
});
