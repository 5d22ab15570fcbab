/** Compiled scripts and calls for tests that drive a real or a fake sandbox. */
import type { HostAnswer, SandboxCall, Script, UnitCall, Upload } from "../../host/ports/sandbox.ts";
import { compileScript } from "../../host/sandbox/compile.ts";

export const NOW_MS = Date.UTC(2026, 0, 2, 3, 4, 5);

/** The source as a script of namespace `test`; throws with every problem when it does not compile. */
export async function compiled(
  source: string,
  overrides: Partial<Script> & Pick<Partial<Upload>, "language"> = {},
): Promise<Script> {
  const { language = "ts", ...rest } = overrides;
  const made = await compileScript({ source, language, file: rest.file ?? "script.ts", nowMs: NOW_MS });
  if (!made.ok)
    throw new Error(
      made.problems
        .map((one) => `${one.code} ${one.location.line}:${one.location.column} ${one.message}`)
        .join("\n"),
    );
  return { ...made.script, namespace: "test", version: 1, ...rest };
}

export function callFor(
  script: Script,
  unit: UnitCall,
  handler: string,
  overrides: Partial<SandboxCall> = {},
): SandboxCall {
  const later = unit === "mutate" || unit === "next";
  return {
    script,
    unit,
    handler,
    run: { id: "run_1", attempt: 1 },
    nowMs: NOW_MS,
    seed: "seed",
    ...(later ? { prepared: '{"reservations":[],"data":null}' } : {}),
    ...(unit === "next" ? { outcome: '{"status":"applied","result":{"body":{}}}' } : {}),
    ...overrides,
  };
}

/** For scripts that ask the host nothing: any question ends the run. */
export const noAnswers = async (): Promise<HostAnswer> => ({
  ok: false,
  class: "internal",
  code: "unexpected-question",
  message: "the test expected no host call",
});
