/**
 * Composition root: the only file that names every adapter. So far there is one: the sandbox.
 */
import type { Compilation, HardeningReport, Problem, Sandbox, Upload } from "./ports/sandbox.ts";
import { codeFrame } from "./sandbox/blame.ts";
import { compileScript } from "./sandbox/compile.ts";
import { hardeningReport } from "./sandbox/launch.ts";
import { openPool } from "./sandbox/pool.ts";

export type { Compilation, Problem, Upload };

/** What commands that run scripts without a host need. */
export interface Workbench extends AsyncDisposable {
  compile(upload: Upload): Promise<Compilation>;
  /** The lines around a problem, with a caret. */
  frame(source: string, problem: Problem): string;
  sandbox: Sandbox;
}

export function openWorkbench(): Workbench {
  const sandbox = openPool({ childrenPerNamespace: 1 });
  return {
    compile: compileScript,
    frame: (source, problem) => codeFrame(source, problem.location),
    sandbox,
    [Symbol.asyncDispose]: () => sandbox[Symbol.asyncDispose](),
  };
}

/** What protects this machine from scripts; starts nothing that stays. */
export function inspectHardening(): HardeningReport {
  return hardeningReport();
}
