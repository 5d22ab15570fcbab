/**
 * Reads the declaration out of a loaded script as plain data. Functions become markers, so that a manifest can say
 * which phases exist; anything else that is not data is named by its type and refused by the host. Captures what it uses
 * before the script runs (P2 of `prelude.ts`).
 */
export function manifest(): (value: unknown) => string {
  const { keys, create } = Object;
  const { isArray } = Array;
  const { isFinite: isFiniteNumber } = Number;
  const { stringify } = JSON;
  const StringOf = String;
  const RangeErrorCtor = RangeError;
  const marker = (kind: string): object => ({ __proto__: null, $kind: kind });
  return (value) => {
    let budget = 20_000;
    const plain = (item: unknown, depth: number): unknown => {
      if (--budget < 0) throw new RangeErrorCtor("the declaration is too large");
      if (depth > 40) throw new RangeErrorCtor("the declaration is nested too deeply or refers to itself");
      if (typeof item === "function") return marker("function");
      if (typeof item === "bigint" || typeof item === "symbol") return marker(typeof item);
      if (typeof item === "number" && !isFiniteNumber(item)) return marker(StringOf(item));
      if (typeof item !== "object" || item === null) return item;
      const out = (isArray(item) ? [] : create(null)) as Record<string, unknown>;
      if (isArray(item)) for (let i = 0; i < item.length; i++) out[i] = plain(item[i], depth + 1);
      else {
        const names = keys(item);
        for (let i = 0; i < names.length; i++) {
          const part = plain((item as Record<string, unknown>)[names[i] as string], depth + 1);
          if (part !== undefined) out[names[i] as string] = part;
        }
      }
      return out;
    };
    return stringify(plain(value, 0) ?? null);
  };
}
