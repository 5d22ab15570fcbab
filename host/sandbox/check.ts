/**
 * Is this declaration a workflow? Every rule of an upload, each with the place in the author's file and what to do.
 * Reads plain data only; the manifest it returns is what the host believes from then on.
 */
import { z } from "zod";
import { nextFires } from "../core/cron.ts";
import { ERRORS, type ErrorCode } from "../core/errors.ts";
import { parseInterval } from "../core/schedule.ts";
import {
  CTX_MEMBERS,
  type Json,
  type Location,
  type Manifest,
  NAME_PATTERN,
  type Schedule,
} from "../core/workflow.ts";
import type { CompileReply } from "./compile-child.ts";

export type WarningCode = "unused-topic" | "no-ui-title" | "module-state";

export interface Problem {
  severity: "error" | "warning";
  code: ErrorCode | WarningCode;
  message: string;
  hint: string;
  location: Location;
}

const WARNINGS: Record<WarningCode, string> = {
  "unused-topic": "Publish to it, subscribe to it, or remove it.",
  "no-ui-title": "Return `ui: { title }` from prepare: it is what an operator reads.",
  "module-state": "Return state from the handler instead; module variables start anew in every run.",
};

export function problem(code: ErrorCode, message: string, location: Location): Problem {
  return { severity: "error", code, message, hint: ERRORS[code].fix, location };
}

const fn = z.object({ $kind: z.literal("function") });
const names = z.array(z.string());
const producer = z.strictObject({
  pawl: z.literal("producer"),
  schedule: z.union([
    z.strictObject({ interval: z.string() }),
    z.strictObject({ cron: z.string(), timezone: z.string().optional() }),
  ]),
  publishes: names.optional(),
  handler: fn,
});
const consumer = z.strictObject({
  pawl: z.literal("consumer"),
  subscribes: names.min(1),
  publishes: names.optional(),
  prepare: fn,
  mutate: fn.optional(),
  next: fn.optional(),
});
const declaration = z.strictObject({
  pawl: z.literal("workflow"),
  name: z.string(),
  description: z.string().max(2_000).optional(),
  connections: z.record(z.string(), z.string()).optional(),
  topics: z
    .record(
      z.string(),
      z.strictObject({
        pawl: z.literal("topic"),
        schema: z.json().optional(),
        output: z.boolean().optional(),
      }),
    )
    .optional(),
  params: z
    .record(
      z.string(),
      z.strictObject({
        type: z.enum(["string", "number", "boolean"]),
        default: z.union([z.string(), z.number(), z.boolean()]).optional(),
        description: z.string().optional(),
      }),
    )
    .optional(),
  hooks: z
    .record(z.string(), z.strictObject({ alias: z.string(), topic: z.string(), messageId: z.string() }))
    .optional(),
  producers: z.record(z.string(), producer).optional(),
  consumers: z.record(z.string(), consumer).optional(),
});
type Declaration = z.infer<typeof declaration>;

export interface CheckOptions {
  nowMs: number;
  minIntervalMs: number;
  name?: string;
}

type Read = Extract<CompileReply, { ok: true }>;

export function checkDeclaration(
  read: Read,
  options: CheckOptions,
): { manifest?: Manifest; problems: Problem[] } {
  const problems: Problem[] = [];
  const at = (path: string): Location => {
    for (let part = path; ; part = part.slice(0, Math.max(0, part.lastIndexOf(".")))) {
      const found = read.positions[part];
      if (found) return found;
      if (part === "") return { line: 1, column: 1 };
    }
  };
  const say = (code: ErrorCode, path: string, message: string) =>
    problems.push(problem(code, message, at(path)));
  const raw = JSON.parse(read.declaration) as unknown;
  if (typeof raw !== "object" || raw === null || (raw as { pawl?: unknown }).pawl !== "workflow") {
    say("not-a-workflow", "", "the default export was not made by workflow()");
    return { problems };
  }
  const parsed = declaration.safeParse(raw);
  if (!parsed.success) {
    for (const issue of parsed.error.issues) shapeProblem(issue, "", say);
    return { problems };
  }
  const given = parsed.data;
  checkNames(given, options, say);
  checkTopics(given, say);
  const schedules = checkSchedules(given, options, say);
  checkAliases(given, say);
  if (problems.length > 0) return { problems };
  return { manifest: manifestOf(given, schedules, at), problems: warningsOf(given, read, at) };
}

type Say = (code: ErrorCode, path: string, message: string) => void;

function shapeProblem(issue: z.core.$ZodIssue, parent: string, say: Say): void {
  const path = [parent, ...issue.path.map(String)].filter((part) => part !== "").join(".");
  if (issue.code === "unrecognized_keys") {
    for (const key of issue.keys)
      say(
        "unknown-field",
        `${path}.${key}`.replace(/^\./, ""),
        `${path || "the workflow"} has no field ${JSON.stringify(key)}`,
      );
    return;
  }
  if (
    issue.code === "invalid_union" &&
    issue.errors.length > 0 &&
    issue.errors.every((one) => one.length > 0)
  )
    return say("manifest-invalid", path, `${path} must be { interval } or { cron, timezone }`);
  const wrapped = issue.code === "invalid_value" && path.endsWith(".pawl");
  const owner = path.replace(/\.pawl$/, "");
  if (wrapped)
    return say("manifest-invalid", owner, `${owner} must be made by ${String(issue.values[0])}({ … })`);
  say(
    "manifest-invalid",
    path,
    `${path || "the workflow"}: ${issue.message.replace(/^Invalid input: /, "")}`,
  );
}

function checkNames(given: Declaration, options: CheckOptions, say: Say): void {
  const check = (name: string, path: string, what: string) => {
    if (!NAME_PATTERN.test(name))
      say("bad-name", path, `${what} cannot be named ${JSON.stringify(name.slice(0, 80))}`);
  };
  check(given.name, "name", "a workflow");
  if (options.name !== undefined && options.name !== given.name)
    say(
      "bad-name",
      "name",
      `the script says ${JSON.stringify(given.name)} but is deployed as ${JSON.stringify(options.name)}`,
    );
  for (const [group, what] of [
    ["connections", "a connection"],
    ["topics", "a topic"],
    ["params", "a param"],
    ["hooks", "a hook"],
    ["producers", "a producer"],
    ["consumers", "a consumer"],
  ] as const)
    for (const name of Object.keys(given[group] ?? {})) check(name, `${group}.${name}`, what);
  if (Object.keys(given.producers ?? {}).length + Object.keys(given.consumers ?? {}).length === 0)
    say("no-handlers", "", "the workflow declares no producer and no consumer");
  for (const [name, param] of Object.entries(given.params ?? {}))
    if (param.default !== undefined && typeof param.default !== param.type)
      say("manifest-invalid", `params.${name}.default`, `the default of ${name} is not a ${param.type}`);
}

function checkTopics(given: Declaration, say: Say): void {
  const topics = given.topics ?? {};
  const uses = (
    group: "producers" | "consumers",
    field: "publishes" | "subscribes",
  ): [path: string, topic: string][] =>
    Object.entries(given[group] ?? {}).flatMap(([name, one]) =>
      (((one as Record<string, unknown>)[field] as string[] | undefined) ?? []).map(
        (topic, i): [string, string] => [`${group}.${name}.${field}.${i}`, topic],
      ),
    );
  const published = [...uses("producers", "publishes"), ...uses("consumers", "publishes")];
  const subscribed = uses("consumers", "subscribes");
  const hooked = Object.entries(given.hooks ?? {}).map(([name, hook]): [string, string] => [
    `hooks.${name}.topic`,
    hook.topic,
  ]);
  for (const [path, topic] of [...published, ...subscribed, ...hooked])
    if (!Object.hasOwn(topics, topic))
      say("undeclared-topic", path, `the topic ${JSON.stringify(topic)} is not declared`);
  for (const [name, topic] of Object.entries(topics)) {
    const fed = [...published, ...hooked].some(([, one]) => one === name);
    if (fed && topic.output !== true && !subscribed.some(([, one]) => one === name))
      say(
        "topic-without-subscriber",
        `topics.${name}`,
        `nobody subscribes to the topic ${JSON.stringify(name)}`,
      );
  }
}

function checkSchedules(given: Declaration, options: CheckOptions, say: Say): Record<string, Schedule> {
  const schedules: Record<string, Schedule> = {};
  for (const [name, { schedule }] of Object.entries(given.producers ?? {})) {
    const path = `producers.${name}.schedule`;
    if ("interval" in schedule) {
      const intervalMs = parseInterval(schedule.interval);
      if (intervalMs === undefined)
        say(
          "bad-interval",
          `${path}.interval`,
          `cannot read the interval ${JSON.stringify(schedule.interval)}`,
        );
      else if (intervalMs < options.minIntervalMs)
        say(
          "interval-too-short",
          `${path}.interval`,
          `${schedule.interval} is below the minimum of ${options.minIntervalMs / 1000} s`,
        );
      else schedules[name] = { interval: schedule.interval, intervalMs };
      continue;
    }
    const timezone = schedule.timezone ?? "UTC";
    if (!zoneExists(timezone)) {
      say("bad-timezone", `${path}.timezone`, `there is no time zone ${JSON.stringify(timezone)}`);
      continue;
    }
    const reading = nextFires(schedule.cron, timezone, options.nowMs, 3);
    if ("problem" in reading)
      say(
        reading.problem === "never" ? "cron-never-fires" : "bad-cron",
        `${path}.cron`,
        reading.problem === "never"
          ? `${JSON.stringify(schedule.cron)} never fires`
          : `cannot read the cron pattern ${JSON.stringify(schedule.cron)}`,
      );
    else if (
      reading.fires.some(
        (fire, i) => i > 0 && fire - (reading.fires[i - 1] as number) < options.minIntervalMs,
      )
    )
      say(
        "cron-too-often",
        `${path}.cron`,
        `${JSON.stringify(schedule.cron)} fires more often than every ${options.minIntervalMs / 1000} s`,
      );
    else schedules[name] = { cron: schedule.cron, timezone };
  }
  return schedules;
}

function checkAliases(given: Declaration, say: Say): void {
  const connections = given.connections ?? {};
  for (const alias of Object.keys(connections))
    if ((CTX_MEMBERS as readonly string[]).includes(alias))
      say("reserved-alias", `connections.${alias}`, `ctx.${alias} exists already`);
  for (const [name, hook] of Object.entries(given.hooks ?? {})) {
    if (!Object.hasOwn(connections, hook.alias))
      say(
        "undeclared-alias",
        `hooks.${name}.alias`,
        `the alias ${JSON.stringify(hook.alias)} is not declared`,
      );
    else if (connections[hook.alias] !== "webhook")
      say(
        "undeclared-alias",
        `hooks.${name}.alias`,
        `the alias ${JSON.stringify(hook.alias)} is not a webhook connection`,
      );
  }
}

function warningsOf(given: Declaration, read: Read, at: (path: string) => Location): Problem[] {
  const warn = (code: WarningCode, message: string, location: Location): Problem => ({
    severity: "warning",
    code,
    message,
    hint: WARNINGS[code],
    location,
  });
  const used = new Set([
    ...Object.values(given.producers ?? {}).flatMap((one) => one.publishes ?? []),
    ...Object.values(given.consumers ?? {}).flatMap((one) => [...(one.publishes ?? []), ...one.subscribes]),
    ...Object.values(given.hooks ?? {}).map((hook) => hook.topic),
  ]);
  return [
    ...Object.keys(given.topics ?? {})
      .filter((name) => !used.has(name))
      .map((name) =>
        warn("unused-topic", `nothing uses the topic ${JSON.stringify(name)}`, at(`topics.${name}`)),
      ),
    ...read.untitled.map((name) =>
      warn("no-ui-title", `the consumer ${name} never gives its work a title`, at(`consumers.${name}`)),
    ),
    ...read.warnings.map((one) => warn("module-state", one.message, { line: one.line, column: one.column })),
  ];
}

function manifestOf(
  given: Declaration,
  schedules: Record<string, Schedule>,
  at: (path: string) => Location,
): Manifest {
  const each = <T, R>(
    group: Record<string, T> | undefined,
    make: (one: T, name: string) => R,
  ): Record<string, R> =>
    Object.fromEntries(Object.entries(group ?? {}).map(([name, one]) => [name, make(one, name)]));
  return {
    name: given.name,
    description: given.description ?? "",
    connections: { ...given.connections },
    topics: each(given.topics, (topic) => ({
      output: topic.output ?? false,
      ...(topic.schema === undefined ? {} : { schema: topic.schema as Json }),
    })),
    params: each(given.params, (param) => ({
      type: param.type,
      ...(param.default === undefined ? {} : { default: param.default }),
      ...(param.description === undefined ? {} : { description: param.description }),
    })),
    hooks: { ...given.hooks },
    producers: each(given.producers, (one, name) => ({
      schedule: schedules[name] as Schedule,
      publishes: one.publishes ?? [],
      location: at(`producers.${name}`),
    })),
    consumers: each(given.consumers, (one, name) => ({
      subscribes: one.subscribes,
      publishes: one.publishes ?? [],
      hasMutate: one.mutate !== undefined,
      hasNext: one.next !== undefined,
      location: at(`consumers.${name}`),
    })),
  };
}

function zoneExists(name: string): boolean {
  try {
    new Intl.DateTimeFormat("en", { timeZone: name });
    return true;
  } catch {
    return false;
  }
}
