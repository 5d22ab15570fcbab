/**
 * Where master keys come from: a text that the operator gives (`PAWL_MASTER_KEY`), or a file that the host makes for
 * itself. Both may hold several, the newest first; the others only open what they have sealed.
 *
 * K1. A key file that anybody but its owner can read is refused.
 * K2. A key file is replaced as a whole or not at all, and never over one that is not kept elsewhere.
 * K3. No message holds a key.
 */
import {
  closeSync,
  existsSync,
  fchmodSync,
  fstatSync,
  fsyncSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeSync,
} from "node:fs";
import { dirname } from "node:path";
import { randomBytes } from "node:crypto";
import { PawlError } from "../core/errors.ts";
import { MasterKey } from "./secrets.ts";

const MOST_KEYS = 8;
const NOTE =
  "# The master key of Pawl. Keep a copy away from the backups: without it no stored secret opens.\n";

/** As text, to be written, and as a key, to be used. */
export interface KeyText {
  text: string;
  key: MasterKey;
}

/** Keys in base64 or hex, parted by commas, blanks or lines. */
export function parseKeys(given: string, origin: string): KeyText[] {
  const texts = given
    .split("\n")
    .filter((line) => !line.startsWith("#"))
    .flatMap((line) => line.split(/[\s,]+/))
    .filter((text) => text !== "");
  if (texts.length === 0) throw new PawlError("master-key-invalid", `${origin} holds no key`);
  if (texts.length > MOST_KEYS)
    throw new PawlError("master-key-invalid", `${origin} holds more than ${MOST_KEYS} keys`);
  return texts.map((text, at) => ({
    text,
    key: new MasterKey(bytesOf(text, `${origin}, key ${at + 1}`)),
  }));
}

function bytesOf(text: string, origin: string): Buffer {
  const isHex = /^[0-9a-f]{64}$/i.test(text);
  const isBase64 = /^[A-Za-z0-9+/_-]{43}=?$/.test(text);
  if (isHex || isBase64) return Buffer.from(text, isHex ? "hex" : "base64");
  throw new PawlError("master-key-invalid", `${origin}: not 32 bytes in base64 or hex`); // (K3)
}

export function newKey(): KeyText {
  const bytes = randomBytes(32);
  return { text: bytes.toString("base64"), key: new MasterKey(bytes) };
}

/** Nothing when there is no such file. */
export function readKeyFile(file: string): KeyText[] | undefined {
  if (!existsSync(file)) return undefined;
  const fd = openSync(file, "r");
  try {
    const { mode, uid } = fstatSync(fd);
    const mine = process.getuid?.();
    if (mine !== undefined && ((mode & 0o077) !== 0 || (uid !== mine && uid !== 0)))
      throw new PawlError("master-key-exposed", `${file} may be read by others than its owner`); // (K1)
    return parseKeys(readFileSync(fd, "utf8"), file);
  } finally {
    closeSync(fd);
  }
}

/** (K2) */
export function writeKeyFile(file: string, keys: readonly KeyText[]): void {
  const partial = `${file}.partial`;
  rmSync(partial, { force: true });
  const fd = openSync(partial, "wx", 0o600);
  try {
    fchmodSync(fd, 0o600);
    writeSync(fd, NOTE + keys.map(({ text }) => `${text}\n`).join(""));
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
  renameSync(partial, file);
  syncFolder(dirname(file));
}

function syncFolder(folder: string): void {
  const fd = openSync(folder, "r");
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}
