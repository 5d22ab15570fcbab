/**
 * Events that come from outside a run: the API, a webhook, another workflow. What publishing does to what is already
 * there is `event.ts`; what a run publishes is part of its commit.
 *
 * P1. Acknowledged means stored: one event, its deliveries and its input in one Change.
 * P2. The subscribers are those of the active version; a deploy in between is noticed, and the Change made again.
 */
import type { Change, Write } from "./change.ts";
import type { WorkflowFacts } from "./facts.ts";
import type { EpochMs, HandlerId, InputId } from "./ids.ts";
import type { JsonText, Manifest } from "./workflow.ts";

export interface Incoming {
  topic: string;
  messageId: string;
  payload: JsonText;
  input?: { id: InputId; source: string; type: string; key: string; title: string };
  /** Carried on from another workflow; 0 from everywhere else (1.13). */
  hops?: number;
}

/** Consumers of the active version that subscribe to a topic, in the order of their declaration. */
export function subscribersOf(
  { handlers }: Pick<WorkflowFacts, "handlers">,
  { consumers }: Pick<Manifest, "consumers">,
  topic: string,
): HandlerId[] {
  return handlers
    .filter(
      (one) =>
        one.kind === "consumer" && !one.orphaned && consumers[one.name]?.subscribes.includes(topic) === true,
    )
    .map((one) => one.id);
}

export function publish(
  workflow: WorkflowFacts,
  manifest: Pick<Manifest, "consumers">,
  incoming: readonly Incoming[],
  atMs: EpochMs,
): Change {
  const writes: Write[] = [];
  for (const { topic, messageId, payload, input, hops = 0 } of incoming) {
    if (input) writes.push({ do: "input", ...input });
    const publication = { topic, messageId, payload, inputs: input ? [input.id] : [], hops };
    writes.push({ do: "publish", publication, subscribers: subscribersOf(workflow, manifest, topic) });
  }
  return {
    verb: "publish",
    workflow: workflow.id,
    atMs,
    expect: { generation: workflow.generation }, // (P2)
    writes,
  };
}
