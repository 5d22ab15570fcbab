/**
 * What a script could do that broke out of its isolate: Node code with the rights of the child process, on every
 * hardening level this machine has. A layer that the report calls in force must hold; one that it does not is not tried.
 */
import { spawnSync } from "node:child_process";
import { createSocket, type Socket as UdpSocket } from "node:dgram";
import { once } from "node:events";
import {
  chmodSync,
  closeSync,
  fstatSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { type AddressInfo, connect, createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { compileFunction } from "node:vm";
import { createRequire } from "node:module";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { HardeningReport, Script } from "../../host/ports/sandbox.ts";
import { openPool, type Pool } from "../../host/sandbox/pool.ts";
import { callFor, noAnswers } from "../support/scripts.ts";
import { benignScript } from "./arena.ts";

const CANARY = "canary-5f0c1d";
/** Node keeps the low ones of the files it was started with to itself; a high one after a gap it does not see. */
const HIGH_FD = 60;
const folder = mkdtempSync(join(tmpdir(), "pawl-escape-"));
const secretFile = join(folder, "secret");
const socketFile = join(folder, "socket");
const heard: string[] = [];
const root = process.getuid?.() === 0;
let secretFd: number;
let tcp: Server;
let unix: Server;
let udp: UdpSocket;
let benign: Script;

beforeAll(async () => {
  process.env["PAWL_TEST_CANARY"] = CANARY;
  writeFileSync(secretFile, CANARY, { mode: 0o644 });
  chmodSync(folder, 0o755);
  secretFd = openSync(secretFile, "r");
  const server = () =>
    createServer((peer) => {
      peer.on("data", (bytes) => heard.push(String(bytes)));
      peer.on("error", () => {});
    });
  tcp = server().listen(0, "127.0.0.1");
  unix = server().listen(socketFile);
  udp = createSocket("udp4").on("message", (bytes) => heard.push(readable(bytes)));
  udp.bind(0, "127.0.0.1");
  await Promise.all([once(tcp, "listening"), once(unix, "listening"), once(udp, "listening")]);
  chmodSync(socketFile, 0o777);
  benign = await benignScript();
});

afterAll(() => {
  delete process.env["PAWL_TEST_CANARY"];
  closeSync(secretFd);
  tcp.close();
  unix.close();
  udp.close();
  rmSync(folder, { recursive: true, force: true });
});

/** Level 3 does not even show the file. */
const REFUSAL = /^threw: (ERR_ACCESS_DENIED|MODULE_NOT_FOUND) /;

/** What Node's permission model must refuse by itself, on every level. */
const REFUSED: [what: string, code: string][] = [
  ["reading a file", `require("fs").readFileSync(${JSON.stringify(secretFile)})`],
  [
    "reading its own binary again",
    `require("fs").readFileSync(process.report.getReport().header.commandLine.find((a) => a.startsWith("--allow-fs-read=")).slice(16))`,
  ],
  ["listing a folder", `require("fs").readdirSync("/")`],
  ["opening a file by promise-free handle", `require("fs").openSync(${JSON.stringify(secretFile)})`],
  ["looking whether a file exists", `require("fs").statSync("/etc/passwd")`],
  ["reading a link", `require("fs").readlinkSync("/proc/self/exe")`],
  ["writing a file", `require("fs").writeFileSync(${JSON.stringify(join(folder, "written"))}, "x")`],
  ["appending to a file", `require("fs").appendFileSync(${JSON.stringify(secretFile)}, "x")`],
  ["making a folder", `require("fs").mkdtempSync(${JSON.stringify(join(folder, "d"))})`],
  ["removing a file", `require("fs").rmSync(${JSON.stringify(secretFile)})`],
  [
    "renaming a file",
    `require("fs").renameSync(${JSON.stringify(secretFile)}, ${JSON.stringify(join(folder, "moved"))})`,
  ],
  [
    "copying a file",
    `require("fs").cpSync(${JSON.stringify(secretFile)}, ${JSON.stringify(join(folder, "copy"))})`,
  ],
  [
    "linking to a file",
    `require("fs").symlinkSync(${JSON.stringify(secretFile)}, ${JSON.stringify(join(folder, "link"))})`,
  ],
  ["reading the host's environment", `require("fs").readFileSync("/proc/${process.pid}/environ")`],
  ["reading its own environment as a file", `require("fs").readFileSync("/proc/self/environ")`],
  ["opening the host's memory", `require("fs").openSync("/proc/${process.pid}/mem", "r+")`],
  ["opening its own memory", `require("fs").openSync("/proc/self/mem", "r+")`],
  ["a shell", `require("child_process").execSync("id")`],
  ["a process", `require("child_process").spawnSync("/bin/true")`],
  ["a fork of itself", `require("child_process").fork("x")`],
  ["becoming another program", `process.execve("/bin/sh", ["sh"], {})`],
  ["a cluster", `require("cluster").setupPrimary({ exec: "x" }); require("cluster").fork()`],
  ["a thread", `new (require("worker_threads").Worker)("1", { eval: true })`],
  ["a native library", `process.dlopen({ exports: {} }, "/lib/x86_64-linux-gnu/libm.so.6")`],
  ["Node's inner bindings", `process.binding("tcp_wrap")`],
  ["WASI", `new (require("wasi").WASI)({ version: "preview1", preopens: { "/": "/" } })`],
  ["the inspector", `require("inspector").open(0, "127.0.0.1")`],
  ["a report file", `process.report.writeReport(${JSON.stringify(join(folder, "report"))})`],
  ["a heap snapshot", `require("v8").writeHeapSnapshot(${JSON.stringify(join(folder, "heap"))})`],
  ["another working folder", `process.chdir("/tmp")`],
  ["an environment file", `process.loadEnvFile(${JSON.stringify(secretFile)})`],
  ["a module from a file", `require("module").createRequire("/")(${JSON.stringify(secretFile)})`],
];

describe.each([1, 2, 3] as const)("an escaped child on level %i", (level) => {
  let pool: Pool;
  let report: HardeningReport;
  const absent = () => report.level !== level;
  const inForce = (name: string) => report.layers.find((layer) => layer.name === name)?.inForce === true;

  beforeAll(async () => {
    pool = openPool({ maxLevel: level, maxChildren: 2, unsafe: { escapeHook: true } });
    report = await pool.hardening();
  });

  afterAll(async () => {
    await pool[Symbol.asyncDispose]();
  });

  it.each(REFUSED)("may not have %s", async (_, code) => {
    expect(await pool.escape(`${code}; return "ALLOWED"`)).toMatch(REFUSAL);
    expect(readdirSync(folder).sort()).toEqual(["secret", "socket"]);
    expect(readFileSync(secretFile, "utf8")).toBe(CANARY);
  });

  it("may not have a database", async () => {
    expect(await pool.escape(`require("node:sqlite"); return "ALLOWED"`)).toMatch(
      /^threw: ERR_UNKNOWN_BUILTIN/,
    );
  });

  it("cannot win a right back", async () => {
    const rights = await pool.escape(
      `return ["fs", "fs.read", "fs.write", "child", "worker", "addon", "wasi", "inspector"].filter((r) => process.permission.has(r)).join()`,
    );
    expect(rights).toBe("");
  });

  it("has an empty environment", async () => {
    const names = JSON.parse(await pool.escape("return JSON.stringify(process.env)")) as object;
    expect(names).not.toHaveProperty("PAWL_TEST_CANARY");
    expect(Object.keys(names).filter((name) => !["TZ", "PWD"].includes(name))).toEqual([]);
    expect(Object.values(names).filter((value) => !["UTC", "/"].includes(value as string))).toEqual([]);
  });

  it("finds no secret of the host in its own process", async () => {
    const text = await pool.escape(
      `return JSON.stringify([process.report.getReport(), process.argv, process.execArgv, process.env, Object.getOwnPropertyNames(globalThis)])`,
    );
    expect(text).toContain("--permission");
    expect(text).not.toContain(CANARY);
  });

  it("inherits no open file but the wire", async () => {
    const found = JSON.parse(
      await pool.escape(
        `const out = []; for (let fd = 0; fd < 1024; fd++) try { const s = require("fs").fstatSync(fd, { bigint: true }); out.push({ fd, kind: s.isFile() ? "file" : s.isSocket() ? "socket" : s.isDirectory() ? "folder" : s.isCharacterDevice() ? "device" : s.isFIFO() ? "pipe" : "other", id: s.isCharacterDevice() ? String(s.rdev) : s.dev + ":" + s.ino }); } catch {} return JSON.stringify(out)`,
      ),
    ) as { fd: number; kind: string; id: string }[];
    const nothing = String(statSync("/dev/null", { bigint: true }).rdev);
    expect(found.filter(({ kind }) => kind === "socket").map(({ fd }) => fd)).toEqual([3]);
    expect(found.filter(({ kind }) => kind === "file" || kind === "folder")).toEqual([]);
    expect(found.filter(({ kind, id }) => kind === "device" && id !== nothing)).toEqual([]);
    const ours = new Set(openHere());
    expect(found.filter(({ kind, id }) => kind === "pipe" && ours.has(id))).toEqual([]);
  });

  it("inherits no file that the host itself was started with", () => {
    const program = `import { openPool } from ${JSON.stringify(new URL("../../host/sandbox/pool.ts", import.meta.url).href)};
      await using pool = openPool({ maxLevel: ${level}, unsafe: { escapeHook: true } });
      console.log(await pool.escape('const b = Buffer.alloc(64); const n = require("fs").readSync(${HIGH_FD}, b, 0, 64, 0); return "read " + b.toString("utf8", 0, n);'));`;
    const host = spawnSync(process.execPath, ["--no-warnings", "--input-type=module", "-e", program], {
      stdio: [
        "ignore",
        "pipe",
        "inherit",
        ...Array.from({ length: HIGH_FD - 3 }, () => "ignore" as const),
        secretFd,
      ],
      encoding: "utf8",
    });
    expect(host.stdout.trim()).toBe("read");
  });

  it("reaches no network where the level withholds it", async ({ skip }) => {
    skip(absent() || !inForce("no network"), "the network is not withheld here");
    heard.length = 0;
    for (const code of networkProbes()) await pool.escape(code);
    await sayOurselves();
    expect(heard.sort()).toEqual(["tcp control", "udp control"]);
  });

  it("reaches no unix socket where system calls are filtered", async ({ skip }) => {
    skip(absent() || !inForce("syscall filter"), "system calls are not filtered here");
    heard.length = 0;
    await pool.escape(unixProbe());
    await sayOurselves();
    expect(heard).not.toContain("unix escaped");
  });

  it("cannot signal or debug the host where it has another identity", async ({ skip }) => {
    // Level 2 without root keeps the host's own user id, and the report claims no more than that.
    skip(
      absent() || !inForce("no privileges") || (level === 2 && !root),
      "it may signal its own user's processes",
    );
    expect(await pool.escape(`process.kill(${process.pid}, 0); return "ALLOWED"`)).toMatch(
      /^threw: (EPERM|ESRCH)/,
    );
    expect(await pool.escape(`process._debugProcess(${process.pid}); return "ALLOWED"`)).toMatch(/^threw: /);
    expect(await pool.escape(`require("os").setPriority(${process.pid}, 19); return "ALLOWED"`)).toMatch(
      /^threw: /,
    );
  });

  it("has no privileges where the report says so", async ({ skip }) => {
    skip(absent() || !inForce("no privileges"), "no layer takes its privileges here");
    expect(await pool.escape(`process.setuid(0); return "ALLOWED " + process.getuid()`)).toMatch(
      /^threw: EPERM|ALLOWED 0/,
    );
    const status = await childStatus(pool, "status");
    expect(status).toMatch(/^CapEff:\s*0+$/m);
    expect(status).toMatch(/^CapBnd:\s*0+$/m);
    expect(status).toMatch(/^NoNewPrivs:\s*1$/m);
  });

  it("runs under a system call filter where the report says so", async ({ skip }) => {
    skip(absent() || !inForce("syscall filter"), "system calls are not filtered here");
    expect(await childStatus(pool, "status")).toMatch(/^Seccomp:\s*2$/m);
  });

  it("lives in a memory cgroup where the report says so", async ({ skip }) => {
    skip(absent() || !inForce("memory cgroup"), "no cgroup can be made here");
    expect(await childStatus(pool, "cgroup")).toMatch(new RegExp(`/pawl-${process.pid}-\\d+$`, "m"));
  });

  it.each([
    ["a frame for another run", frame(18, 77, "{}\n[]\n{}")],
    ["a second greeting", frame(16, 0, "1")],
    ["a frame of four gigabytes", "ffffffff12010000000000000000"],
    ["a frame type that does not exist", frame(200, 77, "")],
  ])("cannot lie on the wire with %s", async (_, hex) => {
    const said = await pool.escape(
      `require("fs").writeSync(3, Buffer.from("${hex}", "hex")); return "unheard"`,
    );
    expect(said).toMatch(/^gone: /);
    expect(await pool.run(callFor(benign, "producer", "count"), noAnswers)).toMatchObject({ status: "done" });
  });
});

describe("the probes", () => {
  it("reach their listeners when nothing holds them back", async () => {
    heard.length = 0;
    const here = createRequire(import.meta.url);
    for (const code of [...networkProbes(), unixProbe()])
      compileFunction(code, ["require", "process"])(here, { _tickCallback: () => {} });
    await expect
      .poll(() => [...new Set(heard)].sort())
      .toEqual(["dns escaped", "tcp escaped", "udp escaped", "unix escaped"]);
  });
});

/** Each says `… escaped` to a listener of this test, as far as it can without an event loop. */
function networkProbes(): string[] {
  const { port: tcpPort } = tcp.address() as AddressInfo;
  const { port: udpPort } = udp.address();
  return [
    `const s = require("net").connect(${tcpPort}, "127.0.0.1"); s.on("error", () => {}); s.end("tcp escaped"); process._tickCallback(); return "sent"`,
    `const s = require("dgram").createSocket("udp4"); s.on("error", () => {}); s.send("udp escaped", ${udpPort}, "127.0.0.1", () => s.close()); process._tickCallback(); return "sent"`,
    `const r = new (require("dns").Resolver)({ timeout: 50, tries: 1 }); r.setServers(["127.0.0.1:${udpPort}"]); r.resolve4("escaped.example", () => {}); process._tickCallback(); return "sent"`,
  ];
}

function unixProbe(): string {
  return `const s = require("net").connect(${JSON.stringify(socketFile)}); s.end("unix escaped"); process._tickCallback(); return "sent"`;
}

/** A DNS question is bytes; what was asked is all that matters. */
function readable(bytes: Buffer): string {
  return bytes.includes("escaped\x07example") ? "dns escaped" : String(bytes);
}

/** After this, whatever a child had sent before has been heard: both queues are first in, first out. */
async function sayOurselves(): Promise<void> {
  const { port } = tcp.address() as AddressInfo;
  connect(port, "127.0.0.1").end("tcp control");
  const sender = createSocket("udp4");
  sender.send("udp control", udp.address().port, "127.0.0.1", () => sender.close());
  await expect.poll(() => heard.filter((text) => text.endsWith("control")).length).toBe(2);
}

/** A file below `/proc` of the process in which scripts run, behind whatever wraps it. */
async function childStatus(pool: Pool, file: string): Promise<string> {
  await pool.run(callFor(benign, "producer", "count"), noAnswers);
  let pid = pool.stats().pids[0];
  for (let next = pid; next; next = childOf(next)) pid = next;
  return readFileSync(`/proc/${pid}/${file}`, "utf8");
}

function childOf(pid: number): number | undefined {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim();
  return children === "" ? undefined : Number(children.split(" ")[0]);
}

function openHere(): string[] {
  return readdirSync("/proc/self/fd").flatMap((fd) => {
    try {
      const { dev, ino } = fstatSync(Number(fd), { bigint: true });
      return readlinkSync(`/proc/self/fd/${fd}`).startsWith("pipe:") ? [`${dev}:${ino}`] : [];
    } catch {
      return [];
    }
  });
}

function frame(type: number, slot: number, body: string): string {
  const bytes = Buffer.from(body);
  const head = Buffer.alloc(13);
  head.writeUInt32LE(bytes.length, 0);
  head.writeUInt8(type, 4);
  head.writeUInt32LE(slot, 5);
  return Buffer.concat([head, bytes]).toString("hex");
}
