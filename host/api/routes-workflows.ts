/** The routes of scripts and workflows: each asks a desk and shapes what it says. */
import type { Capability } from "../core/capability.ts";
import { formatId } from "../core/ids.ts";
import type { Json } from "../core/workflow.ts";
import type { Deployed } from "../engine/deploys.ts";
import { acting, type Call, found, given, OK, onWorkflow, type Routes, wholeNumber } from "./call.ts";
import type { AnswerOf } from "./contract.ts";
import type { Desk } from "./desk.ts";
import { diffLines } from "./line-diff.ts";
import { accepted, notFound, Refusal, scriptProblem, settled } from "./problems.ts";
import { iso, parsed, runDetailView } from "./run-view.ts";
import { handlersView, topicsView, versionView, workflowView } from "./workflow-view.ts";

type Names =
  | "deployWorkflow"
  | "validateScript"
  | "listWorkflows"
  | "getWorkflow"
  | "patchWorkflow"
  | "archiveWorkflow"
  | "unarchiveWorkflow"
  | "listVersions"
  | "getVersion"
  | "diffVersions"
  | "activateVersion"
  | "consentToVersion"
  | "getSnapshot"
  | "runNow"
  | "pauseWorkflow"
  | "resumeWorkflow"
  | "setMode"
  | "stepWorkflow"
  | "listHandlers"
  | "editState"
  | "listSlots"
  | "settleOrphans"
  | "previewConsumer"
  | "listTopics";

export const workflowRoutes: Routes<Names> = {
  async deployWorkflow(call) {
    const { desk, params, query, body } = call;
    await assertRoom(call);
    const { source, language, sourceMap, orphans, bindings, grants, labels } = body;
    const made = accepted(
      await desk.deploy({
        ...acting(call, body),
        source,
        language,
        name: params.name,
        file: `${params.name}.${language}`,
        ...given({ sourceMap, orphans, bindings, grants, labels }),
        ...given({ params: body.params, activate: query.activate }),
      }),
    );
    const isNew = made.outcome === "created" || made.outcome === "held" || made.outcome === "stored";
    return { status: isNew ? 201 : 200, body: await deployedView(call, made) };
  },

  async validateScript({ desk, body }) {
    const { source, language } = body;
    const made = await desk.check({ source, language, file: `script.${language}` });
    return {
      body: {
        ok: made.ok,
        manifest: made.ok ? (made.script.manifest as unknown as Json) : null,
        problems: made.problems.map(scriptProblem),
      },
    };
  },

  async listWorkflows({ desk, query, nowMs }) {
    const page = await desk.workflows(given(query));
    const items = await Promise.all(page.items.map((one) => workflowView(desk, one, nowMs)));
    return { body: { items, nextCursor: page.nextCursor ?? null } };
  },

  async getWorkflow({ desk, params, nowMs }) {
    return { body: await oneWorkflow(desk, params.name, nowMs) };
  },

  async patchWorkflow(call) {
    const { desk, body, nowMs } = call;
    const name = await onWorkflow(call);
    const { params, labels } = body;
    accepted(await desk.work.configure(name, given({ params, labels }), acting(call, body)));
    return { body: await oneWorkflow(desk, name, nowMs) };
  },

  async archiveWorkflow(call) {
    settled(await call.desk.work.archive(await onWorkflow(call), acting(call)));
    return OK;
  },

  async unarchiveWorkflow(call) {
    settled(await call.desk.work.unarchive(await onWorkflow(call), acting(call, call.body)));
    return OK;
  },

  async listVersions(call) {
    const { desk, query } = call;
    const name = await onWorkflow(call);
    const page = await desk.history.versions(name, given(query));
    const active = (await desk.workflow(name))?.activeVersion ?? 0;
    const items = page.items.map((one) => versionView(one, active));
    return { body: { items, nextCursor: page.nextCursor ?? null } };
  },

  async getVersion(call) {
    const { desk, params } = call;
    const name = await onWorkflow(call);
    const row = await versionOf(desk, name, params.number);
    const active = (await desk.workflow(name))?.activeVersion ?? 0;
    const { source, manifest } = row;
    return { body: { ...versionView(row, active), source, manifest: manifest as unknown as Json } };
  },

  async diffVersions(call) {
    const { desk, params } = call;
    const name = await onWorkflow(call);
    const from = await versionOf(desk, name, params.number);
    const to = await versionOf(desk, name, params.other);
    return {
      body: {
        from: from.number,
        to: to.number,
        lines: diffLines(from.source, to.source),
        adds: (await desk.history.adds(name, to.number, from.number)).map(capabilityView),
        removes: (await desk.history.adds(name, from.number, to.number)).map(capabilityView),
      },
    };
  },

  async activateVersion(call) {
    const name = await onWorkflow(call);
    const made = accepted(await call.desk.activate(name, call.body.version, acting(call, call.body)));
    return { body: await deployedView(call, made) };
  },

  async consentToVersion(call) {
    const name = await onWorkflow(call);
    const made = accepted(await call.desk.consent(name, call.body.version, acting(call, call.body)));
    return { body: await deployedView(call, made) };
  },

  async getSnapshot({ desk, params, nowMs }) {
    const workflow = await oneWorkflow(desk, params.name, nowMs);
    const open = workflow.openRun ? await desk.run(workflow.openRun.id) : undefined;
    const of = { namespace: desk.name, nowMs, canCheck: open ? await desk.history.canCheck(open) : false };
    return { body: { at: iso(nowMs), workflow, openRun: open ? runDetailView(open, of) : null } };
  },

  async runNow(call) {
    const { desk, body } = call;
    const handler = body?.handler;
    const name = await onWorkflow(call);
    if (handler !== undefined)
      found(await desk.place.handler(name, handler), `there is no handler ${handler}`);
    settled(await desk.runNow(name, { ...acting(call, body), ...given({ handler }) }));
    return { status: 202, ...OK };
  },

  async pauseWorkflow(call) {
    const abort = call.body?.abort;
    settled(
      await call.desk.pause(await onWorkflow(call), { ...acting(call, call.body), ...given({ abort }) }),
    );
    return OK;
  },

  async resumeWorkflow(call) {
    settled(await call.desk.resume(await onWorkflow(call), acting(call, call.body)));
    return OK;
  },

  async setMode(call) {
    settled(await call.desk.work.setMode(await onWorkflow(call), call.body.mode, acting(call, call.body)));
    return OK;
  },

  async stepWorkflow(call) {
    settled(await call.desk.work.step(await onWorkflow(call), acting(call, call.body)));
    return OK;
  },

  async listHandlers({ desk, params }) {
    const record = found(await desk.workflow(params.name), `there is no workflow ${params.name}`);
    return { body: { items: await handlersView(desk, record) } };
  },

  async editState(call) {
    const { desk, params, body } = call;
    const name = await onWorkflow(call);
    const handler = { name: params.handler, ...given({ kind: body.type }) };
    found(await desk.place.handler(name, handler.name, handler.kind), `there is no handler ${handler.name}`);
    settled(await desk.work.editState(name, handler, body.state, acting(call, body)));
    return OK;
  },

  async listSlots(call) {
    const { desk, query } = call;
    const { handler, since, limit, cursor } = query;
    const name = await onWorkflow(call);
    const page = found(
      await desk.history.slots(name, handler, given({ limit, cursor })),
      `there is no producer ${handler}`,
    );
    const sinceMs = since === undefined ? Number.NEGATIVE_INFINITY : Date.parse(since);
    const recent = page.items.filter((one) => one.toMs >= sinceMs);
    // Newest first: behind one that is older there is nothing more.
    const more = recent.length === page.items.length ? (page.nextCursor ?? null) : null;
    return { body: { items: recent.map((slot) => slotView(slot, handler)), nextCursor: more } };
  },

  async settleOrphans(call) {
    const { consumer, action } = call.body;
    const name = await onWorkflow(call);
    found(await call.desk.place.handler(name, consumer, "consumer"), `there is no consumer ${consumer}`);
    settled(await call.desk.work.orphans(name, consumer, action, acting(call, call.body)));
    return OK;
  },

  async previewConsumer({ desk, params }) {
    const { name, consumer } = params;
    const seen = found(
      await desk.work.preview(name, consumer),
      `there is no consumer ${consumer} of ${name}`,
    );
    const { version, prepared, intent, error, logs } = seen;
    return {
      body: {
        version,
        reservations: prepared?.reservations ?? [],
        title: prepared?.title ?? null,
        prepared: parsed(prepared?.json),
        intent: intent
          ? {
              alias: intent.alias,
              tool: intent.tool,
              args: parsed(intent.args),
              description: intent.description ?? null,
            }
          : null,
        error: error
          ? { code: error.code, message: error.message, at: error.at ?? null, frame: error.frame ?? null }
          : null,
        logs: logs.map(({ level, message }) => ({ level, message })),
      },
    };
  },

  async listTopics(call) {
    return { body: { items: await topicsView(call.desk, await onWorkflow(call)) } };
  },
};

/** A namespace that is full takes no workflow that is new to it. */
async function assertRoom({ desk, params }: Call<"deployWorkflow">): Promise<void> {
  const { place } = desk;
  const namespace = await place.namespace();
  if (namespace === undefined || (await place.workflow(params.name)) !== undefined) return;
  const { settings } = place.open.kept;
  const { mostWorkflows } = await settings.get(namespace);
  if (mostWorkflows === undefined || (await settings.workflowCount(namespace)) < mostWorkflows) return;
  throw new Refusal("quota-reached", `the namespace may have ${mostWorkflows} workflows, and has them`);
}

async function oneWorkflow(desk: Desk, name: string, nowMs: number): Promise<AnswerOf<"getWorkflow">> {
  return workflowView(desk, found(await desk.workflow(name), `there is no workflow ${name}`), nowMs);
}

async function deployedView(
  { desk, params, nowMs }: Pick<Call<"getWorkflow">, "desk" | "params" | "nowMs">,
  made: Extract<Deployed, { ok: true }>,
): Promise<AnswerOf<"deployWorkflow">> {
  const workflow = await oneWorkflow(desk, params.name, nowMs);
  const row = found(await desk.history.version(params.name, made.version), "the version is gone");
  return {
    outcome: made.outcome,
    workflow,
    version: versionView(row, workflow.activeVersion),
    manifest: row.manifest as unknown as Json,
    warnings: made.warnings.map(scriptProblem),
    adds: (made.adds ?? []).map(capabilityView),
  };
}

async function versionOf(desk: Desk, workflow: string, number: string) {
  const row = await desk.history.version(workflow, wholeNumber(number, "version"));
  if (!row) throw notFound(`there is no version ${number} of ${workflow}`);
  return row;
}

const capabilityView = ({ alias, connector, tools }: Capability) => ({ alias, connector, tools: [...tools] });

type Slot = NonNullable<Awaited<ReturnType<Desk["history"]["slots"]>>>["items"][number];

const slotView = (slot: Slot, handler: string): AnswerOf<"listSlots">["items"][number] => ({
  handler,
  from: iso(slot.fromMs),
  to: iso(slot.toMs),
  count: slot.count,
  countIsFloor: slot.countIsFloor ?? false,
  fate: slot.fate,
  run: slot.run === undefined ? null : formatId("run", slot.run),
  why: slot.why ?? null,
});
