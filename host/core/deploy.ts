/**
 * A version becomes the active one → handlers, schedules and the open chain follow it in one transaction (02 §1.10).
 * Activating an older version, and rolling back, are the same.
 *
 * D1. Identity of a handler = kind + name: a kept name keeps state, deliveries and `wakeAt`.
 * D2. Every producer is due now, every consumer triggered once.
 * D3. A dropped consumer's pending deliveries are orphaned, never deleted.
 * D4. A chain that failed because of the script is made ready; one that waits for a person keeps waiting.
 * D5. A run that goes on beside a deploy is not touched by it.
 */
import type { Change, Expect, VersionRow, Write } from "./change.ts";
import { type HandlerFacts, type RunFacts, stateOf, type WorkflowFacts } from "./facts.ts";
import type { EpochMs, HandlerId, InboxId } from "./ids.ts";
import type { Kind, Run } from "./run.ts";
import { reanchor } from "./slots.ts";
import type { Manifest } from "./workflow.ts";

export interface Deployment {
  /** Absent when an existing version is activated. */
  version?: VersionRow;
  number: number;
  manifest: Manifest;
  by: string;
  note?: string;
  orphans: "keep" | "skip" | { moveTo: string };
  /** Bindings, grants, params and labels that come with it. */
  access?: readonly Write[];
  /** A person has agreed that it may do more than the one before. */
  consented?: boolean;
  /** Fresh ids for handlers that are new, and for an inbox item. */
  newId: () => number;
}

export function deploy(
  workflow: WorkflowFacts,
  open: RunFacts | undefined,
  deployment: Deployment,
  atMs: EpochMs,
): Change {
  const { manifest, number, version } = deployment;
  const declared = declarations(manifest);
  const writes: Write[] = [];
  if (version) writes.push({ do: "version.create", version });
  const ids = new Map<string, HandlerId>();
  declared.forEach(({ kind, name }, order) => {
    const known = workflow.handlers.find((one) => one.kind === kind && one.name === name);
    const id = known?.id ?? deployment.newId();
    ids.set(`${kind}/${name}`, id);
    const set = { ...firstTrigger(kind, name, manifest, known, atMs), orphaned: false };
    writes.push(
      known // (D1)
        ? { do: "handler.set", id, set: { ...set, order } }
        : { do: "handler.create", id, kind, name, order, set },
    );
  });
  const dropped = workflow.handlers.filter((one) => !one.orphaned && !ids.has(`${one.kind}/${one.name}`));
  for (const handler of dropped) writes.push(...drop(handler, deployment, ids));
  const freed = open !== undefined && freedByDeploy(open.run);
  if (freed) writes.push(...releaseChain(open, deployment.by, atMs));
  writes.push(
    ...(deployment.access ?? []),
    { do: "inbox.close", kind: "capability" },
    {
      do: "workflow.set",
      set: { activeVersion: number, deployed: true, ...(workflow.approvals ? { approvals: [] } : {}) },
    },
    {
      do: "audit",
      actor: deployment.by,
      action: deployment.consented ? "consent" : version ? "deploy" : "activate",
      detail: JSON.stringify({
        version: number,
        ...(deployment.access?.length ? { access: deployment.access } : {}),
        dropped: dropped.map((one) => one.name),
        ...(workflow.approvals ? { approvalsEnded: workflow.approvals.length } : {}),
      }),
      ...(deployment.note === undefined ? {} : { note: deployment.note }),
    },
  );
  return {
    verb: "deploy",
    workflow: workflow.id,
    atMs,
    expect: {
      workflowRevision: workflow.revision,
      ...(open ? besideOf(open.run, freed) : {}),
    },
    writes,
  };
}

const declarations = ({ producers, consumers }: Manifest): { kind: Kind; name: string }[] => [
  ...Object.keys(producers).map((name) => ({ kind: "producer" as const, name })),
  ...Object.keys(consumers).map((name) => ({ kind: "consumer" as const, name })),
];

/** (D2) */
function firstTrigger(
  kind: Kind,
  name: string,
  manifest: Manifest,
  known: HandlerFacts | undefined,
  atMs: EpochMs,
): Extract<Write, { do: "handler.set" }>["set"] {
  if (kind === "consumer") return { triggered: { reason: "deploy", atMs } };
  const schedule = manifest.producers[name]?.schedule;
  if (!schedule) throw new Error(`the manifest has no producer ${name}`);
  const changed = JSON.stringify(known?.schedule) !== JSON.stringify(schedule);
  return { queued: { reason: "deploy", atMs }, ...(changed ? reanchor(schedule, atMs) : {}) };
}

function drop(handler: HandlerFacts, { orphans, newId }: Deployment, ids: Map<string, HandlerId>): Write[] {
  const gone: Write = {
    do: "handler.set",
    id: handler.id,
    set: { orphaned: true, queued: null, triggered: null, wakeAtMs: null, nextRunAtMs: null },
  };
  if (handler.kind === "producer" || handler.oldestPendingAtMs === undefined) return [gone];
  if (orphans === "skip") return [{ do: "orphans.skip", handler: handler.id }, gone];
  if (orphans === "keep") {
    const id: InboxId = newId();
    return [gone, { do: "inbox.open", id, kind: "orphaned", handler: handler.id }]; // (D3)
  }
  const to = ids.get(`consumer/${orphans.moveTo}`);
  if (to === undefined) throw new Error(`no consumer ${orphans.moveTo} in this version`);
  return [{ do: "orphans.move", from: handler.id, to }, gone];
}

/** A run that is left alone must not notice: only that it has not become one that a deploy frees. (D5) */
function besideOf({ id, revision, status }: Run, freed: boolean): Expect {
  return freed ? { run: { id, revision } } : { runIs: { id, status } };
}

/** Why this deployment cannot be made, or `undefined`: an operator's error, asked before `deploy`. */
export function deployProblem({
  manifest,
  orphans,
}: Pick<Deployment, "manifest" | "orphans">): string | undefined {
  if (typeof orphans === "string" || Object.hasOwn(manifest.consumers, orphans.moveTo)) return undefined;
  return `no consumer ${orphans.moveTo} in this version`;
}

function releaseChain({ run }: RunFacts, by: string, atMs: EpochMs): Write[] {
  const resolution = { by, action: "deploy", atMs };
  return [
    { do: "run.set", id: run.id, from: stateOf(run), set: { readyAtMs: atMs, resolution } },
    { do: "inbox.close", run: run.id },
  ]; // (D4)
}

/** Whether a deploy makes a waiting chain ready at once (1.10). */
export function freedByDeploy({ status, pauseReason }: Pick<Run, "status" | "pauseReason">): boolean {
  switch (status) {
    case "paused:transient":
    case "failed:logic":
    case "crashed":
      return true;
    case "paused:approval":
      return pauseReason !== "approval" && pauseReason !== "step";
    case "active":
    case "paused:reconciliation":
    case "failed:internal":
    case "committed":
      return false;
  }
}
