/**
 * One run, one loop: perform a unit, let the core decide, apply. Orders effects and decides nothing; the order is the
 * law of 02 §2.4.
 *
 * X1. A unit executes only after its dispatch is on record.
 * X2. A call leaves only after its `in_flight` row is durable.
 * X3. A refused Change means that somebody else has decided: read again, or leave the run to them.
 * X4. An abort ends units, never a call: what was sent is awaited to its end.
 * X5. Whatever goes wrong in the host itself, no run stays active without anybody driving it.
 */
import { again, commit, emitting, prepared, redo, withoutCall } from "../core/advance.ts";
import { type Change, fuse, type UnitName } from "../core/change.ts";
import { settleSchedule } from "../core/close.ts";
import { fail } from "../core/fail.ts";
import { follow, type RunFacts } from "../core/facts.ts";
import type { HandlerId, RunId } from "../core/ids.ts";
import { isUnknown } from "../core/mutation.ts";
import { abort } from "../core/recover.ts";
import { reservation, type Asked } from "../core/reserve.ts";
import type { RunError } from "../core/run.ts";
import { unitsAt } from "../core/start.ts";
import { clampWake } from "../core/wake.ts";
import type { Done, Failed, Lost, Prepared, Script, UnitCall } from "../ports/sandbox.ts";
import type { Level, PendingEvent, Refused } from "../ports/store.ts";
import { emissionOf, NOTHING } from "./emission.ts";
import { failedStep } from "./failures.ts";
import { Mutator } from "./mutator.ts";
import type { Parts } from "./parts.ts";
import { Shipping } from "./shipping.ts";
import { firstUnitsOf, isFused, perform, type Performed } from "./unit.ts";

type Result = Promise<RunFacts | undefined>;
interface Finished extends Performed {
  result: Done;
}

export class Executor {
  readonly mutator: Mutator;
  readonly #parts: Parts;
  readonly #shipping = new Shipping();

  constructor(parts: Parts) {
    this.#parts = parts;
    this.mutator = new Mutator(parts, (facts, change, level, otherwise) =>
      this.#apply(facts, change, level, otherwise),
    );
  }

  /** Drives an active run until it is active no more; `called`: its approved call is on record as leaving. */
  async drive(begun: RunFacts, signal: AbortSignal, called = false): Promise<void> {
    const facts = await this.#loop(begun, signal, called).catch((error: unknown) =>
      this.#rescue(begun.run.id, error),
    );
    if (facts) this.#parts.tell({ kind: "run.ended", facts });
  }

  async #loop(begun: RunFacts, signal: AbortSignal, called: boolean): Result {
    let facts: RunFacts | undefined = called ? await this.mutator.call(begun) : begun;
    while (facts?.run.status === "active" && !signal.aborted) facts = await this.#step(facts, signal);
    return facts?.run.status === "active" ? this.#abort(facts) : facts;
  }

  /** The host's own fault: a run is never left active without anybody driving it (X5). */
  async #rescue(id: RunId, cause: unknown): Result {
    const facts = await this.#parts.store.run(id);
    if (facts?.run.status !== "active") return facts;
    const message = cause instanceof Error ? cause.message : String(cause);
    this.#parts.tell({ kind: "engine.warning", message: `run ${id}: ${message}`, atMs: this.#now() });
    const error: RunError = { class: "internal", code: "engine-failed", message };
    if (isUnknown(facts.mutation?.status)) return this.mutator.lost(facts, error);
    const { handler, reserved } = facts;
    const units = unitsAt(facts.run.phase, handler, { reserved, fused: isFused(this.#parts, facts) });
    return this.#fail(facts, units, error);
  }

  async #step(facts: RunFacts, signal: AbortSignal): Result {
    const script = await this.#parts.scripts.script(facts.workflow.id, facts.run.version);
    switch (facts.run.phase) {
      case "executing":
        return this.#produce(facts, script, signal);
      case "preparing":
        return this.#prepare(facts, script, signal);
      case "prepared":
        return this.#mutate(facts, script, signal);
      case "mutating":
        return this.mutator.send(facts);
      case "mutated":
        return this.#apply(facts, emitting(facts, this.#now()), "applied");
      case "emitting":
        return this.#emit(facts, script, signal);
      case "committed":
        return undefined;
    }
  }

  async #produce(facts: RunFacts, script: Script, signal: AbortSignal): Result {
    return this.#unit(facts, script, "producer", ["producer"], signal, (done) =>
      this.#commit(facts, script, ["producer"], done),
    );
  }

  async #prepare(facts: RunFacts, script: Script, signal: AbortSignal): Result {
    const units = firstUnitsOf(this.#parts, facts);
    const unit = units.length > 1 ? "prepare+mutate" : "prepare";
    return this.#unit(facts, script, unit, units, signal, (done) =>
      this.#reserve(facts, script, units, done),
    );
  }

  /** `mutate` in a round trip of its own: unfused, or after a restart of the same run. */
  async #mutate(facts: RunFacts, script: Script, signal: AbortSignal): Result {
    if (!facts.handler.hasMutate) return this.#apply(facts, withoutCall(facts, this.#now()), "applied");
    return this.#unit(facts, script, "mutate", ["mutate"], signal, (done) => this.#intend(facts, done));
  }

  async #intend(facts: RunFacts, done: Finished): Result {
    const { result, records } = done;
    const otherwise = async (): Result => {
      const now = await this.#parts.store.run(facts.run.id);
      return now?.run.revision === facts.run.revision ? this.#intend(now, done) : now;
    };
    return this.mutator.intend(facts, { intent: result.intent, records, otherwise });
  }

  async #emit(facts: RunFacts, script: Script, signal: AbortSignal): Result {
    if (!facts.handler.hasNext) return this.#commit(facts, script, [], undefined);
    return this.#unit(facts, script, "next", ["next"], signal, (done) =>
      this.#commit(facts, script, ["next"], done),
    );
  }

  /** Performs a unit and goes on with what it returned; what it did not return is a failure, a free redo, or an abort. */
  async #unit(
    facts: RunFacts,
    script: Script,
    unit: UnitCall,
    units: UnitName[],
    signal: AbortSignal,
    then: (done: Finished) => Result,
  ): Result {
    const performed = await perform(this.#parts, this.#shipping, facts, script, unit, signal); // (X1)
    const { result } = performed;
    if (signal.aborted) return facts; // (X4)
    if (result.status === "done") return then({ ...performed, result });
    return this.#broke(facts, units, result, performed.records);
  }

  async #broke(
    facts: RunFacts,
    units: UnitName[],
    { status, error }: Failed | Lost,
    records: Performed["records"],
  ): Result {
    if (status === "lost") return this.#apply(facts, again(facts, units, this.#now()), "applied");
    return this.#fail(facts, units, error, records);
  }

  /** What `prepare` returned → reserved, redone, or failed. Asked again when a person was faster (X3). */
  async #reserve(facts: RunFacts, script: Script, units: UnitName[], done: Finished): Result {
    const { handler, run } = facts;
    const { result, records } = done;
    const subscribes = script.manifest.consumers[handler.name]?.subscribes ?? [];
    const asked = shippedOf(facts, done) ?? (await this.#asked(facts, result.prepared));
    const verdict = reservation(run, { id: handler.id, subscribes }, asked);
    if ("fail" in verdict) return this.#fail(facts, units, verdict.fail, records);
    if ("redo" in verdict) return this.#apply(facts, redo(facts, units, this.#now()), "applied");
    const changed = async (): Result => {
      const now = await this.#parts.store.run(run.id);
      const { shipped: _, ...again } = done;
      return now?.run.revision === run.revision ? this.#reserve(now, script, units, again) : now;
    };
    const nowMs = this.#now();
    const alone = units.length === 1;
    const change = prepared(
      facts,
      {
        json: result.prepared?.json ?? "{}",
        reservations: verdict.reserve,
        ...this.#wakeAt(facts, result.prepared, nowMs),
        ...(alone ? { alone } : {}),
      },
      nowMs,
    );
    change.writes.push(...records);
    const after = follow(facts, change);
    if (verdict.reserve.length === 0)
      return this.#apply(facts, fuse(change, emitting(after, nowMs)), "applied", changed);
    if (!handler.hasMutate)
      return this.#apply(facts, fuse(change, withoutCall(after, nowMs)), "applied", changed);
    if (alone) return this.#apply(facts, change, "applied", changed);
    return this.mutator.intend(facts, {
      intent: result.intent,
      records: [],
      pending: { change, after },
      otherwise: changed,
    });
  }

  /** Each id as the script named it, with the delivery it stands for, whatever has become of that. */
  async #asked({ handler }: RunFacts, result: Prepared | undefined): Promise<Asked[]> {
    const asked: Asked[] = [];
    for (const { topic, ids } of result?.reservations ?? []) {
      const messageIds = [...new Set(ids)];
      const limit = messageIds.length;
      const found = await this.#parts.store.pending(handler.id, topic, { limit, messageIds, settled: true });
      const known = new Map(found.map((one) => [one.messageId, one]));
      for (const messageId of messageIds) {
        const one = known.get(messageId);
        asked.push({ topic, messageId, ...(one ? { delivery: deliveryOf(one, handler.id) } : {}) });
      }
    }
    return asked;
  }

  #wakeAt(facts: RunFacts, result: Prepared | undefined, nowMs: number): { wakeAtMs?: number } {
    const { minWakeMs, maxWakeMs } = this.#parts.policies.effective("prepare", facts);
    const { warning, ...wake } = clampWake(result?.wakeAt, nowMs, minWakeMs, maxWakeMs);
    if (warning !== undefined) this.#parts.tell({ kind: "engine.warning", message: warning, atMs: nowMs });
    return wake;
  }

  async #commit(facts: RunFacts, script: Script, units: UnitName[], done: Finished | undefined): Result {
    const emission = done ? await emissionOf(this.#parts, facts, script, done.result) : NOTHING;
    if ("error" in emission) return this.#fail(facts, units, emission.error, done?.records);
    const settled = settleSchedule(facts, "ran", this.#parts.downtime);
    const ending = settled.slots.length > 1 ? { ...settled, inbox: this.#parts.store.newId() } : settled;
    const change = commit(facts, emission, ending, this.#now());
    if (done) change.writes.push(...done.records);
    return this.#apply(facts, change, "committed", async () => {
      const now = await this.#parts.store.run(facts.run.id);
      return now?.run.revision === facts.run.revision ? this.#commit(now, script, units, done) : now;
    });
  }

  async #fail(
    facts: RunFacts,
    units: UnitName[],
    error: RunError,
    records: Performed["records"] = [],
  ): Result {
    const change = fail(facts, failedStep(this.#parts, facts, { units, error }), this.#now());
    change.writes.push(...records);
    return this.#apply(facts, change, "committed");
  }

  /** A person, or the host's own end, stops the run where it is. */
  async #abort(facts: RunFacts): Result {
    const { store } = this.#parts;
    const fused = isFused(this.#parts, facts);
    const attempt = { id: store.newId(), host: store.fence.incarnation, fused };
    const change = abort(facts, { inbox: store.newId(), attempt }, this.#now());
    return change ? this.#apply(facts, change, "durable") : facts;
  }

  /** Applies a step and gives the run as it is now; on a refusal, what `otherwise` makes of it (X3). */
  async #apply(
    facts: RunFacts,
    change: Change,
    level: Level,
    otherwise?: (refused: Refused) => Result,
  ): Result {
    const { store } = this.#parts;
    const result = await store.apply(change, { level, fence: store.fence });
    if (result.ok) return follow(facts, change);
    if (otherwise && (result.because === "stale-deliveries" || result.because === "stale-workflow"))
      return otherwise(result);
    return result.because === "stale-fence" ? undefined : store.run(facts.run.id);
  }

  #now(): number {
    return this.#parts.clock.nowMs();
  }
}

/**
 * What it reserves stood for these deliveries when they were sent to it; the Change is refused if one is not pending for
 * this consumer any more (X3). `undefined` when it reserves something else as well.
 */
function shippedOf({ handler }: RunFacts, { result, shipped }: Finished): Asked[] | undefined {
  if (!shipped) return undefined;
  const asked: Asked[] = [];
  for (const { topic, ids } of result.prepared?.reservations ?? [])
    for (const messageId of ids) {
      const id = shipped.known.get(topic)?.get(messageId);
      if (id === undefined) return undefined;
      asked.push({ topic, messageId, delivery: { id, handler: handler.id, status: "pending" } });
    }
  return asked;
}

function deliveryOf({ delivery, settled }: PendingEvent, handler: HandlerId): NonNullable<Asked["delivery"]> {
  const known = { id: delivery, handler, status: settled?.status ?? ("pending" as const) };
  return settled?.atMs === undefined ? known : { ...known, settledAtMs: settled.atMs };
}
