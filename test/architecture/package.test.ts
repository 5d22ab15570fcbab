// What must hold for `npm ci` on an empty machine: exact versions, one bundled Node per platform, no install
// scripts, and a lockfile that works with whichever registry the reader has.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { repoRoot } from "./source.ts";

type Manifest = Record<"dependencies" | "devDependencies" | "optionalDependencies", Record<string, string>>;
type Lock = {
  packages: Record<
    string,
    { version?: string; resolved?: string; optional?: boolean; optionalDependencies?: object }
  >;
};

const read = (file: string) => readFileSync(join(repoRoot, file), "utf8");
const manifest = JSON.parse(read("package.json")) as Manifest;
const lock = JSON.parse(read("package-lock.json")) as Lock;

test("every dependency is pinned to one version", () => {
  const all = { ...manifest.dependencies, ...manifest.devDependencies, ...manifest.optionalDependencies };
  const loose = Object.entries(all).filter(([, range]) => !/^(npm:[\w./@-]+@)?\d+\.\d+\.\d+$/.test(range));
  expect(Object.keys(all).length).toBeGreaterThan(10);
  expect(loose).toEqual([]);
});

test("one Node release is pinned for five platforms, and the lockfile lists each as optional", () => {
  const nodes = Object.entries(manifest.optionalDependencies);
  expect(nodes.length).toBe(5);
  expect(new Set(nodes.map(([, version]) => version)).size).toBe(1);
  for (const [name, version] of nodes) {
    expect(lock.packages[`node_modules/${name}`]).toMatchObject({ version, optional: true });
  }
});

test("tests run on the Node that is pinned", () => {
  expect(process.version).toBe(`v${Object.values(manifest.optionalDependencies)[0]}`);
});

test("the lockfile lists the platform packages of every tool, or npm ci would refuse it elsewhere", () => {
  const missing = Object.values(lock.packages)
    .flatMap((entry) => Object.keys(entry.optionalDependencies ?? {}))
    .filter((name) => lock.packages[`node_modules/${name}`] === undefined);
  expect(missing, "run: node .ci/complete-lock.mjs").toEqual([]);
});

test("the lockfile names no registry", () => {
  const resolved = Object.entries(lock.packages).filter(([, entry]) => entry.resolved !== undefined);
  expect(resolved).toEqual([]);
  expect(read(".npmrc")).not.toMatch(/^(.*:)?registry=/m);
});

test("installing runs no scripts", () => {
  expect(read(".npmrc")).toMatch(/^ignore-scripts=true$/m);
});
