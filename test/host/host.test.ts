// The library as a platform uses it: a real sandbox, a store in memory or in a folder, a world that remembers.
import diagnostics from "node:diagnostics_channel";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { formatId } from "../../host/core/ids.ts";
import { worlds } from "../../host/host.ts";
import { createHost, eventNames, type Host, type HostEvent, type HostOptions } from "../../host/index.ts";

const SOURCE = `import { consumer, producer, topic, workflow } from "pawl";
export default workflow({
  name: "orders",
  connections: { ledger: "http" },
  params: { account: { type: "string", default: "revenue" } },
  topics: { order: topic<{ id: string }>(), booked: topic<{ id: string }>({ output: true }) },
  producers: { poll: producer({ schedule: { interval: "1h" }, publishes: ["order"], handler(ctx) {
    ctx.log.info("polled", { by: "token-0123456789" });
    ctx.publish("order", { messageId: "a", payload: { id: "a" } });
  } }) },
  consumers: { book: consumer({ subscribes: ["order"], publishes: ["booked"],
    async prepare(ctx) {
      const [event] = await ctx.peek("order", { limit: 1 });
      if (!event) return { reservations: [] };
      return { reservations: [{ topic: "order", ids: [event.messageId] }], data: event.payload, ui: { title: "Book" } };
    },
    mutate(ctx, prepared) { ctx.ledger.post("/entries", { body: { id: prepared.data.id, account: ctx.params.account } }); },
    next(ctx, prepared, outcome) { if (outcome.status === "applied") ctx.publish("booked", { messageId: prepared.data.id, payload: prepared.data }); },
  }) },
});`;

const open: Host[] = [];
const folders: string[] = [];
afterEach(async () => {
  for (const host of open.splice(0)) await host.stop();
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
});

function folder(): string {
  const made = mkdtempSync(join(tmpdir(), "pawl-host-"));
  folders.push(made);
  return made;
}

/** A host, and a promise of the next event that fits. */
function make(options: HostOptions = {}) {
  const waiting: { fits: (event: HostEvent) => boolean; done: (event: HostEvent) => void }[] = [];
  const host = createHost({
    world: worlds.memory(),
    ...options,
    observe: (event) => {
      for (const one of waiting) if (one.fits(event)) one.done(event);
      options.observe?.(event);
    },
  });
  open.push(host);
  const ended = (handler: string, status = "committed", nth = 1) =>
    new Promise<HostEvent & { kind: "run.ended" }>((resolve) => {
      let left = nth;
      const fits = (event: HostEvent) =>
        event.kind === "run.ended" &&
        event.facts.handler.name === handler &&
        event.facts.run.status === status &&
        --left === 0;
      waiting.push({ fits, done: resolve as (event: HostEvent) => void });
    });
  return { host, ended };
}

test("a deployed script runs, and its run can be looked at", async () => {
  const world = worlds.memory();
  const { host, ended } = make({ world });
  await host.start();
  const booked = ended("book", "committed", 2);
  expect(await host.deploy({ source: SOURCE })).toMatchObject({
    ok: true,
    outcome: "created",
    name: "orders",
  });
  const { facts, published } = await booked;
  expect(published).toMatchObject([{ topic: "booked", messageId: "a", outcome: "created" }]);
  expect(world.sent.map((call) => JSON.parse(call.args))).toMatchObject([
    { body: { id: "a", account: "revenue" } },
  ]);
  const detail = await host.run(formatId("run", facts.run.id));
  expect(detail).toMatchObject({ workflow: "orders", handler: "book", mutation: { status: "applied" } });
  expect((await host.runs({ workflow: "orders" })).items.map((one) => one.handler)).toEqual([
    "book",
    "poll",
    "book",
  ]);
  expect(await host.workflow("orders")).toMatchObject({ name: "orders", activeVersion: 1 });
  expect((await host.workflows()).items.map((one) => one.name)).toEqual(["orders"]);
});

test("an event from outside is acknowledged once, however often it comes", async () => {
  const world = worlds.memory();
  const { host, ended } = make({ world });
  await host.start();
  const first = ended("book", "committed", 2);
  await host.deploy({ source: SOURCE });
  await first;
  const second = ended("book");
  const event = { topic: "order", messageId: "b", payload: { id: "b" } };
  expect(await host.publish("orders", event)).toMatchObject({ ok: true, outcome: "created" });
  await second;
  expect(await host.publish("orders", event)).toMatchObject({ ok: true, outcome: "unchanged" });
  expect(world.sent).toHaveLength(2);
});

describe("what is not there, or there already, is a typed answer", () => {
  test("unknown names and ids", async () => {
    const { host } = make();
    await host.start();
    const missing = { ok: false, code: "not_found" };
    expect(await host.runNow("nope")).toMatchObject(missing);
    expect(await host.pause("nope")).toMatchObject(missing);
    expect(await host.resume("nope")).toMatchObject(missing);
    expect(await host.publish("nope", { topic: "a", messageId: "1", payload: 1 })).toMatchObject(missing);
    expect(await host.decide("run_00000000zzz", { action: "retry" })).toMatchObject(missing);
    expect(await host.decide("nonsense", { action: "retry" })).toMatchObject(missing);
    expect(await host.run("run_00000000zzz")).toBeUndefined();
    expect(await host.workflow("nope")).toBeUndefined();
    expect(await host.runs({ workflow: "nope" })).toEqual({ items: [] });
  });

  test("the same script again, a broken one, a topic nobody declared", async () => {
    const { host } = make();
    await host.start();
    await host.deploy({ source: SOURCE });
    expect(await host.deploy({ source: SOURCE })).toMatchObject({
      ok: true,
      outcome: "unchanged",
      version: 1,
    });
    const broken = SOURCE.replace('"1h"', '"an hour"');
    expect(await host.deploy({ source: broken })).toMatchObject({
      ok: false,
      problems: [{ code: "bad-interval" }],
    });
    expect(await host.deploy({ source: SOURCE, name: "other" })).toMatchObject({ ok: false });
    const event = { topic: "odrer", messageId: "1", payload: 1 };
    expect(await host.publish("orders", event)).toMatchObject({ ok: false, code: "undeclared-topic" });
    expect(await host.runNow("orders", { handler: "nope" })).toMatchObject({ ok: false });
  });

  test("a host that was not started, or has stopped, says so; starting twice is starting once", async () => {
    const { host } = make();
    await expect(host.deploy({ source: SOURCE })).rejects.toThrow("await host.start()");
    const [first, second] = [host.start(), host.start()];
    expect(second).toBe(first);
    await first;
    await Promise.all([host.stop(), host.stop()]);
    await expect(host.deploy({ source: SOURCE })).rejects.toThrow("not running");
  });
});

test("paused, nothing starts; resumed, it goes on", async () => {
  const { host, ended } = make();
  await host.start();
  const first = ended("book", "committed", 2);
  await host.deploy({ source: SOURCE });
  await first;
  expect(await host.pause("orders", { by: "ada", note: "lunch" })).toEqual({ ok: true });
  expect(await host.runNow("orders")).toMatchObject({ ok: false, code: "workflow_paused" });
  await host.publish("orders", { topic: "order", messageId: "b", payload: { id: "b" } });
  const next = ended("book");
  expect(await host.resume("orders")).toEqual({ ok: true });
  await next;
});

test("a person's decision is carried out", async () => {
  const world = worlds.memory({ grant: "approve" });
  const { host, ended } = make({ world });
  await host.start();
  const held = ended("book", "paused:approval");
  await host.deploy({ source: SOURCE });
  const { facts } = await held;
  expect(world.sent).toEqual([]);
  const done = ended("book");
  const id = formatId("run", facts.run.id);
  expect(await host.decide(id, { action: "approve" }, { by: "ada" })).toEqual({ ok: true });
  await done;
  expect(world.sent).toHaveLength(1);
  expect(await host.decide(id, { action: "approve" }, { by: "alan" })).toMatchObject({ ok: false });
});

test("two hosts in one process keep apart; one folder takes one host", async () => {
  const data = folder();
  const [one, two] = [make({ data }), make()];
  await one.host.start();
  await two.host.start();
  await one.host.deploy({ source: SOURCE });
  expect((await two.host.workflows()).items).toEqual([]);
  const { host: third } = make({ data });
  await expect(third.start()).rejects.toMatchObject({ code: "store-locked" });
});

test("what was acknowledged is there after a restart", async () => {
  const data = folder();
  const { host, ended } = make({ data });
  await host.start();
  const booked = ended("book", "committed", 2);
  await host.deploy({ source: SOURCE });
  await booked;
  await host.stop();
  const again = make({ data });
  expect(await again.host.start()).toEqual({ recovered: 0 });
  expect((await again.host.runs()).items).toHaveLength(3);
  expect(await again.host.deploy({ source: SOURCE })).toMatchObject({ outcome: "unchanged" });
});

describe("whoever looks on changes nothing", () => {
  const token = "token-0123456789";

  test("(T1, T2) telemetry: stable names, whole stories, a throwing subscriber", async () => {
    expect(eventNames()).toEqual(
      ["run", "phase", "store"].flatMap((what) =>
        ["start", "stop", "exception"].map((when) => `pawl:${what}:${when}`),
      ),
    );
    const heard: [string, Record<string, unknown>][] = [];
    const throws = () => {
      throw new Error("a bad subscriber");
    };
    const listen = (message: unknown, name: string | symbol) =>
      void heard.push([String(name), message as Record<string, unknown>]);
    for (const name of eventNames()) {
      diagnostics.subscribe(name, throws);
      diagnostics.subscribe(name, listen);
    }
    const { host, ended } = make({
      observe: () => {
        throw new Error("a bad observer");
      },
    });
    await host.start();
    const booked = ended("book", "committed", 2);
    await host.deploy({ source: SOURCE });
    await booked;
    await host.stop();
    for (const name of eventNames()) {
      expect(diagnostics.unsubscribe(name, throws)).toBe(true);
      expect(diagnostics.unsubscribe(name, listen)).toBe(true);
    }
    const of = (name: string) => heard.filter(([one]) => one === name).map(([, payload]) => payload);
    expect(of("pawl:run:start").map((one) => one["handler"])).toEqual(["book", "poll", "book"]);
    expect(of("pawl:run:stop").map((one) => one["status"])).toEqual(["committed", "committed", "committed"]);
    expect(of("pawl:phase:start").map((one) => one["phase"])).toContain("mutating");
    expect(
      of("pawl:store:stop")
        .map((one) => String(one["verb"]))
        .join(),
    ).toContain("sending");
    expect(of("pawl:store:start")).toHaveLength(of("pawl:store:stop").length);
    expect(of("pawl:run:exception")).toEqual([]);
  });

  test("logs carry the run they belong to, and no secret", async () => {
    const written: string[] = [];
    const { host, ended } = make({
      secrets: [token],
      log: { level: "debug", write: (line) => written.push(line) },
    });
    await host.start();
    const booked = ended("book", "committed", 2);
    await host.deploy({ source: SOURCE.replace('"polled"', `"polled with ${token}"`) });
    await booked;
    const lines = written.map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(lines.find((one) => one["msg"] === "polled with [redacted]")).toMatchObject({
      level: "info",
      workflow: "orders",
      handler: "poll",
      by: "script",
      run: expect.stringMatching(/^run_/) as string,
    });
    expect(written.join()).not.toContain(token);
  });
});
