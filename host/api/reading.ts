/**
 * A request's body and query, read before anything is believed of them.
 *
 * B1. What is too large is not read to its end, what nests too deeply is not parsed, what is not declared as JSON is not
 *     looked at.
 * B2. A query names each field once; a field that means nothing is refused, for a filter that is misspelt would find all.
 */
import type { IncomingMessage } from "node:http";
import type { z } from "zod";
import { depthOf } from "../core/hook.ts";
import type { Route } from "./contract-route.ts";
import { misfit, Refusal } from "./problems.ts";

const MOST_BYTES = 1_114_112;
const MOST_DEPTH = 100;
const NOTHING = new Uint8Array();

/** (B1) */
export async function readBytes(
  incoming: IncomingMessage,
  { maxBytes = MOST_BYTES }: Route,
): Promise<Uint8Array> {
  const declared = Number(incoming.headers["content-length"] ?? 0);
  const tooLarge = () =>
    new Refusal("body-too-large", `the body is larger than ${maxBytes} bytes`, {}, { connection: "close" });
  if (declared > maxBytes) throw tooLarge();
  if (incoming.headers["content-length"] === undefined && incoming.headers["transfer-encoding"] === undefined)
    return NOTHING;
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const piece of incoming as AsyncIterable<Uint8Array>) {
    size += piece.byteLength;
    if (size > maxBytes) throw tooLarge();
    pieces.push(piece);
  }
  return Buffer.concat(pieces, size);
}

export function readBody(
  bytes: Uint8Array,
  incoming: IncomingMessage,
  shape: z.ZodType | undefined,
): unknown {
  if (bytes.byteLength === 0) return shape === undefined ? undefined : read(shape, undefined);
  assertJson(incoming);
  const text = textOf(bytes);
  if (depthOf(text) > MOST_DEPTH)
    throw new Refusal("body-too-deep", `the body nests deeper than ${MOST_DEPTH}`);
  const body = jsonOf(text);
  if (shape !== undefined) return read(shape, body);
  const isEmpty = typeof body === "object" && body !== null && Object.keys(body).length === 0;
  if (!isEmpty) throw new Refusal("request-invalid", "this call takes no body", { path: "" });
  return undefined;
}

export function readQuery(search: URLSearchParams, shape: z.ZodObject | undefined): unknown {
  const given: Record<string, string> = {};
  for (const [name, value] of search) {
    const path = `?${name.slice(0, 100)}`;
    if (!shape || !Object.hasOwn(shape.shape, name))
      throw new Refusal("request-invalid", "the query has a field that means nothing here", { path }); // (B2)
    if (Object.hasOwn(given, name))
      throw new Refusal("request-invalid", "the query names a field twice", { path });
    given[name] = value;
  }
  return shape === undefined ? undefined : read(shape, given, "?");
}

function read(shape: z.ZodType, value: unknown, at = ""): unknown {
  const result = shape.safeParse(value);
  if (result.success) return result.data;
  throw misfit(result.error, at);
}

function assertJson({ headers }: IncomingMessage): void {
  const type = headers["content-type"] ?? "";
  const encoding = headers["content-encoding"] ?? "identity";
  if (!/^application\/json(\s*;\s*charset="?utf-8"?)?\s*$/i.test(type) || encoding !== "identity")
    throw new Refusal("media-type", "a body is sent as application/json");
}

function textOf(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new Refusal("json-invalid", "the body is not UTF-8");
  }
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    throw new Refusal("json-invalid", "the body is not JSON");
  }
}
