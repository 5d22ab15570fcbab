// Connections, bindings and grants in SQLite, each write with its audit row.
import { afterEach, expect, test } from "vitest";
import type { Manifest } from "../../host/core/workflow.ts";
import { inspect } from "../../host/store/doctor.ts";
import { openStore, type SqliteStore } from "../../host/store/open.ts";
import { SqliteConnections } from "../../host/store/sqlite/connections.ts";
import { verify } from "../../host/store/verify.ts";
import { deployed, MANIFEST } from "../support/chain.ts";

const BY = { actor: "ann", atMs: 5_000 };
const opened: SqliteStore[] = [];
afterEach(async () => {
  for (const store of opened.splice(0)) {
    const broken = [...inspect(store.db), ...verify(store.db)].map((one) => one.message);
    await store[Symbol.asyncDispose]();
    if (broken.length > 0) throw new Error(`laws are broken: ${broken.join(", ")}`);
  }
});

async function open(manifest: Manifest = MANIFEST) {
  const store = openStore({ data: ":memory:", nowMs: () => 1_000 });
  opened.push(store);
  const workflow = await deployed(store, "orders", 1_000, manifest);
  const namespace = store.db.prepare("SELECT id FROM namespaces").pluck().get() as number;
  const connections = new SqliteConnections(store);
  const put = (name: string, more: Partial<Parameters<SqliteConnections["put"]>[0]> = {}) =>
    connections.put({ namespace, name, connector: "http", config: "{}", ...more }, BY);
  const audited = () => store.db.prepare("SELECT action FROM audit ORDER BY seq").pluck().all();
  return { store, workflow, namespace, connections, put, audited };
}

test("a connection is put, found by its name, and audited", async () => {
  const { connections, namespace, put, audited } = await open();
  const made = await put("shop", { config: '{"url":"a"}', seal: (version) => `sealed ${version}` });
  expect(made).toMatchObject({ name: "shop", configVersion: 1, sealed: "sealed 1", sealedVersion: 1 });
  expect(await connections.named(namespace, "shop")).toEqual(made);
  expect((await connections.list(namespace)).map((one) => one.name)).toEqual(["shop"]);
  expect(audited()).toEqual(["deploy", "connection.create"]);
});

test("a new config raises its version, new secrets alone do not", async () => {
  const { put } = await open();
  await put("shop", { seal: (version) => `sealed ${version}` });
  expect(await put("shop", { seal: (version) => `sealed ${version}` })).toMatchObject({
    configVersion: 1,
    sealed: "sealed 2",
  });
  expect(await put("shop", { config: '{"url":"b"}' })).toMatchObject({
    configVersion: 2,
    sealed: "sealed 2",
  });
  expect((await put("shop", { config: '{"url":"b"}', seal: null })).sealed).toBeUndefined();
});

test("(N3) a put that changes nothing leaves no trace", async () => {
  const { put, audited } = await open();
  await put("shop");
  await put("shop");
  expect(audited()).toEqual(["deploy", "connection.create"]);
});

test("(N2) a connection that is made anew goes on where the removed one ended", async () => {
  const { connections, namespace, put } = await open();
  await put("shop", { seal: () => "one" });
  expect(await connections.remove(namespace, "shop", BY)).toBe(true);
  expect(await put("shop", { seal: (version) => `${version}` })).toMatchObject({
    configVersion: 2,
    sealed: "2",
    sealedVersion: 2,
  });
});

test("an alias without a binding stands for the connection of its name and connector", async () => {
  const { connections, workflow, put } = await open();
  expect(await connections.behind(workflow, "bank")).toMatchObject({ connector: "http", grants: [] });
  expect((await connections.behind(workflow, "bank"))?.connection).toBeUndefined();
  const { id } = await put("bank");
  expect((await connections.behind(workflow, "bank"))?.connection?.id).toBe(id);
  expect(await connections.usedBy(id)).toEqual([workflow]);
  await put("bank", { connector: "smtp" });
  expect((await connections.behind(workflow, "bank"))?.connection).toBeUndefined();
  expect(await connections.usedBy(id)).toEqual([]);
});

test("an alias that the active version does not declare has no connector", async () => {
  const { connections, workflow, put } = await open();
  await put("other");
  const behind = await connections.behind(workflow, "other");
  expect(behind?.connector).toBeUndefined();
  expect(behind?.connection).toBeUndefined();
  expect(await connections.behind(99_999, "bank")).toBeUndefined();
});

test("a binding wins over the name, and is audited with its workflow", async () => {
  const { connections, workflow, put, audited } = await open();
  await put("bank");
  const { id } = await put("bank-2");
  await connections.bind(workflow, { bank: id }, BY);
  expect((await connections.behind(workflow, "bank"))?.connection?.name).toBe("bank-2");
  expect(await connections.bindings(workflow)).toEqual({ bank: id });
  expect(audited().at(-1)).toBe("bind");
});

test("a grant that is set anew has another version, and ends when the alias is bound elsewhere", async () => {
  const { connections, workflow, put } = await open();
  const { id: one } = await put("bank");
  const { id: two } = await put("bank-2");
  await connections.grant(workflow, [{ alias: "bank", connection: one, tool: "post", mode: "allow" }], BY);
  const [first] = (await connections.behind(workflow, "bank"))?.grants ?? [];
  await connections.grant(workflow, [{ alias: "bank", connection: one, tool: "post", mode: "allow" }], BY);
  const [second] = (await connections.behind(workflow, "bank"))?.grants ?? [];
  expect(second?.version).toBeGreaterThan(first?.version as number);
  await connections.bind(workflow, { bank: two }, BY);
  await connections.bind(workflow, { bank: one }, BY);
  expect((await connections.behind(workflow, "bank"))?.grants).toEqual([]);
});

test("a connection that is in use cannot be removed", async () => {
  const { connections, namespace, put } = await open();
  await put("bank");
  await expect(connections.remove(namespace, "bank", BY)).rejects.toMatchObject({
    code: "connection-in-use",
  });
  expect(await connections.remove(namespace, "nobody", BY)).toBe(false);
});

test("the default of a namespace is kept with it", async () => {
  const { connections, namespace, workflow } = await open();
  await connections.setDefaultGrant(namespace, "deny", BY);
  expect((await connections.behind(workflow, "bank"))?.namespace.defaultGrant).toBe("deny");
  await connections.setDefaultGrant(namespace, undefined, BY);
  expect((await connections.behind(workflow, "bank"))?.namespace.defaultGrant).toBeUndefined();
});

test("a row is sealed anew only if nobody has changed it since", async () => {
  const { connections, put } = await open();
  const { id } = await put("shop", { seal: () => "old" });
  expect(await connections.reseal(id, 1, { text: "new", version: 2 })).toBe(true);
  expect(await connections.reseal(id, 1, { text: "late", version: 2 })).toBe(false);
  expect((await connections.sealed()).map((one) => one.sealed)).toEqual(["new"]);
});

test("half of a character in who acts, or why, leaves the audit's chain whole", async () => {
  const { connections, namespace, audited } = await open();
  const by = { actor: "ann\ud800", note: "because \udfff", atMs: 5_000 };
  await connections.put({ namespace, name: "shop", connector: "http", config: "{}" }, by);
  expect(audited()).toEqual(["deploy", "connection.create"]);
});
