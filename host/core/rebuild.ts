/**
 * Journal → the state of runs, deliveries and ledger rows (02 §10). `verify` compares it with the tables; `pending`
 * lists what was dispatched and has not ended.
 */
import type { UnitName } from "./change.ts";
import type { DeliveryStatus } from "./event.ts";
import type { DeliveryId, EventId, HandlerId, MutationId, RunId } from "./ids.ts";
import type { Entry, RowFace, RunFace } from "./journal.ts";

export interface DeliveryFace {
  event: EventId;
  handler: HandlerId;
  status: DeliveryStatus;
  reservedBy: RunId | null;
  attempts: number;
}

export interface Rebuilt {
  runs: Map<RunId, RunFace>;
  deliveries: Map<DeliveryId, DeliveryFace>;
  mutations: Map<MutationId, RowFace>;
  /** Units in the open, by run. */
  pending: Map<RunId, UnitName[]>;
  /** Entries that contradict what came before; empty in a sound journal. */
  problems: string[];
}

export const nothingYet = (): Rebuilt => ({
  runs: new Map(),
  deliveries: new Map(),
  mutations: new Map(),
  pending: new Map(),
  problems: [],
});

/** What a pruned journal leaves of the past: the state of everything that is still in the tables. */
export function digestOf({ runs, deliveries, mutations, pending }: Rebuilt): string {
  return JSON.stringify({
    runs: [...runs],
    deliveries: [...deliveries],
    mutations: [...mutations],
    pending: [...pending],
  });
}

function fromDigest(text: string): Rebuilt {
  const { runs, deliveries, mutations, pending } = JSON.parse(text) as Record<keyof Rebuilt, never>;
  return {
    runs: new Map(runs),
    deliveries: new Map(deliveries),
    mutations: new Map(mutations),
    pending: new Map(pending),
    problems: [],
  };
}

export function rebuild(entries: Iterable<Entry>, from: Rebuilt = nothingYet()): Rebuilt {
  for (const entry of entries) replay(from, entry);
  return from;
}

function replay(state: Rebuilt, entry: Entry): void {
  switch (entry.kind) {
    case "run.created":
      if (state.runs.has(entry.run)) state.problems.push(`run ${entry.run} was created twice`);
      state.runs.set(entry.run, entry.of);
      return;
    case "phase.advanced":
      return assign(state, state.runs, entry.run, { phase: entry.phase, ...entry.set });
    case "status.changed":
      return assign(state, state.runs, entry.run, entry.set);
    case "unit.dispatched":
      state.pending.set(entry.run, [...(state.pending.get(entry.run) ?? []), ...entry.units]);
      return;
    case "unit.completed":
    case "unit.failed":
    case "unit.skipped":
    case "unit.lost":
      return endUnits(state, entry.run, entry.units);
    case "mutation.proposed":
      state.mutations.set(entry.mutation, entry.of);
      return;
    case "mutation.changed":
      return assign(state, state.mutations, entry.mutation, entry.set);
    case "event.published":
      for (const { id, handler } of entry.created)
        state.deliveries.set(id, {
          event: entry.event,
          handler,
          status: "pending",
          reservedBy: null,
          attempts: 1,
        });
      return;
    case "deliveries.pending":
    case "deliveries.reserved":
    case "deliveries.consumed":
    case "deliveries.skipped":
    case "deliveries.dead":
    case "deliveries.handed-over":
    case "deliveries.requeued":
    case "deliveries.reprocessed":
    case "deliveries.moved":
      return replayDelivery(state, entry);
    case "mutation.sent":
    case "mutation.evidence":
    case "schedule.slot":
    case "schedule.set":
    case "state.set":
    case "inbox.opened":
    case "operator.acted":
    case "version.created":
    case "version.activated":
    case "workflow.set":
      return;
    case "journal.pruned":
      Object.assign(state, fromDigest(entry.digest), { problems: state.problems });
  }
}

type DeliveryEntry = Extract<Entry, { kind: `deliveries.${string}` }>;

function replayDelivery(state: Rebuilt, entry: DeliveryEntry): void {
  switch (entry.kind) {
    case "deliveries.handed-over":
      for (const face of state.deliveries.values())
        if (face.status === "reserved" && face.reservedBy === entry.run) face.reservedBy = entry.to;
      return;
    case "deliveries.requeued": {
      const face = state.deliveries.get(entry.id);
      const set = { status: "pending" as const, attempts: (face?.attempts ?? 0) + 1, reservedBy: null };
      return assign(state, state.deliveries, entry.id, set);
    }
    case "deliveries.reprocessed": {
      const { event, handler } = entry;
      state.deliveries.set(entry.id, { event, handler, status: "pending", reservedBy: null, attempts: 1 });
      return;
    }
    case "deliveries.moved":
      for (const id of entry.ids) assign(state, state.deliveries, id, { handler: entry.to });
      return;
    case "deliveries.pending":
    case "deliveries.reserved":
    case "deliveries.consumed":
    case "deliveries.skipped":
    case "deliveries.dead": {
      const status = entry.kind.slice("deliveries.".length) as DeliveryStatus;
      const reservedBy = status === "reserved" ? (entry.run ?? null) : null;
      for (const id of entry.ids) assign(state, state.deliveries, id, { status, reservedBy });
    }
  }
}

function endUnits(state: Rebuilt, run: RunId, units: UnitName[] | "open"): void {
  const open = state.pending.get(run) ?? [];
  const left = units === "open" ? [] : [...open];
  if (units !== "open")
    for (const unit of units) {
      const at = left.indexOf(unit);
      if (at < 0) state.problems.push(`run ${run}: ${unit} ended without having been dispatched`);
      else left.splice(at, 1);
    }
  if (left.length > 0) state.pending.set(run, left);
  else state.pending.delete(run);
}

function assign<Key extends number, Face>(
  state: Rebuilt,
  faces: Map<Key, Face>,
  key: Key,
  set: Partial<Face>,
): void {
  const face = faces.get(key);
  if (face) faces.set(key, { ...face, ...set });
  else state.problems.push(`entry about ${key}, which the journal never created`);
}
