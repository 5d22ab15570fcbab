/**
 * One unit of one run in the sandbox: what it is given, what it may use up, and what is kept of it. Its outcome is the
 * executor's business.
 *
 * U1. What a replay needs is recorded: every answer in order, the clock and the seed (02 §10). Events that were shipped
 *     are named, not copied: their payloads live once, in their table.
 * U2. The deadline of the chain caps the unit's time, but for `next` after an outside change.
 */
import type { UnitName, Write } from "../core/change.ts";
import type { RunFacts } from "../core/facts.ts";
import { isPastBoundary } from "../core/run.ts";
import { firstUnits } from "../core/start.ts";
import type { Json, JsonText, Manifest } from "../core/workflow.ts";
import type { Limits, SandboxCall, SandboxResult, Script, UnitCall } from "../ports/sandbox.ts";
import { bridge } from "./bridge.ts";
import type { Parts, PolicyOwner } from "./parts.ts";
import type { Shipped, Shipping } from "./shipping.ts";
import { msOf } from "./timeout.ts";

const TRANSCRIPT_CHARS = 262_144;
const CHARS_PER_LINE = 2_000;

export interface Performed {
  result: SandboxResult;
  /** Transcript and logs, to be written with what becomes of the unit. */
  records: Write[];
  /** The events that travelled with it, where the script has seen no others. */
  shipped?: Shipped;
}

interface Executed {
  call: SandboxCall;
  result: SandboxResult;
  shipped?: Shipped;
  /** The same, where the script has seen no others. */
  saw?: Shipped;
}

/** Whether `prepare` and the intent of `mutate` share a round trip. Not where they fail in different ways (04). */
export function isFused({ fused, policies }: Parts, of: PolicyOwner): boolean {
  return fused && of.workflow.mode === "auto" && policies.effective("mutate", of).onFailure === "halt";
}

export const firstUnitsOf = (parts: Parts, facts: RunFacts): UnitName[] =>
  firstUnits(facts.handler, isFused(parts, facts));

export async function perform(
  parts: Parts,
  shipping: Shipping,
  facts: RunFacts,
  script: Script,
  unit: UnitCall,
  signal: AbortSignal,
): Promise<Performed> {
  const { call, result, shipped, saw } = await execute(parts, shipping, facts, script, unit, signal);
  if (result.logs.length > 0) parts.tell({ kind: "run.logged", facts, lines: result.logs });
  const records = recordsOf(parts, facts, call, result, shipped?.ids);
  return saw ? { result, records, shipped: saw } : { result, records };
}

/** The unit itself: nothing of it is told or kept. */
export async function execute(
  parts: Parts,
  shipping: Shipping,
  facts: RunFacts,
  script: Script,
  unit: UnitCall,
  signal: AbortSignal,
): Promise<Executed> {
  const { run, handler, workflow } = facts;
  const nowMs = parts.clock.nowMs();
  const call: SandboxCall = {
    script,
    unit,
    handler: handler.name,
    run: { id: String(run.id), attempt: run.attempt },
    nowMs,
    seed: `${run.rootId}:${run.attempt}:${run.redos}`,
    limits: limitsOf(parts, facts, unit, nowMs),
    signal,
  };
  const params = paramsOf(script.manifest, workflow.params);
  if (params !== undefined) call.params = params;
  if (handler.state !== undefined) call.state = handler.state;
  if (run.prepared !== undefined) call.prepared = run.prepared;
  if (unit === "next") call.outcome = outcomeJson(facts);
  const shipped =
    unit === "prepare" || unit === "prepare+mutate"
      ? await shipping.ship(parts, facts, script.manifest)
      : undefined;
  if (shipped) call.peek = shipped.peek;
  const answer = bridge(parts, shipping, facts, script.manifest, signal);
  let saw = shipped;
  const result = await parts.sandbox.run(call, (asked) => {
    if (asked.name === "peek" || asked.name === "getByIds") saw = undefined;
    return answer(asked);
  });
  return { call, result, ...(shipped ? { shipped } : {}), ...(saw ? { saw } : {}) };
}

function limitsOf({ policies }: Parts, facts: RunFacts, unit: UnitCall, nowMs: number): Partial<Limits> {
  const { timeoutMs, limits } = policies.effective(unit === "prepare+mutate" ? "prepare" : unit, facts);
  const { deadlineAtMs } = facts.run;
  const left = deadlineAtMs === undefined || isPastBoundary(facts.mutation) ? Infinity : deadlineAtMs - nowMs; // (U2)
  return {
    wallMs: Math.max(1, Math.min(msOf(timeoutMs), left)),
    cpuMs: limits.cpuMs,
    memoryMb: limits.memoryMb,
    hostCalls: limits.hostCalls,
    maxPublishes: limits.maxPublishes,
    stateBytes: limits.stateBytes,
    preparedBytes: limits.resultBytes,
    logLines: Math.ceil(limits.logBytes / CHARS_PER_LINE),
  };
}

/** As the operator set them, over the defaults that the script declares. */
function paramsOf({ params: declared }: Manifest, given: JsonText | undefined): JsonText | undefined {
  const params: Record<string, Json> = {};
  for (const [name, { default: value }] of Object.entries(declared))
    if (value !== undefined) params[name] = value;
  const set = given === undefined ? {} : (JSON.parse(given) as Record<string, Json>);
  for (const [name, value] of Object.entries(set)) if (Object.hasOwn(declared, name)) params[name] = value;
  return Object.keys(params).length > 0 ? JSON.stringify(params) : undefined;
}

/** (U1) */
function recordsOf(
  { transcriptChars = TRANSCRIPT_CHARS }: Parts,
  { run }: RunFacts,
  call: SandboxCall,
  result: SandboxResult,
  shipped: object | undefined,
): Write[] {
  const { unit, nowMs, seed, state, params } = call;
  const records: Write[] = [];
  if (result.logs.length > 0)
    records.push({ do: "logs", run: run.id, unit, lines: JSON.stringify(result.logs) });
  if (transcriptChars === 0) return records;
  const kept = { nowMs, seed, ...(params === undefined ? {} : { params }), ...(shipped ? { shipped } : {}) };
  const whole = JSON.stringify({
    ...kept,
    ...(state === undefined ? {} : { state }),
    answers: result.transcript,
  });
  const body = whole.length <= transcriptChars ? whole : JSON.stringify({ ...kept, truncated: true });
  records.push({ do: "transcript", run: run.id, unit, body });
  return records;
}

function outcomeJson({ run, mutation }: RunFacts): JsonText {
  if (run.outcome !== "applied")
    return run.outcome === "skipped" ? '{"status":"skipped"}' : '{"status":"none"}';
  const invalid = mutation?.resultInvalid ? ',"resultInvalid":true' : "";
  return `{"status":"applied","result":${run.result ?? "null"}${invalid}}`;
}
