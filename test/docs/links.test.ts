import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";

const root = fileURLToPath(new URL("../../", import.meta.url));
const pages = globSync(["*.md", "docs/**/*.md"], { cwd: root });

describe("every page", () => {
  test.each(pages)("%s links only to what exists", (page) => {
    const text = readFileSync(join(root, page), "utf8");
    const targets = [...text.matchAll(/\]\((?!https?:|#)([^)#\s]+)/g)].map((match) => match[1] as string);
    expect(targets.filter((target) => !existsSync(join(root, dirname(page), target)))).toEqual([]);
  });
});

test("docs/concepts/coverage.md names only tests that exist", () => {
  const text = readFileSync(join(root, "docs/concepts/coverage.md"), "utf8");
  const named = [...text.matchAll(/`(test\/[^`]+)`/g)].map((match) => match[1] as string);
  expect(named.length).toBeGreaterThan(10);
  expect(named.filter((path) => !existsSync(join(root, path)))).toEqual([]);
});
