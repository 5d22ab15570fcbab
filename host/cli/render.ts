/** How the CLI speaks: text from scripts is stripped of control characters before a terminal sees it. */
import { isUtf8 } from "node:buffer";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import { styleText } from "node:util";

/** An expected end: a message that says what to do, and the exit code. */
export class CliFailure extends Error {
  readonly exitCode: number;
  constructor(exitCode: number, message: string) {
    super(message);
    this.exitCode = exitCode;
  }
}

type Style = Parameters<typeof styleText>[0];

export function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** What a terminal acts on or cannot show: controls, invisible and bidirectional marks, separators of lines. */
const ACTIVE = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}]/gu;

/** One JSON document; what would be active on a terminal is escaped, which changes no value. */
export function sayJson(value: unknown): void {
  const escaped = (text: string) =>
    text.replace(/[^]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
  say(JSON.stringify(value, null, 2).replace(ACTIVE, (one) => (one === "\n" ? one : escaped(one))));
}

/** Talk: for the person at the terminal, never data. */
export function remark(line: string): void {
  process.stderr.write(`${line}\n`);
}

/** Colour only where a person looks at it; `NO_COLOR` is honoured. */
export function paint(style: Style, text: string): string {
  return styleText(style, text, { stream: process.stdout });
}

/** Untrusted text on one line, without anything a terminal would act on. */
export function inert(text: string, max = 200): string {
  const plain = text.replace(ACTIVE, " ");
  return plain.length > max ? `${plain.slice(0, max - 1)}…` : plain;
}

/** As `inert`, but for a code frame, whose line breaks are ours. */
export function inertLines(text: string): string {
  return text
    .split("\n")
    .map((line) => inert(line))
    .join("\n");
}

export interface ScriptFile {
  path: string;
  file: string;
  language: "ts" | "js";
  source: string;
}

/** The scripts at the given paths; a folder means the scripts directly in it. */
export function scriptFiles(paths: string[]): ScriptFile[] {
  const found: ScriptFile[] = [];
  for (const path of paths) {
    const stat = statSync(path, { throwIfNoEntry: false });
    if (!stat) throw new CliFailure(3, `there is no file or folder ${inert(path)}`);
    if (stat.isDirectory()) found.push(...scriptsIn(path).map(readScript));
    else if (stat.isFile() && isScript(path)) found.push(readScript(path));
    else throw new CliFailure(2, `${inert(path)} is not a script: give a .ts or .js file`);
  }
  if (found.length === 0)
    throw new CliFailure(3, `no scripts (.ts or .js) in ${paths.map((path) => inert(path)).join(", ")}`);
  return found;
}

/** Paths of the scripts directly in a folder. */
export function scriptsIn(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true })
    .filter((entry) => !entry.isDirectory() && isScript(entry.name))
    .sort(byName)
    .map((entry) => join(folder, entry.name));
}

function byName(a: { name: string }, b: { name: string }): number {
  return a.name < b.name ? -1 : 1;
}

function isScript(name: string): boolean {
  return /\.m?[jt]s$/.test(name) && !/\.(test|d)\.m?[jt]s$/.test(name);
}

export function readScript(path: string): ScriptFile {
  let bytes: Buffer;
  try {
    bytes = readFileSync(path);
  } catch (error) {
    throw new CliFailure(4, `${inert(path)} cannot be read: ${(error as NodeJS.ErrnoException).code ?? ""}`);
  }
  if (!isUtf8(bytes)) throw new CliFailure(6, `${inert(path)} is not text in UTF-8: save it as UTF-8`);
  const language = path.endsWith("ts") ? "ts" : "js";
  return { path, file: basename(path), language, source: bytes.toString("utf8") };
}
