/** The routes of what surrounds workflows: connections, access, rules, tokens, settings, the host itself. */
import { formatId, parseId } from "../core/ids.ts";
import type { PolicyProblem } from "../core/policy-shape.ts";
import { NAME_PATTERN, type Json } from "../core/workflow.ts";
import type { ConnectionRefused, ConnectionView } from "../engine/connecting.ts";
import type { NotificationTarget } from "../ports/notices.ts";
import type { Token } from "../ports/principals.ts";
import { acting, type Call, found, given, OK, onWorkflow, type Routes } from "./call.ts";
import type { AnswerOf } from "./contract.ts";
import type { CallName } from "./contract-paths.ts";
import { person } from "./open.ts";
import { COOKIE, hashOf, namespaceOf, newSecret, type Principal } from "./principal.ts";
import { codeOf, notFound, Refusal, settled } from "./problems.ts";
import type { RuleSet, RulesPut } from "./rules-desk.ts";
import { iso, isoOr, parsed } from "./run-view.ts";

type Names =
  | "listConnections"
  | "getConnection"
  | "putConnection"
  | "deleteConnection"
  | "checkConnection"
  | "getBindings"
  | "putBindings"
  | "getGrants"
  | "putGrants"
  | "getPolicies"
  | "putPolicies"
  | "prependPolicy"
  | "appendPolicy"
  | "explainPolicy"
  | "listTokens"
  | "createToken"
  | "revokeToken"
  | "login"
  | "createLoginLink"
  | "logout"
  | "getMe"
  | "listAudit"
  | "getNamespace"
  | "putNamespace"
  | "getNotifications"
  | "putNotifications"
  | "listHosts"
  | "createBackup"
  | "verifyStore";

export const adminRoutes: Routes<Names> = {
  async listConnections({ desk }) {
    if (!desk.place.open.parts.outside) return { body: { items: [] } };
    return { body: { items: (await desk.connections.list()).map(connectionView) } };
  },

  async getConnection({ desk, params }) {
    const connection = found(
      await desk.connections.get(params.name),
      `there is no connection ${params.name}`,
    );
    return { body: connectionView(connection) };
  },

  async putConnection(call) {
    const { connector, config, secrets } = call.body;
    const put = { name: call.params.name, connector, config, ...given({ secrets }) };
    const made = connected(await call.desk.connections.put(put, acting(call, call.body)));
    return { body: { connection: connectionView(made.connection), freed: made.freed } };
  },

  async deleteConnection(call) {
    connected(await call.desk.connections.remove(call.params.name, acting(call)));
    return OK;
  },

  async checkConnection(call) {
    const { health, freed } = connected(await call.desk.connections.check(call.params.name, acting(call)));
    return { body: { health: healthView(health), freed } };
  },

  async getBindings(call) {
    return { body: await bindingsOf(call) };
  },

  async putBindings(call) {
    const name = await onWorkflow(call);
    settled(await call.desk.bind(name, call.body.bindings, acting(call, call.body)));
    return { body: await bindingsOf(call) };
  },

  async getGrants(call) {
    return { body: await grantsOf(call) };
  },

  async putGrants(call) {
    const name = await onWorkflow(call);
    settled(await call.desk.grant(name, call.body.grants, acting(call, call.body)));
    return { body: await grantsOf(call) };
  },

  async getPolicies({ desk, query }) {
    const { scope } = query;
    return { body: rulesView(scope, found(await desk.rules.get(scope), `there is no scope ${scope}`)) };
  },

  async putPolicies(call) {
    const { scope } = call.query;
    assertScope(call, scope);
    return {
      body: rulesView(
        scope,
        stored(await call.desk.rules.put(scope, call.body.rules, acting(call, call.body)), scope),
      ),
    };
  },

  async prependPolicy(call) {
    return addRule(call, "first");
  },

  async appendPolicy(call) {
    return addRule(call, "last");
  },

  async explainPolicy({ desk, body }) {
    const { workflow, handler, unit, tool } = body;
    const fields = await desk.rules.explain({ workflow, handler, unit, ...given({ tool }) });
    return {
      body: {
        fields: found(fields, `there is no handler ${handler} of ${workflow}`).map((one) => ({
          ...one,
          source: one.source as unknown as Json,
        })),
      },
    };
  },

  async listTokens({ serving, principal, query }) {
    const page = await serving.open().kept.tokens.list(principal?.namespace, given(query));
    return { body: { items: page.items.map(tokenView), nextCursor: page.nextCursor ?? null } };
  },

  async createToken(call) {
    const { serving, principal, body, nowMs } = call;
    const { name, role, namespace = principal?.namespace ?? null, expiresInS } = body;
    if (principal?.namespace !== undefined && namespace !== principal.namespace)
      throw new Refusal("forbidden", "a token of a namespace makes tokens of that namespace alone");
    if (namespace !== null && !NAME_PATTERN.test(namespace))
      throw new Refusal("request-invalid", "the namespace is no name", { path: "/namespace" });
    const secret = newSecret("pawl");
    serving.hide(secret);
    const made = await serving.open().kept.tokens.create(
      {
        hash: hashOf(secret),
        name,
        role,
        ...(namespace === null ? {} : { namespace }),
        ...(expiresInS === undefined ? {} : { expiresAtMs: nowMs + expiresInS * 1_000 }),
      },
      actedBy(call, undefined),
    );
    return { status: 201, body: { ...tokenView(made), token: secret } };
  },

  async revokeToken(call) {
    const { serving, principal, params } = call;
    const { tokens } = serving.open().kept;
    const id = parseId("token", params.id);
    const token = id === undefined ? undefined : await tokens.one(id);
    const isOwn = principal?.namespace === undefined || token?.namespace === principal.namespace;
    if (!token || !isOwn) throw notFound(`there is no token ${params.id}`);
    await tokens.revoke(token.id, actedBy(call, undefined));
    return OK;
  },

  async login({ serving, body }) {
    const { id, csrf, untilMs, principal } = await serving.principals.login(body);
    const seconds = Math.max(1, Math.floor((untilMs - serving.open().parts.clock.nowMs()) / 1_000));
    const secure = serving.isSecure ? "; Secure" : "";
    return {
      body: { csrf, me: meOf(principal, undefined), expiresAt: iso(untilMs) },
      headers: {
        "set-cookie": `${COOKIE}=${id}; HttpOnly; SameSite=Strict; Path=/; Max-Age=${seconds}${secure}`,
      },
    };
  },

  async createLoginLink(call) {
    const { link, untilMs } = call.serving.principals.link(asked(call));
    call.serving.hide(link);
    return { status: 201, body: { link, expiresAt: iso(untilMs) } };
  },

  async logout(call) {
    call.serving.principals.logout(asked(call));
    const headers = { "set-cookie": `${COOKIE}=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0` };
    return { ...OK, headers };
  },

  async getMe(call) {
    return { body: meOf(asked(call), call.desk.name) };
  },

  async listAudit({ desk, query }) {
    const page = await desk.history.audit(given(query));
    const items = page.items.map(({ seq, atMs, actor, action, run, detail, note, hash }) => ({
      seq,
      at: iso(atMs),
      actor,
      action,
      run: run === undefined ? null : formatId("run", run),
      detail: parsed(detail),
      note: note ?? null,
      hash,
    }));
    return { body: { items, nextCursor: page.nextCursor ?? null } };
  },

  async getNamespace(call) {
    const name = ownNamespace(call);
    const id = await call.serving.open().records.namespace(name);
    found(id, `there is no namespace ${name}`);
    return { body: await settingsOf(call, name) };
  },

  async putNamespace(call) {
    const { serving, body, nowMs } = call;
    const name = ownNamespace(call);
    if (!NAME_PATTERN.test(name))
      throw new Refusal("request-invalid", "the namespace is no name", { path: "/ns" });
    const { settings } = serving.open().kept;
    const id = await settings.namespace(name, nowMs);
    const { defaultGrant, quotas } = body;
    const set = given({ defaultGrant, mostWorkflows: quotas?.workflows });
    if (Object.keys(set).length > 0) await settings.set(id, set, actedBy(call, body));
    return { body: await settingsOf(call, name) };
  },

  async getNotifications({ desk }) {
    return { body: { targets: await desk.inbox.targets() } };
  },

  async putNotifications(call) {
    const targets = call.body.targets.map((one) => given(one) as NotificationTarget);
    settled(await call.desk.inbox.setTargets(targets, acting(call, call.body)));
    return { body: { targets: await call.desk.inbox.targets() } };
  },

  async listHosts({ serving }) {
    const { kept, parts } = serving.open();
    const items = (await kept.hosts()).map(({ id, name, startedAtMs, seenAtMs, endedAtMs }) => ({
      id: formatId("host", id),
      name,
      current: id === parts.store.fence.incarnation,
      startedAt: iso(startedAtMs),
      seenAt: iso(seenAtMs),
      endedAt: isoOr(endedAtMs),
    }));
    return { body: { items } };
  },

  async createBackup({ serving, nowMs }) {
    const { upkeep, parts } = serving.open();
    const made = await upkeep.backup();
    if (!made)
      throw new Refusal("no-data-folder", "the host keeps everything in memory: there is nothing to copy");
    return { status: 201, body: { ...made, tookMs: parts.clock.nowMs() - nowMs } };
  },

  async verifyStore({ serving }) {
    const findings = await serving.open().upkeep.verify();
    return {
      body: {
        ok: findings.length === 0,
        findings: findings.map(({ invariant, message }) => ({ invariant, message })),
      },
    };
  },
};

function asked({ principal }: Pick<Call<CallName>, "principal">): Principal {
  if (!principal) throw new Refusal("unauthenticated", "the request says nobody's name");
  return principal;
}

function actedBy(
  call: Pick<Call<CallName>, "principal" | "nowMs">,
  body: { note?: string | undefined } | undefined,
) {
  const { by: actor, note } = person(acting(call, body));
  return { actor, atMs: call.nowMs, ...(note === undefined ? {} : { note }) };
}

/** Rules of the host are about all namespaces. */
function assertScope({ principal }: Pick<Call<CallName>, "principal">, scope: string): void {
  if (scope === "host" && principal?.namespace !== undefined)
    throw new Refusal("forbidden", "rules of the host are set by a token of the host");
}

async function addRule(
  call: Call<"prependPolicy" | "appendPolicy">,
  where: "first" | "last",
): Promise<{ body: AnswerOf<"putPolicies"> }> {
  const { scope } = call.query;
  assertScope(call, scope);
  const put = await call.desk.rules.add(scope, call.body.rule, where, acting(call, call.body));
  return { body: rulesView(scope, stored(put, scope)) };
}

function stored(put: RulesPut | undefined, scope: string): RuleSet {
  const known = found(put, `there is no scope ${scope}`);
  if (known.ok) return known;
  const [problem] = known.problems as [PolicyProblem];
  const near = problem.nearest === undefined ? {} : { hint: `Did you mean ${problem.nearest}?` };
  throw new Refusal(problem.code, problem.message, { path: problem.path, ...near });
}

const rulesView = (scope: string, { rules, updatedAtMs }: RuleSet) => ({
  scope,
  rules: rules as unknown as Json[],
  updatedAt: isoOr(updatedAtMs),
});

function connected<Made extends { ok: true }>(made: Made | ConnectionRefused): Made {
  if (made.ok) return made;
  const [misfit] = made.misfits ?? [];
  throw new Refusal(
    codeOf(made.code),
    made.message,
    misfit ? { path: `/${misfit.path.replaceAll(".", "/")}` } : {},
  );
}

const healthView = ({ atMs, ...health }: NonNullable<ConnectionView["lastCheck"]>) => ({
  ...health,
  at: iso(atMs),
});

const connectionView = (view: ConnectionView): AnswerOf<"getConnection"> => ({
  name: view.name,
  connector: view.connector,
  config: view.config,
  configVersion: view.configVersion,
  hasSecrets: view.hasSecrets,
  lastCheck: view.lastCheck ? healthView(view.lastCheck) : null,
  createdAt: iso(view.createdAtMs),
  updatedAt: iso(view.updatedAtMs),
});

type OfWorkflow = Pick<Call<"getBindings">, "desk" | "params">;

async function bindingsOf(call: OfWorkflow): Promise<AnswerOf<"getBindings">> {
  const bindings = await call.desk.bindings(await onWorkflow(call));
  return { bindings: bindings.map((one) => ({ ...one, connection: one.connection ?? null })) };
}

async function grantsOf(call: OfWorkflow): Promise<AnswerOf<"getGrants">> {
  const grants = await call.desk.history.grants(await onWorkflow(call));
  return { grants: grants.map(({ alias, tool, mode, name }) => ({ alias, tool, mode, connection: name })) };
}

const tokenView = ({ id, name, role, namespace, createdAtMs, expiresAtMs, revokedAtMs }: Token) => ({
  id: formatId("token", id),
  name,
  role,
  namespace: namespace ?? null,
  createdAt: iso(createdAtMs),
  expiresAt: isoOr(expiresAtMs),
  revokedAt: isoOr(revokedAtMs),
});

const meOf = (principal: Principal, asking: string | undefined): AnswerOf<"getMe"> => ({
  name: principal.name,
  role: principal.role,
  ownNamespace: principal.namespace ?? null,
  namespace: asking ?? namespaceOf(principal, undefined),
  expiresAt: isoOr(principal.expiresAtMs),
});

/** A token of one namespace knows of no other. */
function ownNamespace({ params, principal }: Pick<Call<"getNamespace">, "params" | "principal">): string {
  const own = principal?.namespace;
  if (own !== undefined && own !== params.ns)
    throw new Refusal("forbidden", "the token is one of another namespace");
  return params.ns;
}

async function settingsOf({ serving }: Pick<Call<CallName>, "serving">, name: string) {
  const { kept, records } = serving.open();
  const id = found(await records.namespace(name), `there is no namespace ${name}`);
  const { defaultGrant, mostWorkflows } = await kept.settings.get(id);
  return { name, defaultGrant: defaultGrant ?? null, quotas: { workflows: mostWorkflows ?? null } };
}
