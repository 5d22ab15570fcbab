import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ERRORS } from "../../host/core/errors.ts";
import { FIELD_NAMES } from "../../host/core/policy.ts";
import { type ParseOptions, parseCallPolicy, parsePolicySet } from "../../host/core/policy-rules.ts";

const ALL: ParseOptions = { allowUnenforced: true };

function problemsOf(data: unknown, options: ParseOptions = ALL) {
  const parsed = parsePolicySet(data, options);
  return "problems" in parsed ? parsed.problems : [];
}
const one = (policy: unknown, match: unknown = "default", options: ParseOptions = ALL) =>
  problemsOf([{ match, policy }], options).map(({ code, path }) => `${code} ${path}`);

describe("a set", () => {
  test("is the list of its rules, as data", () => {
    const data = [
      { match: "orders/book.next", policy: { maxRetries: 3 }, inherit: true },
      { match: { label: { team: "billing" } }, policy: { preset: "io", timeoutMs: 5_000 } },
      { match: "default", policy: {} },
    ];
    expect(parsePolicySet(data)).toEqual({ rules: data });
    expect(parsePolicySet([])).toEqual({ rules: [] });
  });

  test("`inherit: false` is the same as none", () => {
    expect(parsePolicySet([{ match: "default", policy: {}, inherit: false }])).toEqual({
      rules: [{ match: "default", policy: {} }],
    });
  });

  test.each<[unknown, string]>([
    [undefined, ""],
    [null, ""],
    [{}, ""],
    ["[]", ""],
    [[null], "/0"],
    [[[]], "/0"],
    [[{ match: "default", policy: {} }, 5], "/1"],
    [[{ match: "default" }], "/0/policy"],
    [[{ match: "default", policy: [] }], "/0/policy"],
    [[{ match: "default", policy: {}, inherit: "yes" }], "/0/inherit"],
    [Array.from({ length: 501 }, () => ({ match: "default", policy: {} })), ""],
  ])("%j is refused as policy-invalid", (data, path) => {
    expect(problemsOf(data)).toEqual([{ code: "policy-invalid", path, message: expect.any(String) }]);
  });

  test("a rule without a match is refused", () => {
    expect(problemsOf([{ policy: {} }])).toEqual([
      expect.objectContaining({ code: "policy-bad-match", path: "/0/match" }),
    ]);
  });

  test("everything that is wrong is said at once, with its place", () => {
    const data = [
      { match: "nowhere", policy: { maxRetries: -1, tiemoutMs: 5 } },
      { match: { unit: "nxt" }, policy: { limits: { cpuMs: 1, cpu: 5 } }, inherits: true },
    ];
    expect(problemsOf(data).map(({ code, path, nearest }) => [code, path, nearest])).toEqual([
      ["policy-bad-match", "/0/match", undefined],
      ["policy-invalid", "/0/policy/maxRetries", undefined],
      ["unknown-policy-field", "/0/policy/tiemoutMs", "timeoutMs"],
      ["unknown-policy-field", "/1/inherits", "inherit"],
      ["policy-bad-match", "/1/match/unit", "next"],
      ["policy-invalid", "/1/policy/limits/cpuMs", undefined],
      ["unknown-policy-field", "/1/policy/limits/cpu", "cpuMs"],
    ]);
  });

  test("at most a hundred problems are said", () => {
    expect(problemsOf(Array.from({ length: 400 }, () => 5)).length).toBe(100);
  });

  test("every code is in the catalogue, with blame on the operator", () => {
    for (const code of [
      "policy-invalid",
      "policy-bad-match",
      "policy-unmatched",
      "policy-unsafe-pattern",
      "policy-contradiction",
      "policy-wrong-unit",
      "unknown-policy-field",
      "fallback-on-mutation",
      "not-yet-enforced",
    ] as const)
      expect(ERRORS[code].blame).toBe("operator");
  });
});

describe("unknown fields", () => {
  test.each([
    ["maxRetry", "maxRetries"],
    ["max_retries", "maxRetries"],
    ["timeout", "timeoutMs"],
    ["ratelimit", "rateLimit"],
    ["onfailure", "onFailure"],
    ["prest", "preset"],
  ])("%s is refused; %s was meant", (given, meant) => {
    expect(problemsOf([{ match: "default", policy: { [given]: 1 } }])).toEqual([
      {
        code: "unknown-policy-field",
        path: `/0/policy/${given}`,
        message: expect.any(String),
        nearest: meant,
      },
    ]);
  });

  test("a field outside of `policy` is told where it belongs", () => {
    expect(problemsOf([{ match: "default", policy: {}, maxRetries: 3 }])).toEqual([
      expect.objectContaining({ path: "/0/maxRetries", nearest: "policy.maxRetries" }),
    ]);
    expect(problemsOf([{ match: "default", policy: {}, toString: 3 }])).toEqual([
      { code: "unknown-policy-field", path: "/0/toString", message: expect.any(String) },
    ]);
  });

  test.each(["__proto__", "constructor", "toString", "hasOwnProperty"])(
    "%s is a field like any other unknown one",
    (name) => {
      const data: unknown = JSON.parse(`[{"match":"default","policy":{"${name}":{"maxRetries":1}}}]`);
      expect(problemsOf(data).map(({ code, path }) => [code, path])).toEqual([
        ["unknown-policy-field", `/0/policy/${name}`],
      ]);
      const inner: unknown = JSON.parse(`[{"match":"default","policy":{"limits":{"${name}":1}}}]`);
      expect(problemsOf(inner).map(({ code, path }) => [code, path])).toEqual([
        ["unknown-policy-field", `/0/policy/limits/${name}`],
      ]);
    },
  );

  test("a place is a JSON pointer, also for odd names", () => {
    expect(one({ "a/b~c": 1 })).toEqual(["unknown-policy-field /0/policy/a~1b~0c"]);
  });
});

describe("contradictions", () => {
  test.each<[string, unknown, unknown, string[]]>([
    ["base above max", { baseDelayMs: 10, maxDelayMs: 9 }, "default", ["/baseDelayMs"]],
    ["base equal to max", { baseDelayMs: 10, maxDelayMs: 10 }, "default", []],
    ["base above the default max", { baseDelayMs: 900_001 }, "default", ["/baseDelayMs"]],
    ["max below the default base", { maxDelayMs: 1_999 }, "default", ["/maxDelayMs"]],
    ["max below the base of a preset", { preset: "critical", maxDelayMs: 4_999 }, "default", ["/maxDelayMs"]],
    ["wake bounds", { minWakeMs: 5_000, maxWakeMs: 4_000 }, "default", ["/minWakeMs"]],
    ["wake above the default", { minWakeMs: 86_400_001 }, "default", ["/minWakeMs"]],
    ["check delays", { check: { baseDelayMs: 5, maxDelayMs: 4 } }, "default", ["/check/baseDelayMs"]],
    [
      "check delay above the default",
      { check: { baseDelayMs: 600_001 } },
      { unit: "mutation" },
      ["/check/baseDelayMs"],
    ],
    [
      "a check that settles too late",
      { check: { maxElapsedMs: 29_999 } },
      "default",
      ["/check/maxElapsedMs"],
    ],
    ["a delay past the deadline", { delayMs: 101, deadlineMs: 100 }, "default", ["/delayMs"]],
    ["a delay within the deadline", { delayMs: 100, deadlineMs: 100 }, "default", []],
    ["a base without backoff", { backoff: "none", baseDelayMs: 5 }, "default", ["/baseDelayMs"]],
    [
      "retried and never retried",
      { retryOn: ["logic", "transient"], neverRetryOn: ["transient"] },
      "default",
      ["/retryOn/1"],
    ],
    [
      "a code whose class is never retried",
      { retryOn: ["cpu-limit"], neverRetryOn: ["logic"] },
      "default",
      ["/retryOn/0"],
    ],
    ["a class but for one code", { retryOn: ["logic"], neverRetryOn: ["cpu-limit"] }, "default", []],
    ["falling back to nothing", { onFailure: "fallback" }, { unit: "read" }, ["/onFailure"]],
    ["falling back to none", { onFailure: "fallback", fallback: "none" }, { unit: "read" }, ["/onFailure"]],
    ["a fallback nobody uses", { fallback: { value: 1 } }, { unit: "read" }, ["/fallback"]],
    ["a fallback with skip", { onFailure: "skip", fallback: { value: 1 } }, { unit: "read" }, ["/fallback"]],
  ])("%s", (_, policy, match, below) => {
    expect(one(policy, match)).toEqual(below.map((path) => `policy-contradiction /0/policy${path}`));
  });

  test("a rule that inherits is judged by what it says itself", () => {
    const inherits = (policy: unknown) =>
      problemsOf([{ match: { unit: "prepare" }, policy, inherit: true }]).map(({ path }) => path);
    expect(inherits({ baseDelayMs: 900_001 })).toEqual([]);
    expect(inherits({ onFailure: "fallback" })).toEqual([]);
    expect(inherits({ fallback: { value: {} } })).toEqual([]);
    expect(inherits({ minWakeMs: 5_000, maxWakeMs: 4_000 })).toEqual(["/0/policy/minWakeMs"]);
    expect(inherits({})).toEqual(["/0/policy"]);
  });

  test("one name of a breaker or limit has one setting in a set", () => {
    const breaker = { name: "bank", failureThreshold: 5, resetTimeoutMs: 1_000, onOpen: "wait" };
    const reordered = Object.fromEntries(Object.entries(breaker).toReversed());
    const set = (first: unknown, second: unknown) =>
      problemsOf([
        { match: { connector: "http" }, policy: first },
        { match: { connector: "smtp" }, policy: second },
      ]).map(({ code, path }) => `${code} ${path}`);
    expect(set({ circuitBreaker: breaker }, { circuitBreaker: reordered })).toEqual([]);
    expect(
      set({ circuitBreaker: breaker }, { circuitBreaker: { ...breaker, name: "shop", onOpen: "fail" } }),
    ).toEqual([]);
    expect(set({ circuitBreaker: breaker }, { circuitBreaker: { ...breaker, onOpen: "fail" } })).toEqual([
      "policy-contradiction /1/policy/circuitBreaker",
    ]);
    expect(
      set(
        { rateLimit: { count: 1, windowMs: 1, key: "k" } },
        { rateLimit: { count: 2, windowMs: 1, key: "k" } },
      ),
    ).toEqual(["policy-contradiction /1/policy/rateLimit"]);
    expect(
      set({ concurrencyLimit: { limit: 1, key: "k" } }, { concurrencyLimit: { limit: 2, key: "k" } }),
    ).toEqual(["policy-contradiction /1/policy/concurrencyLimit"]);
  });
});

describe("units", () => {
  test.each<[unknown, unknown, string]>([
    ["orders/book.check", { maxRetries: 3 }, "maxRetries"],
    [{ unit: "next" }, { deadlineMs: 5_000 }, "deadlineMs"],
    [{ unit: "mutation" }, { onFailure: "skip" }, "onFailure"],
    [{ connector: "http" }, { limits: { cpuMs: 500 } }, "limits"],
    ["orders/book", { stepping: "every" }, "stepping"],
    [{ type: "consumer" }, { checkpoint: "manual" }, "checkpoint"],
    [{ type: "producer" }, { check: { maxAttempts: 3 } }, "check"],
    [{ type: "consumer" }, { minIntervalMs: 60_000 }, "minIntervalMs"],
  ])("%j has no use for %j", (match, policy, field) => {
    expect(one(policy, match)).toEqual([`policy-wrong-unit /0/policy/${field}`]);
  });

  test("a field that acts on some of what is matched is welcome", () => {
    const policy = {
      maxRetries: 1,
      check: { maxAttempts: 1 },
      stepping: "every",
      onFailure: "deadLetter",
      minWakeMs: 1_000,
    };
    expect(one(policy)).toEqual([]);
    expect(one(policy, "orders/*")).toEqual([]);
  });

  test("the kind of a known handler or tool counts", () => {
    const known = {
      workflows: { orders: { producers: ["poll"], consumers: ["book"] } },
      tools: { "http.get": "read", "http.post": "mutation" },
    } as const;
    expect(one({ minIntervalMs: 60_000 }, "orders/poll", { known })).toEqual([]);
    expect(one({ minIntervalMs: 60_000 }, "orders/book", { known })).toEqual([
      "policy-wrong-unit /0/policy/minIntervalMs",
    ]);
    expect(one({ onFailure: "skip" }, { tool: "http.get" }, { known })).toEqual([]);
    expect(one({ onFailure: "skip" }, { tool: "http.post" }, { known })).toEqual([
      "policy-wrong-unit /0/policy/onFailure",
    ]);
  });
});

describe("what nothing enforces yet (L3)", () => {
  test("is refused after everything else, and only if its own shape is sound", () => {
    const data = [
      { match: "default", policy: { priority: "high", executor: "gpu" } },
      { match: "default", policy: { logLevel: "debug", maxRetries: 3 } },
      { match: "default", policy: { maxRetries: -1 } },
    ];
    expect(problemsOf(data, {}).map(({ code, path }) => `${code} ${path}`)).toEqual([
      "policy-invalid /0/policy/executor",
      "policy-invalid /2/policy/maxRetries",
      "not-yet-enforced /1/policy/logLevel",
    ]);
  });

  test("is accepted where the caller says so", () => {
    const data = [{ match: "default", policy: { executor: "dedicated" } }];
    expect(parsePolicySet(data, ALL)).toEqual({ rules: data });
    expect(parseCallPolicy(data, ALL)).toEqual({ call: { rules: data } });
    expect(parseCallPolicy(data)).toEqual({
      problems: [expect.objectContaining({ code: "not-yet-enforced" })],
    });
  });

  test("many of them do not hide what is wrong", () => {
    const data = [
      ...Array.from({ length: 200 }, () => ({ match: "default", policy: { executor: "dedicated" } })),
      5,
    ];
    expect(problemsOf(data, {})[0]).toMatchObject({ code: "policy-invalid", path: "/200" });
  });
});

describe("overrides of one call", () => {
  const rules = [{ match: "default", policy: { maxRetries: 0 } }];

  test("are a list, or a list and `replace`", () => {
    expect(parseCallPolicy(rules)).toEqual({ call: { rules } });
    expect(parseCallPolicy({ rules })).toEqual({ call: { rules } });
    expect(parseCallPolicy({ rules, replace: true })).toEqual({ call: { rules, replace: true } });
    expect(parseCallPolicy({ rules, replace: false })).toEqual({ call: { rules } });
  });

  test.each<[unknown, string]>([
    [
      { rules: [{ match: "default", policy: { maxRetries: -1 } }] },
      "policy-invalid /rules/0/policy/maxRetries",
    ],
    [[{ match: "default", policy: { maxRetries: -1 } }], "policy-invalid /0/policy/maxRetries"],
    [{ rules, replace: 1 }, "policy-invalid /replace"],
    [{ rules, replaces: true }, "unknown-policy-field /replaces"],
    [{}, "policy-invalid /rules"],
    [5, "policy-invalid "],
  ])("%j is refused", (data, expected) => {
    const parsed = parseCallPolicy(data);
    expect("problems" in parsed && parsed.problems.map(({ code, path }) => `${code} ${path}`)).toEqual([
      expected,
    ]);
  });
});

describe("error codes of connectors", () => {
  test("may be named once they are known", () => {
    expect(one({ retryOn: ["smtp-greylisted"] })).toEqual(["policy-invalid /0/policy/retryOn/0"]);
    expect(one({ retryOn: ["smtp-greylisted"] }, "default", { errorCodes: ["smtp-greylisted"] })).toEqual([]);
    expect(problemsOf([{ match: "default", policy: { retryOn: ["transent"] } }])[0]?.nearest).toBe(
      "transient",
    );
  });
});

describe("any data", () => {
  const field = fc.constantFrom(...FIELD_NAMES, "preset", "nonsense");
  const value = fc.oneof(
    fc.jsonValue({ maxDepth: 2 }),
    fc.constantFrom("none", "halt", "skip", "every", "llm", "jitter"),
    fc.nat(2_000),
    fc.constant({ cpuMs: 500 }),
    fc.constant({ maxAttempts: 2 }),
    fc.constant(["transient"]),
  );
  const rule = fc.record({
    match: fc.oneof(
      fc.constantFrom("default", "orders/*", "a/b.next"),
      fc.constant({ unit: "read" }),
      fc.jsonValue({ maxDepth: 1 }),
    ),
    policy: fc.dictionary(field, value, { maxKeys: 3 }),
  });
  const data = fc.oneof(
    fc.array(rule, { maxLength: 3 }),
    fc.jsonValue(),
    fc.anything({ withBigInt: true, withDate: true, withMap: true }),
  );

  test("L1: gives rules or problems, never a throw, and problems have a place in it", () => {
    fc.assert(
      fc.property(data, fc.boolean(), (given, allowUnenforced) => {
        const parsed = parsePolicySet(given, { allowUnenforced });
        const problems = "problems" in parsed ? parsed.problems : [];
        expect("rules" in parsed ? Array.isArray(given) : problems.length > 0).toBe(true);
        for (const { path, code, message } of problems) {
          expect(path === "" || path.startsWith("/")).toBe(true);
          expect(code in ERRORS && message.length > 0).toBe(true);
        }
      }),
      { numRuns: 3_000 },
    );
  });

  test("L2: what was parsed parses again to the same", () => {
    let accepted = 0;
    fc.assert(
      fc.property(fc.array(rule, { maxLength: 2 }), (given) => {
        const parsed = parsePolicySet(given, ALL);
        if (!("rules" in parsed)) return;
        accepted += parsed.rules.length;
        expect(parsePolicySet(JSON.parse(JSON.stringify(parsed.rules)), ALL)).toEqual(parsed);
      }),
      { numRuns: 3_000 },
    );
    expect(accepted).toBeGreaterThan(100);
  });

  test("H1: nothing of the given object lives on", () => {
    const value = { deep: [1, { x: 2 }] };
    const parsed = parsePolicySet(
      [{ match: { unit: "read" }, policy: { onFailure: "fallback", fallback: { value } } }],
      ALL,
    );
    value.deep.push(3);
    expect(JSON.stringify(parsed)).toContain('{"value":{"deep":[1,{"x":2}]}}');
  });

  test("a cycle, or what is too deep or too large, is refused", () => {
    const cycle: Record<string, unknown> = {};
    cycle["self"] = cycle;
    let deep: unknown = 1;
    for (let i = 0; i < 40; i++) deep = [deep];
    for (const value of [cycle, deep, "x".repeat(70_000), JSON.parse('{"__proto__":1}'), [undefined]])
      expect(one({ onFailure: "fallback", fallback: { value } }, { unit: "read" })).toEqual([
        "policy-invalid /0/policy/fallback/value",
      ]);
    expect(one({ maxRetries: cycle })).toEqual(["policy-invalid /0/policy/maxRetries"]);
    expect(one({ maxRetries: 10n })).toEqual(["policy-invalid /0/policy/maxRetries"]);
  });
});
