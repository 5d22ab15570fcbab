/**
 * An author's ES module → the text of one strict function, every token at its own line and column. Runs in the
 * disposable compile child only.
 *
 * M1. The result is proved by parsing it again as the script it will be: one function expression, nothing beside it.
 */
import { type Comment, type Node, type Program, parse, type Token } from "acorn";

export interface Finding {
  code: string;
  message: string;
  line: number;
  column: number;
  /** What to do, where it can be said better than for every problem of this code. */
  hint?: string;
}

type Place = { line: number; column: number };
type Tree = Node & Record<string, unknown>;
export const START: Place = { line: 1, column: 0 };
const EXPORTED = ["workflow", "producer", "consumer", "topic"];

/** `at` counts columns from 0, as the parser does. */
export class Refusal extends Error {
  readonly finding: Finding;
  constructor(code: string, message: string, at: Place, hint?: string) {
    super(message);
    this.finding = { code, message, line: at.line, column: at.column + 1, ...(hint ? { hint } : {}) };
  }
}

export interface Module {
  text: string;
  tree: Program;
  tokens: Token[];
  comments: Comment[];
}

export function parseModule(text: string): Module {
  const tokens: Token[] = [];
  const comments: Comment[] = [];
  const options = { ecmaVersion: "latest", sourceType: "module", locations: true } as const;
  try {
    const tree = parse(text, { ...options, onToken: tokens, onComment: comments });
    return { text, tree, tokens, comments };
  } catch (error) {
    const { loc, pos, message } = error as SyntaxError & { loc?: Place; pos?: number };
    if (error instanceof RangeError || /stack space/.test(message))
      throw new Refusal("script-too-deep", "the file nests too deeply to be read", deepest(text));
    if (text[pos ?? -1] === "@")
      throw new Refusal(
        "unsupported-syntax",
        "decorators do not run here",
        loc ?? START,
        "Call the function on the class or method yourself.",
      );
    if (message.startsWith("Duplicate export 'default'"))
      throw new Refusal("second-workflow", "the file has two default exports", loc ?? START);
    throw new Refusal("script-syntax", said(message), loc ?? START);
  }
}

interface Edit {
  from: number;
  to: number;
  text: string;
}

export function toFunction({ text, tree, tokens, comments }: Module): string {
  const names: string[] = [];
  const edits: Edit[] = [];
  let tail = "";
  let exportsDefault = false;
  // A statement leaves a `;` behind: without it the lines around it could grow together.
  const blank = (from: number, to: number, by = "") =>
    edits.push({ from, to, text: by + text.slice(from + by.length, to).replace(/[^\n\r]/g, " ") });
  refuseForbidden(tree as unknown as Tree, text);
  for (const node of tree.body)
    if (node.type === "ImportDeclaration") {
      ownModule(node.source as unknown as Tree);
      for (const one of node.specifiers) names.push(bindingOf(one as unknown as Tree));
      blank(node.start, node.end, ";");
    } else if (node.type === "ExportAllDeclaration") {
      ownModule(node.source as unknown as Tree);
      blank(node.start, node.end, ";");
    } else if (node.type === "ExportDefaultDeclaration") {
      if (node.declaration.type.endsWith("Declaration"))
        throw new Refusal(
          "not-a-workflow",
          "the default export is a function or class, not a workflow",
          startOf(node.declaration as unknown as Tree),
        );
      const word = tokens.find((one) => one.start > node.start && one.type.keyword === "default");
      blank(node.start, node.start + "export".length);
      blank(word?.start ?? 0, word?.end ?? 0, "__out(");
      edits.push({ from: node.declaration.end, to: node.declaration.end, text: ")" });
      exportsDefault = true;
    } else if (node.type === "ExportNamedDeclaration") {
      if (node.source) ownModule(node.source as unknown as Tree);
      for (const one of node.specifiers as unknown as Tree[])
        if (node.source) refuseReexport(one);
        else if (nameOf(one["exported"]) === "default") {
          tail = `__out(${nameOf(one["local"])});`;
          exportsDefault = true;
        }
      if (node.declaration) blank(node.start, node.start + "export".length);
      else blank(node.start, node.end, ";");
    }
  if (!exportsDefault)
    throw new Refusal("no-default-export", "the file has no default export", wouldExport(tree));
  // A `sourceURL` would rename the file in every stack, and `#!` may only begin a file.
  for (const one of comments) if (one.type === "Line" && /^[#@]/.test(one.value)) blank(one.start, one.end);
  if (text.startsWith("#!")) blank(0, /^.*/.exec(text)?.[0].length ?? 0);
  const code = `(function(__pawl,__out){"use strict";${names.join("")}\n${applied(text, edits)}\n${tail}})`;
  refuseHtmlComments(text, tokens);
  proveWhole(code);
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
  const local = nameOf(one["local"]);
  if (one.type === "ImportNamespaceSpecifier") return `const ${local}=__pawl;`;
  const imported = one.type === "ImportDefaultSpecifier" ? "default" : nameOf(one["imported"]);
  if (!EXPORTED.includes(imported)) throw unknownExport(imported, one);
  return `const {${imported}:${local}}=__pawl;`;
}

function refuseReexport(one: Tree): void {
  const name = nameOf(one["local"]);
  if (!EXPORTED.includes(name)) throw unknownExport(name, one);
  if (nameOf(one["exported"]) === "default")
    throw new Refusal("not-a-workflow", `the default export is the function ${name} itself`, startOf(one));
}

function unknownExport(name: string, at: Tree): Refusal {
  return new Refusal("unknown-import", `"pawl" has no export named ${JSON.stringify(name)}`, startOf(at));
}

function nameOf(node: unknown): string {
  const { name, value } = node as { name?: string; value?: unknown };
  return name ?? String(value);
}

/** Where an author would have put `export default`: at the workflow, or where CommonJS exports. */
function wouldExport(tree: Program): Place {
  const within = (node: Tree, wanted: (one: Tree) => boolean): Tree | undefined => {
    if (wanted(node)) return node;
    for (const child of isFunction(node) ? [] : childrenOf(node)) {
      const found = within(child, wanted);
      if (found) return found;
    }
    return undefined;
  };
  const root = tree as unknown as Tree;
  const found =
    within(root, (one) => isCall(one, "workflow")) ??
    within(root, (one) => one.type === "MemberExpression" && nameOf(one["object"]) === "module") ??
    (tree.body.at(-1) as unknown as Tree | undefined);
  return found ? startOf(found) : START;
}

function isCall(node: Tree, callee: string): boolean {
  return node.type === "CallExpression" && (node["callee"] as { name?: string }).name === callee;
}

function refuseForbidden(root: Tree, text: string): void {
  // A bundler's own `require` is declared in the file; the one of CommonJS is not.
  const ownRequire = /\b(?:function|const|let|var)\s+require\b/.test(text);
  const workflows: Tree[] = [];
  let exported: Tree | undefined;
  const visit = (node: Tree, inFunction: boolean): void => {
    if (node.type === "ImportExpression")
      throw new Refusal("dynamic-import", "import() cannot load anything here", startOf(node));
    if (node.type === "MetaProperty" && (node["meta"] as { name: string }).name === "import")
      throw new Refusal("import-meta", "import.meta does not exist here", startOf(node));
    if (isCall(node, "require") && !ownRequire)
      throw new Refusal("foreign-import", "require() does not exist here", startOf(node));
    if (!inFunction && isCall(node, "workflow")) workflows.push(node);
    if (node.type === "ExportDefaultDeclaration") exported = node["declaration"] as Tree;
    const awaits =
      node.type === "AwaitExpression" ||
      (node.type === "ForOfStatement" && node["await"] === true) ||
      (node.type === "VariableDeclaration" && node["kind"] === "await using");
    if (!inFunction && awaits)
      throw new Refusal("top-level-await", "top-level code cannot await", startOf(node));
    const inside = inFunction || isFunction(node);
    for (const child of childrenOf(node)) visit(child, inside);
  };
  visit(root, false);
  if (workflows.length < 2) return;
  const other = workflows.includes(exported as Tree)
    ? workflows.find((one) => one !== exported)
    : workflows[1];
  throw new Refusal("second-workflow", "the file makes more than one workflow", startOf(other as Tree));
}

/** What is `a < !(--b)` in a module would start a comment in the function that this becomes. */
function refuseHtmlComments(text: string, tokens: Token[]): void {
  const found = tokens.find((one) => one.type.label !== "template" && text.startsWith("<!--", one.start));
  if (found) throw new Refusal("script-syntax", "`<!--` cannot be written here", found.loc?.start ?? START);
}

/** Proof that the text cannot end the function early and put code beside it (M1). */
function proveWhole(code: string): void {
  let message = "the file cannot be read as strict code";
  let at = START;
  try {
    const tree = parse(code, { ecmaVersion: "latest", sourceType: "script", locations: true });
    const only = tree.body[0];
    if (
      tree.body.length === 1 &&
      only?.type === "ExpressionStatement" &&
      only.expression.type === "FunctionExpression" &&
      only.expression.end === code.length - 1
    )
      return;
  } catch (error) {
    const { loc } = error as { loc?: Place };
    message = said((error as Error).message);
    if (loc && loc.line > 1) at = { line: loc.line - 1, column: loc.column };
  }
  throw new Refusal("script-syntax", message, at);
}

/** The parser appends the place to its message; we show it beside. */
function said(message: string): string {
  return message.replace(/ \(\d+:\d+\)$/, "");
}

/** The innermost bracket, for files that no parser survives. */
export function deepest(text: string): Place {
  let depth = 0;
  let most = 0;
  let at = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c === 40 || c === 91 || c === 123) {
      if (++depth > most) {
        most = depth;
        at = i;
      }
    } else if (c === 41 || c === 93 || c === 125) depth--;
  }
  const before = text.slice(0, at).split("\n");
  return { line: before.length, column: (before.at(-1) ?? "").length };
}

function applied(text: string, edits: Edit[]): string {
  let out = "";
  let at = 0;
  for (const edit of edits.sort((a, b) => a.from - b.from)) {
    if (edit.from < at) continue; // a comment inside what is gone already
    out += text.slice(at, edit.from) + edit.text;
    at = edit.to;
  }
  return out + text.slice(at);
}

export function isFunction(node: Tree): boolean {
  return /^(Function|ArrowFunction)/.test(node.type);
}

export function startOf(node: Tree): { line: number; column: number } {
  return node.loc?.start ?? START;
}

export function childrenOf(node: Tree): Tree[] {
  const found: Tree[] = [];
  for (const value of Object.values(node))
    for (const item of Array.isArray(value) ? value : [value])
      if (typeof item === "object" && item !== null && typeof (item as Tree).type === "string")
        found.push(item as Tree);
  return found;
}
