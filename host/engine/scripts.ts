/** Versions from the store as scripts the sandbox can run, a bounded number of them kept. */
import type { Script } from "../ports/sandbox.ts";
import type { Store } from "../ports/store.ts";
import type { Scripts } from "./parts.ts";

const KEPT = 2_000;

export function scriptsOf(store: Store): Scripts {
  const known = new Map<string, Script>();
  return {
    async script(workflow, number) {
      const key = `${workflow}/${number}`;
      const kept = known.get(key);
      if (kept) return kept;
      const [facts, version] = await Promise.all([store.workflow(workflow), store.version(workflow, number)]);
      if (!facts || !version) throw new Error(`workflow ${workflow} has no version ${number}`);
      const script: Script = {
        namespace: String(facts.namespace),
        workflow: facts.name,
        version: number,
        hash: version.hash,
        file: `${facts.name}.${version.language}`,
        source: version.source,
        code: version.code,
        manifest: version.manifest,
        scope: version.scope,
        ...(version.sourceMap === undefined ? {} : { sourceMap: version.sourceMap }),
      };
      if (known.size >= KEPT) known.delete(known.keys().next().value as string);
      known.set(key, script);
      return script;
    },
  };
}
