// The rules of the house, deny by default: a file that belongs to no zone, and an import that no zone allows,
// are violations. Pure: modules in, violations out, so that a planted file is judged like a real one.
import { posix } from "node:path";
import { type Facts, factsOf, type Import, type Module } from "./source.ts";

type Rule = "direction" | "package" | "computed-import" | "name" | "length" | "clock" | "async";

export type Violation = { rule: Rule; path: string; line: number; message: string };

type Zone = {
  name: string;
  holds: (path: string) => boolean;
  /** Names of the zones it may import from, besides itself. */
  mayImport: readonly string[];
  /** npm packages it may import; "*" is any. */
  packages: readonly string[];
  nodeBuiltins: boolean;
};

const folder = (prefix: string) => (path: string) => path.startsWith(prefix);
const exactly = (file: string) => (path: string) => path === file;

// First match wins: single files come before the folders that contain them.
const ZONES: readonly Zone[] = [
  zone("cron", exactly("host/core/cron.ts"), ["core"], ["croner"], false),
  zone("core", folder("host/core/"), ["cron"], [], false),
  zone("ports", folder("host/ports/"), ["core", "cron"], [], false),
  zone("engine", folder("host/engine/"), ["core", "cron", "ports"], [], false),
  zone("store", folder("host/store/"), ["core", "cron", "ports"], ["better-sqlite3"], true),
  zone(
    "sandbox",
    folder("host/sandbox/"),
    ["core", "cron", "ports"],
    ["isolated-vm", "acorn", "zod", "typescript6"],
    true,
  ),
  zone(
    "connectors",
    folder("host/connectors/"),
    ["core", "cron", "ports"],
    ["zod", "undici", "nodemailer", "fast-xml-parser"],
    true,
  ),
  zone("system", folder("host/system/"), ["core", "cron", "ports"], ["pino"], true),
  zone(
    "contract",
    (path) => /^host\/api\/contract(-[a-z]+)?\.ts$/.test(path),
    ["core", "cron", "ports"],
    ["zod"],
    false,
  ),
  zone(
    "api",
    folder("host/api/"),
    ["core", "cron", "ports", "engine", "contract"],
    ["zod", "hono", "@hono/node-server"],
    true,
  ),
  // What whoever talks to a host carries: the contract's names and types.
  zone("client-door", exactly("host/client.ts"), ["contract"], [], false),
  // cli → host.ts stands until the command line talks to a running host through the API.
  zone(
    "cli",
    folder("host/cli/"),
    ["core", "cron", "ports", "engine", "contract", "root", "config"],
    ["commander", "zod"],
    true,
  ),
  zone("config", exactly("host/config.ts"), ["core", "cron"], ["zod"], true),
  zone(
    "root",
    (path) => path === "host/host.ts" || path === "host/host-outside.ts",
    [
      "core",
      "cron",
      "ports",
      "engine",
      "store",
      "sandbox",
      "connectors",
      "system",
      "contract",
      "api",
      "cli",
      "config",
    ],
    [],
    true,
  ),
  zone("door", exactly("host/index.ts"), ["root", "core", "cron", "ports", "sandbox-api"], [], false),
  // What a user's tests run: a whole host around one connector, and a process to kill.
  zone("testing-door", exactly("host/testing.ts"), ["testing"], [], false),
  zone("testing", folder("host/testing/"), ["core", "cron", "ports", "connectors", "root"], [], true),
  zone("sandbox-api", folder("sandbox-api/"), [], [], false),
  zone("console", folder("console/"), ["contract"], ["*"], false),
];

const COMPUTED_IMPORT_ALLOWED: readonly string[] = ["host/config.ts", "host/testing/sender.ts"];
const MAX_LINES = 400;
const VAGUE_WORDS = new Set([
  "utils",
  "util",
  "helpers",
  "helper",
  "common",
  "manager",
  "service",
  "types",
  "base",
]);
const CLOCKS = new Set([
  "Date",
  "Date.now",
  "new Date",
  "Math.random",
  "performance.now",
  "setTimeout",
  "setInterval",
  "setImmediate",
  "crypto.randomUUID",
  "crypto.getRandomValues",
]);

function zone(
  name: string,
  holds: Zone["holds"],
  mayImport: readonly string[],
  packages: readonly string[],
  nodeBuiltins: boolean,
): Zone {
  return { name, holds, mayImport, packages, nodeBuiltins };
}

const zoneOf = (path: string): Zone | undefined => ZONES.find((candidate) => candidate.holds(path));

export function check(modules: readonly Module[]): Violation[] {
  return modules.flatMap((module) => {
    const facts = factsOf(module);
    return [
      ...checkImports(module, facts),
      ...checkName(module),
      ...checkLength(module),
      ...checkPurity(module, facts),
    ];
  });
}

function checkImports({ path }: Module, facts: Facts): Violation[] {
  const from = zoneOf(path);
  if (from === undefined) {
    return [{ rule: "direction", path, line: 1, message: "belongs to no zone of the house" }];
  }
  const found = facts.imports.flatMap((item): Violation[] => {
    const problem = item.specifier.startsWith(".")
      ? relativeProblem(path, from, item)
      : packageProblem(from, item.specifier);
    return problem === undefined ? [] : [{ ...problem, path, line: item.line }];
  });
  if (from.name !== "console" && !COMPUTED_IMPORT_ALLOWED.includes(path)) {
    for (const line of facts.computedImports) {
      found.push({ rule: "computed-import", path, line, message: "imports a module whose name is computed" });
    }
  }
  return found;
}

type Problem = { rule: Rule; message: string };

function relativeProblem(path: string, from: Zone, item: Import): Problem | undefined {
  const target = posix.normalize(posix.join(posix.dirname(path), item.specifier));
  const to = zoneOf(target);
  if (to === undefined)
    return { rule: "direction", message: `imports ${target}, which is no part of the house` };
  if (to === from) return undefined;
  if (!from.mayImport.includes(to.name)) {
    return { rule: "direction", message: `${from.name} may not import ${to.name} (${target})` };
  }
  if (from.name === "console" && !item.typeOnly) {
    return { rule: "direction", message: `console may import only types of ${target}` };
  }
  return undefined;
}

function packageProblem(from: Zone, specifier: string): Problem | undefined {
  if (specifier.startsWith("node:")) {
    if (from.nodeBuiltins) return undefined;
    return { rule: "package", message: `${from.name} may not import ${specifier}` };
  }
  const name = specifier.split("/", specifier.startsWith("@") ? 2 : 1).join("/");
  if (from.packages.includes(name)) return undefined;
  // Any package but ourselves: "pawl" would be a way around the directions.
  if (from.packages.includes("*") && name !== "pawl") return undefined;
  return { rule: "package", message: `${from.name} may not import the package ${name}` };
}

function checkName({ path }: Module): Violation[] {
  const found: Violation[] = [];
  const report = (message: string) => found.push({ rule: "name", path, line: 1, message });
  for (const part of path.split("/")) {
    const stem = part.replace(/(\.(test|d))?\.tsx?$/, "");
    if (!/^[a-z0-9]+(-[a-z0-9]+)*$/.test(stem)) report(`"${part}" is not kebab-case`);
    const vague = stem.split("-").find((word) => VAGUE_WORDS.has(word));
    if (vague !== undefined) report(`"${part}" says "${vague}": name the noun or verb it holds`);
  }
  return found;
}

function checkLength({ path, source }: Module): Violation[] {
  if (path.startsWith("console/")) return [];
  const lines = source.replace(/\n$/, "").split("\n").length;
  if (lines <= MAX_LINES) return [];
  return [{ rule: "length", path, line: MAX_LINES + 1, message: `${lines} lines; at most ${MAX_LINES}` }];
}

function checkPurity({ path }: Module, facts: Facts): Violation[] {
  const found: Violation[] = [];
  const inCore = path.startsWith("host/core/");
  if (inCore || path.startsWith("host/engine/")) {
    for (const { name, line } of facts.calls) {
      if (CLOCKS.has(name))
        found.push({ rule: "clock", path, line, message: `reads ${name}: ask the clock port` });
    }
  }
  if (inCore) {
    for (const line of facts.asyncLines) {
      found.push({ rule: "async", path, line, message: "core is synchronous: facts in, Change out" });
    }
  }
  return found;
}
