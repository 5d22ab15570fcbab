/**
 * The shape of a declaration as it left the sandbox: plain data with markers for functions and for what is not data.
 * Knows what each part must be, and says in an author's words how a value differs.
 */
import { z } from "zod";
import type { ErrorCode } from "../core/errors.ts";
import { stepsOf } from "../core/hook.ts";
import { nearestName } from "../core/nearest.ts";

/** Reports one problem at a path of the declaration. */
export type Say = (code: ErrorCode, path: string, message: string, hint?: string) => void;

/** What `manifest()` of the prelude puts in the place of a value that is not data. */
const NOT_DATA = ["function", "bigint", "symbol", "NaN", "Infinity", "-Infinity"];
const MAX_DESCRIPTION = 2_000;

// The text after "must be" stands with each type.
const text = z.string("a text");
const fn = z.custom((value) => marker(value) === "function", "a function");
const names = z.array(z.string("the name of a topic"), "a list of topic names");
const group = <T extends z.ZodType>(kind: string, one: T) =>
  z.record(z.string(), one, `an object: name → ${kind}`).optional();

const producer = z.strictObject(
  {
    pawl: z.literal("producer"),
    schedule: z.strictObject(
      { interval: text.optional(), cron: text.optional(), timezone: text.optional() },
      "{ interval } or { cron, timezone }",
    ),
    publishes: names.optional(),
    handler: fn,
  },
  "made by producer({ … })",
);
const consumer = z.strictObject(
  {
    pawl: z.literal("consumer"),
    subscribes: names.min(1, "a list of at least one topic name"),
    publishes: names.optional(),
    prepare: fn,
    mutate: fn.optional(),
    next: fn.optional(),
  },
  "made by consumer({ … })",
);
const topic = z.strictObject(
  {
    pawl: z.literal("topic"),
    schema: z
      .union([z.record(z.string(), z.json()), z.boolean()], "a JSON Schema, which is an object")
      .optional(),
    output: z.boolean("true or false").optional(),
  },
  "made by topic()",
);
const param = z.strictObject(
  {
    type: z.enum(["string", "number", "boolean"], '"string", "number" or "boolean"'),
    default: z.union([z.string(), z.number(), z.boolean()], "a text, a number or a boolean").optional(),
    description: text.optional(),
  },
  "an object like { type, default }",
);
const hook = z.strictObject(
  {
    alias: text,
    topic: text,
    messageId: z
      .string("a path into the body")
      .refine((path) => stepsOf(path) !== undefined, 'a path into the body, like "$.id"'),
  },
  "an object like { alias, topic, messageId }",
);
const declaration = z.strictObject({
  pawl: z.literal("workflow"),
  name: text,
  description: text.max(MAX_DESCRIPTION, `at most ${MAX_DESCRIPTION} characters long`).optional(),
  connections: group("connector", z.string("the name of a connector")),
  topics: group("topic()", topic),
  params: group("{ type, default }", param),
  hooks: group("{ alias, topic, messageId }", hook),
  producers: group("producer({ … })", producer),
  consumers: group("consumer({ … })", consumer),
});
export type Declaration = z.infer<typeof declaration>;

const FIELDS: Record<string, string[]> = {
  "": Object.keys(declaration.shape),
  producers: Object.keys(producer.shape),
  consumers: Object.keys(consumer.shape),
  topics: Object.keys(topic.shape),
  params: Object.keys(param.shape),
  hooks: Object.keys(hook.shape),
};

/** JSON text can carry this name; an object made from it cannot. */
const GROUPS = ["connections", "topics", "params", "hooks", "producers", "consumers"];

/** The declaration, or `undefined` when something was said. */
export function readDeclaration(raw: unknown, say: Say): Declaration | undefined {
  if ((raw as { pawl?: unknown } | null)?.pawl !== "workflow") {
    say("not-a-workflow", "", `the default export is ${described(raw)}, not a workflow`);
    return undefined;
  }
  const lost = GROUPS.filter((group) =>
    Object.hasOwn(Object((raw as Record<string, unknown>)[group]), "__proto__"),
  );
  for (const group of lost) say("bad-name", `${group}.__proto__`, `nothing can be named "__proto__"`);
  if (lost.length > 0) return undefined;
  const parsed = declaration.safeParse(raw);
  if (!parsed.success) {
    for (const issue of withoutEchoes(parsed.error.issues, raw)) shapeProblem(issue, raw, say);
    return undefined;
  }
  const bad = Object.entries(parsed.data.topics ?? {}).flatMap(([name, one]) =>
    strangers(one.schema, `topics.${name}.schema`),
  );
  for (const [path, what] of bad)
    say("manifest-invalid", path, `${path} is ${what}, which is not plain data`, "Write JSON values only.");
  return bad.length > 0 ? undefined : parsed.data;
}

/** One mistake, one problem: leaves out what only follows from another issue. */
function withoutEchoes(issues: z.core.$ZodIssue[], raw: unknown): z.core.$ZodIssue[] {
  const foreign = issues.filter((one) => one.path.at(-1) === "pawl").map((one) => pathOf(one, -1));
  const meant = issues.flatMap((one) =>
    one.code === "unrecognized_keys"
      ? one.keys.map((key) => [...one.path, nearestName(key, fieldsAt(one.path.map(String)))].join("."))
      : [],
  );
  return issues.filter((one) => {
    const path = pathOf(one);
    const inForeign = foreign.some((owner) => path === owner || path.startsWith(`${owner}.`));
    if (inForeign) return one.path.at(-1) === "pawl";
    return !(valueAt(raw, one.path.map(String)) === undefined && meant.includes(path));
  });
}

function pathOf(issue: z.core.$ZodIssue, end?: number): string {
  return issue.path.slice(0, end).join(".");
}

function shapeProblem(issue: z.core.$ZodIssue, raw: unknown, say: Say): void {
  const path = issue.path.map(String);
  if (issue.code === "unrecognized_keys") {
    for (const key of issue.keys) unknownField(path, key, say);
    return;
  }
  const last = path.at(-1) ?? "";
  if (last === "$kind" || last === "pawl") path.pop();
  const named = path.join(".");
  const name = path.at(-1) ?? "";
  const value = valueAt(raw, path);
  if (last === "$kind")
    return say(
      "manifest-invalid",
      named,
      `${named} must be an object, not ${described(value)}`,
      `Write \`${name}: { … }\`.`,
    );
  if (last === "pawl" || issue.message.startsWith("made by")) {
    const call = path[0] === "topics" ? "topic()" : `${path[0]?.replace(/s$/, "")}({ … })`;
    return say(
      "manifest-invalid",
      named,
      `${named} must be made by ${call}, not ${described(value)}`,
      `Write \`${name}: ${call}\`.`,
    );
  }
  if (value === undefined) {
    const owner = path.slice(0, -1).join(".") || "the workflow";
    const hint = `Add \`${name}\`; it must be ${issue.message}.`;
    return say("manifest-invalid", named, `${owner} has no \`${name}\``, hint);
  }
  const given = typeof value === "string" && value.length < 60 ? JSON.stringify(value) : described(value);
  const counted = issue.code === "too_big" || issue.code === "too_small";
  say(
    "manifest-invalid",
    named,
    `${named} must be ${issue.message}${counted ? "" : `, not ${given}`}`,
    `Make \`${name}\` ${issue.message}.`,
  );
}

function fieldsAt(path: string[]): string[] {
  const fields = path.at(-1) === "schedule" ? ["interval", "cron", "timezone"] : FIELDS[path[0] ?? ""];
  return (fields ?? []).filter((field) => field !== "pawl");
}

function unknownField(path: string[], key: string, say: Say): void {
  const known = fieldsAt(path);
  const close = nearestName(key, known);
  say(
    "unknown-field",
    [...path, key].join("."),
    `${path.join(".") || "the workflow"} has no field ${JSON.stringify(key)}`,
    close === undefined ? `Remove it; the fields are ${known.join(", ")}.` : `Did you mean \`${close}\`?`,
  );
}

function strangers(value: unknown, path: string): [path: string, what: string][] {
  if (marker(value) !== undefined) return [[path, described(value)]];
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, part]) => strangers(part, `${path}.${key}`));
}

function marker(value: unknown): string | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const { $kind: kind, ...rest } = value as { $kind?: unknown };
  return NOT_DATA.includes(kind as string) && Object.keys(rest).length === 0 ? (kind as string) : undefined;
}

function described(value: unknown): string {
  const kind = marker(value);
  if (kind !== undefined) return /^[a-z]/.test(kind) ? `a ${kind}` : kind;
  if (value === null) return "null";
  if (Array.isArray(value)) return "a list";
  if (typeof value === "string") return "a text";
  if (typeof value !== "object") return `the ${typeof value} ${JSON.stringify(value)}`;
  const { pawl } = value as { pawl?: unknown };
  return typeof pawl === "string" ? `a ${pawl.slice(0, 20)}` : "an object";
}

function valueAt(raw: unknown, path: string[]): unknown {
  let value = raw;
  for (const step of path) value = (value as Record<string, unknown> | null | undefined)?.[step];
  return value;
}
