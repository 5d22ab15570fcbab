/** An inbox item in words: the question it asks and the answers that the operator table allows now. */
import { inboxQuestion, type InboxQuestion } from "../core/inbox.ts";
import type { InboxKind } from "../core/change.ts";
import type { RunId } from "../core/ids.ts";
import type { JsonText } from "../core/workflow.ts";
import type { Parts } from "./parts.ts";
import { canCheck, toolOf } from "./tools.ts";

export interface Asking {
  kind: InboxKind;
  run?: RunId;
  handler?: string;
  detail?: JsonText;
}

export async function questionOf(parts: Parts, item: Asking): Promise<InboxQuestion> {
  const { kind, run, detail, handler } = item;
  const facts = run === undefined ? undefined : await parts.store.run(run);
  const { mutation } = facts ?? {};
  const tool = facts && mutation && (await toolOf(parts, facts, mutation));
  const about = aboutOf(kind, detail === undefined ? {} : (JSON.parse(detail) as Detail), handler);
  return inboxQuestion(kind, {
    ...(facts ? { facts } : {}),
    ...(tool && mutation ? { canCheck: canCheck(tool, mutation, parts.clock.nowMs()) } : {}),
    ...(about === undefined ? {} : { about }),
  });
}

interface Detail {
  title?: string;
  count?: number;
  fromMs?: number;
  toMs?: number;
  version?: number;
  adds?: { alias: string; connector: string; tools: string[] }[];
  restored?: boolean;
}

/** What an item is about that belongs to no run. */
function aboutOf(kind: InboxKind, detail: Detail, handler: string | undefined): string | undefined {
  const at = (ms: number | undefined) => (ms === undefined ? "?" : new Date(ms).toISOString());
  if (kind === "stale_input") return detail.title;
  if (kind === "missed_schedule" && detail.restored)
    return `the data is a backup of ${at(detail.fromMs)}; nothing since then is known here`;
  if (kind === "missed_schedule")
    return `${detail.count} of ${handler ?? "a producer"}, from ${at(detail.fromMs)} to ${at(detail.toMs)}`;
  if (kind === "capability" && detail.adds) {
    const can = detail.adds.flatMap(({ alias, tools }) => tools.map((tool) => `${alias}.${tool}`));
    return `version ${detail.version} may also use ${can.join(", ")}`;
  }
  return handler;
}
