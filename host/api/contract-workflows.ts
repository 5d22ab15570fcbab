/** The calls about scripts and workflows: deploying, looking, running, pausing, and what comes in from outside. */
import { z } from "zod";
import { flag, instant, name, note, ok, page, paging, route } from "./contract-route.ts";
import * as shapes from "./contract-shapes.ts";

const SOURCE_CHARS = 1_048_576;
const MOST_EVENTS = 1_000;

const source = {
  source: z.string().max(SOURCE_CHARS),
  language: z.enum(["ts", "js"]).default("ts"),
};
const given = z.strictObject({
  alias: name,
  tool: name.default("*"),
  mode: z.enum(shapes.GRANT_MODES),
});
const bindings = z.record(name, name);
const params = z.record(name, shapes.json);
const labels = z.record(name, z.string().max(200));
const orphanAction = z.union([z.enum(["keep", "skip"]), z.strictObject({ moveTo: name })]);
const noted = z.strictObject({ note }).optional();
const capability = z.object({ alias: z.string(), connector: z.string(), tools: z.array(z.string()) });

const deployed = z
  .object({
    outcome: z.enum(["created", "activated", "unchanged", "held", "stored"]),
    workflow: shapes.workflow,
    version: shapes.version,
    manifest: shapes.json,
    warnings: z.array(shapes.scriptProblem),
    adds: z.array(capability),
  })
  .meta({ id: "Deployed" });

const published = z.object({
  created: z.int(),
  updated: z.int(),
  unchanged: z.int(),
  events: z.array(
    z.object({ id: z.string(), messageId: z.string(), outcome: z.enum(["created", "updated", "unchanged"]) }),
  ),
});
const event = z.strictObject({
  messageId: z
    .string()
    .min(1)
    .max(512)
    .refine((text) => text.isWellFormed() && !/\p{Cc}/u.test(text), "has characters that no id may have"),
  payload: shapes.json,
  title: z.string().max(200).optional(),
});

export const workflowCalls = {
  deployWorkflow: route({
    role: "deployer",
    summary: "Deploy a script: a new version, or one that is stored already, becomes the active one",
    query: z.strictObject({ activate: flag.optional() }),
    body: z.strictObject({
      ...source,
      note,
      sourceMap: z
        .string()
        .max(4 * SOURCE_CHARS)
        .optional(),
      orphans: orphanAction.optional(),
      bindings: bindings.optional(),
      grants: z.array(given).max(1_000).optional(),
      params: params.optional(),
      labels: labels.optional(),
    }),
    maxBytes: 8 * SOURCE_CHARS,
    answer: deployed,
    statuses: [201, 200],
    refusals: ["script-invalid", "binding-missing", "binding-invalid", "grant-invalid", "param-invalid"],
  }),
  validateScript: route({
    role: "deployer",
    summary: "What an upload of this script would say; nothing is stored",
    body: z.strictObject(source),
    maxBytes: 8 * SOURCE_CHARS,
    answer: z.object({
      ok: z.boolean(),
      manifest: shapes.json,
      problems: z.array(shapes.scriptProblem),
    }),
  }),
  listWorkflows: route({
    role: "viewer",
    summary: "Workflows, by name",
    query: z.strictObject({ ...paging, archived: flag.optional() }),
    answer: shapes.pageOf(shapes.workflow),
  }),
  getWorkflow: route({ role: "viewer", summary: "One workflow", answer: shapes.workflow }),
  patchWorkflow: route({
    role: "deployer",
    summary: "Set params or labels, all of them",
    body: z.strictObject({ params: params.optional(), labels: labels.optional(), note }),
    answer: shapes.workflow,
    refusals: ["param-invalid"],
  }),
  archiveWorkflow: route({
    role: "deployer",
    summary: "Archive a workflow: nothing of it runs, nothing of it is lost",
    answer: ok,
    refusals: ["run-active", "unknown-outcome", "workflow-archived"],
  }),
  unarchiveWorkflow: route({
    role: "deployer",
    summary: "Take a workflow back out of the archive",
    body: noted,
    answer: ok,
    refusals: ["wrong-state"],
  }),
  listVersions: route({
    role: "viewer",
    summary: "Stored versions, newest first",
    query: page,
    answer: shapes.pageOf(shapes.version),
  }),
  getVersion: route({
    role: "viewer",
    summary: "One version with its source and what it declares",
    answer: z.object({ ...shapes.version.shape, source: z.string(), manifest: shapes.json }),
  }),
  diffVersions: route({
    role: "viewer",
    summary: "What the second version has that the first has not: lines, and what it can change outside",
    answer: z.object({
      from: z.int(),
      to: z.int(),
      lines: z.array(z.object({ op: z.enum([" ", "-", "+"]), text: z.string() })),
      adds: z.array(capability),
      removes: z.array(capability),
    }),
  }),
  activateVersion: route({
    role: "deployer",
    summary: "Make a stored version the active one: forward, or back",
    body: z.strictObject({ version: z.int(), note }),
    answer: deployed,
    refusals: ["binding-missing"],
  }),
  consentToVersion: route({
    role: "admin",
    summary: "Agree to what a held version can do beyond the active one, and activate it",
    body: z.strictObject({ version: z.int(), note }),
    answer: deployed,
  }),
  getSnapshot: route({
    role: "viewer",
    summary: "The workflow, and its open run in full",
    answer: z.object({ at: shapes.time, workflow: shapes.workflow, openRun: shapes.runDetail.nullable() }),
  }),
  runNow: route({
    role: "operator",
    summary: "Queue every producer, or run or wake one handler",
    body: z.strictObject({ handler: name.optional(), note }).optional(),
    answer: ok,
    statuses: [202],
    refusals: ["run-active", "workflow-blocked", "workflow-paused", "workflow-held"],
  }),
  pauseWorkflow: route({
    role: "operator",
    summary: "Pause: what runs finishes, or with `abort` is ended early, but never a call in flight",
    body: z.strictObject({ abort: z.boolean().optional(), note }).optional(),
    answer: ok,
  }),
  resumeWorkflow: route({ role: "operator", summary: "Lift a pause", body: noted, answer: ok }),
  setMode: route({
    role: "operator",
    summary: "`step` holds every run before each unit; `auto` lets them go on",
    body: z.strictObject({ mode: z.enum(["auto", "step"]), note }),
    answer: ok,
  }),
  stepWorkflow: route({
    role: "operator",
    summary: "Let the held run go on by one unit",
    body: noted,
    answer: ok,
    refusals: ["nothing-held"],
  }),
  listHandlers: route({
    role: "viewer",
    summary: "Handlers with schedule, state, last run and effective policy",
    answer: z.object({ items: z.array(shapes.handler) }),
  }),
  editState: route({
    role: "deployer",
    summary: "Replace a handler's state, for example to rewind a cursor",
    body: z.strictObject({ state: shapes.json, type: z.enum(["producer", "consumer"]).optional(), note }),
    answer: ok,
    refusals: ["run-active", "wrong-state"],
  }),
  listSlots: route({
    role: "viewer",
    summary: "What became of a producer's scheduled times, newest first",
    query: z.strictObject({ ...paging, handler: name, since: instant.optional() }),
    answer: shapes.pageOf(
      z.object({
        handler: z.string(),
        from: shapes.time,
        to: shapes.time,
        count: z.int(),
        countIsFloor: z.boolean(),
        fate: z.enum(["ran", "coalesced", "skipped", "missed", "failed"]),
        run: z.string().nullable(),
        why: z.string().nullable(),
      }),
    ),
  }),
  settleOrphans: route({
    role: "operator",
    summary: "Decide about events of a consumer that the active version does not have",
    body: z.strictObject({ consumer: name, action: orphanAction, note }),
    answer: ok,
    refusals: ["wrong-state"],
  }),
  previewConsumer: route({
    role: "operator",
    summary: "What a consumer would reserve and change now; nothing is recorded or sent",
    answer: z.object({
      version: z.int(),
      reservations: z.array(z.object({ topic: z.string(), ids: z.array(z.string()) })),
      title: z.string().nullable(),
      prepared: shapes.json,
      intent: z
        .object({
          alias: z.string(),
          tool: z.string(),
          args: shapes.json,
          description: z.string().nullable(),
        })
        .nullable(),
      error: z
        .object({
          code: z.string(),
          message: z.string(),
          at: z.string().nullable(),
          frame: z.string().nullable(),
        })
        .nullable(),
      logs: z.array(z.object({ level: z.string(), message: z.string() })),
    }),
  }),

  listTopics: route({
    role: "viewer",
    summary: "Topics and what is pending on them",
    answer: z.object({ items: z.array(shapes.topic) }),
  }),
  listEvents: route({
    role: "viewer",
    summary: "Events of a topic, newest first",
    query: z.strictObject({
      ...paging,
      status: z.enum(shapes.DELIVERY_STATUSES).optional(),
      consumer: name.optional(),
    }),
    answer: shapes.pageOf(shapes.event),
  }),
  exportEvents: route({
    role: "viewer",
    summary: "Every event of a topic, one JSON document a line, newest first",
    query: z.strictObject({ status: z.enum(shapes.DELIVERY_STATUSES).optional(), consumer: name.optional() }),
    answer: z.string(),
    media: "application/x-ndjson",
  }),
  publishEvents: route({
    role: "operator",
    summary: "Publish one event or several; 202 means that all of them are on disk",
    body: z.union([event, z.array(event).min(1).max(MOST_EVENTS)]),
    maxBytes: 8 * SOURCE_CHARS,
    answer: published,
    statuses: [202],
    refusals: ["undeclared-topic", "bad-payload", "value-too-large", "archived"],
  }),
  receiveHook: route({
    role: "nobody",
    summary: "A webhook's request, signed as the hook's connection says",
    raw: true,
    answer: z.object({
      event: z.string(),
      messageId: z.string(),
      outcome: z.enum(["created", "updated", "unchanged"]),
    }),
    statuses: [202],
    refusals: ["hook-signature", "hook-unknown", "hook-body", "hook-replayed"],
  }),
  skipDelivery: route({
    role: "operator",
    summary: "Skip a delivery that nothing can have happened with",
    body: noted,
    answer: ok,
    refusals: ["run-active", "unknown-outcome", "wrong-state"],
  }),
  requeueDelivery: route({
    role: "operator",
    summary: "Make a dead or skipped delivery pending again",
    body: z.strictObject({ priorOutcome: z.literal("not-applied").optional(), note }).optional(),
    answer: ok,
    refusals: ["wrong-state"],
  }),
  reprocessDelivery: route({
    role: "operator",
    summary: "Deliver a consumed event once more",
    body: noted,
    answer: ok,
    refusals: ["wrong-state"],
  }),
  listInputs: route({
    role: "viewer",
    summary: "What came in from outside, newest first",
    query: page,
    answer: shapes.pageOf(shapes.input),
  }),
  getInput: route({
    role: "viewer",
    summary: "One input, and what was changed outside because of it",
    answer: z.object({ ...shapes.input.shape, workflow: z.string(), outputs: z.array(shapes.output) }),
  }),
  skipInput: route({
    role: "operator",
    summary: "Skip all that an input caused, where nothing can have happened yet",
    body: noted,
    answer: z.object({
      ok: z.literal(true),
      left: z.array(z.object({ delivery: z.string(), why: z.string() })),
    }),
  }),
  listOutputs: route({
    role: "viewer",
    summary: "What was changed outside, or was to be, newest first",
    query: page,
    answer: shapes.pageOf(shapes.output),
  }),
};
