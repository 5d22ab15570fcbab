/** `pawl doctor`: which layers stand between a script and this machine, and whether a data folder is sound. */
import { inspectHardening } from "../../host.ts";
import { inert, paint, say, sayJson } from "../render.ts";
import { examined, showFindings } from "./verify.ts";

export function doctor(options: { json?: boolean; data?: string }): number {
  const report = {
    node: process.version,
    platform: `${process.platform}-${process.arch}`,
    sandbox: inspectHardening(),
  };
  const findings = options.data === undefined ? [] : examined(options.data, "laws");
  const code = findings.length === 0 ? 0 : 6;
  if (options.json) {
    sayJson(options.data === undefined ? report : { ...report, store: { data: options.data, findings } });
    return code;
  }
  say(`node ${report.node} on ${report.platform}`);
  say(`sandbox hardening level ${report.sandbox.level} of 3`);
  for (const layer of report.sandbox.layers)
    say(
      `  ${layer.inForce ? paint("green", "in force") : paint("yellow", "MISSING ")}  ${layer.name.padEnd(17)} ${layer.detail}`,
    );
  if (options.data !== undefined) {
    say(`data in ${inert(options.data)}`);
    showFindings(findings, "every invariant holds, and the file is whole");
  }
  return code;
}
