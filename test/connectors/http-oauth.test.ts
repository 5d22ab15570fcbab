// OAuth2 against a real token endpoint on this machine: one refresh at a time, rotation, revocation, expiry, trouble.
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { httpConnector } from "../../host/connectors/http.ts";
import { type Opened, opened, reads, sends, Stand, type Told } from "../support/http-stand.ts";

/** Gives out tokens and knows which of them are good. */
class TokenPlace {
  readonly requests: { form: Record<string, string>; authorization: string | undefined }[] = [];
  readonly refused = new Set<string>();
  refreshToken = "refresh-0";
  rotates = false;
  lifetime: unknown = 3_600;
  /** Instead of a token. */
  trouble: Told | undefined;
  given = 0;

  answer(body: string, authorization: string | undefined): Told {
    const form = Object.fromEntries(new URLSearchParams(body));
    this.requests.push({ form, authorization });
    if (this.trouble) return this.trouble;
    if (form["grant_type"] === "refresh_token" && form["refresh_token"] !== this.refreshToken)
      return jsonOf({ error: "invalid_grant" }, 400);
    this.given++;
    if (this.rotates) this.refreshToken = `refresh-${this.given}`;
    return jsonOf({
      access_token: `access-${this.given}`,
      token_type: "Bearer",
      expires_in: this.lifetime,
      ...(this.rotates ? { refresh_token: this.refreshToken } : {}),
    });
  }

  isGood(authorization: string | undefined): boolean {
    const value = authorization?.replace("Bearer ", "") ?? "";
    return /^access-\d+$/.test(value) && !this.refused.has(value);
  }
}

const jsonOf = (value: unknown, status = 200): Told => ({
  status,
  headers: { "content-type": "application/json" },
  body: JSON.stringify(value),
});

let place: TokenPlace;
let api: Stand;
let tokens: Stand;
let nowMs: number;
let connector: ReturnType<typeof httpConnector>;
beforeEach(async () => {
  place = new TokenPlace();
  tokens = await Stand.open(({ body, headers }) => place.answer(body, headers["authorization"]));
  api = await Stand.open(({ headers }) =>
    place.isGood(headers["authorization"]) ? jsonOf({}) : jsonOf({ error: "invalid_token" }, 401),
  );
  nowMs = 0;
  connector = httpConnector({ nowMs: () => nowMs });
});
afterEach(async () => {
  await api[Symbol.asyncDispose]();
  await tokens[Symbol.asyncDispose]();
});

const SECRETS = { clientSecret: "client secret/1", refreshToken: "refresh-0" };
const shop = (auth: object = {}, secrets: object = SECRETS): Opened =>
  opened(
    {
      baseUrl: api.url,
      auth: { scheme: "oauth2-refresh-token", tokenUrl: `${tokens.url}/token`, clientId: "pawl", ...auth },
    },
    secrets,
    connector,
  );
const get = (connection: Opened) => reads(connection, "get", { path: "/x" }, { connector });
const post = (connection: Opened, signal?: AbortSignal) =>
  sends(connection, "post", { path: "/x" }, { connector, ...(signal ? { signal } : {}) });
const used = () => api.seen.map(({ headers }) => headers["authorization"]?.replace("Bearer ", ""));

describe("a token", () => {
  test("is got once for a storm of 50 calls, each of which opened the connection for itself (K1)", async () => {
    place.rotates = true;
    const connections = Array.from({ length: 50 }, () => shop());
    const answers = await Promise.all(connections.map((one, n) => (n % 2 === 0 ? get(one) : post(one))));
    expect(answers.every((one) => ("ok" in one ? one.ok : one.outcome === "applied"))).toBe(true);
    expect(place.requests).toHaveLength(1);
    expect(connections.flatMap(({ stored }) => stored)).toHaveLength(1);
    expect(new Set(used())).toEqual(new Set(["access-1"]));
    expect(connections.every(({ hidden }) => hidden.includes("access-1"))).toBe(true); // (K5)
  });

  test("is asked for as the scheme says, with the client's name in basic or in the body", async () => {
    await get(shop());
    await get(shop({ clientAuth: "body", scope: "a b", params: { audience: "x" } }));
    await get(shop({ scheme: "oauth2-client-credentials" }, { clientSecret: "client secret/1" }));
    await get(shop({ clientAuth: "basic" }, { refreshToken: "refresh-0" }));
    const basic = `Basic ${Buffer.from("pawl:client+secret%2F1").toString("base64")}`;
    const renewal = { grant_type: "refresh_token", refresh_token: "refresh-0" };
    expect(place.requests).toEqual([
      { form: renewal, authorization: basic },
      {
        form: {
          ...renewal,
          audience: "x",
          scope: "a b",
          client_id: "pawl",
          client_secret: "client secret/1",
        },
        authorization: undefined,
      },
      { form: { grant_type: "client_credentials" }, authorization: basic },
      { form: { ...renewal, client_id: "pawl" }, authorization: undefined },
    ]);
  });

  test("is used until shortly before it expires", async () => {
    for (nowMs of [0, 3_569_000, 3_571_000]) expect(await get(shop())).toMatchObject({ ok: true });
    expect(used()).toEqual(["access-1", "access-1", "access-2"]);
  });

  test.each<[unknown, number]>([
    [1, 600],
    ["60", 31_000],
    [0, 1],
    [-1, 1],
    [undefined, 271_000],
    ["soon", 271_000],
    [1e300, 86_400_000],
  ])("with a lifetime of %s is not used any more after %i ms", async (lifetime, laterMs) => {
    place.lifetime = lifetime;
    await get(shop());
    nowMs = laterMs;
    await get(shop());
    expect(used()).toEqual(["access-1", "access-2"]);
  });

  test("belongs to one config and one set of secrets (K2)", async () => {
    await get(shop());
    await get(shop({ scope: "more" }));
    await get(Object.assign(shop(), { configVersion: 2 }));
    await get(Object.assign(shop(), { name: "other" }));
    await get(Object.assign(shop(), { namespace: "other" }));
    place.refreshToken = "refresh-new";
    await get(shop({}, { ...SECRETS, refreshToken: "refresh-new" }));
    await get(shop());
    expect(used()).toEqual([
      "access-1",
      "access-2",
      "access-3",
      "access-4",
      "access-5",
      "access-6",
      "access-1",
    ]);
  });

  test("that the service refuses is got anew once, and the read made again; for many at once, too (T3, K1)", async () => {
    await get(shop());
    place.refused.add("access-1");
    const answers = await Promise.all(Array.from({ length: 20 }, () => get(shop())));
    expect(answers.every(({ ok }) => ok)).toBe(true);
    expect(place.requests).toHaveLength(2);
  });

  test("that is refused though it is new: the connection is not let in, and nothing goes round in circles", async () => {
    for (let n = 1; n < 10; n++) place.refused.add(`access-${n}`);
    expect(await get(shop())).toMatchObject({ ok: false, class: "auth" });
    expect([place.requests.length, api.seen.length]).toEqual([1, 1]);
    expect(await post(shop())).toMatchObject({ outcome: "failed", class: "auth" });
    expect([place.requests.length, api.seen.length]).toEqual([2, 2]);
  });

  test("that a change is refused with is dropped: proven unsent, not sent again, and the next attempt has a new one (T1, T3)", async () => {
    await get(shop());
    place.refused.add("access-1");
    expect(await post(shop())).toMatchObject({ outcome: "failed", class: "transient" });
    expect(used()).toEqual(["access-1", "access-1"]);
    expect(await post(shop())).toMatchObject({ outcome: "applied" });
    expect(used()).toEqual(["access-1", "access-1", "access-2"]);
  });

  test("never leads to another origin (T2)", async () => {
    const connection = opened(
      {
        baseUrl: api.url,
        hosts: [new URL(tokens.url).host],
        auth: { scheme: "oauth2-client-credentials", tokenUrl: `${tokens.url}/token`, clientId: "pawl" },
      },
      { clientSecret: "x" },
      connector,
    );
    await reads(connection, "get", { path: `${tokens.url}/x` }, { connector });
    expect(tokens.seen.map(({ url, headers }) => [url, headers["authorization"]])).toEqual([
      ["/x", undefined],
    ]);
  });
});

describe("a refresh token that the service changes", () => {
  test("is hidden, and stored before the access token is used (K3, K5)", async () => {
    place.rotates = true;
    const connection = shop();
    const order: string[] = [];
    connection.replaceSecrets = async (secrets) => {
      order.push(`stored, after ${api.seen.length} calls`);
      connection.stored.push(secrets);
    };
    await get(connection);
    expect(order).toEqual(["stored, after 0 calls"]);
    expect(connection.stored).toEqual([{ ...SECRETS, refreshToken: "refresh-1" }]);
    expect(connection.hidden).toEqual(expect.arrayContaining(["access-1", "refresh-1"]));
  });

  test("keeps the access token for whoever opens the connection with the new secrets or still has the old ones", async () => {
    place.rotates = true;
    const connection = shop();
    await get(connection);
    await get(connection);
    await get(shop());
    await get(shop({}, { ...SECRETS, refreshToken: "refresh-1" }));
    expect(place.requests).toHaveLength(1);
  });

  test("is the one that the next refresh uses, however old the secrets are that a call was opened with", async () => {
    place.rotates = true;
    await get(shop());
    nowMs = 3_600_000;
    await get(shop());
    expect(place.requests.map(({ form }) => form["refresh_token"])).toEqual(["refresh-0", "refresh-1"]);
  });

  test("is not lost when it cannot be stored: the next call stores it (K3)", async () => {
    place.rotates = true;
    const broken = shop();
    broken.replaceSecrets = () => Promise.reject(new Error("disk full"));
    expect(await get(broken)).toMatchObject({ ok: true });
    const next = shop();
    expect(await get(next)).toMatchObject({ ok: true });
    expect(next.stored).toEqual([{ ...SECRETS, refreshToken: "refresh-1" }]);
    const last = shop();
    await get(last);
    expect(last.stored).toEqual([]);
    expect(place.requests).toHaveLength(1);
  });
});

describe("when no token can be had, the call is proven unsent (K4)", () => {
  const troubles: [what: string, told: Told, kind: string][] = [
    ["the refresh token was revoked", jsonOf({ error: "invalid_grant" }, 400), "auth"],
    ["the client is unknown", jsonOf({ error: "invalid_client" }, 401), "auth"],
    ["the token endpoint is elsewhere", { status: 404 }, "auth"],
    ["tokens are of another kind", jsonOf({ access_token: "x", token_type: "mac" }), "auth"],
    ["it is out of order", { status: 500 }, "transient"],
    ["it is busy", { status: 429, headers: { "retry-after": "7" } }, "transient"],
    ["it leads on", { status: 302, headers: { location: "/elsewhere" } }, "transient"],
    ["it answers without a token", jsonOf({}), "transient"],
    ["it answers with no JSON", { status: 200, body: "<html>" }, "transient"],
    ["the token is no token", jsonOf({ access_token: "a\r\nb" }), "transient"],
    ["the token is a number", jsonOf({ access_token: 1 }), "transient"],
    ["it answers without end", { status: 200, body: "x".repeat(1_000_000) }, "transient"],
  ];
  test.each(troubles)("%s", async (_, told, kind) => {
    place.trouble = told;
    expect(await get(shop())).toMatchObject({ ok: false, class: kind });
    expect(await post(shop())).toMatchObject({ outcome: "failed", class: kind });
    expect(api.seen).toEqual([]);
    place.trouble = undefined;
    expect(await post(shop())).toMatchObject({ outcome: "applied" });
  });

  test("a token endpoint that is not there", async () => {
    const connection = shop();
    await tokens[Symbol.asyncDispose]();
    expect(await post(connection)).toMatchObject({ outcome: "failed", class: "transient" });
    tokens = await Stand.open();
    expect(api.seen).toEqual([]);
  });

  test("a token endpoint that the guard refuses", async () => {
    const connection = shop();
    Object.assign(connection, { config: { ...(connection.config as object), allowPrivateNetwork: false } });
    expect(await post(connection)).toMatchObject({ outcome: "failed", code: "egress-refused" });
    expect(tokens.seen).toEqual([]);
  });

  test("a secret that is missing", async () => {
    expect(await post(shop({}, {}))).toMatchObject({ outcome: "failed", class: "auth" });
    expect(await post(shop({ scheme: "oauth2-client-credentials" }, {}))).toMatchObject({ class: "auth" });
    expect(tokens.seen).toEqual([]);
  });

  test("nothing of a secret stands in what is said", async () => {
    const all = ["refresh-0", "client secret/1", "client+secret"];
    for (const [, told] of troubles) {
      place.trouble = told;
      const answer = JSON.stringify([await get(shop()), await post(shop())]);
      expect(all.filter((secret) => answer.includes(secret))).toEqual([]);
    }
  });

  test("who gives up waiting for a token has sent nothing, and ends it for nobody else (K1)", async () => {
    const asked = Promise.withResolvers<void>();
    const go = Promise.withResolvers<void>();
    tokens.answers = ({ body, headers }, { response }) => {
      asked.resolve();
      const { headers: more, body: text } = place.answer(body, headers["authorization"]);
      void go.promise.then(() => response.writeHead(200, more).end(text));
      return undefined;
    };
    const abort = new AbortController();
    const impatient = post(shop(), abort.signal);
    const patient = post(shop());
    await asked.promise;
    abort.abort();
    expect(await impatient).toMatchObject({ outcome: "failed", class: "transient" });
    go.resolve();
    expect(await patient).toMatchObject({ outcome: "applied" });
    expect([place.requests.length, api.seen.length]).toEqual([1, 1]);
  });
});

test("the check of a connection gets a token and says what is wrong", async () => {
  const signal = AbortSignal.timeout(10_000);
  const found = async () => (await connector.check?.(shop() as never, { signal }))?.status;
  expect(await found()).toBe("ok");
  place.refused.add("access-1");
  expect(await found()).toBe("ok");
  for (let n = 1; n < 10; n++) place.refused.add(`access-${n}`);
  expect(await found()).toBe("auth");
  place.trouble = { status: 500 };
  expect(await found()).toBe("unreachable");
  place.trouble = jsonOf({ error: "invalid_grant" }, 400);
  expect(await found()).toBe("auth");
});
