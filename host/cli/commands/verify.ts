/** `pawl verify`: does the journal tell the same story as the tables, and is the audit's chain of hashes whole? */
import { existsSync } from "node:fs";
import { examine, type Finding } from "../../host.ts";
import { CliFailure, inert, paint, say, sayJson } from "../render.ts";

export function verify(options: { data: string; json?: boolean }): number {
  const findings = examined(options.data, "journal");
  if (options.json) sayJson({ data: options.data, findings });
  else showFindings(findings, "the journal and the tables tell the same story");
  return findings.length === 0 ? 0 : 6;
}

export function examined(data: string, what: "laws" | "journal"): Finding[] {
  if (!existsSync(data)) throw new CliFailure(3, `there is no folder ${inert(data)}`);
  return examine(data, what);
}

export function showFindings(findings: Finding[], allWell: string): void {
  if (findings.length === 0) say(`${paint("green", "ok")}  ${allWell}`);
  for (const { invariant, message } of findings)
    say(`${paint("red", "broken")}  invariant ${invariant}: ${inert(message, 400)}`);
}
