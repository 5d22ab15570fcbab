/** `pawl check`: what an upload would say, without uploading. */
import { frame, openWorkbench, type Problem } from "../../host.ts";
import { inert, inertLines, paint, type ScriptFile, say, sayJson, scriptFiles } from "../render.ts";

export async function check(paths: string[], options: { json?: boolean }): Promise<number> {
  const files = scriptFiles(paths);
  await using bench = openWorkbench();
  const report: { file: string; ok: boolean; problems: Problem[] }[] = [];
  for (const file of files) {
    const { ok, problems } = await bench.compile({ ...file, nowMs: Date.now() });
    report.push({ file: file.path, ok, problems });
    if (options.json) continue;
    if (ok) say(`${paint("green", "ok")}  ${inert(file.path)}`);
    showProblems(file, problems);
  }
  if (options.json) sayJson(report);
  return report.every((one) => one.ok) ? 0 : 6;
}

export function showProblems(
  file: ScriptFile,
  problems: Problem[],
  tell: (line: string) => void = say,
): void {
  for (const one of problems) {
    const place = `${inert(file.path)}:${one.location.line}:${one.location.column}`;
    tell(
      `${paint(one.severity === "error" ? "red" : "yellow", one.severity)} ${one.code}  ${place}  ${inert(one.message, 400)}`,
    );
    tell(inertLines(frame(file.source, one)));
    if (one.hint !== "") tell(`  ${paint("dim", `hint: ${inert(one.hint, 400)}`)}`);
  }
}
