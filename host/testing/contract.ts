/**
 * The conformance kit of connectors: every promise of a changing tool as one case, for whichever test runner there is.
 * A tool that passes may be trusted by the host with an outside change (02 §5, 06).
 */
import { hostCases } from "./host-cases.ts";
import { type ConnectorSpec, type ContractCase, labelOf } from "./spec.ts";
import { toolCases } from "./tool-cases.ts";

/** The functions of vitest, or of anything that has them. */
export interface TestRunner {
  describe: (name: string, body: () => void) => unknown;
  test: ((name: string, body: () => Promise<void>) => unknown) & {
    skip: (name: string, body: () => Promise<void>) => unknown;
  };
  afterAll: (body: () => Promise<void>) => unknown;
}

/** All cases, and how to put away what they left open. */
export function contractCases(spec: ConnectorSpec): { cases: ContractCase[]; close: () => Promise<void> } {
  const inHost = hostCases(spec);
  return { cases: [...toolCases(spec), ...inHost.cases], close: inHost.close };
}

/** One `describe` per tool, one `test` per promise. */
export function connectorContract(spec: ConnectorSpec, { describe, test, afterAll }: TestRunner): void {
  describe(spec.title ?? labelOf(spec), () => {
    const { cases, close } = contractCases(spec);
    afterAll(close);
    for (const { name, skipped, run } of cases)
      if (skipped === undefined) test(name, run);
      else test.skip(`${name}: not run, ${skipped}`, run);
  });
}
