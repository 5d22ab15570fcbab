// Reads TypeScript modules and says what each one imports and calls. Decides nothing: rules.ts judges.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript6";

export type Module = { path: string; source: string };

export type Import = { specifier: string; line: number; typeOnly: boolean };

export type Facts = {
  imports: Import[];
  /** import() or require() of something that is not a string literal. */
  computedImports: number[];
  /** Dotted names that are called or constructed: "Date.now", "setTimeout", "new Date" (without arguments). */
  calls: { name: string; line: number }[];
  /** Lines where something is async or awaits. */
  asyncLines: number[];
};

export const repoRoot = join(import.meta.dirname, "..", "..");

/** Every .ts and .tsx file below the given folders of the repository; a folder that does not exist has none. */
export function readModules(folders: readonly string[]): Module[] {
  const modules: Module[] = [];
  for (const folder of folders) {
    let entries: string[] = [];
    try {
      entries = readdirSync(join(repoRoot, folder), { recursive: true, encoding: "utf8" });
    } catch {
      continue;
    }
    for (const entry of entries.sort()) {
      const path = `${folder}/${entry.replaceAll("\\", "/")}`;
      if (!/\.tsx?$/.test(path) || /(^|\/)(node_modules|dist)\//.test(path)) continue;
      modules.push({ path, source: readFileSync(join(repoRoot, path), "utf8") });
    }
  }
  return modules;
}

export function factsOf(module: Module): Facts {
  const file = ts.createSourceFile(module.path, module.source, ts.ScriptTarget.Latest, true);
  const facts: Facts = { imports: [], computedImports: [], calls: [], asyncLines: [] };
  const lineOf = (node: ts.Node) => file.getLineAndCharacterOfPosition(node.getStart(file)).line + 1;
  const visit = (node: ts.Node): void => {
    readImport(node, facts, lineOf);
    readCall(node, file, facts, lineOf);
    if (ts.isAwaitExpression(node) || node.kind === ts.SyntaxKind.AsyncKeyword) {
      facts.asyncLines.push(lineOf(node));
    }
    ts.forEachChild(node, visit);
  };
  visit(file);
  return facts;
}

function readImport(node: ts.Node, facts: Facts, lineOf: (node: ts.Node) => number): void {
  const add = (specifier: ts.Node | undefined, typeOnly: boolean) => {
    if (specifier === undefined) return;
    if (ts.isStringLiteralLike(specifier)) {
      facts.imports.push({ specifier: specifier.text, line: lineOf(node), typeOnly });
    } else facts.computedImports.push(lineOf(node));
  };
  if (ts.isImportDeclaration(node)) add(node.moduleSpecifier, node.importClause?.isTypeOnly === true);
  else if (ts.isExportDeclaration(node)) add(node.moduleSpecifier, node.isTypeOnly);
  else if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument)) add(node.argument.literal, true);
  else if (ts.isExternalModuleReference(node)) add(node.expression, false);
  else if (ts.isCallExpression(node)) {
    const callee = node.expression;
    const isImport = callee.kind === ts.SyntaxKind.ImportKeyword;
    const isRequire = ts.isIdentifier(callee) && callee.text === "require";
    if (isImport || isRequire) add(node.arguments[0], false);
  }
}

function readCall(node: ts.Node, file: ts.SourceFile, facts: Facts, lineOf: (node: ts.Node) => number): void {
  if (ts.isCallExpression(node)) {
    const name = node.expression.getText(file).replace(/^globalThis\./, "");
    facts.calls.push({ name, line: lineOf(node) });
  } else if (ts.isNewExpression(node) && (node.arguments?.length ?? 0) === 0) {
    facts.calls.push({ name: `new ${node.expression.getText(file)}`, line: lineOf(node) });
  }
}
