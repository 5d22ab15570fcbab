/**
 * What came out of a sandbox → data the engine may trust in shape. Everything is checked against the stored manifest,
 * whatever the code inside the isolate believed.
 *
 * D1. Depth is measured on the text before it is parsed, and ids hold no NUL and no lone surrogate.
 * D2. Only topics, aliases and phases of the stored manifest pass.
 * D3. What a script can bring about is the script's fault: no text of its making ends as an error of the host.
 */
import { type ErrorCode, PawlError } from "../core/errors.ts";
import { type JsonText, NAME_PATTERN } from "../core/workflow.ts";
import type {
  Done,
  Input,
  InputKey,
  Intent,
  Limits,
  LogLine,
  Prepared,
  Publish,
  SandboxCall,
} from "../ports/sandbox.ts";

const MAX_DEPTH = 200;
const MAX_ID = 512;
const MAX_RESERVED = 10_000;
const LEVELS = ["debug", "info", "warn", "error"];

type Dict = Record<string, unknown>;
export type Outcome = Pick<Done, "state" | "prepared" | "intent" | "publishes" | "inputs">;

export function decodeDone(call: SandboxCall, limits: Limits, json: JsonText): Outcome {
  const given = object(parseBounded(json), "the result");
  const outcome: Outcome = {
    publishes: decodePublishes(call, limits, array(given["publishes"], "publishes")),
    inputs: array(given["inputs"], "inputs").map(decodeInput),
  };
  const maySet = call.unit === "producer" || call.unit === "next";
  if (maySet && "state" in given) outcome.state = sized(given["state"], limits.stateBytes, "the state");
  if (call.unit === "producer" || call.unit === "next") return outcome;
  if (call.unit !== "mutate") outcome.prepared = decodePrepared(call, limits, given["prepared"]);
  if (given["intent"] !== undefined && call.unit !== "prepare") {
    const intent = decodeIntent(call, limits, object(given["intent"], "the intent"));
    if (call.unit === "mutate" || (outcome.prepared?.reservations.length ?? 0) > 0) outcome.intent = intent;
  }
  return outcome;
}

export function decodeLogs(json: JsonText, limits: Limits): LogLine[] {
  const lines: LogLine[] = [];
  for (const given of array(parseBounded(json), "logs").slice(0, limits.logLines + 1)) {
    const { level, message, data, atMs } = (given ?? {}) as Dict;
    const line: LogLine = {
      level: (LEVELS.includes(level as string) ? level : "info") as LogLine["level"],
      message: typeof message === "string" ? message.slice(0, limits.logLineChars) : "",
      atMs: typeof atMs === "number" ? atMs : 0,
    };
    if (typeof data === "string") line.data = jsonOr(data.slice(0, limits.logLineChars));
    lines.push(line);
  }
  return lines;
}

/** A text that was cut is no longer JSON: then it is kept as a string. */
function jsonOr(text: string): JsonText {
  try {
    JSON.parse(text);
    return text;
  } catch {
    return JSON.stringify(text);
  }
}

export function parseBounded(json: JsonText): unknown {
  if (opens(json)) measureDepth(json);
  try {
    return JSON.parse(json);
  } catch {
    return refuse("bad-value", "the run handed over text that is not JSON");
  }
}

/** Whether it opens more lists and objects, texts included, than may be nested: most have too few to be measured. */
function opens(json: JsonText): boolean {
  let count = 0;
  for (const bracket of ["{", "["])
    for (let at = json.indexOf(bracket); at >= 0; at = json.indexOf(bracket, at + 1))
      if (++count > MAX_DEPTH) return true;
  return false;
}

function measureDepth(json: JsonText): void {
  let depth = 0;
  let inString = false;
  for (let i = 0; i < json.length; i++) {
    const c = json.charCodeAt(i);
    if (inString) {
      if (c === 92) i++;
      else if (c === 34) inString = false;
    } else if (c === 34) inString = true;
    else if (c === 123 || c === 91) {
      if (++depth > MAX_DEPTH) refuse("bad-value", `a value is nested more than ${MAX_DEPTH} levels deep`);
    } else if (c === 125 || c === 93) depth--;
  }
}

function decodePrepared(call: SandboxCall, limits: Limits, given: unknown): Prepared {
  const result = object(given, "the result of prepare", "bad-result");
  const subscribed = call.script.manifest.consumers[call.handler]?.subscribes ?? [];
  const reserved = new Map<string, Set<string>>();
  let count = 0;
  const list = result["reservations"] ?? [];
  if (!Array.isArray(list))
    refuse("bad-result", "`reservations` of prepare must be a list of { topic, ids }");
  for (const [i, one] of (list as unknown[]).entries()) {
    const { topic, ids } = object(one, `reservations[${i}]`, "bad-result");
    if (typeof topic !== "string" || !subscribed.includes(topic))
      refuse(
        "bad-reservation",
        `reservations[${i}] names the topic ${shown(topic)}, to which ${call.handler} does not subscribe`,
      );
    if (ids !== undefined && !Array.isArray(ids))
      refuse("bad-result", `reservations[${i}].ids must be a list of messageIds`);
    for (const id of (ids as unknown[] | undefined) ?? []) {
      if (++count > MAX_RESERVED)
        refuse("bad-reservation", `prepare reserved more than ${MAX_RESERVED} events`);
      const ids = reserved.get(topic as string) ?? new Set();
      reserved.set(topic as string, ids.add(identifier(id, `reservations[${i}].ids`, "bad-reservation")));
    }
  }
  const prepared: Prepared = {
    json: sized(result, limits.preparedBytes, "the result of prepare"),
    reservations: [...reserved].map(([topic, ids]) => ({ topic, ids: [...ids] })),
  };
  const title = (result["ui"] as Dict | undefined | null)?.["title"];
  if (typeof title === "string") prepared.title = title.toWellFormed().slice(0, 500);
  const wakeAt = result["wakeAt"];
  if (wakeAt !== undefined && wakeAt !== null) {
    if (typeof wakeAt !== "string")
      refuse("bad-result", `\`wakeAt\` of prepare must be an ISO date text, not ${shown(wakeAt)}`);
    prepared.wakeAt = (wakeAt as string).slice(0, 100);
  }
  return prepared;
}

function decodeIntent(call: SandboxCall, limits: Limits, given: Dict): Intent {
  const { alias, tool, args } = given;
  if (typeof alias !== "string" || !Object.hasOwn(call.script.manifest.connections, alias))
    refuse("undeclared-alias", `the alias ${shown(alias)} is not declared by the stored version`);
  return {
    alias: alias as string,
    tool: toolName(tool),
    args: sized(args, limits.messageBytes, "the arguments"),
  };
}

function toolName(given: unknown): string {
  if (typeof given !== "string" || !NAME_PATTERN.test(given))
    refuse("bad-call", `there is no tool named ${shown(given)}`);
  return given as string;
}

function decodePublishes(call: SandboxCall, limits: Limits, list: unknown[]): Publish[] {
  const { manifest } = call.script;
  const handler =
    call.unit === "producer" ? manifest.producers[call.handler] : manifest.consumers[call.handler];
  const declared = call.unit === "producer" || call.unit === "next" ? (handler?.publishes ?? []) : [];
  if (list.length > limits.maxPublishes)
    refuse("publish-limit", `more than ${limits.maxPublishes} events published by one run`);
  return list.map((one) => {
    const { topics, messageId, payload, input } = object(one, "a published event");
    const names = array(topics, "topics").map((topic) => {
      if (typeof topic !== "string" || !declared.includes(topic))
        refuse("undeclared-topic", `${call.handler} does not declare the topic ${shown(topic)}`);
      return topic as string;
    });
    const event: Publish = {
      topics: [...new Set(names)],
      messageId: identifier(messageId, "a messageId", "bad-call"),
      payload: sized(payload, limits.messageBytes, "a payload"),
    };
    if (input !== undefined && call.unit === "producer")
      event.input = inputKey(object(input, "the input of an event"));
    return event;
  });
}

function decodeInput(given: unknown): Input {
  const input = object(given, "an input");
  const { title } = input;
  return { ...inputKey(input), title: typeof title === "string" ? title.toWellFormed().slice(0, 500) : "" };
}

function inputKey(given: Dict): InputKey {
  return {
    source: identifier(given["source"], "the source of an input", "bad-call"),
    type: identifier(given["type"], "the type of an input", "bad-call"),
    id: identifier(given["id"], "the id of an input", "bad-call"),
  };
}

function identifier(given: unknown, what: string, code: ErrorCode): string {
  if (
    typeof given !== "string" ||
    given === "" ||
    given.length > MAX_ID ||
    given.includes("\0") ||
    !given.isWellFormed()
  )
    refuse(
      code,
      `${what} must be 1 to ${MAX_ID} characters of well-formed text without NUL, not ${shown(given)}`,
    );
  return given as string;
}

function sized(value: unknown, maxBytes: number, what: string): JsonText {
  const text = JSON.stringify(value ?? null);
  const bytes = Buffer.byteLength(text);
  if (bytes > maxBytes) refuse("value-too-large", `${what} is ${bytes} bytes; the limit is ${maxBytes}`);
  return text;
}

function object(given: unknown, what: string, code: ErrorCode = "bad-value"): Dict {
  if (typeof given !== "object" || given === null || Array.isArray(given))
    refuse(code, `${what} must be an object, not ${shown(given)}`);
  return given as Dict;
}

function array(given: unknown, what: string): unknown[] {
  if (!Array.isArray(given)) refuse("bad-value", `${what} must be a list`);
  return given as unknown[];
}

function shown(value: unknown): string {
  return (JSON.stringify(value) ?? String(value)).slice(0, 80);
}

function refuse(code: ErrorCode, message: string): never {
  throw new PawlError(code, message);
}
