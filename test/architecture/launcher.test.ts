// bin/pawl on a Node that is too old: hands over to the bundled one, or says what is missing.
import { spawn, spawnSync } from "node:child_process";
import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { repoRoot } from "./source.ts";

const planted: string[] = [];

afterEach(() => {
  for (const folder of planted.splice(0)) rmSync(folder, { recursive: true, force: true });
});

function plantPackage(parent: string, main: string): string {
  mkdirSync(parent, { recursive: true });
  const folder = realpathSync(mkdtempSync(join(parent, "pawl-launcher-")));
  planted.push(folder);
  for (const path of ["bin", "host/cli"]) mkdirSync(join(folder, path), { recursive: true });
  for (const file of ["bin/pawl", "package.json"]) copyFileSync(join(repoRoot, file), join(folder, file));
  chmodSync(join(folder, "bin/pawl"), 0o755);
  writeFileSync(join(folder, "host/cli/main.ts"), main);
  return folder;
}

function findOldNode(): string | undefined {
  for (const folder of (process.env["PATH"] ?? "").split(delimiter)) {
    const path = join(folder, "node");
    const { stdout } = spawnSync(path, ["-p", "process.versions.node"], { encoding: "utf8" });
    const major = Number.parseInt(stdout ?? "", 10);
    if (major >= 20 && major < 24) return path;
  }
  return undefined;
}

const oldNode = findOldNode();
const canaries = join(repoRoot, ".canary");
const echo = `export async function main(argv: string[]): Promise<number> {
  console.log(JSON.stringify({ argv, node: process.versions.node }));
  return 7;
}
`;

test("on a new Node it runs the command line and returns its exit code", () => {
  const folder = plantPackage(canaries, echo);
  const done = spawnSync(process.execPath, [join(folder, "bin/pawl"), "a b", "--c"], { encoding: "utf8" });
  expect(JSON.parse(done.stdout)).toMatchObject({ argv: ["a b", "--c"] });
  expect(done.status).toBe(7);
});

describe.skipIf(oldNode === undefined)("on an older Node", () => {
  const old = oldNode ?? "";

  test("it hands over to the bundled Node with the same arguments and exit code", () => {
    const folder = plantPackage(canaries, echo);
    const done = spawnSync(old, [join(folder, "bin/pawl"), "a b", "--c"], { encoding: "utf8" });
    expect(JSON.parse(done.stdout)).toEqual({ argv: ["a b", "--c"], node: process.versions.node });
    expect(done.status).toBe(7);
  });

  test("it works through the link that npm makes", () => {
    const folder = plantPackage(canaries, echo);
    symlinkSync("bin/pawl", join(folder, "pawl"));
    const done = spawnSync(old, [join(folder, "pawl")], { encoding: "utf8" });
    expect(JSON.parse(done.stdout)).toMatchObject({ node: process.versions.node });
  });

  test("a child that dies of a signal ends it with 128 + that signal", () => {
    const main = `export async function main() { process.kill(process.pid, "SIGKILL"); await new Promise(() => {}); }`;
    const folder = plantPackage(canaries, main);
    expect(spawnSync(old, [join(folder, "bin/pawl")]).status).toBe(137);
  });

  test("SIGTERM reaches the child, whose answer is the exit code", async () => {
    const main = `export function main(): Promise<number> {
      return new Promise((resolve) => {
        const alive = setInterval(() => {}, 1000);
        process.on("SIGTERM", () => { clearInterval(alive); resolve(9); });
        console.log("ready");
      });
    }`;
    const folder = plantPackage(canaries, main);
    const child = spawn(old, [join(folder, "bin/pawl")], { stdio: ["ignore", "pipe", "inherit"] });
    child.stdout.once("data", () => child.kill("SIGTERM"));
    const code = await new Promise((resolve) => child.once("exit", resolve));
    expect(code).toBe(9);
  });

  test("without the platform package it names the package and what to do", () => {
    const folder = plantPackage(tmpdir(), echo);
    const done = spawnSync(old, [join(folder, "bin/pawl")], { encoding: "utf8" });
    expect(done.stderr).toMatch(/pawl needs Node 24 or newer, but runs on v\d+/);
    expect(done.stderr).toMatch(/npm install --no-save node-\S+@24\./);
    expect(done.status).toBe(1);
  });
});
