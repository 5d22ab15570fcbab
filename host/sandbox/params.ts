/** The params of a workflow, as its handlers see them: what was set for it over what its script declares. */
import type { Json } from "../core/workflow.ts";
import type { Sandbox, Script } from "../ports/sandbox.ts";

export function withParams(
  sandbox: Sandbox,
  set: (workflow: string) => Record<string, Json> = () => ({}),
): Sandbox {
  const paramsOf = ({ manifest, workflow }: Script): string => {
    const params: Record<string, Json> = {};
    for (const [name, declared] of Object.entries(manifest.params))
      if (declared.default !== undefined) params[name] = declared.default;
    return JSON.stringify({ ...params, ...set(workflow) });
  };
  return {
    run: (call, answer) =>
      sandbox.run(call.params === undefined ? { ...call, params: paramsOf(call.script) } : call, answer),
    hardening: () => sandbox.hardening(),
    [Symbol.asyncDispose]: () => sandbox[Symbol.asyncDispose](),
  };
}
