import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { loadConfig } from "../../host/config.ts";

let cwd: string;
beforeEach(() => {
  cwd = mkdtempSync(join(tmpdir(), "pawl-config-"));
});
afterEach(() => rmSync(cwd, { recursive: true }));

const load = (flags = {}, env = {}, file?: string) => loadConfig({ flags, env, cwd, file });

test("without anything there are defaults", async () => {
  expect(await load()).toEqual({
    data: "./pawl-data",
    slots: 16,
    minIntervalMs: 30_000,
    logLevel: "info",
    durability: "barrier",
    policies: [],
    bindings: {},
    connections: {},
    connectors: [],
    grants: {},
    listen: "127.0.0.1",
    port: 7_420,
    trustProxy: false,
  });
});

test("(N1) flag over environment over file, field by field", async () => {
  writeFileSync(join(cwd, "pawl.config.json"), JSON.stringify({ data: "file", slots: 2, scripts: "file" }));
  const env = { PAWL_DATA: "env", PAWL_SLOTS: "3" };
  expect(await load({ data: "flag" }, env)).toMatchObject({ data: "flag", slots: 3, scripts: "file" });
});

test("the file may be TypeScript, and may be named", async () => {
  const source =
    'const slots: number = 5;\nexport default { slots, policies: [{ match: "default", policy: { maxRetries: 1 } }] };';
  writeFileSync(join(cwd, "other.ts"), source);
  const config = await load({}, {}, "other.ts");
  expect(config.slots).toBe(5);
  expect(config.policies).toEqual([{ match: "default", policy: { maxRetries: 1 } }]);
});

test("the master key comes from the environment, and is refused in a file without being repeated", async () => {
  expect(await load({}, { PAWL_MASTER_KEY: "k" })).toMatchObject({ masterKey: "k" });
  writeFileSync(join(cwd, "pawl.config.json"), JSON.stringify({ masterKey: "canary" }));
  await expect(load()).rejects.toThrow(/^pawl\.config\.json: masterKey [^y]*; set PAWL_MASTER_KEY$/);
});

describe("(N2) what cannot be used is refused, with its name and origin", () => {
  test.each([
    ["a bad flag", { slots: "many" }, {}, {}, /^--slots: /],
    ["a bad variable", {}, { PAWL_MIN_INTERVAL_MS: "-1" }, {}, /^PAWL_MIN_INTERVAL_MS: /],
    ["an unknown variable", {}, { PAWL_SLOT: "3" }, {}, /PAWL_SLOT means nothing; did you mean PAWL_SLOTS\?/],
    ["an unknown field", {}, {}, { slot: 3 }, /pawl\.config\.json: slot means nothing; did you mean slots\?/],
    ["a bad field", {}, {}, { slots: 0 }, /^pawl\.config\.json: /],
    ["a bad policy", {}, {}, { policies: [{ match: "default", policy: { maxRetry: 1 } }] }, /maxRetry/],
  ] as [string, object, Record<string, string>, object, RegExp][])(
    "%s",
    async (_, flags, env, file, said) => {
      writeFileSync(join(cwd, "pawl.config.json"), JSON.stringify(file));
      await expect(load(flags, env)).rejects.toThrow(said);
    },
  );

  test("a file that is not there, no object, or no code", async () => {
    await expect(load({}, {}, "missing.ts")).rejects.toThrow("there is no file missing.ts");
    writeFileSync(join(cwd, "a.mjs"), "export default 3");
    await expect(load({}, {}, "a.mjs")).rejects.toThrow("no default export of an object");
    writeFileSync(join(cwd, "b.mjs"), "export default {");
    await expect(load({}, {}, "b.mjs")).rejects.toThrow("b.mjs cannot be read");
  });
});
