/**
 * Is this declaration a workflow? Every rule of an upload, each with the place in the author's file and what to do.
 * Reads plain data only; the manifest it returns is what the host believes from then on.
 */
import { ERRORS, type ErrorCode } from "../core/errors.ts";
import { nearestName } from "../core/nearest.ts";
import { readSchedule } from "../core/schedule.ts";
import {
  CTX_MEMBERS,
  type Json,
  type Location,
  type Manifest,
  NAME_PATTERN,
  type Schedule,
} from "../core/workflow.ts";
import type { Problem, WarningCode } from "../ports/sandbox.ts";
import type { CompileReply } from "./compile-child.ts";
import { type Declaration, readDeclaration, type Say } from "./declaration.ts";

const WARNINGS: Record<WarningCode, string> = {
  "unused-topic": "Publish to it, subscribe to it, or remove it.",
  "no-ui-title": "Return `ui: { title }` from prepare: it is what an operator reads.",
  "module-state": "Return state from the handler instead; module variables start anew in every run.",
};

/** `hint`: what to do, where it can be said better than for every problem of this code. */
export function problem(code: ErrorCode, message: string, location: Location, hint?: string): Problem {
  return { severity: "error", code, message, hint: hint ?? ERRORS[code].fix, location };
}

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
      const found = Object.hasOwn(read.positions, part) ? read.positions[part] : undefined;
      if (found) return found;
      if (part === "") return { line: 1, column: 1 };
    }
  };
  const say: Say = (code, path, message, hint) => problems.push(problem(code, message, at(path), hint));
  for (const { message, line, column } of read.duplicates)
    problems.push(problem("duplicate-name", message, { line, column }));
  const given = readDeclaration(JSON.parse(read.declaration) as unknown, say);
  if (!given) return { problems };
  checkNames(given, options, say);
  checkTopics(given, say);
  const schedules = checkSchedules(given, options, say);
  checkAliases(given, say);
  if (problems.length > 0) return { problems };
  return { manifest: manifestOf(given, schedules, at), problems: warningsOf(given, read, at) };
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
      "Make the two names equal.",
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
  for (const [alias, connector] of Object.entries(given.connections ?? {}))
    check(connector, `connections.${alias}`, "a connector");
  if (Object.keys(given.producers ?? {}).length + Object.keys(given.consumers ?? {}).length === 0)
    say("no-handlers", "", "the workflow declares no producer and no consumer");
  for (const [name, param] of Object.entries(given.params ?? {}))
    if (param.default !== undefined && typeof param.default !== param.type)
      say(
        "manifest-invalid",
        `params.${name}.default`,
        `the default of ${name} is not a ${param.type}`,
        `Write a ${param.type}, or change \`type\`.`,
      );
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
    if (!Object.hasOwn(topics, topic)) {
      const close = nearestName(topic, Object.keys(topics));
      say(
        "undeclared-topic",
        path,
        `the topic ${JSON.stringify(topic)} is not declared`,
        close === undefined ? undefined : `Did you mean ${JSON.stringify(close)}?`,
      );
    }
  for (const list of [published, subscribed])
    for (const [i, [path, topic]] of list.entries())
      if (
        list
          .slice(0, i)
          .some(([before, one]) => one === topic && before.split(".", 2).join() === path.split(".", 2).join())
      )
        say("duplicate-name", path, `the topic ${JSON.stringify(topic)} stands twice in this list`);
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
    const { interval, cron, timezone } = schedule;
    const either = (at: string, message: string) =>
      say("manifest-invalid", at, message, "Write either { interval } or { cron, timezone }.");
    if (cron !== undefined && interval !== undefined)
      either(`${path}.interval`, "a schedule has an interval or a cron pattern, not both");
    else if (interval !== undefined && timezone !== undefined)
      either(`${path}.timezone`, "an interval has no time zone");
    else if (cron === undefined && interval === undefined)
      either(path, "the schedule says neither an interval nor a cron pattern");
    else {
      const given = interval === undefined ? { cron: cron ?? "", timezone } : { interval };
      const reading = readSchedule(given, options.nowMs, options.minIntervalMs);
      if ("schedule" in reading) schedules[name] = reading.schedule;
      else say(reading.code, `${path}.${reading.field}`, reading.message, reading.hint);
    }
  }
  return schedules;
}

function checkAliases(given: Declaration, say: Say): void {
  const connections = given.connections ?? {};
  for (const alias of Object.keys(connections))
    if ((CTX_MEMBERS as readonly string[]).includes(alias))
      say(
        "reserved-alias",
        `connections.${alias}`,
        `ctx.${alias} exists already`,
        `Choose another alias, like "${alias}Service".`,
      );
  for (const [name, { alias }] of Object.entries(given.hooks ?? {})) {
    const shown = JSON.stringify(alias);
    const close = nearestName(alias, Object.keys(connections));
    if (!Object.hasOwn(connections, alias))
      say(
        "undeclared-alias",
        `hooks.${name}.alias`,
        `the alias ${shown} is not declared`,
        close === undefined ? undefined : `Did you mean ${JSON.stringify(close)}?`,
      );
    else if (connections[alias] !== "webhook")
      say(
        "undeclared-alias",
        `hooks.${name}.alias`,
        `the alias ${shown} is not a webhook connection`,
        `Declare it as "webhook" in \`connections\`.`,
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
