/**
 * One run, one loop: perform a unit, let the core decide, apply. Orders effects and decides nothing; the order is the
 * law of 02 §2.4.
 *
 * X1. A unit executes only after its dispatch is on record.
 * X2. A call leaves only after its `in_flight` row is durable.
 * X3. A refused Change means that somebody else has decided: read again, or leave the run to them.
 */
import { commit, type Emission, emitting, prepared, redo, withoutCall } from "../core/advance.ts";
import { type Change, fuse, type UnitName } from "../core/change.ts";
import { settleSchedule } from "../core/close.ts";
import { fail } from "../core/fail.ts";
import { follow, type RunFacts } from "../core/facts.ts";
import type { RunId } from "../core/ids.ts";
import { backoffDelayMs } from "../core/backoff.ts";
import type { RunError } from "../core/run.ts";
import { firstUnits } from "../core/start.ts";
import { clampWake } from "../core/wake.ts";
import type { Done, Failed, Lost, SandboxCall, Script } from "../ports/sandbox.ts";
import type { Applied, Level, Refused } from "../ports/store.ts";
import { bridge, pendingJson } from "./bridge.ts";
import { Mutator } from "./mutator.ts";
import type { Parts } from "./parts.ts";

const MAX_REDOS = 3;
const SHIPPED_EVENTS = 100;

export class Executor {
  readonly #parts: Parts;
  readonly #mutator: Mutator;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#mutator = new Mutator(parts, (facts, change, level) => this.apply(facts, change, level));
  }

  /** Drives an active run until it is active no more. */
  async drive(id: RunId, signal: AbortSignal): Promise<void> {
    let facts = await this.#parts.store.run(id);
    while (facts?.run.status === "active" && !signal.aborted) facts = await this.#step(facts, signal);
    if (facts) this.#parts.tell({ kind: "run.ended", facts });
  }

  async #step(facts: RunFacts, signal: AbortSignal): Promise<RunFacts | undefined> {
    const script = await this.#parts.scripts.script(facts.workflow.id, facts.run.version);
    switch (facts.run.phase) {
      case "executing":
        return this.#produce(facts, script, signal);
      case "preparing":
        return this.#prepare(facts, script, signal);
      case "prepared":
        return this.#mutate(facts, script, signal);
      case "mutating":
        return this.#mutator.send(facts);
      case "mutated":
        return this.apply(facts, emitting(facts, this.#now()), "applied");
      case "emitting":
        return this.#emit(facts, script, signal);
      case "committed":
        return undefined;
    }
  }

  async #produce(facts: RunFacts, script: Script, signal: AbortSignal): Promise<RunFacts | undefined> {
    const result = await this.#execute(facts, script, "producer", signal);
    if (result.status !== "done") return this.#broke(facts, ["producer"], result);
    return this.#commit(facts, script, ["producer"], result);
  }

  async #prepare(facts: RunFacts, script: Script, signal: AbortSignal): Promise<RunFacts | undefined> {
    const units = firstUnits(facts.handler, this.#parts.fused);
    const unit = units.length > 1 ? "prepare+mutate" : "prepare";
    const result = await this.#execute(facts, script, unit, signal);
    if (result.status !== "done") return this.#broke(facts, units, result);
    const reserved = await this.#reservations(facts, result);
    if ("error" in reserved) return this.#fail(facts, units, reserved.error);
    const nowMs = this.#now();
    const { policies } = this.#parts;
    const bounds = policies.effective("prepare", facts);
    const wake = clampWake(result.prepared?.wakeAt, nowMs, bounds.minWakeMs, bounds.maxWakeMs);
    if (wake.warning !== undefined)
      this.#parts.tell({ kind: "engine.warning", message: wake.warning, atMs: nowMs });
    let change = prepared(
      facts,
      {
        json: result.prepared?.json ?? "{}",
        reservations: reserved.ids,
        ...(wake.wakeAtMs === undefined ? {} : { wakeAtMs: wake.wakeAtMs }),
      },
      nowMs,
    );
    const after = follow(facts, change);
    if (reserved.ids.length === 0) change = fuse(change, emitting(after, nowMs));
    else if (!facts.handler.hasMutate) change = fuse(change, withoutCall(after, nowMs));
    else if (units.length > 1)
      return this.#mutator.intend(facts, { change, after }, result.intent, () => this.#redo(facts, units));
    return this.apply(facts, change, "applied", () => this.#redo(facts, units));
  }

  /** `mutate` in a round trip of its own: unfused, or after a restart of the same run. */
  async #mutate(facts: RunFacts, script: Script, signal: AbortSignal): Promise<RunFacts | undefined> {
    const result = await this.#execute(facts, script, "mutate", signal);
    if (result.status !== "done") return this.#broke(facts, ["mutate"], result);
    return this.#mutator.intend(facts, undefined, result.intent, async () => undefined);
  }

  async #emit(facts: RunFacts, script: Script, signal: AbortSignal): Promise<RunFacts | undefined> {
    if (!facts.handler.hasNext) return this.#commit(facts, script, [], undefined);
    const result = await this.#execute(facts, script, "next", signal);
    if (result.status !== "done") return this.#broke(facts, ["next"], result);
    return this.#commit(facts, script, ["next"], result);
  }

  async #execute(
    facts: RunFacts,
    script: Script,
    unit: SandboxCall["unit"],
    signal: AbortSignal,
  ): Promise<Done | Failed | Lost> {
    const { run, handler } = facts;
    const nowMs = this.#now();
    const call: SandboxCall = {
      script,
      unit,
      handler: handler.name,
      run: { id: String(run.id), attempt: run.attempt },
      nowMs,
      seed: `${run.rootId}:${run.attempt}:${run.redos}`,
      signal,
    };
    if (handler.state !== undefined) call.state = handler.state;
    if (run.prepared !== undefined) call.prepared = run.prepared;
    if (unit === "next") call.outcome = outcomeJson(facts);
    if (unit === "prepare" || unit === "prepare+mutate") call.peek = await this.#shipped(facts, script);
    const result = await this.#parts.sandbox.run(call, bridge(this.#parts, facts, script.manifest, signal));
    if (result.logs.length > 0) this.#parts.tell({ kind: "run.logged", facts, lines: result.logs });
    return result;
  }

  async #shipped(facts: RunFacts, script: Script): Promise<NonNullable<SandboxCall["peek"]>> {
    const shipped: NonNullable<SandboxCall["peek"]> = {};
    for (const topic of script.manifest.consumers[facts.handler.name]?.subscribes ?? []) {
      const found = await this.#parts.store.pending(facts.handler.id, topic, { limit: SHIPPED_EVENTS + 1 });
      const events = found.slice(0, SHIPPED_EVENTS);
      shipped[topic] = {
        events: pendingJson(events),
        count: events.length,
        complete: found.length <= SHIPPED_EVENTS,
      };
    }
    return shipped;
  }

  async #reservations(facts: RunFacts, result: Done): Promise<{ ids: number[] } | { error: RunError }> {
    const ids = new Set<number>();
    for (const { topic, ids: messageIds } of result.prepared?.reservations ?? []) {
      const wanted = [...new Set(messageIds)];
      const found = await this.#parts.store.pending(facts.handler.id, topic, {
        limit: wanted.length,
        messageIds: wanted,
      });
      const known = new Set(found.map((one) => one.messageId));
      const bad = wanted.find((messageId) => !known.has(messageId));
      if (bad !== undefined)
        return {
          error: {
            class: "logic",
            code: "bad-reservation",
            message: `${topic} ${JSON.stringify(bad)} is not pending for this consumer`,
          },
        };
      for (const one of found) ids.add(one.delivery);
    }
    return { ids: [...ids] };
  }

  async #commit(
    facts: RunFacts,
    script: Script,
    _units: UnitName[],
    result: Done | undefined,
  ): Promise<RunFacts | undefined> {
    const emission = await this.#emission(facts, result);
    const ending = settleSchedule(facts, "ran", this.#parts.downtime);
    const change = commit(facts, emission, ending, this.#now());
    return this.apply(facts, change, "committed", async () => {
      const again = await this.#parts.store.run(facts.run.id);
      return again?.run.revision === facts.run.revision ? this.#commit(again, script, _units, result) : again;
    });
  }

  async #emission(facts: RunFacts, result: Done | undefined): Promise<Emission> {
    if (!result) return { publications: [], inputs: [] };
    const { store, scripts } = this.#parts;
    const inherited = await store.causes(facts.reserved);
    const active = await scripts.script(facts.workflow.id, facts.workflow.activeVersion);
    const inputs = result.inputs.map((input) => ({
      id: store.newId(),
      source: input.source,
      type: input.type,
      key: input.id,
      title: input.title,
    }));
    const idOf = (input: { source: string; type: string; id: string }) =>
      inputs.find((one) => one.source === input.source && one.type === input.type && one.key === input.id)
        ?.id;
    const subscribers = (topic: string) =>
      facts.workflow.handlers
        .filter((one) => !one.orphaned && active.manifest.consumers[one.name]?.subscribes.includes(topic))
        .filter((one) => one.kind === "consumer")
        .map((one) => one.id);
    const publications = result.publishes.flatMap(({ topics, messageId, payload, input }) =>
      topics.map((topic) => {
        const own = input ? idOf(input) : undefined;
        return {
          publication: {
            topic,
            messageId,
            payload,
            inputs: own === undefined ? inherited.inputs : [own],
            hops: facts.run.kind === "producer" ? 0 : inherited.hops + 1,
          },
          subscribers: subscribers(topic),
        };
      }),
    );
    return {
      publications,
      inputs,
      resources: JSON.stringify(result.usage),
      ...(result.state === undefined ? {} : { state: result.state === "null" ? null : result.state }),
    };
  }

  async #broke(facts: RunFacts, units: UnitName[], result: Failed | Lost): Promise<RunFacts | undefined> {
    if (result.status === "lost") return this.apply(facts, redo(facts, units, this.#now()), "applied");
    return this.#fail(facts, units, result.error);
  }

  /** A person took away what `prepare` had chosen: again, at no cost, a few times. */
  async #redo(facts: RunFacts, units: UnitName[]): Promise<RunFacts | undefined> {
    const now = await this.#parts.store.run(facts.run.id);
    if (!now || now.run.revision !== facts.run.revision) return now;
    if (now.run.redos < MAX_REDOS) return this.apply(now, redo(now, units, this.#now()), "applied");
    return this.#fail(now, units, {
      class: "transient",
      code: "reservations-changed",
      message: "what prepare chose was changed again and again",
    });
  }

  async #fail(facts: RunFacts, units: UnitName[], error: RunError): Promise<RunFacts | undefined> {
    const { store, clock, policies, downtime } = this.#parts;
    const policy = policies.effective(units[0] ?? "next", facts);
    const { deadlineAtMs } = facts.run;
    const change = fail(
      facts,
      {
        units,
        inbox: store.newId(),
        down: downtime,
        failure: {
          error,
          policy: { ...policy, onFailure: policy.onFailure === "fallback" ? "halt" : policy.onFailure },
          retries: facts.run.retries,
          delayMs: backoffDelayMs(policy, facts.run.retries, clock.chance()),
          pastBoundary: false,
          ...(deadlineAtMs === undefined ? {} : { deadlineAtMs }),
        },
      },
      this.#now(),
    );
    return this.apply(facts, change, "committed");
  }

  /** Applies a step and gives the run as it is now; on a refusal, what `otherwise` makes of it (X3). */
  async apply(
    facts: RunFacts,
    change: Change,
    level: Level,
    otherwise?: (refused: Refused) => Promise<RunFacts | undefined>,
  ): Promise<RunFacts | undefined> {
    const { store } = this.#parts;
    const result: Applied | Refused = await store.apply(change, { level, fence: store.fence });
    if (result.ok) return follow(facts, change);
    if (otherwise && (result.because === "stale-deliveries" || result.because === "stale-workflow"))
      return otherwise(result);
    return result.because === "stale-fence" ? undefined : store.run(facts.run.id);
  }

  #now(): number {
    return this.#parts.clock.nowMs();
  }
}

function outcomeJson({ run }: RunFacts): string {
  if (run.outcome === "applied") return `{"status":"applied","result":${run.result ?? "null"}}`;
  return run.outcome === "skipped" ? '{"status":"skipped"}' : '{"status":"none"}';
}
