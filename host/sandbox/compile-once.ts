/** The newest source of each file is compiled once, though its name, its problems and its code are asked for apart. */
import type { Compilation, Upload } from "../ports/sandbox.ts";
import { compileScript } from "./compile.ts";

const KEPT = 100;

export function compileOnce(minIntervalMs: number): (upload: Upload) => Promise<Compilation> {
  const known = new Map<string, { source: string; made: Promise<Compilation> }>();
  return async (upload) => {
    const before = known.get(upload.file);
    if (before?.source === upload.source) {
      const made = await before.made;
      if (!made.ok || upload.name === undefined || made.script.workflow === upload.name) return made;
    }
    const made = compileScript({ minIntervalMs, ...upload });
    if (known.size >= KEPT) known.clear();
    known.set(upload.file, { source: upload.source, made });
    return made;
  };
}
