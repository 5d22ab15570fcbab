/** The part of the error catalogue that is about the outside: tools, connections, secrets, grants, hooks. */
import type { CatalogueRow, ErrorClass } from "./errors.ts";

/** A tool says that it could not. */
const tool = (kind: ErrorClass, summary: string, fix: string): CatalogueRow => ({
  blame: kind === "logic" ? "script" : kind === "auth" || kind === "permission" ? "operator" : "connector",
  class: kind,
  summary,
  fix,
});

/** A person's request about a connection, a binding, a grant or a hook is refused. */
const refused = (http: NonNullable<CatalogueRow["http"]>, summary: string, fix: string): CatalogueRow => ({
  blame: "operator",
  class: "logic",
  http,
  summary,
  fix,
});

export const TOOL_ERRORS = {
  "tool-unavailable": tool(
    "transient",
    "The service could not be reached, or says that it is busy.",
    "Nothing to do: it is tried again. If it goes on, look at the service and at the connection's address.",
  ),
  "rate-limited": tool(
    "transient",
    "The service asks for patience.",
    "Nothing to do: it is tried again when the service allows it. Poll less often if it goes on.",
  ),
  "tool-auth": tool(
    "auth",
    "The service does not accept the connection's credentials.",
    "Give the connection new secrets; every run that waits for it goes on.",
  ),
  "tool-permission": tool(
    "permission",
    "The service knows the credentials but does not allow this call.",
    "Extend what the credentials may do at the service, then retry the run.",
  ),
  "tool-precondition": tool(
    "precondition",
    "The outside is not in the state that the call requires.",
    "Look at what changed outside, then retry the run: it reads anew.",
  ),
  "tool-input-invalid": tool(
    "logic",
    "A tool was called with arguments it cannot use, or that the service refuses.",
    "Correct the call in the script; the message names the argument.",
  ),
  "outcome-unknown": tool(
    "transient",
    "The call may have had its effect: no proof came back.",
    "Wait for the check, or answer in the inbox whether it happened.",
  ),
  "connector-threw": tool(
    "internal",
    "The connector failed in a way it does not know.",
    "Report it to whoever wrote the connector, with the run's id.",
  ),
  "egress-refused": tool(
    "permission",
    "The address is not one that this connection may reach.",
    "Correct the address, add its host to the connection's `hosts`, or let an admin allow private networks.",
  ),
  "answer-too-large": tool(
    "logic",
    "The answer is larger than the connection's limit.",
    "Ask for less (a page, a filter), or raise the connection's limit, such as `limits.bodyBytes` of `http`.",
  ),
  "not-granted": tool(
    "permission",
    "The workflow is not allowed to use this tool.",
    "Grant the tool to the workflow, or take the call out of the script.",
  ),
  "not-bound": tool(
    "precondition",
    "The alias is bound to no connection.",
    "Bind the alias to a connection of the connector that the script names.",
  ),
  "unknown-tool": tool(
    "logic",
    "The connector has no tool of this name.",
    "Use one of the tools that the message lists.",
  ),
  "connection-changed": tool(
    "transient",
    "The connection was configured anew after the call was decided.",
    "Nothing to do: the work is made again with the connection as it is now.",
  ),
  "connection-invalid": refused(
    422,
    "The connection's config or secrets do not fit its connector.",
    "Correct the field that the path names.",
  ),
  "connection-in-use": refused(
    409,
    "Workflows are bound to this connection.",
    "Bind them to another connection first.",
  ),
  "no-connections": refused(
    409,
    "This host was given a world of its own: it has no connections.",
    "Create the host without `world`.",
  ),
  "target-invalid": refused(
    422,
    "A notification target does not fit its connection.",
    "Name an `http` or `smtp` connection of the namespace, and for `smtp` whom to write.",
  ),
  "unknown-connector": refused(
    422,
    "This host has no connector of that name.",
    "Use one of the connectors that the message lists, or register yours with createHost({ connectors }).",
  ),
  "binding-missing": refused(
    409,
    "An alias of the script is bound to no connection.",
    "Create a connection of the alias's name and connector, or name one in `bindings`.",
  ),
  "binding-invalid": refused(
    422,
    "The alias cannot be bound to this connection.",
    "Name an alias of the script and a connection of the same connector in the same namespace.",
  ),
  "grant-invalid": refused(
    422,
    "The grant names an alias or a tool that does not exist.",
    "Name an alias of the script and a tool of its connector, or `*`.",
  ),
  "secret-sealed-elsewhere": {
    blame: "operator",
    class: "internal",
    http: 409,
    summary: "A stored secret cannot be opened with this host's master key.",
    fix: "Start the host with the master key that the data was written with, or enter the secret again.",
  },
  "master-key-missing": {
    blame: "operator",
    class: "internal",
    summary: "The data holds secrets, but their master key is not here.",
    fix: "Put the key file back, or set PAWL_MASTER_KEY to the key that the data was written with.",
  },
  "master-key-exposed": {
    blame: "operator",
    class: "internal",
    summary: "The master key file may be read by others.",
    fix: "Set its mode to 0600.",
  },
  "master-key-invalid": {
    blame: "operator",
    class: "internal",
    summary: "The master key is not a key.",
    fix: "Give 32 random bytes in base64 or hex, for example from `openssl rand -base64 32`.",
  },
  "master-key-external": refused(
    409,
    "The host cannot change a master key that it is given.",
    "Set PAWL_MASTER_KEY to the new key, a comma and the old one, and start the host again.",
  ),
  "hook-unknown": refused(404, "There is no such hook.", "Use a hook that the active version declares."),
  "hook-signature": {
    blame: "connector",
    class: "auth",
    http: 401,
    summary: "The signature of the request is missing, wrong, or too old.",
    fix: "Send with the connection's current signing secret, and with a clock that is right.",
  },
  "hook-too-large": refused(
    413,
    "The body of the request is too large.",
    "Send less, or raise `maxBodyBytes`.",
  ),
  "hook-body": refused(
    422,
    "The body of the request is not what the hook expects.",
    "Send JSON with the id that the hint names, or change the hook's `messageId` path.",
  ),
  "hook-replayed": refused(
    409,
    "A delivery with this id has come before, with another body.",
    "Give every delivery an id of its own; the same id only for the same bytes.",
  ),
} as const satisfies Record<string, CatalogueRow>;
