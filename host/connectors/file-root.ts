/**
 * The folder that a connection may use, and nothing beside it. Every step below the root is opened by its name alone, from
 * the folder opened before it, and never through a link; what is opened once cannot be swapped for something else.
 *
 * R1. A path is relative, of plain names: no `..`, no NUL, no link, whoever put it there and when.
 * R2. Only regular files are opened for reading, and never so that opening waits (pipes, devices).
 * R3. Where the system cannot open below an open folder (no `/proc`), the folder is looked at again after each use, and a
 *     use of a folder that was swapped meanwhile fails.
 */
import { constants, existsSync, type Stats } from "node:fs";
import { type FileHandle, lstat, mkdir, open } from "node:fs/promises";
import { invalid, permission, transient } from "./define.ts";

/** An open folder, and the path by which its entries are reached. */
export interface Folder {
  /** Of an entry. */
  at: (name: string) => string;
  handle: FileHandle;
  byPath: boolean;
}

const LONGEST_PATH = 1_024;
const LONGEST_NAME = 255;
const DEEPEST = 32;
const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK } = constants;
const BELOW_FD = process.platform === "linux" && existsSync("/proc/self/fd");
/** What a write leaves behind for a moment, or for good where its host was killed. */
const TEMPORARY = /^\.pawl-[0-9a-f]{32}\.tmp$/;

export const temporaryName = (random: string): string => `.pawl-${random}.tmp`;
export const isTemporary = (name: string): boolean => TEMPORARY.test(name);

/** (R1) The names of a path; `""` is the root itself. */
export function namesOf(path: string): string[] {
  const refuse = (why: string): never => {
    throw invalid(`the path ${JSON.stringify(path.slice(0, 100))} ${why}`);
  };
  if (path === "") return [];
  if (path.length > LONGEST_PATH) refuse(`has more than ${LONGEST_PATH} characters`);
  if (path.startsWith("/")) refuse("is absolute: write it from the connection's root");
  if (/[\p{Cc}\\]/u.test(path)) refuse("has a backslash or a control character in it");
  if (!path.isWellFormed()) refuse("is no well-formed text");
  if (process.platform === "win32" && path.includes(":")) refuse("has a colon in it");
  const names = path.split("/");
  if (names.length > DEEPEST) refuse(`is deeper than ${DEEPEST} folders`);
  for (const name of names) {
    if (name === "" || name === "." || name === "..") refuse("has an empty name, `.` or `..` in it");
    if (Buffer.byteLength(name) > LONGEST_NAME) refuse(`has a name of more than ${LONGEST_NAME} bytes`);
    if (isTemporary(name)) refuse("is a file that a write is making");
  }
  return names;
}

interface Opening {
  /** Makes folders that are not there. */
  make?: boolean;
  /** (R3) For tests: as if there were no `/proc`. */
  byPath?: boolean;
}

/** Opens the folders on the way, the root first, and closes them all afterwards. */
export async function inFolder<T>(
  root: string,
  names: readonly string[],
  { make = false, byPath = !BELOW_FD }: Opening,
  use: (folder: Folder) => Promise<T>,
): Promise<T> {
  return descend(folderOf(await opening(root), root, byPath), names, make, use);
}

/** That the root is not there is no fault of a path: a disk that is not mounted, say. */
async function opening(root: string): Promise<FileHandle> {
  try {
    return await open(root, O_RDONLY | O_DIRECTORY);
  } catch (error) {
    const { code = "" } = error as NodeJS.ErrnoException;
    const why = `the root of the connection cannot be opened (${code})`;
    throw ["EACCES", "EPERM"].includes(code) ? permission(why) : transient(why);
  }
}

async function descend<T>(
  folder: Folder,
  [name, ...rest]: readonly string[],
  make: boolean,
  use: (folder: Folder) => Promise<T>,
): Promise<T> {
  try {
    if (name === undefined) return await use(folder);
    return await into(folder, name, (next) => descend(next, rest, make, use), make);
  } finally {
    await folder.handle.close().catch(() => {});
  }
}

/** One step down, from a folder that stays open; `use` closes what it is given. */
async function into<T>(
  folder: Folder,
  name: string,
  use: (next: Folder) => Promise<T>,
  make: boolean,
): Promise<T> {
  const handle = await opened(folder, name, make);
  const path = folder.at(name);
  const here = folder.byPath ? await handle.stat() : undefined;
  const result = await use(folderOf(handle, path, folder.byPath));
  if (here && !isSame(here, await lstat(path))) throw swapped(); // (R3)
  return result;
}

/** The same for a folder that was found in another. */
export const inside = (folder: Folder, name: string, use: (next: Folder) => Promise<void>): Promise<void> =>
  into(folder, name, (next) => descend(next, [], false, use), false);

async function opened(folder: Folder, name: string, make: boolean): Promise<FileHandle> {
  const how = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;
  try {
    return await open(folder.at(name), how);
  } catch (error) {
    if (!make || (error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
  await mkdir(folder.at(name)).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "EEXIST") throw error; // Somebody else was faster.
  });
  await syncFolder(folder.handle);
  return open(folder.at(name), how);
}

/** So that its entries are what they are now after a power cut, too. Windows does so by itself, and refuses the wish. */
export async function syncFolder(handle: FileHandle): Promise<void> {
  if (process.platform !== "win32") await handle.sync();
}

const folderOf = (handle: FileHandle, path: string, byPath: boolean): Folder => ({
  handle,
  byPath,
  at: (name) => `${byPath ? path : `/proc/self/fd/${handle.fd}`}/${name}`,
});

const isSame = (one: Stats, other: Stats): boolean => one.ino === other.ino && one.dev === other.dev;
const swapped = (): Error => Object.assign(new Error("a folder was swapped"), { code: "ELOOP" });

/** (R2) Closed again by whoever asked. Throws `ENOENT` as the system does. */
export async function openRegular(folder: Folder, name: string): Promise<FileHandle> {
  const path = folder.at(name);
  const there = await lstat(path);
  if (!there.isFile()) throw notRegular(name);
  const handle = await open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  try {
    const here = await handle.stat();
    if (!here.isFile()) throw notRegular(name);
    if (folder.byPath && !isSame(there, here)) throw swapped();
    return handle;
  } catch (error) {
    await handle.close();
    throw error;
  }
}

export const notRegular = (name: string): Error =>
  invalid(`${name} is a folder, a link or a device, not a file`);
