// The long version of the tests: the same suite with PAWL_PROOF=1, then proof/RESULTS.md written from what was
// observed. States nothing of its own: every figure is counted or measured in this run.
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { cpus, release, totalmem, type } from "node:os";
import { isAbsolute, join, relative } from "node:path";
import { z } from "zod";

const root = join(import.meta.dirname, "..");
const resultsFolder = join(root, "test-results");
const reportFile = join(resultsFolder, "report.json");
const filters = process.argv.slice(2);
const measurementsFile = join(resultsFolder, "measurements.jsonl");

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
  const dirty = git("status", "--porcelain", "--", ".", ":!proof/RESULTS.md");
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

function render(startedAt: Date, tookMs: number, files: FileCount[], measured: Measurement[]): string {
  const sum = (pick: (file: FileCount) => number) => files.reduce((total, file) => total + pick(file), 0);
  const [passed, failed, skipped] = [sum((f) => f.passed), sum((f) => f.failed), sum((f) => f.skipped)];
  const lines = [
    "# Proof",
    "",
    "Written by `npm run proof`; not edited by hand.",
    "",
    `- Date: ${startedAt.toISOString()}, took ${seconds(tookMs)}`,
    `- Commit: ${commitLine()}`,
    `- Machine: ${machineLine()}`,
    ...(filters.length === 0 ? [] : [`- Only part of the suite ran: ${filters.map(cell).join(", ")}`]),
    `- Result: ${passed} passed, ${failed} failed, ${skipped} skipped`,
    "",
    "## Tests",
    "",
    "| file | passed | failed | skipped | time |",
    "| --- | ---: | ---: | ---: | ---: |",
    ...files.map((f) => `| ${cell(f.file)} | ${f.passed} | ${f.failed} | ${f.skipped} | ${seconds(f.ms)} |`),
    "",
    "## Measurements",
    "",
  ];
  if (measured.length === 0) lines.push("None were reported.");
  else {
    lines.push("| what | value | unit | note |", "| --- | ---: | --- | --- |");
    for (const m of measured) {
      lines.push(`| ${cell(m.name)} | ${cell(String(m.value))} | ${cell(m.unit)} | ${cell(m.note ?? "")} |`);
    }
  }
  return `${lines.join("\n")}\n`;
}

function main(): number {
  const startedAt = new Date();
  rmSync(reportFile, { force: true });
  rmSync(measurementsFile, { force: true });
  mkdirSync(resultsFolder, { recursive: true });
  const vitest = join(root, "node_modules", "vitest", "vitest.mjs");
  const done = spawnSync(process.execPath, [vitest, "run", ...filters], {
    cwd: root,
    stdio: "inherit",
    env: { ...process.env, PAWL_PROOF: "1" },
  });
  if (!existsSync(reportFile)) {
    process.stderr.write("proof: the test run left no report, so there is nothing to write down\n");
    return 1;
  }
  const report = Report.parse(JSON.parse(readFileSync(reportFile, "utf8")));
  const files = countFiles(report);
  const text = render(startedAt, Date.now() - startedAt.getTime(), files, readMeasurements());
  writeFileSync(join(root, "proof", "RESULTS.md"), text);
  process.stdout.write("proof: wrote proof/RESULTS.md\n");
  const ran = files.some((file) => file.passed > 0);
  return done.status === 0 && report.success && ran && files.every((file) => file.failed === 0) ? 0 : 1;
}

process.exitCode = main();
