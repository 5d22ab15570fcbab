/**
 * Change → journal entries, and journal → state (02 §10). Entries hold ids, small facts and hashes; values live once, in
 * their tables. The store appends them in the Change's own transaction, with a gapless sequence per workflow.
 *
 * J1. Whatever `rebuild` tracks changes only through an entry: rebuild(journal) = tables.
 * J2. Each unit that was dispatched has exactly one terminal: completed, failed, skipped or lost.
 */
import type { Change, InboxKind, MutationPatch, RunPatch, UnitEnd, UnitName, Write } from "./change.ts";
import type { DeliveryStatus } from "./event.ts";
import type { DeliveryId, EventId, HandlerId, MutationId, RunId } from "./ids.ts";
import type { MutationStatus } from "./mutation.ts";
import type { MutationOutcome, PauseReason, Phase, Run, Status } from "./run.ts";

/** What the store decided while applying a write that depends on what is there. */
export type Effect =
  | { of: "publish"; published: Published }
  | { of: "renew"; delivery: DeliveryId; event: EventId; handler: HandlerId }
  | { of: "orphans"; ids: DeliveryId[] };

export interface Published {
  event: EventId;
  topic: string;
  messageId: string;
  revision: number;
  outcome: "created" | "updated" | "unchanged";
  created: { id: DeliveryId; handler: HandlerId }[];
  /** Reserved deliveries that keep the payload they pinned. */
  late: DeliveryId[];
}

export type Hash = (text: string) => string;

export type Entry =
  | { kind: "run.created"; run: RunId; of: RunFace }
  | { kind: "unit.dispatched"; run: RunId; units: UnitName[] }
  | { kind: `unit.${UnitEnd}`; run: RunId; units: UnitName[] | "open" }
  | { kind: "phase.advanced"; run: RunId; phase: Phase; set?: Partial<RunFace> }
  | { kind: "status.changed"; run: RunId; set: Partial<RunFace> }
  | { kind: "mutation.proposed"; run: RunId; mutation: MutationId; of: RowFace }
  | { kind: "mutation.changed"; mutation: MutationId; set: Partial<RowFace> }
  | { kind: "mutation.sent"; run: RunId; mutation: MutationId; n: number; bytes: string; key: string }
  | { kind: "mutation.evidence"; run: RunId; mutation: MutationId; what: string; hash: string }
  | { kind: `deliveries.${DeliveryStatus}`; run?: RunId; ids: DeliveryId[]; reason?: string }
  | { kind: "deliveries.handed-over"; run: RunId; to: RunId }
  | { kind: "deliveries.requeued"; id: DeliveryId }
  | { kind: "deliveries.reprocessed"; id: DeliveryId; from: DeliveryId; event: EventId; handler: HandlerId }
  | { kind: "deliveries.moved"; ids: DeliveryId[]; to: HandlerId }
  | ({ kind: "event.published"; run?: RunId; hash: string } & Published)
  | {
      kind: "schedule.slot";
      handler: HandlerId;
      fate: string;
      from: number;
      to: number;
      count: number;
      run?: RunId;
    }
  | { kind: "schedule.set"; handler: HandlerId; set: object }
  | { kind: "state.set"; handler: HandlerId; hash: string | null }
  | { kind: "inbox.opened"; inbox: InboxKind; run?: RunId }
  | { kind: "operator.acted"; actor: string; action: string; run?: RunId }
  | { kind: "version.created"; version: number; hash: string }
  | { kind: "version.activated"; version: number }
  | { kind: "workflow.set"; set: object }
  | { kind: "journal.pruned"; digest: string; upTo: number };

/** The part of a run that the journal can rebuild. */
export interface RunFace {
  handler: HandlerId;
  version: number;
  retryOf: RunId | null;
  attempt: number;
  phase: Phase;
  status: Status;
  pauseReason: PauseReason | null;
  open: boolean;
  successor: RunId | null;
  outcome: MutationOutcome | null;
  prepared: string | null;
  result: string | null;
}

/** The part of a ledger row that the journal can rebuild. */
export interface RowFace {
  originRun: RunId;
  ownerRun: RunId;
  status: MutationStatus;
  sends: number;
  args: string;
  key: string;
  result: string | null;
}

export function journalOf(change: Change, effects: ReadonlyMap<Write, Effect>, hash: Hash): Entry[] {
  return change.writes.flatMap((write) => entriesOf(write, effects.get(write), hash)); // (J1)
}

function entriesOf(write: Write, effect: Effect | undefined, hash: Hash): Entry[] {
  switch (write.do) {
    case "run.create":
      return [{ kind: "run.created", run: write.run.id, of: runFace(write.run, hash) }];
    case "run.set":
      return runEntries(write.id, write.set, hash);
    case "unit.dispatched":
      return [{ kind: "unit.dispatched", run: write.run, units: write.units }];
    case "unit.ended":
      return [{ kind: `unit.${write.end}`, run: write.run, units: write.units }];
    case "deliveries":
    case "deliveries.handover":
    case "delivery.renew":
    case "orphans.move":
    case "orphans.skip":
    case "publish":
      return deliveryEntries(write, effect, hash);
    case "mutation.create":
    case "mutation.set":
    case "send.create":
    case "evidence":
      return ledgerEntries(write, hash);
    case "handler.set":
    case "handler.create":
    case "slot":
      return handlerEntries(write, hash);
    case "workflow.set":
      return workflowEntries(write.set);
    case "version.create":
      return [{ kind: "version.created", version: write.version.number, hash: write.version.hash }];
    case "inbox.open":
      return [{ kind: "inbox.opened", inbox: write.kind, ...runOf(write) }];
    case "audit":
      return [{ kind: "operator.acted", actor: write.actor, action: write.action, ...runOf(write) }];
    // Who may use what is no run state: the audit entry beside it tells of it.
    case "bind":
    case "grant":
    case "send.end":
    case "input":
    case "inbox.close":
    case "outbox":
    case "transcript":
    case "logs":
      return [];
  }
}

function runEntries(run: RunId, set: RunPatch, hash: Hash): Entry[] {
  const { phase, ...rest } = set;
  const face = runPatchFace(rest, hash);
  const some = Object.keys(face).length > 0;
  if (phase === undefined) return some ? [{ kind: "status.changed", run, set: face }] : [];
  return [{ kind: "phase.advanced", run, phase, ...(some ? { set: face } : {}) }];
}

const RUN_FACE = ["status", "pauseReason", "open", "successor", "outcome"] as const;

function runPatchFace(set: Omit<RunPatch, "phase">, hash: Hash): Partial<RunFace> {
  const face: Record<string, unknown> = {};
  for (const field of RUN_FACE) if (set[field] !== undefined) face[field] = set[field];
  for (const field of ["prepared", "result"] as const)
    if (set[field] !== undefined) face[field] = set[field] === null ? null : hash(set[field]);
  return face as Partial<RunFace>;
}

/** A run as the journal sees it; `verify` compares this with what the journal rebuilds. */
export function runFace(run: Run, hash: Hash): RunFace {
  return {
    handler: run.handler,
    version: run.version,
    retryOf: run.retryOf ?? null,
    attempt: run.attempt,
    phase: run.phase,
    status: run.status,
    pauseReason: run.pauseReason ?? null,
    open: run.open,
    successor: run.successor ?? null,
    outcome: run.outcome ?? null,
    prepared: run.prepared === undefined ? null : hash(run.prepared),
    result: run.result === undefined ? null : hash(run.result),
  };
}

type LedgerWrite = Extract<Write, { do: "mutation.create" | "mutation.set" | "send.create" | "evidence" }>;

function ledgerEntries(write: LedgerWrite, hash: Hash): Entry[] {
  switch (write.do) {
    case "mutation.create": {
      const { mutation } = write;
      const of: RowFace = {
        originRun: mutation.originRun,
        ownerRun: mutation.ownerRun,
        status: mutation.status,
        sends: mutation.sends,
        args: hash(mutation.args),
        key: mutation.idempotencyKey,
        result: mutation.result === undefined ? null : hash(mutation.result),
      };
      return [{ kind: "mutation.proposed", run: mutation.ownerRun, mutation: mutation.id, of }];
    }
    case "mutation.set": {
      const set = rowPatchFace(write.set, hash);
      return Object.keys(set).length > 0 ? [{ kind: "mutation.changed", mutation: write.id, set }] : [];
    }
    case "send.create": {
      const { n, bytesHash, idempotencyKey } = write.send;
      const sent = { mutation: write.mutation, n, bytes: bytesHash, key: idempotencyKey };
      return [{ kind: "mutation.sent", run: write.run, ...sent }];
    }
    case "evidence":
      return [
        {
          kind: "mutation.evidence",
          run: write.run,
          mutation: write.mutation,
          what: write.what,
          hash: hash(write.detail),
        },
      ];
  }
}

function rowPatchFace({ status, ownerRun, sends, result }: MutationPatch, hash: Hash): Partial<RowFace> {
  return {
    ...(status === undefined ? {} : { status }),
    ...(ownerRun === undefined ? {} : { ownerRun }),
    ...(sends === undefined ? {} : { sends }),
    ...(result === undefined ? {} : { result: result === null ? null : hash(result) }),
  };
}

type DeliveryWrite = Extract<
  Write,
  {
    do: "deliveries" | "deliveries.handover" | "delivery.renew" | "orphans.move" | "orphans.skip" | "publish";
  }
>;

function deliveryEntries(write: DeliveryWrite, effect: Effect | undefined, hash: Hash): Entry[] {
  switch (write.do) {
    case "deliveries":
      return [
        {
          kind: `deliveries.${write.to}`,
          ids: write.ids,
          ...runOf(write),
          ...(write.reason === undefined ? {} : { reason: write.reason }),
        },
      ];
    case "deliveries.handover":
      return [{ kind: "deliveries.handed-over", run: write.from, to: write.to }];
    case "delivery.renew":
      if (write.how === "requeue") return [{ kind: "deliveries.requeued", id: write.id }];
      if (effect?.of !== "renew") throw new Error("a reprocessed delivery needs its new id");
      return [
        {
          kind: "deliveries.reprocessed",
          id: effect.delivery,
          from: write.id,
          event: effect.event,
          handler: effect.handler,
        },
      ];
    case "orphans.move":
      return [{ kind: "deliveries.moved", ids: orphans(effect), to: write.to }];
    case "orphans.skip":
      return [{ kind: "deliveries.skipped", ids: orphans(effect), reason: "orphaned" }];
    case "publish":
      if (effect?.of !== "publish") throw new Error("a publication needs its outcome");
      if (effect.published.outcome === "unchanged") return [];
      return [
        {
          kind: "event.published",
          ...runOf(write),
          hash: hash(write.publication.payload),
          ...effect.published,
        },
      ];
  }
}

function orphans(effect: Effect | undefined): DeliveryId[] {
  if (effect?.of !== "orphans") throw new Error("orphans need their ids");
  return effect.ids;
}

type HandlerWrite = Extract<Write, { do: "handler.set" | "handler.create" | "slot" }>;

function handlerEntries(write: HandlerWrite, hash: Hash): Entry[] {
  if (write.do === "slot") {
    const { fromMs: from, toMs: to, count, fate, run } = write.range;
    return [
      {
        kind: "schedule.slot",
        handler: write.handler,
        fate,
        from,
        to,
        count,
        ...(run === undefined ? {} : { run }),
      },
    ];
  }
  const { state, seenSeq: _, triggerIfPending: __, ...schedule } = write.set;
  const entries: Entry[] = [];
  if (Object.values(schedule).some((value) => value !== null && value !== false))
    entries.push({ kind: "schedule.set", handler: write.id, set: schedule });
  if (state !== undefined)
    entries.push({ kind: "state.set", handler: write.id, hash: state === null ? null : hash(state) });
  return entries;
}

function workflowEntries(set: Extract<Write, { do: "workflow.set" }>["set"]): Entry[] {
  const { openRun: _, consumerStreak: __, deployed: ___, activeVersion, ...rest } = set;
  const entries: Entry[] = [];
  if (activeVersion !== undefined) entries.push({ kind: "version.activated", version: activeVersion });
  if (Object.keys(rest).length > 0) entries.push({ kind: "workflow.set", set: rest });
  return entries;
}

const runOf = ({ run }: { run?: RunId }): { run?: RunId } => (run === undefined ? {} : { run });
