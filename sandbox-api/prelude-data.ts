/**
 * What may leave a script: plain JSON data and nothing else. Every refusal names the path of the offending value.
 * Captures what it uses before the author's code runs; see `prelude.ts` (P2).
 */
export interface Data {
  /** JSON text of a value, or the run's end. */
  text(value: unknown, path: string, max: number): string;
  /** The value, if it is a string that is not empty. */
  string(value: unknown, path: string): string;
  /** JSON text of what was thrown, whatever it is. */
  report(code: string, error: unknown): string;
  describe(value: unknown): string;
}

export function data(refuse: (code: string, message: string) => never): Data {
  type Dict = Record<string, unknown>;
  const { stringify } = JSON;
  const { keys, getPrototypeOf, prototype: objectPrototype } = Object;
  const { isArray } = Array;
  const { apply } = Reflect;
  const StringOf = String;
  const isFiniteNumber = Number.isFinite;
  const slice = String.prototype.slice;
  const cut = (text: string, max: number): string =>
    text.length > max ? apply(slice, text, [0, max]) : text;

  const report = (code: string, error: unknown): string => {
    let name = "Error";
    let message = "";
    let stack = "";
    try {
      if ((typeof error === "object" && error !== null) || typeof error === "function") {
        const e = error as Dict;
        name = cut(StringOf(e["name"] ?? "Error"), 100);
        message = cut(StringOf(e["message"] ?? ""), 2000);
        stack = cut(StringOf(e["stack"] ?? ""), 8000);
        if (message === "" && stack === "") message = `threw ${cut(describe(error), 200)}`;
      } else message = `threw ${cut(describe(error), 2000)}`;
    } catch {
      message = "threw a value that cannot be read";
    }
    return stringify({ __proto__: null, code, name, message, stack }); // A script's `toJSON` stays out of it.
  };
  const describe = (value: unknown): string => {
    if (value === null) return "null";
    if (typeof value === "string") return stringify(value);
    if (typeof value === "object") return isArray(value) ? "an array" : "an object";
    if (typeof value === "function") return "a function";
    if (typeof value === "symbol") return "a symbol";
    return StringOf(value as never);
  };

  /** Refuses what is not plain JSON data, with the path of the offender. */
  const inspect = (value: unknown, path: string, above: unknown[]): void => {
    const type = typeof value;
    if (value === null || type === "string" || type === "boolean") return;
    if (type === "number") {
      if (!isFiniteNumber(value))
        refuse("bad-value", `${path} is ${StringOf(value)}, which JSON cannot carry`);
      return;
    }
    if (type !== "object") {
      const what = value === undefined ? "undefined" : describe(value);
      refuse("bad-value", `${path} is ${what}, which is not plain data`);
    }
    if (above.length >= 100) refuse("bad-value", `${path} is nested more than 100 levels deep`);
    for (let i = 0; i < above.length; i++)
      if (above[i] === value)
        refuse("bad-value", `${path} refers back to a value that contains it (a cycle)`);
    const inner: unknown[] = [];
    for (let i = 0; i < above.length; i++) inner[i] = above[i];
    inner[above.length] = value;
    if (isArray(value)) {
      for (let i = 0; i < value.length; i++) inspect(value[i], `${path}[${i}]`, inner);
      return;
    }
    const proto = getPrototypeOf(value as object);
    if (proto !== null && proto !== objectPrototype && getPrototypeOf(proto) !== null)
      refuse("bad-value", `${path} is an instance of a class; hand over a plain object`);
    const names = keys(value as object);
    for (let i = 0; i < names.length; i++) {
      const item = (value as Dict)[names[i] as string];
      if (item !== undefined) inspect(item, `${path}.${names[i]}`, inner);
    }
  };
  const text = (value: unknown, path: string, max: number): string => {
    inspect(value, path, []);
    const json = stringify(value);
    if (typeof json !== "string") return refuse("bad-value", `${path} cannot be written as JSON`);
    if (json.length > max)
      refuse("value-too-large", `${path} is ${json.length} characters long; the limit is ${max}`);
    return json;
  };
  const string = (value: unknown, path: string): string => {
    if (typeof value !== "string" || value === "")
      return refuse(
        "bad-call",
        `${path} must be a string that is not empty, not ${cut(describe(value), 60)}`,
      );
    return value;
  };

  return { text, string, report, describe };
}
