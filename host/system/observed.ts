/**
 * The store and the world as the engine gets them, with somebody looking over its shoulder: telemetry, the live view and
 * the tests' failpoints. Passes everything through unchanged; whoever looks cannot change or delay what happens.
 */
import type { Change } from "../core/change.ts";
import type { World } from "../ports/connector.ts";
import type { Applied, Refused, Store } from "../ports/store.ts";
import type { Failpoint } from "./failpoints.ts";
import { phasesMoved, storeEnded, storeStarts } from "./telemetry.ts";

export function observedStore(
  store: Store,
  onApplied: (change: Change, applied: Applied) => void,
  failpoint: Failpoint | undefined,
): Store {
  const host = store.fence.incarnation;
  const apply: Store["apply"] = async (change, options) => {
    failpoint?.reached("before", change.verb);
    storeStarts(change, options.level, host);
    const startedMs = performance.now();
    let result: Applied | Refused;
    try {
      result = await store.apply(change, options);
    } catch (error) {
      storeEnded(change, options.level, host, { durationMs: performance.now() - startedMs, error });
      throw error;
    }
    failpoint?.reached("after", change.verb);
    const durationMs = performance.now() - startedMs;
    storeEnded(
      change,
      options.level,
      host,
      result.ok ? { durationMs } : { durationMs, refused: result.because },
    );
    if (!result.ok) return result;
    phasesMoved(change, host);
    onApplied(change, result);
    return result;
  };
  return passThrough(store, { apply });
}

export function observedWorld(world: World, failpoint: Failpoint | undefined): World {
  if (!failpoint) return world;
  const send: World["send"] = async (call) => {
    failpoint.reached("before", "call");
    const answer = await world.send(call);
    failpoint.reached("after", "call");
    return answer;
  };
  return passThrough(world, { send });
}

/** The same object with some members replaced; works for classes with private fields, too. */
function passThrough<Whole extends object>(whole: Whole, replaced: Partial<Whole>): Whole {
  const bound = new Map<PropertyKey, unknown>();
  return new Proxy(whole, {
    get(target, key) {
      if (Object.hasOwn(replaced, key)) return replaced[key as keyof Whole];
      const known = bound.get(key);
      if (known !== undefined) return known;
      const member: unknown = Reflect.get(target, key, target);
      if (typeof member !== "function") return member;
      const method: unknown = member.bind(target);
      bound.set(key, method);
      return method;
    },
  });
}
