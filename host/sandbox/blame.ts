/**
 * A failure inside the sandbox → what its author reads: class, code, message, the place in their own file and the
 * lines around it. Never a path of the host, never a frame of the prelude.
 */
import { SourceMap, type SourceMapPayload } from "node:module";
import { ERRORS, type ErrorCode } from "../core/errors.ts";
import type { Location } from "../core/workflow.ts";
import type { Limits, SandboxCall, SandboxError, Script } from "../ports/sandbox.ts";

/** What the prelude says of a throw; all of it is the script's word. */
interface Thrown {
  code: string;
  name: string;
  message: string;
  stack: string;
}

const FROZEN =
  /not extensible|read only property|Cannot (?:add|assign|define|delete|redefine)|which has only a getter/;
/** V8 quotes a function by its source, which for some built-ins is the prelude's. */
const FUNCTION_TEXT = / of function '[^]*'$/;
/** `at f`, `at new F`, `at async f`, `at Object.f [as g]`, or no name at all; then the place. */
const STACK_LINE =
  /^\s*at (?:async )?(?:new )?(?:([^\s(]+) (?:\[as [^\]]+\] )?)?\(?pawl-script:.*?:(-?\d+):(\d+)\)?$/;

/** B1. A script can bend this text (a `toJSON` for every object), so it can name no error but a script's own. */
export function thrownError(call: SandboxCall, limits: Limits, json: string, scope: string): SandboxError {
  const thrown = readThrown(json);
  const code = scriptCode(thrown.code);
  if (thrown.message === "" && (thrown.stack === "" || code !== "handler-throws"))
    return limitError(call, limits, code, "", thrown.stack);
  if (code !== "handler-throws") return located(call, code, thrown.message, thrown.stack);
  if (scope === "frozen" && thrown.name === "TypeError" && FROZEN.test(thrown.message))
    return located(
      call,
      "frozen-builtin",
      `${thrown.message.replace(FUNCTION_TEXT, " of a built-in function")}: built-in objects cannot be changed in the frozen scope`,
      thrown.stack,
    );
  const said = thrown.message.startsWith("threw ") ? thrown.message : `${thrown.name}: ${thrown.message}`;
  return located(call, code, said, thrown.stack);
}

function readThrown(json: string): Thrown {
  const given = JSON.parse(json) as Partial<Record<keyof Thrown, unknown>> | null;
  const text = (key: keyof Thrown) => (typeof given?.[key] === "string" ? given[key] : "");
  return { code: text("code"), name: text("name"), message: text("message"), stack: text("stack") };
}

function scriptCode(code: string): ErrorCode {
  return Object.hasOwn(ERRORS, code) && ERRORS[code as ErrorCode].blame === "script"
    ? (code as ErrorCode)
    : "handler-throws";
}

/** A guard's verdict points at what it interrupted, else at the handler. */
export function limitError(
  call: SandboxCall,
  limits: Limits,
  code: ErrorCode,
  why = "",
  stack = "",
): SandboxError {
  const who = `${call.unit} of ${call.handler}`;
  const said: Partial<Record<ErrorCode, string>> = {
    "cpu-limit": `${who} computed for more than ${limits.sectionMs} ms without a pause, or ${limits.cpuMs} ms in all`,
    "wall-limit": `${who} did not end within ${limits.wallMs} ms`,
    "memory-limit": `${who} needed more memory than its ${limits.memoryMb} MB`,
    "host-call-limit": `${who} made more than ${limits.hostCalls} calls to the host`,
    "output-limit": `${who} handed over more than ${limits.outputBytes} bytes`,
    "never-settles": `${who} waits for something that can never happen`,
  };
  return located(call, code, `${said[code] ?? ERRORS[code].summary}${why === "" ? "" : ` (${why})`}`, stack);
}

export function located(call: SandboxCall, code: ErrorCode, message: string, stack: string): SandboxError {
  const { script } = call;
  const frames = authorFrames(stack, script.code);
  const handler =
    call.unit === "producer"
      ? script.manifest.producers[call.handler]
      : script.manifest.consumers[call.handler];
  const place = frames[0] ?? handler?.location;
  const error: SandboxError = { class: ERRORS[code].class, code, message: message.slice(0, 2_000) };
  if (!place) return error;
  const originalOf = mapped(script);
  const original = originalOf(place);
  error.location = { line: original.line, column: original.column };
  error.at = `${original.file}:${original.line}:${original.column}`;
  if (original.file === script.file) error.frame = codeFrame(script.source, error.location);
  if (frames.length > 0)
    error.stack = frames.slice(0, 10).map((frame) => {
      const { file, line, column } = originalOf(frame);
      return `${frame.name || "(anonymous)"} (${file}:${line}:${column})`;
    });
  return error;
}

/** The lines around a place, with a caret under it. */
export function codeFrame(source: string, at: Location): string {
  const lines = source.split(/\r\n|\n|\r/);
  const first = Math.max(1, at.line - 2);
  const last = Math.min(lines.length, at.line + 1);
  const width = String(last).length;
  const out: string[] = [];
  for (let n = first; n <= last; n++) {
    const text = (lines[n - 1] ?? "").slice(0, 160).replace(/\t/g, " ");
    out.push(`${n === at.line ? ">" : " "} ${String(n).padStart(width)} | ${text}`);
    if (n === at.line && at.column >= 1 && at.column <= 160)
      out.push(`  ${" ".repeat(width)} | ${" ".repeat(at.column - 1)}^`);
  }
  return out.join("\n");
}

/** The frames of a stack that name a place the file has: the text is the script's own to invent. */
function authorFrames(stack: string, code: string): { name: string; line: number; column: number }[] {
  const frames: { name: string; line: number; column: number }[] = [];
  if (stack === "") return frames;
  const lines = code.split("\n"); // The first is the head of the function around the author's own.
  for (const line of stack.split("\n")) {
    const [, name = "", row, column] = STACK_LINE.exec(line) ?? [];
    const width = lines[Number(row)]?.length ?? -1;
    if (Number(row) > 0 && Number(column) > 0 && Number(column) <= width + 1)
      frames.push({
        name: name.replace(/^Object\.|<anonymous>/g, ""),
        line: Number(row),
        column: Number(column),
      });
  }
  return frames;
}

type Place = Location & { file: string };

/** Places of the uploaded file → places of the files it was bundled from; a map that cannot be read maps nothing. */
function mapped(script: Script): (at: Location) => Place {
  const same = ({ line, column }: Location): Place => ({ file: script.file, line, column });
  let map: SourceMap;
  try {
    if (script.sourceMap === undefined) return same;
    map = new SourceMap(JSON.parse(script.sourceMap) as SourceMapPayload);
  } catch {
    return same;
  }
  return (at) => {
    const entry = map.findEntry(at.line - 1, at.column - 1);
    if (!("originalSource" in entry)) return same(at);
    const { originalSource: file, originalLine: line, originalColumn: column } = entry;
    const isPlace = typeof file === "string" && line >= 0 && column >= 0;
    return isPlace ? { file, line: line + 1, column: column + 1 } : same(at);
  };
}
