// Each tool behind `npm run check`, run with the repository's own configuration on a planted project: it must
// accept the clean one and refuse the bad one. A guard that accepts both is not a guard.
import { spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { repoRoot } from "./source.ts";

const planted: string[] = [];

afterEach(() => {
  for (const folder of planted.splice(0)) rmSync(folder, { recursive: true, force: true });
});

// Inside the repository, so that packages resolve; ignored by git, so that no other tool looks here.
function plant(files: Record<string, string>): string {
  mkdirSync(join(repoRoot, ".canary"), { recursive: true });
  const folder = mkdtempSync(join(repoRoot, ".canary", "case-"));
  planted.push(folder);
  // A repository of its own: tools that honour .gitignore would otherwise skip the whole folder and pass.
  mkdirSync(join(folder, ".git"));
  for (const config of ["tsconfig.json", "tsconfig.core.json", ".oxlintrc.json", "biome.json", "knip.json"]) {
    copyFileSync(join(repoRoot, config), join(folder, config));
  }
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), text);
  }
  return folder;
}

function run(cwd: string, tool: string, ...args: string[]): { code: number | null; output: string } {
  const require = createRequire(import.meta.url);
  const packageName = tool === "tsc" ? "typescript" : tool === "biome" ? "@biomejs/biome" : tool;
  const packageFile = join(repoRoot, "node_modules", packageName, "package.json");
  const { bin } = require(packageFile) as { bin: string | Record<string, string> };
  const script = typeof bin === "string" ? bin : bin[tool];
  if (script === undefined) throw new Error(`${packageName} has no program called ${tool}`);
  const done = spawnSync(process.execPath, [join(dirname(packageFile), script), ...args], {
    cwd,
    encoding: "utf8",
    env: { ...process.env, NO_COLOR: "1" },
  });
  return { code: done.status, output: `${done.stdout}${done.stderr}` };
}

const clean = "export const answer = 42;\n";

test("the gate runs every guard, and is what CI runs", () => {
  const { scripts } = JSON.parse(readFileSync(join(repoRoot, "package.json"), "utf8")) as {
    scripts: Record<string, string>;
  };
  const gate = Object.keys(scripts).filter((name) => scripts["check"]?.includes(`npm run ${name}`));
  const commands = gate.map((name) => scripts[name]).join("\n");
  expect(commands).toContain("tsc -p tsconfig.json");
  expect(commands).toContain("tsc -p tsconfig.core.json");
  expect(commands).toContain("oxlint --type-aware --deny-warnings");
  expect(commands).toContain("biome format");
  expect(commands).toContain("knip");
  expect(readFileSync(join(repoRoot, ".ci", "run"), "utf8")).toContain("npm run check");
});

test("the core compiler accepts pure code", () => {
  const folder = plant({ "host/core/run.ts": clean });
  expect(run(folder, "tsc", "-p", "tsconfig.core.json")).toEqual({ code: 0, output: "" });
});

test.each([
  ["process", "export const x = process.pid;\n", "Cannot find name 'process'"],
  ["node:fs", `import { readFileSync } from "node:fs";\nexport const x = readFileSync;\n`, "node:fs"],
  ["setTimeout", "export const x = setTimeout;\n", "Cannot find name 'setTimeout'"],
  ["fetch", "export const x = fetch;\n", "Cannot find name 'fetch'"],
  ["console", "console.log(1);\nexport {};\n", "Cannot find name 'console'"],
  ["Buffer", "export const x = Buffer;\n", "Cannot find name 'Buffer'"],
])("the core compiler refuses %s", (_name, source, complaint) => {
  const folder = plant({ "host/core/run.ts": source });
  const { code, output } = run(folder, "tsc", "-p", "tsconfig.core.json");
  expect(output).toContain(complaint);
  expect(code).not.toBe(0);
});

test.each([
  ["an unchecked index", "export const x: number = ([] as number[])[0];\n", "TS2322"],
  ["an enum, which cannot be erased", "export enum X {\n  A,\n}\n", "TS1294"],
  ["undefined in an optional property", "export const x: { a?: 1 } = { a: undefined };\n", "TS2375"],
  [
    "a type imported as a value",
    `import { Shape } from "./shape.ts";\nexport const x: Shape = 1;\n`,
    "TS1484",
  ],
])("the compiler refuses %s", (_name, source, complaint) => {
  const folder = plant({ "host/run.ts": source, "host/shape.ts": "export type Shape = 1;\n" });
  const { code, output } = run(folder, "tsc", "-p", "tsconfig.json");
  expect(output).toContain(complaint);
  expect(code).not.toBe(0);
});

const lint = (folder: string) =>
  run(folder, "oxlint", "--type-aware", "--deny-warnings", "-c", ".oxlintrc.json");

test("the linter accepts clean code", () => {
  const { code, output } = lint(plant({ "host/run.ts": clean }));
  expect(output).toMatch(/on [1-9]\d* files?/);
  expect(code).toBe(0);
});

test.each([
  [
    "no-floating-promises",
    "async function work(): Promise<void> {}\nexport function start(): void {\n  work();\n}\n",
  ],
  [
    "no-misused-promises",
    "export const x = [1].filter(async (n) => n > 0);\n" +
      "async function yes(): Promise<boolean> {\n  return true;\n}\nexport const y = yes() ? 1 : 2;\n",
  ],
  [
    "switch-exhaustiveness-check",
    `export function word(x: "a" | "b"): void {\n  switch (x) {\n    case "a":\n      break;\n  }\n}\n`,
  ],
  ["no-explicit-any", "export const x: any = 1;\n"],
  ["max-lines-per-function", `export function long(): void {\n${"  void 0;\n".repeat(75)}}\n`],
  ["max-lines", "export {};\n".repeat(401)],
])("the linter refuses what %s forbids", (rule, source) => {
  const { code, output } = lint(plant({ "host/run.ts": source }));
  expect(output).toContain(`(${rule})`);
  expect(code).not.toBe(0);
});

test("the linter refuses an import cycle", () => {
  const folder = plant({
    "host/left.ts": `import { right } from "./right.ts";\nexport const left = () => right;\n`,
    "host/right.ts": `import { left } from "./left.ts";\nexport const right = () => left;\n`,
  });
  const { code, output } = lint(folder);
  expect(output).toContain("(no-cycle)");
  expect(code).not.toBe(0);
});

test("the formatter accepts its own style and refuses another", () => {
  const format = (source: string) => {
    const folder = plant({ "host/run.ts": source });
    return run(folder, "biome", "format", "--vcs-enabled=false", "host/run.ts");
  };
  expect(format(clean).code).toBe(0);
  for (const bad of ["export const x = 'y';\n", "export const x = 1\n", "export  const x = 1;\n"]) {
    const { code, output } = format(bad);
    expect(output).toContain("Formatter would have printed");
    expect(code).not.toBe(0);
  }
});

test("knip refuses a file, an export and a dependency that nobody uses", () => {
  const manifest = { name: "canary", version: "0.0.0", type: "module", dependencies: { zod: "*" } };
  const files = {
    "package.json": JSON.stringify({ ...manifest, dependencies: {} }),
    "host/index.ts": `export { used } from "./used.ts";\n`,
    "host/used.ts": "export const used = 1;\n",
  };
  expect(run(plant(files), "knip", "--no-gitignore").code).toBe(0);

  const bad = plant({
    ...files,
    "package.json": JSON.stringify(manifest),
    "host/used.ts": "export const used = 1;\nexport const spare = 2;\n",
    "host/orphan.ts": clean,
  });
  const { code, output } = run(bad, "knip", "--no-gitignore");
  expect(output).toContain("host/orphan.ts");
  expect(output).toContain("spare");
  expect(output).toContain("zod");
  expect(code).not.toBe(0);
});
