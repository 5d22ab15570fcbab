/**
 * What a consumer would do now: `prepare` and the intent of `mutate` on the events that are really pending. Nothing is
 * recorded, reserved or sent; reads ask the outside as a run would.
 *
 * V1. No run exists for it: no row, no journal, no log, no telemetry.
 */
import type { HandlerFacts, RunFacts, WorkflowFacts } from "../core/facts.ts";
import type { WorkflowId } from "../core/ids.ts";
import type { Run } from "../core/run.ts";
import type { Intent, Prepared, SandboxError, SandboxResult } from "../ports/sandbox.ts";
import type { Parts } from "./parts.ts";
import { Shipping } from "./shipping.ts";
import { execute } from "./unit.ts";

export interface Preview {
  version: number;
  prepared?: Prepared;
  intent?: Intent & { description?: string };
  error?: SandboxError;
  logs: SandboxResult["logs"];
}

const NOBODY = 0;

export async function preview(parts: Parts, id: WorkflowId, consumer: string): Promise<Preview | undefined> {
  const workflow = await parts.store.workflow(id);
  const handler = workflow?.handlers.find(
    (one) => one.kind === "consumer" && one.name === consumer && !one.orphaned,
  );
  if (!workflow || !handler || workflow.activeVersion === 0) return undefined;
  const { activeVersion: version } = workflow;
  const script = await parts.scripts.script(id, version);
  const facts = imagined(workflow, handler, parts.clock.nowMs());
  const unit = handler.hasMutate ? "prepare+mutate" : "prepare";
  const { result } = await execute(parts, new Shipping(), facts, script, unit, new AbortController().signal);
  const { logs } = result;
  if (result.status !== "done") return { version, error: result.error, logs };
  const { prepared, intent } = result;
  return {
    version,
    logs,
    ...(prepared ? { prepared } : {}),
    ...(intent ? { intent: { ...intent, ...(await described(parts, id, intent)) } } : {}),
  };
}

async function described(
  { world }: Parts,
  workflow: WorkflowId,
  intent: Intent,
): Promise<{ description?: string }> {
  const tool = await world.tool({ workflow, ...intent });
  return "class" in tool ? {} : { description: await world.describe({ workflow, ...intent }) };
}

/** (V1) */
function imagined(workflow: WorkflowFacts, handler: HandlerFacts, nowMs: number): RunFacts {
  const run: Run = {
    id: NOBODY,
    workflow: workflow.id,
    version: workflow.activeVersion,
    handler: handler.id,
    kind: "consumer",
    trigger: { reason: "woken", atMs: nowMs },
    rootId: NOBODY,
    attempt: 1,
    phase: "preparing",
    status: "active",
    open: false,
    retries: 0,
    crashes: 0,
    redos: 0,
    startSeq: workflow.seq,
    chainStartedAtMs: nowMs,
    createdAtMs: nowMs,
    host: NOBODY,
    revision: 0,
  };
  return { workflow, handler, run, reserved: [], released: [] };
}
