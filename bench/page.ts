/** What every page of results says in the same words: where it was measured, and how each limit came out. */
import { execFileSync } from "node:child_process";
import { cpus, totalmem, type } from "node:os";
import { type Claim, holds, spread } from "./measure.ts";

export function preamble(quick: boolean): string {
  return `- Date: ${new Date().toISOString()}${quick ? ", quick: too short to quote" : ""}
- Commit: ${commit()}
- Machine: ${cpus().length} cores (${cpus()[0]?.model.trim()}), ${(totalmem() / 2 ** 30).toFixed(1)} GB, ${type()}, Node ${process.version}`;
}

function commit(): string {
  try {
    const git = (...args: string[]): string =>
      execFileSync("git", args, { cwd: import.meta.dirname, encoding: "utf8" }).trim();
    const measured = [":/host", ":/sandbox-api", ":/migrations", ":/bench", ":!*/RESULTS.md"];
    const changed = git("status", "--porcelain", "--", ...measured);
    return `${git("rev-parse", "HEAD")}${changed === "" ? "" : " with uncommitted changes"}`;
  } catch {
    return "not committed";
  }
}

export function limits(claims: Claim[]): string {
  return `| what | measured | limit | |
| --- | ---: | ---: | --- |
${claims.map(claimRow).join("\n")}`;
}

function claimRow(claim: Claim): string {
  const bound = `${claim.atMost ? "≤" : "≥"} ${claim.bound}`;
  return `| ${claim.name} | ${spread(claim.values, 3)} | ${bound} | ${holds(claim) ? "met" : "NOT MET"} |`;
}

export const most = (name: string, bound: number, values: number[]): Claim => ({
  name,
  values,
  bound,
  atMost: true,
});

export const least = (name: string, bound: number, values: number[]): Claim => ({
  name,
  values,
  bound,
  atMost: false,
});
