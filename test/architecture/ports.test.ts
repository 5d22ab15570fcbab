import { readFileSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript6";
import { describe, expect, test } from "vitest";
import { repoRoot } from "./source.ts";

const MOST_METHODS = 16;

/** The methods that an interface declares itself; what it inherits belongs to another contract. */
function methodsOf(source: string, name: string): string[] {
  const file = ts.createSourceFile("port.ts", source, ts.ScriptTarget.Latest, true);
  const found = file.statements.find(
    (one): one is ts.InterfaceDeclaration => ts.isInterfaceDeclaration(one) && one.name.text === name,
  );
  if (!found) throw new Error(`there is no interface ${name}`);
  const isCalled = (member: ts.TypeElement): boolean =>
    ts.isMethodSignature(member) ||
    (ts.isPropertySignature(member) && member.type !== undefined && ts.isFunctionTypeNode(member.type));
  return found.members.filter(isCalled).map((member) => member.name?.getText(file) ?? "");
}

const problemOf = (methods: readonly string[]): string | undefined =>
  methods.length > MOST_METHODS ? `${methods.length} methods, at most ${MOST_METHODS}` : undefined;

describe("the store port stays small", () => {
  const source = readFileSync(join(repoRoot, "host", "ports", "store.ts"), "utf8");

  test("it has at most sixteen methods", () => {
    const methods = methodsOf(source, "Store");
    expect(methods).toContain("apply");
    expect(problemOf(methods)).toBeUndefined();
  });

  test("a seventeenth is reported, whether it is written as a method or as a function", () => {
    const planted = Array.from({ length: MOST_METHODS }, (_, n) => `m${n}(): void;`).join("\n");
    const port = (more: string) => `export interface Store { readonly fence: Fence;\n${planted}\n${more} }`;
    expect(problemOf(methodsOf(port(""), "Store"))).toBeUndefined();
    expect(problemOf(methodsOf(port("more(): void;"), "Store"))).toBe("17 methods, at most 16");
    expect(problemOf(methodsOf(port("more: () => void;"), "Store"))).toBe("17 methods, at most 16");
  });
});
