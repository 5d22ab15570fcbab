/** What commands that run scripts without a host need: the compiler, a sandbox, the words for a problem's place. */
import type { Compilation, HardeningReport, Problem, Sandbox, Upload } from "../ports/sandbox.ts";
import { codeFrame } from "./blame.ts";
import { compileScript } from "./compile.ts";
import { hardeningReport } from "./launch.ts";
import { openPool } from "./pool.ts";

export interface Workbench extends AsyncDisposable {
  compile(upload: Upload): Promise<Compilation>;
  sandbox: Sandbox;
}

export function openWorkbench(): Workbench {
  const sandbox = openPool({ childrenPerNamespace: 1 });
  return {
    compile: compileScript,
    sandbox,
    [Symbol.asyncDispose]: () => sandbox[Symbol.asyncDispose](),
  };
}

/** The lines around a problem, with a caret. */
export const frame = (source: string, problem: Problem): string => codeFrame(source, problem.location);

/** What protects this machine from scripts; starts nothing that stays. */
export function inspectHardening(): HardeningReport {
  return hardeningReport();
}
