/**
 * The world as the engine gets it: no registered secret comes in. An upstream that echoes a credential cannot put it into
 * a script, a row, the ledger, an inbox item or a log, because nothing else stands between the connectors and those.
 *
 * W1. Every word that a connector says passes the redactor before anybody else sees it, its failures included.
 * W2. Cleaning never changes what an answer means for the ledger, and never fails.
 */
import type { ToolFailure, World } from "../ports/connector.ts";
import type { Redactor } from "./redactor.ts";

export function redactedWorld(world: World, redactor: Redactor): World {
  const words = <Failure extends ToolFailure>(failure: Failure): Failure => ({
    ...failure,
    code: redactor.clean(failure.code),
    message: redactor.clean(failure.message),
  });
  const json = (text: string): string => redactor.cleanJson(text);
  const before = world.before?.bind(world);
  return {
    tool: async (call) => {
      const tool = await world.tool(call).catch(cleaned(redactor));
      return "class" in tool ? words(tool) : tool;
    },
    describe: async (call) => redactor.clean(await world.describe(call).catch(cleaned(redactor))),
    fingerprint: (call) => world.fingerprint(call).catch(cleaned(redactor)),
    ...(before && {
      before: async (call) => {
        const seen = await before(call).catch(cleaned(redactor));
        return seen === undefined ? undefined : json(seen);
      },
    }),
    read: async (call) => {
      const answer = await world.read(call).catch(cleaned(redactor));
      return answer.ok ? { ...answer, value: json(answer.value) } : words(answer);
    },
    send: async (call) => {
      const answer = await world.send(call).catch(cleaned(redactor));
      const raw = json(answer.raw);
      if (answer.outcome !== "applied") return { ...words(answer), raw };
      return { ...answer, result: json(answer.result), raw };
    },
    check: async (call) => {
      const answer = await world.check(call).catch(cleaned(redactor));
      if (answer.says !== "applied" || answer.result === undefined) return answer;
      return { ...answer, result: json(answer.result) };
    },
  };
}

/** A world does not reject; one that does anyway must not speak by its stack or its cause. */
const cleaned =
  (redactor: Redactor) =>
  (error: unknown): never => {
    throw new Error(redactor.clean(error instanceof Error ? error.message : String(error)));
  };
