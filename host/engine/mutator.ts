/**
 * Intent → grant → approval → `in_flight` on disk → call → outcome (02 §2.2, 5). The only file that lets a change leave.
 *
 * Y1. What is sent is what was recorded: bytes, connection and key are fixed before the row is `in_flight`.
 * Y2. `send` is called only after the store said durable.
 * Y3. An answer that proves nothing is unknown; only proof makes a row failed.
 */
import { awaitApproval, emitting, intended, mutated, sending, withoutCall } from "../core/advance.ts";
import { backoffDelayMs } from "../core/backoff.ts";
import { type Change, fuse } from "../core/change.ts";
import { fail } from "../core/fail.ts";
import { follow, type RunFacts } from "../core/facts.ts";
import type { Mutation } from "../core/mutation.ts";
import type { RunError } from "../core/run.ts";
import { unknown } from "../core/settle.ts";
import type { RecordedCall, SendAnswer, Tool, ToolFailure } from "../ports/connector.ts";
import type { Intent } from "../ports/sandbox.ts";
import type { Level, Refused } from "../ports/store.ts";
import type { Parts } from "./parts.ts";

type Apply = (
  facts: RunFacts,
  change: Change,
  level: Level,
  otherwise?: (refused: Refused) => Promise<RunFacts | undefined>,
) => Promise<RunFacts | undefined>;

/** A step that was decided but not applied yet, and the run as it would leave it. */
interface Pending {
  change: Change;
  after: RunFacts;
}

export class Mutator {
  readonly #parts: Parts;
  readonly #apply: Apply;

  constructor(parts: Parts, apply: Apply) {
    this.#parts = parts;
    this.#apply = (facts, change, level, otherwise) => apply(facts, change, level, otherwise);
  }

  /** `mutate` has returned: record what it asked for and, where nothing stands in the way, let it leave. */
  async intend(
    facts: RunFacts,
    pending: Pending | undefined,
    intent: Intent | undefined,
    redo: () => Promise<RunFacts | undefined>,
  ): Promise<RunFacts | undefined> {
    const nowMs = this.#parts.clock.nowMs();
    const before = pending?.after ?? facts;
    const join = (change: Change) => (pending ? fuse(pending.change, change) : change);
    if (!intent) return this.#apply(facts, join(withoutCall(before, nowMs)), "applied", redo);
    const call = { workflow: facts.workflow.id, alias: intent.alias, tool: intent.tool, args: intent.args };
    const tool = await this.#parts.world.tool(call);
    if ("class" in tool || tool.kind !== "mutation" || tool.grant === "deny")
      return this.#refuse(facts, join, before, refusalOf(tool, intent));
    const mutation = await this.#row(before, intent, tool);
    const recorded = intended(before, mutation, nowMs);
    const proposed = follow(before, recorded);
    if (tool.grant === "approve") {
      const held = awaitApproval(proposed, this.#parts.store.newId(), nowMs);
      return this.#apply(facts, join(fuse(recorded, held)), "durable", redo);
    }
    const send = await this.#sending(proposed, mutation, nowMs);
    const flying = await this.#apply(facts, join(fuse(recorded, send)), "durable", redo); // (Y2)
    return flying?.mutation?.status === "in_flight" && flying.run.status === "active"
      ? this.#call(flying as RunFacts & { mutation: Mutation })
      : flying;
  }

  /** A recorded intent that was proven unsent, or approved, leaves as it was recorded. */
  async send(facts: RunFacts): Promise<RunFacts | undefined> {
    const { mutation } = facts;
    if (!mutation || mutation.status !== "proposed")
      throw new Error(`run ${facts.run.id} is mutating with a row that cannot be sent`);
    const change = await this.#sending(facts, mutation, this.#parts.clock.nowMs());
    const flying = await this.#apply(facts, change, "durable"); // (Y2)
    return flying?.mutation?.status === "in_flight"
      ? this.#call(flying as RunFacts & { mutation: Mutation })
      : flying;
  }

  async #sending(facts: RunFacts, mutation: Mutation, nowMs: number): Promise<Change> {
    const bytesHash = await this.#parts.world.fingerprint(recordedCall(facts, mutation)); // (Y1)
    const { idempotencyKey } = mutation;
    const send = { n: mutation.sends + 1, atMs: nowMs, bytesHash, idempotencyKey };
    return sending({ ...facts, mutation }, send, nowMs);
  }

  async #call(facts: RunFacts & { mutation: Mutation }): Promise<RunFacts | undefined> {
    const answer = await this.#parts.world.send(recordedCall(facts, facts.mutation));
    return this.#settle(facts, answer);
  }

  async #settle(facts: RunFacts & { mutation: Mutation }, answer: SendAnswer): Promise<RunFacts | undefined> {
    const { store, clock, policies, downtime, world } = this.#parts;
    const nowMs = clock.nowMs();
    if (answer.outcome === "applied") {
      const { result, resultInvalid, raw } = answer;
      const outcome = { status: "applied" as const, result, ...(resultInvalid ? { resultInvalid } : {}) };
      const done = mutated(facts, outcome, nowMs, raw);
      return this.#apply(facts, fuse(done, emitting(follow(facts, done), nowMs)), "committed");
    }
    const error = errorOf(answer, `${facts.mutation.alias}.${facts.mutation.tool}`);
    if (answer.outcome === "unknown") {
      const tool = await world.tool(recordedCall(facts, facts.mutation));
      const canCheck = "kind" in tool && tool.canCheck;
      const end = { error, answer: answer.raw, canCheck, inbox: store.newId() };
      return this.#apply(facts, unknown(facts, end, nowMs), "committed"); // (Y3)
    }
    const policy = policies.effective("mutation", facts, error.tool);
    const { onFailure } = policies.effective("mutate", facts);
    const failure = {
      error,
      policy: { ...policy, onFailure: onFailure === "fallback" ? ("halt" as const) : onFailure },
      retries: facts.run.retries,
      delayMs: backoffDelayMs(policy, facts.run.retries, clock.chance()),
      pastBoundary: false,
      ...(answer.retryAfterMs === undefined ? {} : { retryAfterMs: answer.retryAfterMs }),
      ...(facts.run.deadlineAtMs === undefined ? {} : { deadlineAtMs: facts.run.deadlineAtMs }),
    };
    const step = { units: [], failure, inbox: store.newId(), down: downtime, answer: answer.raw };
    return this.#apply(facts, fail(facts, step, nowMs), "committed");
  }

  /** The tool is not there, or not granted: nothing was sent, and a person can mend it. */
  async #refuse(
    facts: RunFacts,
    join: (change: Change) => Change,
    before: RunFacts,
    error: RunError,
  ): Promise<RunFacts | undefined> {
    const { store, clock, downtime, policies } = this.#parts;
    const policy = policies.effective("mutate", facts);
    const failure = {
      error,
      policy: { ...policy, onFailure: "halt" as const },
      retries: facts.run.retries,
      delayMs: 0,
      pastBoundary: false,
    };
    const step = { units: ["mutate" as const], failure, inbox: store.newId(), down: downtime };
    return this.#apply(facts, join(fail(before, step, clock.nowMs())), "committed");
  }

  async #row(facts: RunFacts, intent: Intent, tool: Tool): Promise<Mutation> {
    const { store, clock, hash, world } = this.#parts;
    const call = { workflow: facts.workflow.id, ...intent };
    const { run } = facts;
    const key = [store.fence.epoch, run.rootId, tool.connection, intent.tool, intent.args, 0];
    return {
      id: store.newId(),
      originRun: run.id,
      ownerRun: run.id,
      status: "proposed",
      alias: intent.alias,
      connection: tool.connection,
      configVersion: tool.configVersion,
      tool: intent.tool,
      args: intent.args,
      description: await world.describe(call),
      proof: tool.proof,
      idempotencyKey: hash(JSON.stringify(key)),
      n: 0,
      sends: 0,
      settleMs: tool.settleMs,
      checks: 0,
      createdAtMs: clock.nowMs(),
    };
  }
}

export function recordedCall(facts: RunFacts, mutation: Mutation): RecordedCall {
  const { alias, tool, args, idempotencyKey, connection, configVersion } = mutation;
  return { workflow: facts.workflow.id, alias, tool, args, idempotencyKey, connection, configVersion };
}

function refusalOf(tool: Tool | ToolFailure, { alias, tool: name }: Intent): RunError {
  const label = `${alias}.${name}`;
  if ("class" in tool) return errorOf(tool, label);
  if (tool.kind !== "mutation")
    return { class: "logic", code: "phase-violation", message: `${label} only reads`, tool: label };
  return {
    class: "permission",
    code: "not-granted",
    message: `${label} is not granted to this workflow`,
    tool: label,
  };
}

const errorOf = ({ class: kind, code, message }: ToolFailure, tool: string): RunError => ({
  class: kind,
  code,
  message,
  tool,
});
