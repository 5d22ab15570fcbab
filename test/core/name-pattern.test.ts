import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { compileNamePattern, namePatternProblem } from "../../host/core/name-pattern.ts";

describe("patterns for handler names", () => {
  test.each([
    "^llm_",
    "book$",
    "^(sync|import)-?[a-z]+-\\d+$",
    "^(?:a|b)_.*_v\\d+$",
    "^(foo-\\d+)?bar$",
    "^(?<team>billing|shipping)-",
    "a{3}b{2,4}",
    "^[^*+?(){}|]+$",
    "\\(\\*\\)\\{2\\}",
    "^.*a.*b.*$",
    "(a+){1}",
    "(a|b)?c",
    "\\u{61}+\\x62\\p{L}",
    "[\\]*]*x",
  ])("%s is accepted", (source) => {
    expect(namePatternProblem(source)).toBeUndefined();
  });

  test.each([
    ["(a+)+$", "repeat"],
    ["(a*)*", "repeat"],
    ["((a+)b)*", "repeat"],
    ["(a?)*", "repeat"],
    ["(a?){30}", "repeat"],
    ["(a|a)*$", "repeat"],
    ["(?:a|aa)+$", "repeat"],
    ["(?<x>a|b){2,}", "repeat"],
    ["(?:\\w+\\s?)*$", "repeat"],
    ["(.*,){12}P", "repeat"],
    ["([a-z]+)?([a-z]+)?([a-z]+)?([a-z]+)?", "too many"],
    [".*.*.*.*x", "too many"],
    [`${"a?".repeat(30)}${"a".repeat(30)}`, "too many"],
    [`${"(a|a)".repeat(20)}b`, "too many"],
    ["(?=a)b", "looks"],
    ["(?!a)b", "looks"],
    ["(?<=a)b", "looks"],
    ["(?<!a)b", "looks"],
    ["(a)\\1", "refers back"],
    ["(?<x>a)\\k<x>", "refers back"],
    ["(", "not a regular expression"],
    ["a**", "not a regular expression"],
    ["a{2", "not a regular expression"],
    ["", "empty"],
    ["a".repeat(201), "characters"],
  ])("%s is refused: %s", (source, why) => {
    expect(namePatternProblem(source)).toContain(why);
  });

  const names = ["a".repeat(64), `${"a".repeat(63)}!`, "ab".repeat(32)];
  const elapsedMs = (source: string): number => {
    const before = performance.now();
    for (const name of names) compileNamePattern(source).test(name);
    return performance.now() - before;
  };

  // Milliseconds are expected; a pattern that should have been refused takes years.
  test("N1: whatever is accepted ends soon on the longest names", () => {
    const pieces = [
      "a",
      "b",
      ".",
      "\\w",
      "[ab]",
      "(",
      ")",
      "(?:",
      "|",
      "*",
      "+",
      "?",
      "{2,9}",
      "{3}",
      "*?",
      "$",
    ];
    let accepted = 0;
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...pieces), { minLength: 1, maxLength: 14 }), (given) => {
        const source = given.join("");
        if (namePatternProblem(source) !== undefined) return;
        accepted++;
        expect(elapsedMs(source)).toBeLessThan(5_000);
      }),
      { numRuns: 5_000 },
    );
    expect(accepted).toBeGreaterThan(100);
  });

  test.each(["[ab]*[ab]*[ab]*[xy]", "\\w*?\\w*?\\w*?!$"])(
    "N1: %s, as slow as is accepted, ends soon",
    (source) => {
      expect(namePatternProblem(source)).toBeUndefined();
      expect(elapsedMs(source)).toBeLessThan(5_000);
    },
  );
});
