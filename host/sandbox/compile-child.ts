/**
 * The disposable child that reads one uploaded file: strips types, parses, loads it in an isolate without any
 * capability, and answers with plain data. Nested brackets can crash a stripper and a parser, so this never happens in
 * the host nor where scripts run.
 */
import { readSync, writeSync } from "node:fs";
import { stripTypeScriptTypes } from "node:module";
import type ivm from "isolated-vm";
import { Room } from "./isolate.ts";
import { findWarnings, mentions, type Positions, positionsOf } from "./locate.ts";
import { type Finding, parseModule, Refusal, toFunction } from "./module.ts";
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
      warnings: Finding[];
      scope: "fresh" | "frozen";
      untitled: string[];
    };

const SOCKET = 3;
const START = { line: 1, column: 0 };
const BUILT_IN_CHANGED =
  /not extensible|read only property|Cannot (?:add|assign|define|delete|redefine)|built-in/;

export function serve({ vm, prelude }: { vm: typeof ivm; prelude: { text: string; lines: number } }): never {
  const head = fill(HEADER_BYTES);
  const request = JSON.parse(fill(head.readUInt32LE(0)).toString()) as CompileRequest;
  let reply: CompileReply;
  try {
    reply = compile(request, vm, prelude);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    reply = { ok: false, finding: error.finding };
  }
  const out = encodeFrame(FRAME.compiled, 0, 0, JSON.stringify(reply));
  for (let at = 0; at < out.length; ) at += writeSync(SOCKET, out, at);
  process.exit(0);
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
  const text = request.language === "ts" ? strip(request.source, request.file) : request.source;
  const tree = parseModule(text);
  const code = toFunction(text, tree);
  let scope: "fresh" | "frozen" = "frozen";
  let loaded = load(request, code, vm, prelude, scope);
  if (loaded.kind === "fail" && BUILT_IN_CHANGED.test(loaded.json)) {
    scope = "fresh";
    loaded = load(request, code, vm, prelude, scope);
  }
  if (loaded.kind === "fail") {
    const { name, message, stack } = JSON.parse(loaded.json) as {
      name: string;
      message: string;
      stack: string;
    };
    const at = /pawl-script:[^\n]*?:(\d+):(\d+)/.exec(stack);
    throw new Refusal(
      "load-failed",
      `loading the file threw ${name}: ${message}`,
      at ? { line: Number(at[1]), column: Number(at[2]) - 1 } : START,
    );
  }
  const consumers = (JSON.parse(loaded.json) as { consumers?: object } | null)?.consumers ?? {};
  return {
    ok: true,
    code,
    declaration: loaded.json,
    positions: positionsOf(tree),
    warnings: findWarnings(tree),
    scope,
    untitled: Object.keys(consumers).filter(
      (name) => !mentions(tree, ["consumers", name, "prepare"], "title"),
    ),
  };
}

function strip(source: string, file: string): string {
  try {
    return stripTypeScriptTypes(source, { sourceUrl: file });
  } catch (error) {
    const { code, message, stack } = error as Error & { code?: string };
    if (code !== "ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX" && code !== "ERR_INVALID_TYPESCRIPT_SYNTAX")
      throw new Refusal("script-too-deep", "the file nests too deeply to be read", START);
    const line = /^[^\n]*?:(\d+)\n/.exec(stack ?? "");
    const caret = /\n( *)\^+\n/.exec(stack ?? "");
    throw new Refusal(
      code === "ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX" ? "unsupported-syntax" : "script-syntax",
      message,
      {
        line: line ? Number(line[1]) : 1,
        column: caret ? (caret[1] as string).length : 0,
      },
    );
  }
}

function load(
  request: CompileRequest,
  code: string,
  vm: typeof ivm,
  prelude: { text: string; lines: number },
  scope: "fresh" | "frozen",
) {
  const ended: { kind: string; json: string }[] = [];
  let room: Room | undefined;
  try {
    room = new Room(vm, prelude, code, request.file, request.memoryMb);
    const realm = room.take(scope, 2_000);
    realm.send = (kind, _id, _name, json) => ended.push({ kind, json });
    realm.enter("declare", 0, "", 0, request.loadMs);
  } catch (error) {
    if (!room) throw new Refusal("script-syntax", String((error as Error).message), START);
    const why = room.disposed ? "ran out of memory" : "did not finish in time";
    throw new Refusal("load-limit", `top-level code ${why}`, START);
  }
  const last = ended.at(-1);
  if (!last) throw new Refusal("load-limit", "top-level code did not finish", START);
  return last;
}
