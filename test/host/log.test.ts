import { describe, expect, test } from "vitest";
import { openLog } from "../../host/system/log.ts";
import { Redactor } from "../../host/system/redactor.ts";

const SECRET = 'pa"ss/wörd+1?';

function lines(...secrets: string[]) {
  const redactor = new Redactor();
  for (const secret of secrets) redactor.register(secret);
  const written: string[] = [];
  const log = openLog({ level: "debug", redactor, write: (line) => written.push(line) });
  return { log, written, redactor };
}

describe("(G1) a registered secret is hidden wherever it stands", () => {
  const around = (form: string) => ({ deep: [{ header: `Bearer ${form};` }], [`key ${form}`]: 1 });

  test.each([
    ["plain", SECRET],
    ["base64", Buffer.from(SECRET).toString("base64")],
    ["base64url", Buffer.from(SECRET).toString("base64url")],
    ["base64 after one byte", Buffer.from(`a${SECRET}zz`).toString("base64")],
    ["base64 after two bytes", Buffer.from(`ab${SECRET}z`).toString("base64")],
    ["basic authentication", Buffer.from(`user:${SECRET}`).toString("base64")],
    ["URL-encoded", encodeURIComponent(SECRET)],
    ["URL-encoded in lower case", encodeURIComponent(SECRET).replace(/%../g, (hex) => hex.toLowerCase())],
  ])("%s", (_, form) => {
    const { log, written } = lines(SECRET);
    log.write("error", `upstream said ${form}`, around(form));
    const inner = form.slice(6, 14);
    expect(written).toHaveLength(1);
    expect(written[0]).toContain("[redacted]");
    expect(written[0]).not.toContain(inner);
    expect(JSON.parse(written[0] ?? "")).toMatchObject({ level: "error" });
  });

  test("one that is registered later", () => {
    const { log, written, redactor } = lines();
    log.write("info", "abcdefgh");
    redactor.register("abcdefgh");
    log.write("info", "abcdefgh");
    expect(written.map((line) => (JSON.parse(line) as { msg: string }).msg)).toEqual([
      "abcdefgh",
      "[redacted]",
    ]);
  });
});

describe("(G2) a line stays one JSON document", () => {
  test.each(['","', "1234567", '"msg"', "\\u00", "level", "}{}{"])("with the secret %s", (secret) => {
    const { log, written } = lines(secret);
    log.write("warn", `a ${secret} b`, { run: "run_1", attempt: 1_234_567, nested: { [secret]: secret } });
    const line = JSON.parse(written[0] ?? "") as { msg?: string };
    expect(JSON.stringify(line.msg ?? "")).not.toContain(secret);
    expect(written[0]).not.toContain("\n");
  });
});

test("(G3) a sink that throws changes nothing", () => {
  const log = openLog({
    level: "info",
    redactor: new Redactor(),
    write: () => {
      throw new Error("disk full");
    },
  });
  expect(() => log.write("info", "hello")).not.toThrow();
});

test("an empty or tiny secret hides nothing", () => {
  const { log, written } = lines("", "a", "abc");
  log.write("info", "abc");
  expect(written[0]).toContain('"msg":"abc"');
});
