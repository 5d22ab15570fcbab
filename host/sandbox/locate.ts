/**
 * Where in the author's file each part of the declaration stands, and what in it deserves a warning. Reads the syntax
 * tree only; runs in the disposable compile child.
 */
import type { Node, Program } from "acorn";
import { childrenOf, type Finding, isFunction, startOf } from "./module.ts";

type Tree = Node & Record<string, unknown>;

const MAX_WARNINGS = 100;

/** `consumers.book.subscribes.0` → position. The empty path is the default export itself. */
export type Positions = Record<string, { line: number; column: number }>;

export function positionsOf(tree: Program): { positions: Positions; duplicates: Finding[] } {
  const found: Positions = {};
  const duplicates: Finding[] = [];
  const declared = topLevelValues(tree);
  const note = (path: string, node: Tree) => {
    const { line, column } = startOf(node);
    found[path] ??= { line, column: column + 1 };
  };
  const visit = (given: Tree | undefined, path: string, depth: number): void => {
    const node = given?.type === "Identifier" ? (declared.get(given["name"] as string) ?? given) : given;
    if (!node || depth > 8) return;
    if (node.type === "CallExpression") return visit((node["arguments"] as Tree[])[0], path, depth + 1);
    if (node.type === "ArrayExpression")
      for (const [i, item] of (node["elements"] as Tree[]).entries()) {
        if (!item) continue;
        note(`${path}.${i}`, item);
        visit(item, `${path}.${i}`, depth + 1);
      }
    if (node.type !== "ObjectExpression") return;
    const names = new Set<string>();
    for (const property of node["properties"] as Tree[]) {
      const key = property["key"] as Tree | undefined;
      if (!key || property["computed"] === true) continue;
      const name = keyName(key);
      if (names.has(name)) duplicates.push(finding(key, "duplicate-name", twice(path, name)));
      names.add(name);
      const inner = path === "" ? keyName(key) : `${path}.${keyName(key)}`;
      note(inner, key);
      visit(property["value"] as Tree, inner, depth + 1);
    }
  };
  const root = defaultExport(tree, declared);
  if (root) {
    note("", root);
    visit(root, "", 0);
  }
  return { positions: found, duplicates };
}

function twice(path: string, name: string): string {
  return `${path === "" ? "the workflow" : path} already has ${JSON.stringify(name)}; the first one would be lost`;
}

function finding(node: Tree, code: string, message: string): Finding {
  const { line, column } = startOf(node);
  return { code, message, line, column: column + 1 };
}

type Place = { line: number; column: number };
export type Span = Place & { end: Place };

export function isWithin({ line, column }: Place, { end, ...start }: Span): boolean {
  const after = line > start.line || (line === start.line && column >= start.column);
  return after && (line < end.line || (line === end.line && column <= end.column));
}

/** The top-level code that can take long: a loop, else a call. */
export const LONG_WORK = [/^(For|While|DoWhile)/, /^(Call|New)Expression$/];

/** The first top-level code of one of these kinds, the kinds by preference. */
export function firstOf(tree: Program, ...kinds: RegExp[]): Span | undefined {
  const within = (node: Tree, kind: RegExp): Tree | undefined => {
    if (isFunction(node) || node.type.startsWith("ExportDefault")) return undefined;
    if (kind.test(node.type)) return node;
    for (const child of childrenOf(node)) {
      const found = within(child, kind);
      if (found) return found;
    }
    return undefined;
  };
  for (const kind of kinds) {
    const found = within(tree as unknown as Tree, kind);
    if (found) return { ...startOf(found), end: found.loc?.end ?? startOf(found) };
  }
  return undefined;
}

/** Writes to module-level variables inside functions, and consumers that never set `ui`. */
export function findWarnings(tree: Program): Finding[] {
  const found: Finding[] = [];
  const outer = new Set<string>();
  for (const node of tree.body as unknown as Tree[]) for (const name of declaredBy(node)) outer.add(name);
  const visit = (node: Tree, hidden: Set<string>, inFunction: boolean): void => {
    let names = hidden;
    if (
      isFunction(node) ||
      node.type === "BlockStatement" ||
      node.type === "CatchClause" ||
      node.type.startsWith("For")
    ) {
      names = new Set(hidden);
      const params = isFunction(node)
        ? (node["params"] as Tree[])
        : node.type === "CatchClause"
          ? [node["param"] as Tree]
          : [];
      for (const param of params) for (const name of namesIn(param)) names.add(name);
      const body = node.type === "BlockStatement" ? (node["body"] as Tree[]) : childrenOf(node);
      for (const item of body) for (const name of declaredBy(item)) names.add(name);
    }
    const inside = inFunction || isFunction(node);
    if (inside)
      for (const name of written(node))
        if (outer.has(name) && !names.has(name) && found.length < MAX_WARNINGS) {
          const message = `${name} is written inside a function, but no run sees what another wrote`;
          found.push(finding(node, "module-state", message));
        }
    for (const child of childrenOf(node)) visit(child, names, inside);
  };
  for (const node of tree.body as unknown as Tree[]) visit(node, new Set(), false);
  return found;
}

const CHANGES = /^(add|set|delete|clear|push|pop|shift|unshift|splice|sort|reverse|fill|copyWithin)$/;

/** The variables that this node itself writes: the names, or the objects behind them. */
function written(node: Tree): string[] {
  switch (node.type) {
    case "AssignmentExpression":
      return [...namesIn(node["left"] as Tree), ...ownerOf(node["left"] as Tree)];
    case "ForOfStatement":
    case "ForInStatement":
      return [...namesIn(node["left"] as Tree), ...ownerOf(node["left"] as Tree)];
    case "UpdateExpression":
      return [...namesIn(node["argument"] as Tree), ...ownerOf(node["argument"] as Tree)];
    case "UnaryExpression":
      return node["operator"] === "delete" ? ownerOf(node["argument"] as Tree) : [];
    case "CallExpression": {
      const callee = node["callee"] as Tree;
      return callee.type === "MemberExpression" && CHANGES.test(keyName(callee["property"] as Tree))
        ? ownerOf(callee)
        : [];
    }
    default:
      return [];
  }
}

/** `a.b.c` → `a`, if it is a variable. */
function ownerOf(node: Tree): string[] {
  let owner = node;
  while (owner.type === "MemberExpression") owner = owner["object"] as Tree;
  return owner !== node && owner.type === "Identifier" ? [owner["name"] as string] : [];
}

/** Does the function at this path of the declaration mention a property of this name? */
export function mentions(tree: Program, path: string[], property: string): boolean {
  const declared = topLevelValues(tree);
  let node = defaultExport(tree, declared);
  for (const step of path) {
    if (node?.type === "Identifier") node = declared.get(node["name"] as string);
    if (node?.type === "CallExpression") node = (node["arguments"] as Tree[])[0];
    if (node?.type !== "ObjectExpression") return true;
    const own = (node["properties"] as Tree[]).find(
      (one) => one["key"] && keyName(one["key"] as Tree) === step,
    );
    if (!own) return true;
    node = own["value"] as Tree;
  }
  const search = (one: Tree): boolean =>
    (one.type === "Property" && keyName(one["key"] as Tree) === property) ||
    (one.type === "AssignmentExpression" &&
      keyName((one["left"] as Tree)["property"] as Tree) === property) ||
    one.type === "SpreadElement" ||
    childrenOf(one).some(search);
  return node === undefined || node.type === "Identifier" || search(node);
}

function defaultExport(tree: Program, declared: Map<string, Tree>): Tree | undefined {
  for (const node of tree.body as unknown as Tree[]) {
    if (node.type === "ExportDefaultDeclaration") {
      const value = node["declaration"] as Tree;
      return value.type === "Identifier" ? (declared.get(value["name"] as string) ?? value) : value;
    }
    for (const one of (node["specifiers"] as Tree[] | undefined) ?? [])
      if ((one["exported"] as { name?: string } | undefined)?.name === "default")
        return declared.get((one["local"] as { name: string }).name) ?? one;
  }
  return undefined;
}

function topLevelValues(tree: Program): Map<string, Tree> {
  const values = new Map<string, Tree>();
  for (const node of tree.body as unknown as Tree[]) {
    const declaration = node.type === "ExportNamedDeclaration" ? (node["declaration"] as Tree | null) : node;
    if (declaration?.type !== "VariableDeclaration") continue;
    for (const one of declaration["declarations"] as Tree[])
      if ((one["id"] as Tree).type === "Identifier" && one["init"])
        values.set((one["id"] as unknown as { name: string }).name, one["init"] as Tree);
  }
  return values;
}

function keyName(key: Tree | undefined): string {
  const { name, value } = (key ?? {}) as { name?: string; value?: string | number };
  return name ?? String(value ?? "");
}

function declaredBy(node: Tree): string[] {
  const own = node.type === "ExportNamedDeclaration" ? (node["declaration"] as Tree | null) : node;
  if (own?.type === "VariableDeclaration")
    return (own["declarations"] as Tree[]).flatMap((one) => namesIn(one["id"] as Tree));
  if (own?.type === "FunctionDeclaration" || own?.type === "ClassDeclaration")
    return own["id"] ? namesIn(own["id"] as Tree) : [];
  return [];
}

/** The identifiers that a pattern binds or assigns; not what a member expression reads. */
function namesIn(pattern: Tree | null | undefined): string[] {
  if (!pattern) return [];
  switch (pattern.type) {
    case "Identifier":
      return [pattern["name"] as string];
    case "ObjectPattern":
      return (pattern["properties"] as Tree[]).flatMap((one) =>
        namesIn((one["value"] ?? one["argument"]) as Tree),
      );
    case "ArrayPattern":
      return (pattern["elements"] as (Tree | null)[]).flatMap((one) => namesIn(one));
    case "AssignmentPattern":
      return namesIn(pattern["left"] as Tree);
    case "RestElement":
      return namesIn(pattern["argument"] as Tree);
    default:
      return [];
  }
}
