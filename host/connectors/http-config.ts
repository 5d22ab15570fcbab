/**
 * What an operator fills in for an `http` connection: where it leads, how it authenticates, which limits hold, and what
 * the service promises about repeated calls. Secrets are apart; which of them a scheme needs is `http-auth.ts`'s.
 */
import { X509Certificate } from "node:crypto";
import { z } from "zod";
import type { EgressRule } from "./egress.ts";
import { DEFAULT_LIMITS, type RequestLimits } from "./egress-request.ts";
import { headerName, headerProblem, headerValue } from "./http-headers.ts";
import { recipeFields } from "./http-recipe.ts";

const MEBIBYTE = 1_048_576;

/** An address without anything that would be lost, or would be a secret in the wrong place. */
const address = z.string().superRefine((text, context) => {
  const say = (message: string) => context.addIssue({ code: "custom", message });
  if (!URL.canParse(text)) return say("is no URL, such as https://api.example.com/v1");
  const url = new URL(text);
  if (url.protocol !== "https:" && url.protocol !== "http:")
    return say("must begin with https:// or http://");
  if (url.username !== "" || url.password !== "")
    return say("holds a user or a password: those belong in the secrets");
  if (url.hash !== "") return say('has a "#", which is never sent');
  return undefined;
});
const baseUrl = address.refine((text) => !URL.canParse(text) || new URL(text).search === "", {
  message: 'has a "?": give what every call needs as `headers`, or with each call',
});

const host = z
  .string()
  .toLowerCase()
  .regex(
    /^(\*\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:\d{1,5})?$|^\[[0-9a-f:.]+\](:\d{1,5})?$/,
    "is no host: write example.com, example.com:8443 or *.example.com",
  );

const ca = z.string().refine(isCertificate, { message: "is no certificate in PEM form" });

function isCertificate(text: string): boolean {
  try {
    return new X509Certificate(text).subject !== "";
  } catch {
    return false;
  }
}

/** Whatever is a credential, or belongs to the wire, is not set here. */
const headers = z.record(headerName, headerValue).superRefine((given, context) => {
  for (const name of Object.keys(given)) {
    const problem = headerProblem(name, { operator: true });
    if (problem !== undefined) context.addIssue({ code: "custom", path: [name], message: problem });
  }
});

const pattern = z
  .string()
  .regex(/^\/[^?#\\\s]*$/, 'starts with "/"; `*` stands for one segment, a last `**` for any rest');

const readOnlyPath = z.strictObject({
  path: pattern,
  /** Only bodies that are GraphQL queries. */
  graphql: z.literal(true).optional(),
  /** Only JSON-RPC calls of these methods. */
  methods: z.array(z.string().min(1)).min(1).optional(),
});
export type ReadOnlyPath = z.infer<typeof readOnlyPath>;
const readOnly = z.union([pattern.transform((path): ReadOnlyPath => ({ path })), readOnlyPath]);

const clientFields = {
  tokenUrl: address,
  clientId: z.string().min(1),
  scope: z.string().min(1).optional(),
  /** Whatever else the token endpoint wants, such as `audience`. */
  params: z.record(z.string(), z.string()).default({}),
  /** How the client names itself there: HTTP basic, or in the body. */
  clientAuth: z.enum(["basic", "body"]).default("basic"),
};

const auth = z.discriminatedUnion("scheme", [
  z.strictObject({ scheme: z.literal("none") }),
  z.strictObject({
    scheme: z.literal("basic"),
    username: z.string().regex(/^[^:\p{Cc}]*$/u, "a user name without a colon"),
  }),
  z.strictObject({ scheme: z.literal("bearer") }),
  z.strictObject({ scheme: z.literal("api-key-header"), name: headerName }),
  z.strictObject({ scheme: z.literal("api-key-query"), name: z.string().regex(/^[\w.[\]-]{1,64}$/) }),
  z.strictObject({ scheme: z.literal("oauth2-client-credentials"), ...clientFields }),
  z.strictObject({ scheme: z.literal("oauth2-refresh-token"), ...clientFields }),
]);

const limits = z.strictObject({
  totalMs: z.int().min(100).max(600_000).default(DEFAULT_LIMITS.totalMs),
  connectMs: z.int().min(100).max(60_000).default(DEFAULT_LIMITS.connectMs),
  headerBytes: z
    .int()
    .min(1_024)
    .max(MEBIBYTE / 4)
    .default(DEFAULT_LIMITS.headerBytes),
  bodyBytes: z
    .int()
    .min(1_024)
    .max(16 * MEBIBYTE)
    .default(DEFAULT_LIMITS.bodyBytes),
});

const verify = z.strictObject({
  /** `POST /entries`, `/entries/*`; without it every mutation of the connection. */
  on: z
    .string()
    .regex(/^((POST|PUT|PATCH|DELETE) )?\/[^?#\\\s]*$/, 'is like "POST /entries" or "/entries/*"')
    .optional(),
  ...recipeFields,
});

export const httpConfig = z.strictObject({
  baseUrl,
  /** Further hosts for reads that are redirected and for whole URLs; they never get the credentials. */
  hosts: z.array(host).max(100).default([]),
  allowPrivateNetwork: z.boolean().default(false),
  ca: ca.optional(),
  /** Of every request, not secret; a script cannot change them. */
  headers: headers.default({}),
  auth: auth.default({ scheme: "none" }),
  /** What `query` may be sent to. */
  readOnly: z.array(readOnly).max(200).default([]),
  /** `key`: the service makes a change once per key, for at least a day. */
  idempotency: z.enum(["key", "none"]).default("none"),
  idempotencyHeader: headerName.default("idempotency-key"),
  /** The first one that fits is used for a call without a recipe of its own. */
  verify: z.array(verify).max(200).default([]),
  /** A 503 with Retry-After was answered before anything was done. */
  retryAfterIsProof: z.boolean().default(false),
  /** How long "not there" may be wrong after a call. */
  settleMs: z.int().min(0).max(86_400_000).default(30_000),
  limits: limits.default(DEFAULT_LIMITS),
  /** What `check` reads; the base URL unless told. */
  checkPath: pattern.optional(),
});

/** A secret that goes into a header as it is; a line break at its end is the usual mistake. */
const token = z
  .string()
  .regex(/^[\x21-\x7e]+$/, "is empty, or has a space, a line break or a character outside of ASCII in it");
const text = z.string().min(1).max(8_192);

export const httpSecrets = z.strictObject({
  /** basic */
  password: z.string().max(8_192).optional(),
  /** bearer */
  token: token.optional(),
  /** api-key-header, api-key-query */
  apiKey: token.optional(),
  /** oauth2-client-credentials; oauth2-refresh-token of a confidential client */
  clientSecret: text.optional(),
  /** oauth2-refresh-token; a service that changes it has the new one stored. */
  refreshToken: text.optional(),
});

export type HttpConfig = z.infer<typeof httpConfig>;
export type HttpSecrets = z.infer<typeof httpSecrets>;
export type HttpAuth = HttpConfig["auth"];

type Guarded = Pick<HttpConfig, "allowPrivateNetwork" | "ca">;

/** Exact to the port, so that `http` is no other way to a host that is given as `https`. */
export const ruleOf = (config: HttpConfig): EgressRule => ({
  ...ruleFor(config, config.baseUrl),
  hosts: [...hostsOf(config.baseUrl), ...config.hosts],
});

/** For one place alone, such as where tokens are given out. */
export const ruleFor = ({ allowPrivateNetwork, ca: given }: Guarded, place: string): EgressRule => ({
  hosts: hostsOf(place),
  allowPrivateNetwork,
  ca: given,
});

function hostsOf(place: string): string[] {
  const { hostname, port, protocol } = new URL(place);
  return [`${hostname}:${port || (protocol === "https:" ? "443" : "80")}`];
}

/** A call may be shorter than the connection allows, never longer. */
export const limitsOf = ({ limits: given }: HttpConfig, timeoutMs?: number): RequestLimits => ({
  ...given,
  totalMs: Math.min(given.totalMs, timeoutMs ?? given.totalMs),
});
