/** Why a call does not leave, before anything is sent: the tool is not there, not granted, not the same, or it is too late. */
import type { RunFacts } from "../core/facts.ts";
import type { Mutation } from "../core/mutation.ts";
import type { RunError } from "../core/run.ts";
import type { Tool, ToolFailure } from "../ports/connector.ts";

export const labelOf = ({ alias, tool }: Pick<Mutation, "alias" | "tool">): string => `${alias}.${tool}`;

export function refusalOf(
  tool: Tool | ToolFailure,
  of: Pick<Mutation, "alias" | "tool">,
): RunError | undefined {
  const label = labelOf(of);
  if ("class" in tool) return errorOf(tool, label);
  if (tool.kind !== "mutation")
    return { class: "logic", code: "phase-violation", message: `${label} only reads`, tool: label };
  if (tool.grant !== "deny") return undefined;
  const message = `${label} is not granted to this workflow`;
  return { class: "permission", code: "not-granted", message, tool: label };
}

/** What was recorded names a connection as it was; as another one it would be another call. */
export function rebound({ connection, configVersion }: Tool, mutation: Mutation): RunError | undefined {
  if (connection === mutation.connection && configVersion === mutation.configVersion) return undefined;
  const tool = labelOf(mutation);
  const message = `the connection behind ${mutation.alias} has changed since the call was decided`;
  return { class: "transient", code: "connection-changed", message, tool };
}

export function overdue({ run }: RunFacts, nowMs: number): RunError | undefined {
  if (run.deadlineAtMs === undefined || run.deadlineAtMs > nowMs) return undefined;
  return {
    class: "transient",
    code: "deadline",
    message: "the deadline of this work passed before the call",
  };
}

export const errorOf = ({ class: kind, code, message }: ToolFailure, tool: string): RunError => ({
  class: kind,
  code,
  message,
  tool,
});
