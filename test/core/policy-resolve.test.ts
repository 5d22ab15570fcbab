import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  isPolicyField,
  type Policy,
  PRESETS,
  rowOf,
  SCOPES,
  type Scope,
  UNITS,
} from "../../host/core/policy.ts";
import { matchesSubject, type PolicySubject, type Predicate } from "../../host/core/policy-match.ts";
import {
  appendRule,
  defaultPolicy,
  explainPolicy,
  mergePolicies,
  type PolicyLayer,
  type PolicyRule,
  policyLayers,
  prependRule,
  resolvePolicy,
} from "../../host/core/policy-resolve.ts";
import { parsePolicySet } from "../../host/core/policy-rules.ts";

const subject = <S extends Scope>(scope: S, more: Partial<PolicySubject> = {}): PolicySubject<S> => ({
  workflow: "orders",
  labels: {},
  handler: "book",
  type: "consumer",
  ...more,
  scope,
});
const host = (...rules: PolicyRule[]): PolicyLayer[] => [{ level: "host", rules }];
const retries = (layers: readonly PolicyLayer[], scope: Scope = "prepare") =>
  resolvePolicy(layers, subject(scope as "prepare")).policy.maxRetries;
const rule = (maxRetries: number, match: PolicyRule["match"] = "default"): PolicyRule => ({
  match,
  policy: { maxRetries },
});

describe("V1: the first matching rule wins", () => {
  test("no rule: the default of the unit, from the default", () => {
    for (const scope of SCOPES) {
      const resolved = resolvePolicy([], subject(scope));
      expect(resolved.policy).toEqual(defaultPolicy(scope));
      expect(new Set(Object.values(resolved.sources).map((source) => source.level))).toEqual(
        new Set(["default"]),
      );
    }
  });

  test("over the default of its unit, not over the rules after it", () => {
    const layers = host(
      { match: "orders/pay", policy: { maxRetries: 1 } },
      { match: "orders/book", policy: { maxRetries: 3 } },
      { match: "default", policy: { maxRetries: 5, timeoutMs: 99 } },
    );
    const { policy, sources } = resolvePolicy(layers, subject("read"));
    expect(policy).toEqual({ ...defaultPolicy("read"), maxRetries: 3 });
    expect(sources["maxRetries"]).toEqual({ level: "host", rule: 1 });
    expect(sources["timeoutMs"]).toEqual({ level: "default" });
  });

  test("layers are asked in the order call, workflow, namespace, host", () => {
    const all = {
      host: { rules: [rule(1)] },
      namespace: { name: "acme", rules: [rule(2)] },
      workflow: { name: "orders", rules: [rule(3)] },
      call: { rules: [rule(4)] },
    };
    const { call: _call, ...saved } = all;
    const { workflow: _workflow, ...upper } = saved;
    expect([all, saved, upper, { host: all.host }, {}].map((given) => retries(policyLayers(given)))).toEqual([
      4, 3, 2, 1, 12,
    ]);
    expect(policyLayers(all).map(({ level, name }) => [level, name])).toEqual([
      ["call", undefined],
      ["workflow", "orders"],
      ["namespace", "acme"],
      ["host", undefined],
    ]);
  });

  test("`replace` drops the other layers", () => {
    const below = { host: { rules: [rule(1)] } };
    const call = { rules: [rule(4, { unit: "next" })] };
    expect(retries(policyLayers({ ...below, call }))).toBe(1);
    expect(retries(policyLayers({ ...below, call: { ...call, replace: true } }))).toBe(12);
    expect(retries(policyLayers({ ...below, call: { rules: [], replace: true } }))).toBe(12);
  });

  test("overrides of one call leave the saved layers as they were", () => {
    const saved = { host: { rules: [rule(1)] } };
    retries(policyLayers({ ...saved, call: { rules: [rule(4)], replace: true } }));
    expect(retries(policyLayers(saved))).toBe(1);
  });

  test("a rule that says nothing shields from those after it", () => {
    expect(retries(host({ match: "default", policy: {} }, rule(5)))).toBe(12);
  });
});

describe("V1: inherit", () => {
  const layers: PolicyLayer[] = [
    {
      level: "workflow",
      rules: [{ match: "orders/book", policy: { maxRetries: 3, limits: { cpuMs: 100 } }, inherit: true }],
    },
    {
      level: "namespace",
      name: "acme",
      rules: [
        { match: "orders/pay", policy: { timeoutMs: 1 } },
        {
          match: "default",
          policy: { maxRetries: 5, timeoutMs: 7_000, limits: { cpuMs: 200, memoryMb: 32 } },
          inherit: true,
        },
      ],
    },
    { level: "host", rules: [{ match: "default", policy: { backoff: "none", timeoutMs: 9_000 } }, rule(99)] },
  ];

  test("merges over the next matching rule, through all layers, entry by entry in limits", () => {
    const { policy, sources } = resolvePolicy(layers, subject("prepare"));
    expect(policy).toEqual({
      ...defaultPolicy("prepare"),
      maxRetries: 3,
      timeoutMs: 7_000,
      backoff: "none",
      limits: { ...defaultPolicy("prepare").limits, cpuMs: 100, memoryMb: 32 },
    });
    expect(sources).toMatchObject({
      maxRetries: { level: "workflow", rule: 0 },
      "limits.cpuMs": { level: "workflow", rule: 0 },
      "limits.memoryMb": { level: "namespace", name: "acme", rule: 1 },
      timeoutMs: { level: "namespace", name: "acme", rule: 1 },
      backoff: { level: "host", rule: 0 },
      maxDelayMs: { level: "default" },
      "limits.maxHops": { level: "default" },
    });
  });

  test("with nothing below merges over the default", () => {
    expect(resolvePolicy(layers.slice(0, 1), subject("prepare")).policy).toMatchObject({
      maxRetries: 3,
      timeoutMs: 60_000,
    });
  });

  test("breakers and limits by key are replaced as a whole, and `none` takes one away", () => {
    const breaker = { name: "a", failureThreshold: 1, resetTimeoutMs: 1, onOpen: "wait" } as const;
    const below: PolicyRule = {
      match: "default",
      policy: { circuitBreaker: breaker, metadata: { team: "a", tier: 1 } },
    };
    const over = (policy: Policy) =>
      resolvePolicy(host({ match: "default", policy, inherit: true }, below), subject("read")).policy;
    expect(over({ circuitBreaker: { ...breaker, name: "b" } }).circuitBreaker).toEqual({
      ...breaker,
      name: "b",
    });
    expect(over({ circuitBreaker: "none" }).circuitBreaker).toBe("none");
    expect(over({ metadata: { team: "b" } }).metadata).toEqual({ team: "b", tier: 1 });
  });
});

describe("V2: the result has the fields of its unit and no other", () => {
  test.each(SCOPES)("%s", (scope) => {
    const everything: Policy = {
      maxRetries: 1,
      timeoutMs: 1,
      deadlineMs: 1,
      check: { maxAttempts: 1 },
      stepping: "every",
      priority: "high",
      limits: { cpuMs: 50 },
    };
    const resolved = resolvePolicy(host({ match: "default", policy: everything }), subject(scope));
    expect(Object.keys(resolved.policy).toSorted()).toEqual(Object.keys(defaultPolicy(scope)).toSorted());
    expect(JSON.parse(JSON.stringify(resolved))).toEqual(resolved);
  });

  test("a workflow's own fields come from rules about whole workflows", () => {
    const layers = host(
      { match: "orders/book", policy: { maxRetries: 1 } },
      { match: { type: "producer" }, policy: { maxRetries: 1 } },
      { match: "orders/*", policy: { stepping: { firstRuns: 3 } } },
    );
    const { policy, sources } = resolvePolicy(layers, { scope: "workflow", workflow: "orders", labels: {} });
    expect(policy).toEqual({ ...defaultPolicy("workflow"), stepping: { firstRuns: 3 } });
    expect(sources["stepping"]).toEqual({ level: "host", rule: 2 });
  });
});

describe("V3: what a unit cannot carry out is its default there", () => {
  test.each<[Scope, string, string]>([
    ["producer", "deadLetter", "halt"],
    ["prepare", "deadLetter", "halt"],
    ["mutate", "deadLetter", "deadLetter"],
    ["next", "deadLetter", "halt"],
    ["next", "skip", "halt"],
    ["read", "deadLetter", "halt"],
    ["read", "skip", "skip"],
  ])("%s with onFailure %s: %s", (scope, given, expected) => {
    const onFailure = given as "skip";
    const resolved = resolvePolicy(
      host({ match: "default", policy: { onFailure } }),
      subject(scope as "read"),
    );
    expect(resolved.policy.onFailure).toBe(expected);
    expect(resolved.sources["onFailure"]).toEqual({
      level: "host",
      rule: 0,
      ...(expected !== given && { given }),
    });
  });

  test("a fallback holds where it can and halts elsewhere", () => {
    const policy: Policy = { onFailure: "fallback", fallback: { value: null } };
    const by = (scope: Scope) =>
      resolvePolicy(host({ match: "default", policy }), subject(scope as "read")).policy;
    expect(by("read")).toMatchObject(policy);
    expect(by("prepare")).toMatchObject(policy);
    expect(by("mutate")).toMatchObject({ onFailure: "halt", fallback: "none" });
    expect(by("next").onFailure).toBe("halt");
    const retryWith: Policy = { onFailure: "fallback", fallback: { retryWith: { connection: "backup" } } };
    expect(
      resolvePolicy(host({ match: "default", policy: retryWith }), subject("mutate")).policy,
    ).toMatchObject(retryWith);
  });

  test("falling back to nothing, once layers have met, is halt", () => {
    const layers = host({ match: "default", policy: { onFailure: "fallback" }, inherit: true });
    const resolved = resolvePolicy(layers, subject("read"));
    expect(resolved.policy.onFailure).toBe("halt");
    expect(resolved.sources["onFailure"]).toEqual({ level: "host", rule: 0, given: "fallback" });
  });
});

describe("V4: bounds that meet only here are settled for the stronger rule, and told", () => {
  const settle = (over: Policy, below: Policy | undefined, scope: Scope) =>
    resolvePolicy(
      host(
        { match: "default", policy: over, inherit: true },
        ...(below ? [{ match: "default", policy: below }] : []),
      ),
      subject(scope as "mutation"),
    );

  test("a base from above raises the cap from below", () => {
    const { policy, sources, warnings } = settle({ baseDelayMs: 9_000 }, { maxDelayMs: 5_000 }, "mutation");
    expect(policy).toMatchObject({ baseDelayMs: 9_000, maxDelayMs: 9_000 });
    expect(sources).toMatchObject({ baseDelayMs: { rule: 0 }, maxDelayMs: { rule: 1, given: 5_000 } });
    expect(warnings).toEqual([
      { level: "host", rule: 0, message: expect.stringContaining("maxDelayMs is 9000") },
    ]);
  });

  test("a cap from above lowers the base from below", () => {
    const { policy, sources } = settle({ maxDelayMs: 500 }, { baseDelayMs: 800 }, "mutation");
    expect(policy).toMatchObject({ baseDelayMs: 500, maxDelayMs: 500 });
    expect(sources).toMatchObject({ baseDelayMs: { rule: 1, given: 800 }, maxDelayMs: { rule: 0 } });
  });

  test("a default gives way to any rule", () => {
    expect(settle({ maxDelayMs: 500 }, undefined, "mutation").policy).toMatchObject({
      baseDelayMs: 500,
      maxDelayMs: 500,
    });
    expect(settle({ baseDelayMs: 3_600_000 }, undefined, "mutation").policy.maxDelayMs).toBe(3_600_000);
  });

  test("also within check, whose other entries stay", () => {
    const { policy, sources } = settle(
      { check: { baseDelayMs: 700 } },
      { check: { maxDelayMs: 600, maxAttempts: 2 } },
      "mutation",
    );
    expect(policy.check).toEqual({
      ...defaultPolicy("mutation").check,
      baseDelayMs: 700,
      maxDelayMs: 700,
      maxAttempts: 2,
    });
    expect(sources["check.maxDelayMs"]).toEqual({ level: "host", rule: 1, given: 600 });
  });

  test("no deadline is above every delay", () => {
    expect(settle({ delayMs: 5_000 }, { deadlineMs: "none" }, "prepare").warnings).toEqual([]);
  });
});

describe("presets and composition", () => {
  test("a preset's fields are named in the source; those said over it are not", () => {
    const layers = host({ match: "default", policy: { preset: "llm", maxRetries: 9 } });
    const { policy, sources } = resolvePolicy(layers, subject("read"));
    expect(policy).toMatchObject({ ...PRESETS.llm, maxRetries: 9 });
    expect(sources["timeoutMs"]).toEqual({ level: "host", rule: 0, preset: "llm" });
    expect(sources["maxRetries"]).toEqual({ level: "host", rule: 0 });
  });

  test("prepend asks a rule first, append last; the list itself stays", () => {
    const rules = [rule(1, { unit: "read" })];
    expect(retries(host(...prependRule(rules, rule(2))), "read")).toBe(2);
    expect(retries(host(...appendRule(rules, rule(2))), "read")).toBe(1);
    expect(retries(host(...appendRule(rules, rule(2))), "next")).toBe(2);
    expect(rules).toEqual([rule(1, { unit: "read" })]);
  });

  test("merge puts overrides over a policy, entry by entry where fields are merged so", () => {
    expect(
      mergePolicies(mergePolicies(PRESETS.llm, { limits: { cpuMs: 50, memoryMb: 16 } }), {
        maxRetries: 1,
        limits: { cpuMs: 70 },
      }),
    ).toEqual({ ...PRESETS.llm, maxRetries: 1, limits: { cpuMs: 70, memoryMb: 16 } });
    expect(PRESETS.llm.maxRetries).toBe(3);
  });
});

describe("registered functions", () => {
  const layers: PolicyLayer[] = [
    {
      level: "namespace",
      name: "acme",
      rules: [{ match: { function: "isBook" }, policy: { maxRetries: 1 } }, rule(2)],
    },
  ];
  const ask = (predicate: Predicate) =>
    resolvePolicy(layers, subject("read"), new Map([["isBook", predicate]]));

  test("choose a rule, and are named in explain", () => {
    const resolved = ask(({ handler }) => handler === "book");
    expect(resolved.policy.maxRetries).toBe(1);
    expect(explainPolicy(resolved)[0]).toMatchObject({
      field: "maxRetries",
      because: "rule 1 of namespace acme (function isBook)",
    });
  });

  test("one that throws is no match and a warning that names its rule", () => {
    const resolved = ask(() => {
      throw new Error("boom");
    });
    expect(resolved.policy.maxRetries).toBe(2);
    expect(resolved.warnings).toEqual([
      { level: "namespace", rule: 0, message: expect.stringContaining("boom") },
    ]);
  });

  test("one that is missing is no match and a warning", () => {
    const resolved = resolvePolicy(layers, subject("read"));
    expect(resolved.policy.maxRetries).toBe(2);
    expect(resolved.warnings.length).toBe(1);
  });
});

describe("explain", () => {
  const because = (layers: readonly PolicyLayer[], field: string, scope: Scope = "prepare") =>
    explainPolicy(resolvePolicy(layers, subject(scope))).find((one) => one.field === field)?.because;

  test("says in words where each field comes from", () => {
    const layers = policyLayers({
      call: { rules: [{ match: "default", policy: { timeoutMs: 5 }, inherit: true }] },
      workflow: {
        name: "orders",
        rules: [{ match: "default", policy: { preset: "io", limits: { cpuMs: 50 } }, inherit: true }],
      },
      namespace: {
        name: "acme",
        rules: [
          rule(1, { unit: "read" }),
          { match: "default", policy: { onFailure: "deadLetter", neverRetryOn: ["logic"] } },
        ],
      },
    });
    expect(because(layers, "timeoutMs")).toBe("rule 1 of this call");
    expect(because(layers, "maxRetries")).toBe("preset io in rule 1 of workflow orders");
    expect(because(layers, "limits.cpuMs")).toBe("rule 1 of workflow orders");
    expect(because(layers, "neverRetryOn")).toBe("rule 2 of namespace acme");
    expect(because(layers, "limits.maxHops")).toBe("default of prepare");
    expect(because(layers, "onFailure", "next")).toBe(
      'preset io in rule 1 of workflow orders, which says "skip"',
    );
  });

  test("works on what was stored with a run", () => {
    const resolved = resolvePolicy(host(rule(3)), subject("read"));
    expect(explainPolicy(JSON.parse(JSON.stringify(resolved)) as typeof resolved)).toEqual(
      explainPolicy(resolved),
    );
  });
});

// Random rule sets that parse, so that only meaningful ones are resolved.
const POLICIES: Policy[] = [
  {},
  { maxRetries: 3 },
  { maxRetries: 0, timeoutMs: 500 },
  { backoff: "linear", baseDelayMs: 10, maxDelayMs: 50 },
  { onFailure: "skip" },
  { onFailure: "deadLetter", metadata: { team: "a" } },
  { limits: { cpuMs: 77 } },
  { limits: { memoryMb: 99, cpuMs: 88 }, neverRetryOn: ["logic"] },
  { check: { maxAttempts: 2 } },
  { minWakeMs: 2_000, maxWakeMs: 9_000, priority: "high" },
  { stepping: "every", logLevel: "debug", metadata: { tier: 2 } },
];
const ruleArbitrary = fc
  .record({
    match: fc.oneof(
      fc.constantFrom("default", "orders/*", "*/book", "orders/book.next", "invoices/*", "o*s/b*"),
      fc.constantFrom<PolicyRule["match"][]>(
        { type: "consumer" },
        { type: ["producer"] },
        { label: { team: "billing" } },
        { nameRegex: "^b" },
        { connection: "bank" },
      ),
      fc.subarray([...UNITS], { minLength: 1 }).map((unit) => ({ unit })),
    ),
    policy: fc.constantFrom(
      ...POLICIES,
      { preset: "llm" as const },
      { preset: "critical" as const, maxRetries: 1 },
    ),
    inherit: fc.boolean(),
  })
  .filter((one) => "rules" in parsePolicySet([one], { allowUnenforced: true }));
const layersArbitrary = fc
  .tuple(
    fc.array(ruleArbitrary, { maxLength: 3 }),
    fc.array(ruleArbitrary, { maxLength: 4 }),
    fc.array(ruleArbitrary, { maxLength: 3 }),
    fc.boolean(),
  )
  .map(([call, namespace, below, replace]) =>
    policyLayers({
      call: { rules: call, replace: replace && call.length > 2 },
      namespace: { name: "acme", rules: namespace },
      host: { rules: below },
    }),
  );
const subjectArbitrary = fc
  .record({
    scope: fc.constantFrom(...SCOPES),
    workflow: fc.constantFrom("orders", "invoices"),
    handler: fc.constantFrom("book", "poll"),
    labels: fc.constantFrom({}, { team: "billing" }),
  })
  .map(({ scope, handler, ...rest }): PolicySubject => {
    if (scope === "workflow") return { scope, ...rest };
    const type = scope === "producer" ? "producer" : "consumer";
    const isCall = scope === "read" || scope === "mutation" || scope === "check";
    return {
      scope,
      ...rest,
      handler,
      type,
      ...(isCall && { tool: "http.get", connector: "http", connection: "bank" }),
    };
  });

describe("any rules", () => {
  const matching = (layers: readonly PolicyLayer[], one: PolicySubject) =>
    layers
      .flatMap(({ level, rules }) => rules.map((given, i) => ({ level, i, given })))
      .filter(({ given }) => matchesSubject(given.match, one, new Map(), () => {}));

  test("V1: without inherit only the first matching rule counts", () => {
    fc.assert(
      fc.property(layersArbitrary, subjectArbitrary, (layers, one) => {
        const plain = layers.map((layer) => ({
          ...layer,
          rules: layer.rules.map((given) => ({ ...given, inherit: false })),
        }));
        const [first] = matching(plain, one);
        const alone = first === undefined ? [] : host(first.given);
        expect(resolvePolicy(plain, one).policy).toEqual(resolvePolicy(alone, one).policy);
        const named = Object.values(resolvePolicy(plain, one).sources).filter((source) => "rule" in source);
        expect(named.every(({ level, rule: i }) => level === first?.level && i === first.i)).toBe(true);
      }),
      { numRuns: 1_000 },
    );
  });

  // The oracle: each field by itself, from the strongest matching rule that names it, down to the first that does not inherit.
  test("explain equals resolve, and both equal the rule that is named", () => {
    fc.assert(
      fc.property(layersArbitrary, subjectArbitrary, (layers, one) => {
        const resolved = resolvePolicy(layers, one);
        const all = matching(layers, one);
        const end = all.findIndex(({ given }) => given.inherit !== true);
        const asked = end === -1 ? all : all.slice(0, end + 1);
        for (const { field, value, source } of explainPolicy(resolved)) {
          const [name = "", entry] = field.split(".");
          const said = (from: object | undefined): unknown => {
            const found: unknown = (from as Record<string, unknown> | undefined)?.[name];
            return entry === undefined ? found : (found as Record<string, unknown> | undefined)?.[entry];
          };
          expect(said(resolved.policy)).toEqual(value);
          const strongest = asked.find(({ given: { policy } }) => {
            const preset = policy.preset && PRESETS[policy.preset];
            return said(policy) !== undefined || said(preset) !== undefined;
          });
          const policy = strongest?.given.policy;
          const expected =
            said(policy) ?? said(policy?.preset && PRESETS[policy.preset]) ?? said(defaultPolicy(one.scope));
          expect([field, source.given ?? value]).toEqual([field, expected]);
          expect([field, "rule" in source ? [source.level, source.rule] : undefined]).toEqual([
            field,
            strongest && [strongest.level, strongest.i],
          ]);
          const possible = isPolicyField(name) ? rowOf(name).valuesOn?.[one.scope] : undefined;
          const isSettled = possible?.includes(value as string) ?? resolved.warnings.length > 0;
          expect(source.given === undefined || isSettled).toBe(true);
        }
      }),
      { numRuns: 1_000 },
    );
  });

  test("no resolved policy has contradictory bounds", () => {
    const wild = fc.record({ baseDelayMs: fc.nat(50), maxDelayMs: fc.nat(50) }, { requiredKeys: [] });
    fc.assert(
      fc.property(fc.array(wild, { maxLength: 4 }), (policies) => {
        const rules = policies.map(
          (policy): PolicyRule => ({ match: "default", policy: policy as Policy, inherit: true }),
        );
        const { baseDelayMs, maxDelayMs } = resolvePolicy(host(...rules), subject("read")).policy;
        expect(baseDelayMs).toBeLessThanOrEqual(maxDelayMs);
      }),
    );
  });
});
