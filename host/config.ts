/**
 * What a host is told: flags, then the environment, then a file, then defaults (09). Decides nothing else; a value that
 * cannot be used is refused with its name and where it came from.
 *
 * N1. Flag over environment over file over default, field by field.
 * N2. An unknown field of the file and an unknown `PAWL_*` variable are refused: a typo must not become a default.
 */
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { z } from "zod";
import { nearestName } from "./core/nearest.ts";
import type { PolicyRule } from "./core/policy-resolve.ts";
import { parsePolicySet } from "./core/policy-rules.ts";

const GRANTS = ["allow", "approve", "deny"] as const;
const LOG_LEVELS = ["silent", "error", "warn", "info", "debug"] as const;

const whole = (min: number, max: number) => z.coerce.number().int().min(min).max(max);

const json = z.json().default({});

const shape = z.strictObject({
  data: z.string().min(1).default("./pawl-data"),
  scripts: z.string().min(1).optional(),
  slots: whole(1, 1_000).default(16),
  minIntervalMs: whole(1, 86_400_000).default(30_000),
  logLevel: z.enum(LOG_LEVELS).default("info"),
  /** Where requests are taken in; 0 takes any port that is free. */
  port: whole(0, 65_535).default(7_420),
  listen: z.string().min(1).default("127.0.0.1"),
  /** Where clients reach it, for example behind a proxy. */
  publicUrl: z.url({ protocol: /^https?$/ }).optional(),
  /** Further names that it answers to, with commas between. */
  allowedHosts: z
    .union([
      z.array(z.string().min(1)),
      z.string().transform((text) => text.split(",").map((one) => one.trim())),
    ])
    .optional(),
  /** Believe what a proxy says about who asks, and by which name. */
  trustProxy: z
    .union([
      z.boolean(),
      z.enum(["true", "false", "1", "0"]).transform((word) => word === "true" || word === "1"),
    ])
    .default(false),
  /** The first admin's. From the environment only: files are copied and committed. */
  adminToken: z.string().min(1).optional(),
  durability: z.enum(["barrier", "full"]).default("barrier"),
  /** Opens stored secrets; behind a comma, older ones. From the environment only: files are copied and committed. */
  masterKey: z.string().min(1).optional(),
  /** Where the host keeps a master key of its own, instead of `<data>.key`. */
  keyFile: z.string().min(1).optional(),
  /** The host's own rules, of lowest rank. From the file only. */
  policies: z.array(z.unknown()).default([]),
  /** Name → connector, config and secrets of a connection. From the file only; secrets belong into the environment. */
  connections: z
    .record(z.string(), z.strictObject({ connector: z.string(), config: json, secrets: json.optional() }))
    .default({}),
  /** Workflow → alias → name of a connection. From the file only. */
  bindings: z.record(z.string(), z.record(z.string(), z.string())).default({}),
  /** Workflow → what it may use. From the file only. */
  grants: z
    .record(
      z.string(),
      z.array(z.strictObject({ alias: z.string(), tool: z.string().default("*"), mode: z.enum(GRANTS) })),
    )
    .default({}),
  /** For mutations that nobody granted. */
  defaultGrant: z.enum(GRANTS).optional(),
  /** Further connectors, made with `defineConnector`. From the file only. */
  connectors: z.array(z.custom<object>((given) => typeof given === "object" && given !== null)).default([]),
  /** Tests only: where to die, `after:sending:3`. */
  failpoint: z.string().optional(),
  /** Tests only: a server on this machine that stands for the outside world. */
  testWorld: z.url().optional(),
});

export type Config = Omit<z.output<typeof shape>, "policies"> & { policies: PolicyRule[] };
export type ConfigFields = z.input<typeof shape>;

const FIELDS = Object.keys(shape.shape) as (keyof Config)[];
/** A text in the environment could not hold them. */
const FILE_ONLY: readonly string[] = ["policies", "connections", "bindings", "grants", "connectors"];
const FILES = ["pawl.config.ts", "pawl.config.js", "pawl.config.json"];
/** Read elsewhere, by the project's own tests. */
const OTHER_VARIABLES = /^PAWL_(PROOF|GOLDEN|TEST_.*)$/;

export class ConfigProblem extends Error {
  override readonly name = "ConfigProblem";
}

/** `minIntervalMs` → `PAWL_MIN_INTERVAL_MS` */
const variableOf = (field: string): string => `PAWL_${field.replace(/[A-Z]/g, "_$&").toUpperCase()}`;

export async function loadConfig(given: {
  flags: { [Field in keyof ConfigFields]?: ConfigFields[Field] | undefined };
  env: Record<string, string | undefined>;
  cwd: string;
  file?: string | undefined;
}): Promise<Config> {
  const file = await fromFile(given.cwd, given.file);
  for (const secret of ["masterKey", "adminToken"])
    if (secret in file.values)
      throw new ConfigProblem(
        `${file.name}: ${secret} does not belong into a file; set ${variableOf(secret)}`,
      );
  const values: Record<string, unknown> = {};
  const origins: Record<string, string> = {};
  const take = (layer: Record<string, unknown>, origin: (field: string) => string) => {
    for (const [field, value] of Object.entries(layer)) {
      if (value === undefined) continue;
      values[field] = value;
      origins[field] = origin(field);
    }
  };
  take(file.values, () => file.name); // (N1)
  take(fromEnvironment(given.env), variableOf);
  take(given.flags, (field) => `--${field.replace(/[A-Z]/g, (capital) => `-${capital.toLowerCase()}`)}`);
  const read = shape.safeParse(values);
  if (read.success) return { ...read.data, policies: policiesOf(read.data.policies, file.name) };
  throw new ConfigProblem(read.error.issues.map((issue) => wordsFor(issue, origins, file.name)).join("; "));
}

function fromEnvironment(env: Record<string, string | undefined>): Record<string, string> {
  const fields = FIELDS.filter((field) => !FILE_ONLY.includes(field));
  const known = new Map(fields.map((field) => [variableOf(field), field]));
  const values: Record<string, string> = {};
  for (const [name, value] of Object.entries(env)) {
    if (!name.startsWith("PAWL_") || value === undefined) continue;
    const field = known.get(name);
    if (field) values[field] = value;
    else if (!OTHER_VARIABLES.test(name))
      throw new ConfigProblem(
        `the environment variable ${name} means nothing${didYouMean(name, [...known.keys()])}`,
      ); // (N2)
  }
  return values;
}

async function fromFile(
  cwd: string,
  named: string | undefined,
): Promise<{ name: string; values: Record<string, unknown> }> {
  const name = named ?? FILES.find((one) => existsSync(resolve(cwd, one)));
  if (name === undefined) return { name: "", values: {} };
  const path = resolve(cwd, name);
  if (!existsSync(path)) throw new ConfigProblem(`there is no file ${name}`);
  try {
    const options = path.endsWith(".json") ? { with: { type: "json" } } : {};
    const loaded = (await import(pathToFileURL(path).href, options)) as { default?: unknown };
    if (typeof loaded.default === "object" && loaded.default !== null)
      return { name, values: { ...loaded.default } };
  } catch (error) {
    throw new ConfigProblem(`${name} cannot be read: ${(error as Error).message}`);
  }
  throw new ConfigProblem(`${name} has no default export of an object`);
}

function wordsFor(issue: z.core.$ZodIssue, origins: Record<string, string>, file: string): string {
  if (issue.code === "unrecognized_keys")
    return issue.keys.map((key) => `${file}: ${key} means nothing${didYouMean(key, FIELDS)}`).join("; "); // (N2)
  const field = String(issue.path[0]);
  return `${origins[field] ?? field}: ${issue.message}`;
}

function policiesOf(given: unknown[], file: string): PolicyRule[] {
  const parsed = parsePolicySet(given);
  if ("rules" in parsed) return parsed.rules;
  const said = parsed.problems.map((one) => `policies${one.path}: ${one.message}`);
  throw new ConfigProblem(`${file}: ${said.join("; ")}`);
}

function didYouMean(name: string, known: readonly string[]): string {
  const close = nearestName(name, known);
  return close === undefined ? "" : `; did you mean ${close}?`;
}
