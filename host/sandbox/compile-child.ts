/**
 * The disposable child that reads one uploaded file: strips types, parses, loads it in an isolate without any
 * capability, and answers with plain data. Nested brackets can crash a stripper and a parser, so this never happens in
 * the host nor where scripts run.
 */
import { readSync, writeSync } from "node:fs";
import { stripTypeScriptTypes } from "node:module";
import type ivm from "isolated-vm";
import { Room } from "./isolate.ts";
import {
  findWarnings,
  firstOf,
  isWithin,
  LONG_WORK,
  mentions,
  type Positions,
  positionsOf,
  type Span,
} from "./locate.ts";
import { deepest, type Finding, type Module, parseModule, Refusal, START, toFunction } from "./module.ts";
import { encodeFrame, FRAME, HEADER_BYTES } from "./wire.ts";

export interface CompileRequest {
  source: string;
  language: "ts" | "js";
  file: string;
  loadMs: number;
  memoryMb: number;
}

export type CompileReply =
  | { ok: false; finding: Finding }
  | {
      ok: true;
      code: string;
      declaration: string;
      positions: Positions;
      /** Names that one object of the declaration gives twice; the program only ever saw the second. */
      duplicates: Finding[];
      warnings: Finding[];
      scope: "fresh" | "frozen";
      untitled: string[];
    };

type Place = { line: number; column: number };

const SOCKET = 3;
const TIMED_OUT = "Script execution timed out";
/** What authors miss first, and what to use instead. */
const ABSENT: Record<string, string> = {
  fetch: "Use a tool of a connection inside a handler, like `ctx.shop.get(…)`.",
  process: "Use `params` for settings; a script has no process and no environment.",
  setTimeout: "There are no timers; use a schedule or `wakeAt`.",
  setInterval: "There are no timers; use a schedule or `wakeAt`.",
  Buffer: "Use TextEncoder, TextDecoder, atob and btoa.",
  module: "Write `export default workflow({ … })`.",
  exports: "Write `export default workflow({ … })`.",
};
const ERASABLE: [word: string, hint: string][] = [
  ["enum", 'Write a const object instead: `const Color = { Red: "red" } as const`.'],
  ["namespace", "Write plain functions and constants, or one const object."],
  ["parameter property", "Declare the field in the class and assign it in the constructor."],
  ["import equals", 'Write `import { workflow } from "pawl"`.'],
  ["export assignment", "Write `export default workflow({ … })`."],
  ["angle-bracket", "Write `value as Type`."],
];
/** Where the marked syntax begins in a line without a caret. */
const KEYWORD = /\b(?:enum|namespace|module|private|public|protected|readonly)\b|`|\/\*/;
const WIDE =
  /[\p{Emoji_Presentation}\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]/u;
const NO_WIDTH = /[\p{Mn}\p{Cf}]/u;
const BUILT_IN_CHANGED =
  /not extensible|read only property|Cannot (?:add|assign|define|delete|redefine)|built-in/;

export function serve({ vm, prelude }: { vm: typeof ivm; prelude: { text: string; lines: number } }): never {
  say(FRAME.ready, ""); // from here on the watchdogs of the host count
  const head = fill(HEADER_BYTES);
  const request = JSON.parse(fill(head.readUInt32LE(0)).toString()) as CompileRequest;
  let reply: CompileReply;
  try {
    reply = compile(request, vm, prelude);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    reply = { ok: false, finding: error.finding };
  }
  say(FRAME.compiled, JSON.stringify(reply));
  process.exit(0);
}

function say(type: number, body: string): void {
  const out = encodeFrame(type, 0, 0, body);
  for (let at = 0; at < out.length; ) at += writeSync(SOCKET, out, at);
}

function fill(bytes: number): Buffer {
  const out = Buffer.allocUnsafe(bytes);
  for (let at = 0; at < bytes; ) {
    const got = readSync(SOCKET, out, at, bytes - at, null);
    if (got === 0) process.exit(1);
    at += got;
  }
  return out;
}

function compile(
  request: CompileRequest,
  vm: typeof ivm,
  prelude: { text: string; lines: number },
): CompileReply {
  const module = read(request);
  const { tree } = module;
  const code = toFunction(module);
  const { positions, duplicates } = positionsOf(tree);
  const root = positions[""];
  const fallback = root ? { line: root.line, column: root.column - 1 } : START;
  let scope: "fresh" | "frozen" = "frozen";
  const busy = firstOf(tree, ...LONG_WORK) ?? { ...fallback, end: fallback };
  let loaded = load(request, code, vm, prelude, scope, busy);
  if (loaded.kind === "fail" && BUILT_IN_CHANGED.test(loaded.json)) {
    scope = "fresh";
    loaded = load(request, code, vm, prelude, scope, busy);
  }
  if (loaded.kind === "fail")
    throw loadFailure(loaded.json, tree.loc?.end.line ?? 1, firstOf(tree, /^Throw/) ?? fallback);
  const consumers = (JSON.parse(loaded.json) as { consumers?: object } | null)?.consumers ?? {};
  return {
    ok: true,
    code,
    declaration: loaded.json,
    positions,
    duplicates,
    warnings: findWarnings(tree),
    scope,
    untitled: Object.keys(consumers).filter(
      (name) => !mentions(tree, ["consumers", name, "prepare"], "title"),
    ),
  };
}

/** The stack is the script's own to invent: a place that the file does not have is none. */
function loadFailure(json: string, lines: number, fallback: Place): Refusal {
  const { name, message, stack } = JSON.parse(json) as { name: string; message: string; stack: string };
  const claimed = authorPlace(stack);
  const at = claimed && claimed.line <= lines && claimed.column >= 0 ? claimed : undefined;
  // Only the prelude's own frames: it could not read the declaration as data.
  if (!at && name === "RangeError" && message.startsWith("the declaration"))
    return new Refusal("manifest-invalid", message, fallback, "Declare plain, finite data.");
  const said = message.startsWith("threw ") ? message : `threw ${name}: ${message}`;
  const [, missing] = name === "ReferenceError" ? (/^(\S+) is not defined$/.exec(message) ?? []) : [];
  const hint =
    missing === undefined
      ? undefined
      : (ABSENT[missing] ??
        `Declare \`${missing}\`, or correct the name; it is not one of the globals here.`);
  return new Refusal("load-failed", `loading the file ${said}`, at ?? fallback, hint);
}

function authorPlace(stack: string): Place | undefined {
  const at = /pawl-script:[^\n]*?:([1-9]\d*):(\d+)/.exec(stack);
  return at ? { line: Number(at[1]), column: Number(at[2]) - 1 } : undefined;
}

function read(request: CompileRequest): Module {
  if (request.language === "ts") return parseModule(strip(request.source));
  try {
    return parseModule(request.source);
  } catch (error) {
    if (error instanceof Refusal && error.finding.code === "script-syntax" && isTypeScript(request.source))
      error.finding.hint = "This reads as TypeScript: give the file the ending .ts, or remove the types.";
    throw error;
  }
}

function isTypeScript(source: string): boolean {
  try {
    parseModule(strip(source));
    return true;
  } catch {
    return false;
  }
}

function strip(source: string): string {
  try {
    return stripTypeScriptTypes(source);
  } catch (error) {
    const { code, message, stack = "" } = error as Error & { code?: string };
    if (code !== "ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX" && code !== "ERR_INVALID_TYPESCRIPT_SYNTAX")
      throw new Refusal("script-too-deep", "the file nests too deeply to be read", deepest(source));
    const at = strippedPlace(source, message, stack);
    if (code === "ERR_INVALID_TYPESCRIPT_SYNTAX") throw new Refusal("script-syntax", message, at);
    const plain = message.replace(" is not supported in strip-only mode", " cannot be erased");
    const [, hint] = ERASABLE.find(([word]) => message.includes(word)) ?? [];
    throw new Refusal("unsupported-syntax", plain, at, hint);
  }
}

/** The stripper tells the line, and the column only by a caret under a line whose tabs and wide letters it spread. */
function strippedPlace(source: string, message: string, stack: string): Place {
  if (message.includes("<eof>")) {
    const lines = source.trimEnd().split("\n");
    return { line: lines.length, column: (lines.at(-1) ?? "").length };
  }
  const line = Number(/^[^\n]*?:(\d+)\n/.exec(stack)?.[1] ?? 1);
  const text = source.split(/\r\n|[\n\r\u2028\u2029]/)[line - 1] ?? "";
  const caret = /\n( *)\^+\n/.exec(stack)?.[1]?.length;
  if (caret === undefined) {
    const found = text.search(KEYWORD);
    return { line, column: Math.max(0, found < 0 ? text.search(/\S/) : found) };
  }
  let width = 0;
  let column = 0;
  for (const letter of text) {
    if (width >= caret) break;
    width += letter === "\t" ? 4 - (width % 4) : WIDE.test(letter) ? 2 : NO_WIDTH.test(letter) ? 0 : 1;
    column += letter.length;
  }
  return { line, column };
}

function load(
  request: CompileRequest,
  code: string,
  vm: typeof ivm,
  prelude: { text: string; lines: number },
  scope: "fresh" | "frozen",
  busy: Span,
) {
  const ended: { kind: string; json: string }[] = [];
  let room: Room | undefined;
  try {
    room = new Room(vm, prelude, code, request.file, request.memoryMb);
    const realm = room.take(scope, 2_000);
    realm.send = (kind, _id, _name, json) => ended.push({ kind, json });
    realm.enter("declare", 0, "", 0, request.loadMs);
  } catch (error) {
    const { name, message, stack = "" } = error as Error;
    if (!room) throw new Refusal("script-syntax", message, START);
    if (room.disposed) throw new Refusal("load-limit", "top-level code ran out of memory", busy);
    if (message.startsWith(TIMED_OUT)) {
      // Where in it the time ran out is chance.
      const at = authorPlace(stack);
      const place = at && !isWithin(at, busy) ? at : busy;
      throw new Refusal("load-limit", "top-level code did not finish in time", place);
    }
    return { kind: "fail", json: JSON.stringify({ name, message, stack }) };
  }
  const last = ended.at(-1);
  if (!last) throw new Refusal("load-limit", "top-level code did not finish", busy);
  return last;
}
