/**
 * An uploaded file → a script that can run, or the problems that keep it from being one. The reading happens in a
 * disposable child under limits; the judging in `check.ts`.
 */
import { createHash } from "node:crypto";
import type { ErrorCode } from "../core/errors.ts";
import type { Compilation, CompiledScript, Upload } from "../ports/sandbox.ts";
import { checkDeclaration, problem } from "./check.ts";
import type { CompileReply, CompileRequest } from "./compile-child.ts";
import { deepest } from "./module.ts";
import { childProgram, encodeProgram } from "./program.ts";
import { FRAME } from "./wire.ts";
import { Worker } from "./worker.ts";

const MAX_BYTES = 1_048_576;
const MAX_MAP_BYTES = 8 * MAX_BYTES;
const MAX_PROBLEMS = 100;
const COMPILE_MS = 5_000;
const LOAD_MS = 500;
const LOAD_MEMORY_MB = 64;
const CHILD_RSS_MB = 512;

export async function compileScript(upload: Upload): Promise<Compilation> {
  const { source, maxBytes = MAX_BYTES } = upload;
  const refuse = (code: ErrorCode, message: string, line = 1, column = 1, hint?: string): Compilation => ({
    ok: false,
    problems: [problem(code, message, { line, column }, hint)],
  });
  const bytes = Buffer.byteLength(source);
  if (bytes > maxBytes)
    return refuse("script-too-large", `the file is ${bytes} bytes; the limit is ${maxBytes}`);
  if (Buffer.byteLength(upload.sourceMap ?? "") > MAX_MAP_BYTES)
    return refuse("script-too-large", `the source map is larger than ${MAX_MAP_BYTES} bytes`);
  if (source.trim() === "") return refuse("script-empty", "the file is empty");
  const bad = source.search(/\0|\p{Surrogate}/u);
  if (bad >= 0) {
    const before = source.slice(0, bad).split("\n");
    return refuse(
      "script-encoding",
      "the file holds a NUL or a broken character",
      before.length,
      (before.at(-1) ?? "").length + 1,
    );
  }
  const reply = await inChild({
    source,
    language: upload.language,
    file: upload.file.replace(/[\r\n]/g, " "),
    loadMs: LOAD_MS,
    memoryMb: LOAD_MEMORY_MB,
  });
  if (reply === undefined) {
    const { line, column } = deepest(source);
    const message = "the file could not be read: it nests too deeply, or is too much for the time allowed";
    return refuse("script-too-deep", message, line, column + 1);
  }
  if (!reply.ok) {
    const { code, message, line, column, hint } = reply.finding;
    return refuse(code as ErrorCode, message, line, column, hint);
  }
  const checked = checkDeclaration(reply, {
    nowMs: upload.nowMs,
    minIntervalMs: upload.minIntervalMs ?? 30_000,
    ...(upload.name === undefined ? {} : { name: upload.name }),
  });
  const problems = checked.problems
    .toSorted((a, b) => a.location.line - b.location.line || a.location.column - b.location.column)
    .slice(0, MAX_PROBLEMS);
  if (!checked.manifest) return { ok: false, problems };
  const script: CompiledScript = {
    workflow: checked.manifest.name,
    hash: createHash("sha256")
      .update(`${upload.language}\n${source}\n${upload.sourceMap ?? ""}`)
      .digest("hex"),
    file: upload.file,
    source,
    code: reply.code,
    manifest: checked.manifest,
    scope: reply.scope,
  };
  if (upload.sourceMap !== undefined) script.sourceMap = upload.sourceMap;
  return { ok: true, script, problems };
}

let program: Buffer | undefined;

/** The child's answer, or `undefined` when it died or had to be killed. */
async function inChild(request: CompileRequest): Promise<CompileReply | undefined> {
  program ??= encodeProgram(childProgram("compile"));
  const rssBytes = CHILD_RSS_MB * 1_048_576;
  const worker = new Worker({ program, rssBytes, memoryBytes: rssBytes });
  const body = await new Promise<string | undefined>((resolve) => {
    worker.admit(0, {
      sectionMs: COMPILE_MS,
      frame: (frame) => resolve(frame.body),
      gone: () => resolve(undefined),
    });
    worker.work(FRAME.compile, 0, 0, JSON.stringify(request));
  });
  await worker.close();
  return body === undefined ? undefined : (JSON.parse(body) as CompileReply);
}
