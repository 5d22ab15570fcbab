/** The routes of runs, of decisions about them, and of the inbox. */
import { parseId } from "../core/ids.ts";
import { parseCallPolicy } from "../core/policy-rules.ts";
import type { Decision } from "../core/resolve.ts";
import type { JsonText } from "../core/workflow.ts";
import type { JournalRecord, RunDetail, RunFilter } from "../ports/records.ts";
import { acting, type Call, found, given, OK, type Routes } from "./call.ts";
import type { BodyOf } from "./contract.ts";
import type { CallName } from "./contract-paths.ts";
import type { Bulk, BulkAction } from "./bulk-desk.ts";
import { jsonLines } from "./json-lines.ts";
import { notFound, onWire, Refusal, settled } from "./problems.ts";
import { iso, isoOr, runDetailView, runView } from "./run-view.ts";
import { traceView } from "./trace-view.ts";
import type { Json } from "../core/workflow.ts";

type Names =
  | "listRuns"
  | "getRun"
  | "exportRuns"
  | "listJournal"
  | "listLogs"
  | "getTrace"
  | "approveRun"
  | "rejectRun"
  | "reconcileRun"
  | "retryRun"
  | "closeRun"
  | "askConsequences"
  | "startBulk"
  | "getBulk"
  | "listInbox"
  | "countInbox"
  | "acknowledgeInbox";

const TRACED = 200;
const BULK_ACTIONS: readonly string[] = ["retry", "skip", "close", "approve"];

export const runRoutes: Routes<Names> = {
  async listRuns(call) {
    const { desk, query, nowMs } = call;
    const { limit, cursor, workflow, handler: _, since: __, input: ___, ...rest } = query;
    const narrowed = await narrow(call, query);
    if (narrowed === undefined) return { body: { items: [], nextCursor: null } };
    const page = await desk.runs(
      { ...given(rest), ...narrowed, ...given({ workflow }) } as Parameters<typeof desk.runs>[0],
      given({ limit, cursor }),
    );
    const items = await Promise.all(
      page.items.map(async (record) =>
        runView(record, { namespace: desk.name, nowMs, canCheck: await desk.history.canCheck(record) }),
      ),
    );
    return { body: { items, nextCursor: page.nextCursor ?? null } };
  },

  async exportRuns(call) {
    const { desk, query, nowMs } = call;
    const { workflow, handler: _, since: __, ...rest } = query;
    const narrowed = await narrow(call, query);
    const filter = { ...given(rest), ...narrowed, ...given({ workflow }) } as Parameters<typeof desk.runs>[0];
    const lines = jsonLines(
      async (page) => (narrowed === undefined ? { items: [] } : desk.runs(filter, page)),
      async (record) =>
        runView(record, { namespace: desk.name, nowMs, canCheck: await desk.history.canCheck(record) }),
    );
    return { body: lines as unknown as string };
  },

  async getRun(call) {
    const detail = await oneRun(call);
    const canCheck = await call.desk.history.canCheck(detail);
    return { body: runDetailView(detail, { namespace: call.desk.name, nowMs: call.nowMs, canCheck }) };
  },

  async listJournal(call) {
    await oneRun(call);
    const page = await call.desk.history.journal(call.params.id, given(call.query));
    const items = page.items.map(({ first, verb, atMs, entries }) => ({
      seq: first,
      verb,
      at: iso(atMs),
      entries: entries as unknown as Json[],
    }));
    return { body: { items, nextCursor: page.nextCursor ?? null } };
  },

  async listLogs(call) {
    await oneRun(call);
    const page = await call.desk.history.logs(call.params.id, given(call.query));
    const items = page.items.map(({ unit, lines, atMs }) => ({ unit, at: iso(atMs), lines: linesOf(lines) }));
    return { body: { items, nextCursor: page.nextCursor ?? null } };
  },

  async getTrace(call) {
    const detail = await oneRun(call);
    const journal: JournalRecord[] = [];
    let cursor: string | undefined;
    do {
      const page = await call.desk.history.journal(call.params.id, { limit: TRACED, ...given({ cursor }) });
      journal.push(...page.items);
      cursor = page.nextCursor;
    } while (cursor !== undefined && journal.length < TRACED);
    return { body: traceView(detail, journal) };
  },

  async approveRun(call) {
    return decide(call, approval(call.body ?? {}), call.body);
  },

  async rejectRun(call) {
    return decide(call, { action: "reject", deliveries: call.body.deliveries }, call.body);
  },

  async reconcileRun(call) {
    const { action, result } = call.body;
    const said =
      action === "applied" && result !== undefined ? { action, result: JSON.stringify(result) } : { action };
    return decide(call, said, call.body);
  },

  async retryRun(call) {
    return decide(call, { action: "retry", ...policyOf(call.body?.policy) }, call.body);
  },

  async closeRun(call) {
    const { deliveries, force } = call.body;
    return decide(call, { action: "close", deliveries, ...given({ force }) }, call.body);
  },

  async askConsequences(call) {
    const told = await call.desk.history.consequences(call.params.id, decisionOf(call.body), acting(call));
    if ("words" in told) return { body: told };
    settled(told);
    return { body: { words: [], rows: [] } };
  },

  async startBulk(call) {
    const { params, body, desk } = call;
    if (!BULK_ACTIONS.includes(params.action)) throw notFound(`there is no bulk action ${params.action}`);
    const { filter, preview, deliveries = "release" } = body;
    const narrowed = await narrow(call, filter);
    const { workflow: name, status, phase, error } = filter;
    const workflow = name === undefined ? undefined : await desk.place.workflow(name);
    if (narrowed === undefined || (name !== undefined && workflow === undefined))
      throw notFound("there is no such workflow or handler");
    const how = { ...acting(call, body), preview, deliveries };
    const whole = { ...given({ workflow, status, phase, error }), ...narrowed } as RunFilter;
    const bulk = await desk.bulk.start(params.action as BulkAction, whole, how);
    return { status: preview ? 200 : 202, body: bulkView(bulk) };
  },

  async getBulk({ desk, params }) {
    return { body: bulkView(found(desk.bulk.get(params.id), `there is no bulk decision ${params.id}`)) };
  },

  async listInbox({ desk, query }) {
    const page = await desk.inbox.list(given(query));
    const items = page.items.map(({ sinceMs, ...item }) => ({ ...item, since: iso(sinceMs) }));
    return { body: { items, nextCursor: page.nextCursor ?? null } };
  },

  async countInbox({ desk }) {
    return { body: { count: await desk.inbox.count() } };
  },

  async acknowledgeInbox(call) {
    settled(await call.desk.inbox.acknowledge(call.params.id, acting(call, call.body)));
    return OK;
  },
};

async function oneRun({ desk, params }: Pick<Call<"getRun">, "desk" | "params">): Promise<RunDetail> {
  return found(await desk.run(params.id), `there is no run ${params.id}`);
}

/** What needs looking up or reading; `undefined` when nothing can fit. */
async function narrow(
  { desk }: Pick<Call<CallName>, "desk">,
  {
    workflow,
    handler,
    since,
    input,
  }: { [Field in "workflow" | "handler" | "since" | "input"]?: string | undefined },
): Promise<Pick<RunFilter, "handler" | "sinceMs" | "input"> | undefined> {
  const sinceMs = since === undefined ? {} : { sinceMs: Date.parse(since) };
  if (handler !== undefined && workflow === undefined)
    throw new Refusal("request-invalid", "a handler is one of a workflow: name that, too", {
      path: "/workflow",
    });
  const facts =
    handler === undefined || workflow === undefined ? undefined : await desk.place.handler(workflow, handler);
  if (handler !== undefined && !facts) return undefined;
  const caused = input === undefined ? undefined : parseId("input", input);
  if (input !== undefined && (caused === undefined || !(await desk.place.input(input)))) return undefined;
  return { ...sinceMs, ...given({ handler: facts?.id, input: caused }) };
}

async function decide(
  call: Pick<Call<"getRun">, "desk" | "params" | "principal">,
  decision: Decision,
  body: { note?: string | undefined; expect?: object | undefined } | undefined,
) {
  const expect = body?.expect;
  settled(
    await call.desk.decide(call.params.id, decision, {
      ...acting(call, body),
      ...(expect === undefined ? {} : { expect: given(expect) }),
    }),
  );
  return OK;
}

type Approval = { once?: true | undefined; next?: number | undefined; until?: string | undefined };

/** Without a scope it means once. */
function approval({ once, next, until }: Approval): Decision {
  const said = [once, next, until].filter((one) => one !== undefined);
  if (said.length > 1) throw new Refusal("request-invalid", "say one of once, next and until", { path: "" });
  if (next !== undefined) return { action: "approve", scope: { next } };
  return until === undefined
    ? { action: "approve" }
    : { action: "approve", scope: { untilMs: Date.parse(until) } };
}

/** Rules for this chain alone; refused with the place in them. */
function policyOf(policy: unknown): { policy?: JsonText } {
  if (policy === undefined) return {};
  const parsed = parseCallPolicy(policy);
  if ("call" in parsed) return { policy: JSON.stringify(parsed.call) };
  const [problem] = parsed.problems;
  throw new Refusal(problem?.code ?? "policy-invalid", problem?.message ?? "the policy cannot be read", {
    path: `/policy${problem?.path ?? ""}`,
  });
}

function decisionOf(body: BodyOf<"askConsequences">): Decision {
  switch (body.action) {
    case "approve":
      return approval(body);
    case "applied":
      return {
        action: "applied",
        ...(body.result === undefined ? {} : { result: JSON.stringify(body.result) }),
      };
    case "retry":
      return { action: "retry", ...policyOf(body.policy) };
    case "close":
      return { action: "close", deliveries: body.deliveries, ...given({ force: body.force }) };
    case "reject":
    case "check":
    case "not-applied":
    case "skip":
      return body;
  }
}

function linesOf(text: JsonText) {
  const lines = JSON.parse(text) as { level: string; message: string; atMs: number; data?: JsonText }[];
  return lines.map(({ level, message, atMs, data }) => ({
    level,
    message,
    at: iso(atMs),
    ...(data === undefined ? {} : { data: JSON.parse(data) as Json }),
  }));
}

function bulkView({ startedAtMs, endedAtMs, refused, ...bulk }: Bulk) {
  return {
    ...bulk,
    refused: refused.map((one) => ({ ...one, code: onWire(one.code) })),
    startedAt: iso(startedAtMs),
    endedAt: isoOr(endedAtMs),
  };
}
