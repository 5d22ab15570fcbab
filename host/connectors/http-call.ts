/**
 * A script's call, made into the request that will leave. Everything that can be refused is refused here, before anybody
 * is asked for approval and before a byte leaves; credentials are not yet part of it.
 *
 * N1. What a person reads, what is fingerprinted and what is sent come from one and the same request.
 * N2. A script sets no header that is the connection's, and no place of a credential.
 */
import { z } from "zod";
import type { Json } from "../core/workflow.ts";
import type { ProofClass } from "../core/mutation.ts";
import { invalid, type OpenConnection } from "./define.ts";
import type { HttpConfig } from "./http-config.ts";
import { type Headers, headerName, headerProblem, headerValue } from "./http-headers.ts";
import { isBaseOrigin, isPathLike, leadsTo, pathBelow, pathProblem } from "./http-path.ts";
import { readOnlyProblem } from "./http-read-only.ts";
import { filled, needsKey, type Recipe, recipe } from "./http-recipe.ts";

export type Method = "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE";

const MOST_HEADERS = 64;
const MOST_SHOWN = { url: 400, headers: 150, body: 350 };

const path = z.string().superRefine((given, context) => {
  const problem = pathProblem(given);
  if (problem !== undefined) context.addIssue({ code: "custom", message: problem });
});
const word = z.string().refine((text) => text.isWellFormed(), "contains half of a character");
const query = z.record(word, z.union([word, z.number(), z.boolean(), z.null()]));
const headers = z
  .record(headerName, headerValue)
  .superRefine((given, context) => {
    for (const name of Object.keys(given)) {
      const message = headerProblem(name);
      if (message !== undefined) context.addIssue({ code: "custom", path: [name], message });
    }
  })
  .refine((given) => Object.keys(given).length <= MOST_HEADERS, `more than ${MOST_HEADERS} headers`);

export const readInput = z.strictObject({
  path,
  query: query.optional(),
  headers: headers.optional(),
  accept: z.array(z.int().min(200).max(599)).max(50).optional(),
  timeoutMs: z.int().min(1).max(600_000).optional(),
});
export const queryInput = readInput.extend({ body: z.unknown().optional() });
export const mutationInput = queryInput.extend({
  verify: recipe.optional(),
  idempotency: z.literal("key").optional(),
});

export type ReadCall = z.infer<typeof readInput>;
export type MutationCall = z.infer<typeof mutationInput>;
type AnyCall = ReadCall & { body?: unknown; verify?: Recipe | undefined };

export interface Outgoing {
  method: Method;
  url: URL;
  /** Without credentials and without the key. */
  headers: Record<string, string>;
  body?: string | Uint8Array;
}

/** Throws `invalid`. */
export function outgoing(config: HttpConfig, method: Method, call: AnyCall): Outgoing {
  const url = leadsTo(config, call.path, call.query ?? {});
  const { auth } = config;
  if (auth.scheme === "api-key-query" && url.searchParams.has(auth.name))
    throw invalid(`the query parameter ${auth.name} carries the connection's credentials`); // (N2)
  const given: Headers = call.headers ?? {};
  checkHeaders(config, given);
  const made = call.body === undefined ? undefined : contentOf(call.body as Json, given["content-type"]);
  return {
    method,
    url,
    headers: {
      accept: "application/json, text/plain;q=0.9, */*;q=0.5",
      "user-agent": "pawl",
      ...(made ? { "content-type": made.type } : {}),
      ...given,
      ...config.headers,
    },
    ...(made ? { body: made.bytes } : {}),
  };
}

/** A POST that the connection lists as read-only. Throws `invalid`. */
export function outgoingQuery(config: HttpConfig, call: AnyCall): Outgoing {
  const request = outgoing(config, "POST", call);
  const problem = readOnlyProblem(config, request.url, call.body);
  if (problem !== undefined) throw invalid(problem);
  return request;
}

/** A change, with how its outcome can be proved (06). */
export interface Change extends Outgoing {
  proof: ProofClass;
  recipe?: Recipe;
  /** The one state that the change was made for. */
  ifMatch?: string;
  sendsKey: boolean;
}

/** Throws `invalid`. */
export function changing(config: HttpConfig, method: Method, call: MutationCall): Change {
  const request = outgoing(config, method, call);
  const found = call.verify ?? usualRecipe(config, request);
  if (found) {
    const path = filled(found, { key: "key", args: { ...call } });
    if (!path.ok)
      throw invalid(
        `the check of this call needs ${path.missing}, which the call does not have in a usable form`,
      );
    leadsTo(config, path.path);
  }
  const isKeyed = config.idempotency === "key" || call.idempotency === "key";
  const ifMatch = oneState(request.headers["if-match"]);
  const proof = found ? "lookup" : isKeyed ? "key" : ifMatch === undefined ? "none" : "conditional";
  return {
    ...request,
    proof,
    sendsKey: isKeyed || (found !== undefined && needsKey(found)),
    ...(found ? { recipe: found } : {}),
    ...(ifMatch === undefined ? {} : { ifMatch }),
  };
}

function usualRecipe(config: HttpConfig, { method, url }: Outgoing): Recipe | undefined {
  const below = isBaseOrigin(url, config) ? pathBelow(url, config) : undefined;
  return config.verify.find(({ on }) => {
    if (on === undefined) return true;
    const [wanted, pattern] = on.includes(" ") ? on.split(" ") : [method, on];
    return below !== undefined && wanted === method && isPathLike(below, pattern ?? "");
  });
}

/** A list, `*` and a weak tag do not name one state: that the outside still fits them proves nothing. */
function oneState(ifMatch: string | undefined): string | undefined {
  const tag = ifMatch?.trim();
  return tag !== undefined && /^("[^",]+"|[^",*\s/]+)$/.test(tag) ? tag : undefined;
}

/** (N2) */
function checkHeaders({ headers: fixed, auth, idempotencyHeader }: HttpConfig, given: Headers): void {
  for (const name of Object.keys(given)) {
    if (Object.hasOwn(fixed, name)) throw invalid(`the header ${name} is set by the connection`);
    if (auth.scheme === "api-key-header" && name === auth.name)
      throw invalid(`the header ${name} carries the connection's credentials`);
    if (name === idempotencyHeader)
      throw invalid(`the header ${name} is the host's: ask for it with \`idempotency: "key"\``);
  }
}

const typeOf = (header: string): string => header.split(";")[0]?.trim().toLowerCase() ?? "";
export const isJsonType = (header: string): boolean =>
  /^(application|text)\/([\w.+-]+\+)?json$/.test(typeOf(header));

/** JSON unless the call says otherwise; a text leaves as it is. */
function contentOf(body: Json, header: string | undefined): { type: string; bytes: string | Uint8Array } {
  if (typeof body === "string") {
    if (!body.isWellFormed()) throw invalid("the body contains half of a character");
    return { type: header ?? "text/plain; charset=utf-8", bytes: body };
  }
  if (header === undefined || isJsonType(header))
    return { type: header ?? "application/json", bytes: JSON.stringify(body) };
  if (typeOf(header) === "application/x-www-form-urlencoded") return { type: header, bytes: formOf(body) };
  const base64 = z.strictObject({ base64: z.base64() }).safeParse(body);
  if (base64.success) return { type: header, bytes: Buffer.from(base64.data.base64, "base64") };
  throw invalid(`a body of the type ${header} is a text, or bytes as { base64: "…" }`);
}

function formOf(body: Json): string {
  const scalar = z.union([word, z.number(), z.boolean()]);
  const fields = z.record(word, z.union([scalar, z.array(scalar), z.null()])).safeParse(body);
  if (!fields.success) throw invalid("a form has fields with texts, numbers and booleans, or lists of them");
  const form = new URLSearchParams();
  for (const [name, value] of Object.entries(fields.data))
    for (const one of [value ?? []].flat()) form.append(name, String(one));
  return form.toString();
}

/** One line for whoever approves; what could hide or move text stands there as its number. (N1) */
export function described({ method, url, headers: all, body }: Outgoing, call: AnyCall): string {
  const own = Object.keys(call.headers ?? {}).map((name) => `${name}: ${all[name]}`);
  const said = [`${method} ${cut(url.href, MOST_SHOWN.url)}`];
  if (body !== undefined && body.length > 0) {
    const size = Buffer.byteLength(body);
    const whole = typeof body === "string" ? cut(body, MOST_SHOWN.body) : "binary";
    said.push(`${whole} (${size} bytes)`);
  }
  if (own.length > 0) said.push(`[${cut(own.join("; "), MOST_SHOWN.headers)}]`);
  return inert(said.join(" "));
}

const cut = (text: string, most: number): string =>
  text.length > most ? `${text.slice(0, most)}…`.toWellFormed() : text;

export const inert = (text: string): string =>
  text.replace(
    /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu,
    (character) => `\\u{${character.codePointAt(0)?.toString(16) ?? ""}}`,
  );

/** Method, URL, headers and body exactly; nothing that is a credential. (N1) */
export function bytesOf({ method, url, headers: all, body }: Outgoing): Uint8Array {
  const lines = Object.keys(all)
    .sort()
    .map((name) => `${name}: ${all[name]}\n`);
  const head = `${method} ${url.href}\n${lines.join("")}\n`;
  return Buffer.concat([Buffer.from(head), Buffer.from(body ?? "")]);
}

/** As every tool sees it. */
export type HttpConnection<Secrets = unknown> = OpenConnection<HttpConfig, Secrets>;
