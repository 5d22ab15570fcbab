/**
 * A suite is itself tested: a bug is planted in a copy of the host, as a patch of its text, and the suite, run on the
 * copy, must catch it. A patch that no longer fits its file is an error: a bug that is not planted proves nothing.
 */
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export type Patch = readonly [file: string, find: string, replace: string];

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

export class Garden {
  readonly #folder = mkdtempSync(join(tmpdir(), "pawl-planted-"));
  readonly #parts: readonly string[];
  #copies = 0;

  /** `parts`: the folders of the repository that the suite needs. */
  constructor(parts: readonly string[]) {
    this.#parts = parts;
  }

  /** A copy with the patches in it. Files are named below `host`. */
  plant(patches: readonly Patch[]): string {
    const copy = join(this.#folder, String(++this.#copies));
    for (const part of this.#parts) cpSync(join(ROOT, part), join(copy, part), { recursive: true });
    cpSync(join(ROOT, "package.json"), join(copy, "package.json"));
    symlinkSync(join(ROOT, "node_modules"), join(copy, "node_modules"), "junction");
    for (const [file, find, replace] of patches) {
      const path = join(copy, "host", file);
      const text = readFileSync(path, "utf8");
      const found = text.split(find).length - 1;
      if (found !== 1) throw new Error(`${file} holds ${found} times, not once: ${find}`);
      writeFileSync(
        path,
        text.replace(find, () => replace),
      );
    }
    return copy;
  }

  clear(): void {
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
