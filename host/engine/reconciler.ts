/**
 * Unknown outcomes, checked: at once, then with backoff, until a proof or a person (02 §5.2). Never makes a new decision.
 *
 * R1. A check is claimed in the store before it begins; another host, or a later life of this one, waits its time out.
 * R2. A re-send is the recorded bytes with the recorded key, while the key lives; durable before the first byte.
 * R3. A check that finds nothing to do is not asked for again before the next sweep.
 * R4. What a check found is judged by the config as it is afterwards: versions only grow, so that one which is still the
 *     send's was so all along.
 */
import { backoffDelayMs } from "../core/backoff.ts";
import type { Change } from "../core/change.ts";
import { follow } from "../core/facts.ts";
import type { RunId } from "../core/ids.ts";
import { isUnknown, type Mutation, proofNow } from "../core/mutation.ts";
import { type CheckAnswer, type CheckPolicy, checked, checking, resending } from "../core/settle.ts";
import type { JsonText } from "../core/workflow.ts";
import type { SendAnswer, Tool, ToolFailure } from "../ports/connector.ts";
import type { Level } from "../ports/store.ts";
import { budget } from "./failures.ts";
import { InFlight } from "./in-flight.ts";
import type { Parts } from "./parts.ts";
import { msOf, within } from "./timeout.ts";
import { canCheck, leavingCall, recordedCall, toolOf, type WithRow } from "./tools.ts";

const AT_ONCE = 8;
const SWEEP_MS = 30_000;
/** A claim outlives the check itself by this much. */
const MARGIN_MS = 5_000;
/** Of a connection that is gone: no row was ever decided under it. */
const UNKNOWN_CONFIG = -1;

/** What a check found; of a re-send also what came back. */
interface Found {
  facts: WithRow;
  answer: CheckAnswer;
  resent?: JsonText;
  /** The service's own wish. */
  retryAfterMs?: number;
}

export class Reconciler {
  /** Re-sends; a check that only asks may be cut short. */
  readonly inFlight: InFlight;
  readonly #parts: Parts;
  readonly #checking = new Map<RunId, Promise<void>>();
  readonly #barren = new Map<RunId, number>();
  #settled: () => void = () => {};

  constructor(parts: Parts) {
    this.inFlight = new InFlight(parts.clock);
    this.#parts = parts;
  }

  onSettled(settled: () => void): void {
    this.#settled = settled;
  }

  /** Starts the checks that are due; does not wait for them. */
  async checkDue(): Promise<void> {
    const { store, clock } = this.#parts;
    const nowMs = clock.nowMs();
    if (this.#checking.size >= AT_ONCE) return;
    for (const [run, untilMs] of this.#barren) if (untilMs <= nowMs) this.#barren.delete(run);
    const limit = AT_ONCE + this.#barren.size;
    for (const run of await store.checksDue(nowMs, limit)) {
      if (this.#checking.has(run) || this.#barren.has(run) || this.#checking.size >= AT_ONCE) continue;
      const done = this.#check(run)
        .catch((error: unknown) => {
          const message = `check of run ${run}: ${error instanceof Error ? error.message : String(error)}`;
          this.#parts.tell({ kind: "engine.warning", message, atMs: clock.nowMs() });
          return false;
        })
        .then((moved) => {
          this.#checking.delete(run);
          if (!moved) this.#barren.set(run, clock.nowMs() + SWEEP_MS); // (R3)
          this.#settled();
        });
      this.#checking.set(run, done);
    }
  }

  async idle(): Promise<void> {
    await Promise.all(this.#checking.values());
  }

  /** False when there was nothing to check, or somebody else was faster. */
  async #check(run: RunId): Promise<boolean> {
    const { store, policies } = this.#parts;
    const facts = await store.run(run);
    if (!facts?.mutation || !isUnknown(facts.mutation.status) || facts.run.status === "active") return false;
    const row: WithRow = { ...facts, mutation: facts.mutation };
    const tool = await toolOf(this.#parts, row, row.mutation);
    const timeoutMs = msOf(policies.effective("check", facts, labelOf(row)).timeoutMs);
    const nowMs = this.#now();
    const claim = checking(row, nowMs + timeoutMs + MARGIN_MS, nowMs);
    if (!(await this.#apply(claim, "durable"))) return false; // (R1)
    const claimed = follow(row, claim) as WithRow;
    if (!isResend(tool, row.mutation, nowMs))
      return this.#conclude(await this.#ask(claimed, tool, timeoutMs));
    const resent = this.#resend(claimed, tool, timeoutMs);
    return this.inFlight.track(
      timeoutMs,
      resent.then((found) => found !== undefined && this.#conclude(found)),
    );
  }

  async #ask(facts: WithRow, tool: Tool | ToolFailure, timeoutMs: number): Promise<Found> {
    const { world, clock } = this.#parts;
    if ("class" in tool) return { facts, answer: { says: tool.class === "auth" ? "auth" : "unsure" } };
    const call = recordedCall(facts, facts.mutation);
    if (!tool.canCheck) return { facts, answer: { says: "unsure" } };
    const asked = world.check(call).catch((): CheckAnswer => ({ says: "unsure" }));
    const awaited = await within(clock, timeoutMs, asked);
    return { facts, answer: awaited.inTime ? awaited.result : { says: "unsure" } };
  }

  /** (R2) */
  async #resend(facts: WithRow, tool: Tool, timeoutMs: number): Promise<Found | undefined> {
    const { world, clock, store } = this.#parts;
    const { mutation } = facts;
    const nowMs = this.#now();
    const call = await leavingCall(this.#parts, facts, mutation);
    const send = {
      n: mutation.sends + 1,
      atMs: nowMs,
      bytesHash: await world.fingerprint(call),
      idempotencyKey: mutation.idempotencyKey,
    };
    const leaving = resending(facts, send, tool.configVersion, nowMs);
    if (!(await this.#apply(leaving, "durable"))) return undefined;
    const after = follow(facts, leaving) as WithRow;
    const row = (await store.run(facts.run.id))?.mutation;
    if (row?.id !== mutation.id || !isUnknown(row.status)) return undefined; // The answer to the first send has come.
    // A disk that took longer than the claim lasts: by now this is somebody else's to send.
    if (this.#now() >= (mutation.nextCheckAtMs ?? Infinity))
      return { facts: after, answer: { says: "unsure" }, resent: JSON.stringify({ tooLate: true }) };
    const abort = new AbortController();
    const sent = world.send({ ...call, signal: abort.signal }).catch(() => undefined);
    const awaited = await within(clock, timeoutMs, sent);
    if (!awaited.inTime) abort.abort();
    const answer = awaited.inTime ? awaited.result : undefined;
    return {
      facts: after,
      answer: meaningOf(answer),
      resent: answer?.raw ?? JSON.stringify({ timeoutMs }),
      ...(answer && "retryAfterMs" in answer ? { retryAfterMs: answer.retryAfterMs } : {}),
    };
  }

  async #conclude(found: Found): Promise<boolean> {
    const { facts, answer, resent, retryAfterMs = 0 } = found;
    const { mutation } = facts;
    // As it is now: the check may have asked a connection that was configured anew in the meantime. (R4)
    const tool = await toolOf(this.#parts, facts, mutation);
    const nowMs = this.#now();
    const policy = this.#policy(facts, tool);
    const patient = { ...policy, delayMs: Math.max(policy.delayMs, retryAfterMs) };
    const change = checked(facts, answer, patient, this.#parts.store.newId(), nowMs);
    if (resent !== undefined)
      change.writes.push({
        do: "send.end",
        mutation: mutation.id,
        n: mutation.sends,
        endedAtMs: nowMs,
        answer: resent,
      });
    return this.#apply(change, "durable");
  }

  #policy(facts: WithRow, tool: Tool | ToolFailure): CheckPolicy {
    const { policies, clock, downtime } = this.#parts;
    const { check } = policies.effective("mutation", facts, labelOf(facts));
    const error = { class: "transient" as const, code: "not-applied", message: "", tool: labelOf(facts) };
    const { baseDelayMs, maxDelayMs, maxAttempts, maxElapsedMs } = check;
    const delay = { backoff: "exponential" as const, baseDelayMs, maxDelayMs };
    // Nobody left to ask: no further attempt would say more.
    const mute = !("class" in tool) && !canCheck(tool, facts.mutation, clock.nowMs());
    return {
      maxAttempts: mute ? 0 : maxAttempts,
      delayMs: backoffDelayMs(delay, facts.mutation.checks, clock.chance()),
      maxElapsedMs,
      proven: { ...budget(this.#parts, facts, { error, ofCall: true }), down: downtime },
      configVersion: "class" in tool ? UNKNOWN_CONFIG : tool.configVersion,
    };
  }

  async #apply(change: Change, level: Level): Promise<boolean> {
    const { store } = this.#parts;
    return (await store.apply(change, { level, fence: store.fence })).ok;
  }

  #now(): number {
    return this.#parts.clock.nowMs();
  }
}

/** While the key lives, the check is the same call once more. */
function isResend(tool: Tool | ToolFailure, mutation: Mutation, atMs: number): tool is Tool {
  return !("class" in tool) && proofNow(mutation, { configVersion: tool.configVersion, atMs }) === "key";
}

const labelOf = ({ mutation: { alias, tool } }: WithRow): string => `${alias}.${tool}`;

/** Of a re-send only success is an answer, and who is not let in cannot ask. */
function meaningOf(answer: SendAnswer | undefined): CheckAnswer {
  if (answer?.outcome === "applied") {
    const { result, resultInvalid } = answer;
    return { says: "applied", result, ...(resultInvalid ? { resultInvalid } : {}) };
  }
  return { says: answer?.class === "auth" || answer?.class === "permission" ? "auth" : "unsure" };
}
