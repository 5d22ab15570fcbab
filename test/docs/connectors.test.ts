// The examples of the connectors' pages are true: the configs fit, and the scripts pass the check of an upload.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, test } from "vitest";
import { Registry } from "../../host/connectors/registry.ts";

const PAWL = fileURLToPath(new URL("../../bin/pawl", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "pawl-docs-"));
afterAll(() => rmSync(folder, { recursive: true }));

const pages = ["smtp", "feed", "file"];
const blocks = (page: string, language: string): string[] => {
  const text = readFileSync(new URL(`../../docs/connectors/${page}.md`, import.meta.url), "utf8");
  return [...text.matchAll(new RegExp(`\`\`\`${language}\\n([\\s\\S]*?)\`\`\``, "g"))].map(
    ([, block = ""]) => block,
  );
};

test.each(pages)("the config on the page of %s fits the connector", (page) => {
  const examples = blocks(page, "json");
  expect(examples).toHaveLength(1);
  expect(new Registry().get(page)?.config.safeParse(JSON.parse(examples[0] ?? "")).error).toBeUndefined();
});

test.each(pages)("the script on the page of %s passes the check of an upload, without a warning", (page) => {
  const [script = ""] = blocks(page, "ts");
  const path = join(folder, `${page}.ts`);
  writeFileSync(path, script);
  const said = execFileSync(process.execPath, [PAWL, "check", path], {
    encoding: "utf8",
    env: { ...process.env, NO_COLOR: "1" },
  });
  expect(said.trim()).toBe(`ok  ${path}`);
});
