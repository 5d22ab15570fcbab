/**
 * The fields of a policy: one row each (04). A row is the only place that knows a field: its shape and bounds, the
 * units it acts on, its default there, and whether anything enforces it yet. Types, parsing, resolving, explaining and
 * the documentation are read off this table.
 *
 * P1. Every default fits its own shape and contradicts no other default.
 * P2. A field acts on the units its row names and on no other.
 */
import type { BackoffPolicy } from "./backoff.ts";
import {
  choice,
  errors,
  flag,
  innerPolicy,
  json,
  oneOf,
  partial,
  record,
  type Shape,
  tags,
  text,
  whole,
  wholeOr,
} from "./policy-shape.ts";
import { type Json, NAME_PATTERN } from "./workflow.ts";

/** What a policy acts on: the phases of a script, the calls it makes, and the check after an unknown outcome. */
export const UNITS = ["producer", "prepare", "mutate", "next", "read", "mutation", "check"] as const;
export type Unit = (typeof UNITS)[number];
/** A few fields belong to a workflow as a whole and are resolved once for it. */
export type Scope = Unit | "workflow";
export const SCOPES: readonly Scope[] = [...UNITS, "workflow"];

const PHASES = ["producer", "prepare", "mutate", "next"] as const;
/** A check has its own budget: `check.maxAttempts` of its mutation. */
const RETRIED = [...PHASES, "read", "mutation"] as const;
/** What belongs to a handler or a chain is read from the unit that starts it. */
const FIRST = ["producer", "prepare"] as const;
const CALLS = ["read", "mutation"] as const;

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const MB = 1_048_576;

export interface FieldRow<Given = unknown, Effective = unknown, On extends Scope = Scope> {
  appliesTo: readonly On[];
  shape: Shape<Given, Effective>;
  default: NoInfer<Effective>;
  defaultOn?: Partial<Record<NoInfer<On>, NoInfer<Effective>>>;
  /** Where a unit can carry out only some of the values (or forms); any other is as the default there. */
  valuesOn?: Partial<Record<NoInfer<On>, readonly string[]>>;
  /** False: parsed and validated, and refused when saved, until the engine acts on it. */
  enforced: boolean;
  /** Values of an enforced field that are not enforced themselves. */
  notYet?: readonly string[];
  /** May stand in `fallback.retryWith.policy`: what one more try, under the same timeout and deadline, can change. */
  inRetryWith?: boolean;
  doc: string;
}

function field<Given, Effective, const On extends Scope>(row: FieldRow<Given, Effective, On>) {
  return row;
}

const KEY = text("a key of letters, digits and _ . : -, at most 128", /^[a-zA-Z0-9][a-zA-Z0-9_.:-]{0,127}$/);
const NAME = text("a name", NAME_PATTERN);

export const POLICY_FIELDS = {
  maxRetries: field({
    appliesTo: RETRIED,
    shape: whole("times", { min: 0, max: 1_000 }),
    default: 12,
    defaultOn: { read: 2 },
    enforced: true,
    doc: "Automatic retries. Read tools: in place, within the phase. Phases: new runs. Mutation tools: only on proof that nothing happened.",
  }),
  backoff: field({
    appliesTo: RETRIED,
    shape: choice<BackoffPolicy["backoff"]>("none", "linear", "exponential", "jitter"),
    default: "jitter",
    enforced: true,
    doc: "How the wait grows with retry n: linear base·(n+1), exponential base·2^n, jitter random(1..base·2^n).",
  }),
  baseDelayMs: field({
    appliesTo: RETRIED,
    shape: whole("ms", { min: 0, max: DAY, notAbove: "maxDelayMs" }),
    default: 2 * SECOND,
    enforced: true,
    doc: "The base of the backoff.",
  }),
  maxDelayMs: field({
    appliesTo: RETRIED,
    shape: whole("ms", { min: 0, max: 7 * DAY }),
    default: 15 * MINUTE,
    enforced: true,
    doc: "The longest wait between two attempts.",
  }),
  timeoutMs: field({
    appliesTo: UNITS,
    shape: wholeOr("ms", { min: 1, max: HOUR, cappedByHost: true }, ["infinity"]),
    default: 60 * SECOND,
    defaultOn: { read: 15 * SECOND, mutation: 120 * SECOND, check: 15 * SECOND },
    enforced: true,
    doc: "How long the unit may take. Before a call leaves: transient or logic; after: unknown. Waiting for a limit does not count.",
  }),
  queueTimeoutMs: field({
    appliesTo: PHASES,
    shape: wholeOr("ms", { min: 1, max: 30 * DAY }, ["none"]),
    default: "none",
    enforced: false,
    doc: "The longest time in the ready queue.",
  }),
  delayMs: field({
    appliesTo: PHASES,
    shape: whole("ms", { min: 0, max: 30 * DAY, notAbove: "deadlineMs" }),
    default: 0,
    enforced: false,
    doc: "The earliest start, counted from when the unit became ready.",
  }),
  deadlineMs: field({
    appliesTo: FIRST,
    shape: wholeOr("ms", { min: 1, max: 365 * DAY }, ["none"]),
    default: "none",
    enforced: true,
    doc: "Of the chain, from its start, its last human act or deploy. Caps timeouts; stands still while a person decides; never past the boundary.",
  }),
  retryOn: field({
    appliesTo: RETRIED,
    shape: errors(true),
    default: ["transient"],
    enforced: true,
    doc: "Error classes or codes that are retried.",
  }),
  neverRetryOn: field({
    appliesTo: RETRIED,
    shape: errors(false),
    default: [],
    enforced: true,
    doc: "Error classes or codes that are not retried, whatever `retryOn` says.",
  }),
  onFailure: field({
    appliesTo: [...PHASES, "read"],
    shape: choice("halt", "skip", "deadLetter", "fallback"),
    default: "halt",
    valuesOn: {
      producer: ["halt", "skip", "fallback"],
      prepare: ["halt", "skip", "fallback"],
      mutate: ["halt", "skip", "deadLetter", "fallback"],
      next: ["halt"],
      read: ["halt", "skip", "fallback"],
    },
    enforced: true,
    notYet: ["fallback"],
    doc: "When retries are spent; never for an unknown outcome. `mutate` decides for its call too: skip = next(skipped), deadLetter = deliveries dead.",
  }),
  fallback: field({
    appliesTo: [...FIRST, "mutate", "read"],
    shape: oneOf(
      {
        value: json,
        retryWith: partial({ params: json, connection: NAME, policy: innerPolicy }),
        function: NAME,
      },
      ["none"],
    ),
    default: "none",
    valuesOn: { mutate: ["none", "retryWith", "function"] },
    enforced: false,
    doc: "With `onFailure: fallback`: a value instead, or one more try under the same timeout and deadline. Never a value for a mutation.",
  }),
  circuitBreaker: field({
    appliesTo: CALLS,
    shape: record(
      {
        name: KEY,
        failureThreshold: whole("times", { min: 1, max: 10_000 }),
        resetTimeoutMs: whole("ms", { min: 1, max: DAY }),
        onOpen: choice("wait", "fail"),
      },
      ["none"],
    ),
    default: "none",
    enforced: false,
    inRetryWith: true,
    doc: "Named per namespace, shared across workflows and restarts; counts transient failures only.",
  }),
  rateLimit: field({
    appliesTo: [...PHASES, ...CALLS],
    shape: record(
      {
        count: whole("times", { min: 1, max: 1_000_000 }),
        windowMs: whole("ms", { min: 1, max: DAY }),
        key: KEY,
      },
      ["none"],
    ),
    default: "none",
    enforced: false,
    inRetryWith: true,
    doc: "So many starts per window, shared by key within the namespace; a limited call waits.",
  }),
  concurrencyLimit: field({
    appliesTo: [...PHASES, ...CALLS],
    shape: record({ limit: whole("times", { min: 1, max: 10_000 }), key: KEY }, ["none"]),
    default: "none",
    enforced: false,
    inRetryWith: true,
    doc: "So many at once, shared by key within the namespace; a limited call waits.",
  }),
  priority: field({
    appliesTo: FIRST,
    shape: choice("high", "normal", "low"),
    default: "normal",
    enforced: true,
    doc: "Dispatch order of the handler's runs.",
  }),
  executor: field({
    appliesTo: FIRST,
    shape: choice("pool", "dedicated"),
    default: "pool",
    enforced: false,
    doc: "A shared sandbox process, or one of the handler's own.",
  }),
  checkpoint: field({
    appliesTo: ["workflow"],
    shape: oneOf({ everyN: whole("times", { min: 1, max: 100_000 }) }, ["every", "onComplete", "manual"]),
    default: "every",
    enforced: false,
    doc: "When a barrier and a snapshot follow Changes of level `committed`.",
  }),
  stepping: field({
    appliesTo: ["workflow"],
    shape: oneOf({ firstRuns: whole("times", { min: 1, max: 1_000_000 }) }, ["none", "every"]),
    default: "none",
    enforced: false,
    doc: "Step mode: every run, or the first runs of each version, are held before each unit.",
  }),
  limits: field({
    appliesTo: PHASES,
    shape: partial({
      cpuMs: whole("ms", { min: 10, max: 60 * SECOND }),
      memoryMb: whole("MB", { min: 8, max: 1_024 }),
      logBytes: whole("bytes", { min: 0, max: 16 * MB }),
      resultBytes: whole("bytes", { min: 256, max: 16 * MB }),
      stateBytes: whole("bytes", { min: 2, max: 16 * MB }),
      hostCalls: whole("times", { min: 0, max: 100_000 }),
      maxPublishes: whole("times", { min: 0, max: 100_000 }),
      maxHops: whole("times", { min: 1, max: 10_000 }),
    }),
    default: {
      cpuMs: 2 * SECOND,
      memoryMb: 64,
      logBytes: 400_000,
      resultBytes: MB,
      stateBytes: 262_144,
      hostCalls: 1_000,
      maxPublishes: 1_000,
      maxHops: 100,
    },
    enforced: true,
    inRetryWith: true,
    doc: "What a script phase may use up in the sandbox.",
  }),
  check: field({
    appliesTo: ["mutation"],
    shape: partial({
      maxAttempts: whole("times", { min: 0, max: 1_000 }),
      baseDelayMs: whole("ms", { min: 1, max: DAY, notAbove: "maxDelayMs" }),
      maxDelayMs: whole("ms", { min: 1, max: 7 * DAY }),
      maxElapsedMs: whole("ms", { min: 1, max: 30 * DAY }),
      settleMs: whole("ms", { min: 0, max: DAY, notAbove: "maxElapsedMs" }),
    }),
    default: {
      maxAttempts: 6,
      baseDelayMs: 10 * SECOND,
      maxDelayMs: 10 * MINUTE,
      maxElapsedMs: DAY,
      settleMs: 30 * SECOND,
    },
    enforced: true,
    inRetryWith: true,
    doc: "Reconciliation of an unknown outcome: checks in all, the first at once; `notApplied` is believed only after `settleMs`, or the tool's own if longer.",
  }),
  autofix: field({
    appliesTo: ["workflow"],
    shape: partial({
      enabled: flag,
      maxAttempts: whole("times", { min: 1, max: 100 }),
      maxElapsedMs: whole("ms", { min: SECOND, max: 30 * DAY }),
    }),
    default: { enabled: false, maxAttempts: 3, maxElapsedMs: HOUR },
    enforced: false,
    doc: "Budget of `fix.requested`.",
  }),
  minWakeMs: field({
    appliesTo: ["prepare"],
    shape: whole("ms", { min: SECOND, max: 31 * DAY, notAbove: "maxWakeMs" }),
    default: 30 * SECOND,
    enforced: true,
    doc: "A `wakeAt` earlier than this from now is moved to it.",
  }),
  maxWakeMs: field({
    appliesTo: ["prepare"],
    shape: whole("ms", { min: SECOND, max: 31 * DAY }),
    default: DAY,
    enforced: true,
    doc: "A `wakeAt` later than this from now is moved to it.",
  }),
  minIntervalMs: field({
    appliesTo: ["producer"],
    shape: whole("ms", { min: SECOND, max: 31 * DAY }),
    default: 30 * SECOND,
    enforced: true,
    doc: "A schedule that fires more often is refused at deploy.",
  }),
  metadata: field({
    appliesTo: UNITS,
    shape: tags,
    default: {},
    enforced: true,
    inRetryWith: true,
    doc: "Goes to logs, traces and metrics.",
  }),
  logLevel: field({
    appliesTo: UNITS,
    shape: choice("debug", "info", "warn", "error"),
    default: "info",
    enforced: false,
    inRetryWith: true,
    doc: "The least level that is written.",
  }),
};

type Table = typeof POLICY_FIELDS;
export type PolicyField = keyof Table;

/** As a rule says it. */
export type Policy = { readonly [F in PolicyField]?: NonNullable<Table[F]["shape"]["__given"]> };

type FieldOn<S extends Scope> = {
  [F in PolicyField]: [S] extends [Table[F]["appliesTo"][number]] ? F : never;
}[PolicyField];

/** As the engine finds it: every field of that unit, and no other (P2). */
export type EffectivePolicy<S extends Scope> = {
  readonly [F in FieldOn<S>]: NonNullable<Table[F]["shape"]["__effective"]>;
};

export const FIELD_NAMES = Object.keys(POLICY_FIELDS) as readonly PolicyField[];

/** A row without its own types, for code that walks the table. */
export function rowOf(name: PolicyField): FieldRow<Json, Json> {
  return POLICY_FIELDS[name] as unknown as FieldRow<Json, Json>;
}

export function isPolicyField(name: string): name is PolicyField {
  return Object.hasOwn(POLICY_FIELDS, name);
}

/** Merged entry by entry over what lies below; every other field is replaced as a whole. */
export function isMerged(name: PolicyField): boolean {
  const { shape } = rowOf(name);
  return shape.kind === "tags" || (shape.kind === "object" && shape.needs === "some");
}

export const PRESETS = {
  llm: { maxRetries: 3, backoff: "exponential", baseDelayMs: 1_000, maxDelayMs: 30_000, timeoutMs: 30_000 },
  io: { maxRetries: 2, backoff: "linear", baseDelayMs: 500, timeoutMs: 10_000, onFailure: "skip" },
  fastFail: { maxRetries: 0, timeoutMs: 5_000, onFailure: "halt" },
  critical: {
    maxRetries: 24,
    backoff: "jitter",
    baseDelayMs: 5_000,
    maxDelayMs: 3_600_000,
    onFailure: "halt",
    priority: "high",
  },
} as const satisfies Record<string, Policy>;

export type PresetName = keyof typeof PRESETS;
export const PRESET_NAMES = Object.keys(PRESETS) as readonly PresetName[];
