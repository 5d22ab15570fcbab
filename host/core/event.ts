/**
 * Events, deliveries and inputs (02 §8): what publishing does to what is already there. Decides from the rows it is
 * shown; the store finds them.
 *
 * E1. A messageId exists once per workflow and topic; publishing it again never revives what was consumed or skipped.
 * E2. A changed payload is a new revision for pending deliveries and triggers them; a reserved one keeps what it pinned.
 * E3. Events that cause events count their hops, so that a circle ends (1.13).
 */
import type { DeliveryId, EpochMs, EventId, HandlerId, InputId, RunId } from "./ids.ts";
import type { Kind, RunError } from "./run.ts";
import type { JsonText } from "./workflow.ts";

export const DELIVERY_STATUSES = ["pending", "reserved", "consumed", "skipped", "dead"] as const;
export type DeliveryStatus = (typeof DELIVERY_STATUSES)[number];

export interface Delivery {
  id: DeliveryId;
  event: EventId;
  handler: HandlerId;
  status: DeliveryStatus;
  reservedBy?: RunId;
  attempts: number;
  /** Payload revision that the reserving run saw. */
  revision: number;
  changeSeq: number;
}

/** What an author or a client hands over. */
export interface Publication {
  topic: string;
  messageId: string;
  payload: JsonText;
  /** Inputs that caused it, besides those inherited from the reserved events. */
  inputs: InputId[];
  hops: number;
}

export interface ExistingEvent {
  id: EventId;
  revision: number;
  payloadHash: string;
  lastSeenAtMs: EpochMs;
  deliveries: Pick<Delivery, "id" | "handler" | "status">[];
}

export type PublishDecision =
  | { outcome: "created" }
  /** `seen` says whether the dedup horizon is due to be written again (at most daily). */
  | { outcome: "unchanged"; seen: boolean }
  | {
      outcome: "updated";
      /** Pending: they see the new payload and trigger. */
      renewed: DeliveryId[];
      /** Reserved: they keep the old one; their run, if it commits, marks them late. */
      late: DeliveryId[];
    };

const DAY_MS = 86_400_000;

export function decidePublish(
  existing: ExistingEvent | undefined,
  payloadHash: string,
  atMs: EpochMs,
): PublishDecision {
  if (!existing) return { outcome: "created" }; // (E1)
  if (existing.payloadHash === payloadHash)
    return { outcome: "unchanged", seen: atMs - existing.lastSeenAtMs >= DAY_MS };
  const ids = (status: DeliveryStatus) =>
    existing.deliveries.filter((one) => one.status === status).map((one) => one.id);
  return { outcome: "updated", renewed: ids("pending"), late: ids("reserved") }; // (E2)
}

/** What the events of a run follow from, as hops: those it reserved and, if none, those pending at its start. */
export interface Followed {
  reserved: readonly number[];
  pendingAtStart: readonly number[];
}

/** Hops of what a run publishes; producers, the API and webhooks begin at 0. (E3) */
export function hopsOf(kind: Kind, { reserved, pendingAtStart }: Followed): number {
  if (kind === "producer") return 0;
  return 1 + Math.max(0, ...(reserved.length > 0 ? reserved : pendingAtStart));
}

/** Why a run may not publish what it has asked to, or `undefined`. */
export function publishProblem(
  count: number,
  hops: number,
  limits: { maxHops: number; maxPublishes: number },
): RunError | undefined {
  if (count > limits.maxPublishes)
    return {
      class: "logic",
      code: "publish-limit",
      message: `the run published ${count} events; ${limits.maxPublishes} are allowed`,
    };
  if (count === 0 || hops <= limits.maxHops) return undefined;
  return {
    class: "logic",
    code: "loop",
    message: `these events follow from a chain of ${hops} events, one from the other; ${limits.maxHops} are allowed`,
  };
}
