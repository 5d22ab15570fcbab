/**
 * A script's calls to the host, admitted by phase, stored manifest and grant: the trust boundary. Whatever the sandbox
 * let through is checked here again, against what the host stored, never against what the script says.
 *
 * B1. Only reads pass, and only in the phases that may read.
 * B2. A topic is readable only by a consumer that the stored manifest subscribes to it.
 * B3. A read that fails for a passing reason is tried again in place, within the phase, as its policy allows; one that
 *     takes too long has failed for a passing reason.
 */
import { backoffDelayMs } from "../core/backoff.ts";
import type { RunFacts } from "../core/facts.ts";
import type { Manifest } from "../core/workflow.ts";
import type { ReadAnswer, ToolCall, ToolFailure } from "../ports/connector.ts";
import type { HostAnswer, HostCall } from "../ports/sandbox.ts";
import type { Parts } from "./parts.ts";
import { pendingJson, type Shipping } from "./shipping.ts";
import { msOf, pause, within } from "./timeout.ts";

export type Answer = (call: HostCall) => Promise<HostAnswer>;

export function bridge(
  parts: Parts,
  shipping: Shipping,
  facts: RunFacts,
  manifest: Manifest,
  signal: AbortSignal,
): Answer {
  const reads = facts.run.phase === "preparing" || facts.run.phase === "executing";
  return async (call) => {
    if (!reads) return refused("phase-violation", `${call.name} is not allowed in ${facts.run.phase}`); // (B1)
    if (call.name === "peek" || call.name === "getByIds")
      return events(parts, shipping, facts, manifest, call);
    const dot = call.name.indexOf(".");
    const [alias, tool] = [call.name.slice(0, dot), call.name.slice(dot + 1)];
    if (!Object.hasOwn(manifest.connections, alias))
      return refused("undeclared-alias", `the script declares no connection ${alias}`);
    return read(parts, facts, { workflow: facts.workflow.id, alias, tool, args: call.args, signal });
  };
}

async function events(
  parts: Parts,
  shipping: Shipping,
  facts: RunFacts,
  manifest: Manifest,
  call: HostCall,
): Promise<HostAnswer> {
  const { topic, limit, ids } = JSON.parse(call.args) as { topic: string; limit?: number; ids?: string[] };
  const consumer = manifest.consumers[facts.handler.name];
  if (!consumer?.subscribes.includes(topic))
    return refused("undeclared-topic", `this consumer does not subscribe to ${topic}`); // (B2)
  if (typeof limit === "number") shipping.asked(facts, topic, limit);
  const found = await parts.store.pending(facts.handler.id, topic, {
    limit: limit ?? 1_000,
    ...(ids ? { messageIds: ids } : {}),
  });
  return { ok: true, value: pendingJson(found), nowMs: parts.clock.nowMs() };
}

async function read(parts: Parts, facts: RunFacts, call: ToolCall): Promise<HostAnswer> {
  const { world, clock } = parts;
  const tool = await world.tool(call);
  if ("class" in tool) return failed(tool);
  if (tool.kind !== "read")
    return refused("phase-violation", `${call.alias}.${call.tool} changes something outside`);
  if (tool.grant === "deny")
    return failed({
      class: "permission",
      code: "not-granted",
      message: `${call.alias}.${call.tool} is not granted to this workflow`,
    });
  const policy = parts.policies.effective("read", facts, `${call.alias}.${call.tool}`);
  const timeoutMs = msOf(policy.timeoutMs);
  for (let retry = 0; ; retry++) {
    const answer = await once(parts, call, timeoutMs);
    if (answer.ok) return { ok: true, value: answer.value, nowMs: clock.nowMs() };
    const named = (list: readonly string[]) => list.includes(answer.class) || list.includes(answer.code);
    const may = named(policy.retryOn) && !named(policy.neverRetryOn) && retry < policy.maxRetries;
    if (call.signal?.aborted) return failed(answer);
    if (!may && policy.onFailure === "skip" && answer.class === "transient")
      return { ok: true, value: "null", nowMs: clock.nowMs() };
    if (!may) return failed(answer);
    const delayMs = Math.max(backoffDelayMs(policy, retry, clock.chance()), answer.retryAfterMs ?? 0);
    await pause(clock, delayMs, call.signal); // (B3)
  }
}

async function once({ world, clock }: Parts, call: ToolCall, timeoutMs: number): Promise<ReadAnswer> {
  const abort = new AbortController();
  const stop = () => abort.abort();
  call.signal?.addEventListener("abort", stop, { once: true });
  const answer = await within(clock, timeoutMs, world.read({ ...call, signal: abort.signal }));
  call.signal?.removeEventListener("abort", stop);
  if (answer.inTime) return answer.result;
  abort.abort();
  const message = `${call.alias}.${call.tool} did not answer within ${timeoutMs} ms`;
  return { ok: false, class: "transient", code: "read-timeout", message };
}

const failed = ({ class: kind, code, message }: ToolFailure): HostAnswer => ({
  ok: false,
  class: kind,
  code,
  message,
});

const refused = (code: string, message: string): HostAnswer => ({ ok: false, class: "logic", code, message });
