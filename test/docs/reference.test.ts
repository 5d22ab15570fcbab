import { readFileSync, writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import { apiPage, errorsPage, frozenPage, limitsPage, policiesPage } from "./generated.ts";

const PAGES = {
  "limits.md": limitsPage,
  "frozen.md": frozenPage,
  "errors.md": errorsPage,
  "policies.md": policiesPage,
  "api.md": apiPage,
};

test.each(Object.entries(PAGES))("docs/reference/%s says what the code does", (name, page) => {
  const file = new URL(`../../docs/reference/${name}`, import.meta.url);
  if (process.env["PAWL_GOLDEN"] === "write") writeFileSync(file, page());
  expect(readFileSync(file, "utf8")).toBe(page());
});
