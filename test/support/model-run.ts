/**
 * Random sequences of commands, played until one is caught; shortened and told as a trace. Also a program of its own:
 * `node model-run.ts <sequences> <seed> [first]` prints one line of JSON, which is how planted bugs are tried; with
 * `first` the first sequence that is caught is told as it is.
 */
import fc from "fast-check";
import { openStore, type SqliteStore } from "../../host/store/open.ts";
import { type Caught, type Command, Model, type Op, OPS } from "./model.ts";

const MOST_COMMANDS = 60;

const command: fc.Arbitrary<Command> = fc.record({
  op: fc.oneof(
    ...(Object.entries(OPS) as [Op, number][]).map(([op, weight]) => ({
      weight,
      arbitrary: fc.constant(op),
    })),
  ),
  a: fc.nat(23),
  b: fc.nat(23),
});

export interface Outcome {
  sequences: number;
  commands: number;
  seen: ReadonlyMap<string, number>;
  /** The shortest sequence found that shows it. */
  caught?: Caught;
}

/** One store for many sequences, each in its own workflow and namespace. */
export async function runModel(
  sequences: number,
  seed: number,
  shorten = true,
  onFile?: () => SqliteStore,
): Promise<Outcome> {
  let store: SqliteStore | undefined;
  let commands = 0;
  const seen = new Map<string, number>();
  let caught: Caught | undefined;
  const fresh = onFile ?? (() => openStore({ data: ":memory:", nowMs: () => 0 }));
  const reopen = async (old: SqliteStore): Promise<SqliteStore> => {
    await old[Symbol.asyncDispose]();
    store = fresh();
    return store;
  };
  const property = fc.asyncProperty(
    fc.array(command, { minLength: 1, maxLength: MOST_COMMANDS, size: "max" }),
    async (list) => {
      store ??= fresh();
      const model = new Model(store, seen, onFile && reopen);
      try {
        await model.play(list);
      } catch (error) {
        caught = error as Caught;
        await store[Symbol.asyncDispose]();
        store = undefined;
        throw error;
      } finally {
        commands += model.trace.length;
      }
    },
  );
  const { failed } = await fc.check(property, { seed, numRuns: sequences, endOnFailure: !shorten });
  if (store) await store[Symbol.asyncDispose]();
  return { sequences, commands, seen, ...(failed && caught ? { caught } : {}) };
}

if (process.argv[1] === import.meta.filename) {
  const [, , sequences, seed, first] = process.argv;
  const { caught, commands } = await runModel(Number(sequences), Number(seed), first === undefined);
  process.stdout.write(`${JSON.stringify({ commands, by: caught?.by, message: caught?.message })}\n`);
}
