/**
 * One call of one tool: input checked, run, whatever comes of it put into the words of the port. Knows no store, no
 * grants and no schedule, so that a connector's own tests can use it as the host does.
 *
 * I1. Never rejects.
 * I2. Of a mutation, only a typed error that proves it is `failed`; every other throw is `unknown` (06).
 * I3. A definite success whose answer does not fit is still a success, marked `resultInvalid` (02 §5.1).
 */
import type { z } from "zod";
import type { Json, JsonText } from "../core/workflow.ts";
import type { CheckAnswer, ReadAnswer, SendAnswer, ToolFailure } from "../ports/connector.ts";
import {
  type AnyTool,
  type CheckContext,
  type MutationTool,
  type OpenConnection,
  type ReadContext,
  type ReadTool,
  type SendContext,
  ToolError,
} from "./define.ts";

// oxlint-disable-next-line typescript/no-explicit-any -- whatever connector it belongs to
type AnyRead = ReadTool<any, any, any, any>;
// oxlint-disable-next-line typescript/no-explicit-any -- whatever connector it belongs to
type AnyMutation = MutationTool<any, any, any, any>;

/** The input as the tool will see it, or why it will not. */
export function inputOf(
  // oxlint-disable-next-line typescript/no-explicit-any -- whatever connector it belongs to
  tool: AnyTool<any, any>,
  args: JsonText,
  label: string,
): { ok: true; input: unknown } | ({ ok: false } & ToolFailure) {
  const given: unknown = JSON.parse(args);
  const read = tool.input.safeParse(given);
  if (read.success) return { ok: true, input: read.data };
  const message = `${label}: ${inWords(read.error)}`;
  return { ok: false, class: "logic", code: "tool-input-invalid", message };
}

export async function invokeRead(
  tool: AnyRead,
  call: { connection: OpenConnection; args: JsonText; label: string; context: ReadContext },
): Promise<ReadAnswer> {
  const { connection, args, label, context } = call;
  const given = inputOf(tool, args, label);
  if (!given.ok) return given;
  try {
    const answer = tool.output.safeParse(await tool.run(connection, given.input, context));
    if (answer.success) return { ok: true, value: textOf(answer.data) };
    const message = `${label} answered something else than it promises: ${inWords(answer.error)}`;
    return { ok: false, class: "internal", code: "connector-threw", message };
  } catch (error) {
    return { ok: false, ...failureOf(error, label) };
  }
}

export async function invokeMutation(
  tool: AnyMutation,
  call: { connection: OpenConnection; args: JsonText; label: string; context: SendContext },
): Promise<SendAnswer> {
  const { connection, args, label, context } = call;
  const given = inputOf(tool, args, label);
  if (!given.ok) {
    const { class: kind, code, message } = given;
    return { outcome: "failed", class: kind, code, message, raw: textOf({ refused: message }) };
  }
  try {
    return success(tool, await tool.run(connection, given.input, context));
  } catch (error) {
    const why = failureOf(error, label);
    const raw = textOf(rawOf(error, why));
    const proven = error instanceof ToolError && error.proves && error.class !== "internal"; // (I2)
    return { outcome: proven ? "failed" : "unknown", raw, ...why };
  }
}

export async function invokeCheck(
  tool: AnyMutation,
  call: { connection: OpenConnection; args: JsonText; label: string; context: CheckContext },
): Promise<CheckAnswer> {
  const { connection, args, label, context } = call;
  const given = inputOf(tool, args, label);
  if (!given.ok || !tool.reconcile) return { says: "unsure" };
  try {
    const verdict = await tool.reconcile(connection, given.input, context);
    if (verdict.says !== "applied") return { says: verdict.says };
    if (verdict.result === undefined) return { says: "applied" };
    const found = success(tool, verdict.result);
    return { says: "applied", result: found.result, ...(found.resultInvalid ? { resultInvalid: true } : {}) };
  } catch (error) {
    const refused = error instanceof ToolError && (error.class === "auth" || error.class === "permission");
    return { says: refused ? "auth" : "unsure" };
  }
}

/** (I3) */
function success(tool: AnyMutation, answer: unknown): Extract<SendAnswer, { outcome: "applied" }> {
  const read = tool.output.safeParse(answer);
  const result = textOf(read.success ? read.data : answer);
  return { outcome: "applied", result, raw: result, ...(read.success ? {} : { resultInvalid: true }) };
}

function failureOf(error: unknown, label: string): ToolFailure {
  if (error instanceof ToolError) {
    const { class: kind, code, message, retryAfterMs } = error;
    const said = `${label}: ${message}`;
    return { class: kind, code, message: said, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) };
  }
  const message = `${label}: ${error instanceof Error ? error.message : String(error)}`;
  return { class: "internal", code: "connector-threw", message };
}

function rawOf(error: unknown, { code, message }: ToolFailure): Json {
  const evidence = error instanceof ToolError ? error.evidence : undefined;
  return evidence === undefined ? { code, message } : { code, message, evidence };
}

/** Values that JSON has no word for become `null`. */
const textOf = (value: unknown): JsonText => JSON.stringify(value) ?? "null";

/** "path: expected string" for each problem, most three. */
function inWords(error: z.ZodError): string {
  const issues = error.issues.slice(0, 3).map(({ path, message }) => {
    const where = path.join(".");
    return where === "" ? message : `${where}: ${message}`;
  });
  return issues.join("; ");
}
