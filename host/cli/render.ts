/** How the CLI speaks: text from scripts is stripped of control characters before a terminal sees it. */
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

/** Colour only where a person looks at it; `NO_COLOR` is honoured. */
export function paint(style: Style, text: string): string {
  return styleText(style, text, { stream: process.stdout });
}

/** Untrusted text on one line, without anything a terminal would act on. */
export function inert(text: string, max = 200): string {
  // oxlint-disable-next-line no-control-regex
  const plain = text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069]/g, " ");
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
    const files = stat.isDirectory()
      ? readdirSync(path)
          .sort()
          .map((name) => join(path, name))
      : [path];
    for (const file of files) {
      if (!/\.m?[jt]s$/.test(file) || /\.(test|d)\.m?[jt]s$/.test(file)) {
        if (!stat.isDirectory())
          throw new CliFailure(2, `${inert(path)} is not a script: give a .ts or .js file`);
        continue;
      }
      found.push({
        path: file,
        file: basename(file),
        language: /ts$/.test(file) ? "ts" : "js",
        source: readFileSync(file, "utf8"),
      });
    }
  }
  if (found.length === 0)
    throw new CliFailure(3, `no scripts (.ts or .js) in ${paths.map((path) => inert(path)).join(", ")}`);
  return found;
}
