import { defineConfig } from "vitest/config";

const proof = process.env["PAWL_PROOF"] === "1";

export default defineConfig({
  test: {
    environment: "node",
    pool: "forks",
    maxWorkers: 2,
    include: ["test/**/*.test.ts"],
    testTimeout: proof ? 3_600_000 : 60_000,
    hookTimeout: proof ? 600_000 : 60_000,
    reporters: ["default", "json"],
    outputFile: { json: "test-results/report.json" },
  },
});
