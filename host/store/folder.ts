/**
 * A folder that is there, with those above it. Not Node's own `recursive`: where the system says ENOENT about a folder
 * whose parent exists (/proc, /sys), Node 24 tries again for ever.
 */
import { mkdirSync, statSync } from "node:fs";
import { dirname, resolve } from "node:path";

export function makeFolder(path: string): void {
  const missing: string[] = [];
  for (let at = resolve(path); !isThere(at); at = dirname(at)) missing.unshift(at);
  for (const one of missing) make(one);
}

/** Throws where something that is no folder stands in the way. */
function isThere(path: string): boolean {
  const found = statSync(path, { throwIfNoEntry: false });
  if (found && !found.isDirectory()) throw new Error(`${path} is not a folder`);
  return found !== undefined;
}

function make(path: string): void {
  try {
    mkdirSync(path);
  } catch (error) {
    // Somebody else was faster, and that is as good.
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
}
