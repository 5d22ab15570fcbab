/**
 * Keyset pages: a cursor is the last key of a page, sealed against misreading, not against reading.
 *
 * K1. A page is found by index from its cursor: its cost does not grow with how far one has gone.
 * K2. With a filter, SCANNED rows at most are looked at; then the page ends where the looking ended.
 */
import { PawlError } from "../../core/errors.ts";
import { MAX_LIMIT, type Page, type PageRequest } from "../../ports/records.ts";
import type { Cell, Row } from "../rows.ts";

const DEFAULT_LIMIT = 50;

/** (K2) */
export const SCANNED = 2_000;

export function limitOf({ limit = DEFAULT_LIMIT }: PageRequest): number {
  return Math.min(Math.max(1, Math.trunc(limit)), MAX_LIMIT);
}

const encode = (kind: string, key: Cell): string =>
  Buffer.from(JSON.stringify([kind, key])).toString("base64url");

/** The key to go on after; `start` on the first page. */
export function keyOf<Key extends Cell>(kind: string, { cursor }: PageRequest, start: Key): Key {
  if (cursor === undefined) return start;
  const key = decode(cursor);
  if (key?.[0] !== kind || typeof key[1] !== typeof start)
    throw new PawlError("cursor-invalid", `the cursor is not one of ${kind}`);
  return key[1] as Key;
}

function decode(cursor: string): unknown[] | undefined {
  try {
    const key: unknown = JSON.parse(Buffer.from(cursor, "base64url").toString());
    return Array.isArray(key) && key.length === 2 ? key : undefined;
  } catch {
    return undefined;
  }
}

/** Rows fetched with one more than asked for → the page; `key` is the column they are ordered by. */
export function pageOf<Item>(
  kind: string,
  rows: readonly Row[],
  limit: number,
  key: string,
  itemOf: (row: Row) => Item,
): Page<Item> {
  const shown = rows.slice(0, limit);
  const last = shown.at(-1);
  const more = rows.length > limit && last ? { nextCursor: encode(kind, last[key] as Cell) } : {};
  return { items: shown.map(itemOf), ...more };
}

/** A filtered page that ended because enough was looked at goes on after where that was, if there is such a row. */
export function pageUpTo<Item>(
  kind: string,
  page: Page<Item>,
  stoppedAt: () => Cell | undefined,
): Page<Item> {
  if (page.nextCursor !== undefined) return page;
  const key = stoppedAt();
  return key === undefined ? page : { ...page, nextCursor: encode(kind, key) };
}

/** Absent when NULL. */
export const given = <Name extends string, Value>(
  name: Name,
  cell: Cell | undefined,
): { [Key in Name]?: Value } =>
  (cell === null || cell === undefined ? {} : { [name]: cell }) as { [Key in Name]?: Value };
