/**
 * Uploads that must be refused, or accepted with a warning. The mark ⌖ stands in each source where an author should be
 * sent; it is taken out before the upload, and its line and column are what the host must answer.
 */
import type { Upload } from "../../host/ports/sandbox.ts";

export interface BadUpload {
  title: string;
  source: string;
  code: string;
  /** Words of the message. */
  says: string;
  hint: string;
  /** What differs from a plain TypeScript upload. */
  upload?: Partial<Upload>;
}

export const MARK = "⌖";

/** A script with these lines in its workflow, and these before it. */
const script = (lines: string, before = ""): string =>
  `import { consumer, producer, topic, workflow } from "pawl";\n${before}export default workflow({\n  name: "w",\n${lines}\n});\n`;

const PRODUCER = `  producers: { p: producer({ schedule: { interval: "5m" }, handler() {} }) },`;
const FINE = `() { return { ui: { title: "t" } }; }`;

/** A script that is fine but for its first lines. */
const top = (before: string): string => script(PRODUCER, `${before}\n`);
const schedule = (text: string): string =>
  script(`  producers: {\n    poll: producer({ schedule: ${text}, handler() {} }),\n  },`);
const handler = (text: string): string =>
  script(
    `  producers: {\n    poll: producer({\n      schedule: { interval: "5m" },\n      ${text}\n    }),\n  },`,
  );
const consumer = (text: string): string =>
  script(`  topics: { order: topic() },\n  consumers: {\n    ${text}\n  },`);

const SYNTAX =
  "Correct the marked place, or what stands just before it: often a bracket, quote or comma is missing.";
const BUNDLE = "Bundle other modules into the file before uploading.";
const IMPORT = "Import workflow, producer, consumer or topic.";
const WRAP = 'Wrap the object in `workflow({ … })`, imported from "pawl".';
const AWAIT = "Move the work into a handler; top-level code only declares.";
const DECLARE = "Only declare at the top level; do the work in handlers.";
const LOADS = "Correct the marked place; top-level code should only declare.";
const NAME = "Start with a letter; then letters, digits, `_`, `.`, `-`; at most 64 in all.";
const TWICE = "Rename or remove one of the two.";
const EITHER = "Write either { interval } or { cron, timezone }.";
const INTERVAL = 'Write it like "30s", "5m", "2h" or "1d".';
const CRON = 'Write five fields, like "0 9 * * 1-5".';
const ONE_FILE = "Keep one workflow per file; upload the other as a file of its own.";

const js = { language: "js", file: "script.js" } as const;

const reading: BadUpload[] = [
  {
    title: "an empty file",
    source: `${MARK}  \n\n`,
    code: "script-empty",
    says: "empty",
    hint: "Export a workflow: `export default workflow({ … })`.",
  },
  {
    title: "a file over the size limit",
    source: `${MARK}${top(`const data = "${"x".repeat(500)}";`)}`,
    code: "script-too-large",
    says: "the limit is 400",
    hint: "Move data out of the script, or split the workflow.",
    upload: { maxBytes: 400 },
  },
  {
    title: "a NUL in the file",
    source: top(`const a = "${MARK}\0";`),
    code: "script-encoding",
    says: "NUL",
    hint: "Save it as UTF-8 without NUL characters.",
  },
  {
    title: "half a surrogate pair behind a whole one",
    source: top(`const a = "😀${MARK}\ud83d";`),
    code: "script-encoding",
    says: "broken character",
    hint: "Save it as UTF-8 without NUL characters.",
  },
  {
    title: "a string that is not closed",
    source: top(`const a = ${MARK}"order;`),
    code: "script-syntax",
    says: "Unterminated string",
    hint: SYNTAX,
  },
  {
    title: "a bracket that is not closed, TypeScript",
    source: `import { workflow } from "pawl";\nexport default workflow({\n  name: "w",\n  producers: {${MARK}\n\n`,
    code: "script-syntax",
    says: "eof",
    hint: SYNTAX,
  },
  {
    title: "a missing expression behind tabs and wide letters",
    source: top(`\tconst a = "日本 😀", b = ${MARK};`),
    code: "script-syntax",
    says: "Expression expected",
    hint: SYNTAX,
  },
  {
    title: "a missing expression in a file of Windows lines",
    source: top(`const a = 1;\nconst b = ${MARK};`).replaceAll("\n", "\r\n"),
    code: "script-syntax",
    says: "Expression expected",
    hint: SYNTAX,
  },
  {
    title: "a missing name, JavaScript",
    source: top(`const ${MARK}= 3;`),
    code: "script-syntax",
    says: "Unexpected token",
    hint: SYNTAX,
    upload: js,
  },
  {
    title: "types in a JavaScript file",
    source: top(`const a${MARK}: number = 3;`),
    code: "script-syntax",
    says: "Unexpected token",
    hint: "This reads as TypeScript: give the file the ending .ts, or remove the types.",
    upload: js,
  },
  {
    title: "a name declared twice",
    source: top(`const a = 1;\nconst ${MARK}a = 2;`),
    code: "script-syntax",
    says: "'a' has already been declared",
    hint: SYNTAX,
  },
  {
    title: "code that would be an HTML comment outside a module",
    source: top(`let a = 1, b = 2;\nconst c = a ${MARK}<!--b;`),
    code: "script-syntax",
    says: "`<!--` cannot be written here",
    hint: SYNTAX,
    upload: js,
  },
  {
    title: "a file that nests too deeply",
    source: top(`const a = ${"[".repeat(19_999)}${MARK}[${"]".repeat(20_000)};`),
    code: "script-too-deep",
    says: "nests too deeply",
    hint: "Flatten the nested expressions.",
  },
  {
    title: "an enum",
    source: top(`${MARK}enum Color { Red, Green }`),
    code: "unsupported-syntax",
    says: "enum cannot be erased",
    hint: 'Write a const object instead: `const Color = { Red: "red" } as const`.',
  },
  {
    title: "an enum of several lines",
    source: top(`export ${MARK}enum Color {\n  Red,\n  Green,\n}`),
    code: "unsupported-syntax",
    says: "enum cannot be erased",
    hint: 'Write a const object instead: `const Color = { Red: "red" } as const`.',
  },
  {
    title: "a namespace",
    source: top(`  ${MARK}namespace Tools {\n  export const a = 1;\n}`),
    code: "unsupported-syntax",
    says: "namespace declaration cannot be erased",
    hint: "Write plain functions and constants, or one const object.",
  },
  {
    title: "a parameter property",
    source: top(`class A {\n\tconstructor(private ${MARK}x: number) {}\n}`),
    code: "unsupported-syntax",
    says: "parameter property cannot be erased",
    hint: "Declare the field in the class and assign it in the constructor.",
  },
  {
    title: "a decorator",
    source: top(`const sealed = (a: unknown) => a;\n${MARK}@sealed class A {}`),
    code: "unsupported-syntax",
    says: "decorators do not run here",
    hint: "Call the function on the class or method yourself.",
  },
];

const modules: BadUpload[] = [
  {
    title: "an import of a Node module",
    source: top(`import { readFileSync } from ${MARK}"node:fs";`),
    code: "foreign-import",
    says: 'cannot import "node:fs"',
    hint: BUNDLE,
  },
  {
    title: "an import of another file",
    source: top(`export { helper } from ${MARK}"./helper.ts";`),
    code: "foreign-import",
    says: 'cannot import "./helper.ts"',
    hint: BUNDLE,
  },
  {
    title: "require",
    source: handler(`handler() { ${MARK}require("fs"); },`),
    code: "foreign-import",
    says: "require() does not exist here",
    hint: BUNDLE,
  },
  {
    title: "an import that pawl does not have",
    source: `import { ${MARK}producr, workflow } from "pawl";\nexport default workflow({ name: "w" });\n`,
    code: "unknown-import",
    says: '"producr"',
    hint: IMPORT,
  },
  {
    title: "the default import of pawl",
    source: `import ${MARK}pawl from "pawl";\nexport default pawl.workflow({ name: "w" });\n`,
    code: "unknown-import",
    says: '"default"',
    hint: IMPORT,
  },
  {
    title: "a dynamic import in a handler",
    source: handler(`async handler() { await ${MARK}import("node:fs"); },`),
    code: "dynamic-import",
    says: "import() cannot load anything",
    hint: "Bundle the module into the file.",
  },
  {
    title: "import.meta",
    source: top(`const here = ${MARK}import.meta.url;`),
    code: "import-meta",
    says: "import.meta",
    hint: "Remove it.",
  },
  {
    title: "await at the top level",
    source: top(`const a = ${MARK}await Promise.resolve(1);`),
    code: "top-level-await",
    says: "cannot await",
    hint: AWAIT,
  },
  {
    title: "await using at the top level",
    source: top(`${MARK}await using a = null;`),
    code: "top-level-await",
    says: "cannot await",
    hint: AWAIT,
  },
  {
    title: "a workflow that is not the default export",
    source: `import { workflow } from "pawl";\nexport const main = ${MARK}workflow({ name: "w" });\n`,
    code: "no-default-export",
    says: "no default export",
    hint: "Add `export default workflow({ … })`.",
  },
  {
    title: "a CommonJS export",
    source: `const a = 1;\n${MARK}module.exports = { a };\n`,
    code: "no-default-export",
    says: "no default export",
    hint: "Add `export default workflow({ … })`.",
    upload: js,
  },
  {
    title: "a default export that is a plain object",
    source: `export default ${MARK}{ name: "w" };\n`,
    code: "not-a-workflow",
    says: "is an object, not a workflow",
    hint: WRAP,
  },
  {
    title: "a default export that is a function",
    source: `export default ${MARK}function main() {}\n`,
    code: "not-a-workflow",
    says: "is a function or class",
    hint: WRAP,
  },
  {
    title: "a producer as the default export",
    source: `import { producer } from "pawl";\nconst p = ${MARK}producer({ schedule: { interval: "5m" }, handler() {} });\nexport { p as default };\n`,
    code: "not-a-workflow",
    says: "is a producer, not a workflow",
    hint: WRAP,
  },
  {
    title: "two default exports",
    source: `${script(PRODUCER)}export ${MARK}default workflow({ name: "x" });\n`,
    code: "second-workflow",
    says: "two default exports",
    hint: ONE_FILE,
  },
  {
    title: "a second workflow beside the exported one",
    source: top(`export const other = ${MARK}workflow({ name: "other" });`),
    code: "second-workflow",
    says: "more than one workflow",
    hint: ONE_FILE,
  },
];

const loading: BadUpload[] = [
  {
    title: "top-level code that throws",
    source: top(`function setUp() {\n  throw ${MARK}new TypeError("no region");\n}\nsetUp();`),
    code: "load-failed",
    says: "threw TypeError: no region",
    hint: LOADS,
  },
  {
    title: "top-level code that throws a string",
    source: top(`if (1 < 2) ${MARK}throw "no";`),
    code: "load-failed",
    says: 'threw "no"',
    hint: LOADS,
  },
  {
    title: "a promise that is rejected at the top level",
    source: top(`Promise.reject(${MARK}new Error("late"));`),
    code: "load-failed",
    says: "threw Error: late",
    hint: LOADS,
  },
  {
    title: "a getter of the declaration that throws",
    source: script(`  get description(): string { throw ${MARK}new Error("mine"); },\n${PRODUCER}`),
    code: "load-failed",
    says: "threw Error: mine",
    hint: LOADS,
  },
  {
    title: "the network at the top level",
    source: top(`${MARK}fetch("https://example.com");`),
    code: "load-failed",
    says: "fetch is not defined",
    hint: "Use a tool of a connection inside a handler, like `ctx.shop.get(…)`.",
  },
  {
    title: "the environment at the top level",
    source: top(`const region = ${MARK}process.env.REGION;`),
    code: "load-failed",
    says: "process is not defined",
    hint: "Use `params` for settings; a script has no process and no environment.",
  },
  {
    title: "a name that does not exist",
    source: top(`const a = ${MARK}regoin + 1;`),
    code: "load-failed",
    says: "regoin is not defined",
    hint: "Declare `regoin`, or correct the name; it is not one of the globals here.",
  },
  {
    title: "an error whose file claims another name",
    source: top(`//# sourceURL=file:///etc/other.ts\nthrow ${MARK}new Error("x");`),
    code: "load-failed",
    says: "threw Error: x",
    hint: LOADS,
  },
  {
    title: "an endless loop at the top level",
    source: top(`function wait(): void {\n  ${MARK}for (;;) {}\n}\nwait();`),
    code: "load-limit",
    says: "did not finish in time",
    hint: DECLARE,
  },
  {
    title: "an endless chain of promises at the top level",
    source: top(`let n = 0;\n(async () => {\n  for (;;) await null;\n})();`).replace(
      "(async",
      `${MARK}(async`,
    ),
    code: "load-limit",
    says: "did not finish in time",
    hint: DECLARE,
  },
  {
    title: "more memory than the load limit",
    source: top(`const all: unknown[] = [];\n${MARK}while (true) all.push(new Array(10_000).fill(1));`),
    code: "load-limit",
    says: "ran out of memory",
    hint: DECLARE,
  },
  {
    title: "a declaration that refers to itself",
    source: `import { producer, topic, workflow } from "pawl";\nconst schema: Record<string, unknown> = {};\nschema.self = schema;\nexport default ${MARK}workflow({ name: "w", topics: { a: topic({ schema }) },\n${PRODUCER} });\n`,
    code: "manifest-invalid",
    says: "refers to itself",
    hint: "Declare plain, finite data.",
  },
];

const names: BadUpload[] = [
  {
    title: "no name",
    source: `import { workflow, producer } from "pawl";\nexport default ${MARK}workflow({\n${PRODUCER}\n});\n`,
    code: "manifest-invalid",
    says: "the workflow has no `name`",
    hint: "Add `name`; it must be a text.",
  },
  {
    title: "a name that starts with a digit",
    source: script(PRODUCER).replace(`name: "w"`, `${MARK}name: "9 lives"`),
    code: "bad-name",
    says: 'a workflow cannot be named "9 lives"',
    hint: NAME,
  },
  {
    title: "another name than the one it is deployed under",
    source: script(PRODUCER).replace(`name: "w"`, `${MARK}name: "w"`),
    code: "bad-name",
    says: 'says "w" but is deployed as "orders"',
    hint: "Make the two names equal.",
    upload: { name: "orders" },
  },
  {
    title: "a handler's name with a space",
    source: script(
      `  producers: {\n    ${MARK}"poll orders": producer({ schedule: { interval: "5m" }, handler() {} }),\n  },`,
    ),
    code: "bad-name",
    says: 'a producer cannot be named "poll orders"',
    hint: NAME,
  },
  {
    title: "a topic's name of 65 letters",
    source: script(`  topics: { ${MARK}${"t".repeat(65)}: topic({ output: true }) },\n${PRODUCER}`),
    code: "bad-name",
    says: "a topic cannot be named",
    hint: NAME,
  },
  {
    title: "two handlers of one name",
    source: script(
      `  producers: {\n    p: producer({ schedule: { interval: "5m" }, handler() {} }),\n    ${MARK}p: producer({ schedule: { interval: "6m" }, handler() {} }),\n  },`,
    ),
    code: "duplicate-name",
    says: 'producers already has "p"',
    hint: TWICE,
  },
  {
    title: "a topic subscribed twice",
    source: consumer(`book: consumer({ subscribes: ["order", ${MARK}"order"], prepare${FINE} }),`),
    code: "duplicate-name",
    says: "stands twice in this list",
    hint: TWICE,
  },
  {
    title: "an alias that hides a member of ctx",
    source: script(`  connections: { ${MARK}publish: "http" },\n${PRODUCER}`),
    code: "reserved-alias",
    says: "ctx.publish exists already",
    hint: 'Choose another alias, like "publishService".',
  },
  {
    title: "a connector that cannot be one",
    source: script(`  connections: { ${MARK}shop: "the shop" },\n${PRODUCER}`),
    code: "bad-name",
    says: 'a connector cannot be named "the shop"',
    hint: NAME,
  },
];

const shapes: BadUpload[] = [
  {
    title: "a workflow without handlers",
    source: `import { topic, workflow } from "pawl";\nexport default ${MARK}workflow({ name: "w", topics: { a: topic() }, consumers: {} });\n`,
    code: "no-handlers",
    says: "no producer and no consumer",
    hint: "Declare at least one producer or consumer.",
  },
  {
    title: "a misspelt field of the workflow",
    source: script(`  ${MARK}prodcuers: {},\n${PRODUCER}`),
    code: "unknown-field",
    says: 'the workflow has no field "prodcuers"',
    hint: "Did you mean `producers`?",
  },
  {
    title: "a misspelt phase, reported once and not as missing too",
    source: consumer(`book: consumer({ subscribes: ["order"], ${MARK}prepar${FINE} }),`),
    code: "unknown-field",
    says: 'consumers.book has no field "prepar"',
    hint: "Did you mean `prepare`?",
  },
  {
    title: "a field that nothing resembles",
    source: script(`  ${MARK}colour: "red",\n${PRODUCER}`),
    code: "unknown-field",
    says: 'no field "colour"',
    hint: "Remove it; the fields are name, description, connections, topics, params, hooks, producers, consumers.",
  },
  {
    title: "a producer without schedule",
    source: script(`  producers: {\n    ${MARK}poll: producer({ handler() {} }),\n  },`),
    code: "manifest-invalid",
    says: "producers.poll has no `schedule`",
    hint: "Add `schedule`; it must be { interval } or { cron, timezone }.",
  },
  {
    title: "a producer without handler",
    source: script(`  producers: {\n    ${MARK}poll: producer({ schedule: { interval: "5m" } }),\n  },`),
    code: "manifest-invalid",
    says: "producers.poll has no `handler`",
    hint: "Add `handler`; it must be a function.",
  },
  {
    title: "a consumer without prepare",
    source: consumer(`${MARK}book: consumer({ subscribes: ["order"] }),`),
    code: "manifest-invalid",
    says: "consumers.book has no `prepare`",
    hint: "Add `prepare`; it must be a function.",
  },
  {
    title: "a consumer that subscribes to nothing",
    source: consumer(`book: consumer({ ${MARK}subscribes: [], prepare${FINE} }),`),
    code: "manifest-invalid",
    says: "at least one topic name",
    hint: "Make `subscribes` a list of at least one topic name.",
  },
  {
    title: "a phase that is not a function",
    source: consumer(`book: consumer({ subscribes: ["order"], prepare${FINE}, ${MARK}mutate: "post" }),`),
    code: "manifest-invalid",
    says: 'mutate must be a function, not "post"',
    hint: "Make `mutate` a function.",
  },
  {
    title: "a producer that producer() did not make",
    source: script(`  producers: {\n    ${MARK}poll: { schedule: { interval: "5m" }, handler() {} },\n  },`),
    code: "manifest-invalid",
    says: "producers.poll must be made by producer({ … }), not an object",
    hint: "Write `poll: producer({ … })`.",
  },
  {
    title: "a topic that was not called",
    source: script(`  topics: { ${MARK}order: topic },\n${PRODUCER}`),
    code: "manifest-invalid",
    says: "topics.order must be made by topic(), not a function",
    hint: "Write `order: topic()`.",
  },
  {
    title: "a function where handlers are declared",
    source: script(`  ${MARK}producers: () => ({}),`),
    code: "manifest-invalid",
    says: "producers must be an object, not a function",
    hint: "Write `producers: { … }`.",
  },
  {
    title: "a list where handlers are declared",
    source: script(`  ${MARK}consumers: [],\n${PRODUCER}`),
    code: "manifest-invalid",
    says: "consumers must be an object: name → consumer({ … }), not a list",
    hint: "Make `consumers` an object: name → consumer({ … }).",
  },
  {
    title: "a function inside a schema",
    source: script(
      `  topics: { order: topic({ output: true, schema: { type: "object", properties: { ${MARK}id: () => "string" } } }) },\n${PRODUCER}`,
    ),
    code: "manifest-invalid",
    says: "topics.order.schema.properties.id is a function, which is not plain data",
    hint: "Write JSON values only.",
  },
  {
    title: "a BigInt inside a schema",
    source: script(`  topics: { order: topic({ schema: { ${MARK}maximum: 10n } }) },\n${PRODUCER}`),
    code: "manifest-invalid",
    says: "topics.order.schema.maximum is a bigint",
    hint: "Write JSON values only.",
  },
  {
    title: "a description that is not text",
    source: script(`  ${MARK}description: () => "x",\n${PRODUCER}`),
    code: "manifest-invalid",
    says: "description must be a text, not a function",
    hint: "Make `description` a text.",
  },
  {
    title: "a param of an unknown type",
    source: script(`  params: { region: { ${MARK}type: "text" } },\n${PRODUCER}`),
    code: "manifest-invalid",
    says: 'type must be "string", "number" or "boolean", not "text"',
    hint: 'Make `type` "string", "number" or "boolean".',
  },
  {
    title: "a param whose default has another type",
    source: script(`  params: { limit: { type: "number", ${MARK}default: "3" } },\n${PRODUCER}`),
    code: "manifest-invalid",
    says: "the default of limit is not a number",
    hint: "Write a number, or change `type`.",
  },
  {
    title: "a param whose default is NaN",
    source: script(`  params: { limit: { type: "number", ${MARK}default: Number("x") } },\n${PRODUCER}`),
    code: "manifest-invalid",
    says: "not NaN",
    hint: "Make `default` a text, a number or a boolean.",
  },
];

const schedules: BadUpload[] = [
  {
    title: "an interval in words",
    source: schedule(`{ ${MARK}interval: "5 minutes" }`),
    code: "bad-interval",
    says: '"5 minutes"',
    hint: INTERVAL,
  },
  {
    title: "an interval of nothing",
    source: schedule(`{ ${MARK}interval: "0m" }`),
    code: "bad-interval",
    says: '"0m"',
    hint: INTERVAL,
  },
  {
    title: "an interval below the minimum",
    source: schedule(`{ ${MARK}interval: "5s" }`),
    code: "interval-too-short",
    says: "5s is below the minimum of 30 s",
    hint: "Write 30 s or more.",
  },
  {
    title: "a cron pattern in words, in a constant of its own",
    source: script(
      `  producers: { poll: producer({ schedule: daily, handler() {} }) },`,
      `const daily = { ${MARK}cron: "every day" };\n`,
    ),
    code: "bad-cron",
    says: '"every day"',
    hint: CRON,
  },
  {
    title: "a cron pattern with seconds",
    source: schedule(`{ ${MARK}cron: "*/10 * * * * *" }`),
    code: "bad-cron",
    says: '"*/10 * * * * *"',
    hint: CRON,
  },
  {
    title: "a cron pattern for a day that never comes",
    source: schedule(`{ ${MARK}cron: "0 0 30 2 *" }`),
    code: "cron-never-fires",
    says: "never fires",
    hint: "Choose a date that exists.",
  },
  {
    title: "a cron pattern that is too frequent, but not within the next hours",
    source: schedule(`{ ${MARK}cron: "0 0,6,12,18,19 * * *" }`),
    code: "cron-too-often",
    says: "more often than every 7200 s",
    hint: "Leave more time between fires.",
    upload: { minIntervalMs: 7_200_000 },
  },
  {
    title: "a time zone that does not exist",
    source: schedule(`{ cron: "0 9 * * *", ${MARK}timezone: "Europe/Zurick" }`),
    code: "bad-timezone",
    says: '"Europe/Zurick"',
    hint: 'Use an IANA name like "Europe/Zurich".',
  },
  {
    title: "a time zone under a wrong field",
    source: schedule(`{ cron: "0 9 * * *", ${MARK}timeZone: "UTC" }`),
    code: "unknown-field",
    says: 'no field "timeZone"',
    hint: "Did you mean `timezone`?",
  },
  {
    title: "both an interval and a cron pattern",
    source: schedule(`{ cron: "0 9 * * *", ${MARK}interval: "5m" }`),
    code: "manifest-invalid",
    says: "not both",
    hint: EITHER,
  },
  {
    title: "an empty schedule",
    source: script(`  producers: {\n    poll: producer({ ${MARK}schedule: {}, handler() {} }),\n  },`),
    code: "manifest-invalid",
    says: "neither an interval nor a cron pattern",
    hint: EITHER,
  },
];

const topics: BadUpload[] = [
  {
    title: "a subscription to a misspelt topic",
    source: consumer(`book: consumer({ subscribes: [${MARK}"ordre"], prepare${FINE} }),`),
    code: "undeclared-topic",
    says: '"ordre" is not declared',
    hint: 'Did you mean "order"?',
  },
  {
    title: "a publication to a topic nobody declared",
    source: handler(`publishes: [${MARK}"invoice"], handler() {},`),
    code: "undeclared-topic",
    says: '"invoice" is not declared',
    hint: "Add it to `topics` of the workflow.",
  },
  {
    title: "a topic without subscriber that is not an output",
    source: script(
      `  topics: {\n    ${MARK}order: topic(),\n  },\n  producers: {\n    p: producer({ schedule: { interval: "5m" }, publishes: ["order"], handler() {} }),\n  },`,
    ),
    code: "topic-without-subscriber",
    says: 'nobody subscribes to the topic "order"',
    hint: "Subscribe a consumer, or mark it `topic({ output: true })`.",
  },
  {
    title: "a hook of an alias that does not exist",
    source: script(
      `  connections: { shopHook: "webhook" },\n  topics: { a: topic({ output: true }) },\n  hooks: { h: { ${MARK}alias: "shophok", topic: "a", messageId: "$.id" } },\n${PRODUCER}`,
    ),
    code: "undeclared-alias",
    says: '"shophok" is not declared',
    hint: 'Did you mean "shopHook"?',
  },
  {
    title: "a hook of a connection that is no webhook",
    source: script(
      `  connections: { shop: "http" },\n  topics: { a: topic({ output: true }) },\n  hooks: { h: { ${MARK}alias: "shop", topic: "a", messageId: "$.id" } },\n${PRODUCER}`,
    ),
    code: "undeclared-alias",
    says: "is not a webhook connection",
    hint: 'Declare it as "webhook" in `connections`.',
  },
  {
    title: "a hook to a topic that is not declared",
    source: script(
      `  connections: { shop: "webhook" },\n  hooks: { h: { alias: "shop", ${MARK}topic: "a", messageId: "$.id" } },\n${PRODUCER}`,
    ),
    code: "undeclared-topic",
    says: '"a" is not declared',
    hint: "Add it to `topics` of the workflow.",
  },
  {
    title: "a hook whose messageId is no path",
    source: script(
      `  connections: { shop: "webhook" },\n  topics: { a: topic({ output: true }) },\n  hooks: { h: { alias: "shop", topic: "a", ${MARK}messageId: "id" } },\n${PRODUCER}`,
    ),
    code: "manifest-invalid",
    says: 'must be a path into the body, like "$.id", not "id"',
    hint: 'Make `messageId` a path into the body, like "$.id".',
  },
];

export const refused: BadUpload[] = [
  ...reading,
  ...modules,
  ...loading,
  ...names,
  ...shapes,
  ...schedules,
  ...topics,
];

const STATE = "Return state from the handler instead; module variables start anew in every run.";

export const warned: BadUpload[] = [
  {
    title: "a topic that nothing uses",
    source: script(`  topics: { ${MARK}order: topic() },\n${PRODUCER}`),
    code: "unused-topic",
    says: 'nothing uses the topic "order"',
    hint: "Publish to it, subscribe to it, or remove it.",
  },
  {
    title: "a consumer without title",
    source: consumer(`${MARK}book: consumer({ subscribes: ["order"], prepare() { return {}; } }),`),
    code: "no-ui-title",
    says: "the consumer book never gives its work a title",
    hint: "Return `ui: { title }` from prepare: it is what an operator reads.",
  },
  {
    title: "a counter at module level",
    source: script(
      `  producers: { p: producer({ schedule: { interval: "5m" }, handler() { ${MARK}runs += 1; } }) },`,
      "let runs = 0;\n",
    ),
    code: "module-state",
    says: "runs is written inside a function",
    hint: STATE,
  },
  {
    title: "a cache at module level",
    source: script(
      `  producers: { p: producer({ schedule: { interval: "5m" }, handler() { ${MARK}seen.add("a"); } }) },`,
      "const seen = new Set<string>();\n",
    ),
    code: "module-state",
    says: "seen is written inside a function",
    hint: STATE,
  },
  {
    title: "a field of an object at module level",
    source: script(
      `  producers: { p: producer({ schedule: { interval: "5m" }, handler() { ${MARK}memo.last.id = 1; } }) },`,
      "const memo = { last: { id: 0 } };\n",
    ),
    code: "module-state",
    says: "memo is written inside a function",
    hint: STATE,
  },
];

/** What looks like a mistake and is none. */
export const accepted: { title: string; source: string; upload?: Partial<Upload> }[] = [
  { title: "a plain script", source: script(PRODUCER) },
  { title: "a byte order mark", source: `\ufeff${script(PRODUCER)}` },
  { title: "a hashbang", source: `#!/usr/bin/env pawl\n${script(PRODUCER)}` },
  { title: "an HTML comment inside a string", source: top("const mail = `<!-- hi\n--> ${1}`, x = '<!--';") },
  {
    title: "words of export on two lines",
    source: script(PRODUCER).replace("export default", "export\n  default"),
  },
  {
    title: "a default export by name",
    source: `${script(PRODUCER).replace("export default", "const flow =")}export { flow as default };\n`,
  },
  { title: "an import by another name", source: script(PRODUCER).replaceAll("topic", "topic as t") },
  { title: "a quoted import", source: script(PRODUCER).replace("topic,", '"topic" as t,') },
  { title: "an erased import of types", source: top('import type { Order } from "./types.ts";') },
  { title: "a bundler's own require", source: top("const require = (name: string) => name;\nrequire('a');") },
  {
    title: "a variable of the handler that hides one of the module",
    source: script(
      `  producers: { p: producer({ schedule: { interval: "5m" }, handler() { let n = 0; n++; } }) },`,
      "const n = 1;\n",
    ),
  },
  {
    title: "a title that is assigned",
    source: consumer(
      `book: consumer({ subscribes: ["order"], prepare() { const ui = { title: "" }; ui.title = "x"; return { ui }; } }),`,
    ),
  },
  { title: "plain JavaScript", source: script(PRODUCER), upload: js },
];
