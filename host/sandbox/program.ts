/**
 * The programs that children run, as text. A child may read no file but the isolated-vm binary, so its modules travel
 * over the socket: our own files with their types stripped and their imports turned into `require` of a small table.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { createRequire, stripTypeScriptTypes } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { type ImportDeclaration, parse } from "acorn";
import { PawlError } from "../core/errors.ts";

const HERE = dirname(fileURLToPath(import.meta.url));
const require = createRequire(import.meta.url);

/** What the boot line below reads from the socket before anything else. */
export interface Program {
  modules: Record<string, string>;
  entry: string;
  binary: string;
  prelude: { text: string; lines: number };
  escapeHook: boolean;
}

/** The only code on the child's command line: read one length-prefixed program and run its entry. */
export const BOOT = `
const fs = require("node:fs"), vm = require("node:vm");
const fill = (n) => { const b = Buffer.allocUnsafe(n); for (let at = 0; at < n; ) { const got = fs.readSync(3, b, at, n - at, null); if (got === 0) process.exit(0); at += got; } return b; };
const program = JSON.parse(fill(fill(4).readUInt32LE(0)).toString());
const made = new Map();
const load = (name) => {
  if (name.startsWith("node:")) return require(name);
  if (!made.has(name)) {
    const module = { exports: {} };
    made.set(name, module);
    vm.compileFunction(program.modules[name], ["require", "exports", "module"], { filename: name })(load, module.exports, module);
  }
  return made.get(name).exports;
};
const addon = { exports: {} };
process.dlopen(addon, program.binary);
if (process.permission && process.permission.drop) for (const right of ["addon", "fs.read"]) process.permission.drop(right);
process.title = "pawl sandbox";
const escape = program.escapeHook ? (code) => { try { return String(new Function("require", "process", code)(require, process)); } catch (error) { return "threw: " + error.code + " " + error.message; } } : undefined;
load(program.entry).serve({ vm: addon.exports.ivm, prelude: program.prelude, escape });
`;

/** The program of pool children, or of the disposable child that compiles. */
export function childProgram(kind: "pool" | "compile", escapeHook = false): Program {
  const files =
    kind === "pool"
      ? ["wire.ts", "isolate.ts", "child.ts"]
      : ["wire.ts", "isolate.ts", "locate.ts", "module.ts", "compile-child.ts"];
  const modules: Record<string, string> = {};
  for (const file of files) modules[`./${file}`] = toCommonJs(stripped(join(HERE, file)));
  if (kind === "compile") modules["acorn"] = readFileSync(require.resolve("acorn"), "utf8");
  return {
    modules,
    entry: kind === "pool" ? "./child.ts" : "./compile-child.ts",
    binary: isolatedVmBinary(),
    prelude: preludeText(),
    escapeHook,
  };
}

export function encodeProgram(program: Program): Buffer {
  const body = Buffer.from(JSON.stringify(program));
  const head = Buffer.allocUnsafe(4);
  head.writeUInt32LE(body.length, 0);
  return Buffer.concat([head, body]);
}

/** The first code of every script: a function of the author's module, which it keeps out of its own scope. */
function preludeText(): { text: string; lines: number } {
  const folder = join(HERE, "../../sandbox-api");
  const files = [
    "prelude-globals.ts",
    "prelude-web.ts",
    "prelude-freeze.ts",
    "prelude-manifest.ts",
    "prelude-data.ts",
    "prelude-ctx.ts",
    "prelude.ts",
  ];
  const functions = files.map((file) =>
    stripped(join(folder, file))
      .replace(/^import .*$/gm, "")
      .replace(/^export /gm, ""),
  );
  const text = `(function (load) { "use strict";
${functions.join("\n")}
const neighbours = { globals: (native, current) => globals(native, current, web), freeze, worlds, data, manifest };
return (send, native, frozen) => prelude(neighbours, send, native, frozen, load);
})`;
  return { text, lines: text.split("\n").length };
}

function stripped(path: string): string {
  const { emitWarning } = process; // oxlint-disable-line typescript/unbound-method -- put back as it was
  process.emitWarning = () => {}; // Node calls the stripper experimental; whoever starts the host need not read that.
  try {
    return stripTypeScriptTypes(readFileSync(path, "utf8"));
  } finally {
    process.emitWarning = emitWarning;
  }
}

function toCommonJs(text: string): string {
  const tree = parse(text, { ecmaVersion: "latest", sourceType: "module" });
  const names: string[] = [];
  let out = "";
  let from = 0;
  for (const node of tree.body) {
    if (node.type === "ImportDeclaration") {
      out += `${text.slice(from, node.start)}const ${importPattern(node)} = require(${node.source.raw});`;
      from = node.end;
    } else if (node.type === "ExportNamedDeclaration" && node.declaration) {
      out += text.slice(from, node.start);
      from = node.declaration.start;
      if (node.declaration.type === "VariableDeclaration")
        for (const one of node.declaration.declarations)
          names.push(one.id.type === "Identifier" ? one.id.name : "");
      else names.push(node.declaration.id.name);
    } else if (node.type === "ExportNamedDeclaration") {
      out += text.slice(from, node.start);
      from = node.end;
    }
  }
  return `"use strict";${out}${text.slice(from)}\n${names.map((name) => `exports.${name} = ${name};`).join("\n")}`;
}

function importPattern(node: ImportDeclaration): string {
  const named: string[] = [];
  for (const one of node.specifiers) {
    if (one.type !== "ImportSpecifier") return one.local.name;
    named.push(
      `${one.imported.type === "Identifier" ? one.imported.name : one.imported.raw}: ${one.local.name}`,
    );
  }
  return `{ ${named.join(", ")} }`;
}

/** The addon inside isolated-vm's package for this machine: its own loader searches folders, which a child may not. */
export function isolatedVmBinary(): string {
  const folder = join(
    dirname(require.resolve("isolated-vm/package.json")),
    "prebuilds",
    `${process.platform}-${process.arch}`,
  );
  const libc = process.platform !== "linux" ? "" : existsSync("/etc/alpine-release") ? "musl" : "glibc";
  const abi = `abi${process.versions.modules}.`;
  const file = existsSync(folder)
    ? readdirSync(folder).find((name) => name.includes(abi) && name.includes(libc))
    : undefined;
  if (file === undefined)
    throw new PawlError(
      "sandbox-start",
      `isolated-vm carries no binary for ${process.platform}-${process.arch}, ABI ${process.versions.modules}; run pawl with its own Node 24`,
    );
  return join(folder, file);
}
