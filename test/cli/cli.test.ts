// The command as a user runs it: bin/pawl in a folder of the user's own, judged by exit code, stdout and stderr.
import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));
const bin = join(root, "bin/pawl");
const examples = join(root, "scripts-examples");
let folder: string;

interface Ended {
  code: number;
  out: string;
  err: string;
}

function pawl(...args: string[]): Promise<Ended> {
  return new Promise((resolve) => {
    const child = execFile(
      process.execPath,
      [bin, ...args],
      { cwd: folder, env: { PATH: process.env["PATH"] ?? "" }, maxBuffer: 1 << 26 },
      (_, out, err) => resolve({ code: child.exitCode ?? -1, out, err }),
    );
  });
}

const write = (name: string, content: string | Uint8Array) => {
  writeFileSync(join(folder, name), content);
  return name;
};

const GOOD = `import { producer, topic, workflow } from "pawl";
export default workflow({
  name: "good",
  topics: { a: topic({ output: true }) },
  producers: {
    p: producer({
      schedule: { interval: "5m" },
      publishes: ["a"],
      handler(ctx) { ctx.publish("a", { messageId: "1", payload: { n: 1 } }); },
    }),
  },
});
`;
const BROKEN = GOOD.replace('"5m"', '"5 minutes"');
const THROWS = GOOD.replace('ctx.publish("a", {', 'const total: number = missing + 1; ctx.publish("a", {');

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "pawl-cli-"));
  mkdirSync(join(folder, "empty"));
  mkdirSync(join(folder, "mixed"));
  mkdirSync(join(folder, "mixed", "folder.ts"));
  write("good.ts", GOOD);
  write("plain.mjs", GOOD);
  write("broken.ts", BROKEN);
  write("throws.ts", THROWS);
  write("notes.txt", "hello");
  write("binary.ts", Uint8Array.of(0x7f, 0x45, 0x4c, 0x46, 0, 1, 2, 0xff, 0xfe));
  write("nul.ts", "const a = 1;\0");
  write("mixed/a.ts", GOOD);
  write("mixed/b.ts", BROKEN);
  write("mixed/a.test.ts", "not a script");
  write("mixed/types.d.ts", "not a script");
  write("mixed/README.md", "not a script");
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Expected ends are told, not thrown: no stack of the host. */
const expectNoStack = ({ out, err }: Ended) => expect(out + err).not.toMatch(/\n\s+at .*(node:|host\/)/);

describe("usage", () => {
  test("--help lists every command on stdout", async () => {
    const ended = await pawl("--help");
    expect(ended.code).toBe(0);
    for (const word of ["preview", "check", "doctor", "version", "--help"]) expect(ended.out).toContain(word);
    expect(ended.err).toBe("");
  });

  test.each(["preview", "check", "doctor"])("%s --help tells of --json", async (command) => {
    const ended = await pawl(command, "--help");
    expect(ended.code).toBe(0);
    expect(ended.out).toContain("--json");
  });

  test.each([["--version"], ["-v"], ["version"]])("%s", async (word) => {
    const ended = await pawl(word);
    expect(ended).toEqual({ code: 0, out: "0.1.0\n", err: "" });
  });

  test.each([
    ["no command", [], /Usage: pawl/],
    ["an unknown command", ["nope"], /unknown command 'nope'/],
    ["a command with a slip", ["chekc", "good.ts"], /Did you mean check/],
    ["an unknown flag", ["check", "--nope", "good.ts"], /unknown option '--nope'/],
    ["no path", ["check"], /missing required argument 'path'/],
    ["an argument too many", ["doctor", "now"], /too many arguments/],
  ] as [string, string[], RegExp][])("%s is usage: 2, and stdout stays empty", async (_, args, said) => {
    const ended = await pawl(...args);
    expect(ended.code).toBe(2);
    expect(ended.out).toBe("");
    expect(ended.err).toMatch(said);
    expectNoStack(ended);
  });
});

describe.each(["check", "preview"])("%s of what is not there", (command) => {
  test.each([
    ["a missing file", "missing.ts", 3, "there is no file or folder missing.ts"],
    ["a missing folder", "nowhere/at/all", 3, "there is no file or folder nowhere/at/all"],
    ["an empty folder", "empty", 3, "no scripts (.ts or .js) in empty"],
    ["a file of another kind", "notes.txt", 2, "notes.txt is not a script: give a .ts or .js file"],
    ["a binary file", "binary.ts", 6, "binary.ts is not text in UTF-8: save it as UTF-8"],
    [
      "a file name that paints the terminal",
      "\u001b[31mred\u202e.ts",
      3,
      "there is no file or folder  [31mred .ts",
    ],
  ])("%s", async (_, path, code, said) => {
    const ended = await pawl(command, path);
    expect(ended).toEqual({ code, out: "", err: `pawl: ${said}\n` });
  });
});

describe("check", () => {
  test("good scripts, TypeScript and JavaScript", async () => {
    const ended = await pawl("check", "good.ts", "plain.mjs");
    expect(ended).toEqual({ code: 0, out: "ok  good.ts\nok  plain.mjs\n", err: "" });
  });

  test("a broken script: the error at its line, the lines around it, what to do; 6", async () => {
    const ended = await pawl("check", "broken.ts");
    expect(ended.code).toBe(6);
    expect(ended.out).toBe(
      [
        'error bad-interval  broken.ts:7:19  cannot read the interval "5 minutes"',
        "  5 |   producers: {",
        "  6 |     p: producer({",
        '> 7 |       schedule: { interval: "5 minutes" },',
        "    |                   ^",
        '  8 |       publishes: ["a"],',
        '  hint: Write it like "30s", "5m", "2h" or "1d".',
        "",
      ].join("\n"),
    );
  });

  test("a folder: every script in it and nothing else; one broken makes 6", async () => {
    const ended = await pawl("check", "mixed");
    expect(ended.code).toBe(6);
    expect(ended.out).toContain(`ok  ${join("mixed", "a.ts")}`);
    expect(ended.out).toContain(`${join("mixed", "b.ts")}:7:19`);
    expect(ended.out).not.toMatch(/test\.ts|d\.ts|README|folder\.ts/);
  });

  test("a warning is shown and does not fail", async () => {
    write("warns.ts", GOOD.replace("topics: {", "topics: { unused: topic({ output: true }),"));
    const ended = await pawl("check", "warns.ts");
    expect(ended.code).toBe(0);
    expect(ended.out).toContain("ok  warns.ts");
    expect(ended.out).toContain("warning unused-topic  warns.ts:4:13");
  });

  test("a NUL in the file is named by its place", async () => {
    const ended = await pawl("check", "nul.ts");
    expect(ended.code).toBe(6);
    expect(ended.out).toContain("script-encoding  nul.ts:1:13");
  });

  test("--json: one document with every file and problem, and the same exit code", async () => {
    const ended = await pawl("check", "--json", "good.ts", "broken.ts");
    expect(ended.code).toBe(6);
    expect(ended.err).toBe("");
    expect(JSON.parse(ended.out)).toEqual([
      { file: "good.ts", ok: true, problems: [] },
      {
        file: "broken.ts",
        ok: false,
        problems: [
          {
            severity: "error",
            code: "bad-interval",
            message: 'cannot read the interval "5 minutes"',
            hint: 'Write it like "30s", "5m", "2h" or "1d".',
            location: { line: 7, column: 19 },
          },
        ],
      },
    ]);
  });
});

describe("preview", () => {
  test("the examples: what each would publish, change and keep", async () => {
    const ended = await pawl("preview", examples);
    expect(ended.code).toBe(0);
    expect(ended.err).toBe("");
    for (const said of [
      "would publish    order.new  o-101",
      "would change     ledger.post",
      "would reserve    order.new  o-101",
      'would keep       {"cursor":"c2"}',
      "script says: ",
      "would register   ",
    ])
      expect(ended.out).toContain(said);
    expect(ended.out).not.toContain("failed");
    expect(ended.out.includes("\u001b")).toBe(false);
  });

  test("one file without a fixture", async () => {
    const ended = await pawl("preview", "good.ts");
    expect(ended).toEqual({
      code: 0,
      out: 'good.ts\n  producer p\n    would publish    a  1  {"n":1}\n',
      err: "",
    });
  });

  test("a script that is refused: as check says it; 6", async () => {
    const ended = await pawl("preview", "broken.ts");
    expect(ended.code).toBe(6);
    expect(ended.out).toContain("error bad-interval  broken.ts:7:19");
  });

  test("a handler that throws: its place, the lines around it, 6, and no word of the host", async () => {
    const ended = await pawl("preview", "throws.ts");
    expect(ended.code).toBe(6);
    expect(ended.out).toContain(
      "failed handler-throws  throws.ts:9:44  ReferenceError: missing is not defined",
    );
    expect(ended.out).toMatch(/> +9 \| .*missing \+ 1/);
    expect(ended.out).not.toContain(root);
    expectNoStack(ended);
  });

  test("--json holds refused scripts too", async () => {
    const ended = await pawl("preview", "--json", "good.ts", "broken.ts", "throws.ts");
    expect(ended.code).toBe(6);
    expect(JSON.parse(ended.out)).toMatchObject([
      {
        file: "good.ts",
        ok: true,
        handlers: [{ handler: "p", publishes: [{ messageId: "1", payload: { n: 1 } }] }],
      },
      { file: "broken.ts", ok: false, problems: [{ code: "bad-interval" }], handlers: [] },
      {
        file: "throws.ts",
        ok: false,
        handlers: [{ ok: false, error: { code: "handler-throws", at: "throws.ts:9:44" } }],
      },
    ]);
  });

  test.each([
    ["no JSON", "{", /JSON/],
    ["another shape", '{"handlers":{"p":{"pending":[]}}}', /pending/],
  ])("a fixture that is %s is named, not thrown", async (_, fixture, why) => {
    write("odd.ts", GOOD);
    write("odd.fixture.json", fixture);
    const ended = await pawl("preview", "odd.ts");
    expect(ended.code).toBe(2);
    expect(ended.err).toMatch(/^pawl: the fixture odd\.fixture\.json cannot be used: /);
    expect(ended.err).toMatch(why);
    expectNoStack(ended);
  });

  test("a question that the fixture does not answer is named", async () => {
    write(
      "asks.ts",
      GOOD.replace("topics:", 'connections: { shop: "http" },\n  topics:').replace(
        "handler(ctx) {",
        'async handler(ctx) { await ctx.shop.get("/x");',
      ),
    );
    const ended = await pawl("preview", "asks.ts");
    expect(ended.code).toBe(6);
    expect(ended.out).toContain("the fixture cannot answer shop.get: it has no answer left");
  });
});

describe("doctor", () => {
  test("tells the level and every layer, in force or missing", async () => {
    const ended = await pawl("doctor");
    expect(ended.code).toBe(0);
    expect(ended.out).toMatch(/^node v\d+\.\d+\.\d+ on \w+-\w+\nsandbox hardening level [123] of 3\n/);
    const layers = ended.out.split("\n").slice(2, -1);
    expect(layers.length).toBeGreaterThanOrEqual(5);
    for (const layer of layers) expect(layer).toMatch(/^ {2}(in force|MISSING ) {2}\S/);
  });

  test("--json says the same", async () => {
    const [plain, json] = await Promise.all([pawl("doctor"), pawl("doctor", "--json")]);
    const report = JSON.parse(json.out) as {
      sandbox: { level: number; layers: { name: string; inForce: boolean }[] };
    };
    expect(json.code).toBe(0);
    expect(plain.out).toContain(`level ${report.sandbox.level} of 3`);
    expect(report.sandbox.layers.map((one) => one.name)).toContain("own process");
  });
});

describe("hostile text comes out inert", () => {
  // A terminal's colour, title and clipboard commands, C1 controls, bells, bidirectional overrides, invisible marks.
  const EVIL =
    "\u001b[31m\u001b]0;owned\u0007\u009b2J\u009d52;c;aGk=\u009c\r\b\u202eevil\u2066\u200b\u2028\u{e0041}";
  /** Controls but line breaks, and all that is invisible or turns the line around. */
  const ACTIVE = /[^\n\P{Cc}]|[\p{Cf}\p{Zl}\p{Zp}]/u;
  const inString = JSON.stringify(EVIL);
  const hostile = `import { consumer, producer, topic, workflow } from "pawl";
const evil = ${inString};
export default workflow({
  name: "hostile",
  connections: { shop: "http" },
  topics: { a: topic() },
  producers: {
    p: producer({ schedule: { interval: "5m" }, publishes: ["a"], handler(ctx) {
      ctx.log.error(evil, { evil });
      console.log(evil);
      ctx.registerInput({ source: evil, type: evil, id: "1", title: evil });
      ctx.publish("a", { messageId: "m" + evil, payload: { [evil]: evil } });
      return { [evil]: evil };
    } }),
    t: producer({ schedule: { interval: "5m" }, handler() { // ${EVIL.replaceAll(/[\r\n\u2028]/g, "")}
      const error = new Error(evil);
      error.name = evil;
      throw error;
    } }),
  },
  consumers: {
    c: consumer({
      subscribes: ["a"],
      async prepare(ctx) {
        const [event] = await ctx.peek("a");
        if (!event) return {};
        return { reservations: [{ topic: "a", ids: [event.messageId] }], ui: { title: evil }, wakeAt: evil };
      },
      mutate(ctx) { ctx.shop.post("/" + evil, { body: evil }); },
    }),
  },
});
`;
  const fixture = JSON.stringify({
    handlers: { c: { pending: { a: [{ messageId: `m${EVIL}`, payload: 1 }] } } },
  });

  const lines = (text: string) => text.split("\n").filter((line) => ACTIVE.test(line));

  test("titles, logs, payloads, ids, state, errors and code frames of a preview", async () => {
    write("hostile.ts", hostile);
    write("hostile.fixture.json", fixture);
    const ended = await pawl("preview", "hostile.ts");
    expect(ended.code).toBe(6);
    for (const said of [
      "would publish",
      "would keep",
      "log error",
      "script says",
      "would wake at",
      "would change",
      "would register",
      "failed handler-throws",
    ])
      expect(ended.out).toContain(said);
    expect(ended.out).toContain("evil");
    expect(lines(ended.out + ended.err)).toEqual([]);
  });

  test("--json keeps every value and shows none of it raw", async () => {
    write("hostile.ts", hostile);
    write("hostile.fixture.json", fixture);
    const ended = await pawl("preview", "--json", "hostile.ts");
    expect(lines(ended.out)).toEqual([]);
    const [report] = JSON.parse(ended.out) as [
      { handlers: { title?: string; publishes: { payload: unknown }[] }[] },
    ];
    expect(report.handlers[0]?.publishes[0]?.payload).toEqual({ [EVIL]: EVIL });
    expect(report.handlers[2]?.title).toBe(EVIL);
  });

  test.each([
    ["a name", GOOD.replace('"good"', inString)],
    ["a topic", GOOD.replace('publishes: ["a"]', `publishes: [${inString}]`)],
    ["a field", GOOD.replace("name:", `${inString}: 1, name:`)],
    ["an error while loading", `const evil = ${inString};\nthrow new Error(evil);\n${GOOD}`],
    [
      "an undefined name in an error",
      `throw Object.assign(new ReferenceError(${inString}.replace(/\\s/g, "") + " is not defined"));\n${GOOD}`,
    ],
    ["an import", `import ${inString};\n${GOOD}`],
    ["a comment at the place", `const = 1; // ${EVIL.replaceAll(/[\r\n\u2028]/g, "")}\n${GOOD}`],
  ])("a check that quotes %s", async (_, source) => {
    write("evil.ts", source);
    const plain = await pawl("check", "evil.ts");
    const json = await pawl("check", "--json", "evil.ts");
    expect([plain.code, json.code]).toEqual([6, 6]);
    expect(lines(plain.out + plain.err + json.out + json.err)).toEqual([]);
    expect(JSON.parse(json.out)).toMatchObject([{ ok: false }]);
  });
});

test("a reader that leaves early ends the command quietly", async () => {
  const ended = await new Promise<{ code: number | null; err: string }>((resolve) => {
    const child = execFile(process.execPath, [bin, "preview", examples], { cwd: folder }, (_, __, err) =>
      resolve({ code: child.exitCode, err }),
    );
    child.stdout?.once("data", () => child.stdout?.destroy());
  });
  expect(ended).toEqual({ code: 0, err: "" });
});
