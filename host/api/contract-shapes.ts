/**
 * What clients read: the nouns of the API, as they are answered. Times are ISO 8601 in UTC, ids are public ids, and what is
 * not there is `null` where a shape of its own is promised (05).
 */
import { z } from "zod";
import type { Json } from "../core/workflow.ts";

/** Any JSON value; it came through a parser, so that it is one. */
export const json = z
  .unknown()
  .refine((value) => value !== undefined, "is missing")
  .meta({ description: "Any JSON value" }) as unknown as z.ZodType<Json>;

export const time = z.string().meta({ format: "date-time", description: "ISO 8601, UTC" });
const maybe = <Shape extends z.ZodType>(shape: Shape) => shape.nullable();
const count = z.int().min(0);
/** A list of a page; `nextCursor` is null on the last one. */
export const pageOf = <Shape extends z.ZodType>(item: Shape) =>
  z.object({ items: z.array(item), nextCursor: maybe(z.string()) });

const location = z.object({ line: z.int(), column: z.int() });

export const scriptProblem = z
  .object({
    severity: z.enum(["error", "warning"]),
    code: z.string(),
    message: z.string(),
    hint: z.string(),
    location,
  })
  .meta({ id: "ScriptProblem" });

export const problem = z
  .object({
    error: z.object({
      code: z.string(),
      message: z.string(),
      hint: z.string().optional(),
      path: z.string().optional(),
      location: location.optional(),
      problems: z.array(scriptProblem).optional(),
      first: z.object({ by: z.string(), action: z.string(), at: time }).optional(),
      requestId: z.string(),
    }),
  })
  .meta({ id: "Problem" });

export const GRANT_MODES = ["allow", "approve", "deny"] as const;
export const RUN_STATUSES = [
  "active",
  "paused:transient",
  "paused:approval",
  "paused:reconciliation",
  "failed:logic",
  "failed:internal",
  "committed",
  "crashed",
] as const;
export const PHASES = [
  "executing",
  "preparing",
  "prepared",
  "mutating",
  "mutated",
  "emitting",
  "committed",
] as const;
const LEDGER_STATUSES = [
  "proposed",
  "in_flight",
  "needs_reconcile",
  "indeterminate",
  "applied",
  "failed",
  "skipped",
] as const;
export const DELIVERY_STATUSES = ["pending", "reserved", "consumed", "skipped", "dead"] as const;
export const INBOX_KINDS = [
  "unknown_outcome",
  "contradiction",
  "approval",
  "reconnect",
  "permission",
  "precondition",
  "binding",
  "capability",
  "script_error",
  "internal",
  "retries_exhausted",
  "crash_loop",
  "step",
  "dead_letter",
  "orphaned",
  "stale_input",
  "missed_schedule",
] as const;

const handlerType = z.enum(["producer", "consumer"]);
const status = z.enum(RUN_STATUSES);
const phase = z.enum(PHASES);

const evidence = z.object({ what: z.string(), detail: json, run: z.string(), at: time });

export const mutation = z
  .object({
    id: z.string(),
    status: z.enum(LEDGER_STATUSES),
    proof: z.enum(["key", "lookup", "conditional", "none"]),
    alias: z.string(),
    connection: z.string(),
    tool: z.string(),
    args: json,
    description: z.string(),
    idempotencyKey: z.string(),
    outcome: maybe(z.enum(["applied", "skipped", "failed", "unknown"])),
    result: json,
    resultTruncated: z.boolean().optional(),
    sends: z.int(),
    reconcile: z.object({ attempts: z.int(), nextAt: maybe(time), canCheck: z.boolean() }),
    evidence: z.array(evidence),
  })
  .meta({ id: "Mutation" });

const runError = z.object({
  class: z.enum(["transient", "auth", "permission", "precondition", "logic", "internal"]),
  code: z.string(),
  message: z.string(),
  location: location.optional(),
  frame: z.string().optional(),
  tool: z.string().optional(),
  evidence: json.optional(),
});

const resolution = z.object({ by: z.string(), action: z.string(), at: time, note: z.string().optional() });

export const run = z
  .object({
    id: z.string(),
    namespace: z.string(),
    workflow: z.string(),
    version: z.int(),
    handler: z.string(),
    type: handlerType,
    trigger: z.object({
      reason: z.string(),
      at: time,
      slot: z.object({ firstDueAt: time, newestDueAt: time }).optional(),
      manual: z.boolean().optional(),
    }),
    retryOf: maybe(z.string()),
    successor: maybe(z.string()),
    rootId: z.string(),
    attempt: z.int(),
    phase,
    status,
    pauseReason: maybe(z.string()),
    open: z.boolean(),
    readyAt: maybe(time),
    revision: z.int(),
    sentence: z.string(),
    prepareResult: json,
    mutation: maybe(mutation),
    error: maybe(runError),
    policy: json,
    resources: maybe(
      z.object({ cpuMs: z.number(), wallMs: z.number(), heapBytes: z.number(), hostCalls: z.number() }),
    ),
    timings: z.object({ ranMs: maybe(z.number()), chainStartedAt: time, retries: z.int(), crashes: z.int() }),
    nextRetryAt: maybe(time),
    deadlineAt: maybe(time),
    resolution: maybe(resolution),
    hostId: z.string(),
    createdAt: time,
    startedAt: time,
    updatedAt: time,
    endedAt: maybe(time),
  })
  .meta({ id: "Run" });

const inputFace = z.object({
  id: z.string(),
  source: z.string(),
  type: z.string(),
  key: z.string(),
  title: z.string(),
});

export const runDetail = run
  .extend({
    chain: z.array(
      z.object({
        id: z.string(),
        attempt: z.int(),
        phase,
        status,
        version: z.int(),
        createdAt: time,
        endedAt: maybe(time),
      }),
    ),
    reserved: z.array(z.string()),
    causedBy: z.array(inputFace),
    transcripts: z.array(z.string()),
  })
  .meta({ id: "RunDetail" });

const openRun = maybe(z.object({ id: z.string(), status, phase, pauseReason: maybe(z.string()) }));

export const handler = z
  .object({
    name: z.string(),
    type: handlerType,
    schedule: z.string().optional(),
    subscribes: z.array(z.string()).optional(),
    publishes: z.array(z.string()),
    nextRunAt: maybe(time),
    wakeAt: maybe(time),
    triggered: maybe(z.object({ reason: z.string(), at: time })),
    queued: maybe(z.object({ reason: z.string(), at: time })),
    state: json,
    pending: count,
    dead: count,
    lastRun: maybe(z.object({ id: z.string(), status, phase, createdAt: time, endedAt: maybe(time) })),
    orphaned: z.boolean(),
    policy: z.record(z.string(), json),
  })
  .meta({ id: "Handler" });

export const topic = z
  .object({
    topic: z.string(),
    output: z.boolean(),
    newestAt: maybe(time),
    pending: z.array(z.object({ consumer: z.string(), count, oldestAt: maybe(time) })),
  })
  .meta({ id: "Topic" });

export const binding = z
  .object({
    alias: z.string(),
    connector: z.string(),
    connection: maybe(z.string()),
    explicit: z.boolean(),
  })
  .meta({ id: "Binding" });

export const grant = z
  .object({ alias: z.string(), tool: z.string(), mode: z.enum(GRANT_MODES), connection: z.string() })
  .meta({ id: "Grant" });

export const workflow = z
  .object({
    namespace: z.string(),
    name: z.string(),
    description: z.string(),
    status: z.enum(["running", "idle", "needs_attention", "stopped"]),
    sentence: z.string(),
    schedule: z.array(z.string()),
    mode: z.enum(["auto", "step"]),
    paused: z.boolean(),
    archived: z.boolean(),
    activeVersion: z.int(),
    openRun,
    handlers: z.array(handler),
    topics: z.array(topic),
    counts: z.object({
      pending: count,
      reserved: count,
      dead: count,
      runs24h: count,
      failed24h: count,
      staleInputs: count,
    }),
    recent: z.array(status),
    nextDueAt: maybe(time),
    bindings: z.array(binding),
    grants: z.array(grant),
    params: z.record(z.string(), json),
    labels: z.record(z.string(), z.string()),
    createdAt: time,
    updatedAt: time,
  })
  .meta({ id: "Workflow" });

export const version = z
  .object({
    number: z.int(),
    hash: z.string(),
    language: z.enum(["ts", "js"]),
    scope: z.enum(["fresh", "frozen"]),
    active: z.boolean(),
    note: maybe(z.string()),
    createdAt: maybe(time),
  })
  .meta({ id: "Version" });

export const event = z
  .object({
    id: z.string(),
    topic: z.string(),
    messageId: z.string(),
    payload: json,
    revision: z.int(),
    seq: z.int(),
    hops: z.int(),
    run: maybe(z.string()),
    causedBy: z.array(z.string()),
    createdAt: time,
    updatedAt: time,
    deliveries: z.array(
      z.object({
        id: z.string(),
        consumer: z.string(),
        status: z.enum(DELIVERY_STATUSES),
        reservedBy: maybe(z.string()),
        attempts: z.int(),
      }),
    ),
  })
  .meta({ id: "Event" });

export const input = z
  .object({
    ...inputFace.shape,
    run: maybe(z.string()),
    createdAt: time,
    became: z.object({ pending: count, reserved: count, consumed: count, skipped: count, dead: count }),
  })
  .meta({ id: "Input" });

export const output = z
  .object({
    ...mutation.shape,
    run: z.string(),
    handler: z.string(),
    causedBy: z.array(inputFace),
    createdAt: time,
  })
  .omit({ evidence: true, reconcile: true })
  .meta({ id: "Output" });

export const inboxItem = z
  .object({
    id: z.string(),
    kind: z.enum(INBOX_KINDS),
    workflow: z.string(),
    run: z.string().optional(),
    handler: z.string().optional(),
    question: z.string(),
    since: time,
    actions: z.array(z.object({ name: z.string(), effect: z.string() })),
  })
  .meta({ id: "Inbox" });

export const health = z.object({
  status: z.enum(["ok", "unknown", "auth", "unreachable", "invalid"]),
  message: z.string().optional(),
  at: time,
});

export const connection = z
  .object({
    name: z.string(),
    connector: z.string(),
    config: json,
    configVersion: z.int(),
    hasSecrets: z.boolean(),
    lastCheck: maybe(health),
    createdAt: time,
    updatedAt: time,
  })
  .meta({ id: "Connection" });
