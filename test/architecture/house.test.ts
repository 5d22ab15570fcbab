import { describe, expect, test } from "vitest";
import { check, type Violation } from "./rules.ts";
import { factsOf, readModules } from "./source.ts";

const show = (found: Violation[]) => found.map((v) => `${v.path}:${v.line} ${v.rule}: ${v.message}`);
const rulesBroken = (path: string, source: string) => check([{ path, source }]).map((v) => v.rule);

describe("the house as it stands", () => {
  const modules = readModules(["host", "sandbox-api", "console"]);

  test("the checker sees modules and imports, so an empty report means something", () => {
    expect(modules.length).toBeGreaterThan(5);
    expect(modules.flatMap((module) => factsOf(module).imports).length).toBeGreaterThan(5);
    expect(modules.some((module) => module.path.startsWith("host/"))).toBe(true);
    expect(modules.some((module) => module.path.startsWith("sandbox-api/"))).toBe(true);
  });

  test("no file breaks a rule", () => {
    expect(show(check(modules))).toEqual([]);
  });
});

describe("directions: a planted import is reported", () => {
  const forbidden: [from: string, specifier: string][] = [
    ["host/core/run.ts", "../ports/store.ts"],
    ["host/core/run.ts", "../engine/executor.ts"],
    ["host/ports/store.ts", "../engine/executor.ts"],
    ["host/engine/executor.ts", "../store/open.ts"],
    ["host/engine/executor.ts", "../sandbox/pool.ts"],
    ["host/engine/executor.ts", "../api/contract.ts"],
    ["host/store/open.ts", "../sandbox/pool.ts"],
    ["host/store/open.ts", "../engine/executor.ts"],
    ["host/sandbox/pool.ts", "../connectors/http.ts"],
    ["host/sandbox/pool.ts", "../engine/bridge.ts"],
    ["host/sandbox/isolate.ts", "../../sandbox-api/prelude.ts"],
    ["host/connectors/http.ts", "../system/clock.ts"],
    ["host/system/log.ts", "../store/open.ts"],
    ["host/api/server.ts", "../store/open.ts"],
    ["host/api/server.ts", "../sandbox/pool.ts"],
    ["host/api/contract.ts", "./server.ts"],
    ["host/cli/main.ts", "../store/open.ts"],
    ["host/cli/main.ts", "../sandbox/pool.ts"],
    ["host/cli/main.ts", "../api/server.ts"],
    ["host/config.ts", "./engine/executor.ts"],
    ["host/host.ts", "./index.ts"],
    ["host/index.ts", "./sandbox/pool.ts"],
    ["host/engine/executor.ts", "../host.ts"],
    ["host/testing.ts", "./host.ts"],
    ["host/testing/contract.ts", "../store/open.ts"],
    ["host/host.ts", "./testing/contract.ts"],
    ["host/index.ts", "./testing.ts"],
    ["sandbox-api/index.ts", "../host/core/run.ts"],
    ["sandbox-api/index.ts", "../package.json"],
    ["console/app.ts", "../host/engine/operator.ts"],
    ["console/app.ts", "../host/api/contract.ts"],
    ["host/core/run.ts", "../attic/run.ts"],
  ];

  test.each(forbidden)("%s may not import %s", (from, specifier) => {
    expect(rulesBroken(from, `import { x } from "${specifier}";`)).toEqual(["direction"]);
  });

  test.each([
    ["import type", `import type { X } from "../store/open.ts";`],
    ["import of nothing", `import "../store/open.ts";`],
    ["export from", `export { x } from "../store/open.ts";`],
    ["export all", `export * from "../store/open.ts";`],
    ["dynamic import", `const load = () => import("../store/open.ts");`],
    ["template import", "const load = () => import(`../store/open.ts`);"],
    ["import in a type", `type X = import("../store/open.ts").X;`],
    ["require", `const x = require("../store/open.ts");`],
  ])("an %s counts as an import", (_form, source) => {
    expect(rulesBroken("host/engine/executor.ts", source)).toContain("direction");
  });

  test("an import that stands in a comment or a string does not count", () => {
    const source = `// import "../store/open.ts"\nconst text = 'import "../store/open.ts"';`;
    expect(rulesBroken("host/engine/executor.ts", source)).toEqual([]);
  });

  test("a folder nobody declared belongs to no zone", () => {
    expect(rulesBroken("host/attic/run.ts", "export const x = 1;")).toEqual(["direction"]);
  });

  test("a name computed at run time is refused", () => {
    const source = "export const load = (name: string) => import(name);";
    expect(rulesBroken("host/store/open.ts", source)).toEqual(["computed-import"]);
    expect(rulesBroken("host/config.ts", source)).toEqual([]);
  });

  test.each([
    ["host/ports/store.ts", "../core/run.ts"],
    ["host/engine/executor.ts", "../ports/store.ts"],
    ["host/store/sqlite/apply.ts", "../rows.ts"],
    ["host/sandbox/pool.ts", "../ports/sandbox.ts"],
    ["host/api/routes/runs.ts", "../contract.ts"],
    ["host/cli/main.ts", "../host.ts"],
    ["host/host.ts", "./sandbox/pool.ts"],
    ["host/index.ts", "../sandbox-api/index.ts"],
  ])("%s may import %s", (from, specifier) => {
    expect(show(check([{ path: from, source: `import { x } from "${specifier}";` }]))).toEqual([]);
  });

  test("console may import the types of the contract", () => {
    const source = `import type { Run } from "../host/api/contract.ts";`;
    expect(rulesBroken("console/app.ts", source)).toEqual([]);
  });
});

describe("packages: a planted import is reported", () => {
  test.each([
    ["host/core/run.ts", "node:fs"],
    ["host/core/run.ts", "fs"],
    ["host/core/run.ts", "zod"],
    ["host/core/schedule.ts", "croner"],
    ["host/core/cron.ts", "zod"],
    ["host/ports/clock.ts", "node:timers"],
    ["host/engine/executor.ts", "node:crypto"],
    ["host/store/open.ts", "isolated-vm"],
    ["host/sandbox/pool.ts", "commander"],
    ["host/cli/main.ts", "pawl"],
    ["sandbox-api/index.ts", "node:util"],
    ["sandbox-api/index.ts", "zod"],
    ["console/app.ts", "pawl"],
    ["console/app.ts", "node:fs"],
  ])("%s may not import %s", (from, specifier) => {
    expect(rulesBroken(from, `import x from "${specifier}";`)).toEqual(["package"]);
  });

  test("croner is allowed in cron.ts, and there only", () => {
    expect(rulesBroken("host/core/cron.ts", `import { Cron } from "croner";`)).toEqual([]);
  });
});

describe("habits: a planted breach is reported", () => {
  test.each(["utils", "helpers", "common", "manager", "service", "types", "base", "run-helpers"])(
    "a file may not be called %s.ts",
    (stem) => {
      expect(rulesBroken(`host/core/${stem}.ts`, "export const x = 1;")).toEqual(["name"]);
    },
  );

  test.each([
    "host/core/runState.ts",
    "host/core/run_state.ts",
    "host/core/Run.ts",
    "host/engine/Loops/run.ts",
  ])("%s is not kebab-case", (path) => {
    expect(rulesBroken(path, "export const x = 1;")).toEqual(["name"]);
  });

  test("a folder may not be called utils either", () => {
    expect(rulesBroken("host/core/utils/run.ts", "export const x = 1;")).toEqual(["name"]);
  });

  test.each(["host/store/rows.ts", "sandbox-api/index.ts"])("%s may have 400 lines and not 401", (path) => {
    const line = "export {};\n";
    expect(rulesBroken(path, line.repeat(400))).toEqual([]);
    expect(rulesBroken(path, line.repeat(401))).toEqual(["length"]);
  });

  test.each([
    "Date.now()",
    "globalThis.Date.now()",
    "new Date()",
    "Date()",
    "Math.random()",
    "performance.now()",
    "setTimeout(() => {}, 1)",
    "setInterval(() => {}, 1)",
    "crypto.randomUUID()",
  ])("core and engine may not say %s", (expression) => {
    const source = `export const x = () => ${expression};`;
    expect(rulesBroken("host/core/run.ts", source)).toEqual(["clock"]);
    expect(rulesBroken("host/engine/scheduler.ts", source)).toEqual(["clock"]);
    expect(rulesBroken("host/system/clock.ts", source)).toEqual([]);
  });

  test("core may turn a recorded time into a date", () => {
    expect(rulesBroken("host/core/sentence.ts", "export const x = (ms: number) => new Date(ms);")).toEqual(
      [],
    );
  });

  test("core may not be async; engine may", () => {
    const source = "export async function x(): Promise<void> {}";
    expect(rulesBroken("host/core/run.ts", source)).toEqual(["async"]);
    expect(rulesBroken("host/engine/executor.ts", source)).toEqual([]);
  });
});
