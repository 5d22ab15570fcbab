/**
 * How a child is started: the strongest wrapping that works on this machine, found once by trying. Level 1 is Node's
 * own permission model; level 2 adds namespaces, no privileges and rlimits; level 3 is bubblewrap with a syscall
 * filter. Each layer that is missing is reported, never passed over in silence.
 *
 * L1. A child gets an empty environment and may read one file: the isolated-vm binary, and that only until it is loaded.
 * L2. It inherits no open file but its end of the wire, whatever the host itself was started with.
 */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import {
  accessSync,
  closeSync,
  constants,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import type { HardeningLayer, HardeningReport } from "../ports/sandbox.ts";
import { cgroupKind, type MemoryCgroup, memoryCgroup } from "./cgroup.ts";
import { BOOT, isolatedVmBinary } from "./program.ts";
import { seccompFilter } from "./seccomp.ts";

const NOBODY = "65534";
const PROBE_MS = 5_000;

interface Wrapping {
  level: 1 | 2 | 3;
  name: string;
  prefix: string[];
  network: boolean;
  privileges: string;
  filtered: boolean;
}

export interface LaunchedChild {
  process: ChildProcess;
  cgroup: MemoryCgroup | undefined;
}

export interface LaunchOptions {
  maxLevel?: 1 | 2 | 3;
  /** Hard memory limit for the cgroup, where one can be made. */
  memoryBytes: number;
}

let found: Map<number, Wrapping> | undefined;

export function launch(options: LaunchOptions): LaunchedChild {
  const wrapping = wrappingFor(options.maxLevel ?? 3);
  const [command, ...args] = [
    ...wrapping.prefix,
    process.execPath,
    ...nodeArguments(),
    "-e",
    BOOT,
  ] as unknown as [string, ...string[]];
  const filter = wrapping.filtered ? filterFile() : undefined;
  const child = spawn(command, args, {
    env: { TZ: "UTC" }, // (L1)
    cwd: "/",
    stdio: wiring(filter), // (L2)
    windowsHide: true,
  });
  if (filter !== undefined) closeSync(filter);
  const cgroup = child.pid === undefined ? undefined : memoryCgroup(options.memoryBytes);
  if (cgroup && child.pid !== undefined)
    try {
      cgroup.add(child.pid);
    } catch {
      cgroup.remove();
      return { process: child, cgroup: undefined };
    }
  return { process: child, cgroup };
}

export function hardeningReport(maxLevel: 1 | 2 | 3 = 3): HardeningReport {
  const wrapping = wrappingFor(maxLevel);
  const kind = cgroupKind();
  const layer = (name: string, inForce: boolean, detail: string): HardeningLayer => ({
    name,
    inForce,
    detail,
  });
  return {
    level: wrapping.level,
    layers: [
      layer("own process", true, "scripts run in child processes that the host may kill at any time"),
      layer(
        "node permissions",
        true,
        "no files, no child processes, no workers, no addons once loaded; empty environment",
      ),
      layer(
        "watchdogs",
        process.platform === "linux",
        process.platform === "linux"
          ? "wall time, section time and RSS, from outside"
          : "wall and section time only: RSS cannot be read here",
      ),
      layer(
        "memory cgroup",
        kind !== undefined,
        kind ? `cgroup ${kind}` : "none can be made here; the RSS watchdog acts alone",
      ),
      layer(
        "no network",
        !wrapping.network,
        wrapping.network
          ? "needs unshare or bwrap with namespaces"
          : `its own empty network (${wrapping.name})${wrapping.level < 3 ? "; unix sockets by path remain" : ""}`,
      ),
      layer("no privileges", wrapping.privileges !== "", wrapping.privileges || "needs setpriv or bwrap"),
      layer(
        "syscall filter",
        wrapping.filtered,
        wrapping.filtered ? "seccomp" : "needs bwrap (Debian: apt-get install bubblewrap)",
      ),
    ],
  };
}

function nodeArguments(): string[] {
  return [
    "--permission",
    "--allow-addons",
    `--allow-fs-read=${isolatedVmBinary()}`,
    "--no-experimental-sqlite",
    "--no-node-snapshot",
    "--no-turbofan",
    "--disable-proto=delete",
    "--no-warnings",
    "--max-semi-space-size=1",
    "--single-threaded-gc",
    "--v8-pool-size=0",
  ];
}

function wrappingFor(maxLevel: number): Wrapping {
  found ??= new Map();
  let wrapping = found.get(maxLevel);
  if (!wrapping) {
    wrapping = candidates().find((one) => one.level <= maxLevel && works(one)) as Wrapping;
    found.set(maxLevel, wrapping);
  }
  return wrapping;
}

/** Strongest first; the last one works everywhere. */
function candidates(): Wrapping[] {
  const prlimit = onPath("prlimit");
  const limits = prlimit ? [prlimit, "--core=0", "--fsize=0", "--nofile=64", "--"] : [];
  const linux = process.platform === "linux" ? [...bwrapped(limits), ...unshared(limits)] : [];
  return [...linux, { level: 1, name: "node", prefix: [], network: true, privileges: "", filtered: false }];
}

const isRoot = (): boolean => process.getuid?.() === 0;

function bwrapped(limits: string[]): Wrapping[] {
  const bwrap = onPath("bwrap");
  if (!bwrap || !seccompFilter()) return [];
  const user = isRoot() ? ["--uid", NOBODY, "--gid", NOBODY] : [];
  const apart = ["--unshare-all", "--die-with-parent", "--cap-drop", "ALL", ...user, "--new-session"];
  const environment = ["--clearenv", "--setenv", "TZ", "UTC"];
  // An empty /tmp would hide what runs there, if Pawl itself is installed below it.
  const hidden = [process.execPath, isolatedVmBinary()].filter((path) => path.startsWith("/tmp/"));
  const shown = hidden.flatMap((path) => ["--ro-bind", path, path]);
  const rest = ["--proc", "/proc", "--dev", "/dev", "--chdir", "/"];
  const view = ["--ro-bind", "/", "/", "--tmpfs", "/tmp", ...shown, ...rest];
  return [
    {
      level: 3,
      name: "bwrap",
      prefix: [bwrap, ...apart, ...environment, ...view, "--seccomp", "4", "--", ...limits],
      network: false,
      privileges: "no capabilities, own user and process namespaces",
      filtered: true,
    },
  ];
}

function unshared(limits: string[]): Wrapping[] {
  const [unshare, setpriv] = [onPath("unshare"), onPath("setpriv")];
  if (!unshare || !setpriv) return [];
  const spaces = ["--net", "--ipc", "--uts", "--"];
  const drop = ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--"];
  const wrapping = (flags: string[], privileges: string[], said: string): Wrapping => ({
    level: 2,
    name: "unshare",
    prefix: [unshare, ...flags, ...spaces, setpriv, "--pdeathsig", "KILL", ...privileges, ...drop, ...limits],
    network: false,
    privileges: said,
    filtered: false,
  });
  const nobody = [`--reuid=${NOBODY}`, `--regid=${NOBODY}`, "--clear-groups"];
  const asUser = "no capabilities outside its own user namespace, no new privileges";
  return [
    ...(isRoot() ? [wrapping([], nobody, "user nobody, no capabilities, no new privileges")] : []),
    wrapping(["--user", "--map-root-user"], [], asUser),
  ];
}

/** Tried with the real thing: the same Node, loading the same binary. */
function works(wrapping: Wrapping): boolean {
  if (wrapping.prefix.length === 0) return true;
  const [command, ...args] = [
    ...wrapping.prefix,
    process.execPath,
    ...nodeArguments(),
    "-e",
    `process.dlopen({ exports: {} }, ${JSON.stringify(isolatedVmBinary())})`,
  ] as unknown as [string, ...string[]];
  const filter = wrapping.filtered ? filterFile() : undefined;
  const tried = spawnSync(command, args, {
    env: { TZ: "UTC" },
    cwd: "/",
    timeout: PROBE_MS,
    stdio: ["ignore", "ignore", "ignore", "ignore", filter === undefined ? "ignore" : filter],
  });
  if (filter !== undefined) closeSync(filter);
  return tried.status === 0;
}

type Wire = "ignore" | "pipe" | number;
const CLOSED_ON_EXEC = 0o2000000;
let passedOn: { fds: number[]; nothing: number } | undefined;

/** The wire as fd 3, the filter as fd 4, and nothing in the place of every file that would pass on by itself. */
function wiring(filter: number | undefined): Wire[] {
  const stdio: Wire[] = ["ignore", "ignore", "ignore", "pipe", filter ?? "ignore"];
  passedOn ??= { fds: startedWith(), nothing: openSync("/dev/null", "r") };
  for (const fd of passedOn.fds) {
    while (stdio.length < fd) stdio.push("ignore");
    if (stdio[fd] === undefined || stdio[fd] === "ignore") stdio[fd] = passedOn.nothing;
  }
  return stdio;
}

/** Files this process was itself started with: unlike those it opens, they survive into every child. */
function startedWith(): number[] {
  if (process.platform !== "linux") return [];
  return readdirSync("/proc/self/fdinfo")
    .map(Number)
    .filter((fd) => {
      try {
        const flags = /^flags:\s*(\d+)/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "utf8"))?.[1] ?? "";
        return fd > 2 && (Number.parseInt(flags, 8) & CLOSED_ON_EXEC) === 0;
      } catch {
        return false;
      }
    });
}

/** The syscall filter as an open file, which bwrap reads from its fd 4; a new one each time, for its offset. */
function filterFile(): number {
  const folder = mkdtempSync(join(tmpdir(), "pawl-"));
  const path = join(folder, "seccomp");
  writeFileSync(path, seccompFilter() as Buffer);
  const fd = openSync(path, "r");
  rmSync(folder, { recursive: true });
  return fd;
}

function onPath(name: string): string | undefined {
  for (const folder of [...(process.env["PATH"] ?? "").split(delimiter), "/usr/bin", "/usr/sbin", "/bin"])
    try {
      accessSync(join(folder, name), constants.X_OK);
      return join(folder, name);
    } catch {}
  return undefined;
}
