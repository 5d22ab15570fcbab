/**
 * Reads the declaration out of a loaded script as plain data. Functions become markers, so that a manifest can say
 * which phases exist; anything else that is not data is named by its type and refused by the host.
 */
export function manifest(value: unknown): string {
  const { keys } = Object;
  let budget = 20_000;
  const plain = (item: unknown, depth: number): unknown => {
    if (--budget < 0) throw new RangeError("the declaration is too large");
    if (depth > 40) throw new RangeError("the declaration is nested too deeply or refers to itself");
    if (typeof item === "function") return { $kind: "function" };
    if (typeof item === "bigint" || typeof item === "symbol") return { $kind: typeof item };
    if (typeof item === "number" && !Number.isFinite(item)) return { $kind: String(item) };
    if (typeof item !== "object" || item === null) return item;
    if (Array.isArray(item)) return item.map((part) => plain(part, depth + 1));
    const out: Record<string, unknown> = Object.create(null);
    for (const key of keys(item)) {
      const part = plain((item as Record<string, unknown>)[key], depth + 1);
      if (part !== undefined) out[key] = part;
    }
    return out;
  };
  return JSON.stringify(plain(value, 0) ?? null);
}
