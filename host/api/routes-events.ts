/** The routes of what comes in and goes out: events, deliveries, inputs, outputs, hooks. */
import { formatId } from "../core/ids.ts";
import { plainLine } from "../core/plain-line.ts";
import type { HookRequest } from "../ports/hooks.ts";
import { acting, type Call, found, given, OK, onWorkflow, type Routes } from "./call.ts";
import { jsonLines } from "./json-lines.ts";
import { codeOf, Refusal, settled } from "./problems.ts";
import { eventView, inputView, outputView } from "./run-view.ts";
import { namesOf } from "./workflow-view.ts";

type Names =
  | "listEvents"
  | "exportEvents"
  | "publishEvents"
  | "receiveHook"
  | "skipDelivery"
  | "requeueDelivery"
  | "reprocessDelivery"
  | "listInputs"
  | "getInput"
  | "skipInput"
  | "listOutputs";

const TITLE_CHARS = 200;

export const eventRoutes: Routes<Names> = {
  async listEvents(call) {
    const { desk, params, query } = call;
    const { limit, cursor } = query;
    const name = await onWorkflow(call);
    const filter = await filterOf(call);
    const page = await desk.history.events(name, params.topic, filter, given({ limit, cursor }));
    const consumers = await namesOf(desk, name);
    const items = page.items.map((one) => eventView(one, consumers));
    return { body: { items, nextCursor: page.nextCursor ?? null } };
  },

  async exportEvents(call) {
    const { desk, params } = call;
    const name = await onWorkflow(call);
    const filter = await filterOf(call);
    const consumers = await namesOf(desk, name);
    const lines = jsonLines(
      (page) => desk.history.events(name, params.topic, filter, page),
      (one) => eventView(one, consumers),
    );
    return { body: lines as unknown as string };
  },

  async publishEvents(call) {
    const { desk, params, body } = call;
    const name = await onWorkflow(call);
    const all = Array.isArray(body) ? body : [body];
    const answer = await desk.publishAll(
      name,
      all.map(({ messageId, payload, title }) => ({
        topic: params.topic,
        messageId,
        payload,
        title: plainLine(title ?? `${params.topic} ${messageId}`, TITLE_CHARS),
      })),
    );
    if (!answer.ok) {
      const path = answer.at !== undefined && Array.isArray(body) ? { path: `/${answer.at}` } : {};
      throw new Refusal(codeOf(answer.code), answer.message, path);
    }
    const counts = { created: 0, updated: 0, unchanged: 0 };
    for (const { outcome } of answer.events) counts[outcome]++;
    const events = answer.events.map(({ event: id, outcome }, at) => ({
      id,
      messageId: all[at]?.messageId ?? "",
      outcome,
    }));
    return { status: 202, body: { ...counts, events } };
  },

  async receiveHook({ params, serving, incoming, bytes }) {
    const desk = serving.desk(params.namespace);
    const request: HookRequest = { headers: incoming.headers, body: bytes };
    const answer = await desk.receive(params.workflow, params.hook, request);
    if (answer.status !== 202) {
      const hint = answer.hint === undefined ? {} : { hint: answer.hint };
      throw new Refusal(codeOf(answer.code), answer.message, hint);
    }
    const { event, messageId, outcome } = answer;
    return { status: 202, body: { event: formatId("event", event), messageId, outcome } };
  },

  async skipDelivery(call) {
    settled(await call.desk.work.skipDelivery(call.params.id, acting(call, call.body)));
    return OK;
  },

  async requeueDelivery(call) {
    const priorOutcome = call.body?.priorOutcome;
    const how = { ...acting(call, call.body), ...given({ priorOutcome }) };
    settled(await call.desk.work.requeue(call.params.id, how));
    return OK;
  },

  async reprocessDelivery(call) {
    settled(await call.desk.work.reprocess(call.params.id, acting(call, call.body)));
    return OK;
  },

  async listInputs(call) {
    const page = await call.desk.inputs(await onWorkflow(call), given(call.query));
    return { body: { items: page.items.map(inputView), nextCursor: page.nextCursor ?? null } };
  },

  async getInput({ desk, params }) {
    const input = found(await desk.history.input(params.id), `there is no input ${params.id}`);
    const name = await desk.place.open.records.nameOf(input.workflow);
    return {
      body: { ...inputView(input), workflow: name?.name ?? "", outputs: input.outputs.map(outputView) },
    };
  },

  async skipInput(call) {
    const { left = [] } = settled(await call.desk.work.skipInput(call.params.id, acting(call, call.body)));
    return { body: { ok: true, left } };
  },

  async listOutputs(call) {
    const page = await call.desk.outputs(await onWorkflow(call), given(call.query));
    return { body: { items: page.items.map(outputView), nextCursor: page.nextCursor ?? null } };
  },
};

async function filterOf({ desk, params, query }: Pick<Call<"exportEvents">, "desk" | "params" | "query">) {
  const { status, consumer } = query;
  const handler =
    consumer === undefined
      ? undefined
      : found(
          await desk.place.handler(params.name, consumer, "consumer"),
          `there is no consumer ${consumer}`,
        );
  return given({ status, consumer: handler?.id });
}
