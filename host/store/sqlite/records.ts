/** The rows that a Change leaves for people: slots, versions, inbox, audit, outbox, transcripts and logs. */
import { hash as cryptoHash } from "node:crypto";
import type { Write } from "../../core/change.ts";
import type { Cell } from "../rows.ts";
import { writeAudit } from "./audit.ts";
import { writeNotices } from "./notices.ts";
import type { Statements } from "./statements.ts";

type RecordWrite = Extract<
  Write,
  {
    do: "slot" | "version.create" | "inbox.open" | "inbox.close" | "audit" | "outbox" | "transcript" | "logs";
  }
>;

/**
 * A transcript up to here stands in its own row, where a longer one has the hash of its body: it fits the page that is
 * written anyway, and two that are equal are too small to be worth an index.
 */
const SHORT = 600;

/** The body of a transcript from its row. */
export const TRANSCRIPT_BODY =
  "CASE WHEN substr(t.blob, 1, 1) = '{' THEN t.blob ELSE (SELECT b.body_json FROM blobs b WHERE b.hash = t.blob) END";

let lastText: string | undefined;
let lastDigest = "";

/** The same text is often hashed twice in a row: for its own row, and for the journal. */
export function digest(text: string): string {
  if (text !== lastText) {
    lastDigest = cryptoHash("sha256", text, "base64url");
    lastText = text;
  }
  return lastDigest;
}

export const hash = (text: string): string => digest(text).slice(0, 22);

export class Records {
  readonly #statements: Statements;
  readonly #newId: () => number;

  constructor(statements: Statements, newId: () => number) {
    this.#statements = statements;
    this.#newId = newId;
  }

  write(write: RecordWrite, of: { workflow: number; namespace: number }, atMs: number): void {
    switch (write.do) {
      case "slot":
        return this.#slot(write);
      case "version.create":
        return this.#version(write, of.workflow, atMs);
      case "inbox.open":
        return this.#openInbox(write, of, atMs);
      case "inbox.close":
        return this.#closeInbox(write, of.workflow, atMs);
      case "audit":
        return writeAudit(this.#statements, write, of, atMs);
      case "outbox":
        return this.#run(
          "INSERT INTO outbox (id, workflow, topic, body_json, created_at, next_at) VALUES (?, ?, ?, ?, ?, ?)",
          [this.#newId(), of.workflow, write.topic, write.body, atMs, atMs],
        );
      case "transcript":
        return this.#transcript(write, atMs);
      case "logs":
        return this.#run("INSERT INTO logs (id, run, unit, lines_json, at) VALUES (?, ?, ?, ?, ?)", [
          this.#newId(),
          write.run,
          write.unit,
          write.lines,
          atMs,
        ]);
    }
  }

  #run(sql: string, cells: Cell[]): void {
    this.#statements.sql(sql).run(cells);
  }

  #slot({ handler, range }: Extract<Write, { do: "slot" }>): void {
    const { fromMs, toMs, count, countIsFloor, fate, run, why } = range;
    this.#run(
      "INSERT INTO slots (handler, from_at, to_at, count, count_is_floor, fate, run, why) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (handler, from_at) DO NOTHING",
      [handler, fromMs, toMs, count, countIsFloor ? 1 : 0, fate, run ?? null, why ?? null],
    );
  }

  #version({ version }: Extract<Write, { do: "version.create" }>, workflow: number, atMs: number): void {
    const { number, hash: content, language, source, code, sourceMap, manifest, scope, note } = version;
    this.#run(
      "INSERT INTO versions (workflow, number, hash, language, source, code, source_map, manifest_json, scope, note, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
      [
        workflow,
        number,
        content,
        language,
        source,
        code,
        sourceMap ?? null,
        JSON.stringify(manifest),
        scope,
        note ?? null,
        atMs,
      ],
    );
  }

  #openInbox(
    write: Extract<Write, { do: "inbox.open" }>,
    of: { workflow: number; namespace: number },
    atMs: number,
  ): void {
    this.#run(
      "INSERT INTO inbox (id, namespace, workflow, kind, run, handler, detail_json, opened_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
      [
        write.id,
        of.namespace,
        of.workflow,
        write.kind,
        write.run ?? null,
        write.handler ?? null,
        write.detail ?? null,
        atMs,
      ],
    );
    writeNotices(this.#statements, write, of, { atMs, newId: this.#newId });
  }

  #closeInbox(write: Extract<Write, { do: "inbox.close" }>, workflow: number, atMs: number): void {
    const narrowed = (["run", "handler", "kind", "id"] as const).filter(
      (column) => write[column] !== undefined,
    );
    this.#run(
      `UPDATE inbox SET closed_at = ? WHERE closed_at IS NULL AND workflow = ?${narrowed.map((column) => ` AND ${column} = ?`).join("")}`,
      [atMs, workflow, ...narrowed.map((column) => write[column] as Cell)],
    );
  }

  #transcript(write: Extract<Write, { do: "transcript" }>, atMs: number): void {
    const short = write.body.length <= SHORT && write.body.startsWith("{");
    const blob = short ? write.body : hash(write.body);
    if (!short)
      this.#run(
        "INSERT INTO blobs (hash, body_json, used_at) VALUES (?, ?, ?) ON CONFLICT (hash) DO UPDATE SET used_at = excluded.used_at",
        [blob, write.body, atMs],
      );
    this.#run("INSERT OR REPLACE INTO transcripts (run, unit, blob, at) VALUES (?, ?, ?, ?)", [
      write.run,
      write.unit,
      blob,
      atMs,
    ]);
  }
}
