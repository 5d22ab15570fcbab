import { describe, expect, test } from "vitest";
import {
  FIELD_NAMES,
  isMerged,
  POLICY_FIELDS,
  type PolicyField,
  PRESETS,
  rowOf,
  SCOPES,
  type Scope,
  UNITS,
} from "../../host/core/policy.ts";
import type { PolicyMatch, PolicySubject } from "../../host/core/policy-match.ts";
import {
  BOUNDS,
  boundValue,
  defaultPolicy,
  type PolicyRule,
  resolvePolicy,
} from "../../host/core/policy-resolve.ts";
import { type ParseOptions, parsePolicySet } from "../../host/core/policy-rules.ts";
import type { Json } from "../../host/core/workflow.ts";

const DAY = 86_400_000;
const ALL: ParseOptions = { allowUnenforced: true };

const matchFor = (scope: Scope): PolicyMatch => (scope === "workflow" ? "default" : { unit: scope });
const subjectFor = (scope: Scope): PolicySubject =>
  scope === "workflow"
    ? { scope, workflow: "orders", labels: {} }
    : { scope, workflow: "orders", labels: {}, handler: "book", type: "consumer" };

function problemsOf(data: unknown, options: ParseOptions = ALL): string[] {
  const parsed = parsePolicySet(data, options);
  return "problems" in parsed ? parsed.problems.map((one) => `${one.code} ${one.path}`) : [];
}
function rulesOf(data: unknown, options: ParseOptions = ALL): PolicyRule[] {
  const parsed = parsePolicySet(data, options);
  if ("problems" in parsed) throw new Error(JSON.stringify(parsed.problems));
  return parsed.rules;
}

interface Case {
  units: readonly Scope[];
  /** As 04 says it; by unit where they differ. */
  default: unknown;
  defaultOn?: Partial<Record<Scope, unknown>>;
  enforced: boolean;
  /** Other fields the value needs beside it. */
  beside?: Record<string, Json>;
  good: Json[];
  /** The value, and where below the field the refusal points. */
  bad: [value: unknown, below?: string][];
}

const PHASES: Scope[] = ["producer", "prepare", "mutate", "next"];
const RETRIED: Scope[] = [...PHASES, "read", "mutation"];
const FIRST: Scope[] = ["producer", "prepare"];
const WHOLE: [unknown][] = [
  [-1],
  [1.5],
  ["5"],
  [null],
  [Number.NaN],
  [Number.POSITIVE_INFINITY],
  [2 ** 60],
  [true],
  [[1]],
];

// A field without a row here does not compile, and one that 04 does not know fails below.
const CASES: Record<PolicyField, Case> = {
  maxRetries: {
    units: RETRIED,
    default: 12,
    defaultOn: { read: 2 },
    enforced: true,
    good: [0, 1, 1_000],
    bad: [...WHOLE, [1_001]],
  },
  backoff: {
    units: RETRIED,
    default: "jitter",
    enforced: true,
    good: ["none", "linear", "exponential", "jitter"],
    bad: [["fast"], [1], [""]],
  },
  baseDelayMs: {
    units: RETRIED,
    default: 2_000,
    enforced: true,
    beside: { maxDelayMs: DAY },
    good: [0, 1, DAY],
    bad: [...WHOLE, [DAY + 1]],
  },
  maxDelayMs: {
    units: RETRIED,
    default: 900_000,
    enforced: true,
    beside: { baseDelayMs: 0 },
    good: [0, 7 * DAY],
    bad: [...WHOLE, [7 * DAY + 1]],
  },
  timeoutMs: {
    units: UNITS,
    default: 60_000,
    defaultOn: { read: 15_000, mutation: 120_000, check: 15_000 },
    enforced: true,
    good: [1, 3_600_000],
    bad: [...WHOLE, [0], [3_600_001], ["infinity"], ["none"]],
  },
  queueTimeoutMs: {
    units: PHASES,
    default: "none",
    enforced: false,
    good: ["none", 1],
    bad: [...WHOLE, [0], ["infinity"]],
  },
  delayMs: { units: PHASES, default: 0, enforced: false, good: [0, DAY], bad: [...WHOLE, ["none"]] },
  deadlineMs: {
    units: FIRST,
    default: "none",
    enforced: true,
    good: ["none", 1, 365 * DAY],
    bad: [...WHOLE, [0], [366 * DAY]],
  },
  retryOn: {
    units: RETRIED,
    default: ["transient"],
    enforced: true,
    good: [[], ["transient"], ["transient", "logic"], ["handler-throws"], ["sandbox-lost"]],
    bad: [
      ["transient"],
      [[1], "/0"],
      [["transient", "transient"], "/1"],
      [["nonsense"], "/0"],
      [["internal"], "/0"],
      [["logic", "auth"], "/1"],
      [["permission"], "/0"],
      [["precondition"], "/0"],
      [["sandbox-start"], "/0"],
    ],
  },
  neverRetryOn: {
    units: RETRIED,
    default: [],
    enforced: true,
    good: [[], ["internal", "cpu-limit"]],
    bad: [[{}], [["nonsense"], "/0"], [["__proto__"], "/0"]],
  },
  onFailure: {
    units: [...PHASES, "read"],
    default: "halt",
    enforced: true,
    good: ["halt"],
    bad: [["stop"], [null], [["halt"]]],
  },
  fallback: {
    units: ["producer", "prepare", "mutate", "read"],
    default: "none",
    enforced: false,
    beside: { onFailure: "fallback" },
    good: [
      { retryWith: { params: { model: "small" } } },
      { retryWith: { connection: "backup" } },
      { retryWith: { policy: { limits: { cpuMs: 500 }, logLevel: "debug" } } },
      { function: "cachedRates" },
    ],
    bad: [
      [{}],
      [{ value: 1, function: "x" }],
      [{ retryWith: {} }, "/retryWith"],
      [{ retryWith: { connection: "" } }, "/retryWith/connection"],
      [{ retryWith: { policy: {} } }, "/retryWith/policy"],
      [{ retryWith: { policy: { limits: { cpuMs: 1 } } } }, "/retryWith/policy/limits/cpuMs"],
      [{ function: "no spaces" }, "/function"],
      [{ value: () => 1 }, "/value"],
      ["halt"],
      [null],
    ],
  },
  circuitBreaker: {
    units: ["read", "mutation"],
    default: "none",
    enforced: false,
    good: ["none", { name: "bank", failureThreshold: 5, resetTimeoutMs: 30_000, onOpen: "wait" }],
    bad: [
      [{ name: "bank", failureThreshold: 5, resetTimeoutMs: 30_000 }],
      [{ name: "", failureThreshold: 5, resetTimeoutMs: 1, onOpen: "wait" }, "/name"],
      [{ name: "bank", failureThreshold: 0, resetTimeoutMs: 1, onOpen: "fail" }, "/failureThreshold"],
      [{ name: "bank", failureThreshold: 1, resetTimeoutMs: 0, onOpen: "fail" }, "/resetTimeoutMs"],
      [{ name: "bank", failureThreshold: 1, resetTimeoutMs: 1, onOpen: "open" }, "/onOpen"],
    ],
  },
  rateLimit: {
    units: [...PHASES, "read", "mutation"],
    default: "none",
    enforced: false,
    good: ["none", { count: 10, windowMs: 1_000, key: "bank:eu" }],
    bad: [
      [{ count: 10, windowMs: 1_000 }],
      [{ count: 0, windowMs: 1, key: "k" }, "/count"],
      [{ count: 1, windowMs: 0, key: "k" }, "/windowMs"],
      [{ count: 1, windowMs: 1, key: "a b" }, "/key"],
    ],
  },
  concurrencyLimit: {
    units: [...PHASES, "read", "mutation"],
    default: "none",
    enforced: false,
    good: ["none", { limit: 1, key: "bank" }],
    bad: [[{ limit: 1 }], [{ limit: 0, key: "k" }, "/limit"], [5]],
  },
  priority: {
    units: FIRST,
    default: "normal",
    enforced: true,
    good: ["high", "normal", "low"],
    bad: [["urgent"], [1]],
  },
  executor: {
    units: FIRST,
    default: "pool",
    enforced: false,
    good: ["pool", "dedicated"],
    bad: [["gpu"], [{}]],
  },
  checkpoint: {
    units: ["workflow"],
    default: "every",
    enforced: false,
    good: ["every", "onComplete", "manual", { everyN: 10 }],
    bad: [["everyN"], [{ everyN: 0 }, "/everyN"], [{}], [10]],
  },
  stepping: {
    units: ["workflow"],
    default: "none",
    enforced: false,
    good: ["none", "every", { firstRuns: 3 }],
    bad: [[true], [{ firstRuns: 0 }, "/firstRuns"], ["all"]],
  },
  limits: {
    units: PHASES,
    default: {
      cpuMs: 2_000,
      memoryMb: 64,
      logBytes: 400_000,
      resultBytes: 1_048_576,
      stateBytes: 262_144,
      hostCalls: 1_000,
      maxPublishes: 1_000,
      maxHops: 100,
    },
    enforced: true,
    good: [
      { cpuMs: 10 },
      { memoryMb: 8 },
      { logBytes: 0 },
      { resultBytes: 256 },
      { stateBytes: 2 },
      { hostCalls: 0 },
      { maxPublishes: 0, maxHops: 1 },
    ],
    bad: [
      [{}],
      [{ cpuMs: 9 }, "/cpuMs"],
      [{ memoryMb: 1_025 }, "/memoryMb"],
      [{ maxHops: 0 }, "/maxHops"],
      [[]],
      [64],
    ],
  },
  check: {
    units: ["mutation"],
    default: {
      maxAttempts: 6,
      baseDelayMs: 10_000,
      maxDelayMs: 600_000,
      maxElapsedMs: DAY,
      settleMs: 30_000,
    },
    enforced: true,
    good: [{ maxAttempts: 0 }, { settleMs: 0 }, { baseDelayMs: 1, maxDelayMs: 1 }],
    bad: [
      [{}],
      [{ maxAttempts: -1 }, "/maxAttempts"],
      [{ baseDelayMs: 0 }, "/baseDelayMs"],
      [{ maxElapsedMs: 0 }, "/maxElapsedMs"],
    ],
  },
  autofix: {
    units: ["workflow"],
    default: { enabled: false, maxAttempts: 3, maxElapsedMs: 3_600_000 },
    enforced: false,
    good: [{ enabled: true }, { maxAttempts: 1, maxElapsedMs: 1_000 }],
    bad: [[{ enabled: "yes" }, "/enabled"], [{ maxAttempts: 0 }, "/maxAttempts"], [true]],
  },
  minWakeMs: {
    units: ["prepare"],
    default: 30_000,
    enforced: true,
    good: [1_000, DAY],
    bad: [...WHOLE, [999]],
  },
  maxWakeMs: {
    units: ["prepare"],
    default: DAY,
    enforced: true,
    beside: { minWakeMs: 1_000 },
    good: [1_000, 31 * DAY],
    bad: [...WHOLE, [32 * DAY]],
  },
  minIntervalMs: {
    units: ["producer"],
    default: 30_000,
    enforced: true,
    good: [1_000, DAY],
    bad: [...WHOLE, [999]],
  },
  metadata: {
    units: UNITS,
    default: {},
    enforced: true,
    good: [{ team: "billing" }, { tier: 1, hot: true }],
    bad: [
      [{}],
      [{ team: null }, "/team"],
      [{ "a b": 1 }, "/a b"],
      [{ a: "x".repeat(257) }, "/a"],
      ["billing"],
    ],
  },
  logLevel: {
    units: UNITS,
    default: "info",
    enforced: false,
    good: ["debug", "info", "warn", "error"],
    bad: [["loud"], [3]],
  },
};

describe.each(Object.entries(CASES) as [PolicyField, Case][])("%s", (name, it) => {
  const [first] = it.units as [Scope];
  const rule = (value: unknown, scope: Scope = first) => ({
    match: matchFor(scope),
    policy: { ...it.beside, [name]: value },
  });

  test("acts on the units 04 names, with its default on each", () => {
    expect(rowOf(name).appliesTo).toEqual(it.units);
    for (const scope of SCOPES) {
      const expected = it.units.includes(scope) ? (it.defaultOn?.[scope] ?? it.default) : undefined;
      expect([scope, defaultPolicy(scope)[name as never]]).toEqual([scope, expected]);
    }
  });

  test.each(it.good.map((value) => [JSON.stringify(value), value] as const))(
    "%s is read and takes effect on each unit",
    (_, value) => {
      for (const scope of it.units) {
        const rules = rulesOf([rule(value, scope)]);
        const resolved = resolvePolicy([{ level: "host", rules }], subjectFor(scope));
        const found: unknown = resolved.policy[name as never];
        const below: unknown = defaultPolicy(scope)[name as never];
        expect(found).toEqual(isMerged(name) ? { ...(below as object), ...(value as object) } : value);
        expect(resolved.warnings).toEqual([]);
      }
    },
  );

  test.each(
    it.bad.map(([value, below = ""]) => [String(JSON.stringify(value) ?? value), value, below] as const),
  )("%s is refused at its place", (_, value, below) => {
    expect(problemsOf([rule(value)])).toEqual([
      expect.stringMatching(/^(policy-invalid|unknown-policy-field) /),
    ]);
    expect(
      problemsOf([rule(value)])[0]
        ?.split(" ")
        .slice(1)
        .join(" "),
    ).toBe(`/0/policy/${name}${below}`);
  });

  test("is refused, with its place, where it would have no effect", () => {
    for (const unit of UNITS.filter((one) => !it.units.includes(one)))
      expect(problemsOf([rule(it.good[0], unit)])).toContain(`policy-wrong-unit /0/policy/${name}`);
  });

  test("may be saved exactly when something enforces it", () => {
    expect(POLICY_FIELDS[name].enforced).toBe(it.enforced);
    const refusals = problemsOf([rule(it.good[0])], {});
    expect(refusals.includes(`not-yet-enforced /0/policy/${name}`)).toBe(!it.enforced);
    expect(refusals.every((one) => one.startsWith("not-yet-enforced"))).toBe(true);
  });

  test("says what it does", () => {
    expect(rowOf(name).doc).toMatch(/^[A-Z].{10,}\.$/);
  });
});

describe("the table", () => {
  test("has the fields of 04 and no other", () => {
    expect(FIELD_NAMES).toEqual(Object.keys(CASES));
    expect(FIELD_NAMES.length).toBe(27);
  });

  test("P1: every default fits its own shape", () => {
    for (const scope of SCOPES)
      for (const [name, value] of Object.entries(defaultPolicy(scope))) {
        if (name === "metadata") continue; // empty by default, and saying so would say nothing
        expect(
          problemsOf([{ match: matchFor(scope), policy: { [name]: value } }]),
          `${scope} ${name}`,
        ).toEqual([]);
      }
  });

  test("P1: no default contradicts another, and the bounds of 04 are among those checked", () => {
    expect(BOUNDS.map(({ low, high }) => `${low.join(".")} ≤ ${high.join(".")}`)).toEqual([
      "baseDelayMs ≤ maxDelayMs",
      "delayMs ≤ deadlineMs",
      "check.baseDelayMs ≤ check.maxDelayMs",
      "check.settleMs ≤ check.maxElapsedMs",
      "minWakeMs ≤ maxWakeMs",
    ]);
    for (const scope of SCOPES)
      for (const { low, high } of BOUNDS) {
        const values = defaultPolicy(scope) as unknown as Record<string, Json>;
        expect(boundValue(values, low) ?? 0).toBeLessThanOrEqual(
          boundValue(values, high) ?? Number.POSITIVE_INFINITY,
        );
      }
  });

  test("P2: the effective policy of a unit is typed by the table", () => {
    const read = defaultPolicy("read");
    const retries: number = read.maxRetries;
    const timeout: number | "infinity" = read.timeoutMs;
    // @ts-expect-error a read tool has no sandbox limits
    expect(read.limits).toBeUndefined();
    const cpuMs: number = defaultPolicy("prepare").limits.cpuMs;
    expect([retries, timeout, cpuMs]).toEqual([2, 15_000, 2_000]);
  });

  test("a default cannot be changed by who reads it", () => {
    expect(() => Object.assign(defaultPolicy("prepare").limits, { cpuMs: 1 })).toThrow(TypeError);
  });
});

describe("onFailure by unit", () => {
  const POSSIBLE: Partial<Record<Scope, string[]>> = {
    producer: ["halt", "skip", "fallback"],
    prepare: ["halt", "skip", "fallback"],
    mutate: ["halt", "skip", "deadLetter", "fallback"],
    next: ["halt"],
    read: ["halt", "skip", "fallback"],
  };
  const ways = Object.keys(POSSIBLE).flatMap((unit) =>
    ["halt", "skip", "deadLetter", "fallback"].map((value) => [unit as Scope, value] as const),
  );

  test.each(ways)("%s: %s", (unit, value) => {
    const fallback = {
      onFailure: value,
      ...(value === "fallback" && unit !== "next" && { fallback: { function: "f" } }),
    };
    const found = problemsOf([{ match: matchFor(unit), policy: fallback }]);
    const isRefused = found.includes("policy-wrong-unit /0/policy/onFailure");
    expect(isRefused).toBe(!POSSIBLE[unit]?.includes(value));
    expect(isRefused || found.length === 0).toBe(true);
  });

  test("fallback is not yet enforced; the other three are", () => {
    const found = problemsOf(
      [{ match: { unit: "read" }, policy: { onFailure: "fallback", fallback: { value: 1 } } }],
      {},
    );
    expect(found).toEqual(["not-yet-enforced /0/policy/onFailure", "not-yet-enforced /0/policy/fallback"]);
    for (const value of ["halt", "skip", "deadLetter"])
      expect(problemsOf([{ match: { unit: "mutate" }, policy: { onFailure: value } }], {})).toEqual([]);
  });
});

describe("fallback values", () => {
  const policy = { onFailure: "fallback", fallback: { value: { rates: [] } } };

  test.each<[PolicyMatch]>([
    [{ unit: "producer" }],
    [{ unit: "prepare" }],
    [{ unit: "read" }],
    [{ type: "producer" }],
  ])("are read for %j", (match) => {
    expect(problemsOf([{ match, policy }])).toEqual([]);
  });

  test.each<[PolicyMatch]>([
    ["default"],
    ["orders/book"],
    ["orders/book.mutate"],
    [{ unit: ["read", "mutation"] }],
    [{ tool: "http.post" }],
    [{ type: "consumer" }],
  ])("are refused for %j, which reaches mutations", (match) => {
    expect(problemsOf([{ match, policy }])).toContain("fallback-on-mutation /0/policy/fallback");
  });

  test("are read for a tool that is known to read, and refused for one known to mutate", () => {
    const options: ParseOptions = {
      ...ALL,
      known: { tools: { "http.get": "read", "http.post": "mutation" } },
    };
    expect(problemsOf([{ match: { tool: "http.get" }, policy }], options)).toEqual([]);
    expect(problemsOf([{ match: { tool: "http.post" }, policy }], options)).toContain(
      "fallback-on-mutation /0/policy/fallback",
    );
  });

  test("a try under the same timeout and deadline cannot change those, nor fall back again", () => {
    for (const field of ["timeoutMs", "deadlineMs", "maxRetries", "fallback", "onFailure"])
      expect(
        problemsOf([
          {
            match: { unit: "read" },
            policy: { onFailure: "fallback", fallback: { retryWith: { policy: { [field]: 1 } } } },
          },
        ]),
      ).toEqual([`unknown-policy-field /0/policy/fallback/retryWith/policy/${field}`]);
  });
});

describe("timeoutMs and the host's maximum", () => {
  const rule = (timeoutMs: unknown) => [{ match: "default", policy: { timeoutMs } }];

  test("the host's maximum replaces the table's", () => {
    expect(problemsOf(rule(5_001), { maxTimeoutMs: 5_000 })).toEqual(["policy-invalid /0/policy/timeoutMs"]);
    expect(problemsOf(rule(7_200_000), { maxTimeoutMs: 7_200_000 })).toEqual([]);
    expect(problemsOf(rule("infinity"), { maxTimeoutMs: 5_000 })).toEqual([
      "policy-invalid /0/policy/timeoutMs",
    ]);
  });

  test("infinity is allowed where the host's maximum is", () => {
    expect(problemsOf(rule("infinity"), { maxTimeoutMs: "infinity" })).toEqual([]);
    expect(problemsOf(rule(2 ** 31 - 1), { maxTimeoutMs: "infinity" })).toEqual([]);
    expect(problemsOf(rule(2 ** 31), { maxTimeoutMs: "infinity" })).toEqual([
      "policy-invalid /0/policy/timeoutMs",
    ]);
  });
});

describe("presets", () => {
  test("are those of 04", () => {
    expect(PRESETS).toEqual({
      llm: {
        maxRetries: 3,
        backoff: "exponential",
        baseDelayMs: 1_000,
        maxDelayMs: 30_000,
        timeoutMs: 30_000,
      },
      io: { maxRetries: 2, backoff: "linear", baseDelayMs: 500, timeoutMs: 10_000, onFailure: "skip" },
      fastFail: { maxRetries: 0, timeoutMs: 5_000, onFailure: "halt" },
      critical: {
        maxRetries: 24,
        backoff: "jitter",
        baseDelayMs: 5_000,
        maxDelayMs: 3_600_000,
        onFailure: "halt",
        priority: "high",
      },
    });
  });

  test.each(Object.entries(PRESETS))("%s is a policy that may be written out", (_, policy) => {
    expect(problemsOf([{ match: "default", policy }])).toEqual([]);
  });

  test.each(Object.keys(PRESETS))("%s may be named, alone or with fields over it", (preset) => {
    expect(rulesOf([{ match: "default", policy: preset }])).toEqual([
      { match: "default", policy: { preset } },
    ]);
    expect(problemsOf([{ match: "default", policy: { preset, maxRetries: 7 } }])).toEqual([]);
  });

  test("what a preset says about other units is left out, not refused", () => {
    expect(problemsOf([{ match: { unit: "next" }, policy: "io" }])).toEqual([]);
  });

  test("an unknown one is refused with the nearest", () => {
    expect(parsePolicySet([{ match: "default", policy: "lllm" }])).toEqual({
      problems: [expect.objectContaining({ path: "/0/policy", code: "policy-invalid", nearest: "llm" })],
    });
    expect(problemsOf([{ match: "default", policy: { preset: "slow" } }])).toEqual([
      "policy-invalid /0/policy/preset",
    ]);
  });

  test("each may be saved, and with what nothing enforces yet is refused where that is named", () => {
    const found = (policy: unknown) => problemsOf([{ match: "default", policy }], {});
    for (const preset of ["llm", "io", "fastFail", "critical"]) expect(found(preset)).toEqual([]);
    expect(found({ preset: "critical", executor: "dedicated" })).toEqual([
      "not-yet-enforced /0/policy/executor",
    ]);
  });
});
