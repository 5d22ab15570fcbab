/** Reference pages that are written from the code they describe. */
import { routeOf } from "../../host/api/contract.ts";
import { placeOf } from "../../host/api/contract-paths.ts";
import { CALLS } from "../../host/api/openapi.ts";
import { ERRORS } from "../../host/core/errors.ts";
import { FIELD_NAMES, rowOf } from "../../host/core/policy.ts";
import { DEFAULT_LIMITS, type Limits } from "../../host/ports/sandbox.ts";
import { FORBIDDEN } from "../sandbox/forbidden.ts";

const NOTE = "<!-- Written by `PAWL_GOLDEN=write npm test -- test/docs`. Edit the code, not this page. -->";

const table = (head: string[], rows: string[][]): string =>
  [head, head.map(() => "---"), ...rows].map((row) => `| ${row.map(cell).join(" | ")} |`).join("\n");

const cell = (text: string): string => text.replaceAll("|", "\\|").replaceAll("\n", " ");

const LIMITS: Record<keyof Limits, [what: string, unit: string, code: string]> = {
  sectionMs: ["CPU time of one uninterrupted section", "ms", "cpu-limit"],
  cpuMs: ["CPU time of a phase", "ms", "cpu-limit"],
  wallMs: ["time of a phase, waiting included", "ms", "wall-limit"],
  memoryMb: ["heap", "MB", "memory-limit"],
  hostCalls: ["calls to the host in a phase", "", "host-call-limit"],
  hostCallsAtOnce: ["calls waiting at once; more wait their turn", "", ""],
  messageBytes: ["one call, answer, payload or intent", "bytes", "value-too-large"],
  outputBytes: ["everything one phase hands over", "bytes", "output-limit"],
  stateBytes: ["a handler's state", "bytes", "value-too-large"],
  preparedBytes: ["what `prepare` returns", "bytes", "value-too-large"],
  logLines: ["log lines of a phase; the rest is dropped", "", ""],
  logLineChars: ["characters of a log line; the rest is cut", "", ""],
  maxPublishes: ["events published by a run", "", "publish-limit"],
};

export function limitsPage(): string {
  const rows = (Object.keys(LIMITS) as (keyof Limits)[]).map((field) => {
    const [what, unit, code] = LIMITS[field];
    return [`\`${field}\``, what, `${DEFAULT_LIMITS[field]} ${unit}`.trim(), code && `\`${code}\``];
  });
  return `${NOTE}\n\n# Limits of a script\n\n${table(["limit", "of", "default", "ends the run with"], rows)}\n`;
}

export function frozenPage(): string {
  const rows = FORBIDDEN.map(([code, message]) => [`\`${code}\``, message]);
  return [
    NOTE,
    "# What the frozen scope forbids",
    "A script that does one of these while `scope: frozen` is demanded ends with `frozen-builtin` and this message. With the default, `auto`, the host runs it in a fresh scope instead.",
    table(["the script does", "the author reads"], rows),
    "Each message is followed by `: built-in objects cannot be changed in the frozen scope`.",
    "",
  ].join("\n\n");
}

export function errorsPage(): string {
  const rows = Object.entries(ERRORS).map(([code, row]) => [
    `\`${code}\``,
    row.blame,
    row.class,
    String(row.http ?? ""),
    row.summary,
    row.fix,
  ]);
  return [
    NOTE,
    "# Error codes",
    "A code is stable: it may be added, never renamed. The class decides what happens to a run. A request is answered with the HTTP status; a code without one stands in the record of a run, or stops the host before it listens. In an answer of the HTTP API, `error.code` is written with underscores: `not-found` is `not_found`.",
    table(["code", "to blame", "class", "HTTP", "what happened", "what to do"], rows),
    "",
  ].join("\n\n");
}

export function apiPage(): string {
  const rows = CALLS.map((name) => {
    const { role, scope, summary, statuses = [200], refusals = [] } = routeOf(name);
    const { method, path } = placeOf(name);
    const who = role === "nobody" ? "no token" : role === "anybody" ? "any token" : role;
    return [
      `\`${method} ${path.replace("/api/v1", "")}\``,
      scope === "host" ? `${who}, of the host` : who,
      statuses.join(", "),
      refusals.map((code) => `\`${code.replaceAll("-", "_")}\``).join(", "),
      summary,
    ];
  });
  return [
    NOTE,
    "# HTTP API",
    "Base `/api/v1`, but for `/healthz`, `/readyz`, `/metrics`, `/openapi.json` and `/docs`. The role is the least that may: viewer < operator < deployer < admin. A token of one namespace asks about that namespace alone; `of the host` takes a token of none. The shapes are in `/openapi.json`, and to read in `/docs` of every running host; [how to use it](../operate/api.md).",
    table(["call", "role", "answers", "refused with, among others", "what it does"], rows),
    "",
  ].join("\n\n");
}

export function policiesPage(): string {
  const rows = FIELD_NAMES.map((name) => {
    const row = rowOf(name);
    const others = Object.entries(row.defaultOn ?? {}).map(
      ([unit, value]) => `${unit}: ${JSON.stringify(value)}`,
    );
    return [
      `\`${name}\``,
      row.appliesTo.join(", "),
      [JSON.stringify(row.default), ...others].join("; "),
      row.enforced
        ? row.notYet
          ? `yes, but for ${row.notYet.join(", ")}`
          : "yes"
        : "not yet: refused when saved",
      row.doc,
    ];
  });
  return [
    NOTE,
    "# Policy fields",
    "Execution strategy is the operator's, not the script's. A field that nothing enforces yet is refused when saved, with the code `not-yet-enforced`.",
    table(["field", "units", "default", "enforced", "effect"], rows),
    "",
  ].join("\n\n");
}
