// Calls through connections as they are stored: what does not fit is said before anything leaves, and what a connector
// learns on its way finds the host.
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { httpConnector } from "../../host/connectors/http.ts";
import { ConnectorWorld, type WorldOptions } from "../../host/connectors/world.ts";
import type { ConnectionRow, Connections } from "../../host/ports/connections.ts";
import type { RecordedCall } from "../../host/ports/connector.ts";
import { Stand } from "../support/http-stand.ts";

let stand: Stand;
beforeEach(async () => {
  stand = await Stand.open();
});
afterEach(() => stand[Symbol.asyncDispose]());

const rowOf = (config: unknown, more: Partial<ConnectionRow> = {}): ConnectionRow => ({
  id: 1,
  namespace: 1,
  name: "shop",
  connector: "http",
  config: JSON.stringify(config),
  configVersion: 1,
  sealed: "sealed",
  sealedVersion: 7,
  createdAtMs: 0,
  updatedAtMs: 0,
  ...more,
});

function worldOf(row: ConnectionRow, options: Partial<WorldOptions> = {}): ConnectorWorld {
  const behind = { namespace: { id: 1, name: "default" }, connector: "http", connection: row, grants: [] };
  const few: Pick<Connections, "behind" | "named"> = { behind: async () => behind, named: async () => row };
  const http = httpConnector();
  return new ConnectorWorld({
    connections: few as Connections,
    registry: { get: () => http },
    open: () => ({ token: "secret-token" }),
    defaultGrant: "allow",
    ...options,
  });
}

const call = (args: object = { path: "/x" }): RecordedCall => ({
  workflow: 1,
  alias: "shop",
  tool: "post",
  args: JSON.stringify(args),
  idempotencyKey: "key",
  connection: "shop",
  configVersion: 1,
});
const config = (more: object = {}) => ({ baseUrl: stand.url, allowPrivateNetwork: true, ...more });
const bearer = { auth: { scheme: "bearer" } };

describe("before the first byte every failure is proof (O4)", () => {
  test("a config that does not fit its connector", async () => {
    const world = worldOf(rowOf({ baseUrl: "no URL" }));
    expect(await world.tool(call())).toMatchObject({ class: "precondition", code: "connection-invalid" });
    expect(await world.send(call())).toMatchObject({ outcome: "failed", code: "connection-invalid" });
    expect(await world.check(call())).toEqual({ says: "unsure" });
    expect(await world.describe(call())).toBe("shop.post");
    expect(await world.fingerprint(call())).toMatch(/^[\w-]+$/);
  });

  test.each<[string, unknown]>([
    ["of another shape", { token: 17 }],
    ["for another connector", { password: "x", host: "y" }],
    ["with a line break", { token: "secret-token\n" }],
    ["that are none", null],
  ])("secrets %s", async (_, secrets) => {
    const world = worldOf(rowOf(config(bearer)), { open: () => secrets });
    expect(await world.send(call())).toMatchObject({ outcome: "failed", class: "auth" });
    expect(await world.check(call())).toEqual({ says: "auth" });
    expect(stand.seen).toEqual([]);
  });

  test("secrets that are missing, or cannot be opened", async () => {
    const { sealed: _, ...bare } = rowOf(config(bearer));
    expect(await worldOf(bare).send(call())).toMatchObject({ outcome: "failed", class: "auth" });
    const shut = worldOf(rowOf(config(bearer)), {
      open: () => {
        throw new Error("another key");
      },
    });
    expect(await shut.send(call())).toMatchObject({ outcome: "failed", class: "auth" });
    expect(stand.seen).toEqual([]);
  });

  test("another config than the one the call was decided with", async () => {
    const world = worldOf(rowOf(config(), { configVersion: 2 }));
    expect(await world.send(call())).toMatchObject({ outcome: "failed", code: "connection-changed" });
    expect(stand.seen).toEqual([]);
  });
});

test.each<[string, object]>([
  ["a header of the connection", { path: "/x", headers: { "x-tenant": "other" } }],
  ["a host that is not listed", { path: "https://evil.example/x" }],
  [
    "a recipe that cannot be filled",
    {
      path: "/x",
      verify: { url: "/x/{args.body.id}", appliedIf: { status: 200 }, notAppliedIf: { status: 404 } },
    },
  ],
])("a call with %s is refused before anybody is asked for approval (O5)", async (_, args) => {
  const world = worldOf(rowOf(config({ headers: { "x-tenant": "acme" } })));
  expect(await world.tool(call(args))).toMatchObject({ class: "logic", code: "tool-input-invalid" });
  expect(await world.fingerprint(call(args))).toMatch(/^[\w-]+$/);
  expect(await world.send(call(args))).toMatchObject({ outcome: "failed", class: "logic" });
  expect(stand.seen).toEqual([]);
});

describe("what a connector learns", () => {
  const renewing = () => {
    stand.answers = ({ url }) => ({
      status: 200,
      headers: { "content-type": "application/json" },
      body: url === "/token" ? '{"access_token":"access-1","refresh_token":"refresh-1"}' : "{}",
    });
    const auth = { scheme: "oauth2-refresh-token", tokenUrl: `${stand.url}/token`, clientId: "pawl" };
    return rowOf(config({ auth }));
  };
  const open = () => ({ refreshToken: "refresh-0" });

  test("is hidden, and stored for the very row that was opened", async () => {
    const hidden: string[] = [];
    const stored: unknown[] = [];
    const world = worldOf(renewing(), {
      open,
      hide: (value, { name }) => hidden.push(`${name} ${value}`),
      replace: async ({ name, sealedVersion }, secrets) => void stored.push({ name, sealedVersion, secrets }),
    });
    expect(await world.send(call())).toMatchObject({ outcome: "applied" });
    expect(hidden).toEqual(expect.arrayContaining(["shop access-1", "shop refresh-1"]));
    expect(stored).toEqual([{ name: "shop", sealedVersion: 7, secrets: { refreshToken: "refresh-1" } }]);
  });

  test("does not stop a call on a host that keeps no changed secrets", async () => {
    expect(await worldOf(renewing(), { open }).send(call())).toMatchObject({ outcome: "applied" });
  });
});
