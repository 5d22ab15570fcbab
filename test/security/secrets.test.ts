// Planted secrets, an upstream that echoes them, a connector that passes everything on and scripts that keep whatever they
// get: none of it may reach a row, a file, a log, an event or an answer of the host.
import diagnostics from "node:diagnostics_channel";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { Keys } from "../../host/connectors/key-rotation.ts";
import { Registry } from "../../host/connectors/registry.ts";
import { ConnectorWorld } from "../../host/connectors/world.ts";
import { formatId } from "../../host/core/ids.ts";
import { createHost, eventNames, type Host, type HostEvent } from "../../host/index.ts";
import type { ConnectionRow, Connections } from "../../host/ports/connections.ts";
import { backup } from "../../host/store/backup.ts";
import { DATABASE, openStore } from "../../host/store/open.ts";
import { SqliteConnections } from "../../host/store/sqlite/connections.ts";
import { Canaries } from "../support/canaries.ts";
import { careless } from "../support/careless.ts";
import { type Echo, openEcho } from "../support/echo.ts";

const TOKEN = "tok/7Qm+x9 Zr&4w=Lk%2fV~8b?Nd<0y>";
const PASSWORD = 'pw"Hs3\\kD6 jT1|uX5^oE2{iR8}aYq';
const SECRETS = { token: TOKEN, user: { name: "joe-user", password: PASSWORD } };
const canaries = new Canaries(TOKEN, PASSWORD);

let folder: string;
let echo: Echo;
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "pawl-secrets-"));
  echo = await openEcho();
});
afterEach(async () => {
  await echo[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
});

/** What becomes of each change, and of the run that asked for it. */
const WAYS = ["ok", "302", "fail-unknown", "fail-invalid", "fail-auth", "throw"] as const;

const script = (way: string) => `import { consumer, producer, topic, workflow } from "pawl";
export default workflow({
  name: ${JSON.stringify(`leak-${way}`)},
  connections: { up: "careless" },
  topics: { seen: topic<any>(), told: topic<any>({ output: true }) },
  producers: { poll: producer({ schedule: { interval: "1h" }, publishes: ["seen"], async handler(ctx) {
    const got = [await ctx.up.get({ path: "/ok" }), await ctx.up.get({ path: "/302" }), await ctx.up.get({ path: "/500" })];
    ctx.log.info("got", { got });
    const input = ctx.registerInput({ source: "up", type: "echo", id: "1", title: JSON.stringify(got[0]).slice(0, 150) });
    ctx.publish("seen", { messageId: "m", input, payload: { got } });
    return { got };
  } }) },
  consumers: {
    tell: consumer({ subscribes: ["seen"], publishes: ["told"],
      async prepare(ctx) {
        const [event] = await ctx.peek("seen", { limit: 1 });
        if (!event) return { reservations: [] };
        const data = { event, again: await ctx.up.get({ path: "/ok" }) };
        return { reservations: [{ topic: "seen", ids: [event.messageId] }], data, ui: { title: JSON.stringify(data).slice(0, 100) } };
      },
      mutate(ctx, prepared) { ctx.up.post({ path: "/${way}", body: prepared.data }); },
      next(ctx, prepared, outcome) {
        ctx.log.info("told", { outcome });
        ctx.publish("told", { messageId: "m", payload: { outcome } });
        return { outcome };
      },
    }),
  },
});`;

/** A read that fails, of which the script tells everything and then fails itself. */
const asking = (way: string) => `import { producer, workflow } from "pawl";
export default workflow({
  name: ${JSON.stringify(`ask-${way}`)},
  connections: { up: "careless" },
  producers: { poll: producer({ schedule: { interval: "1h" }, async handler(ctx) {
    try { await ctx.up.get({ path: "/${way}" }); } catch (error) {
      ctx.log.error(String(error), { ...error, message: error.message });
      throw error;
    }
  } }) },
});`;

/** Connections of a host whose only alias is \`up\`. */
function upstream(row: ConnectionRow): Connections {
  const behind = {
    namespace: { id: row.namespace, name: "default" },
    connector: "careless",
    connection: row,
    grants: [],
  };
  return { behind: async () => behind, named: async () => row } as unknown as Connections;
}

interface Told {
  data: string;
  events: HostEvent[];
  logs: string[];
  telemetry: unknown[];
  answers: unknown[];
  listeners: ((event: HostEvent) => unknown)[];
}

const leaves = (value: unknown): string[] =>
  typeof value === "object" && value !== null ? Object.values(value).flatMap(leaves) : [String(value)];

/** Every way of a change, in one host, until nothing runs any more; then everything that can be asked of it. */
async function leakAll({ isHidden }: { isHidden: boolean }): Promise<Told> {
  const data = join(folder, "data");
  const told: Told = { data, events: [], logs: [], telemetry: [], answers: [], listeners: [] };
  const listener = (message: unknown) => told.telemetry.push(message);
  for (const name of eventNames()) diagnostics.subscribe(name, listener);
  const host = await leaking(told, isHidden);
  try {
    await host.start();
    for (const way of WAYS) {
      expect(await host.deploy({ source: script(way) })).toMatchObject({ ok: true });
      expect(await host.deploy({ source: asking(way) })).toMatchObject({ ok: true });
    }
    for (const way of WAYS) {
      await rested(told, `leak-${way}`, "tell");
      await rested(told, `ask-${way}`, "poll");
    }
    told.answers.push(await host.workflows());
    const { items } = await host.runs({}, { limit: 200 });
    for (const { run } of items) told.answers.push(await host.run(formatId("run", run.id)));
    await host.checkpoint();
  } finally {
    await host.stop();
    for (const name of eventNames()) diagnostics.unsubscribe(name, listener);
  }
  return told;
}

async function leaking(told: Told, isHidden: boolean): Promise<Host> {
  const onSecrets = (secrets: unknown) => {
    if (isHidden) for (const one of leaves(secrets)) host.hide(one);
  };
  const { vault } = await Keys.open({ sealed: async () => [], reseal: async () => false }, { onSecrets });
  const of = { namespace: 1, name: "up" };
  const row = {
    ...of,
    sealed: "",
    sealedVersion: 1,
    config: JSON.stringify({ url: echo.url }),
    configVersion: 1,
  };
  const connections = upstream({ ...row, id: 1, connector: "careless", createdAtMs: 0, updatedAtMs: 0 });
  const registry = new Registry([careless]);
  const open = () => vault.open({ ...of, sealed, sealedVersion: 1 });
  const host = createHost({
    data: told.data,
    world: new ConnectorWorld({ connections, registry, open, defaultGrant: "allow" }),
    log: { level: "debug", write: (line) => told.logs.push(line) },
    observe: (event) => {
      told.events.push(event);
      for (const listener of told.listeners) listener(event);
    },
  });
  const sealed = vault.seal({ ...of, version: 1, secrets: SECRETS });
  return host;
}

/** A handler's run has come to where it stays. */
function rested(told: Told, workflow: string, handler: string): Promise<void> {
  const isIt = (one: HostEvent) =>
    one.kind === "run.ended" && one.facts.workflow.name === workflow && one.facts.handler.name === handler;
  if (told.events.some(isIt)) return Promise.resolve();
  return new Promise((resolve) => {
    told.listeners.push((event) => isIt(event) && resolve());
  });
}

const found = (told: Told) => ({
  database: canaries.inDatabase(join(told.data, DATABASE)),
  logs: told.logs.flatMap((line) => canaries.in(line)),
  events: canaries.in(JSON.stringify(told.events)),
  telemetry: canaries.in(JSON.stringify(told.telemetry)),
  answers: canaries.in(JSON.stringify(told.answers)),
});

describe("an upstream that echoes its credentials, and scripts that keep all they get", () => {
  test("(28) leave none of them in any table, file, log, event or answer", async () => {
    const told = await leakAll({ isHidden: true });
    expect(found(told)).toEqual({ database: [], logs: [], events: [], telemetry: [], answers: [] });
    expect(JSON.stringify(told.answers)).toContain("[redacted]");
    expect(told.logs.join("")).toContain("[redacted]");
    expect(echo.requests).toBeGreaterThan(30);
  }, 60_000);

  test("would leave them everywhere if they were not hidden: the search finds them", async () => {
    const told = await leakAll({ isHidden: false });
    const { database, logs, events, answers } = found(told);
    const tables = new Set(database.map((one) => one.split(".")[0]));
    for (const table of ["runs", "events", "logs", "handlers", "mutations", "sends", "inputs"])
      expect([...tables]).toContain(table);
    expect([logs, events, answers].every((one) => one.length > 0)).toBe(true);
    for (const how of ["plain", "URL-encoded", "in base64", "in hex"])
      expect(database.some((one) => one.endsWith(how))).toBe(true);
  }, 60_000);
});

describe("secrets at rest", () => {
  async function stored() {
    const store = openStore({ data: join(folder, "data"), nowMs: () => 1_000 });
    store.db.prepare("INSERT INTO namespaces (id, name, created_at) VALUES (1, 'default', 0)").run();
    const connections = new SqliteConnections(store);
    const keys = await Keys.open(connections, { data: join(folder, "data") });
    const put = (name: string, secrets: unknown) =>
      connections.put(
        {
          namespace: 1,
          name,
          connector: "careless",
          config: "{}",
          seal: (version) => keys.vault.seal({ namespace: 1, name, version, secrets }),
        },
        { actor: "ann", atMs: 1 },
      );
    return { store, connections, keys, put };
  }
  const open = async ({ connections, keys }: Awaited<ReturnType<typeof stored>>, name: string) => {
    const row = (await connections.named(1, name)) as ConnectionRow & { sealed: string };
    return keys.vault.open(row);
  };

  test("are in neither the database nor its log nor a backup, and come back from one with the key alone", async () => {
    const made = await stored();
    for (let n = 0; n < 20; n++) await made.put(`c${n}`, SECRETS);
    await made.keys.rotateMaster();
    await made.put("c3", { ...SECRETS, more: 1 });
    await made.keys.renewDataKeys();
    const copy = join(folder, "copy.db");
    await backup(made.store, copy, 2_000);
    const file = join(folder, "data", DATABASE);
    expect([...canaries.inDatabase(file), ...canaries.inDatabase(copy)]).toEqual([]);
    await made.store[Symbol.asyncDispose]();
    const key = readFileSync(join(folder, "data.key"), "latin1").split("\n")[1] as string;
    expect(new Canaries(key).inDatabase(copy)).toEqual([]);
    mkdirSync(join(folder, "other"));
    copyFileSync(copy, join(folder, "other", DATABASE));
    const other = openStore({ data: join(folder, "other"), nowMs: () => 3_000 });
    const rows = new SqliteConnections(other);
    await expect(Keys.open(rows, { data: join(folder, "other") })).rejects.toMatchObject({
      code: "master-key-missing",
    });
    const keys = await Keys.open(rows, { masterKey: key });
    expect(await open({ ...made, connections: rows, keys }, "c7")).toEqual(SECRETS);
    await other[Symbol.asyncDispose]();
  });

  test("would be found by the search if they were stored as they are", async () => {
    const { store, connections } = await stored();
    const seal = () => Buffer.from(JSON.stringify(SECRETS)).toString("base64");
    await connections.put(
      { namespace: 1, name: "c", connector: "x", config: "{}", seal },
      { actor: "a", atMs: 1 },
    );
    expect(canaries.inDatabase(join(folder, "data", DATABASE))).not.toEqual([]);
    await store[Symbol.asyncDispose]();
  });

  test("of rows that somebody swapped, or set back to an older state, do not open", async () => {
    const made = await stored();
    const { db } = made.store;
    const sealed = (name: string) =>
      db.prepare("SELECT sealed FROM connections WHERE name = ?").pluck().get(name);
    const set = db.prepare("UPDATE connections SET sealed = ? WHERE name = ?");
    for (const name of ["a", "b", "c"]) await made.put(name, { of: name });
    const [a, b, old] = ["a", "b", "c"].map(sealed);
    await made.put("c", { of: "c, changed" });
    const fresh = sealed("c");
    set.run(b, "a");
    set.run(a, "b");
    set.run(old, "c");
    for (const name of ["a", "b", "c"])
      await expect(open(made, name)).rejects.toMatchObject({ code: "secret-sealed-elsewhere" });
    set.run(a, "a");
    set.run(fresh, "c");
    expect([await open(made, "a"), await open(made, "c")]).toEqual([{ of: "a" }, { of: "c, changed" }]);
    await made.store[Symbol.asyncDispose]();
  });

  test("(R3) are read 1,000 times without an error while both kinds of keys are rotated in the store", async () => {
    const made = await stored();
    for (let n = 0; n < 10; n++) await made.put(`c${n}`, { of: n });
    let [reads, isOver] = [0, false];
    const reading = async () => {
      while (reads < 1_000 || !isOver) {
        const n = reads++ % 10;
        expect(await open(made, `c${n}`)).toEqual({ of: n });
        if (n === 0) await new Promise((resolve) => setImmediate(resolve));
      }
    };
    const rotating = async () => {
      for (let n = 0; n < 6; n++) await (n % 2 === 0 ? made.keys.rotateMaster() : made.keys.renewDataKeys());
      isOver = true;
    };
    await Promise.all([rotating(), reading(), reading()]);
    const prints = (await made.connections.sealed()).map((row) => row.sealed?.split(".")[1]);
    expect(new Set(prints)).toEqual(new Set([made.keys.vault.fingerprint]));
    await made.store[Symbol.asyncDispose]();
  });
});
