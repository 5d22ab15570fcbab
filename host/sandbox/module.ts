/**
 * An author's ES module → the text of one strict function, every token at its own line and column. Runs in the
 * disposable compile child only.
 *
 * M1. The result is proved by parsing it again as the script it will be: one function expression, nothing beside it.
 */
import { type Node, type Program, parse } from "acorn";

export interface Finding {
  code: string;
  message: string;
  line: number;
  column: number;
}

type Tree = Node & Record<string, unknown>;
const EXPORTED = ["workflow", "producer", "consumer", "topic"];

export class Refusal extends Error {
  readonly finding: Finding;
  constructor(code: string, message: string, at: { line: number; column: number }) {
    super(message);
    this.finding = { code, message, line: at.line, column: at.column + 1 };
  }
}

export function parseModule(text: string): Program {
  try {
    return parse(text, { ecmaVersion: "latest", sourceType: "module", locations: true });
  } catch (error) {
    if (error instanceof RangeError)
      throw new Refusal("script-too-deep", "the file nests too deeply to be read", { line: 1, column: 0 });
    const { loc, message } = error as SyntaxError & { loc: { line: number; column: number } };
    throw new Refusal("script-syntax", message.replace(/ \(\d+:\d+\)$/, ""), loc);
  }
}

export function toFunction(text: string, tree: Program): string {
  const names: string[] = [];
  const edits: { from: number; to: number; text: string }[] = [];
  let tail = "";
  let exportsDefault = false;
  const blank = (from: number, to: number) =>
    edits.push({ from, to, text: text.slice(from, to).replace(/[^\n\r]/g, " ") });
  refuseForbidden(tree as unknown as Tree);
  for (const node of tree.body) {
    const at = node.loc?.start ?? { line: 1, column: 0 };
    switch (node.type) {
      case "ImportDeclaration":
        ownModule(node.source as unknown as Tree);
        for (const one of node.specifiers) names.push(bindingOf(one as unknown as Tree));
        blank(node.start, node.end);
        break;
      case "ExportDefaultDeclaration":
        if (/Declaration$/.test(node.declaration.type))
          throw new Refusal(
            "not-a-workflow",
            "the default export is a function or class, not a workflow",
            at,
          );
        edits.push({ from: node.start, to: node.start + 14, text: "__export(     " });
        edits.push({ from: node.declaration.end, to: node.declaration.end, text: ")" });
        if (!/^export default\b/.test(text.slice(node.start, node.declaration.start)))
          throw new Refusal("script-syntax", "write `export default` with one space between the words", at);
        exportsDefault = true;
        break;
      case "ExportAllDeclaration":
        ownModule(node.source as unknown as Tree);
        blank(node.start, node.end);
        break;
      case "ExportNamedDeclaration":
        if (node.source) ownModule(node.source as unknown as Tree);
        if (node.declaration) {
          blank(node.start, node.start + 6);
          break;
        }
        for (const one of node.specifiers)
          if (
            one.exported.type === "Identifier" &&
            one.exported.name === "default" &&
            one.local.type === "Identifier" &&
            !node.source
          ) {
            tail = `__export(${one.local.name});`;
            exportsDefault = true;
          }
        blank(node.start, node.end);
        break;
      default:
    }
  }
  if (!exportsDefault)
    throw new Refusal("no-default-export", "the file has no default export", { line: 1, column: 0 });
  const code = `(function(__pawl,__export){"use strict";${names.join("")}\n${applied(text, edits)}\n${tail}})`;
  proveWhole(code, text);
  return code;
}

function ownModule(source: Tree): void {
  if (source["value"] !== "pawl")
    throw new Refusal(
      "foreign-import",
      `cannot import ${JSON.stringify(source["value"])}: only "pawl" may be imported`,
      startOf(source),
    );
}

function bindingOf(one: Tree): string {
  const local = (one["local"] as { name: string }).name;
  if (one.type === "ImportNamespaceSpecifier") return `const ${local}=__pawl;`;
  const imported =
    one.type === "ImportDefaultSpecifier" ? "default" : ((one["imported"] as { name?: string }).name ?? "");
  if (!EXPORTED.includes(imported))
    throw new Refusal("unknown-import", `"pawl" has no export named ${imported}`, startOf(one));
  return `const {${imported}:${local}}=__pawl;`;
}

function refuseForbidden(root: Tree): void {
  const visit = (node: Tree, inFunction: boolean): void => {
    if (node.type === "ImportExpression")
      throw new Refusal("dynamic-import", "import() cannot load anything here", startOf(node));
    if (node.type === "MetaProperty" && (node["meta"] as { name: string }).name === "import")
      throw new Refusal("import-meta", "import.meta does not exist here", startOf(node));
    const awaits =
      node.type === "AwaitExpression" || (node.type === "ForOfStatement" && node["await"] === true);
    if (!inFunction && awaits)
      throw new Refusal("top-level-await", "top-level code cannot await", startOf(node));
    const inside = inFunction || isFunction(node);
    for (const child of childrenOf(node)) visit(child, inside);
  };
  visit(root, false);
}

/** Proof that the text cannot end the function early and put code beside it (M1). */
function proveWhole(code: string, text: string): void {
  let whole = false;
  let message = "the file cannot be read as strict code";
  try {
    const tree = parse(code, { ecmaVersion: "latest", sourceType: "script" });
    const only = tree.body[0];
    whole =
      tree.body.length === 1 &&
      only?.type === "ExpressionStatement" &&
      only.expression.type === "FunctionExpression" &&
      only.expression.end === code.length - 1;
  } catch (error) {
    message = (error as Error).message.replace(/ \(\d+:\d+\)$/, "");
  }
  if (whole && !/<!--|^\s*-->/m.test(text)) return;
  const at = text.search(/<!--|^\s*-->/m);
  const before = text.slice(0, Math.max(at, 0)).split("\n");
  throw new Refusal("script-syntax", at >= 0 ? "HTML-like comments (<!-- or -->) are not allowed" : message, {
    line: before.length,
    column: (before.at(-1) ?? "").length,
  });
}

function applied(text: string, edits: { from: number; to: number; text: string }[]): string {
  let out = "";
  let at = 0;
  for (const edit of edits.sort((a, b) => a.from - b.from)) {
    out += text.slice(at, edit.from) + edit.text;
    at = edit.to;
  }
  return out + text.slice(at);
}

export function isFunction(node: Tree): boolean {
  return /^(Function|ArrowFunction)/.test(node.type);
}

export function startOf(node: Tree): { line: number; column: number } {
  return node.loc?.start ?? { line: 1, column: 0 };
}

export function childrenOf(node: Tree): Tree[] {
  const found: Tree[] = [];
  for (const value of Object.values(node))
    for (const item of Array.isArray(value) ? value : [value])
      if (typeof item === "object" && item !== null && typeof (item as Tree).type === "string")
        found.push(item as Tree);
  return found;
}
