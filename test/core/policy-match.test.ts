import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { SCOPES, type Scope, UNITS } from "../../host/core/policy.ts";
import {
  type KnownNames,
  matchesGlob,
  matchesSubject,
  type PolicyMatch,
  type PolicySubject,
  type Predicate,
  readMatch,
  scopesOf,
} from "../../host/core/policy-match.ts";
import type { PolicyProblem } from "../../host/core/policy-shape.ts";

const prepare: PolicySubject = {
  scope: "prepare",
  workflow: "orders",
  labels: { team: "billing", tier: "1" },
  handler: "book",
  type: "consumer",
};
const next: PolicySubject = { ...prepare, scope: "next" };
const poll: PolicySubject = { ...prepare, scope: "producer", handler: "llm_poll", type: "producer" };
const pollRead: PolicySubject = {
  ...poll,
  scope: "read",
  tool: "http.get",
  connector: "http",
  connection: "shop",
};
const send: PolicySubject = {
  ...prepare,
  scope: "mutation",
  tool: "smtp.send",
  connector: "smtp",
  connection: "bank",
};
const whole: PolicySubject = { scope: "workflow", workflow: "orders", labels: { team: "billing" } };
const SUBJECTS = { prepare, next, poll, pollRead, send, whole };

function read(value: unknown, known: KnownNames = {}): { match?: PolicyMatch; problems: PolicyProblem[] } {
  const problems: PolicyProblem[] = [];
  const match = readMatch(value, "/0/match", known, (code, path, message, nearest) =>
    problems.push({ code, path, message, ...(nearest !== undefined && { nearest }) }),
  );
  return { ...(match !== undefined && { match }), problems };
}
const matches = (match: PolicyMatch, subject: PolicySubject) =>
  matchesSubject(match, subject, new Map(), () => {});

describe("each matcher matches what 04 says and nothing else", () => {
  test.each<[PolicyMatch, (keyof typeof SUBJECTS)[]]>([
    ["default", ["prepare", "next", "poll", "pollRead", "send", "whole"]],
    ["orders/book", ["prepare", "next", "send"]],
    ["*/book", ["prepare", "next", "send"]],
    ["orders/*", ["prepare", "next", "poll", "pollRead", "send", "whole"]],
    ["ord*s/b*k", ["prepare", "next", "send"]],
    ["orders/book.next", ["next"]],
    ["*/*.read", ["pollRead"]],
    ["orders/*.producer", ["poll"]],
    ["*/*", ["prepare", "next", "poll", "pollRead", "send", "whole"]],
    ["invoices/*", []],
    ["orders/boo", []],
    ["order/book", []],
    [{ nameRegex: "^llm_" }, ["poll", "pollRead"]],
    [{ nameRegex: "o{2}" }, ["prepare", "next", "send"]],
    [{ type: "producer" }, ["poll", "pollRead"]],
    [{ type: "consumer" }, ["prepare", "next", "send"]],
    [{ type: ["producer", "consumer"] }, ["prepare", "next", "poll", "pollRead", "send"]],
    [{ unit: "next" }, ["next"]],
    [{ unit: ["producer", "mutation"] }, ["poll", "send"]],
    [{ connector: "smtp" }, ["send"]],
    [{ tool: "http.get" }, ["pollRead"]],
    [{ tool: ["http.get", "smtp.send"] }, ["pollRead", "send"]],
    [{ connection: "bank" }, ["send"]],
    [{ label: { team: "billing" } }, ["prepare", "next", "poll", "pollRead", "send", "whole"]],
    [{ label: { team: "billing", tier: "1" } }, ["prepare", "next", "poll", "pollRead", "send"]],
    [{ label: { team: "shipping" } }, []],
    [{ label: { toString: "x" } }, []],
    [{ type: "producer", unit: "read" }, ["pollRead"]],
    [{ nameRegex: "book", connection: "bank" }, ["send"]],
    [{ nameRegex: "llm", connection: "bank" }, []],
  ])("%j (M1, M2)", (match, expected) => {
    expect(read(match)).toEqual({ match, problems: [] });
    const found = Object.entries(SUBJECTS).filter(([, subject]) => matches(match, subject));
    expect(found.map(([name]) => name)).toEqual(expected);
  });

  test("a handler whose name has a dot is matched whole unless the end names a unit", () => {
    const dotted = { ...prepare, handler: "book.v2" };
    expect(matches("orders/book.v2", dotted)).toBe(true);
    expect(matches("orders/book.v2.prepare", dotted)).toBe(true);
    expect(matches("orders/book.v2.next", dotted)).toBe(false);
  });
});

describe("globs", () => {
  test.each([
    ["*", "", true],
    ["a*c", "abc", true],
    ["a*c", "ac", true],
    ["a*c", "acb", false],
    ["*a*b*", "xxaxxbxx", true],
    ["*ab", "aab", true],
    ["**", "x", true],
    ["a.c", "abc", false],
    ["", "", true],
    ["a", "", false],
  ])("%s on %s is %s", (pattern, name, expected) => {
    expect(matchesGlob(pattern, name)).toBe(expected);
  });

  test("agree with the same pattern as a regular expression", () => {
    const word = (letters: string[]) =>
      fc.array(fc.constantFrom(...letters), { maxLength: 12 }).map((one) => one.join(""));
    fc.assert(
      fc.property(word(["a", "b", "*"]), word(["a", "b"]), (pattern, name) => {
        const regex = new RegExp(`^${pattern.replaceAll(/\*+/g, ".*")}$`);
        expect(matchesGlob(pattern, name)).toBe(regex.test(name));
      }),
      { numRuns: 3_000 },
    );
  });

  test("a hostile pattern ends", () => {
    expect(matchesGlob(`${"*a".repeat(32)}b`, "a".repeat(64))).toBe(false);
  });
});

describe("registered functions (M3)", () => {
  const ask = (predicate: Predicate | undefined, match: PolicyMatch = { function: "isNightly" }) => {
    const warnings: string[] = [];
    const known = new Map(predicate && [["isNightly", predicate]]);
    return { matched: matchesSubject(match, prepare, known, (one) => warnings.push(one)), warnings };
  };

  test("decide by the subject", () => {
    expect(ask((subject) => subject.handler === "book")).toEqual({ matched: true, warnings: [] });
    expect(ask((subject) => subject.handler === "other")).toEqual({ matched: false, warnings: [] });
  });

  test.each<[string, Predicate | undefined, string]>([
    [
      "throws",
      () => {
        throw new Error("boom");
      },
      "boom",
    ],
    [
      "throws no error",
      () => {
        throw { odd: 1 };
      },
      "odd",
    ],
    ["is not registered", undefined, "not registered"],
    ["answers a promise", (() => Promise.resolve(true)) as unknown as Predicate, "not true or false"],
    ["answers nothing", (() => undefined) as unknown as Predicate, "not true or false"],
    ["answers 1", (() => 1) as unknown as Predicate, "not true or false"],
  ])("one that %s matches nothing, and is told", (_, predicate, why) => {
    const { matched, warnings } = ask(predicate);
    expect(matched).toBe(false);
    expect(warnings).toEqual([expect.stringContaining(why)]);
    expect(warnings[0]).toContain("isNightly");
  });

  test("are not asked where another key already fails", () => {
    const asked = ask(
      () => {
        throw new Error("asked");
      },
      { function: "isNightly", type: "producer" },
    );
    expect(asked).toEqual({ matched: false, warnings: [] });
  });
});

describe("what a match could ever match", () => {
  const calls: Scope[] = ["read", "mutation", "check"];
  const consumer: Scope[] = ["prepare", "mutate", "next", ...calls];
  test.each<[PolicyMatch, readonly Scope[]]>([
    ["default", SCOPES],
    ["orders/*", SCOPES],
    ["orders/book", UNITS],
    ["orders/*.next", ["next"]],
    [{ nameRegex: "a" }, UNITS],
    [{ type: "producer" }, ["producer", "read"]],
    [{ type: "consumer" }, consumer],
    [{ type: ["producer", "consumer"] }, UNITS],
    [{ unit: ["next", "prepare"] }, ["prepare", "next"]],
    [{ connector: "http" }, calls],
    [{ tool: "http.get" }, calls],
    [{ connection: "bank" }, calls],
    [{ label: { a: "b" } }, SCOPES],
    [{ function: "f" }, SCOPES],
    [{ label: { a: "b" }, connection: "bank", type: "producer" }, ["read"]],
  ])("%j", (match, expected) => {
    expect(scopesOf(match)).toEqual(expected);
  });

  const known: KnownNames = {
    workflows: { orders: { producers: ["poll"], consumers: ["book"] } },
    tools: { "http.get": "read", "http.post": "mutation" },
  };
  test.each<[PolicyMatch, readonly Scope[]]>([
    ["orders/poll", ["producer", "read"]],
    ["orders/book", consumer],
    ["*/p*", ["producer", "read"]],
    [{ tool: "http.get" }, ["read"]],
    [{ tool: "http.post" }, ["mutation", "check"]],
    [{ tool: ["http.get", "http.post"] }, calls],
  ])("%j, names being known", (match, expected) => {
    expect(scopesOf(match, known)).toEqual(expected);
  });

  test("is never less than what it matches", () => {
    const word = fc.constantFrom("*", "orders", "book", "llm_poll", "x");
    const match = fc.oneof<fc.Arbitrary<PolicyMatch>[]>(
      fc.tuple(word, word).map((parts) => parts.join("/")),
      fc.tuple(word, word, fc.constantFrom(...UNITS)).map(([a, b, unit]) => `${a}/${b}.${unit}`),
      fc.record(
        {
          type: fc.constantFrom("producer" as const, "consumer" as const),
          unit: fc.subarray([...UNITS], { minLength: 1 }),
          connection: fc.constantFrom("bank", "shop"),
          label: fc.constant({ team: "billing" }),
        },
        { requiredKeys: ["label"] },
      ),
    );
    fc.assert(
      fc.property(match, fc.constantFrom(...Object.values(SUBJECTS)), (one, subject) => {
        expect(!matches(one, subject) || scopesOf(one).includes(subject.scope)).toBe(true);
      }),
      { numRuns: 2_000 },
    );
  });
});

describe("a match that cannot be meant is refused with path, code and nearest name", () => {
  const known: KnownNames = {
    workflows: { orders: { producers: ["poll"], consumers: ["book"] } },
    tools: { "http.get": "read", "http.post": "mutation" },
    connectors: ["http", "smtp"],
    connections: ["bank"],
    labels: ["team"],
    functions: ["isNightly"],
  };
  test.each<[unknown, string, string, string | undefined]>([
    ["defualt", "policy-bad-match", "", "default"],
    ["book", "policy-bad-match", "", undefined],
    ["a/b/c", "policy-bad-match", "", undefined],
    ["/book", "policy-bad-match", "", undefined],
    ["orders/", "policy-bad-match", "", undefined],
    ["orders/.next", "policy-bad-match", "", undefined],
    ["or ders/book", "policy-bad-match", "", undefined],
    [`orders/${"b".repeat(65)}`, "policy-bad-match", "", undefined],
    ["", "policy-bad-match", "", undefined],
    [undefined, "policy-bad-match", "", undefined],
    [5, "policy-bad-match", "", undefined],
    [["default"], "policy-bad-match", "", undefined],
    [{}, "policy-bad-match", "", undefined],
    [{ nameRegxe: "a" }, "policy-bad-match", "/nameRegxe", "nameRegex"],
    [{ kind: "producer" }, "policy-bad-match", "/kind", undefined],
    [{ type: "produce" }, "policy-bad-match", "/type", "producer"],
    [{ type: [] }, "policy-bad-match", "/type", undefined],
    [{ type: ["producer", "consume"] }, "policy-bad-match", "/type/1", "consumer"],
    [{ unit: "mutator" }, "policy-bad-match", "/unit", "mutate"],
    [{ unit: "workflow" }, "policy-bad-match", "/unit", undefined],
    [{ type: "producer", unit: "next" }, "policy-bad-match", "", undefined],
    [{ tool: "http.get", unit: "mutation" }, "policy-bad-match", "", undefined],
    [{ nameRegex: "(a+)+" }, "policy-unsafe-pattern", "/nameRegex", undefined],
    [{ nameRegex: 5 }, "policy-unsafe-pattern", "/nameRegex", undefined],
    [{ tool: "post" }, "policy-bad-match", "/tool", undefined],
    [{ tool: "http.*" }, "policy-bad-match", "/tool", undefined],
    [{ label: {} }, "policy-bad-match", "/label", undefined],
    [{ label: "team" }, "policy-bad-match", "/label", undefined],
    [{ label: { team: 5 } }, "policy-bad-match", "/label/team", undefined],
    [{ function: () => true }, "policy-bad-match", "/function", undefined],
    [{ connector: null }, "policy-bad-match", "/connector", undefined],
    ["orders/bok", "policy-unmatched", "", "orders/book"],
    ["orders/book.nxt", "policy-unmatched", "", "orders/book.next"],
    ["orders/poll.next", "policy-unmatched", "", "orders/poll.read"],
    ["invoices/*", "policy-unmatched", "", undefined],
    [{ tool: "http.pst" }, "policy-unmatched", "/tool", "http.post"],
    [{ connector: "htp" }, "policy-unmatched", "/connector", "http"],
    [{ connection: ["bank", "bnak"] }, "policy-unmatched", "/connection/1", "bank"],
    [{ label: { teem: "x" } }, "policy-unmatched", "/label/teem", "team"],
    [{ function: "isNightli" }, "policy-unmatched", "/function", "isNightly"],
  ])("%j", (value, code, below, nearest) => {
    const { match, problems } = read(value, known);
    expect(match).toBeUndefined();
    expect(problems).toEqual([
      {
        code,
        path: `/0/match${below}`,
        message: expect.any(String),
        ...(nearest !== undefined && { nearest }),
      },
    ]);
  });

  test("names are not checked where nothing is known about them", () => {
    for (const match of [
      "orders/bok",
      { tool: "http.pst" },
      { connection: "x" },
      { function: "f" },
      { label: { a: "b" } },
    ])
      expect(read(match).problems).toEqual([]);
  });
});
