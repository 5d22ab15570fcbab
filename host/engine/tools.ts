/** The tool behind a recorded decision: what it is now, and whether it can tell what became of it. */
import type { RunFacts } from "../core/facts.ts";
import { isUnknown, type Mutation, proofNow } from "../core/mutation.ts";
import type { RecordedCall, Tool, ToolFailure } from "../ports/connector.ts";
import type { Parts } from "./parts.ts";

export type WithRow = RunFacts & { mutation: Mutation };

/** Behind its alias; once it may have left, behind the connection that it left through (5.2). */
export function toolOf({ world }: Parts, facts: RunFacts, mutation: Mutation): Promise<Tool | ToolFailure> {
  const { alias, tool, args, connection, status } = mutation;
  const asked = { workflow: facts.workflow.id, alias, tool, args };
  return world.tool(isUnknown(status) ? { ...asked, connection } : asked);
}

/** By a question, or by sending the same once more where the key still protects it (5.2). */
export function canCheck(tool: Tool | ToolFailure, mutation: Mutation, nowMs: number): boolean {
  if ("class" in tool) return false;
  return tool.canCheck || proofNow(mutation, { configVersion: tool.configVersion, atMs: nowMs }) === "key";
}

export function recordedCall(facts: RunFacts, mutation: Mutation): RecordedCall {
  const { alias, tool, args, idempotencyKey, connection, configVersion, before } = mutation;
  const call = { workflow: facts.workflow.id, alias, tool, args, idempotencyKey, connection, configVersion };
  return before === undefined ? call : { ...call, before };
}

/** As it leaves: it says how far the events have come that it acts on, so that a circle over workflows ends (1.13). */
export async function leavingCall(
  { store, policies }: Parts,
  facts: RunFacts,
  mutation: Mutation,
): Promise<RecordedCall> {
  const { hops } = await store.causes(facts.reserved);
  const { maxHops } = policies.effective("next", facts).limits;
  return { ...recordedCall(facts, mutation), hops, maxHops };
}
