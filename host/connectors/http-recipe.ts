/**
 * How a call whose answer was lost is looked up: a URL with placeholders from the recorded call, and what its answer means.
 * Data only, so that a script or a connection can bring it along. Asks nobody itself.
 *
 * R1. A placeholder stands for a text, number or boolean of the call, URL-encoded; what is missing or empty makes no URL.
 * R2. Only one condition that holds is a verdict; both or neither is none.
 * R3. A value in a body counts only in an answer of success, unless the condition names the status, too.
 */
import { z } from "zod";
import { canonical } from "../core/intent.ts";
import type { Json } from "../core/workflow.ts";
import { pathProblem } from "./http-path.ts";

const PLACEHOLDER = /\{([^{}]*)\}/g;
const KNOWN = /^(key|args\.(path|(query|body)(\.[^.{}]+)+))$/;
const JSON_PATH = /^\$(\.[A-Za-z_][\w-]*|\[\d{1,6}\]|\["[^"\\]*"\])*$/;
const STEP = /\.([A-Za-z_][\w-]*)|\[(\d{1,6})\]|\["([^"\\]*)"\]/g;

const url = z.string().superRefine((template, context) => {
  const say = (message: string) => context.addIssue({ code: "custom", message });
  for (const [whole, name = ""] of template.matchAll(PLACEHOLDER))
    if (!KNOWN.test(name)) say(`has ${whole}: use {key}, {args.path}, {args.query.…} or {args.body.…}`);
  const filled = template.replace(PLACEHOLDER, "x");
  if (/[{}]/.test(filled)) say("has a brace that is no placeholder: write %7B or %7D");
  const problem = pathProblem(filled);
  if (problem !== undefined) say(problem);
});

const status = z.int().min(100).max(599);
const condition = z
  .strictObject({
    status: z.union([status, z.array(status).min(1)]).optional(),
    path: z.string().regex(JSON_PATH, "is no JSON path: write one like $.items[0].id").optional(),
    equals: z.json().optional(),
  })
  .refine(({ status: given, path }) => given !== undefined || path !== undefined, {
    message: "names neither a status nor a path",
  })
  .refine(({ path, equals }) => (path === undefined) === (equals === undefined), {
    message: "a path needs `equals`, and `equals` a path",
  });

export const recipeFields = { url, appliedIf: condition, notAppliedIf: condition };
export const recipe = z.strictObject(recipeFields);
export type Recipe = z.infer<typeof recipe>;
type Condition = z.infer<typeof condition>;

/** What placeholders are filled from. */
export interface Recorded {
  key: string;
  args: { path: string; query?: unknown; body?: unknown };
}

export const needsKey = ({ url: template }: Recipe): boolean => template.includes("{key}");

/** The path to ask, or the placeholder that cannot be filled. (R1) */
export function filled(
  { url: template }: Recipe,
  call: Recorded,
): { ok: true; path: string } | { ok: false; missing: string } {
  let missing: string | undefined;
  const path = template.replace(PLACEHOLDER, (whole, name: string) => {
    const text = textOf(valueAt(call, name.split(".")));
    if (text === undefined) missing ??= whole;
    return text ?? "";
  });
  if (missing !== undefined) return { ok: false, missing };
  // A value may be dots, or hold a NUL: as a path it would lead elsewhere.
  return pathProblem(path) === undefined ? { ok: true, path } : { ok: false, missing: template };
}

function textOf(value: unknown): string | undefined {
  if (typeof value !== "string" && typeof value !== "number" && typeof value !== "boolean") return undefined;
  const text = String(value);
  return text !== "" && text.isWellFormed() ? encodeURIComponent(text) : undefined;
}

/** What an answer says; nothing when it says both or neither. (R2) */
export function verdictOf(
  { appliedIf, notAppliedIf }: Recipe,
  answer: { status: number; body?: Json },
): "applied" | "notApplied" | undefined {
  const isApplied = holds(appliedIf, answer);
  const isNot = holds(notAppliedIf, answer);
  if (isApplied === isNot) return undefined;
  return isApplied ? "applied" : "notApplied";
}

function holds(wanted: Condition, answer: { status: number; body?: Json }): boolean {
  const { path, equals } = wanted;
  const ok = answer.status >= 200 && answer.status < 300;
  const statuses = wanted.status === undefined ? undefined : [wanted.status].flat();
  if (statuses ? !statuses.includes(answer.status) : !ok) return false; // (R3)
  if (path === undefined || equals === undefined) return true;
  const steps = [...path.matchAll(STEP)].map(([, name, index, quoted]) => name ?? index ?? quoted ?? "");
  const found = valueAt(answer.body, steps);
  return found !== undefined && canonical(found as Json) === canonical(equals);
}

/** Own fields only. */
function valueAt(value: unknown, steps: readonly string[]): unknown {
  let at = value;
  for (const step of steps) {
    if (typeof at !== "object" || at === null || !Object.hasOwn(at, step)) return undefined;
    if (Array.isArray(at) && !/^\d+$/.test(step)) return undefined;
    at = (at as Record<string, unknown>)[step];
  }
  return at;
}
