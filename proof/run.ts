// The long version of the tests: the same files with PAWL_PROOF=1, then proof/RESULTS.md written from what was
// observed. States nothing of its own: every figure is counted or measured. `npm run proof` runs every part, one after the
// other; `npm run proof -- sandbox store` only those. A part that does not run keeps what it showed last time, with the
// commit it showed it on. `npm run proof -- page` runs none and writes the page from what the parts have left.
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { cpus, release, totalmem, type } from "node:os";
import { isAbsolute, join, relative } from "node:path";
import { z } from "zod";

const root = join(import.meta.dirname, "..");
const resultsFolder = join(root, "test-results");
const reportFile = join(resultsFolder, "report.json");
const measurementsFile = join(resultsFolder, "measurements.jsonl");

/** Which tests belong together; each part is a run of its own. */
const PARTS: Record<string, string[]> = {
  sandbox: ["test/contract/sandbox", "test/examples", "test/sandbox", "test/security"],
  store: ["test/core", "test/contract/store", "test/crash/store", "test/store"],
  engine: ["test/crash/serve", "test/engine"],
  simulation: ["test/simulation"],
  api: ["test/api"],
};

const Report = z.object({
  success: z.boolean(),
  testResults: z.array(
    z.object({
      name: z.string(),
      status: z.string(),
      startTime: z.number().optional(),
      endTime: z.number().optional(),
      assertionResults: z.array(
        z.object({ status: z.string(), fullName: z.string(), duration: z.number().nullish() }),
      ),
    }),
  ),
});
type Report = z.infer<typeof Report>;

const Measurement = z.object({
  name: z.string(),
  value: z.union([z.number(), z.string()]),
  unit: z.string(),
  note: z.string().optional(),
});
type Measurement = z.infer<typeof Measurement>;

type FileCount = { file: string; passed: number; failed: number; skipped: number; ms: number };

function git(...args: string[]): string | undefined {
  try {
    return execFileSync("git", args, {
      cwd: root,
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
    }).trim();
  } catch {
    return undefined;
  }
}

function commitLine(): string {
  const commit = git("rev-parse", "HEAD");
  if (commit === undefined) return "not committed yet";
  const dirty = git("status", "--porcelain", "--", ".", ":!proof");
  return dirty === "" ? commit : `${commit} with uncommitted changes`;
}

function machineLine(): string {
  const cores = cpus();
  const memoryGb = (totalmem() / 2 ** 30).toFixed(1);
  const model = cores[0]?.model.trim() ?? "unknown processor";
  return `${cores.length} cores (${model}), ${memoryGb} GB memory, ${type()} ${release()}, Node ${process.version}`;
}

function countFiles(report: Report): FileCount[] {
  const counts = report.testResults.map((result): FileCount => {
    const count = (...statuses: string[]) =>
      result.assertionResults.filter((test) => statuses.includes(test.status)).length;
    const failed = count("failed");
    const file = isAbsolute(result.name) ? relative(root, result.name) : result.name;
    return {
      file: file.replaceAll("\\", "/"),
      passed: count("passed"),
      // A file that broke before its first test still counts as a failure.
      failed: failed === 0 && result.status === "failed" ? 1 : failed,
      skipped: count("skipped", "pending", "todo", "disabled"),
      ms: (result.endTime ?? 0) - (result.startTime ?? 0),
    };
  });
  return counts.sort((a, b) => a.file.localeCompare(b.file, "en"));
}

function readMeasurements(): Measurement[] {
  if (!existsSync(measurementsFile)) return [];
  const lines = readFileSync(measurementsFile, "utf8")
    .split("\n")
    .filter((line) => line.trim() !== "");
  return lines.map((line) => Measurement.parse(JSON.parse(line)));
}

const cell = (text: string) => text.replaceAll("|", "\\|").replaceAll(/\s+/g, " ").replaceAll(root, ".");
const seconds = (ms: number) => `${(ms / 1000).toFixed(1)} s`;

const Part = z.object({
  name: z.string(),
  startedAt: z.string(),
  tookMs: z.number(),
  commit: z.string(),
  machine: z.string(),
  files: z.array(
    z.object({
      file: z.string(),
      passed: z.number(),
      failed: z.number(),
      skipped: z.number(),
      ms: z.number(),
    }),
  ),
  measured: z.array(Measurement),
});
type Part = z.infer<typeof Part>;

function renderPart({ name, startedAt, tookMs, commit, machine, files, measured }: Part): string[] {
  const sum = (pick: (file: FileCount) => number) => files.reduce((total, file) => total + pick(file), 0);
  const [passed, failed, skipped] = [sum((f) => f.passed), sum((f) => f.failed), sum((f) => f.skipped)];
  const lines = [
    `## ${name}: ${passed} passed, ${failed} failed, ${skipped} skipped`,
    "",
    `- Date: ${startedAt}, took ${seconds(tookMs)}`,
    `- Commit: ${commit}`,
    `- Machine: ${machine}`,
    "",
    "| file | passed | failed | skipped | time |",
    "| --- | ---: | ---: | ---: | ---: |",
    ...files.map((f) => `| ${cell(f.file)} | ${f.passed} | ${f.failed} | ${f.skipped} | ${seconds(f.ms)} |`),
    "",
  ];
  if (measured.length === 0) return lines;
  lines.push("| measured | value | unit | note |", "| --- | ---: | --- | --- |");
  for (const m of measured)
    lines.push(`| ${cell(m.name)} | ${cell(String(m.value))} | ${cell(m.unit)} | ${cell(m.note ?? "")} |`);
  return [...lines, ""];
}

function runPart(name: string, filters: string[]): Part | undefined {
  const startedAt = new Date();
  rmSync(reportFile, { force: true });
  rmSync(measurementsFile, { force: true });
  mkdirSync(resultsFolder, { recursive: true });
  const commit = commitLine();
  const vitest = join(root, "node_modules", "vitest", "vitest.mjs");
  spawnSync(process.execPath, [vitest, "run", "--no-file-parallelism", ...filters], {
    cwd: root,
    stdio: "inherit",
    env: { ...process.env, PAWL_PROOF: "1" },
  });
  if (!existsSync(reportFile)) {
    process.stderr.write(`proof: ${name} left no report, so there is nothing to write down\n`);
    return undefined;
  }
  const report = Report.parse(JSON.parse(readFileSync(reportFile, "utf8")));
  return {
    name,
    startedAt: startedAt.toISOString(),
    tookMs: Date.now() - startedAt.getTime(),
    commit,
    machine: machineLine(),
    files: countFiles(report),
    measured: readMeasurements(),
  };
}

const partFile = (name: string) => join(root, "proof", "parts", `${name}.json`);

function writeResults(): void {
  const parts = Object.keys(PARTS)
    .filter((name) => existsSync(partFile(name)))
    .map((name) => Part.parse(JSON.parse(readFileSync(partFile(name), "utf8"))));
  const head = ["# Proof", "", "Written by `npm run proof`; not edited by hand.", ""];
  writeFileSync(join(root, "proof", "RESULTS.md"), `${[...head, ...parts.flatMap(renderPart)].join("\n")}`);
}

function main(asked: string[]): number {
  const unknown = asked.find((name) => PARTS[name] === undefined && name !== "page");
  if (unknown !== undefined) {
    process.stderr.write(`proof: there is no part ${unknown}; there are ${Object.keys(PARTS).join(", ")}\n`);
    return 2;
  }
  mkdirSync(join(root, "proof", "parts"), { recursive: true });
  let sound = true;
  for (const [name, filters] of Object.entries(PARTS)) {
    if (asked.length > 0 && !asked.includes(name)) continue;
    const part = runPart(name, filters);
    if (part) writeFileSync(partFile(name), `${JSON.stringify(part, null, 2)}\n`);
    sound &&= part?.files.some((file) => file.passed > 0) === true && part.files.every((f) => f.failed === 0);
  }
  writeResults();
  process.stdout.write("proof: wrote proof/RESULTS.md\n");
  return sound ? 0 : 1;
}

process.exitCode = main(process.argv.slice(2));
