/**
 * A memory cgroup around one child, where this system lets us make one: the kernel then kills at the limit, which is
 * faster than any watchdog. Version 2 first, then the memory controller of version 1; absent, `undefined`.
 */
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

export interface MemoryCgroup {
  /** Puts a process, and what it forks, under the limit. */
  add(pid: number): void;
  /** True when the kernel killed in it at the limit. */
  outOfMemory(): boolean;
  remove(): void;
}

interface Hierarchy {
  folder: string;
  limitFile: string;
  killsFile: string;
  extra: [string, string][];
}

let sequence = 0;

export function memoryCgroup(limitBytes: number): MemoryCgroup | undefined {
  const found = hierarchy();
  if (!found) return undefined;
  const folder = join(found.folder, `pawl-${process.pid}-${++sequence}`);
  try {
    mkdirSync(folder);
    writeFileSync(join(folder, found.limitFile), String(limitBytes));
  } catch {
    removeQuietly(folder);
    return undefined;
  }
  for (const [file, value] of found.extra)
    try {
      writeFileSync(join(folder, file), value);
    } catch {}
  return {
    add: (pid) => writeFileSync(join(folder, "cgroup.procs"), String(pid)),
    outOfMemory: () => killsCounted(join(folder, found.killsFile)),
    remove: () => removeQuietly(folder),
  };
}

/** For `doctor`: which kind works here, tried by making and removing one. */
export function cgroupKind(): "v1" | "v2" | undefined {
  const made = memoryCgroup(256 * 1_048_576);
  if (!made) return undefined;
  made.remove();
  return hierarchy()?.limitFile === "memory.max" ? "v2" : "v1";
}

function hierarchy(): Hierarchy | undefined {
  if (process.platform !== "linux") return undefined;
  const lines = existsSync("/proc/self/cgroup")
    ? readFileSync("/proc/self/cgroup", "utf8").trim().split("\n")
    : [];
  for (const line of lines) {
    const [, controllers, path] = /^\d+:([^:]*):(.*)$/.exec(line) ?? [];
    if (controllers === "memory")
      return {
        folder: join("/sys/fs/cgroup/memory", path ?? ""),
        limitFile: "memory.limit_in_bytes",
        killsFile: "memory.oom_control",
        extra: [["memory.swappiness", "0"]],
      };
    const unified = join("/sys/fs/cgroup", path ?? "");
    if (
      controllers === "" &&
      existsSync(join(unified, "cgroup.subtree_control")) &&
      readFileSync(join(unified, "cgroup.controllers"), "utf8").includes("memory")
    )
      return {
        folder: unified,
        limitFile: "memory.max",
        killsFile: "memory.events",
        extra: [
          ["memory.swap.max", "0"],
          ["memory.oom.group", "1"],
        ],
      };
  }
  return undefined;
}

function killsCounted(file: string): boolean {
  try {
    return /^oom_kill [1-9]/m.test(readFileSync(file, "utf8"));
  } catch {
    return false;
  }
}

function removeQuietly(folder: string): void {
  try {
    rmdirSync(folder);
  } catch {}
}
