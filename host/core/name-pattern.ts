/**
 * May this regular expression be tried against every handler name, for ever? Operators save patterns; a careless one
 * such as `(a+)+$` takes longer than the universe on a short name. 04 wants a time limit when one is saved, but the
 * core has no clock, and a measured time would depend on the names tried; so the pattern's structure is judged:
 * an upper bound on the ways it can divide one name among its parts, which is what a backtracking engine tries.
 *
 * N1. Whatever is accepted makes at most MAX_WAYS divisions of a name, so it ends within milliseconds.
 * N2. A repeat of something that itself leaves a choice is refused, however small (nested quantifiers).
 */

const MAX_CHARS = 200;
/** Names have at most 64 characters (NAME_PATTERN): a repeat of one character can end in 65 places. */
const REPEAT_WAYS = 65;
/** Three free repeats. */
const MAX_WAYS = REPEAT_WAYS ** 3;

/** Why the pattern is refused, in words that follow "nameRegex"; `undefined` when it may be used. */
export function namePatternProblem(source: string): string | undefined {
  if (source.length === 0) return "is empty";
  if (source.length > MAX_CHARS) return `has ${source.length} characters; at most ${MAX_CHARS}`;
  try {
    compileNamePattern(source);
  } catch {
    return "is not a regular expression";
  }
  // Lookaround and references cost more than the ways counted below, and no handler name needs them.
  const parts = splitPattern(source);
  if (parts.some((part) => part.startsWith("(?") && part !== "(?:" && !part.endsWith(">")))
    return "looks ahead or behind, which is not supported";
  if (parts.some((part) => /^\\(?:[1-9]|k)/.test(part)))
    return "refers back to a group, which is not supported";
  const ways = countWays(parts);
  if (ways === undefined)
    return "repeats something that is itself a repeat or a choice, which can take for ever"; // (N2)
  if (ways > MAX_WAYS) return "has too many repeats and choices; at most three free repeats"; // (N1)
  return undefined;
}

/** The `u` flag refuses what older syntax would silently read as something else. */
export function compileNamePattern(source: string): RegExp {
  return new RegExp(source, "u");
}

const PART =
  /\\(?:u\{[^}]*\}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[pP]\{[^}]*\}|k<[^>]*>|c[a-zA-Z]|[1-9]\d*|.)|\[(?:\\.|[^\]\\])*\]|\(\?(?:<[A-Za-z_$][\w$]*>|<[=!]|[:=!]|[a-z-]*:)|\(|\)|\||(?:\{\d+(?:,\d*)?\}|[*+?])\??|./gsu;

/** Atoms, brackets, bars and quantifiers, in order. The pattern is known to be valid. */
function splitPattern(source: string): string[] {
  return source.match(PART) ?? [];
}

interface Group {
  /** Ways of the alternatives that a `|` has ended. */
  before: number;
  /** Ways of the alternative being read, without its last atom. */
  ways: number;
  /** Ways of the last atom, which a quantifier may still change. */
  last: number;
}

/** `undefined`: a repeat of something with more than one way. */
function countWays(parts: readonly string[]): number | undefined {
  const open: Group[] = [];
  let group: Group = { before: 0, ways: 1, last: 1 };
  const push = (ways: number): void => {
    group.ways *= group.last;
    group.last = ways;
  };
  for (const part of parts) {
    if (part.startsWith("(")) {
      open.push(group);
      group = { before: 0, ways: 1, last: 1 };
    } else if (part === ")") {
      const ways = group.before + group.ways * group.last;
      group = open.pop() ?? group;
      push(ways);
    } else if (part === "|") {
      group = { before: group.before + group.ways * group.last, ways: 1, last: 1 };
    } else if (/^(?:[*+?]|\{\d)/.test(part)) {
      const repeated = repeatWays(part, group.last);
      if (repeated === undefined) return undefined;
      group.last = repeated;
    } else push(1);
  }
  return group.before + group.ways * group.last;
}

function repeatWays(quantifier: string, ways: number): number | undefined {
  const [, from, comma, to] = /^\{(\d+)(,?)(\d*)\}/.exec(quantifier) ?? [];
  const least = quantifier.startsWith("+") ? 1 : Number(from ?? 0);
  const most = quantifier.startsWith("?") ? 1 : comma === "" ? least : Number(to || Number.POSITIVE_INFINITY);
  if (most <= 1) return ways + (most - least); // skipping it is one more way
  if (ways > 1) return undefined;
  return Math.min(REPEAT_WAYS, most - least + 1);
}
