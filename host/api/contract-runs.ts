/** The calls about runs and about what waits for a person. */
import { z } from "zod";
import { expectation, flag, instant, name, note, ok, page, paging, route } from "./contract-route.ts";
import * as shapes from "./contract-shapes.ts";

const MOST_RULES = 500;

const decided = { note, expect: expectation };
const approval = {
  once: z.literal(true).optional(),
  next: z.int().min(1).max(1_000).optional(),
  until: instant.optional(),
};
const callPolicy = z
  .union([
    z.array(shapes.json).max(MOST_RULES),
    z.strictObject({ rules: z.array(shapes.json).max(MOST_RULES), replace: z.boolean().optional() }),
  ])
  .optional();
const closing = z.enum(["release", "skip", "dead"]);
const rejecting = z.enum(["skip", "release"]);

/** As the operator table names them; the fields are those of the calls. */
const decision = z.discriminatedUnion("action", [
  z.strictObject({ action: z.literal("approve"), ...approval }),
  z.strictObject({ action: z.literal("reject"), deliveries: rejecting }),
  z.strictObject({ action: z.literal("check") }),
  z.strictObject({ action: z.literal("applied"), result: shapes.json.optional() }),
  z.strictObject({ action: z.literal("not-applied") }),
  z.strictObject({ action: z.literal("skip") }),
  z.strictObject({ action: z.literal("retry"), policy: callPolicy }),
  z.strictObject({ action: z.literal("close"), deliveries: closing, force: z.boolean().optional() }),
]);

const bulk = z
  .object({
    id: z.string(),
    action: z.enum(["retry", "skip", "close", "approve"]),
    status: z.enum(["preview", "running", "done", "cancelled"]),
    total: z.int(),
    done: z.int(),
    refused: z.array(z.object({ run: z.string(), code: z.string(), message: z.string() })),
    runs: z.array(
      z.object({ run: z.string(), workflow: z.string(), sentence: z.string(), words: z.array(z.string()) }),
    ),
    startedAt: shapes.time,
    endedAt: shapes.time.nullable(),
  })
  .meta({ id: "Bulk" });

const filter = {
  workflow: name.optional(),
  handler: name.optional(),
  status: z.enum(shapes.RUN_STATUSES).optional(),
  phase: z.enum(shapes.PHASES).optional(),
  error: name.optional(),
};

export const runCalls = {
  listRuns: route({
    role: "viewer",
    summary: "Runs, newest first",
    query: z.strictObject({
      ...paging,
      ...filter,
      open: flag.optional(),
      input: name.optional(),
      since: instant.optional(),
    }),
    answer: shapes.pageOf(shapes.run),
  }),
  getRun: route({
    role: "viewer",
    summary: "One run with its chain and its outside change",
    answer: shapes.runDetail,
  }),
  exportRuns: route({
    role: "viewer",
    summary: "Every run that fits, one JSON document a line, newest first",
    query: z.strictObject({ ...filter, open: flag.optional(), since: instant.optional() }),
    answer: z.string(),
    media: "application/x-ndjson",
  }),
  listJournal: route({
    role: "viewer",
    summary: "What happened in a run, step by step, oldest first",
    query: page,
    answer: shapes.pageOf(
      z.object({ seq: z.int(), verb: z.string(), at: shapes.time, entries: z.array(shapes.json) }),
    ),
  }),
  listLogs: route({
    role: "viewer",
    summary: "What the script logged, oldest first",
    query: page,
    answer: shapes.pageOf(
      z.object({
        unit: z.string(),
        at: shapes.time,
        lines: z.array(
          z.object({ level: z.string(), message: z.string(), at: shapes.time, data: shapes.json.optional() }),
        ),
      }),
    ),
  }),
  getTrace: route({
    role: "viewer",
    summary: "The run as a tree of timed steps: units, the outside change and its sends",
    answer: z.object({
      run: z.string(),
      rootId: z.string(),
      spans: z.array(
        z.object({
          name: z.string(),
          kind: z.enum(["run", "step", "send"]),
          startedAt: shapes.time,
          endedAt: shapes.time.nullable(),
          detail: shapes.json,
        }),
      ),
    }),
  }),
  approveRun: route({
    role: "operator",
    summary: "Allow the outside change as shown: once, the next N of its tool, or until a time",
    body: z.strictObject({ ...approval, ...decided }).optional(),
    answer: ok,
    refusals: ["wrong-state", "changed"],
  }),
  rejectRun: route({
    role: "operator",
    summary: "Refuse the outside change; its events are skipped or given back",
    body: z.strictObject({ deliveries: rejecting, ...decided }),
    answer: ok,
    refusals: ["wrong-state", "changed"],
  }),
  reconcileRun: route({
    role: "operator",
    summary: "Say whether an outside change happened, have it checked, or go on without it",
    body: z.strictObject({
      action: z.enum(["check", "applied", "not-applied", "skip"]),
      result: shapes.json.optional(),
      ...decided,
    }),
    answer: ok,
    refusals: ["wrong-state", "changed"],
  }),
  retryRun: route({
    role: "operator",
    summary: "Go on with a chain, from where the ledger allows",
    body: z.strictObject({ policy: callPolicy, ...decided }).optional(),
    answer: ok,
    refusals: ["wrong-state", "changed", "policy-invalid"],
  }),
  closeRun: route({
    role: "operator",
    summary: "End a chain; its events are given back, skipped or set aside",
    body: z.strictObject({
      deliveries: closing,
      force: z.boolean().optional(),
      note: z.string().max(2_000),
      expect: expectation,
    }),
    answer: ok,
    refusals: ["wrong-state", "changed"],
  }),
  askConsequences: route({
    role: "viewer",
    summary: "What a decision would do, in words and rows, without doing it",
    body: decision,
    answer: z.object({
      words: z.array(z.string()),
      rows: z.array(z.object({ row: z.string(), becomes: z.string() })),
    }),
    refusals: ["wrong-state"],
  }),
  startBulk: route({
    role: "operator",
    summary: "One decision about every open run that a filter finds; with `preview` it is only shown",
    body: z.strictObject({
      filter: z.strictObject({ ...filter, since: instant.optional() }),
      preview: z.boolean(),
      deliveries: closing.optional(),
      note,
    }),
    answer: bulk,
    statuses: [202, 200],
  }),
  getBulk: route({ role: "viewer", summary: "How far a bulk decision has come", answer: bulk }),

  listInbox: route({
    role: "viewer",
    summary: "What waits for a person, oldest first, with the answers that are allowed now",
    query: z.strictObject({ ...paging, kind: z.enum(shapes.INBOX_KINDS).optional() }),
    answer: shapes.pageOf(shapes.inboxItem),
  }),
  countInbox: route({
    role: "viewer",
    summary: "How many items wait; 1000 means at least that",
    answer: z.object({ count: z.int() }),
  }),
  acknowledgeInbox: route({
    role: "operator",
    summary: "Close an item that asks for no decision",
    body: z.strictObject({ note }).optional(),
    answer: ok,
    refusals: ["wrong-state"],
  }),
};
