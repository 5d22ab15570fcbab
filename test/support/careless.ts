/** A connector that keeps nothing to itself: whatever it is sent back, and its own secrets, end up in what it says. */
import { z } from "zod";
import {
  auth,
  defineConnector,
  invalid,
  mutation,
  type OpenConnection,
  read,
  transient,
  unknownOutcome,
  unsure,
} from "../../host/connectors/define.ts";

interface Secrets {
  token: string;
  user: { name: string; password: string };
}
type Open = OpenConnection<{ url: string }, Secrets>;

const input = z.looseObject({ path: z.string() });
const output = z.unknown();
const fails = { auth, invalid, transient, unknown: unknownOutcome };

/** Everything that came back, in one object. */
async function ask({ config, secrets }: Open, { path, ...body }: z.output<typeof input>): Promise<object> {
  const { token, user } = secrets;
  const basic = Buffer.from(`${user.name}:${user.password}`).toString("base64");
  const answer = await fetch(`${config.url}${path}?key=${encodeURIComponent(token)}`, {
    method: "POST",
    redirect: "manual",
    headers: { authorization: `Basic ${basic}`, "x-api-key": token, "content-type": "application/json" },
    body: JSON.stringify({ ...body, password: user.password }),
  });
  const told = (await answer.json()) as object;
  const found = {
    ...told,
    status: answer.status,
    answered: Object.fromEntries(answer.headers),
    mine: secrets,
  };
  const how = /^\/fail-(\w+)/.exec(path)?.[1] as keyof typeof fails | undefined;
  if (how)
    throw fails[how](`refused ${JSON.stringify(found)}`, { evidence: JSON.parse(JSON.stringify(found)) });
  if (path.startsWith("/throw")) throw new Error(`thrown ${JSON.stringify(found)}`);
  return found;
}

export const careless = defineConnector<{ url: string }, Secrets>({
  name: "careless",
  config: z.object({ url: z.url() }),
  secrets: z.object({ token: z.string(), user: z.object({ name: z.string(), password: z.string() }) }),
  check: async (connection) => ({
    status: "unreachable",
    message: `refused ${JSON.stringify(await ask(connection, { path: "/check" }))}`,
  }),
  tools: {
    get: read<{ url: string }, Secrets, z.output<typeof input>, unknown>({ input, output, run: ask }),
    post: mutation<{ url: string }, Secrets, z.output<typeof input>, unknown>({
      input,
      output,
      describe: ({ path }) => `Tell ${path}`,
      before: async (connection, given) => JSON.parse(JSON.stringify(await ask(connection, given))),
      run: ask,
      reconcile: async (connection, given) => unsure(JSON.stringify(await ask(connection, given))),
    }),
  },
});
