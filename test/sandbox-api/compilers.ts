// Compiles small scripts, each alone, with both compilers an author may meet: TypeScript 7 (the command) and 6 (which has
// an API, and which `pawl check` uses). Answers which lines have errors.
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript6";

export interface Finding {
  line: number;
  code: number;
  message: string;
}
export type Findings = ReadonlyMap<string, readonly Finding[]>;

const root = fileURLToPath(new URL("../..", import.meta.url));
const options = {
  strict: true,
  noUncheckedIndexedAccess: true,
  exactOptionalPropertyTypes: true,
  noEmit: true,
  skipLibCheck: true,
  allowImportingTsExtensions: true,
  moduleDetection: "force",
  module: "nodenext",
  target: "es2024",
  lib: ["es2024"],
  types: [],
  paths: { pawl: [join(root, "sandbox-api/index.ts")] },
};

/** Writes the sources (file name → text) to a fresh directory and compiles them there. */
export async function compileWithBoth(
  sources: ReadonlyMap<string, string>,
): Promise<{ v6: Findings; v7: Findings }> {
  const folder = await mkdtemp(join(tmpdir(), "pawl-types-"));
  try {
    const config = join(folder, "tsconfig.json");
    await writeFile(join(folder, "package.json"), '{ "type": "module" }');
    await writeFile(config, JSON.stringify({ compilerOptions: options, include: ["*.ts"] }));
    for (const [name, text] of sources) await writeFile(join(folder, name), text);
    return { v6: withApi(config, folder), v7: await withCommand(folder) };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

function withApi(config: string, folder: string): Findings {
  const { config: json } = ts.readConfigFile(config, (path) => ts.sys.readFile(path)) as { config: unknown };
  const parsed = ts.parseJsonConfigFileContent(json, ts.sys, folder);
  const program = ts.createProgram(parsed.fileNames, parsed.options);
  const found = new Map<string, Finding[]>();
  for (const d of [...parsed.errors, ...ts.getPreEmitDiagnostics(program)]) {
    const line = d.file ? d.file.getLineAndCharacterOfPosition(d.start ?? 0).line + 1 : 0;
    const message = ts.flattenDiagnosticMessageText(d.messageText, "\n");
    add(found, d.file ? basename(d.file.fileName) : "", { line, code: d.code, message });
  }
  return found;
}

async function withCommand(folder: string): Promise<Findings> {
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  const output = await new Promise<string>((resolve) => {
    execFile(
      process.execPath,
      [tsc, "-p", folder, "--pretty", "false"],
      { maxBuffer: 1 << 26, cwd: folder },
      (_, out, err) => resolve(out + err),
    );
  });
  const found = new Map<string, Finding[]>();
  for (const text of output.split("\n")) {
    if (text === "" || text.startsWith(" ")) continue;
    const [, file, line, code, message] = /^(.+?)\((\d+),\d+\): error TS(\d+): (.*)$/.exec(text) ?? [];
    // An unreadable line belongs to no file, so that the test sees it.
    if (file === undefined) add(found, "", { line: 0, code: 0, message: text });
    else add(found, basename(file), { line: Number(line), code: Number(code), message: message ?? "" });
  }
  return found;
}

function add(found: Map<string, Finding[]>, file: string, finding: Finding): void {
  const list = found.get(file);
  if (list) list.push(finding);
  else found.set(file, [finding]);
}
