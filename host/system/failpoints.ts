/**
 * Tests only: the process kills itself, without a goodbye, at a named moment. `PAWL_FAILPOINT=after:sending:3` dies right
 * after the third Change with the verb `sending` was acknowledged, `before:…` right before it is handed to the store.
 * `before:call` and `after:call` stand around the bytes that leave. Unset, nothing of this is in the path.
 */
export interface Failpoint {
  /** `verb` may be a fused one, "prepared+intended+sending". */
  reached(when: "before" | "after", verb: string): void;
}

const FORM = /^(before|after):([a-z.-]+|\*)(?::(\d+))?$/;

export function failpointOf(
  text: string | undefined,
  die: () => void = () => process.kill(process.pid, "SIGKILL"),
): Failpoint | undefined {
  if (text === undefined) return undefined;
  const [, when, name, count] = FORM.exec(text) ?? [];
  if (when === undefined)
    throw new Error(`PAWL_FAILPOINT ${JSON.stringify(text)} is not like "after:sending:3"`);
  let left = Number(count ?? 1);
  return {
    reached(now, verb) {
      if (now !== when || (name !== "*" && !verb.split("+").includes(name as string))) return;
      if (--left === 0) die();
    },
  };
}
