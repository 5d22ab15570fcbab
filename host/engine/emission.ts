/**
 * What a producer or a `next` handed over → what its commit makes visible: events with their causes, hops and
 * subscribers, inputs, state. Checked against the stored manifest once more, never against what the script says.
 */
import type { Emission } from "../core/advance.ts";
import { hopsOf, publishProblem } from "../core/event.ts";
import type { RunFacts } from "../core/facts.ts";
import { mismatch } from "../core/json-schema.ts";
import { subscribersOf } from "../core/publish.ts";
import type { RunError } from "../core/run.ts";
import type { Json, Manifest } from "../core/workflow.ts";
import type { Done, InputKey, Script } from "../ports/sandbox.ts";
import type { Parts } from "./parts.ts";

export const NOTHING: Emission = { publications: [], inputs: [] };

export async function emissionOf(
  parts: Parts,
  facts: RunFacts,
  script: Script,
  result: Done,
): Promise<Emission | { error: RunError }> {
  const { run, workflow } = facts;
  const asked = result.publishes.flatMap(({ topics, ...one }) => topics.map((topic) => ({ topic, ...one })));
  const error = asked
    .map((one) => topicProblem(facts, script.manifest, one))
    .find((one) => one !== undefined);
  if (error) return { error };
  const inherited = await inheritance(parts, facts, asked.length);
  const { limits } = parts.policies.effective(run.kind === "producer" ? "producer" : "next", facts);
  const problem = publishProblem(asked.length, inherited.hops, limits);
  if (problem) return { error: problem };
  const inputs = result.inputs.map(({ source, type, id, title }) => ({
    id: parts.store.newId(),
    source,
    type,
    key: id,
    title,
  }));
  const idOf = (key: InputKey) =>
    inputs.find((one) => one.source === key.source && one.type === key.type && one.key === key.id)?.id;
  const active = await parts.scripts.script(workflow.id, workflow.activeVersion);
  const publications = asked.map(({ topic, messageId, payload, input }) => {
    const own = input && idOf(input);
    const causes = own === undefined ? inherited.inputs : [own];
    return {
      publication: { topic, messageId, payload, inputs: causes, hops: inherited.hops },
      subscribers: subscribersOf(workflow, active.manifest, topic),
    };
  });
  return {
    publications,
    inputs,
    resources: JSON.stringify(result.usage),
    ...(result.state === undefined ? {} : { state: result.state === "null" ? null : result.state }),
  };
}

/** The inputs of what the run reserved, and how far its events are from the first of their kind (1.13). */
async function inheritance(
  { store }: Parts,
  { run, reserved, handler }: RunFacts,
  publishes: number,
): Promise<{ hops: number; inputs: number[] }> {
  if (run.kind === "producer" || publishes === 0) return { hops: 0, inputs: [] };
  const { hops, inputs } = await store.causes(reserved, { handler: handler.id, seq: run.startSeq });
  const followed =
    reserved.length > 0 ? { reserved: [hops], pendingAtStart: [] } : { reserved: [], pendingAtStart: [hops] };
  return { hops: hopsOf(run.kind, followed), inputs };
}

function topicProblem(
  { run, handler }: RunFacts,
  { producers, consumers, topics }: Manifest,
  { topic, payload, messageId }: { topic: string; payload: string; messageId: string },
): RunError | undefined {
  const declared = (run.kind === "producer" ? producers : consumers)[handler.name];
  if (!declared?.publishes.includes(topic))
    return {
      class: "logic",
      code: "undeclared-topic",
      message: `${handler.name} does not declare the topic ${JSON.stringify(topic)}`,
    };
  return payloadProblem(topics[topic]?.schema, topic, messageId, payload);
}

/** Why a payload does not fit its topic, or `undefined`. */
export function payloadProblem(
  schema: Json | undefined,
  topic: string,
  messageId: string,
  payload: string,
): RunError | undefined {
  if (schema === undefined) return undefined;
  const why = mismatch(schema, JSON.parse(payload) as Json);
  if (why === undefined) return undefined;
  const message = `${topic} ${JSON.stringify(messageId)} does not fit its schema: ${why}`;
  return { class: "logic", code: "bad-payload", message };
}
