// docs/writing-a-connector.md, followed step by step in a folder of its own: what it says to write is written, what it says to
// run is run, and what it says will happen happens.
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));
const page = readFileSync(join(root, "docs", "writing-a-connector.md"), "utf8");
/** Blocks that begin with the name of their file. */
const files = [...page.matchAll(/```(?:ts|json)\n\/\/ (\S+)\n([\s\S]*?)\n```/g)].map(([, name, text]) => ({
  name: name as string,
  text: text as string,
}));

let folder: string;
const started: ChildProcess[] = [];

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "pawl-page-"));
  for (const { name, text } of files) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  // What `npm install` makes of the page's package.json.
  mkdirSync(join(folder, "node_modules"));
  symlinkSync(root, join(folder, "node_modules", "pawl"));
  symlinkSync(join(root, "node_modules", "zod"), join(folder, "node_modules", "zod"));
});
afterAll(() => {
  for (const child of started) child.kill("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
});

/** Ends with what it said once `said` stands in there, or with its own end. */
function run(args: string[], env: NodeJS.ProcessEnv, said: string): Promise<string> {
  const child = spawn(process.execPath, args, {
    cwd: folder,
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  started.push(child);
  let text = "";
  return new Promise((resolve) => {
    const hear = (piece: string) => {
      text += piece;
      if (text.includes(said)) resolve(text);
    };
    child.stdout.setEncoding("utf8").on("data", hear);
    child.stderr.setEncoding("utf8").on("data", hear);
    child.on("close", () => resolve(text));
  });
}

test("has every file that it speaks of", () => {
  expect(files.map(({ name }) => name)).toEqual([
    "package.json",
    "helpdesk.ts",
    "helpdesk.test.ts",
    "service.ts",
    "scripts/alarms.ts",
    "pawl.config.ts",
  ]);
});

test("step 3: its connector passes the kit", async () => {
  const env = { ...process.env, NODE_TEST_CONTEXT: undefined };
  const { error, stdout } = await new Promise<{ error: Error | null; stdout: string }>((resolve) =>
    execFile(
      process.execPath,
      ["--test", "--test-reporter=tap", "helpdesk.test.ts"],
      { cwd: folder, env },
      (failed, out) => resolve({ error: failed, stdout: out }),
    ),
  );
  expect(error, stdout).toBeNull();
  expect(stdout).toMatch(/^# pass 41$/m);
  expect(stdout).toMatch(/^# fail 0$/m);
}, 180_000);

test("step 3: broken as it says, the kit names the fault", async () => {
  const text = files.find(({ name }) => name === "helpdesk.ts")?.text ?? "";
  const broken = text.replace(
    'throw unknownOutcome("the connection broke")',
    'throw transient("the connection broke")',
  );
  expect(broken).not.toBe(text);
  mkdirSync(join(folder, "broken"));
  writeFileSync(join(folder, "broken", "helpdesk.ts"), broken);
  const suite = files.find(({ name }) => name === "helpdesk.test.ts")?.text ?? "";
  writeFileSync(join(folder, "broken", "helpdesk.test.ts"), suite);
  const args = [
    "--test",
    "--test-reporter=tap",
    "--test-name-pattern=dropped-after-effect: what",
    "broken/helpdesk.test.ts",
  ];
  const env = { NODE_TEST_CONTEXT: undefined };
  const said = await run(args, env, "# duration_ms");
  expect(said).toMatch(/it said failed \(transient [^)]*\), and 1 effects were made/);
}, 120_000);

test("step 6: the answer that was lost is found, and one ticket was opened", async () => {
  const port = 20_000 + (process.pid % 20_000);
  for (const name of ["service.ts", "pawl.config.ts"]) {
    const text = files.find((one) => one.name === name)?.text ?? "";
    writeFileSync(join(folder, name), text.replaceAll("7421", String(port)));
  }
  const service = run(["service.ts"], {}, "opened");
  const told = await run(
    [join(root, "bin", "pawl"), "dev", "scripts", "--live"],
    { HELPDESK_TOKEN: "let-me-in", NO_COLOR: "1" },
    "changed via desk.open",
  );
  expect(told).toContain("checking whether it happened: Open a ticket");
  expect((await service).match(/opened/g)).toHaveLength(1);
}, 120_000);
