/**
 * Bytes of one file below a root: read whole, or replaced whole. Knows the order in which a write becomes durable, and what
 * a failure at each step proves.
 *
 * W1. A reader sees the old content or the new: written beside it, made durable, renamed over it, the rename made durable.
 * W2. Until the rename is asked for, a failure proves that nothing changed. The rename itself is waited for to its real
 *     end, so that no effect comes after the call; what fails after it proves nothing.
 * W3. A read is of one open file and no larger than the cap, whatever its size was said to be.
 */
import { createHash, randomBytes } from "node:crypto";
import { constants } from "node:fs";
import { type FileHandle, lstat, open, rename, unlink } from "node:fs/promises";
import {
  internal,
  invalid,
  permission,
  precondition,
  ToolError,
  transient,
  unknownOutcome,
} from "./define.ts";
import { type Folder, inFolder, notRegular, openRegular, syncFolder, temporaryName } from "./file-root.ts";

const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
const NEW_FILE_MODE = 0o644;
const PIECE = 65_536;

/** The steps of a write that reach the disk; tests bring disks that fail. */
export interface Disk {
  write: (file: FileHandle, bytes: Uint8Array) => Promise<void>;
  sync: (file: FileHandle) => Promise<void>;
  rename: (from: string, to: string) => Promise<void>;
  syncFolder: (folder: FileHandle) => Promise<void>;
}

export const SYSTEM_DISK: Disk = {
  write: (file, bytes) => file.writeFile(bytes),
  sync: (file) => file.sync(),
  rename,
  syncFolder,
};

export interface Place {
  root: string;
  /** Folders below the root, and the file's own name last. */
  names: readonly string[];
}

export const hashOf = (bytes: Uint8Array): string =>
  `sha256:${createHash("sha256").update(bytes).digest("hex")}`;

/** Rejects with a `ToolError` only. */
export async function readWhole(
  { root, names }: Place,
  maxBytes: number,
  signal: AbortSignal,
): Promise<Buffer> {
  const [folders, name] = split(names);
  try {
    return await inFolder(root, folders, {}, async (folder) => {
      const file = await openRegular(folder, name);
      try {
        return await upTo(file, maxBytes, signal);
      } finally {
        await file.close();
      }
    });
  } catch (error) {
    throw problemOf(error, name);
  }
}

/** Undefined where there is no such file, or no folder on the way to it. */
export async function hashAt(
  place: Place,
  maxBytes: number,
  signal: AbortSignal,
): Promise<string | undefined> {
  try {
    return hashOf(await readWhole(place, maxBytes, signal));
  } catch (error) {
    if (error instanceof ToolError && isMissing(error)) return undefined;
    throw error;
  }
}

/** (W3) */
async function upTo(file: FileHandle, maxBytes: number, signal: AbortSignal): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for (let total = 0; ; ) {
    unlessAborted(signal);
    const { bytesRead, buffer } = await file.read(Buffer.alloc(PIECE), 0, PIECE, null);
    if (bytesRead === 0) return Buffer.concat(pieces);
    total += bytesRead;
    if (total > maxBytes)
      throw invalid(`the file has more than ${maxBytes} bytes, the most that this connection reads`, {
        code: "answer-too-large",
      });
    pieces.push(buffer.subarray(0, bytesRead));
  }
}

/** (W1, W2) Rejects with a `ToolError` only. */
export async function replaceWhole(
  place: Place,
  bytes: Uint8Array,
  { signal, disk }: { signal: AbortSignal; disk: Disk },
): Promise<void> {
  const progress: Progress = { rename: undefined };
  const work = replaced(place, bytes, { signal, disk, progress });
  try {
    await unlessEnded(work, signal, progress);
  } catch (error) {
    const why = problemOf(error, place.names.join("/"));
    if (!progress.rename || (await isRefused(progress.rename))) throw why;
    throw unknownOutcome(`the file may have been replaced: ${why.message}`);
  }
}

interface Progress {
  /** From the moment on that it is asked for. */
  rename: Promise<void> | undefined;
}

async function replaced(
  { root, names }: Place,
  bytes: Uint8Array,
  { signal, disk, progress }: { signal: AbortSignal; disk: Disk; progress: Progress },
): Promise<void> {
  const [folders, name] = split(names);
  await inFolder(root, folders, { make: true }, async (folder) => {
    const mode = await modeAt(folder, name);
    const temporary = folder.at(temporaryName(randomBytes(16).toString("hex")));
    try {
      await durable(temporary, bytes, mode, disk);
      unlessAborted(signal);
      progress.rename = disk.rename(temporary, folder.at(name));
      await progress.rename;
    } catch (error) {
      // Gone if the rename was made all the same.
      await unlink(temporary).catch(() => {});
      throw error;
    }
    await disk.syncFolder(folder.handle);
  });
}

/** A rename is made or refused as a whole; only where the disk itself fails nobody knows. */
async function isRefused(rename: Promise<void>): Promise<boolean> {
  try {
    await rename;
    return false;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code !== undefined && code !== "EIO";
  }
}

/** (W2) A disk cannot be told to stop. What has not come to its rename will not come to it any more. */
async function unlessEnded(work: Promise<void>, signal: AbortSignal, progress: Progress): Promise<void> {
  work.catch(() => {});
  let stop = (): void => {};
  const ended = new Promise<never>((_, reject) => {
    stop = () => {
      const giveUp = (): void => reject(endedEarly());
      if (progress.rename) progress.rename.then(giveUp, giveUp);
      else giveUp();
    };
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) stop();
  });
  try {
    await Promise.race([work, ended]);
  } finally {
    signal.removeEventListener("abort", stop);
  }
}

async function durable(path: string, bytes: Uint8Array, mode: number, disk: Disk): Promise<void> {
  const file = await open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, NEW_FILE_MODE);
  try {
    if (mode !== NEW_FILE_MODE) await file.chmod(mode);
    await disk.write(file, bytes);
    await disk.sync(file);
  } finally {
    await file.close();
  }
}

/** What is there keeps its mode. */
async function modeAt(folder: Folder, name: string): Promise<number> {
  try {
    const there = await lstat(folder.at(name));
    if (!there.isFile()) throw notRegular(name);
    return there.mode & 0o777;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return NEW_FILE_MODE;
    throw error;
  }
}

const endedEarly = (): Error => transient("the call was ended early");

export function unlessAborted({ aborted }: AbortSignal): void {
  if (aborted) throw endedEarly();
}

const split = (names: readonly string[]): [folders: readonly string[], name: string] => {
  const name = names.at(-1);
  if (name === undefined) throw invalid("the path names no file");
  return [names.slice(0, -1), name];
};

const NOT_ALLOWED = new Set(["EACCES", "EPERM", "EROFS"]);
const NO_SUCH_PATH = new Set(["ENOTDIR", "ELOOP", "EISDIR", "ENOTEMPTY", "EEXIST", "ENAMETOOLONG", "EINVAL"]);
const MISSING = "ENOENT";

const isMissing = ({ evidence }: ToolError): boolean =>
  typeof evidence === "object" && (evidence as { errno?: string } | null)?.errno === MISSING;

/** A system error in the words of the port, without the paths of this machine. */
export function problemOf(error: unknown, path: string): ToolError {
  if (error instanceof ToolError) return error;
  const { code: errno } = error as NodeJS.ErrnoException;
  if (errno === undefined || !/^E[A-Z0-9]+$/.test(errno)) return internal(String(error));
  const more = { evidence: { errno } };
  if (errno === MISSING) return precondition(`${path} is not there`, more);
  if (NOT_ALLOWED.has(errno)) return permission(`${path}: the system does not allow it (${errno})`, more);
  if (NO_SUCH_PATH.has(errno))
    return invalid(
      `${path}: a name in it is a link, or a file where a folder should be, or the reverse (${errno})`,
      more,
    );
  return transient(`${path}: the disk says ${errno}`, more);
}
