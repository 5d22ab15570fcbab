/** The calls about what surrounds workflows: connections, policies, tokens, namespaces, the host itself. */
import { z } from "zod";
import { name, note, ok, page, paging, ROLES, route } from "./contract-route.ts";
import * as shapes from "./contract-shapes.ts";

const MOST_RULES = 500;

const given = z.strictObject({ alias: name, tool: name.default("*"), mode: z.enum(shapes.GRANT_MODES) });
const bindingList = z.object({ bindings: z.array(shapes.binding) });
const grantList = z.object({ grants: z.array(shapes.grant) });

const scope = z.strictObject({ scope: z.string().max(300).default("namespace") });
const policySet = z
  .object({ scope: z.string(), rules: z.array(shapes.json), updatedAt: shapes.time.nullable() })
  .meta({ id: "PolicySet" });

const token = z
  .object({
    id: z.string(),
    name: z.string(),
    role: z.enum(ROLES),
    namespace: z.string().nullable(),
    createdAt: shapes.time,
    expiresAt: shapes.time.nullable(),
    revokedAt: shapes.time.nullable(),
  })
  .meta({ id: "Token" });

const me = z
  .object({
    name: z.string(),
    role: z.enum(ROLES),
    /** Of the token; null for one that may ask for any. */
    ownNamespace: z.string().nullable(),
    namespace: z.string(),
    expiresAt: shapes.time.nullable(),
  })
  .meta({ id: "Me" });

const settings = {
  defaultGrant: z.enum(shapes.GRANT_MODES).nullable(),
  quotas: z.strictObject({ workflows: z.int().min(0).max(1_000_000).nullable() }),
};

const target = z.strictObject({
  name,
  connection: name,
  path: z.string().max(1_000).optional(),
  signedWith: name.optional(),
  to: z.array(z.string().max(320)).max(50).optional(),
  kinds: z.array(z.enum(shapes.INBOX_KINDS)).optional(),
});

const finding = z.object({ invariant: z.int(), message: z.string() });

export const adminCalls = {
  listConnections: route({
    role: "viewer",
    summary: "Connections, without their secrets",
    answer: z.object({ items: z.array(shapes.connection) }),
  }),
  getConnection: route({
    role: "viewer",
    summary: "One connection, without its secrets",
    answer: shapes.connection,
  }),
  putConnection: route({
    role: "admin",
    summary: "Create or change a connection; every run that waits for it goes on. Secrets are write-only",
    body: z.strictObject({
      connector: name,
      config: shapes.json.default({}),
      secrets: shapes.json.nullable().optional(),
      note,
    }),
    answer: z.object({ connection: shapes.connection, freed: z.int() }),
    refusals: ["connection-invalid", "unknown-connector"],
  }),
  deleteConnection: route({
    role: "admin",
    summary: "Remove a connection that no workflow uses",
    answer: ok,
    refusals: ["connection-in-use"],
  }),
  checkConnection: route({
    role: "operator",
    summary: "Ask the service itself; when all is well, every run that waits for it goes on",
    answer: z.object({ health: shapes.health, freed: z.int() }),
  }),
  getBindings: route({ role: "viewer", summary: "What a workflow's aliases stand for", answer: bindingList }),
  putBindings: route({
    role: "deployer",
    summary: "Bind aliases to connections",
    body: z.strictObject({ bindings: z.record(name, name), note }),
    answer: bindingList,
    refusals: ["binding-invalid"],
  }),
  getGrants: route({ role: "viewer", summary: "What a workflow may use", answer: grantList }),
  putGrants: route({
    role: "admin",
    summary: "Allow, allow with approval, or deny tools",
    body: z.strictObject({ grants: z.array(given).max(1_000), note }),
    answer: grantList,
    refusals: ["grant-invalid"],
  }),

  getPolicies: route({
    role: "viewer",
    summary: "The rules of a scope: `host`, `namespace` or `workflow:{name}`",
    query: scope,
    answer: policySet,
  }),
  putPolicies: route({
    role: "admin",
    summary: "Replace the rules of a scope; they hold from the next unit on",
    query: scope,
    body: z.strictObject({ rules: z.array(shapes.json).max(MOST_RULES), note }),
    answer: policySet,
    refusals: ["policy-invalid", "not-yet-enforced"],
  }),
  prependPolicy: route({
    role: "admin",
    summary: "Put a rule before the others of a scope",
    query: scope,
    body: z.strictObject({ rule: shapes.json, note }),
    answer: policySet,
    refusals: ["policy-invalid", "not-yet-enforced"],
  }),
  appendPolicy: route({
    role: "admin",
    summary: "Put a rule behind the others of a scope",
    query: scope,
    body: z.strictObject({ rule: shapes.json, note }),
    answer: policySet,
    refusals: ["policy-invalid", "not-yet-enforced"],
  }),
  explainPolicy: route({
    role: "viewer",
    summary: "The policy that holds for a unit, and where each field of it comes from",
    body: z.strictObject({
      workflow: name,
      handler: name,
      unit: z.enum(["producer", "prepare", "mutate", "next", "read", "mutation", "check"]),
      tool: name.optional(),
    }),
    answer: z.object({
      fields: z.array(
        z.object({ field: z.string(), value: shapes.json, source: shapes.json, because: z.string() }),
      ),
    }),
  }),

  listTokens: route({
    role: "admin",
    summary: "Tokens, without themselves",
    query: page,
    answer: shapes.pageOf(token),
  }),
  createToken: route({
    role: "admin",
    summary: "Make a token; it is shown this once",
    body: z.strictObject({
      name,
      role: z.enum(ROLES),
      namespace: name.nullable().optional(),
      expiresInS: z
        .int()
        .min(1)
        .max(10 * 366 * 86_400)
        .optional(),
    }),
    answer: z.object({ ...token.shape, token: z.string() }),
    statuses: [201],
    secret: true,
  }),
  revokeToken: route({ role: "admin", summary: "Revoke a token, at once", answer: ok }),
  login: route({
    role: "nobody",
    summary:
      "Open a session with a token or a one-time link; answers a cookie, and the secret for `Pawl-Csrf`",
    body: z.strictObject({ token: z.string().max(200).optional(), link: z.string().max(200).optional() }),
    answer: z.object({ csrf: z.string(), me, expiresAt: shapes.time }),
    secret: true,
  }),
  createLoginLink: route({
    role: "anybody",
    summary: "A link that opens one session as whoever asked, within five minutes",
    answer: z.object({ link: z.string(), expiresAt: shapes.time }),
    statuses: [201],
    secret: true,
  }),
  logout: route({ role: "anybody", summary: "End the session", answer: ok }),
  getMe: route({ role: "anybody", summary: "Who asks, and what they may", answer: me }),
  listAudit: route({
    role: "viewer",
    summary: "Who decided what, newest first; each row's hash covers the one before it",
    query: z.strictObject(paging),
    answer: shapes.pageOf(
      z.object({
        seq: z.int(),
        at: shapes.time,
        actor: z.string(),
        action: z.string(),
        run: z.string().nullable(),
        detail: shapes.json,
        note: z.string().nullable(),
        hash: z.string(),
      }),
    ),
  }),
  getNamespace: route({
    role: "viewer",
    summary: "A namespace's settings",
    answer: z.object({ name: z.string(), ...settings }),
  }),
  putNamespace: route({
    role: "admin",
    scope: "host",
    summary: "Make a namespace, or change its settings",
    body: z.strictObject({
      defaultGrant: settings.defaultGrant.optional(),
      quotas: settings.quotas.optional(),
      note,
    }),
    answer: z.object({ name: z.string(), ...settings }),
  }),
  getNotifications: route({
    role: "viewer",
    summary: "Who is told when something waits for a person",
    answer: z.object({ targets: z.array(target) }),
  }),
  putNotifications: route({
    role: "admin",
    summary: "Set who is told, all of them",
    body: z.strictObject({ targets: z.array(target).max(50), note }),
    answer: z.object({ targets: z.array(target) }),
    refusals: ["target-invalid"],
  }),
  listHosts: route({
    role: "viewer",
    scope: "host",
    summary: "Starts of the host, newest first",
    answer: z.object({
      items: z.array(
        z.object({
          id: z.string(),
          name: z.string(),
          current: z.boolean(),
          startedAt: shapes.time,
          seenAt: shapes.time,
          endedAt: shapes.time.nullable(),
        }),
      ),
    }),
  }),
  createBackup: route({
    role: "admin",
    scope: "host",
    summary: "Write a backup into the host's folder for backups",
    answer: z.object({ file: z.string(), bytes: z.int(), tookMs: z.number() }),
    statuses: [201],
    refusals: ["no-data-folder", "backup-failed"],
  }),
  verifyStore: route({
    role: "admin",
    scope: "host",
    summary: "Prove that the journal tells the same story as the tables, and that the audit is whole",
    answer: z.object({ ok: z.boolean(), findings: z.array(finding) }),
  }),
  openStream: route({
    role: "viewer",
    summary: "Server-sent events: what changes, as it does; resumed by `Last-Event-ID`",
    query: z.strictObject({ topics: z.string().max(2_000).optional() }),
    answer: z.string(),
    media: "text/event-stream",
  }),

  getHealth: route({
    role: "nobody",
    summary: "The process is there",
    answer: z.object({ status: z.literal("ok") }),
  }),
  getReadiness: route({
    role: "nobody",
    summary: "Requests are taken in",
    answer: z.object({ status: z.enum(["ready", "stopping"]) }),
    statuses: [200, 503],
  }),
  getMetrics: route({
    role: "viewer",
    scope: "host",
    summary: "Counters for Prometheus",
    answer: z.string(),
    media: "text/plain; version=0.0.4; charset=utf-8",
  }),
  getOpenApi: route({ role: "nobody", summary: "This contract as OpenAPI 3.1", answer: shapes.json }),
  getDocs: route({
    role: "nobody",
    summary: "This contract as a page to read",
    answer: z.string(),
    media: "text/html; charset=utf-8",
  }),
};
