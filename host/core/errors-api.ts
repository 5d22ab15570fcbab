/** The part of the error catalogue that is about requests: who asks, how they ask, and what the state refuses. */
import type { CatalogueRow } from "./errors.ts";

type Http = NonNullable<CatalogueRow["http"]>;

/** A request is refused for what it is or who sends it. */
const request = (
  http: Http,
  summary: string,
  fix: string,
  kind: CatalogueRow["class"] = "logic",
): CatalogueRow => ({ blame: "operator", class: kind, http, summary, fix });

/** A person's decision is refused by the state that things are in. */
const state = (summary: string, fix: string): CatalogueRow => request(409, summary, fix, "precondition");

export const API_ERRORS = {
  "not-found": request(404, "There is no such thing here.", "Check the name or id, and the namespace."),
  unauthenticated: request(
    401,
    "The request says nobody's name, or one that does not hold any more.",
    "Send `Authorization: Bearer <token>` with a token that is neither revoked nor expired.",
    "auth",
  ),
  forbidden: request(
    403,
    "The token may not do this.",
    "Use a token of the role and namespace that the call asks for.",
    "permission",
  ),
  "csrf-missing": request(
    403,
    "A request with a session's cookie lacks its secret.",
    "Send the `csrf` that the login answered as the header `Pawl-Csrf`.",
    "permission",
  ),
  "origin-refused": request(
    403,
    "The request was sent by a page of another site.",
    "Open the host by an address that it allows, or call it from a program.",
    "permission",
  ),
  "host-refused": request(
    421,
    "The host does not answer to this name.",
    "Ask it by an address it listens on, or add the name with --allowed-hosts or --public-url.",
  ),
  "request-invalid": request(
    422,
    "The request does not have the shape that the call asks for.",
    "Correct the field that the path names; the shapes are in /openapi.json.",
  ),
  "json-invalid": request(400, "The body is not JSON.", "Send one JSON document, in UTF-8."),
  "media-type": request(
    415,
    "The body is not declared as JSON.",
    "Send `Content-Type: application/json`, without another charset or encoding.",
  ),
  "body-too-large": request(413, "The body is larger than the call allows.", "Send less at once."),
  "body-too-deep": request(422, "The body nests too deeply.", "Send a flatter document."),
  "too-many-requests": request(
    429,
    "More was asked in a short time than is allowed.",
    "Wait as long as `Retry-After` says.",
    "transient",
  ),
  "method-not-allowed": request(
    405,
    "The path exists, but not with this method.",
    "Use a method that the header `Allow` names.",
  ),
  "key-reused": request(
    409,
    "This Idempotency-Key was used for another request.",
    "Give every request a key of its own; the same key only for the same bytes.",
  ),
  "key-lost": request(
    409,
    "A request with this Idempotency-Key was begun, and its answer is not known.",
    "Look whether it took effect; then use another key.",
  ),
  "script-invalid": request(
    422,
    "The script is refused.",
    "Correct the marked place; `problems` names all of them.",
  ),
  "param-invalid": request(
    422,
    "The script does not declare a param like this.",
    "Set params that the active version declares, each to a value of its type.",
  ),
  "bad-payload": request(
    422,
    "The event is not what its topic allows.",
    "Send a messageId and a payload that fit the topic's schema and limits.",
  ),
  changed: state("Somebody or something was faster.", "Look at it again, then decide on what is so now."),
  "wrong-state": state(
    "This is not possible in the state that it is in.",
    "See `actions` of the inbox item, or the run's status.",
  ),
  "run-active": state("A run is active.", "Wait until it has ended, or pause the workflow."),
  "workflow-blocked": state(
    "A run waits and blocks the workflow.",
    "Decide about the open run first: retry, close, or answer what it asks.",
  ),
  "workflow-paused": state("The workflow is paused.", "Resume it first."),
  "workflow-held": state("A run is held, step by step.", "Step it, or set the mode to auto."),
  "workflow-archived": state("The workflow is archived.", "Unarchive it first."),
  archived: state("The workflow takes in nothing: it is archived.", "Unarchive it, then publish again."),
  "unknown-outcome": state(
    "An outside change may or may not have happened.",
    "Say whether it happened, or have it checked, first.",
  ),
  "nothing-held": state("No run is held.", "Set the mode to step, and wait for a run."),
  "no-data-folder": state("The host keeps everything in memory.", "Start it with a data folder."),
  "quota-reached": state(
    "The namespace has as much of this as it may have.",
    "Remove what is not needed, or have an admin raise the quota.",
  ),
  "listen-unsafe": {
    blame: "operator",
    class: "internal",
    summary: "An address that others can reach needs the names it may be asked by.",
    fix: "Give --public-url or --allowed-hosts, or listen on 127.0.0.1.",
  },
  "listen-failed": {
    blame: "operator",
    class: "internal",
    summary: "The address cannot be listened on.",
    fix: "Choose another port with --port, or stop the program that listens there.",
  },
  "admin-token-weak": {
    blame: "operator",
    class: "internal",
    summary: "The first admin's token is too easy to guess.",
    fix: "Give 32 random bytes, for example from `openssl rand -hex 32`.",
  },
  internal: {
    blame: "host",
    class: "internal",
    http: 500,
    summary: "The host failed in a way it does not know.",
    fix: "Look into the host's log for the request's id, and report it.",
  },
  stopping: {
    blame: "host",
    class: "transient",
    http: 503,
    summary: "The host is shutting down.",
    fix: "Ask again after its restart.",
  },
} as const satisfies Record<string, CatalogueRow>;
