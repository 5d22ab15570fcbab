// The contract as others use it: the document is valid OpenAPI, a client made from it compiles and drives a workflow through
// an unknown outcome, and so does ours.
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { CONTRACT } from "../../host/api/contract.ts";
import { PATHS } from "../../host/api/contract-paths.ts";
import { openApi } from "../../host/api/openapi.ts";
import { createClient, PawlProblem } from "../../host/client.ts";
import { worlds } from "../../host/host.ts";
import { ADMIN, closeStands, type Loose, orders, type Stand, stand } from "../support/api-stand.ts";

afterEach(closeStands);

const root = join(import.meta.dirname, "../..");
const document = openApi() as Loose;

/** The outcome of the first call is unknown; nobody can check it. */
const doubtful = () =>
  worlds.memory({
    send: () => ({
      outcome: "unknown",
      class: "transient",
      code: "outcome-unknown",
      message: "no answer",
      raw: "null",
    }),
  });

const unknownRun = (api: Stand): Promise<Loose> =>
  api.until(async () => (await api.ask("GET /inbox?kind=unknown_outcome")).body.items[0]);

describe("the document", () => {
  test("is whole: every call once, every reference leads somewhere, every path parameter is declared", () => {
    const operations: Loose[] = Object.entries<Loose>(document.paths).flatMap(([path, methods]) =>
      Object.entries<Loose>(methods).map(([method, operation]) => ({ path, method, ...operation })),
    );
    expect(document.openapi).toBe("3.1.0");
    const sorted = (names: string[]) => names.toSorted((a, b) => a.localeCompare(b));
    expect(sorted(operations.map((one) => one.operationId as string))).toEqual(sorted(Object.keys(PATHS)));
    expect(sorted(Object.keys(CONTRACT))).toEqual(sorted(Object.keys(PATHS)));
    for (const { path, parameters, responses, operationId } of operations) {
      const inPath = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
      const declared = parameters.filter((one: Loose) => one.in === "path");
      expect([operationId, declared.map((one: Loose) => one.name)]).toEqual([operationId, inPath]);
      expect(declared.every((one: Loose) => one.required && one.schema)).toBe(true);
      expect(Object.keys(responses).every((status) => /^([1-5]\d\d|default)$/.test(status))).toBe(true);
      expect(Object.values<Loose>(responses).every((one) => typeof one.description === "string")).toBe(true);
    }
    const text = JSON.stringify(document);
    const references = new Set([...text.matchAll(/"\$ref":"([^"]+)"/g)].map(([, to = ""]) => to));
    expect(references.size).toBeGreaterThan(10);
    for (const to of references) {
      expect(to).toMatch(/^#\/components\/schemas\/\w+$/);
      expect(document.components.schemas).toHaveProperty(to.split("/").at(-1) as string);
    }
    expect(text).not.toContain("$defs");
  });

  test("and the page to read are served to anybody, and the page loads nothing from elsewhere", async () => {
    const api = await stand();
    expect((await api.ask("GET !/openapi.json", { token: null })).body).toEqual(document);
    const page = await api.ask("GET !/docs", { token: null });
    expect(page.headers.get("content-security-policy")).toMatch(/^default-src 'none'; style-src 'sha256-/);
    expect(page.text).not.toMatch(/<script|<link|src=|@import|https?:\/\//);
    for (const name of Object.keys(PATHS)) expect(page.text).toContain(`id="${name}"`);
  });
});

describe("a client", () => {
  let folder: string;
  beforeAll(() => {
    mkdirSync(join(root, "test-results"), { recursive: true });
    folder = mkdtempSync(join(root, "test-results/client-"));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  test("that openapi-typescript makes compiles, and drives deploy → publish → unknown outcome → resolve → committed", async () => {
    const run = (file: string, args: string[], input = "") =>
      spawnSync(file, args, { cwd: root, input, encoding: "utf8", maxBuffer: 32_000_000 });
    const types = run(process.execPath, ["test/support/openapi-types.mjs"], JSON.stringify(document));
    expect(types.stderr).toBe("");
    writeFileSync(join(folder, "types.ts"), types.stdout);
    writeFileSync(join(folder, "scenario.ts"), SCENARIO);
    writeFileSync(join(folder, "package.json"), '{"type":"module"}');
    symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
    const options = ["--strict", "--noEmit", "--target", "es2024", "--module", "nodenext", "--types", "node"];
    const compiled = run("node_modules/.bin/tsc", [
      ...options,
      "--allowImportingTsExtensions",
      "--skipLibCheck",
      "--ignoreConfig",
      join(folder, "scenario.ts"),
    ]);
    expect(compiled.stdout + compiled.stderr).toBe("");
    const api = await stand({ world: doubtful() });
    const { scenario } = (await import(join(folder, "scenario.ts"))) as { scenario: Scenario };
    const said = await scenario(api.listening.url, ADMIN, orders(), () => unknownRun(api));
    expect(said).toEqual(["created", 1, "unknown", "committed", "applied", "e-1"]);
  });

  test("of ours does the same, and says why something was refused", async () => {
    const api = await stand({ world: doubtful() });
    const pawl = createClient({ url: api.listening.url, token: ADMIN });
    await pawl.deployWorkflow({ params: { name: "orders" }, body: { source: orders() } });
    const params = { name: "orders", topic: "order" };
    await pawl.publishEvents({ params, body: { messageId: "a", payload: { id: "a" } } });
    const item = await unknownRun(api);
    const id = item.run as string;
    const open = await pawl.getRun({ params: { id } });
    expect([open.sentence, open.mutation?.outcome]).toEqual([
      "Waiting for you to say whether it happened: ledger.post",
      "unknown",
    ]);
    const told = await pawl.askConsequences({ params: { id }, body: { action: "applied" } });
    expect(told.words).toContain("The outside change counts as made.");
    const stale = pawl.reconcileRun({ params: { id }, body: { action: "applied", expect: { revision: 0 } } });
    await expect(stale).rejects.toMatchObject({ status: 409, code: "changed" });
    await pawl.reconcileRun({
      params: { id },
      body: { action: "applied", result: { id: "e-1" }, expect: { revision: open.revision } },
    });
    const done = await api.until(async () => {
      const one = await pawl.getRun({ params: { id } });
      return one.status === "committed" ? one : undefined;
    });
    expect(done.resolution).toMatchObject({ action: "applied" });
    const late = await pawl
      .closeRun({ params: { id }, body: { deliveries: "skip", note: "late" } })
      .catch((error) => error);
    expect(late).toBeInstanceOf(PawlProblem);
    expect(late).toMatchObject({
      status: 409,
      code: "wrong_state",
      body: { error: { first: { action: "run.applied" } } },
    });
    expect((await pawl.listEvents({ params: { name: "orders", topic: "booked" } })).items).toHaveLength(1);
  });
});

type Scenario = (
  url: string,
  token: string,
  source: string,
  waiting: () => Promise<Loose>,
) => Promise<unknown[]>;

const SCENARIO = `
import createClient from "openapi-fetch";
import type { paths } from "./types.ts";

export async function scenario(url: string, token: string, source: string, waiting: () => Promise<{ run?: string }>) {
  const api = createClient<paths>({ baseUrl: url, headers: { authorization: \`Bearer \${token}\` } });
  const deployed = await api.PUT("/api/v1/workflows/{name}", { params: { path: { name: "orders" } }, body: { source } });
  if (!deployed.data) throw new Error(deployed.error.error.message);
  const published = await api.POST("/api/v1/workflows/{name}/topics/{topic}/events", {
    params: { path: { name: "orders", topic: "order" } },
    body: { messageId: "a", payload: { id: "a" } },
  });
  const id = (await waiting()).run ?? "";
  const path = { params: { path: { id } } };
  const open = (await api.GET("/api/v1/runs/{id}", path)).data;
  const answered = await api.POST("/api/v1/runs/{id}/reconcile", { ...path, body: { action: "applied", result: { id: "e-1" } } });
  if (answered.error) throw new Error(answered.error.error.code);
  for (;;) {
    const run = (await api.GET("/api/v1/runs/{id}", path)).data;
    if (run?.status !== "committed") continue;
    const result = run.mutation?.result as { id: string };
    return [deployed.data.outcome, published.data?.created, open?.mutation?.outcome, run.status, run.mutation?.outcome, result.id];
  }
}
`;
