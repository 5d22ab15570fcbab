/**
 * A webhook's body → an event's messageId and payload. Decides what a body may look like; who may send one is decided
 * before (`connectors/webhook.ts`).
 *
 * H1. How deep a body nests is counted before it is parsed: no body makes the parser recurse without bound.
 * H2. A messageId is text, or a number that JSON keeps exact: two bodies never share one by rounding.
 * H3. A path names own members alone; nothing is computed, searched or inherited.
 */
import type { Json, JsonText } from "./workflow.ts";

const MOST_DEPTH = 100;
const MOST_ID_CHARS = 512;
const MOST_STEPS = 16;

export type HookBody =
  | { ok: true; messageId: string; payload: JsonText }
  | { ok: false; message: string; hint: string };

export function readBody(text: string, path: string): HookBody {
  if (depthOf(text) > MOST_DEPTH)
    return no(`the body nests deeper than ${MOST_DEPTH}`, "Send a flatter body."); // (H1)
  let body: Json;
  try {
    body = JSON.parse(text) as Json;
  } catch {
    return no("the body is not JSON", "Send JSON; a form is not understood.");
  }
  const steps = stepsOf(path);
  if (!steps) return no(`${path} is no path`, 'The hook\'s messageId is a path such as "$.id".');
  const found = at(body, steps);
  const messageId = idOf(found);
  if (messageId === undefined) {
    const what = found === undefined ? "nothing" : kindOf(found);
    return no(
      `the body has ${what} at ${path}`,
      `The hook takes the messageId from ${path}: a text of at most ${MOST_ID_CHARS} characters, or a whole number.`,
    );
  }
  return { ok: true, messageId, payload: JSON.stringify(body) };
}

/** `$`, then `.name`, `["name"]` or `[0]`; `undefined` for anything else. */
export function stepsOf(path: string): (string | number)[] | undefined {
  if (!path.startsWith("$")) return undefined;
  const steps: (string | number)[] = [];
  const step = /\.([A-Za-z_$][\w$-]*)|\[(\d{1,9})\]|\["([^"\\]+)"\]|\['([^'\\]+)'\]/y;
  for (step.lastIndex = 1; step.lastIndex < path.length; ) {
    const found = step.exec(path);
    if (!found || steps.length === MOST_STEPS) return undefined;
    const [, name, index, quoted = found[4]] = found;
    steps.push(index === undefined ? ((name ?? quoted) as string) : Number(index));
  }
  return steps.length > 0 ? steps : undefined;
}

/** (H3) */
function at(body: Json, steps: readonly (string | number)[]): Json | undefined {
  let value: Json | undefined = body;
  for (const step of steps) {
    if (value === null || typeof value !== "object") return undefined;
    if (Array.isArray(value) !== (typeof step === "number") || !Object.hasOwn(value, step)) return undefined;
    value = (value as Record<string | number, Json>)[step];
  }
  return value;
}

/** (H2) */
function idOf(value: Json | undefined): string | undefined {
  if (typeof value === "number") return Number.isSafeInteger(value) ? String(value) : undefined;
  if (typeof value !== "string" || value === "" || value.length > MOST_ID_CHARS) return undefined;
  return value.isWellFormed() && !value.includes("\0") ? value : undefined;
}

/** How deep the text opens objects and lists, outside of its strings. */
export function depthOf(text: string): number {
  let [depth, deepest] = [0, 0];
  let inString = false;
  for (let i = 0; i < text.length; i++) {
    const char = text.charCodeAt(i);
    if (inString) {
      if (char === BACKSLASH) i++;
      else if (char === QUOTE) inString = false;
    } else if (char === QUOTE) inString = true;
    else if (char === OPEN_LIST || char === OPEN_OBJECT) deepest = Math.max(deepest, ++depth);
    else if (char === CLOSE_LIST || char === CLOSE_OBJECT) depth--;
  }
  return deepest;
}

const [QUOTE, BACKSLASH] = [0x22, 0x5c];
const [OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT] = [0x5b, 0x5d, 0x7b, 0x7d];

const kindOf = (value: Json): string => {
  if (value === null) return "null";
  if (typeof value === "number") return "a number that is not whole, or too large to be exact,";
  if (typeof value === "string") return "a text that is empty, too long or malformed";
  return Array.isArray(value) ? "a list" : typeof value === "object" ? "an object" : "true or false";
};

const no = (message: string, hint: string): HookBody => ({ ok: false, message, hint });
