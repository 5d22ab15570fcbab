// The kit must notice: connectors that are broken on purpose, each in one way, and the promise by which it is caught.
import { expect, test } from "vitest";
import {
  applied,
  type CheckContext,
  notApplied,
  rateLimited,
  type SendContext,
  transient,
} from "../../host/connectors/define.ts";
import { Breach, contractCases } from "../../host/testing.ts";
import { open, request, tickets, ticketService, ticketsWith, type TicketTool } from "../support/tickets.ts";

type Connection = Parameters<TicketTool["run"]>[0];
type Run = TicketTool["run"];

/** Names of the cases that fail, each with what the kit says. */
async function breaches(tool: Partial<TicketTool>, only = ""): Promise<Map<string, string>> {
  const { cases, close } = contractCases({
    connector: ticketsWith({ ...open, ...tool }),
    tool: "create",
    input: (n) => ({ title: `broken window ${n}` }),
    outside: ticketService,
  });
  const found = new Map<string, string>();
  const wanted = cases.filter(({ name, skipped }) => skipped === undefined && name.startsWith(only));
  expect(wanted.length).toBeGreaterThan(0);
  for (const { name, run } of wanted)
    try {
      await run();
    } catch (error) {
      if (!(error instanceof Breach)) throw error;
      found.set(name, error.message);
    }
  await close();
  return found;
}

const instead =
  (otherwise: (error: unknown, again: () => Promise<unknown>) => unknown): Run =>
  async (...call) => {
    try {
      return await open.run(...call);
    } catch (error) {
      return otherwise(error, () => open.run(...call));
    }
  };
const book = (
  connection: Connection,
  title: string,
  { idempotencyKey, signal }: SendContext | CheckContext,
) =>
  request(connection, "/tickets", {
    method: "POST",
    body: JSON.stringify({ title }),
    headers: { "idempotency-key": idempotencyKey },
    signal,
  });

const SAYS = [
  "says what it will do, from the real arguments",
  "does it, once, and says so",
  "sent twice with one key, has one effect",
];
const canaries: [what: string, tool: Partial<TicketTool>, caughtBy: string, says: RegExp][] = [
  [
    "calls a timeout failed",
    {
      run: instead((error) => {
        throw (error as { code: string }).code === "outcome-unknown" ? transient("it took too long") : error;
      }),
    },
    "slow",
    /said failed .* and 1 effects were made/,
  ],
  ["retries by itself", { run: instead((_, again) => again()) }, "dropped-after-effect", /tried 2 times/],
  [
    "retries by itself where nothing had happened",
    { run: instead((_, again) => again()) },
    "error-before-effect",
    /tried 2 times by itself/,
  ],
  [
    "says notApplied without looking",
    { reconcile: async () => notApplied() },
    "dropped-after-effect",
    /check says notApplied, with 1 effects/,
  ],
  [
    "says applied without looking",
    { reconcile: async () => applied({ id: "t-1" }) },
    "dropped-after-send",
    /check says applied, with 0 effects/,
  ],
  [
    "promises a proof and is never sure",
    { reconcile: async () => ({ says: "unsure" }) },
    "dropped-after-effect",
    /class lookup, all is well, 1 effects, and the check says unsure/,
  ],
  [
    "throws an error that is not typed",
    {
      run: instead((error) => {
        throw new Error(String(error));
      }),
    },
    "refused",
    /not one of the typed ones/,
  ],
  ["describes nothing", { describe: () => "" }, "says what it will do, from the real arguments", /no text/],
  [
    "describes every call alike",
    { describe: () => "Open a ticket" },
    "says what it will do, from the real arguments",
    /described alike/,
  ],
  [
    "describes something else than the arguments",
    { describe: ({ title }) => `Open ticket no. ${title.length + Number(title.at(-1))}` },
    "says what it will do, from the real arguments",
    /names nothing of the arguments/,
  ],
  [
    "shows a secret to whoever approves",
    { describe: ({ title }, of) => `${title} with ${(of.secrets as { token: string }).token}` },
    "says what it will do, from the real arguments",
    /a secret stands in/,
  ],
  [
    "makes its effect in the check",
    {
      reconcile: async (connection, { title }, context) =>
        applied((await book(connection, title, context)).body),
    },
    "dropped-after-send",
    /the check made an effect/,
  ],
  [
    "wants to be tried again at no time",
    {
      run: instead((error) => {
        if ((error as { code: string }).code === "rate-limited")
          throw rateLimited({ retryAfterMs: Number.NaN });
        throw error;
      }),
    },
    "rate-limited-words",
    /tried again after NaN ms/,
  ],
  [
    "takes refused credentials for a passing trouble",
    {
      run: instead((error) => {
        throw (error as { class: string }).class === "auth" ? transient("try later") : error;
      }),
    },
    "unauthorized",
    /this is auth/,
  ],
  [
    "tells the secret in its error",
    {
      run: async (connection, input, context) => {
        try {
          return await open.run(connection, input, context);
        } catch {
          throw transient(`no luck with ${connection.secrets.token}`);
        }
      },
    },
    "refused",
    /a secret stands in the answer/,
  ],
  [
    "claims success whatever comes back",
    { run: instead(() => ({ id: "t-1" })) },
    "dropped-after-send",
    /said applied, and 0 effects/,
  ],
  [
    "claims that a key protects it, and sends none",
    {
      proof: "key",
      run: (connection, { title }, context) =>
        book(connection, title, { ...context, idempotencyKey: String(performance.now()) }).then(
          ({ body }) => body,
        ),
    },
    "sent twice with one key, has one effect",
    /2 effects/,
  ],
  [
    "promises another result than it gives",
    { run: async (...call) => ({ ticket: await open.run(...call) }) },
    "does it, once, and says so",
    /does not fit the tool's own output/,
  ],
];

test.each(canaries)("a connector that %s is caught", async (_, tool, caughtBy, says) => {
  const [, alone = ""] = [
    ...(await breaches(tool, SAYS.includes(caughtBy) ? caughtBy : `${caughtBy}: what`)),
  ].flat();
  expect(alone).toMatch(says);
});

const inHost: [what: string, fault: string, says: RegExp][] = [
  ["calls a timeout failed", "slow", /2 effects/],
  ["retries by itself", "dropped-after-effect", /2 effects/],
  ["says notApplied without looking", "dropped-after-effect", /2 effects/],
  ["says applied without looking", "dropped-after-send", /the run is done, and 0 effects/],
  ["promises a proof and is never sure", "dropped-after-effect", /class lookup, and a person is asked/],
  ["makes its effect in the check", "dropped-after-effect", /2 effects/],
  ["claims success whatever comes back", "dropped-after-send", /the run is done, and 0 effects/],
];

test.each(inHost)("a host around a connector that %s, too, shows it", async (what, fault, says) => {
  const tool = canaries.find(([name]) => name === what)?.[1] ?? {};
  expect([...(await breaches(tool, `${fault}: in a host`)).values()].join()).toMatch(says);
});

test("a connector that is in order breaks nothing", async () => {
  expect([...(await breaches({}))]).toEqual([]);
});

test("a call that does not end when it is called off is caught", async () => {
  const deaf: Run = (connection, input, context) =>
    open.run(connection, input, { ...context, signal: new AbortController().signal });
  const { cases } = contractCases({
    connector: ticketsWith({ ...open, run: deaf }),
    tool: "create",
    input: (n) => ({ title: `broken window ${n}` }),
    outside: ticketService,
    patienceMs: 200,
  });
  const slow = cases.find(({ name }) => name.startsWith("slow:"));
  await expect(slow?.run()).rejects.toThrow(/does not end when its signal says so/);
});

test("there are at least twelve faults, and none is left out unasked", () => {
  const { cases } = contractCases({
    connector: tickets,
    tool: "create",
    from: new URL("../support/tickets.ts", import.meta.url),
    input: (n) => ({ title: `broken window ${n}` }),
    outside: ticketService,
    cannot: { refused: "for this test" },
  });
  expect(cases.filter(({ name }) => name.includes("(")).length).toBeGreaterThanOrEqual(12);
  const left = cases.filter(({ skipped }) => skipped !== undefined).map(({ name }) => name.split(":")[0]);
  expect(left).toEqual(["refused", "refused"]);
});
