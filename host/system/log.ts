/**
 * Logs, and the one sink that no secret passes. Lines are JSON with the run they belong to; who reads them is not
 * decided here.
 *
 * G1. Every line passes the redactor, which finds a registered secret wherever it stands.
 * G2. A line stays one JSON document, whatever was taken out of it.
 * G3. A sink that throws changes nothing.
 */
import { pino, stdTimeFunctions } from "pino";
import type { RunFacts } from "../core/facts.ts";
import { formatId } from "../core/ids.ts";
import { runSentence } from "../core/sentence.ts";
import type { Redactor } from "./redactor.ts";

export type LogLevel = "silent" | "error" | "warn" | "info" | "debug";

/** What a line is about; ids in their public form. */
export interface LogContext {
  workflow?: string;
  handler?: string;
  run?: string;
  attempt?: number;
  [field: string]: unknown;
}

export interface Log {
  write(level: Exclude<LogLevel, "silent">, message: string, context?: LogContext): void;
}

export function openLog(options: {
  level: LogLevel;
  redactor: Redactor;
  /** Gets whole lines, cleaned. */
  write: (line: string) => void;
}): Log {
  const sink = {
    write: (line: string) => {
      try {
        options.write(options.redactor.cleanJson(line.trimEnd()));
      } catch {
        // (G3)
      }
    },
  };
  const logger = pino(
    {
      level: options.level,
      base: null,
      timestamp: stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
    },
    sink,
  );
  return {
    write: (level, message, context = {}) => logger[level](context, message),
  };
}

/** What the engine tells, as far as a log cares. */
export type Told =
  | { kind: "run.started"; facts: RunFacts }
  | { kind: "run.ended"; facts: RunFacts }
  | { kind: "run.logged"; facts: RunFacts; lines: { level: string; message: string }[] }
  | { kind: "engine.warning"; message: string };

export function logEvent(log: Log, event: Told, atMs: number): void {
  if (event.kind === "engine.warning") return log.write("warn", event.message);
  const { facts } = event;
  const { run } = facts;
  const context: LogContext = {
    workflow: facts.workflow.name,
    handler: facts.handler.name,
    run: formatId("run", run.id),
    attempt: run.attempt,
    version: run.version,
  };
  if (event.kind === "run.started")
    return log.write("debug", "run started", { ...context, trigger: run.trigger.reason });
  if (event.kind === "run.logged") {
    for (const { level, message } of event.lines)
      log.write(levelOf(level), message, { ...context, by: "script" });
    return undefined;
  }
  const { mutation } = facts;
  const view = mutation ? { run, mutation } : { run };
  const severity = run.status.startsWith("failed") ? "error" : run.status === "committed" ? "info" : "warn";
  return log.write(severity, runSentence(view, atMs), {
    ...context,
    phase: run.phase,
    status: run.status,
    durationMs: atMs - run.createdAtMs,
    ...(run.status !== "committed" && run.error ? { error: run.error } : {}),
  });
}

const levelOf = (level: string): "debug" | "info" | "warn" | "error" =>
  level === "debug" || level === "warn" || level === "error" ? level : "info";
