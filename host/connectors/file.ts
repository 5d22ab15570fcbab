/**
 * The connector `file`: files below one folder of this machine (06).
 *
 * D1. Whether a write took effect is looked up: the new content is there = applied; what was there before, or nothing where
 *     nothing was, in the same root = not applied; anything else is unsure.
 * D2. Nothing settles: a write ends when the disk has ended, and a disk of this machine shows what it has at once.
 * D3. What a write is making is neither listed nor read.
 */
import { constants } from "node:fs";
import { access, lstat, opendir, stat } from "node:fs/promises";
import { isAbsolute } from "node:path";
import { z } from "zod";
import { plainLine } from "../core/plain-line.ts";
import type { Json } from "../core/workflow.ts";
import {
  applied,
  type CheckContext,
  type Connector,
  defineConnector,
  type Health,
  invalid,
  mutation,
  notApplied,
  type OpenConnection,
  read,
  unsure,
  type Verdict,
} from "./define.ts";
import {
  type Disk,
  hashAt,
  hashOf,
  problemOf,
  readWhole,
  replaceWhole,
  SYSTEM_DISK,
  unlessAborted,
} from "./file-content.ts";
import { type Folder, inFolder, inside, isTemporary, namesOf } from "./file-root.ts";

const MEBIBYTE = 1_048_576;
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?$/;
const DEEPEST_LIST = 32;
const LONGEST_QUOTE = 120;
const HASH_SHOWN = "sha256:".length + 12;

const limits = z.strictObject({
  /** Of one file, read or written. */
  fileBytes: z
    .int()
    .min(1)
    .max(64 * MEBIBYTE)
    .default(MEBIBYTE),
  /** Of one listing, files and folders. */
  entries: z.int().min(1).max(100_000).default(5_000),
});
const config = z.strictObject({
  root: z
    .string()
    .min(1)
    .refine((path) => isAbsolute(path) && !path.includes("\0"), "write the root as an absolute path"),
  limits: limits.default(limits.parse({})),
});
const secrets = z.strictObject({});

const encoding = z.enum(["utf8", "base64"]).default("utf8");
const path = z.string().min(1);
const readInput = z.strictObject({ path, encoding });
const listInput = z.strictObject({ path: z.string().default("") }).default({ path: "" });
const writeInput = z.strictObject({ path, content: z.string(), encoding });
const result = z.object({ path: z.string(), hash: z.string() });
const entry = z.object({ path: z.string(), size: z.number(), modifiedAt: z.string() });

type Config = z.infer<typeof config>;
type Opened = OpenConnection<Config, object>;
type Write = z.infer<typeof writeInput>;
type Entry = z.infer<typeof entry>;
/** What `before` records. */
const seen = z.object({ hash: z.string().nullable(), root: z.number() });

export function fileOn(disk: Disk): Connector<Config, object> {
  return defineConnector<Config, object>({
    name: "file",
    config,
    secrets,
    check,
    tools: {
      read: read({
        input: readInput,
        output: result.extend({ content: z.string() }),
        run: async ({ config: { root, limits: most } }: Opened, asked, { signal }) => {
          const bytes = await readWhole({ root, names: namesOf(asked.path) }, most.fileBytes, signal);
          return { path: asked.path, content: textOf(bytes, asked), hash: hashOf(bytes) };
        },
      }),
      list: read({
        input: listInput,
        output: z.object({ files: z.array(entry) }),
        run: async ({ config: set }: Opened, asked, { signal }) => ({
          files: await listed(set, asked.path, signal),
        }),
      }),
      write: mutation({
        input: writeInput,
        output: result,
        describe: (given: Write, { config: { root } }: OpenConnection<Config>) =>
          plainLine(`Write ${given.path} in ${root}: ${shown(given)}`, 1_000),
        before: async (
          { config: { root, limits: most } }: Opened,
          given: Write,
          { signal },
        ): Promise<Json> => ({
          hash: (await hashAt({ root, names: namesOf(given.path) }, most.fileBytes, signal)) ?? null,
          root: await identityOf(root),
        }),
        run: async ({ config: { root, limits: most } }: Opened, given: Write, { signal }) => {
          const bytes = bytesOf(given);
          if (bytes.byteLength > most.fileBytes)
            throw invalid(`${bytes.byteLength} bytes; the connection writes ${most.fileBytes} at most`);
          await replaceWhole({ root, names: namesOf(given.path) }, bytes, { signal, disk });
          return { path: given.path, hash: hashOf(bytes) };
        },
        reconcile: reconciled,
        proof: "lookup",
        settleMs: 0, // (D2)
      }),
    },
  });
}

export const file = fileOn(SYSTEM_DISK);

/** (D1) */
async function reconciled(
  { config: { root, limits: most } }: Opened,
  given: Write,
  { before, signal }: CheckContext,
): Promise<Verdict> {
  const hash = hashOf(bytesOf(given));
  const there = (await hashAt({ root, names: namesOf(given.path) }, most.fileBytes, signal)) ?? null;
  if (there === hash) return applied({ path: given.path, hash });
  const recorded = seen.safeParse(before);
  if (!recorded.success) return unsure("what was there before was not recorded");
  if (recorded.data.root !== (await identityOf(root))) return unsure("the root is another folder now");
  return there === recorded.data.hash ? notApplied() : unsure("somebody else has changed the file");
}

/** Stays over a restart, and differs where a disk is not mounted. */
const identityOf = async (root: string): Promise<number> => (await stat(root)).ino;

async function check({ config: { root } }: Opened): Promise<Health> {
  try {
    if (!(await stat(root)).isDirectory()) return { status: "unreachable", message: "the root is no folder" };
    await access(root, constants.R_OK | constants.X_OK);
    return { status: "ok" };
  } catch (error) {
    const { class: kind, message } = problemOf(error, "the root");
    return { status: kind === "permission" ? "auth" : "unreachable", message };
  }
}

async function listed(
  { root, limits: most }: Config,
  from: string,
  signal: AbortSignal,
): Promise<readonly Entry[]> {
  const files: Entry[] = [];
  let entries = 0;
  const visit = async (folder: Folder, names: readonly string[]): Promise<void> => {
    for await (const { name } of await opendir(folder.at("."))) {
      unlessAborted(signal);
      if (++entries > most.entries)
        throw invalid(
          `more than ${most.entries} entries: list a folder further down, or raise \`limits.entries\``,
        );
      if (!isNameable(name)) continue;
      const found = await lstat(folder.at(name)).catch(() => undefined); // Gone by now.
      const path = [...names, name];
      if (found?.isFile())
        files.push({ path: path.join("/"), size: found.size, modifiedAt: found.mtime.toISOString() });
      if (found?.isDirectory() && path.length < DEEPEST_LIST)
        await inside(folder, name, (next) => visit(next, path));
    }
  };
  try {
    const names = namesOf(from);
    await inFolder(root, names, {}, (folder) => visit(folder, names));
  } catch (error) {
    throw problemOf(error, from === "" ? "the root" : from);
  }
  return files.sort((one, other) => (one.path < other.path ? -1 : 1));
}

/** (D3) */
function isNameable(name: string): boolean {
  if (isTemporary(name)) return false;
  try {
    return namesOf(name).length === 1;
  } catch {
    return false;
  }
}

function bytesOf({ content, encoding: as }: Write): Buffer {
  if (as === "base64" && !BASE64.test(content)) throw invalid("content: not base64");
  if (!content.isWellFormed()) throw invalid("content: no well-formed text");
  return Buffer.from(content, as);
}

function textOf(bytes: Buffer, { path: of, encoding: as }: z.infer<typeof readInput>): string {
  if (as === "base64") return bytes.toString("base64");
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw invalid(`${of} is not UTF-8: read it with the encoding base64`);
  }
}

/** Enough of the content to tell it from another. */
function shown(given: Write): string {
  const size = Buffer.byteLength(given.content, given.encoding);
  const length = size === 1 ? "1 byte" : `${size} bytes`;
  const hash = hashOf(Buffer.from(given.content, given.encoding)).slice(0, HASH_SHOWN);
  return given.encoding === "utf8" && size > 0
    ? `${length}, "${plainLine(given.content, LONGEST_QUOTE)}" (${hash})`
    : `${length} (${hash})`;
}
