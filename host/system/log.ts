/**
 * Logs, and the one sink that no secret passes. Lines are JSON with the run they belong to; who reads them is not
 * decided here.
 *
 * G1. Redaction is by value: a registered secret is found wherever it stands, plain, in base64 at any offset, or
 *     URL-encoded. Paths and field names are never consulted.
 * G2. A line stays one JSON document, whatever was taken out of it.
 * G3. A sink that throws changes nothing.
 */
import { pino, stdTimeFunctions } from "pino";
import type { RunFacts } from "../core/facts.ts";
import { formatId } from "../core/ids.ts";
import { runSentence } from "../core/sentence.ts";

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

const HIDDEN = "[redacted]";
/** Shorter ones would hide half of every line, and are no secrets. */
const SHORTEST = 4;

export class Redactor {
  readonly #needles = new Set<string>();
  #pattern: RegExp | undefined;

  register(secret: string): void {
    if (secret.length < SHORTEST) return;
    for (const form of formsOf(secret)) this.#needles.add(form);
    const longestFirst = [...this.#needles].sort((a, b) => b.length - a.length);
    this.#pattern = new RegExp(
      longestFirst.map((one) => one.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&")).join("|"),
      "g",
    );
  }

  clean(text: string): string {
    return this.#pattern ? text.replace(this.#pattern, HIDDEN) : text; // (G1)
  }

  /** A line of JSON; taken apart only when something in it has to go. */
  cleanJson(line: string): string {
    if (!this.#pattern || this.clean(line) === line) return line;
    return JSON.stringify(this.#cleanValue(JSON.parse(line))); // (G2)
  }

  #cleanValue(value: unknown): unknown {
    if (typeof value === "string") return this.clean(value);
    if (typeof value === "number") return this.clean(String(value)) === String(value) ? value : HIDDEN;
    if (Array.isArray(value)) return value.map((one) => this.#cleanValue(one));
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(
      Object.entries(value).map(([key, one]) => [this.clean(key), this.#cleanValue(one)]),
    );
  }
}

function formsOf(secret: string): string[] {
  const forms = new Set([secret, JSON.stringify(secret).slice(1, -1)]);
  const encoded = encodeURIComponent(secret.toWellFormed());
  for (const form of [
    encoded,
    encoded.replaceAll("%20", "+"),
    encoded.replace(/%../g, (hex) => hex.toLowerCase()),
  ])
    forms.add(form);
  const bytes = Buffer.from(secret);
  for (const offset of [0, 1, 2]) {
    const padded = Buffer.concat([Buffer.alloc(offset), bytes]).toString("base64url");
    // Characters that the neighbours of the secret have a part in differ from place to place.
    const from = offset === 0 ? 0 : offset + 1;
    const inner = padded.slice(from, Math.floor(((offset + bytes.length) * 8) / 6));
    if (inner.length < SHORTEST) continue;
    forms.add(inner);
    forms.add(inner.replaceAll("-", "+").replaceAll("_", "/"));
  }
  return [...forms];
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
