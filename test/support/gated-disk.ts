// The real connector `file` on the real file system, whose rename and folder sync wait, fail or go through as a folder
// beside the root says. That folder is read by whichever process writes, so that one of them can be killed half-way.
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { rename } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileOn } from "../../host/connectors/file.ts";
import { SYSTEM_DISK } from "../../host/connectors/file-content.ts";
import type { Fault, Outside } from "../../host/testing.ts";

const POLL_MS = 2;
const read = (path: string): string => (existsSync(path) ? readFileSync(path, "utf8") : "");
const errno = (code: string): Error => Object.assign(new Error(code), { code });

class Gate {
  readonly #at: string;

  constructor(folder: string) {
    const above = [1, 2, 3].map((steps) => join(folder, ...Array<string>(steps).fill(".."), "gate"));
    this.#at = above.find((path) => existsSync(path)) ?? above[0]!;
  }

  get fault(): string {
    return read(join(this.#at, "fault"));
  }

  note(what: "arrivals" | "effects"): void {
    appendFileSync(join(this.#at, what), "x");
  }

  async hold(): Promise<void> {
    writeFileSync(join(this.#at, "held"), "");
    while (existsSync(join(this.#at, "hold"))) await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/** Of the write whose rename was the last: its folder is synced next. */
let last: Gate | undefined;

const BEFORE: Partial<Record<string, string>> = {
  "dropped-after-send": "EIO",
  "error-before-effect": "ENOSPC",
  forbidden: "EACCES",
};
const AFTER: Partial<Record<string, string>> = { "dropped-after-effect": "EIO" };

export const file = fileOn({
  ...SYSTEM_DISK,
  rename: async (from, to) => {
    const gate = (last = new Gate(realpathSync(dirname(to))));
    const { fault } = gate;
    gate.note("arrivals");
    if (fault === "killed-before-effect") await gate.hold();
    if (BEFORE[fault]) throw errno(BEFORE[fault]);
    await rename(from, to);
    gate.note("effects");
    if (fault === "killed-after-effect") await gate.hold();
    if (AFTER[fault]) throw errno(AFTER[fault]);
  },
  syncFolder: async (folder) => {
    const gate = last;
    if (gate?.fault === "slow") await gate.hold();
    if (gate?.fault === "error-after-effect") throw errno("EIO");
    await SYSTEM_DISK.syncFolder(folder);
  },
});

export async function diskOutside(): Promise<Outside & { root: string }> {
  const folder = mkdtempSync(join(tmpdir(), "pawl-file-"));
  const [root, gone, gate] = ["root", "gone", "gate"].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ];
  mkdirSync(root);
  mkdirSync(gate);
  const counted = (what: string): number => read(join(gate, what)).length;
  const release = (): void => rmSync(join(gate, "hold"), { force: true });
  return {
    root,
    config: { root },
    effects: () => counted("effects"),
    arrivals: () => counted("arrivals"),
    breakWith: (fault: Fault) => {
      rmSync(join(gate, "held"), { force: true });
      writeFileSync(join(gate, "hold"), "");
      writeFileSync(join(gate, "fault"), fault);
      if (fault === "refused") renameSync(root, gone);
    },
    heal: () => {
      release();
      rmSync(join(gate, "fault"), { force: true });
      if (existsSync(gone)) renameSync(gone, root);
    },
    held: async () => {
      while (!existsSync(join(gate, "held"))) await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    },
    release,
    [Symbol.asyncDispose]: async () => rmSync(folder, { recursive: true, force: true }),
  };
}
