/**
 * The first code inside an isolate. It builds `ctx` for a unit, runs the author's function, and hands the result over
 * as JSON text. The host reads this file and its neighbours `prelude-*.ts` as text and joins them: between them only
 * types may be imported, and each function must stand alone.
 *
 * P1. Nothing but primitives crosses: `send(kind, id, name, json)` out, `enter(op, id, json, now)` in.
 * P2. Everything used after the author's code has run was captured before it ran.
 * P3. A fault (wrong phase, bad value) is final: the run fails with it even if the script catches the exception.
 * P4. What belongs to one run lives in one `run` object; when the run has ended, every function of its `ctx` is dead.
 */
import type { Dict, Fn, Invocation, Run, Send, Worlds } from "./prelude-ctx.ts";
import type { Data } from "./prelude-data.ts";
import type { Globals } from "./prelude-globals.ts";

export type Native = (op: string, text: string, extra: string) => string;

/** The neighbours' functions, joined to this one as text. */
export interface Neighbours {
  globals: (native: Native, current: () => Run) => Globals;
  freeze: (roots: unknown[]) => void;
  worlds: (send: Send, data: Data) => Worlds;
  data: (refuse: (code: string, message: string) => never) => Data;
  manifest: () => (value: unknown) => string;
}

export function prelude(
  { globals, freeze, worlds, data, manifest }: Neighbours,
  send: Send,
  native: Native,
  frozen: boolean,
  load: (pawl: Dict, setDefault: (value: unknown) => void) => void,
): (op: string, id: number, json: string, now: number) => void {
  const { parse } = JSON;
  const { create, freeze: freezeOne } = Object;
  const { isArray } = Array;
  const { apply } = Reflect;
  const { resolve: promiseResolve } = Promise;
  const promiseThen = Promise.prototype.then;
  const PromiseCtor = Promise;
  const ErrorCtor = Error;
  const slice = String.prototype.slice;
  const cut = (text: string, max: number): string =>
    text.length > max ? apply(slice, text, [0, max]) : text;

  let run: Run | undefined;
  let fault: ((code: string, message: string) => never) | undefined;
  const current = (): Run =>
    run ?? ({ now: 0, seed: "load", alive: false, phase: "load", logs: [] } as never);

  const refuse = (code: string, message: string): never => {
    if (!fault) throw new ErrorCtor(message);
    return fault(code, message);
  };
  const values = data(refuse);
  const { report, describe, text } = values;
  const { open, answer, log } = worlds(send, values);
  const declared = manifest();

  const pawl: Dict = create(null);
  const tag = (kind: string) => (definition?: object) => ({ pawl: kind, ...definition });
  for (const kind of ["workflow", "producer", "consumer", "topic"]) pawl[kind] = freezeOne(tag(kind));
  freezeOne(pawl);

  const install = globals(native, current);
  install.setLog((level, message, data) => {
    if (run) log(run, level, message, data);
  });
  if (frozen) {
    install.touch();
    freeze([pawl]);
  }

  const loadModule = (): unknown => {
    let exported: unknown;
    load(pawl, (value) => {
      exported = value;
    });
    return exported;
  };

  /** Runs the handler's functions in order; each gets a parsed copy of what the one before it returned. */
  const invoke = (invocation: Invocation): void => {
    const world = open(invocation);
    run = world.mine;
    fault = world.fail;
    const value = (json: string | undefined): unknown => (json === undefined ? undefined : parse(json));
    const then = (result: unknown, next: (value: unknown) => void): void => {
      const settle = (v: unknown) => {
        if (!world.mine.alive) return;
        try {
          next(v);
        } catch (error) {
          threw(error);
        }
      };
      void apply(promiseThen, apply(promiseResolve, PromiseCtor, [result]), [settle, threw]);
    };
    const threw = (error: unknown) => world.end("fail", report("handler-throws", error));
    const finish = (parts: string) => world.end("done", `{${parts},${world.effects()}}`);
    const intent = () => (world.intent() === undefined ? "" : `,"intent":${world.intent()}`);
    try {
      const script = loadModule() as Record<string, Record<string, Record<string, Fn>>>;
      const kind = invocation.unit === "producer" ? "producers" : "consumers";
      const handler = script?.[kind]?.[invocation.handler];
      if (!handler)
        return void world.fail("bad-result", `the script no longer declares ${kind} ${invocation.handler}`);
      const phase = (name: string, f: string): Fn => {
        world.mine.phase = name;
        return (...args) => (handler[f] as Fn)(world.ctx, ...args);
      };
      const stated = (json: string) => {
        if (handler["mutate"] === undefined) return finish(`"prepared":${json}`);
        then(phase("mutate", "mutate")(parse(json)), () => finish(`"prepared":${json}${intent()}`));
      };
      const prepared = (result: unknown) => {
        if (result === undefined) result = {};
        if (typeof result !== "object" || result === null || isArray(result))
          world.fail(
            "bad-result",
            `prepare must return an object like { reservations, data }, not ${cut(describe(result), 80)}`,
          );
        const json = text(result, "the result of prepare", invocation.preparedChars);
        if (invocation.unit === "prepare" || !reserves(parse(json) as Dict))
          return finish(`"prepared":${json}`);
        stated(json);
      };
      const state = (result: unknown) =>
        finish(
          result === undefined
            ? '"kept":true'
            : `"state":${text(result, "the state", invocation.stateChars)}`,
        );
      switch (invocation.unit) {
        case "producer":
          return then(phase("producer", "handler")(value(invocation.state)), state);
        case "prepare":
        case "prepare+mutate":
          return then(phase("prepare", "prepare")(value(invocation.state)), prepared);
        case "mutate":
          return stated(invocation.prepared ?? "{}");
        case "next":
          return then(phase("next", "next")(value(invocation.prepared), value(invocation.outcome)), state);
      }
    } catch (error) {
      threw(error);
    }
  };
  const reserves = (result: Dict): boolean => {
    const list = result["reservations"];
    if (!isArray(list)) return false;
    for (let i = 0; i < list.length; i++)
      if (
        (list[i] as Dict | null)?.["ids"] !== undefined &&
        ((list[i] as Dict)["ids"] as unknown[])?.length > 0
      )
        return true;
    return false;
  };

  const declare = (): void => {
    try {
      const exported = loadModule();
      send("done", 0, "", declared(exported));
    } catch (error) {
      send("fail", 0, "", report("load-failed", error));
    }
  };

  return (op, id, json, now) => {
    if (op === "invoke") return invoke(parse(json));
    if (op === "declare") return declare();
    if (!run?.alive) return;
    run.now = now;
    answer(id, json);
  };
}
