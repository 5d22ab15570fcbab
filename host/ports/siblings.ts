/** What one workflow may know of another in its namespace: that it is there, and an event by its messageId. */
import type { WorkflowId } from "../core/ids.ts";
import type { Json, JsonText } from "../core/workflow.ts";

export interface PassedEvent {
  workflow: string;
  topic: string;
  messageId: string;
  payload: Json;
}

/** The workflow that asks, how far the events have come that it acts on, and how far its own may go. */
export interface Origin {
  workflow: WorkflowId;
  hops: number;
  maxHops: number;
}

export type Passed =
  | { ok: true; outcome: "created" | "updated" | "unchanged" }
  | { ok: false; why: "nobody" | "refused" | "loop" | "busy"; message: string };

export interface Siblings {
  /** The workflow of this name in the namespace of the one that asks. */
  sibling(of: WorkflowId, name: string): Promise<WorkflowId | undefined>;
  /** The newest payload of an event; `null` once retention has emptied it. */
  payload(
    workflow: WorkflowId,
    topic: string,
    messageId: string,
  ): Promise<{ payload: JsonText | null } | undefined>;
}
