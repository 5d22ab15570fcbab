/**
 * The error catalogue: one table of stable codes. A code is API: it may be added, never renamed. Each row says who is
 * to blame, the class that decides what happens to the run (02 §4), the HTTP status that a request is answered with, and
 * what a person should do. Codes that no request is answered with (they stand in a run's record, or stop the host before
 * it listens) have none.
 */
import { API_ERRORS } from "./errors-api.ts";
import { TOOL_ERRORS } from "./errors-tools.ts";

export type Blame = "script" | "operator" | "connector" | "host";
export type ErrorClass = "transient" | "auth" | "permission" | "precondition" | "logic" | "internal";

export interface CatalogueRow {
  blame: Blame;
  class: ErrorClass;
  http?: 400 | 401 | 403 | 404 | 405 | 409 | 413 | 415 | 421 | 422 | 429 | 500 | 503;
  summary: string;
  fix: string;
}

/** A run fails with it. */
const script = (summary: string, fix: string): CatalogueRow => ({
  blame: "script",
  class: "logic",
  summary,
  fix,
});

/** An upload is refused with it. */
const upload = (summary: string, fix: string): CatalogueRow => ({ ...script(summary, fix), http: 422 });

/** A setting or a request of a person is refused with it. */
const operator = (summary: string, fix: string): CatalogueRow => ({
  blame: "operator",
  class: "logic",
  http: 422,
  summary,
  fix,
});

const CATALOGUE = {
  "script-syntax": upload(
    "The file is not valid TypeScript or JavaScript.",
    "Correct the marked place, or what stands just before it: often a bracket, quote or comma is missing.",
  ),
  "script-encoding": upload(
    "The file holds characters no script may hold.",
    "Save it as UTF-8 without NUL characters.",
  ),
  "script-empty": upload("The file is empty.", "Export a workflow: `export default workflow({ … })`."),
  "script-too-large": {
    ...upload("The file is larger than the limit.", "Move data out of the script, or split the workflow."),
    http: 413,
  },
  "script-too-deep": upload("The file nests too deeply to be read.", "Flatten the nested expressions."),
  "unsupported-syntax": upload(
    "This TypeScript syntax needs a compiler.",
    "Use syntax that can be erased: a const object for an enum, fields for parameter properties.",
  ),
  "foreign-import": upload(
    'Only "pawl" may be imported.',
    "Bundle other modules into the file before uploading.",
  ),
  "unknown-import": upload(
    'The module "pawl" has no such export.',
    "Import workflow, producer, consumer or topic.",
  ),
  "dynamic-import": upload("Modules cannot be loaded at run time.", "Bundle the module into the file."),
  "import-meta": upload("`import.meta` does not exist here.", "Remove it."),
  "top-level-await": upload(
    "Top-level code cannot wait.",
    "Move the work into a handler; top-level code only declares.",
  ),
  "no-default-export": upload("The file has no default export.", "Add `export default workflow({ … })`."),
  "not-a-workflow": upload(
    "The default export is not a workflow.",
    'Wrap the object in `workflow({ … })`, imported from "pawl".',
  ),
  "second-workflow": upload(
    "The file makes more than one workflow.",
    "Keep one workflow per file; upload the other as a file of its own.",
  ),
  "load-failed": upload(
    "Top-level code threw.",
    "Correct the marked place; top-level code should only declare.",
  ),
  "load-limit": upload(
    "Top-level code did not finish within the load limit.",
    "Only declare at the top level; do the work in handlers.",
  ),
  "manifest-invalid": upload("The declaration has the wrong shape.", "Correct the named field."),
  "unknown-field": upload("The declaration has a field that means nothing.", "Remove or rename it."),
  "bad-name": upload(
    "The name is not allowed.",
    "Start with a letter; then letters, digits, `_`, `.`, `-`; at most 64 in all.",
  ),
  "duplicate-name": upload("The name is given twice.", "Rename or remove one of the two."),
  "no-handlers": upload("The workflow has no handler.", "Declare at least one producer or consumer."),
  "bad-interval": upload("The interval cannot be read.", 'Write it like "30s", "5m", "2h" or "1d".'),
  "interval-too-short": upload("The interval is below the host's minimum.", "Write a longer interval."),
  "bad-cron": upload("The cron pattern cannot be read.", 'Write five fields, like "0 9 * * 1-5".'),
  "cron-never-fires": upload("The cron pattern never fires.", "Choose a date that exists."),
  "cron-too-often": upload(
    "The cron pattern fires more often than the host's minimum.",
    "Leave more time between fires.",
  ),
  "bad-timezone": upload("The time zone does not exist.", 'Use an IANA name like "Europe/Zurich".'),
  "undeclared-topic": upload("The topic is not declared.", "Add it to `topics` of the workflow."),
  "topic-without-subscriber": upload(
    "Nobody subscribes to the topic.",
    "Subscribe a consumer, or mark it `topic({ output: true })`.",
  ),
  "undeclared-alias": upload("The connection alias is not declared.", "Add it to `connections`."),
  "reserved-alias": upload("The alias would hide a member of `ctx`.", "Choose another alias."),
  "handler-throws": script("The handler threw.", "Handle the case, or fix the error, and deploy again."),
  "phase-violation": script(
    "The call is not allowed in this phase.",
    "See which calls each phase may make; move this one.",
  ),
  "two-mutations": script(
    "`mutate` asked for more than one outside change.",
    "Make one call per run; publish an event for the next change.",
  ),
  "bad-value": {
    ...script(
      "A value handed over is not plain JSON data.",
      "Hand over only objects, arrays, strings, finite numbers, booleans and null.",
    ),
    http: 422,
  },
  "value-too-large": {
    ...script("A value handed over exceeds its size limit.", "Hand over less, or keep it outside."),
    http: 413,
  },
  "bad-result": script("The handler returned the wrong shape.", "Return what the phase documents."),
  "bad-reservation": script(
    "A reservation does not name pending events of a subscribed topic.",
    "Reserve only what `peek` or `getByIds` gave.",
  ),
  "bad-call": script("A call to the host has the wrong arguments.", "Correct the arguments."),
  "never-settles": script(
    "The handler waits for something that can never happen.",
    "Await only host calls; there are no timers here.",
  ),
  "cpu-limit": script("The handler used more CPU time than allowed.", "Do less per run."),
  "wall-limit": script("The phase took longer than allowed.", "Do less per run."),
  "memory-limit": script("The handler used more memory than allowed.", "Hold less at once."),
  "host-call-limit": script("The run made too many calls to the host.", "Ask for more per call."),
  "output-limit": script("The run handed over more than allowed.", "Publish and return less per run."),
  "publish-limit": script("The run published too many events.", "Publish less per run."),
  loop: script(
    "Events keep causing events of the same workflow.",
    "Break the circle: publish only when something is new, or raise `maxHops`.",
  ),
  "sandbox-killed": script(
    "The sandbox process had to be killed while this script was running in it.",
    "Look for endless work or memory growth in the handler.",
  ),
  "sandbox-death-budget": script(
    "This version took its sandbox process down too often.",
    "Deploy a corrected version.",
  ),
  "frozen-builtin": script(
    "The script changed a built-in object, which the frozen scope forbids.",
    "Keep your own helpers in your own functions, or set `scope: fresh`.",
  ),
  "policy-invalid": operator(
    "A policy value does not fit its field.",
    "Correct the value at the named path.",
  ),
  "unknown-policy-field": operator("A policy has a field that means nothing.", "Remove or rename it."),
  "policy-bad-match": operator(
    "The rule's match cannot be read.",
    'Write "default", "workflow/handler", "workflow/handler.unit", or an object of matchers.',
  ),
  "policy-unmatched": operator(
    "The rule's match names something that does not exist.",
    "Correct the name, or deploy or connect it first.",
  ),
  "policy-unsafe-pattern": operator(
    "The regular expression cannot be used on names.",
    "Use at most three free repeats, none of them inside another.",
  ),
  "policy-contradiction": operator(
    "Two settings of a policy contradict each other.",
    "Change one of the two, or give both.",
  ),
  "policy-wrong-unit": operator(
    "The setting would have no effect on what the rule matches.",
    "Move it to a rule that matches a unit it acts on.",
  ),
  "fallback-on-mutation": operator(
    "A fallback value for a mutation would claim an effect that never happened.",
    "Use `retryWith`, or match only producers, prepare or read tools.",
  ),
  "not-yet-enforced": operator(
    "This version of the host does not act on the setting yet.",
    "Leave it out until a version that does.",
  ),
  aborted: {
    blame: "operator",
    class: "transient",
    summary: "A person ended the run early.",
    fix: "Resume the workflow; the run is made again.",
  },
  "reservations-changed": {
    blame: "operator",
    class: "transient",
    summary: "What `prepare` chose was changed by a person again and again.",
    fix: "Nothing; the run is made again.",
  },
  "not-applied": {
    blame: "connector",
    class: "transient",
    summary: "A check showed that the outside change did not happen.",
    fix: "Nothing; the run is made again within its budget.",
  },
  "run-aborted": {
    blame: "operator",
    class: "transient",
    summary: "The run was aborted.",
    fix: "Start it again.",
  },
  "sandbox-lost": {
    blame: "host",
    class: "transient",
    http: 503,
    summary: "The sandbox process ended because of another run; this run is redone.",
    fix: "Nothing.",
  },
  "sandbox-closed": {
    blame: "host",
    class: "transient",
    http: 503,
    summary: "The sandbox is shutting down.",
    fix: "Nothing; the run is redone after the restart.",
  },
  "sandbox-protocol": {
    blame: "host",
    class: "internal",
    http: 500,
    summary: "The sandbox process broke the wire protocol and was killed.",
    fix: "Report this with the run's id.",
  },
  "sandbox-start": {
    blame: "host",
    class: "internal",
    http: 500,
    summary: "A sandbox process could not be started.",
    fix: "Run `pawl doctor`.",
  },
  "store-locked": {
    blame: "operator",
    class: "internal",
    summary: "Another host has this data folder open.",
    fix: "Stop the other host, or choose another folder with --data.",
  },
  "store-newer": {
    blame: "operator",
    class: "internal",
    summary: "The data was written by a newer version of Pawl.",
    fix: "Start that version, or restore a backup that this one wrote.",
  },
  "store-migrated-differently": {
    blame: "operator",
    class: "internal",
    summary: "The data was migrated by a program with other migrations.",
    fix: "Start the program that wrote it.",
  },
  "store-durability": {
    blame: "operator",
    class: "internal",
    summary: "The database does not keep its promise to write through.",
    fix: "Put the data folder on a local disk.",
  },
  "store-broken": {
    blame: "host",
    class: "internal",
    http: 503,
    summary: "The disk refused a write; the host has stopped.",
    fix: "Free space or repair the disk, then start again: everything acknowledged is there.",
  },
  "store-closed": {
    blame: "host",
    class: "transient",
    http: 503,
    summary: "The store is closed; the host is shutting down.",
    fix: "Try again after the restart.",
  },
  "cursor-invalid": {
    ...operator(
      "The cursor does not belong to this list.",
      "Start again from the first page, or pass on `nextCursor` as it was given.",
    ),
    http: 400,
  },
  "store-unreadable": {
    blame: "operator",
    class: "internal",
    summary: "The data folder cannot be opened.",
    fix: "Check that it exists, is a folder of Pawl, and may be written by this user.",
  },
  "backup-target-taken": {
    blame: "operator",
    class: "internal",
    http: 409,
    summary: "The place to write to is not empty.",
    fix: "Name a file or folder that does not exist yet.",
  },
  "backup-failed": {
    blame: "host",
    class: "internal",
    http: 500,
    summary: "The backup could not be written.",
    fix: "Free space at the target, or name another, and start it again.",
  },
  "backup-unusable": {
    blame: "operator",
    class: "internal",
    summary: "The file is not a sound backup of Pawl.",
    fix: "Choose another backup.",
  },
  ...TOOL_ERRORS,
  ...API_ERRORS,
} as const satisfies Record<string, CatalogueRow>;

export type ErrorCode = keyof typeof CATALOGUE;

export const ERRORS: Readonly<Record<ErrorCode, CatalogueRow>> = CATALOGUE;

/** The one error class of the host: a code of the catalogue, and what happened to which thing. */
export class PawlError extends Error {
  override readonly name = "PawlError";
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }

  get class(): ErrorClass {
    return ERRORS[this.code].class;
  }
}

/** The end of a `switch` over a union: reaching it is a programmer's error. */
export function unreachable(value: never): never {
  throw new Error(`unreachable: ${JSON.stringify(value)}`);
}
