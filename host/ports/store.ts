/**
 * Where everything acknowledged lives, as the engine sees it: one write verb for run state and the few reads it decides
 * on. Lists for people are `records.ts`. The contract suite is `test/contract/store.ts`; nothing here assumes that one
 * host is alone.
 */
import type { Change, Fence, VersionRow } from "../core/change.ts";
import type { RunFacts, WorkflowFacts } from "../core/facts.ts";
import type { DeliveryId, EpochMs, HandlerId, InputId, NamespaceId, RunId, WorkflowId } from "../core/ids.ts";
import type { Published } from "../core/journal.ts";
import type { DeliveryFacts } from "../core/operate.ts";
import type { JsonText } from "../core/workflow.ts";

/**
 * How far a Change must have come before `apply` resolves: visible to us; safe from `kill -9`; safe from a power cut.
 */
export type Level = "applied" | "committed" | "durable";

export interface Applied {
  ok: true;
  /** The run's revision after the Change, for the next step of the same loop. */
  runRevision?: number;
  workflowRevision: number;
  seq: number;
  published: Published[];
}

/** The facts that the Change was decided on no longer hold. Nothing of it was written. */
export interface Refused {
  ok: false;
  because: "stale-workflow" | "stale-run" | "stale-row" | "stale-deliveries" | "not-idle" | "stale-fence";
  /** The deliveries that are no longer as expected. */
  deliveries?: DeliveryId[];
}

export interface DueWorkflow {
  workflow: WorkflowId;
  namespace: NamespaceId;
  dueAtMs: EpochMs;
}

/** An event as a consumer's `prepare` may see it. */
export interface PendingEvent {
  delivery: DeliveryId;
  messageId: string;
  payload: JsonText;
  publishedAtMs: EpochMs;
}

export interface Store extends AsyncDisposable {
  /** This host's incarnation: what its Changes are signed with. */
  readonly fence: Fence;

  /**
   * Writes one Change, whole or not at all, and resolves at `level`. Changes of one workflow take effect in the order
   * of the calls. Rejects only when the store is broken; from then on it rejects everything.
   */
  apply(change: Change, options: { level: Level; fence: Fence }): Promise<Applied | Refused>;

  /** A new id, never handed out before, by any host. */
  newId(): number;

  /** Creates the workflow if it is not there. */
  workflowId(namespace: string, name: string, atMs: EpochMs): Promise<WorkflowId>;

  /** Workflows with something to do by `nowMs`, longest waiting first. */
  due(nowMs: EpochMs, limit: number): Promise<DueWorkflow[]>;

  /** When the next workflow or check falls due, if any. */
  nextDueAt(): Promise<EpochMs | undefined>;

  /** One workflow in one snapshot. */
  workflow(id: WorkflowId): Promise<WorkflowFacts | undefined>;

  /** One run with its workflow, ledger row and deliveries, in one snapshot. */
  run(id: RunId): Promise<RunFacts | undefined>;

  delivery(id: DeliveryId): Promise<DeliveryFacts | undefined>;

  /** Pending events of a consumer's topic, oldest first; with `messageIds` only those. */
  pending(
    handler: HandlerId,
    topic: string,
    options: { limit: number; messageIds?: readonly string[] },
  ): Promise<PendingEvent[]>;

  /** What reserved deliveries hand on to the events that follow from them. */
  causes(deliveries: readonly DeliveryId[]): Promise<{ hops: number; inputs: InputId[] }>;

  version(workflow: WorkflowId, number: number): Promise<VersionRow | undefined>;

  /** The number of the version with this content, and of the newest one. */
  versionNumbers(workflow: WorkflowId, hash: string): Promise<{ same?: number; newest: number }>;

  /** Runs that are active under an incarnation that is gone. */
  interrupted(limit: number): Promise<RunId[]>;

  /** Runs whose unknown outcome is due for a check. */
  checksDue(nowMs: EpochMs, limit: number): Promise<RunId[]>;

  /** Everything applied so far is on disk. */
  flush(): Promise<void>;
}
