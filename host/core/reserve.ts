/**
 * What `prepare` asked to reserve → reserve it, do `prepare` once more, or fail it (02 §2.3). Decides from the rows it is
 * shown; a person may still be faster, then the store refuses the Change and this is asked again.
 *
 * G1. One bad id fails the whole: unknown, consumed, of another topic, consumer or workflow. Nothing is reserved.
 * G2. What was pending at the run's start and was changed since is nobody's fault: a free redo, MAX_REDOS times.
 */
import type { Delivery } from "./event.ts";
import type { DeliveryId, EpochMs, HandlerId } from "./ids.ts";
import type { Run, RunError } from "./run.ts";

const MAX_REDOS = 3;

/** One id as the script named it, and the delivery it stands for, if there is one. */
export interface Asked {
  topic: string;
  messageId: string;
  delivery?: Pick<Delivery, "id" | "handler" | "status"> & { settledAtMs?: EpochMs };
}

export type Reservation =
  | { reserve: DeliveryId[] }
  | { redo: string[] }
  /** The script's fault, or a person's once too often. */
  | { fail: RunError };

export function reservation(
  run: Pick<Run, "redos" | "createdAtMs">,
  consumer: { id: HandlerId; subscribes: readonly string[] },
  asked: readonly Asked[],
): Reservation {
  const bad = asked.find((one) => !isOwn(one, consumer) || (!isPending(one) && !changedSince(one, run)));
  if (bad) return { fail: badReservation(bad, consumer) }; // (G1)
  const gone = asked.filter((one) => !isPending(one));
  if (gone.length === 0) return { reserve: [...new Set(asked.flatMap((one) => one.delivery?.id ?? []))] };
  if (run.redos < MAX_REDOS) return { redo: gone.map(nameOf) }; // (G2)
  const message = `${gone.map(nameOf).join(", ")} changed while prepare ran, as before`;
  return { fail: { class: "transient", code: "reservations-changed", message } };
}

const isPending = ({ delivery }: Asked): boolean => delivery?.status === "pending";

function isOwn(
  { topic, delivery }: Asked,
  consumer: { id: HandlerId; subscribes: readonly string[] },
): boolean {
  return delivery?.handler === consumer.id && consumer.subscribes.includes(topic);
}

/** While the run is open only a person can have settled it. */
function changedSince({ delivery }: Asked, run: Pick<Run, "createdAtMs">): boolean {
  return (
    (delivery?.status === "skipped" || delivery?.status === "dead") &&
    delivery.settledAtMs !== undefined &&
    delivery.settledAtMs >= run.createdAtMs
  );
}

function badReservation(one: Asked, { subscribes }: { subscribes: readonly string[] }): RunError {
  const why = !subscribes.includes(one.topic)
    ? `is of a topic this consumer does not subscribe to`
    : one.delivery && one.delivery.status !== "pending"
      ? `is ${one.delivery.status}`
      : "is not pending for this consumer";
  return { class: "logic", code: "bad-reservation", message: `${nameOf(one)} ${why}` };
}

const nameOf = ({ topic, messageId }: Asked): string => `${topic} ${JSON.stringify(messageId)}`;
