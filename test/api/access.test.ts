// Who may ask: tokens, roles, namespaces, sessions, and who may knock at all.
import { request } from "node:http";
import { afterEach, describe, expect, test } from "vitest";
import { CONTRACT, routeOf } from "../../host/api/contract.ts";
import { type CallName, placeOf } from "../../host/api/contract-paths.ts";
import { type Role, ROLES } from "../../host/api/contract-route.ts";
import { ADMIN, closeStands, orders, type Stand, stand, ticks } from "../support/api-stand.ts";

afterEach(closeStands);

async function tokenOf(api: Stand, role: Role, namespace: string | null, more: object = {}): Promise<string> {
  const made = await api.ask("POST /tokens", {
    body: { name: `${role} of ${namespace}`, role, namespace, ...more },
  });
  expect(made.status).toBe(201);
  return made.body.token as string;
}

/** By `http.request`, for headers that `fetch` keeps to itself. */
function knock(api: Stand, headers: Record<string, string>, path = "/api/v1/workflows"): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const { port } = api.listening;
  request(
    { host: "127.0.0.1", port, path, headers: { authorization: `Bearer ${ADMIN}`, ...headers } },
    (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    },
  )
    .on("error", reject)
    .end();
  return promise;
}

describe("tokens", () => {
  test("(T1) are shown once, known by their hash alone, and end when they are revoked or expire", async () => {
    const api = await stand();
    const made = await api.ask("POST /tokens", { body: { name: "ci", role: "deployer", namespace: "acme" } });
    expect(made.body.token).toMatch(/^pawl_[\w-]{43}$/);
    expect((await api.ask("GET /tokens")).text).not.toContain(made.body.token);
    const me = await api.ask("GET /me", { token: made.body.token });
    expect(me.body).toMatchObject({ role: "deployer", ownNamespace: "acme", namespace: "acme" });
    expect((await api.ask(`DELETE /tokens/${made.body.id}`)).status).toBe(200);
    const refused = await api.ask("GET /me", { token: made.body.token });
    expect([refused.status, refused.body.error.code]).toEqual([401, "unauthenticated"]);
    const audit = await api.ask("GET /audit", { namespace: "acme" });
    expect(audit.body.items.map((one: { action: string }) => one.action)).toEqual([
      "token.revoke",
      "token.create",
    ]);
    expect(audit.text).not.toContain(made.body.token);
  });

  test("of a namespace make tokens of that namespace alone, and list no others", async () => {
    const api = await stand();
    const token = await tokenOf(api, "admin", "acme");
    const other = { name: "x", role: "viewer", namespace: "globex" };
    expect((await api.ask("POST /tokens", { token, body: other })).status).toBe(403);
    const made = await api.ask("POST /tokens", { token, body: { name: "x", role: "viewer" } });
    expect(made.body.namespace).toBe("acme");
    expect((await api.ask("GET /tokens", { token })).body.items).toHaveLength(2);
    const first = (await api.ask("GET /tokens")).body.items.at(-1);
    expect((await api.ask(`DELETE /tokens/${first.id}`, { token })).status).toBe(404);
  });

  test("unknown, malformed or missing: 401, whatever is asked; too many strangers: 429", async () => {
    const api = await stand();
    for (const token of [null, "nobody", `${ADMIN}x`])
      expect((await api.ask("GET /workflows", { token })).status).toBe(401);
    expect(
      (await api.ask("GET /workflows", { token: null, headers: { authorization: "Basic eDp5" } })).status,
    ).toBe(401);
    let status = 401;
    for (let n = 0; n < 400 && status === 401; n++)
      ({ status } = await api.ask("GET /me", { token: "nobody" }));
    expect(status).toBe(429);
  });
});

describe("the matrix of routes, roles and namespaces, from the contract", () => {
  const names = Object.keys(CONTRACT) as CallName[];
  const isAllowed = (name: CallName, role: Role, scope: "own" | "other" | "all"): boolean => {
    const route = routeOf(name);
    if (scope === "other") return false;
    if (route.scope === "host" && scope === "own") return false;
    return route.role === "anybody" || ROLES.indexOf(role) >= ROLES.indexOf(route.role as Role);
  };

  test("(T2) each cell is as the contract says: 401 without a name, 403 without the right, else anything but these", async () => {
    const api = await stand();
    await api.ask("PUT /namespaces/acme", { body: {} });
    await api.ask("PUT /namespaces/globex", { body: {} });
    const tokens = new Map<string, string>();
    for (const role of ROLES)
      for (const namespace of ["acme", null])
        tokens.set(`${role}/${namespace}`, await tokenOf(api, role, namespace));
    const cells: [string, boolean, number][] = [];
    for (const name of names) {
      const { role } = routeOf(name);
      if (role === "nobody") continue;
      const { method, path } = placeOf(name);
      const target = path.replaceAll("{ns}", "acme").replaceAll(/\{\w+\}/g, "nothing");
      const ask = async (token: string | null, namespace?: string) => {
        const abort = new AbortController();
        const response = await fetch(`${api.listening.url}${target}`, {
          method,
          signal: abort.signal,
          headers: {
            ...(token === null ? {} : { authorization: `Bearer ${token}` }),
            ...(namespace === undefined ? {} : { "pawl-namespace": namespace }),
          },
        });
        const { status } = response;
        abort.abort();
        return status;
      };
      expect([name, await ask(null)]).toEqual([name, 401]);
      for (const one of ROLES) {
        const [own, all] = [tokens.get(`${one}/acme`), tokens.get(`${one}/null`)] as [string, string];
        cells.push([`${name} ${one} own`, isAllowed(name, one, "own"), await ask(own)]);
        cells.push([`${name} ${one} other`, isAllowed(name, one, "other"), await ask(own, "globex")]);
        cells.push([`${name} ${one} all`, isAllowed(name, one, "all"), await ask(all, "globex")]);
      }
    }
    expect(cells.length).toBe(
      names.filter((name) => routeOf(name).role !== "nobody").length * ROLES.length * 3,
    );
    const wrong = cells.filter(
      ([, allowed, status]) => allowed === (status === 403) || status === 401 || status >= 500,
    );
    expect(wrong).toEqual([]);
  });
});

describe("who may knock", () => {
  test("(G1) a name the host was not told is 421, also on loopback", async () => {
    const api = await stand({ listen: { allowedHosts: ["pawl.internal"] } });
    expect(await knock(api, { host: "evil.example" })).toBe(421);
    expect(await knock(api, { host: "pawl.internal:7420" })).toBe(200);
    expect(await knock(api, { host: "LOCALHOST:1" })).toBe(200);
    expect(await knock(api, { host: "127.0.0.1.evil.example" })).toBe(421);
  });

  test("(G2) a page of another site is 403, the host's own is let in", async () => {
    const api = await stand();
    const own = `127.0.0.1:${api.listening.port}`;
    expect(await knock(api, { origin: "https://evil.example" })).toBe(403);
    expect(await knock(api, { origin: "null" })).toBe(403);
    expect(await knock(api, { origin: "http://127.0.0.1:1" })).toBe(403);
    expect(await knock(api, { origin: `http://${own}`, host: own })).toBe(200);
    expect(await knock(api, { "sec-fetch-site": "cross-site" })).toBe(403);
    expect(await knock(api, { "sec-fetch-site": "same-site" })).toBe(403);
    expect(await knock(api, { "sec-fetch-site": "same-origin" })).toBe(200);
    expect(await knock(api, { "sec-fetch-site": "cross-site" }, "/docs")).toBe(200);
  });

  test("(G3) what a proxy says counts only where it is trusted", async () => {
    const api = await stand();
    expect(await knock(api, { "x-forwarded-host": "evil.example" })).toBe(200);
    const behind = await stand({ listen: { trustProxy: true, publicUrl: "https://pawl.example.org" } });
    expect(await knock(behind, { "x-forwarded-host": "evil.example" })).toBe(421);
    expect(
      await knock(behind, { "x-forwarded-host": "pawl.example.org", origin: "https://pawl.example.org" }),
    ).toBe(200);
  });
});

describe("sessions", () => {
  const session = async (api: Stand, body: object) => {
    const opened = await api.ask("POST /login", { token: null, body });
    const cookie = opened.headers.get("set-cookie")?.split(";")[0] ?? "";
    return { opened, cookie, csrf: (opened.body?.csrf ?? "") as string };
  };

  test("(T3) a cookie reads; it changes something only with the login's secret, and ends with the logout", async () => {
    const api = await stand();
    await api.ask("PUT /workflows/ticks", { body: { source: ticks() } });
    const { opened, cookie, csrf } = await session(api, { token: ADMIN });
    expect(opened.headers.get("set-cookie")).toMatch(/HttpOnly; SameSite=Strict; Path=\//);
    const asked = (headers: Record<string, string>) =>
      api.ask("POST /workflows/ticks/pause", { token: null, headers: { cookie, ...headers } });
    expect((await api.ask("GET /workflows", { token: null, headers: { cookie } })).status).toBe(200);
    expect((await asked({})).body.error.code).toBe("csrf_missing");
    expect((await asked({ "pawl-csrf": "guess" })).status).toBe(403);
    expect((await asked({ "pawl-csrf": csrf })).status).toBe(200);
    await api.ask("POST /logout", { token: null, headers: { cookie, "pawl-csrf": csrf } });
    expect((await api.ask("GET /workflows", { token: null, headers: { cookie } })).status).toBe(401);
  });

  test("(T4) a one-time link opens one session, as whoever asked for it; a revoked token takes its sessions along", async () => {
    const api = await stand();
    const made = await api.ask("POST /tokens", {
      body: { name: "ann", role: "operator", namespace: "acme" },
    });
    const { link } = (await api.ask("POST /login/links", { token: made.body.token })).body;
    const { opened, cookie } = await session(api, { link });
    expect(opened.body.me).toMatchObject({ role: "operator", ownNamespace: "acme" });
    expect((await session(api, { link })).opened.status).toBe(401);
    await api.ask(`DELETE /tokens/${made.body.id}`);
    expect((await api.ask("GET /me", { token: null, headers: { cookie } })).status).toBe(401);
  });
});

test("a first admin is made when nobody could get in, shown once, and not again", async () => {
  const { createHost } = await import("../../host/index.ts");
  await using host = createHost({});
  await host.start();
  const listening = await host.listen({ port: 0 });
  expect(listening.adminToken).toMatch(/^pawl_[\w-]{43}$/);
  const response = await fetch(`${listening.url}/api/v1/me`, {
    headers: { authorization: `Bearer ${listening.adminToken}` },
  });
  expect(response.status).toBe(200);
  await expect(stand({ listen: { adminToken: "short" } })).rejects.toThrow("PAWL_ADMIN_TOKEN");
  await expect(stand({ listen: { listen: "0.0.0.0" } })).rejects.toThrow("--public-url");
});

test("nothing of another namespace is seen, whatever its ids and names", async () => {
  const api = await stand();
  const [acme, globex] = [await tokenOf(api, "admin", "acme"), await tokenOf(api, "admin", "globex")];
  for (const token of [acme, globex])
    await api.ask("PUT /workflows/orders", { token, body: { source: orders() } });
  const published = await api.ask("POST /workflows/orders/topics/order/events", {
    token: acme,
    body: { messageId: "of-acme", payload: { id: "of-acme" } },
  });
  expect(published.status).toBe(202);
  const run = await api.until(
    async () => (await api.ask("GET /runs?status=committed", { token: acme })).body.items[0],
  );
  expect((await api.ask(`GET /runs/${run.id}`, { token: globex })).status).toBe(404);
  expect((await api.ask("GET /runs", { token: globex })).text).not.toContain(run.id);
  const [input] = (await api.ask("GET /workflows/orders/inputs", { token: acme })).body.items;
  expect((await api.ask(`GET /inputs/${input.id}`, { token: globex })).status).toBe(404);
  expect((await api.ask("GET /workflows/orders/inputs", { token: globex })).body.items).toEqual([]);
});
