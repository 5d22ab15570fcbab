/**
 * The frozen scope: one realm serves many runs of one version, so nothing in it may be changeable. Walks everything a
 * script can reach without being handed it, freezes it, then walks again and refuses the realm if anything is not.
 *
 * F1. Intrinsics that only syntax reaches (iterators, generators, a thrown error's own accessors) are roots too.
 * F2. Assigning to an own property that a prototype also has must keep working ("override mistake"): accessors on
 *     Object, Function and Error prototypes. Doing it on Array, Promise or iterators would cost V8's fast paths.
 */
export function freeze(roots: unknown[]): void {
  const { getPrototypeOf, getOwnPropertyDescriptor, defineProperty, isFrozen, hasOwn } = Object;
  const { ownKeys } = Reflect;
  const overridable = (holder: object) => {
    for (const key of ownKeys(holder)) {
      const own = getOwnPropertyDescriptor(holder, key) as PropertyDescriptor;
      if (!("value" in own) || !own.configurable) continue;
      const value = own.value as unknown;
      const access = {
        get [key]() {
          return value;
        },
        set [key](next: unknown) {
          if (
            this === (holder as unknown) ||
            (typeof this !== "object" && typeof this !== "function") ||
            this === null
          )
            throw new TypeError(`Cannot assign to read only property '${String(key)}' of a built-in object`);
          if (hasOwn(this, key)) {
            const mine = getOwnPropertyDescriptor(this, key) as PropertyDescriptor;
            defineProperty(
              this,
              key,
              mine.writable === true || mine.configurable === true ? { value: next } : mine,
            );
          } else
            defineProperty(this, key, { value: next, writable: true, enumerable: true, configurable: true });
        },
      };
      const { get, set } = getOwnPropertyDescriptor(access, key) as Required<PropertyDescriptor>;
      defineProperty(holder, key, { get, set, enumerable: own.enumerable ?? false, configurable: false });
    }
  };
  for (const holder of [
    Object,
    Function,
    Error,
    AggregateError,
    EvalError,
    RangeError,
    ReferenceError,
    SyntaxError,
    TypeError,
    URIError,
    SuppressedError,
  ])
    overridable(holder.prototype as object);

  const thrown = new Error("root");
  const captured = {};
  (Error as unknown as { captureStackTrace(o: object): void }).captureStackTrace(captured);
  const hidden: unknown[] = [
    globalThis,
    async function () {},
    function* () {}.prototype,
    function* () {},
    async function* () {}.prototype,
    async function* () {},
    (function* (): Generator<number> {})(),
    (async function* (): AsyncGenerator<number> {})(),
    [][Symbol.iterator](),
    new Map().entries(),
    new Set().values(),
    ""[Symbol.iterator](),
    "".matchAll(/x/g),
    [].values().map((x) => x),
    Iterator.from({ next: () => ({ done: true, value: 0 }) } as never),
    new Intl.Segmenter().segment(""),
    new Intl.Segmenter().segment("")[Symbol.iterator](),
    (function () {
      // oxlint-disable-next-line prefer-rest-params
      return arguments;
    })(),
    new Proxy({}, {}),
    Promise.resolve(),
    ...roots,
  ];
  for (const source of [thrown, captured, new (class extends Error {})()])
    for (const key of ownKeys(source)) {
      const own = getOwnPropertyDescriptor(source, key) as PropertyDescriptor;
      hidden.push(own.get, own.set);
    }

  const walk = (): Set<object> => {
    const seen = new Set<object>();
    const todo: unknown[] = [...hidden];
    while (todo.length > 0) {
      const item = todo.pop();
      if ((typeof item !== "object" && typeof item !== "function") || item === null || seen.has(item))
        continue;
      seen.add(item);
      todo.push(getPrototypeOf(item));
      for (const key of ownKeys(item)) {
        const own = getOwnPropertyDescriptor(item, key) as PropertyDescriptor;
        if ("value" in own) todo.push(own.value);
        else todo.push(own.get, own.set);
      }
    }
    return seen;
  };
  for (const item of walk()) Object.freeze(item);
  for (const item of walk()) if (!isFrozen(item)) throw new Error("the realm could not be frozen");
}
