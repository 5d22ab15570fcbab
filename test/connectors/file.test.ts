// What the connector `file` lets through, keeps out and says, on the real file system.
import { execFileSync } from "node:child_process";
import {
  chmodSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { rename } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { OpenConnection } from "../../host/connectors/define.ts";
import { type Disk, hashOf, SYSTEM_DISK } from "../../host/connectors/file-content.ts";
import { inFolder, openRegular } from "../../host/connectors/file-root.ts";
import { file, fileOn } from "../../host/connectors/file.ts";
import { invokeCheck, invokeMutation, invokeRead } from "../../host/connectors/invoke.ts";
import type { Json } from "../../host/core/workflow.ts";

const ORIGIN = { workflow: 1, hops: 0, maxHops: 100 };
const MAKE_PIPE = "mkfifo";
const OUTSIDE = "what is outside stays outside";
const TEMPORARY = `.pawl-${"0".repeat(32)}.tmp`;

let folder: string;
let root: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "pawl-file-"));
  root = join(folder, "root");
  mkdirSync(join(root, "in"), { recursive: true });
  mkdirSync(join(folder, "root-beside"));
  writeFileSync(join(folder, "secret.txt"), OUTSIDE);
  writeFileSync(join(folder, "root-beside", "secret.txt"), OUTSIDE);
  writeFileSync(join(root, "in", "a.txt"), "alpha");
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const opened = (config: object = {}) =>
  ({
    namespace: "default",
    name: "disk",
    config: file.config.parse({ root, ...config }),
    secrets: {},
    configVersion: 1,
    hide: () => {},
    replaceSecrets: async () => {},
  }) satisfies OpenConnection;

type More = { connector?: typeof file; config?: object; signal?: AbortSignal; before?: Json };

function call(tool: "read" | "list", args: object, { config }: More = {}) {
  const found = file.tools[tool];
  if (found?.kind !== "read") throw new Error(`no ${tool}`);
  const context = { signal: AbortSignal.timeout(20_000) };
  return invokeRead(found, {
    connection: opened(config),
    args: JSON.stringify(args),
    label: `disk.${tool}`,
    context,
  });
}

function toolOf(connector: typeof file) {
  const found = connector.tools["write"];
  if (found?.kind !== "mutation") throw new Error("no write");
  return found;
}

function sendTo(args: object, { connector = file, config, signal = AbortSignal.timeout(20_000) }: More = {}) {
  const context = { idempotencyKey: "k", signal, origin: ORIGIN };
  const given = { connection: opened(config), args: JSON.stringify(args), label: "disk.write", context };
  return invokeMutation(toolOf(connector), given);
}

const before = (args: object): Promise<Json | undefined> =>
  toolOf(file).before?.(opened(), toolOf(file).input.parse(args), { signal: AbortSignal.timeout(20_000) }) ??
  Promise.resolve(undefined);

async function checked(args: object, seen: Json | undefined): Promise<string> {
  const context = {
    idempotencyKey: "k",
    signal: AbortSignal.timeout(20_000),
    origin: ORIGIN,
  };
  const more = seen === undefined ? {} : { before: seen };
  const given = {
    connection: opened(),
    args: JSON.stringify(args),
    label: "disk.write",
    context: { ...context, ...more },
  };
  return (await invokeCheck(toolOf(file), given)).says;
}

const valueOf = (answer: Awaited<ReturnType<typeof call>>): unknown => {
  expect(answer).toMatchObject({ ok: true });
  return JSON.parse((answer as { value: string }).value);
};

describe("reading", () => {
  test("gives content and hash, as text or base64", async () => {
    const hash = hashOf(Buffer.from("alpha"));
    expect(valueOf(await call("read", { path: "in/a.txt" }))).toEqual({
      path: "in/a.txt",
      content: "alpha",
      hash,
    });
    const packed = { path: "in/a.txt", content: "YWxwaGE=", hash };
    expect(valueOf(await call("read", { path: "in/a.txt", encoding: "base64" }))).toEqual(packed);
  });

  test("refuses bytes that are no text, a file that is too large, and one that is not there, each in its way", async () => {
    writeFileSync(join(root, "raw"), Buffer.from([0xff, 0xfe, 0x00]));
    writeFileSync(join(root, "large"), Buffer.alloc(11));
    expect(await call("read", { path: "raw" })).toMatchObject({ class: "logic", message: /not UTF-8/ });
    const config = { limits: { fileBytes: 10 } };
    expect(await call("read", { path: "large" }, { config })).toMatchObject({
      class: "logic",
      code: "answer-too-large",
    });
    expect(await call("read", { path: "gone.txt" })).toMatchObject({
      class: "precondition",
      message: /not there/,
    });
    expect(await call("read", { path: "no/such/folder" })).toMatchObject({ class: "precondition" });
  });

  test.skipIf(process.platform !== "linux")(
    "a file that claims no size is held to the cap, too (W3)",
    async () => {
      const answer = await call(
        "read",
        { path: "kallsyms" },
        { config: { root: "/proc", limits: { fileBytes: 64 } } },
      );
      expect(answer).toMatchObject({ class: "logic", code: "answer-too-large" });
    },
  );
});

describe("listing", () => {
  test("names every file below, sorted, with size and time", async () => {
    mkdirSync(join(root, "in", "deep"));
    writeFileSync(join(root, "in", "deep", "b"), "12");
    writeFileSync(join(root, ".hidden"), "");
    const { files } = valueOf(await call("list", {})) as {
      files: { path: string; size: number; modifiedAt: string }[];
    };
    expect(files.map(({ path, size }) => [path, size])).toEqual([
      [".hidden", 0],
      ["in/a.txt", 5],
      ["in/deep/b", 2],
    ]);
    expect(files[0]?.modifiedAt).toMatch(/^\d{4}-\d\d-\d\dT/);
    const below = valueOf(await call("list", { path: "in/deep" })) as { files: object[] };
    expect(below.files).toMatchObject([{ path: "in/deep/b" }]);
  });

  test("leaves out links, pipes and what a write is making, and follows nothing out (D3, R1, R2)", async () => {
    symlinkSync(folder, join(root, "out"));
    symlinkSync(join(folder, "secret.txt"), join(root, "link.txt"));
    execFileSync(MAKE_PIPE, [join(root, "pipe")]);
    writeFileSync(join(root, TEMPORARY), "half");
    const { files } = valueOf(await call("list", {})) as { files: { path: string }[] };
    expect(files.map(({ path }) => path)).toEqual(["in/a.txt"]);
  });

  test("ends at the most entries that the connection allows", async () => {
    for (let n = 0; n < 20; n++) writeFileSync(join(root, `${n}`), "");
    expect(await call("list", {}, { config: { limits: { entries: 10 } } })).toMatchObject({
      class: "logic",
      message: /more than 10/,
    });
  });
});

describe("the root is not left (R1)", () => {
  const paths = [
    "../secret.txt",
    "in/../../secret.txt",
    "..",
    "in/..",
    "./in/a.txt",
    "in//a.txt",
    "in/a.txt/",
    "/etc/passwd",
    "//etc/passwd",
    "in\\..\\..\\secret.txt",
    "in/a.txt\0.png",
    "in/\n",
    "../root-beside/secret.txt",
    "\ud800",
    "x/".repeat(40) + "y",
    "x".repeat(300),
    "é".repeat(200),
    TEMPORARY,
    `in/${TEMPORARY}`,
  ];
  test.each(paths)("%j", async (path) => {
    expect(await call("read", { path })).toMatchObject({ ok: false, class: "logic" });
    expect(await call("list", { path })).toMatchObject({ ok: false, class: "logic" });
    const listed = () => execFileSync("find", [folder]).toString();
    const all = listed();
    expect(await sendTo({ path, content: "x" })).toMatchObject({ outcome: "failed", class: "logic" });
    expect(listed()).toBe(all);
  });

  test("nothing is read or written through a link, to a file or to a folder", async () => {
    symlinkSync(join(folder, "secret.txt"), join(root, "file-link"));
    symlinkSync(folder, join(root, "folder-link"));
    symlinkSync("in", join(root, "inner-link"));
    symlinkSync(join(folder, "made.txt"), join(root, "dangling"));
    for (const path of [
      "file-link",
      "folder-link/secret.txt",
      "inner-link/a.txt",
      "dangling",
      "folder-link/new.txt",
    ]) {
      expect([path, await call("read", { path })]).toMatchObject([path, { ok: false, class: "logic" }]);
      const answer = await sendTo({ path, content: "x" });
      expect([path, answer]).toMatchObject([path, { outcome: "failed", class: "logic" }]);
    }
    expect(readFileSync(join(folder, "secret.txt"), "utf8")).toBe(OUTSIDE);
    expect(readdirSync(folder).sort()).toEqual(["root", "root-beside", "secret.txt"]);
  });

  test("a write over a hard link leaves the other name as it was", async () => {
    linkSync(join(folder, "secret.txt"), join(root, "hard.txt"));
    expect(await sendTo({ path: "hard.txt", content: "new" })).toMatchObject({ outcome: "applied" });
    expect(readFileSync(join(folder, "secret.txt"), "utf8")).toBe(OUTSIDE);
  });

  test.each([false, true])(
    "a folder that is swapped for a link while it is used is not left (by path: %s)",
    async (byPath) => {
      const swap = (): void => {
        renameSync(join(root, "in"), join(root, "was"));
        symlinkSync(join(folder, "root-beside"), join(root, "in"));
      };
      const read = inFolder(root, ["in"], { byPath }, async (inside) => {
        swap();
        const opened = await openRegular(inside, byPath ? "secret.txt" : "a.txt");
        try {
          return await opened.readFile("utf8");
        } finally {
          await opened.close();
        }
      });
      // With an open folder its own file is read; by path, what was read is not given to anybody.
      const got = await read.catch((error: NodeJS.ErrnoException) => error.code);
      expect(got).toBe(byPath ? "ELOOP" : "alpha");
    },
  );

  test.skipIf(process.platform !== "linux")(
    "1,000 swaps during writes and reads: nothing comes out or gets in",
    async () => {
      const [real, link, aside] = ["in", "other", "aside"].map((name) => join(root, name)) as [
        string,
        string,
        string,
      ];
      symlinkSync(join(folder, "root-beside"), link);
      // A write may have made the folder again meanwhile.
      const move = async (from: string, to: string): Promise<void> => {
        for (;;)
          try {
            return await rename(from, to);
          } catch {
            if (statSync(to).isDirectory()) rmSync(to, { recursive: true });
          }
      };
      for (let n = 0; n < 500; n++) {
        const [got, put] = [
          call("read", { path: "in/secret.txt" }),
          sendTo({ path: "in/new.txt", content: `${n}` }),
        ];
        await move(real, aside);
        await move(link, real);
        await move(real, link);
        await move(aside, real);
        expect(await got).toMatchObject({ ok: false });
        await put;
      }
      expect(readdirSync(join(folder, "root-beside"))).toEqual(["secret.txt"]);
    },
  );
});

describe("what is no regular file (R2)", () => {
  test("a pipe does not make anybody wait", async () => {
    execFileSync(MAKE_PIPE, [join(root, "pipe")]);
    expect(await call("read", { path: "pipe" })).toMatchObject({ ok: false, class: "logic" });
    expect(await sendTo({ path: "pipe", content: "x" })).toMatchObject({ outcome: "failed", class: "logic" });
  });

  test("a device is not opened, a folder is not read or replaced, a file is no folder", async () => {
    const config = { root: "/dev" };
    for (const path of ["zero", "null", "tty"])
      expect(await call("read", { path }, { config })).toMatchObject({ ok: false, class: "logic" });
    expect(await call("read", { path: "in" })).toMatchObject({ ok: false, class: "logic" });
    expect(await sendTo({ path: "in", content: "x" })).toMatchObject({ outcome: "failed", class: "logic" });
    expect(await call("read", { path: "in/a.txt/x" })).toMatchObject({ ok: false, class: "logic" });
    expect(await sendTo({ path: "in/a.txt/x", content: "x" })).toMatchObject({
      outcome: "failed",
      class: "logic",
    });
    expect(await call("list", { path: "in/a.txt" })).toMatchObject({ ok: false, class: "logic" });
  });
});

describe("writing (W1, W2)", () => {
  test("makes folders on the way, replaces what is there, keeps its mode, and leaves nothing beside it", async () => {
    const first = await sendTo({ path: "2026/11/day.json", content: "{}" });
    expect(first).toMatchObject({ outcome: "applied" });
    const hash = hashOf(Buffer.from("{}"));
    expect(JSON.parse((first as { result: string }).result)).toEqual({ path: "2026/11/day.json", hash });
    const path = join(root, "2026", "11", "day.json");
    chmodSync(path, 0o600);
    await sendTo({ path: "2026/11/day.json", content: "/w==", encoding: "base64" });
    expect([readFileSync(path), statSync(path).mode & 0o777]).toEqual([Buffer.from([0xff]), 0o600]);
    expect(readdirSync(join(root, "2026", "11"))).toEqual(["day.json"]);
  });

  test.each([
    [{ content: "x".repeat(11) }, /10 at most/],
    [{ content: "no base64!", encoding: "base64" }, /not base64/],
    [{ content: "\ud800" }, /well-formed/],
    [{ content: 7 }, /content/],
    [{ content: "x", mode: "0777" }, /mode/i],
  ])("refuses %j before anything is written", async (args, message) => {
    const answer = await sendTo({ path: "new", ...args }, { config: { limits: { fileBytes: 10 } } });
    expect(answer).toMatchObject({ outcome: "failed", class: "logic", message });
    expect(readdirSync(root)).toEqual(["in"]);
  });

  test("of many writers at once one wins, and every reader sees one whole content", async () => {
    const contents = Array.from({ length: 20 }, (_, n) => `${n}`.repeat(50_000));
    await sendTo({ path: "shared", content: contents[0] });
    const reads: Promise<unknown>[] = [];
    const writes = contents.map((content) => {
      reads.push(call("read", { path: "shared" }));
      return sendTo({ path: "shared", content });
    });
    for (const answer of await Promise.all(writes)) expect(answer).toMatchObject({ outcome: "applied" });
    const seen = (await Promise.all(reads)).map(
      (one) => (JSON.parse((one as { value: string }).value) as { content: string }).content,
    );
    expect(seen.every((content) => contents.includes(content))).toBe(true);
    expect(contents).toContain(readFileSync(join(root, "shared"), "utf8"));
    expect(readdirSync(root).sort()).toEqual(["in", "shared"]);
  });

  const failing = (step: keyof Disk, code: string, isDone = false): typeof file => {
    const fails = async (...args: never[]): Promise<void> => {
      if (isDone) await (SYSTEM_DISK[step] as (...given: never[]) => Promise<void>)(...args);
      throw Object.assign(new Error(`${code}: ${root}`), { code });
    };
    return fileOn({ ...SYSTEM_DISK, [step]: fails });
  };
  test.each<[keyof Disk, string, object]>([
    ["write", "ENOSPC", { outcome: "failed", class: "transient" }],
    ["write", "EDQUOT", { outcome: "failed", class: "transient" }],
    ["write", "EIO", { outcome: "failed", class: "transient" }],
    ["write", "EROFS", { outcome: "failed", class: "permission" }],
    ["sync", "EIO", { outcome: "failed", class: "transient" }],
    ["rename", "EACCES", { outcome: "failed", class: "permission" }],
    ["rename", "EROFS", { outcome: "failed", class: "permission" }],
    ["rename", "ENOSPC", { outcome: "failed", class: "transient" }],
    ["rename", "EISDIR", { outcome: "failed", class: "logic" }],
    ["rename", "EIO", { outcome: "unknown" }],
    ["syncFolder", "EIO", { outcome: "unknown" }],
  ])("%s says %s: %j, and the old content stands or the new", async (step, code, expected) => {
    const answer = await sendTo({ path: "in/a.txt", content: "beta" }, { connector: failing(step, code) });
    expect(answer).toMatchObject(expected);
    expect(JSON.stringify(answer)).not.toContain(root);
    expect(readFileSync(join(root, "in", "a.txt"), "utf8")).toBe(step === "syncFolder" ? "beta" : "alpha");
    expect(readdirSync(join(root, "in"))).toEqual(["a.txt"]);
  });

  test("an error of another kind proves nothing", async () => {
    const broken = fileOn({ ...SYSTEM_DISK, write: () => Promise.reject(new TypeError("a bug")) });
    expect(await sendTo({ path: "x", content: "y" }, { connector: broken })).toMatchObject({
      outcome: "unknown",
    });
  });

  test("called off before its rename, a write is not made, however late its disk goes on", async () => {
    const abort = new AbortController();
    const goOn = Promise.withResolvers<void>();
    const ended = Promise.withResolvers<void>();
    const connector = fileOn({
      ...SYSTEM_DISK,
      write: async (handle, bytes) => {
        abort.abort();
        await goOn.promise;
        await SYSTEM_DISK.write(handle, bytes);
      },
      sync: async (handle) => {
        await SYSTEM_DISK.sync(handle);
        ended.resolve();
      },
    });
    const answer = await sendTo({ path: "late.txt", content: "x" }, { connector, signal: abort.signal });
    expect(answer).toMatchObject({ outcome: "failed", class: "transient" });
    goOn.resolve();
    await ended.promise;
    // What it had begun is cleared away.
    await expect.poll(() => readdirSync(root)).toEqual(["in"]);
  });

  test("called off during its rename, it waits for what becomes of it", async () => {
    const abort = new AbortController();
    const connector = fileOn({
      ...SYSTEM_DISK,
      rename: async (from, to) => {
        abort.abort();
        await new Promise((resolve) => setImmediate(resolve));
        await rename(from, to);
      },
    });
    const answer = await sendTo({ path: "late.txt", content: "x" }, { connector, signal: abort.signal });
    expect(answer.outcome).not.toBe("failed");
    expect(readFileSync(join(root, "late.txt"), "utf8")).toBe("x");
  });
});

describe("the check of a write (D1)", () => {
  const args = { path: "in/a.txt", content: "beta" };

  test("new content: applied, old content or still nothing: notApplied, anything else: unsure", async () => {
    const seen = await before(args);
    expect(await checked(args, seen)).toBe("notApplied");
    writeFileSync(join(root, "in", "a.txt"), "beta");
    expect(await checked(args, seen)).toBe("applied");
    writeFileSync(join(root, "in", "a.txt"), "gamma");
    expect(await checked(args, seen)).toBe("unsure");
    rmSync(join(root, "in", "a.txt"));
    expect(await checked(args, seen)).toBe("unsure");
    const fresh = { path: "new/b.txt", content: "beta" };
    expect(await checked(fresh, await before(fresh))).toBe("notApplied");
  });

  test("without what was there before, only the new content is an answer", async () => {
    expect(await checked(args, undefined)).toBe("unsure");
    writeFileSync(join(root, "in", "a.txt"), "beta");
    expect(await checked(args, undefined)).toBe("applied");
  });

  test("another folder in the root's place, as where a disk is not mounted, proves nothing", async () => {
    const fresh = { path: "b.txt", content: "beta" };
    const seen = await before(fresh);
    renameSync(root, `${root}-mounted`);
    expect(await checked(fresh, seen)).toBe("unsure");
    mkdirSync(root);
    expect(await checked(fresh, seen)).toBe("unsure");
  });

  test("settles at once (D2)", () => {
    expect([toolOf(file).settleMs, toolOf(file).proof]).toEqual([0, "lookup"]);
  });
});

describe("the connection", () => {
  const check = () =>
    file.check?.(opened(), {
      signal: AbortSignal.timeout(20_000),
    });

  test("is good while its root is a folder", async () => {
    expect(await check()).toEqual({ status: "ok" });
    rmSync(root, { recursive: true });
    expect(await check()).toMatchObject({ status: "unreachable" });
    writeFileSync(root, "");
    expect(await check()).toMatchObject({ status: "unreachable" });
  });

  test("a root that is gone is waited for", async () => {
    rmSync(root, { recursive: true });
    expect(await call("read", { path: "in/a.txt" })).toMatchObject({ class: "transient" });
    expect(await sendTo({ path: "x", content: "y" })).toMatchObject({
      outcome: "failed",
      class: "transient",
    });
  });

  test.each(["", "relative/root", "./x", "/a\0b"])("%j is no root", (given) => {
    expect(file.config.safeParse({ root: given }).success).toBe(false);
  });
});
