/** An event from outside the scripts: a client, a person, a test. Acknowledged only when it is on disk (02 §8). */
import type { WorkflowId } from "../core/ids.ts";
import type { Published } from "../core/journal.ts";
import { type Incoming, publish } from "../core/publish.ts";
import { payloadProblem } from "./emission.ts";
import type { Parts } from "./parts.ts";

export type Fed =
  | { ok: true; event: Published }
  | {
      ok: false;
      code: "not_found" | "archived" | "undeclared-topic" | "bad-payload" | "changed";
      message: string;
    };

const TRIES = 5;

export async function feed(
  { store, clock, scripts }: Pick<Parts, "store" | "clock" | "scripts">,
  id: WorkflowId,
  incoming: Incoming,
): Promise<Fed> {
  for (let tries = 0; tries < TRIES; tries++) {
    const workflow = await store.workflow(id);
    if (!workflow || workflow.activeVersion === 0)
      return { ok: false, code: "not_found", message: "nothing is deployed under this name" };
    const { manifest } = await scripts.script(id, workflow.activeVersion);
    if (!Object.hasOwn(manifest.topics, incoming.topic))
      return {
        ok: false,
        code: "undeclared-topic",
        message: `the workflow declares no topic ${incoming.topic}`,
      };
    if (workflow.archived) return { ok: false, code: "archived", message: "the workflow is archived" };
    const { topic, messageId, payload } = incoming;
    const problem = payloadProblem(manifest.topics[topic]?.schema, topic, messageId, payload);
    if (problem) return { ok: false, code: "bad-payload", message: problem.message };
    const change = publish(workflow, manifest, [incoming], clock.nowMs());
    const result = await store.apply(change, { level: "durable", fence: store.fence });
    const [event] = result.ok ? result.published : [];
    if (event) return { ok: true, event };
  }
  return { ok: false, code: "changed", message: "the workflow was deployed again and again: try again" };
}
