// Every changing tool of the `http` connector × every fault of the kit, the proof classes spread over them.
import { http } from "../../host/connectors/http.ts";
import { connectorSuite } from "../contract/connector.ts";
import { entriesService, type EntriesOptions } from "../support/entries.ts";

const from = new URL("../../host/connectors/http.ts", import.meta.url);
const suite = (
  tool: "post" | "put" | "patch" | "delete",
  proof: string,
  input: (n: number) => Record<string, unknown>,
  { connection = {}, ...options }: EntriesOptions & { connection?: object } = {},
) =>
  connectorSuite({
    title: `http.${tool}, ${proof}`,
    connector: http,
    from,
    tool,
    input,
    outside: () => entriesService(options, connection),
  });

const entry = (n: number) => ({ id: `e-${n}`, title: `entry ${n}` });
const place = (n: number) => `/entries/old-${n}`;
const change = (n: number) => ({ path: place(n), body: { title: `entry ${n}` } });
const ifMatch = { "if-match": '"v1"' };
const isThere = {
  url: "/entries/{args.body.id}",
  appliedIf: { status: 200 },
  notAppliedIf: { status: 404 },
};
const isGone = (n: number) => ({
  url: place(n),
  appliedIf: { status: 404 },
  notAppliedIf: { path: "$.version", equals: 1 },
});

suite("post", "key", (n) => ({ path: "/entries", body: entry(n), idempotency: "key" }), { keyed: true });
suite("post", "key with OAuth2", (n) => ({ path: "/entries", body: entry(n) }), {
  keyed: true,
  oauth: true,
  connection: { idempotency: "key" },
});
suite("post", "lookup", (n) => ({ path: "/entries", body: entry(n), verify: isThere }));
suite("post", "none", (n) => ({ path: "/entries", body: entry(n) }));
suite("put", "conditional", (n) => ({ ...change(n), headers: ifMatch }));
suite("put", "lookup", change, {
  connection: {
    verify: [
      {
        on: "PUT /entries/*",
        url: "/by-title/{args.body.title}",
        appliedIf: { status: 200 },
        notAppliedIf: { status: 404 },
      },
    ],
  },
});
suite("patch", "conditional", (n) => ({ ...change(n), headers: ifMatch }));
suite("patch", "key", change, { keyed: true, connection: { idempotency: "key" } });
suite("delete", "lookup", (n) => ({ path: place(n), verify: isGone(n) }));
suite("delete", "none", (n) => ({ path: place(n) }));
