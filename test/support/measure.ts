/** A figure for the proof's result file; states what was counted or measured, judges nothing. */
import { appendFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const FOLDER = fileURLToPath(new URL("../../test-results", import.meta.url));

export function measure(measurement: {
  suite: string;
  name: string;
  value: number;
  unit: string;
  note?: string;
}): void {
  mkdirSync(FOLDER, { recursive: true });
  appendFileSync(join(FOLDER, "measurements.jsonl"), `${JSON.stringify(measurement)}\n`);
}
