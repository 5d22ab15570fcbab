// docs/operate/resolve.md, followed step by step in an empty folder: its files written, its commands run, its words heard.
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));
const page = readFileSync(join(root, "docs", "operate", "resolve.md"), "utf8");
const commands = [...page.matchAll(/^\$ (.+)$/gm)].map(([, command]) => command as string);

let folder: string;
let ports: { bank: number; api: number };
const started: ChildProcess[] = [];

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

const placed = (text: string): string =>
  text.replaceAll("7431", String(ports.bank)).replaceAll("7420", String(ports.api));

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "pawl-resolve-"));
  ports = { bank: await freePort(), api: await freePort() };
  for (const [, name, text] of page.matchAll(/```ts\n\/\/ (\S+)\n([\s\S]*?)\n```/g)) {
    const file = join(folder, name as string);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, placed(text as string));
  }
});
afterAll(() => {
  for (const child of started) child.kill("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
});

interface Started {
  text: () => string;
  until: (said: string) => Promise<void>;
}

function start(args: string[]): Started {
  const env = { ...process.env, PAWL_ADMIN_TOKEN: "choose-32-characters-or-more-of-your-own", NO_COLOR: "1" };
  const child = spawn(process.execPath, args, { cwd: folder, env, stdio: ["ignore", "pipe", "pipe"] });
  started.push(child);
  let text = "";
  const waiting: (() => void)[] = [];
  const hear = (piece: string) => {
    text += piece;
    for (const one of waiting) one();
  };
  child.stdout.setEncoding("utf8").on("data", hear);
  child.stderr.setEncoding("utf8").on("data", hear);
  const until = (said: string) =>
    new Promise<void>((resolve, reject) => {
      const look = () => text.includes(said) && resolve();
      waiting.push(look);
      child.on("exit", () => reject(new Error(`ended before it said ${said}: ${text}`)));
      look();
    });
  return { text: () => text, until };
}

/** A command of the page, in a shell with what the page has exported. */
function shell(command: string, run = ""): Promise<unknown> {
  const exports = [...page.matchAll(/^export (API=.+)$/gm)].map(([line]) => placed(line)).join("\n");
  return new Promise((resolve, reject) =>
    execFile(
      "bash",
      ["-c", `${exports}\nexport RUN=${run}\n${placed(command)}`],
      { cwd: folder },
      (error, stdout) => (error ? reject(error) : resolve(JSON.parse(stdout))),
    ),
  );
}

test("an operator gets from the question to the answer, and one payment is made", async () => {
  const bank = start(["bank.ts"]);
  const args = ["serve", "--scripts", "scripts", "--data", "./data", "--port", String(ports.api)];
  const host = start([join(root, "bin", "pawl"), ...args]);
  await host.until("ready: 1 workflow");
  console.log("A", host.text());
  const [publish, inbox, run, statement, consequences, answer, audit] = commands as [
    string,
    string,
    string,
    string,
    string,
    string,
    string,
  ];
  expect(commands).toHaveLength(7);
  console.log("B", await shell(publish));
  setTimeout(() => console.log("T", host.text(), bank.text()), 8000);
  await host.until("waiting for you to say whether it happened");
  console.log("C");
  const { items } = (await shell(inbox)) as {
    items: { run: string; kind: string; actions: { name: string }[] }[];
  };
  expect(items).toMatchObject([{ kind: "unknown_outcome" }]);
  expect(items[0]?.actions.map(({ name }) => name)).toEqual(["applied", "not-applied", "skip"]);
  const id = items[0]?.run as string;
  expect(await shell(run, id)).toMatchObject({
    status: "paused:reconciliation",
    pauseReason: "indeterminate",
    mutation: { proof: "none", sends: 1, args: { path: "/payments" } },
    causedBy: [{ key: "p-1" }],
  });
  expect(await shell(statement)).toEqual([{ to: "ada", cents: 1200 }]);
  expect(await shell(consequences, id)).toMatchObject({
    words: ["The outside change counts as made.", "The run goes on when its turn comes."],
  });
  expect(await shell(answer, id)).toEqual({ ok: true });
  await host.until("changed via bank.post, 1 event published");
  expect(bank.text().match(/paid/g)).toHaveLength(1);
  expect(await shell(audit)).toMatchObject({ items: [{ note: "In the bank statement of today" }] });
}, 120_000);
