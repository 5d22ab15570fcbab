import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, test } from "vitest";

const root = fileURLToPath(new URL("../../", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "pawl-readme-"));
afterAll(() => rmSync(folder, { recursive: true }));

const text = readFileSync(join(root, "README.md"), "utf8");
const saved = /Save this as `([^`]+)`:\n\n```ts\n([\s\S]*?)```/.exec(text);
const tour = [...text.matchAll(/```console\n\$ npx pawl ([^\n]+)\n([\s\S]*?)```/g)].map((match) => ({
  command: match[1] as string,
  output: match[2] as string,
}));

test("the tour has its steps", () => {
  expect(saved?.[1]).toBe("broken.ts");
  expect(tour.map((step) => step.command.split(" ")[0])).toEqual(["preview", "check", "doctor"]);
});

test.each(tour)("the tour: pawl $command", ({ command, output }) => {
  cpSync(join(root, "scripts-examples"), join(folder, "scripts-examples"), { recursive: true });
  writeFileSync(join(folder, saved?.[1] ?? ""), saved?.[2] ?? "");
  const shown = command === "doctor" ? layersOf : (lines: string) => lines;
  expect(shown(run(command.split(" ")))).toEqual(shown(output));
});

/** Which layers are in force differs between machines; which layers there are does not. */
function layersOf(lines: string): string[] {
  return lines.split("\n").flatMap((line) => /^ {2}(?:in force|MISSING ) {2}(.+?) {2}/.exec(line)?.[1] ?? []);
}

function run(args: string[]): string {
  const options = {
    cwd: folder,
    encoding: "utf8",
    env: { ...process.env, NO_COLOR: "1" },
    stdio: "pipe",
  } as const;
  try {
    return execFileSync(process.execPath, [join(root, "bin/pawl"), ...args], options);
  } catch (error) {
    return (error as { stdout: string }).stdout + (error as { stderr: string }).stderr;
  }
}
