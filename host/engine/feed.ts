/**
 * An event that comes from outside the scripts: a client, a person, a test. Acknowledged only when it is on disk (02 §8).
 */
import { type Operator as Person, operation } from "../core/operate.ts";
import type { WorkflowId } from "../core/ids.ts";
import type { Published } from "../core/journal.ts";
import type { JsonText } from "../core/workflow.ts";
import type { Parts } from "./parts.ts";

export interface FedEvent {
  topic: string;
  messageId: string;
  payload: JsonText;
}

export type Fed =
  | { ok: true; event: Published }
  | { ok: false; code: "not_found" | "undeclared-topic" | "changed"; message: string };

const TRIES = 5;

export async function feed(
  { store, clock, scripts }: Pick<Parts, "store" | "clock" | "scripts">,
  id: WorkflowId,
  { topic, messageId, payload }: FedEvent,
  by: Omit<Person, "atMs">,
): Promise<Fed> {
  for (let tries = 0; tries < TRIES; tries++) {
    const workflow = await store.workflow(id);
    if (!workflow || workflow.activeVersion === 0)
      return { ok: false, code: "not_found", message: "nothing is deployed under this name" };
    const { manifest } = await scripts.script(id, workflow.activeVersion);
    if (!Object.hasOwn(manifest.topics, topic))
      return { ok: false, code: "undeclared-topic", message: `the workflow declares no topic ${topic}` };
    const subscribers = workflow.handlers
      .filter((one) => one.kind === "consumer" && !one.orphaned)
      .filter((one) => manifest.consumers[one.name]?.subscribes.includes(topic))
      .map((one) => one.id);
    const publication = { topic, messageId, payload, inputs: [], hops: 0 };
    const change = operation(
      "event.publish",
      workflow,
      { ...by, atMs: clock.nowMs() },
      [{ do: "publish", publication, subscribers }],
      { topic, messageId },
    );
    const guarded = { ...change, expect: { generation: workflow.generation } };
    const result = await store.apply(guarded, { level: "durable", fence: store.fence });
    const [event] = result.ok ? result.published : [];
    if (event) return { ok: true, event };
  }
  return { ok: false, code: "changed", message: "the workflow was deployed anew again and again: try again" };
}
