// What waits for a person beside runs: schedules that were missed, inputs nobody has looked at, and how people are told. A
// whole host, with a clock that moves only when a test says so.
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { createHost, type Host, type HostEvent, type HostOptions } from "../../host/index.ts";
import { MONDAY } from "../support/host-harness.ts";
import { mailService } from "../support/mail-service.ts";
import { TestClock } from "../support/test-clock.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

let data: string;
beforeEach(() => {
  data = mkdtempSync(join(tmpdir(), "pawl-inbox-"));
});
afterEach(() => rmSync(data, { recursive: true, force: true }));

const POLLS = `import { consumer, producer, topic, workflow } from "pawl";
export default workflow({
  name: "desk",
  topics: { ticket: topic<{ n: number }>() },
  producers: { poll: producer({ schedule: { interval: "5m" }, publishes: ["ticket"], handler(ctx) {
    const input = ctx.registerInput({ source: "desk", type: "ticket", id: "t-1", title: "Printer on fire" });
    ctx.publish("ticket", { messageId: "t-1", input, payload: { n: 1 } });
  } }) },
  consumers: { answer: consumer({ subscribes: ["ticket"], prepare() { return { reservations: [] }; } }) },
});`;
const FAILS = POLLS.replace(
  "prepare() { return { reservations: [] }; }",
  'prepare() { throw new Error("no"); }',
);

interface Life extends AsyncDisposable {
  host: Host;
  events: HostEvent[];
  /** Real turns of the event loop, until it is so. */
  until: (reached: () => unknown) => Promise<void>;
}

async function life(clock: TestClock, options: HostOptions = {}): Promise<Life> {
  const events: HostEvent[] = [];
  const host = createHost({ data, clock, ...options, observe: (event) => events.push(event) });
  await host.start();
  const until = async (reached: () => unknown): Promise<void> => {
    while (!(await reached())) await new Promise((resolve) => setImmediate(resolve));
  };
  return { host, events, until, [Symbol.asyncDispose]: () => host.stop() };
}

const kinds = async (host: Host) => (await host.inbox.list()).items.map((one) => one.kind);
const committed =
  ({ events }: Life, handler: string) =>
  () =>
    events.some((one) => one.kind === "run.ended" && one.facts.handler.name === handler);

test("(M1) more than three points missed in more than an hour are told with the run that catches up", async () => {
  const clock = new TestClock(MONDAY);
  {
    await using first = await life(clock);
    await first.host.deploy({ source: POLLS });
    await first.until(committed(first, "poll"));
  }
  clock.jump(6 * HOUR);
  await using second = await life(clock);
  await second.until(async () => (await kinds(second.host)).includes("missed_schedule"));
  const [item] = (await second.host.inbox.list()).items;
  expect(item).toMatchObject({
    kind: "missed_schedule",
    workflow: "desk",
    handler: "poll",
    question: expect.stringMatching(/^Scheduled times were missed: 7\d of poll, from /),
    actions: [{ name: "acknowledge" }],
  });
  expect(await second.host.inbox.acknowledge(item?.id as string, { by: "ann" })).toEqual({ ok: true });
  expect(await second.host.inbox.count()).toBe(0);
  expect(await second.host.inbox.acknowledge(item?.id as string)).toMatchObject({ code: "not_found" });
});

test("(M2) a short gap bothers nobody", async () => {
  const clock = new TestClock(MONDAY);
  {
    await using first = await life(clock);
    await first.host.deploy({ source: POLLS });
    await first.until(committed(first, "poll"));
  }
  clock.jump(40 * MINUTE);
  await using second = await life(clock);
  await second.until(committed(second, "poll"));
  expect(await kinds(second.host)).toEqual([]);
});

test("(N1) what asks for a decision is not acknowledged away", async () => {
  await using one = await life(new TestClock(MONDAY));
  await one.host.deploy({ source: FAILS });
  await one.until(async () => (await kinds(one.host)).includes("script_error"));
  const [item] = (await one.host.inbox.list({ kind: "script_error" })).items;
  expect(await one.host.inbox.acknowledge(item?.id as string)).toMatchObject({
    ok: false,
    code: "wrong_state",
  });
});

test("(I1) an input that nothing has happened with for a week is put before a person, once", async () => {
  const clock = new TestClock(MONDAY);
  await using one = await life(clock);
  const { host } = one;
  await host.deploy({ source: POLLS });
  await one.until(committed(one, "poll"));
  await host.pause("desk");
  const turn = () => new Promise<void>((resolve) => setImmediate(resolve));
  await clock.pass(6 * DAY, turn);
  expect(await kinds(host)).toEqual([]);
  await clock.pass(DAY + HOUR, turn);
  await one.until(async () => {
    await clock.pass(10 * MINUTE, turn);
    return (await host.inbox.count()) > 0;
  });
  const { items } = await host.inbox.list();
  expect(items).toMatchObject([
    { kind: "stale_input", question: "Nothing has happened for a week with Printer on fire" },
  ]);
  await host.inbox.acknowledge(items[0]?.id as string);
  for (let round = 0; round < 5; round++) await clock.pass(HOUR, turn);
  expect(await kinds(host)).toEqual([]);
});

/** Refuses at first, then takes what is posted. */
async function pager() {
  const posted: { items: { id: string; kind: string }[] }[] = [];
  const state = { status: 503, asked: 0 };
  const server = createServer((request, response) => {
    let body = "";
    request.setEncoding("utf8").on("data", (text: string) => (body += text));
    request.on("end", () => {
      state.asked++;
      if (state.status === 200) posted.push(JSON.parse(body) as (typeof posted)[number]);
      response.writeHead(state.status, { "content-type": "application/json" }).end("{}");
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const close = async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  };
  return { posted, state, url, [Symbol.asyncDispose]: close };
}

test("(N1, N2) a target that does not answer is told later, also by the next life of the host", async () => {
  await using outside = await pager();
  const clock = new TestClock(MONDAY);
  {
    await using first = await life(clock);
    const { host } = first;
    const config = { baseUrl: outside.url, allowPrivateNetwork: true };
    await host.connections.put({ name: "pager", connector: "http", config });
    await host.inbox.setTargets([{ name: "ops", connection: "pager" }]);
    await host.deploy({ source: FAILS });
    await first.until(() => first.events.some((one) => one.kind === "engine.warning"));
    expect(first.events.find((one) => one.kind === "engine.warning")).toMatchObject({
      message: expect.stringMatching(/^ops was not told of 1 inbox items: /),
    });
  }
  expect(outside.posted).toEqual([]);
  outside.state.status = 200;
  await using second = await life(clock);
  await clock.pass(MINUTE, async () => {});
  await second.until(() => outside.posted.length > 0);
  const [item] = (await second.host.inbox.list()).items;
  expect(outside.posted[0]?.items).toMatchObject([{ id: item?.id, kind: "script_error", workflow: "desk" }]);
  const { asked } = outside.state;
  await clock.pass(DAY, async () => {});
  expect(outside.state.asked).toBe(asked);
});

test("(L3) told by mail, with what scripts say as plain lines", async () => {
  await using service = await mailService();
  await using one = await life(new TestClock(MONDAY));
  const { host } = one;
  const { config, secrets } = service;
  const put = await host.connections.put({
    name: "post",
    connector: "smtp",
    config: config as never,
    secrets: secrets as never,
  });
  expect(put).toMatchObject({ ok: true });
  expect(await host.inbox.setTargets([{ name: "ops", connection: "post" }])).toMatchObject({ ok: false });
  expect(
    await host.inbox.setTargets([{ name: "ops", connection: "post", to: ["ops@pawl.example"] }]),
  ).toEqual({ ok: true });
  await host.deploy({ source: FAILS.replace('"no"', '"no\\r\\nBcc: all@pawl.example"') });
  await one.until(() => service.deliveries.length > 0);
  const [mail] = service.deliveries;
  expect(mail?.to).toEqual(["ops@pawl.example"]);
  expect(mail?.source).toMatch(/Subject: Pawl: one thing needs you in default/);
  expect(mail?.source).toMatch(/- desk: The script failed: Error: no Bcc: all@pawl\.example/);
  expect(mail?.source).not.toMatch(/^Bcc:/m);
});
