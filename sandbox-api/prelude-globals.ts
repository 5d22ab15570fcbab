/**
 * The global scope of a script: takes away what would give authority, real time, chance or a view of the garbage
 * collector, and adds the few web globals that authors expect. The list is pinned by a golden file.
 *
 * G1. Time and chance come from the current run, so the same run gives the same values.
 * G2. No way is left to turn a string into code.
 * G3. What is added is built on first use: a fresh scope pays only for what its script touches.
 */
import type { Native } from "./prelude.ts";
import type { Run } from "./prelude-ctx.ts";

export interface Globals {
  setLog(log: (level: string, message: unknown, data: unknown) => void): void;
  /** Builds everything that is built on first use. */
  touch(): void;
}

export function globals(
  native: Native,
  current: () => Run,
  web: (native: Native) => Record<string, unknown>,
): Globals {
  const { defineProperty, getPrototypeOf, keys } = Object;
  const { construct, apply } = Reflect;
  const scope = globalThis as unknown as Record<string, unknown>;
  const hidden = (target: object, name: PropertyKey, value: unknown) =>
    defineProperty(target, name, { value, writable: true, enumerable: false, configurable: true });

  for (const name of [
    "WebAssembly",
    "SharedArrayBuffer",
    "Atomics",
    "WeakRef",
    "FinalizationRegistry",
    "eval",
    "Temporal",
    "ShadowRealm",
  ])
    delete scope[name];
  for (const name of [
    "input",
    "$_",
    "lastMatch",
    "$&",
    "lastParen",
    "$+",
    "leftContext",
    "$`",
    "rightContext",
    "$'",
    "$1",
    "$2",
    "$3",
    "$4",
    "$5",
    "$6",
    "$7",
    "$8",
    "$9",
  ])
    delete (RegExp as unknown as Record<string, unknown>)[name];

  // (G2)
  const kinds = [function () {}, async function () {}, function* () {}, async function* () {}];
  for (const sample of kinds) {
    const proto = getPrototypeOf(sample) as object & { constructor: { name: string } };
    const refuse = function () {
      throw new TypeError("code from strings is not available in a Pawl script");
    };
    defineProperty(refuse, "name", { value: proto.constructor.name, configurable: true });
    defineProperty(refuse, "prototype", { value: proto, writable: false });
    defineProperty(proto, "constructor", {
      value: refuse,
      writable: true,
      enumerable: false,
      configurable: true,
    });
    if (proto.constructor.name === "Function") hidden(scope, "Function", refuse);
  }

  // (G1)
  const RealDate = Date;
  const dateToString = RealDate.prototype.toString;
  const SandboxDate = function (this: unknown, ...args: unknown[]) {
    if (new.target === undefined) return apply(dateToString, new RealDate(current().now), []);
    return construct(RealDate, args.length === 0 ? [current().now] : args, new.target);
  } as unknown as DateConstructor;
  defineProperty(SandboxDate, "name", { value: "Date", configurable: true });
  defineProperty(SandboxDate, "length", { value: 7, configurable: true });
  defineProperty(SandboxDate, "prototype", { value: RealDate.prototype, writable: false });
  hidden(SandboxDate, "now", { now: () => current().now }.now);
  hidden(SandboxDate, "parse", RealDate.parse);
  hidden(SandboxDate, "UTC", RealDate.UTC);
  hidden(RealDate.prototype, "constructor", SandboxDate);
  hidden(scope, "Date", SandboxDate);
  const formatter = Intl.DateTimeFormat.prototype;
  const format = Object.getOwnPropertyDescriptor(formatter, "format")?.get as () => (
    date?: unknown,
  ) => string;
  defineProperty(formatter, "format", {
    get: Object.getOwnPropertyDescriptor(
      {
        get format() {
          const bound = apply(format, this, []) as (date: unknown) => string;
          return (date?: unknown) => bound(date === undefined ? current().now : date);
        },
      },
      "format",
    )?.get as () => unknown,
    configurable: true,
    enumerable: false,
  });
  const toParts = formatter.formatToParts;
  hidden(
    formatter,
    "formatToParts",
    {
      formatToParts(this: Intl.DateTimeFormat, date?: unknown) {
        return apply(toParts, this, [date === undefined ? current().now : date]);
      },
    }.formatToParts,
  );

  const seeded = (text: string): (() => number) => {
    let [a, b, c, d] = [0x9e3779b9, 0x243f6a88, 0xb7e15162, text.length | 1];
    for (let i = 0; i < text.length; i++) {
      const k = text.charCodeAt(i);
      a = Math.imul(a ^ k, 0x85ebca6b);
      b = Math.imul(b ^ a ^ (k << 7), 0xc2b2ae35);
      c = Math.imul(c ^ b ^ (k << 13), 0x27d4eb2f);
    }
    const next = () => {
      const t = (((a + b) | 0) + d) | 0;
      d = (d + 1) | 0;
      a = b ^ (b >>> 9);
      b = (c + (c << 3)) | 0;
      c = (c << 21) | (c >>> 11);
      c = (c + t) | 0;
      return t >>> 0;
    };
    for (let i = 0; i < 12; i++) next();
    return next;
  };
  type Streams = { phase: string; chance: () => number; bytes: () => number };
  const streams = new WeakMap<Run, Streams>();
  const { get: streamsGet, set: streamsSet } = WeakMap.prototype;
  const stream = (): Streams => {
    const run = current();
    let mine = apply(streamsGet, streams, [run]) as Streams | undefined;
    if (!mine || mine.phase !== run.phase) {
      mine = {
        phase: run.phase,
        chance: seeded(`${run.seed}:${run.phase}:chance`),
        bytes: seeded(`${run.seed}:${run.phase}:crypto`),
      };
      apply(streamsSet, streams, [run, mine]);
    }
    return mine;
  };
  hidden(Math, "random", { random: () => stream().chance() / 4294967296 }.random);

  let sink: (level: string, message: unknown, data: unknown) => void = () => {};
  const console: Record<string, unknown> = {};
  for (const [name, level] of [
    ["debug", "debug"],
    ["log", "info"],
    ["info", "info"],
    ["warn", "warn"],
    ["error", "error"],
  ] as const)
    console[name] = {
      [name]: (message?: unknown, ...rest: unknown[]) =>
        sink(level, message, rest.length === 0 ? undefined : rest.length === 1 ? rest[0] : rest),
    }[name];
  hidden(scope, "console", console);

  // (G3)
  const digest = (algorithm: unknown, data: unknown): ArrayBuffer => {
    const name = typeof algorithm === "string" ? algorithm : String((algorithm as { name?: unknown })?.name);
    const view =
      data instanceof ArrayBuffer
        ? new Uint8Array(data)
        : ArrayBuffer.isView(data)
          ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
          : undefined;
    if (!view) throw new TypeError("crypto.subtle.digest wants an ArrayBuffer or a view of one");
    let bytes = "";
    for (let i = 0; i < view.length; i++) bytes += String.fromCharCode(view[i] as number);
    const hex = native("digest", name, bytes);
    if (hex === "") throw new TypeError(`crypto.subtle.digest: unknown algorithm ${name}`);
    const out = new Uint8Array(hex.length / 2);
    for (let i = 0; i < out.length; i++) out[i] = Number.parseInt(hex.slice(i * 2, i * 2 + 2), 16);
    return out.buffer;
  };
  const makeCrypto = () => {
    const fill = (target: Uint8Array) => {
      const { bytes } = stream();
      for (let i = 0; i < target.length; i++) target[i] = bytes() & 255;
    };
    return {
      randomUUID: () => {
        const raw = new Uint8Array(16);
        fill(raw);
        raw[6] = ((raw[6] as number) & 15) | 64;
        raw[8] = ((raw[8] as number) & 63) | 128;
        let hex = "";
        for (let i = 0; i < 16; i++)
          hex += `${i === 4 || i === 6 || i === 8 || i === 10 ? "-" : ""}${((raw[i] as number) + 256).toString(16).slice(1)}`;
        return hex;
      },
      getRandomValues: (array: ArrayBufferView) => {
        if (!ArrayBuffer.isView(array) || array.byteLength > 65536)
          throw new TypeError("crypto.getRandomValues wants a typed array of at most 65536 bytes");
        fill(new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
        return array;
      },
      subtle: { digest: async (algorithm: unknown, data: unknown) => digest(algorithm, data) },
    };
  };
  let table: Record<string, unknown> | undefined;
  const lazy: Record<string, () => unknown> = { crypto: makeCrypto };
  for (const name of [
    "URL",
    "URLSearchParams",
    "TextEncoder",
    "TextDecoder",
    "atob",
    "btoa",
    "structuredClone",
  ])
    lazy[name] = () => (table ??= web(native))[name];
  const names = keys(lazy);
  for (const name of names)
    defineProperty(scope, name, {
      configurable: true,
      enumerable: false,
      get: () => {
        const value = (lazy[name] as () => unknown)();
        hidden(scope, name, value);
        return value;
      },
      set: (value) => hidden(scope, name, value),
    });
  return {
    setLog: (log) => {
      sink = log;
    },
    touch: () => {
      for (const name of names) void scope[name];
    },
  };
}
