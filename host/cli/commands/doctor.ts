/** `pawl doctor`: which layers stand between a script and this machine. */
import { inspectHardening } from "../../host.ts";
import { paint, say, sayJson } from "../render.ts";

export function doctor(options: { json?: boolean }): number {
  const report = {
    node: process.version,
    platform: `${process.platform}-${process.arch}`,
    sandbox: inspectHardening(),
  };
  if (options.json) {
    sayJson(report);
    return 0;
  }
  say(`node ${report.node} on ${report.platform}`);
  say(`sandbox hardening level ${report.sandbox.level} of 3`);
  for (const layer of report.sandbox.layers)
    say(
      `  ${layer.inForce ? paint("green", "in force") : paint("yellow", "MISSING ")}  ${layer.name.padEnd(17)} ${layer.detail}`,
    );
  return 0;
}
