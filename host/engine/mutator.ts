/**
 * Intent → grant → approval → `in_flight` on disk → call → outcome (02 §2.2, 5). The only file that lets a change leave,
 * but for the re-sends of `reconciler.ts`.
 *
 * Y1. What is sent is what was recorded: bytes, connection and key are fixed before the row is `in_flight`.
 * Y2. `send` is called only after the store said durable.
 * Y3. An answer that proves nothing, and one that does not come in time, is unknown; only proof makes a row failed.
 * Y4. Whatever comes later still counts: it settles an open row, or contradicts a settled one.
 * Y5. What was allowed beforehand is used up by the Change that lets the call leave, and by no other.
 * Y6. What is granted and bound when that Change is applied is what was looked at: otherwise it is looked at again.
 */
import { awaitApproval, emitting, intended, mutated, sending, withoutCall } from "../core/advance.ts";
import { type Allowance, allowanceOf } from "../core/approval.ts";
import { type Change, fuse, type Write } from "../core/change.ts";
import { fail } from "../core/fail.ts";
import { follow, type RunFacts } from "../core/facts.ts";
import { idempotencyKey, isUnstable, nextN } from "../core/intent.ts";
import { isUnknown, type Mutation, type Send } from "../core/mutation.ts";
import { claimApproved } from "../core/retry.ts";
import type { RunError } from "../core/run.ts";
import { late, notApplied, unknown } from "../core/settle.ts";
import type { Attempt } from "../core/start.ts";
import type { JsonText } from "../core/workflow.ts";
import type { SendAnswer, Tool, ToolFailure } from "../ports/connector.ts";
import type { Intent } from "../ports/sandbox.ts";
import type { Attempted, Level, Refused } from "../ports/store.ts";
import { failedStep } from "./failures.ts";
import { InFlight } from "./in-flight.ts";
import type { Parts } from "./parts.ts";
import { msOf, within } from "./timeout.ts";
import { errorOf, labelOf, overdue, rebound, refusalOf } from "./unsent.ts";
import { canCheck, leavingCall, recordedCall, toolOf, type WithRow } from "./tools.ts";

type Result = Promise<RunFacts | undefined>;
type Apply = (
  facts: RunFacts,
  change: Change,
  level: Level,
  otherwise?: (refused: Refused) => Result,
) => Result;

/** What `mutate` asked for, and what goes into the same transaction. */
interface Stated {
  intent: Intent | undefined;
  records: Write[];
  /** `prepare`'s own checkpoint, decided but not applied yet. */
  pending?: { change: Change; after: RunFacts };
  otherwise?: () => Result;
}

export class Mutator {
  readonly inFlight: InFlight;
  readonly #parts: Parts;
  readonly #apply: Apply;
  #settled: () => void = () => {};

  constructor(parts: Parts, apply: Apply) {
    this.inFlight = new InFlight(parts.clock);
    this.#parts = parts;
    this.#apply = apply;
  }

  /** An answer that came late has made something ready. */
  onSettled(settled: () => void): void {
    this.#settled = settled;
  }

  /** `mutate` has returned: record what it asked for and, where nothing stands in the way, let it leave. */
  async intend(facts: RunFacts, stated: Stated): Result {
    const { intent, records, pending, otherwise } = stated;
    const nowMs = this.#now();
    const before = pending?.after ?? facts;
    const apply = (change: Change, level: Level): Result => {
      change.writes.push(...records);
      return this.#apply(facts, pending ? fuse(pending.change, change) : change, level, otherwise);
    };
    if (!intent) return apply(withoutCall(before, nowMs), "applied");
    const tool = await this.#parts.world.tool({ workflow: facts.workflow.id, ...intent });
    const refused = refusalOf(tool, intent) ?? overdue(facts, nowMs);
    if (refused || "class" in tool) {
      const change = this.#refused(before, ["mutate"], refused ?? refusalOf(tool, intent));
      return apply(withAllowance(change, before, this.#allowance(before, intent, tool)), "committed");
    }
    const { id, retryOf } = facts.run;
    const attempts = retryOf === undefined ? [] : (await this.#parts.store.told(id)).attempted;
    const mutation = await this.#row(before, intent, tool, attempts);
    const recorded = intended(before, mutation, nowMs);
    const proposed = follow(before, recorded);
    const again = tool.grant === "approve" && this.#wasApproved(mutation, facts, attempts);
    const allowance = again ? NOTHING_ALLOWED : this.#allowance(before, intent, tool);
    if (tool.grant === "approve" && !again && !allowance.allowed) {
      const held = awaitApproval(proposed, this.#parts.store.newId(), nowMs);
      return apply(withAllowance(fuse(recorded, held), before, allowance), "durable");
    }
    const sent = sending({ ...proposed, mutation }, await this.#send(proposed, mutation, nowMs), nowMs);
    const leaving = asRead(withAllowance(sent, before, allowance), before); // (Y5) (Y6)
    const flying = await apply(fuse(recorded, leaving), "durable"); // (Y2)
    return isFlying(flying, mutation) ? this.call(flying) : flying;
  }

  /** A recorded intent that was proven unsent leaves as it was recorded, if it still may. */
  async send(facts: RunFacts): Result {
    const { mutation } = facts;
    if (!mutation || mutation.status !== "proposed")
      throw new Error(`run ${facts.run.id} is mutating with a row that cannot be sent`);
    const nowMs = this.#now();
    const tool = await toolOf(this.#parts, facts, mutation);
    const refused = refusalOf(tool, mutation) ?? rebound(tool as Tool, mutation) ?? overdue(facts, nowMs);
    if (refused) return this.#apply(facts, this.#refused(facts, [], refused), "committed");
    const isAllowed = async () => (await this.#parts.store.told(mutation.originRun)).approved;
    if ((tool as Tool).grant === "approve" && !(await isAllowed())) {
      // Nobody was asked when it was decided; since then somebody wants to be.
      return this.#apply(facts, awaitApproval(facts, this.#parts.store.newId(), nowMs), "durable");
    }
    const send = await this.#send(facts, mutation, nowMs);
    const sent = asRead(sending({ ...facts, mutation }, send, nowMs), facts); // (Y6)
    const flying = await this.#apply(facts, sent, "durable"); // (Y2)
    return isFlying(flying, mutation) ? this.call(flying) : flying;
  }

  /** The claim of an approved call: leaves exactly as shown, or is void (3.3, 3.4). */
  async claim(facts: WithRow, attempt: Attempt): Promise<Change> {
    const nowMs = this.#now();
    const tool = await toolOf(this.#parts, facts, facts.mutation);
    const known = "kind" in tool;
    const call = {
      send: await this.#send(facts, facts.mutation, nowMs),
      isGranted: known && tool.kind === "mutation" && tool.grant !== "deny",
      grantVersion: (known && tool.grantVersion) || 0,
      connection: known ? tool.connection : "",
      configVersion: known ? tool.configVersion : -1,
    };
    return claimApproved(facts, attempt, call, nowMs);
  }

  /** The row is on disk as leaving: let it, and await its end as long as the policy says. */
  async call(facts: RunFacts): Result {
    const { mutation } = facts;
    if (mutation?.status !== "in_flight") throw new Error(`run ${facts.run.id} has nothing on its way`);
    const { policies } = this.#parts;
    const timeoutMs = msOf(policies.effective("mutation", facts, labelOf(mutation)).timeoutMs);
    return this.inFlight.track(timeoutMs, this.#call({ ...facts, mutation }, timeoutMs));
  }

  async #call(row: WithRow, timeoutMs: number): Result {
    const { clock, world } = this.#parts;
    const abort = new AbortController();
    const call = await leavingCall(this.#parts, row, row.mutation);
    const answered = world.send({ ...call, signal: abort.signal }).catch((error: unknown) => threw(error));
    const awaited = await within(clock, timeoutMs, answered);
    if (awaited.inTime) return this.#settle(row, awaited.result);
    abort.abort();
    const given = await this.#settle(row, outOfTime(timeoutMs)); // (Y3)
    void answered
      .then((answer) => this.#late(row, answer))
      .catch((error: unknown) => {
        const message = `late answer for run ${row.run.id}: ${String(error)}`;
        this.#parts.tell({ kind: "engine.warning", message, atMs: clock.nowMs() });
      });
    return given;
  }

  async #settle(facts: WithRow, answer: SendAnswer): Result {
    const nowMs = this.#now();
    if (answer.outcome === "applied") {
      const { result, resultInvalid, raw } = answer;
      const outcome = { status: "applied" as const, result, ...(resultInvalid ? { resultInvalid } : {}) };
      const done = mutated(facts, outcome, nowMs, raw);
      return this.#apply(facts, fuse(done, emitting(follow(facts, done), nowMs)), "committed");
    }
    if (answer.outcome === "unknown")
      return this.#unknown(facts, errorOf(answer, labelOf(facts.mutation)), answer.raw);
    return this.#apply(facts, fail(facts, this.#failed(facts, answer), nowMs), "committed");
  }

  /** The host lost sight of a call that may have left. */
  async lost(facts: RunFacts, error: RunError): Result {
    const { mutation } = facts;
    if (!mutation) throw new Error(`run ${facts.run.id} has no call that could be lost`);
    return this.#unknown({ ...facts, mutation }, error, JSON.stringify(error));
  }

  /** (Y3) */
  async #unknown(facts: WithRow, error: RunError, answer: JsonText): Result {
    const nowMs = this.#now();
    const tool = await toolOf(this.#parts, facts, facts.mutation);
    const checkable = canCheck(tool, facts.mutation, nowMs);
    const end = { error, answer, canCheck: checkable, inbox: this.#parts.store.newId() };
    const given = await this.#apply(facts, unknown(facts, end, nowMs), "committed");
    this.#settled();
    return given;
  }

  #failed(facts: WithRow, answer: Extract<SendAnswer, { outcome: "failed" }>) {
    return failedStep(this.#parts, facts, {
      error: errorOf(answer, labelOf(facts.mutation)),
      units: [],
      ofCall: true,
      answer: answer.raw,
      ...(answer.retryAfterMs === undefined ? {} : { retryAfterMs: answer.retryAfterMs }),
    });
  }

  /** (Y4) */
  async #late({ run, mutation }: WithRow, answer: SendAnswer): Promise<void> {
    if (answer.outcome === "unknown") return;
    const { store } = this.#parts;
    for (let tries = 0; tries < 3; tries++) {
      const facts = await this.#owner(run.id, mutation.id);
      if (!facts) return;
      // A refusal speaks for its own send only; one that was made since may have had the effect.
      if (answer.outcome === "failed" && facts.mutation.sends !== mutation.sends) return;
      const change = this.#lateChange(facts, answer);
      if (!change) return;
      const applied = await store.apply(change, { level: "durable", fence: store.fence });
      if (applied.ok) return this.#settled();
    }
  }

  #lateChange(facts: WithRow, answer: Exclude<SendAnswer, { outcome: "unknown" }>): Change | undefined {
    const nowMs = this.#now();
    if (answer.outcome === "applied") return late(facts, answer, this.#parts.store.newId(), nowMs);
    if (!isUnknown(facts.mutation.status)) return undefined;
    // What a person must mend is found again by the new run; everything else has its budget.
    if (answer.class === "auth" || answer.class === "permission") return notApplied(facts, nowMs);
    return fail(facts, { ...this.#failed(facts, answer), proven: true }, nowMs);
  }

  /** The run that acts on the row now: the one that sent it, or one that took over from it. */
  async #owner(from: number, row: number): Promise<WithRow | undefined> {
    for (let id: number | undefined = from; id !== undefined; ) {
      const facts: RunFacts | undefined = await this.#parts.store.run(id);
      if (facts?.mutation?.id === row) return { ...facts, mutation: facts.mutation };
      id = facts?.run.successor;
    }
    return undefined;
  }

  /** The tool is not there, or not granted, or it is too late: nothing was sent. */
  #refused(facts: RunFacts, units: ["mutate"] | [], error: RunError | undefined): Change {
    if (!error) throw new Error("a refusal without a reason");
    return fail(facts, failedStep(this.#parts, facts, { units, error }), this.#now());
  }

  async #send(facts: RunFacts, mutation: Mutation, nowMs: number): Promise<Send> {
    const bytesHash = await this.#parts.world.fingerprint(recordedCall(facts, mutation)); // (Y1)
    return { n: mutation.sends + 1, atMs: nowMs, bytesHash, idempotencyKey: mutation.idempotencyKey };
  }

  async #row(
    facts: RunFacts,
    { alias, tool, args }: Intent,
    known: Tool,
    attempts: Attempted[],
  ): Promise<Mutation> {
    const { store, world, policies } = this.#parts;
    const { run, workflow, reserved } = facts;
    const { connection, configVersion, proof } = known;
    const n = nextN(attempts.at(-1));
    const { check } = policies.effective("mutation", facts, `${alias}.${tool}`);
    if (isUnstable([...attempts, { reserved, connection, tool, args }]))
      this.#parts.tell({
        kind: "engine.warning",
        message: `unstable-intent: ${workflow.name}/${facts.handler.name} asks for something else on every attempt`,
        atMs: this.#now(),
      });
    const before = known.looksBefore ? await this.#before(facts, { alias, tool, args }) : undefined;
    return {
      id: store.newId(),
      originRun: run.id,
      ownerRun: run.id,
      status: "proposed",
      alias,
      connection,
      configVersion,
      tool,
      args,
      description: await world.describe({ workflow: workflow.id, alias, tool, args }),
      proof,
      ...(before === undefined ? {} : { before }),
      idempotencyKey: idempotencyKey({ rootId: run.rootId, connection, tool, args, n }, this.#hash),
      n,
      sends: 0,
      settleMs: Math.max(known.settleMs, check.settleMs),
      checks: 0,
      createdAtMs: this.#now(),
    };
  }

  /** What a check will compare with. Not to know it is no failure: the check will be unsure. */
  async #before(facts: RunFacts, intent: Intent): Promise<JsonText | undefined> {
    const { world, clock, policies } = this.#parts;
    const { timeoutMs } = policies.effective("check", facts, labelOf(intent));
    const abort = new AbortController();
    const seen = world.before?.({ workflow: facts.workflow.id, ...intent, signal: abort.signal });
    const awaited = await within(
      clock,
      msOf(timeoutMs),
      seen?.catch(() => undefined) ?? Promise.resolve(undefined),
    );
    if (awaited.inTime) return awaited.result;
    abort.abort();
    return undefined;
  }

  /** What a person has allowed beforehand, if it still holds (02 §6). */
  #allowance(facts: RunFacts, { alias, tool }: Intent, known: Tool | ToolFailure): Allowance {
    if ("class" in known) return NOTHING_ALLOWED;
    const { connection, configVersion, grantVersion = 0, grant } = known;
    const behind = { alias, tool, connection, configVersion, grantVersion };
    return allowanceOf(facts, { ...behind, needsApproval: grant === "approve" }, this.#now());
  }

  /** Within a chain an identical intent after a proven failure needs no second approval (06). */
  #wasApproved(mutation: Mutation, { run }: RunFacts, attempts: Attempted[]): boolean {
    const { connection, tool, args, configVersion } = mutation;
    return attempts.some(
      (one) =>
        one.approved &&
        one.mutation.status === "failed" &&
        !one.mutation.notSent &&
        one.mutation.configVersion === configVersion &&
        one.mutation.idempotencyKey ===
          idempotencyKey({ rootId: run.rootId, connection, tool, args, n: one.mutation.n }, this.#hash),
    );
  }

  /** A restored store hands out the ids of its lost future once more: keys of another epoch are other keys. */
  readonly #hash = (text: string): string => this.#parts.hash(`${this.#parts.store.fence.epoch} ${text}`);

  #now(): number {
    return this.#parts.clock.nowMs();
  }
}

const NOTHING_ALLOWED: Allowance = { allowed: false, writes: [] };

/** A permission is used, or voided, only as it was read: a deploy in between has ended it. */
function withAllowance(change: Change, { workflow }: RunFacts, { allowed, writes }: Allowance): Change {
  if (!allowed && writes.length === 0) return change;
  return {
    ...change,
    expect: { ...change.expect, workflowRevision: workflow.revision },
    writes: [...change.writes, ...writes],
  };
}

/** (Y6) Bindings, grants, pauses and deploys raise the workflow's revision. */
const asRead = (change: Change, { workflow }: RunFacts): Change => ({
  ...change,
  expect: { ...change.expect, workflowRevision: workflow.revision },
});

const isFlying = (facts: RunFacts | undefined, { id }: Mutation): facts is RunFacts =>
  facts?.mutation?.id === id && facts.mutation.status === "in_flight" && facts.run.status === "active";

function threw(error: unknown): SendAnswer {
  const message = error instanceof Error ? error.message : String(error);
  const raw = JSON.stringify({ threw: message });
  return { outcome: "unknown", class: "internal", code: "connector-threw", message, raw };
}

function outOfTime(timeoutMs: number): SendAnswer {
  const message = `no answer within ${timeoutMs} ms`;
  const raw = JSON.stringify({ timeoutMs });
  return { outcome: "unknown", class: "transient", code: "mutation-timeout", message, raw };
}
