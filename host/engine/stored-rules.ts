/** The policy rules that operators stored, in memory: the engine asks before every unit. Written through, whole sets. */
import { parsePolicySet } from "../core/policy-rules.ts";
import type { PolicyLayer, PolicyRule } from "../core/policy-resolve.ts";
import type { NamespaceId } from "../core/ids.ts";
import type { ActedBy } from "../ports/connections.ts";
import type { RuleBook } from "../ports/principals.ts";
import type { StoredLayers } from "./policies.ts";

interface Held {
  rules: readonly PolicyRule[];
  updatedAtMs: number;
}

export class StoredRules implements StoredLayers {
  readonly #book: RuleBook;
  readonly #held = new Map<string, Held>();
  revision = 1;
  #last: Promise<unknown> = Promise.resolve();

  constructor(book: RuleBook) {
    this.#book = book;
    for (const { scope, rules, updatedAtMs } of book.all()) {
      const parsed = parsePolicySet(JSON.parse(rules), { allowUnenforced: true });
      if ("rules" in parsed) this.#held.set(scope, { rules: parsed.rules, updatedAtMs });
    }
  }

  get rules(): PolicyRule[] {
    return [...this.#held.values()].flatMap((one) => one.rules);
  }

  of({ id, namespace }: { id: number; namespace: NamespaceId }): PolicyLayer[] {
    const layer = (level: PolicyLayer["level"], scope: string): PolicyLayer[] => {
      const held = this.#held.get(scope);
      return held && held.rules.length > 0 ? [{ level, rules: held.rules }] : [];
    };
    return [
      ...layer("workflow", `workflow:${id}`),
      ...layer("namespace", `namespace:${namespace}`),
      ...layer("host", "host"),
    ];
  }

  get(scope: string): { rules: readonly PolicyRule[]; updatedAtMs?: number } {
    return this.#held.get(scope) ?? { rules: [] };
  }

  /** One change after the other: `make` is given what the one before it has left. */
  change(
    scope: string,
    make: (known: readonly PolicyRule[]) => readonly PolicyRule[],
    namespace: NamespaceId,
    by: ActedBy,
  ): Promise<void> {
    const changed = this.#last.then(async () => {
      const rules = make(this.get(scope).rules);
      await this.#book.put({ scope, rules: JSON.stringify(rules) }, namespace, by);
      this.#held.set(scope, { rules, updatedAtMs: by.atMs });
      this.revision++;
    });
    this.#last = changed.catch(() => {});
    return changed;
  }
}
