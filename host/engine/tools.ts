/** The tool behind a recorded decision: what it is now, and whether it can tell what became of it. */
import type { RunFacts } from "../core/facts.ts";
import { type Mutation, proofNow } from "../core/mutation.ts";
import type { RecordedCall, Tool, ToolFailure } from "../ports/connector.ts";
import type { Parts } from "./parts.ts";

export type WithRow = RunFacts & { mutation: Mutation };

export function toolOf({ world }: Parts, facts: RunFacts, mutation: Mutation): Promise<Tool | ToolFailure> {
  return world.tool({ workflow: facts.workflow.id, alias: mutation.alias, tool: mutation.tool });
}

/** By a question, or by sending the same once more where the key still protects it (5.2). */
export function canCheck(tool: Tool | ToolFailure, mutation: Mutation, nowMs: number): boolean {
  if ("class" in tool) return false;
  return tool.canCheck || proofNow(mutation, { configVersion: tool.configVersion, atMs: nowMs }) === "key";
}

export function recordedCall(facts: RunFacts, mutation: Mutation): RecordedCall {
  const { alias, tool, args, idempotencyKey, connection, configVersion } = mutation;
  return { workflow: facts.workflow.id, alias, tool, args, idempotencyKey, connection, configVersion };
}
