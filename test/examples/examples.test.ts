// The scripts we show to authors: type-checked by both compilers, checked as an upload, and executed in the real sandbox
// on their fixtures, each handler with exactly the outcome that its fixture expects.
import { readdirSync, readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { HostAnswer, Sandbox, SandboxCall, Scope, Script } from "../../host/ports/sandbox.ts";
import { compileScript } from "../../host/sandbox/compile.ts";
import { openPool } from "../../host/sandbox/pool.ts";
import { compileWithBoth, type Findings } from "../sandbox-api/compilers.ts";

interface Event {
  messageId: string;
  payload: unknown;
  publishedAt?: string;
}

interface HandlerFixture {
  state?: unknown;
  pending?: Record<string, Event[]>;
  answers?: { call: string; result: unknown }[];
  outcome?: unknown;
  expect: {
    intent?: string;
    reservations?: { topic: string; ids: string[] }[];
    publishes?: { topic: string; messageId: string }[];
    state?: unknown;
  };
}

interface Fixture {
  now: string;
  params?: Record<string, unknown>;
  handlers: Record<string, HandlerFixture>;
}

const folder = new URL("../../scripts-examples/", import.meta.url);
const names = readdirSync(folder)
  .filter((name) => name.endsWith(".ts"))
  .map((name) => name.slice(0, -3));
const sourceOf = (name: string) => readFileSync(new URL(`${name}.ts`, folder), "utf8");
const fixtureOf = (name: string) =>
  JSON.parse(readFileSync(new URL(`${name}.fixture.json`, folder), "utf8")) as Fixture;
const handlers = names.flatMap((name) =>
  Object.keys(fixtureOf(name).handlers).map((handler): [string, string] => [name, handler]),
);

async function load(name: string): Promise<Script> {
  const made = await compileScript({
    source: sourceOf(name),
    language: "ts",
    file: `${name}.ts`,
    name,
    nowMs: Date.parse(fixtureOf(name).now),
  });
  expect(made.problems).toEqual([]);
  if (!made.ok) throw new Error("refused");
  return { ...made.script, namespace: "examples", version: 1 };
}

let sandbox: Sandbox;
beforeAll(() => {
  sandbox = openPool({ childrenPerNamespace: 1 });
});
afterAll(async () => {
  await sandbox[Symbol.asyncDispose]();
});

/** Runs a handler on its fixture, through all its phases; the answers must be asked for in their order, to the last. */
async function execute(
  script: Script,
  handler: string,
  fixture: Fixture,
  given: HandlerFixture,
  scope: Scope = "auto",
) {
  const nowMs = Date.parse(fixture.now);
  const left = [...(given.answers ?? [])];
  const answer = async ({ name, args }: { name: string; args: string }): Promise<HostAnswer> => {
    const { topic = "", limit, ids } = JSON.parse(args) as { topic?: string; limit?: number; ids?: string[] };
    const pending = given.pending?.[topic] ?? [];
    const ok = (value: unknown): HostAnswer => ({ ok: true, value: JSON.stringify(value), nowMs });
    if (name === "peek") return ok(pending.slice(0, limit));
    if (name === "getByIds") return ok(pending.filter((one) => ids?.includes(one.messageId)));
    const next = left.shift();
    if (next?.call === name) return ok(next.result);
    return { ok: false, class: "internal", code: "unexpected", message: `${name} instead of ${next?.call}` };
  };
  const run = async (call: SandboxCall) => {
    const result = await sandbox.run(call, answer);
    if (result.status !== "done") throw new Error(JSON.stringify(result.error));
    return result;
  };
  const producer = Object.hasOwn(script.manifest.producers, handler);
  const call: SandboxCall = {
    script,
    unit: producer ? "producer" : "prepare+mutate",
    handler,
    run: { id: "run_1", attempt: 1 },
    nowMs,
    seed: "examples",
    scope,
    params: JSON.stringify(fixture.params ?? {}),
    ...(given.state === undefined ? {} : { state: JSON.stringify(given.state) }),
  };
  const first = await run(call);
  const last =
    !producer && script.manifest.consumers[handler]?.hasNext
      ? await run({
          ...call,
          unit: "next",
          prepared: first.prepared?.json ?? "{}",
          outcome: JSON.stringify(first.intent ? given.outcome : { status: "none" }),
        })
      : first;
  return { first, last, left };
}

test("there are at least six, each with a fixture for every handler", async () => {
  expect(names.length).toBeGreaterThanOrEqual(6);
  for (const name of names) {
    const { manifest } = await load(name);
    expect(Object.keys(fixtureOf(name).handlers).toSorted()).toEqual(
      [...Object.keys(manifest.producers), ...Object.keys(manifest.consumers)].toSorted(),
    );
  }
});

describe("executed on its fixture", () => {
  test.each(handlers)("%s: %s", async (name, handler) => {
    const script = await load(name);
    const fixture = fixtureOf(name);
    const given = fixture.handlers[handler] as HandlerFixture;
    const { first, last, left } = await execute(script, handler, fixture, given);
    const wanted = given.expect;
    expect(first.intent && `${first.intent.alias}.${first.intent.tool}`).toBe(wanted.intent);
    expect(first.prepared?.reservations ?? []).toEqual(wanted.reservations ?? []);
    expect(last.publishes.map(({ topics, messageId }) => ({ topic: topics.join(), messageId }))).toEqual(
      wanted.publishes ?? [],
    );
    expect(last.state === undefined ? undefined : JSON.parse(last.state)).toEqual(wanted.state);
    expect(left).toEqual([]);
    const titled = /\S/.test(first.prepared?.title ?? "");
    expect(first.intent === undefined || titled).toBe(true);
  });

  test.each(handlers)("%s: %s gives the same again, in both scopes", async (name, handler) => {
    const script = await load(name);
    const fixture = fixtureOf(name);
    const given = fixture.handlers[handler] as HandlerFixture;
    const seen = [];
    for (const scope of ["fresh", "frozen"] as const) {
      const { first, last } = await execute(script, handler, fixture, given, scope);
      seen.push([first.prepared, first.intent, last.publishes, last.state]);
    }
    expect(seen[0]).toEqual(seen[1]);
  });
});

describe("when there is nothing to do", () => {
  const consumers = handlers.filter(([name, handler]) => sourceOf(name).includes(`${handler}: consumer(`));

  test.each(consumers)("%s: %s reserves and changes nothing", async (name, handler) => {
    const { first } = await execute(await load(name), handler, fixtureOf(name), { expect: {} });
    expect(first.prepared?.reservations).toEqual([]);
    expect(first.intent).toBeUndefined();
  });

  test("daily-digest: before its hour it asks to be woken then", async () => {
    const fixture = fixtureOf("daily-digest");
    const { first } = await execute(
      await load("daily-digest"),
      "digest",
      { ...fixture, now: "2026-01-04T16:00:00.000Z" },
      {
        pending: {
          "ticket.opened": [...(fixture.handlers["digest"]?.pending?.["ticket.opened"] ?? [])].slice(0, 1),
        },
        expect: {},
      },
    );
    expect(first.intent).toBeUndefined();
    expect(first.prepared?.reservations).toEqual([]);
    expect(first.prepared?.wakeAt).toBe("2026-01-05T08:00:00.000Z");
  });
});

describe("types", () => {
  let found: { v6: Findings; v7: Findings };
  beforeAll(async () => {
    const sources = new Map(names.map((name) => [`${name}.ts`, sourceOf(name)]));
    sources.set(
      "broken.ts",
      sourceOf("daily-digest").replace('publishes: ["ticket.opened"]', 'publishes: ["ticket.open"]'),
    );
    found = await compileWithBoth(sources);
  }, 120_000);

  test.each(names)("%s has no type error", (name) => {
    expect(found.v6.get(`${name}.ts`)).toBeUndefined();
    expect(found.v7.get(`${name}.ts`)).toBeUndefined();
  });

  test("the check can see one, and there is no other", () => {
    expect([...found.v6.keys()]).toEqual(["broken.ts"]);
    expect([...found.v7.keys()]).toEqual(["broken.ts"]);
  });
});
