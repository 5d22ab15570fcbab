// Prints "N passed, N failed[, N skipped]" from the test report, and fails unless every test that ran passed.
import { readFileSync } from "node:fs";

let report;
try {
  report = JSON.parse(readFileSync(new URL("../test-results/report.json", import.meta.url), "utf8"));
} catch (error) {
  console.error(`no readable test report: ${error.message}`);
  console.log("0 passed, 1 failed");
  process.exit(1);
}

const passed = report.numPassedTests;
// A file that never got as far as its tests counts as one failure.
const deadFiles = report.testResults.filter(
  (file) => file.status === "failed" && !file.assertionResults.some((test) => test.status === "failed"),
).length;
const failed = report.numFailedTests + deadFiles;
const skipped = report.numPendingTests + (report.numTodoTests ?? 0);

console.log(`${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`);
process.exitCode = failed > 0 || passed === 0 || !report.success ? 1 : 0;
