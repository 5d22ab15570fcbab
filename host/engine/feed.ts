/** An event from outside the scripts: a client, a person, a test. Acknowledged only when it is on disk (02 §8). */
import type { WorkflowId } from "../core/ids.ts";
import type { Published } from "../core/journal.ts";
import { type Incoming, publish } from "../core/publish.ts";
import type { Manifest } from "../core/workflow.ts";
import { DEFAULT_LIMITS } from "../ports/sandbox.ts";
import { payloadProblem } from "./emission.ts";
import type { Parts } from "./parts.ts";

export type Fed =
  | { ok: true; event: Published }
  | {
      ok: false;
      code: "not_found" | "archived" | "undeclared-topic" | "bad-payload" | "value-too-large" | "changed";
      message: string;
    };

const TRIES = 5;

export type FedAll =
  | { ok: true; events: Published[] }
  /** `at`: which one of them is refused; none of them was taken in. */
  | (Extract<Fed, { ok: false }> & { at?: number });

export async function feed(parts: Feeding, id: WorkflowId, incoming: Incoming): Promise<Fed> {
  const fed = await feedAll(parts, id, [incoming]);
  if (!fed.ok) return fed;
  return { ok: true, event: fed.events[0] as Published };
}

type Feeding = Pick<Parts, "store" | "clock" | "scripts">;

/** In one Change: all of them, or none. */
export async function feedAll(
  { store, clock, scripts }: Feeding,
  id: WorkflowId,
  incoming: readonly Incoming[],
): Promise<FedAll> {
  for (let tries = 0; tries < TRIES; tries++) {
    const workflow = await store.workflow(id);
    if (!workflow || workflow.activeVersion === 0)
      return { ok: false, code: "not_found", message: "nothing is deployed under this name" };
    const { manifest } = await scripts.script(id, workflow.activeVersion);
    const refused = refusal(workflow.archived, manifest, incoming);
    if (refused) return refused;
    const change = publish(workflow, manifest, incoming, clock.nowMs());
    const result = await store.apply(change, { level: "durable", fence: store.fence });
    if (result.ok) return { ok: true, events: result.published };
  }
  return { ok: false, code: "changed", message: "the workflow was deployed again and again: try again" };
}

function refusal(
  archived: boolean,
  { topics }: Manifest,
  incoming: readonly Incoming[],
): (FedAll & { ok: false }) | undefined {
  for (const [at, { topic, messageId, payload }] of incoming.entries()) {
    if (!Object.hasOwn(topics, topic))
      return { ok: false, at, code: "undeclared-topic", message: `the workflow declares no topic ${topic}` };
    if (archived) return { ok: false, code: "archived", message: "the workflow is archived" };
    if (payload.length > DEFAULT_LIMITS.messageBytes)
      return {
        ok: false,
        at,
        code: "value-too-large",
        message: `${topic} ${messageId}: no script could read it`,
      };
    const problem = payloadProblem(topics[topic]?.schema, topic, messageId, payload);
    if (problem) return { ok: false, at, code: "bad-payload", message: problem.message };
  }
  return undefined;
}
