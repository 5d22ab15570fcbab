/** `pawl verify`: does the journal tell the same story as the tables, and is the audit's chain of hashes whole? */
import { examine, type Finding } from "../../host.ts";
import { inert, paint, say, sayJson } from "../render.ts";

export function verify(options: { data: string; json?: boolean }): number {
  const findings = examine(options.data, "journal");
  if (options.json) sayJson({ data: options.data, findings });
  else showFindings(findings, "the journal and the tables tell the same story");
  return findings.length === 0 ? 0 : 6;
}

export function showFindings(findings: Finding[], allWell: string): void {
  if (findings.length === 0) say(`${paint("green", "ok")}  ${allWell}`);
  for (const { invariant, message } of findings)
    say(`${paint("red", "broken")}  invariant ${invariant}: ${inert(message, 400)}`);
}
