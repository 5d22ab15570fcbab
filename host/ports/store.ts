/**
 * Where everything acknowledged lives, as the engine sees it: one write verb for run state and the few reads it decides
 * on. Lists for people are `records.ts`. The contract suite is `test/contract/store.ts`; nothing here assumes that one
 * host is alone.
 */
import type { Change, Fence, VersionRow } from "../core/change.ts";
import type { DeliveryStatus } from "../core/event.ts";
import type { RunFacts, WorkflowFacts } from "../core/facts.ts";
import type { StatedIntent } from "../core/intent.ts";
import type { DeliveryId, EpochMs, HandlerId, InputId, NamespaceId, RunId, WorkflowId } from "../core/ids.ts";
import type { Published } from "../core/journal.ts";
import type { Mutation } from "../core/mutation.ts";
import type { DeliveryFacts } from "../core/operate.ts";
import type { Run } from "../core/run.ts";
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
  /** Only where it was asked for: this one is not pending, or not any more. */
  settled?: { status: Exclude<DeliveryStatus, "pending">; atMs?: EpochMs };
}

/** Who has moved a run, what by, and when: for whoever was a moment too late. */
export interface LastWord {
  /** A person, or `host`. */
  by: string;
  action: string;
  atMs: EpochMs;
}

/** What an earlier attempt of a chain decided to change outside. */
export interface Attempted extends StatedIntent {
  mutation: Mutation;
  run: Run;
  /** A person allowed the call of that attempt. */
  approved: boolean;
}

export interface Told {
  /** The outside changes that earlier attempts of its chain decided on, oldest first; the last hundred attempts. */
  attempted: Attempted[];
  /** A person has allowed what it wants to change, for itself or beforehand. */
  approved: boolean;
  /** The newest of what people decided about it, what settled its ledger row, and what ended it. */
  last?: LastWord;
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

  /** Every delivery of the events that an input caused. */
  caused(input: InputId): Promise<DeliveryFacts[]>;

  /** What was decided about a run before, by earlier attempts and by people. */
  told(run: RunId): Promise<Told>;

  /**
   * Pending events of a consumer's topic, oldest first; with `messageIds` only those, and with `settled` the newest
   * delivery of each of them, whatever has become of it.
   */
  pending(
    handler: HandlerId,
    topic: string,
    options: { limit: number; messageIds?: readonly string[]; settled?: boolean },
  ): Promise<PendingEvent[]>;

  /**
   * What reserved deliveries hand on to the events that follow from them. With none, `hops` is the most among what was
   * pending for `otherwise` up to that sequence.
   */
  causes(
    deliveries: readonly DeliveryId[],
    otherwise?: { handler: HandlerId; seq: number },
  ): Promise<{ hops: number; inputs: InputId[] }>;

  /** A version by its number, the newest with this content, or the newest of all. */
  version(workflow: WorkflowId, which: number | "newest" | { hash: string }): Promise<VersionRow | undefined>;

  /** Runs that are active under an incarnation that is gone. */
  interrupted(limit: number): Promise<RunId[]>;

  /** Runs whose unknown outcome is due for a check. */
  checksDue(nowMs: EpochMs, limit: number): Promise<RunId[]>;

  /** Everything applied so far is on disk. */
  flush(): Promise<void>;
}
