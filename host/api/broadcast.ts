/**
 * What changes, to whoever looks on: server-sent events of one namespace, numbered over the whole host, kept for a while
 * so that a client that lost its connection goes on where it was.
 *
 * S1. Nothing of another namespace is ever sent.
 * S2. A client that comes back with the last number it saw gets what came since; when that is gone, or of another life of
 *     the host, it gets `reset` and has to look anew.
 * S3. A client that reads too slowly is let go: what waits for it is bounded.
 * S4. A stream ends within a second of its token's end.
 */
import { formatId } from "../core/ids.ts";
import type { WorkflowId } from "../core/ids.ts";
import type { Happening } from "./open.ts";

const KEPT = 10_000;
const BEAT_MS = 1_000;
/** Silence that a proxy would take for the end. */
const COMMENT_EVERY = 15;
const MOST_WAITING_BYTES = 8_388_608;

export const TOPICS = ["runs", "workflows", "inbox", "logs"] as const;

interface Told {
  n: number;
  namespace: string;
  /** `runs`, …, or `events:<topic>`. */
  topic: string;
  data: string;
}

export interface Looker {
  namespace: string;
  topics: ReadonlySet<string>;
  token: number;
  /** False when too much waits already. */
  send: (text: string) => boolean;
  end: () => void;
}

export interface Broadcasting {
  /** Of this life of the host. */
  life: string;
  nameOf: (workflow: WorkflowId) => Promise<{ namespace: string; name: string } | undefined>;
  holds: (token: number) => Promise<boolean>;
}

export class Broadcast {
  readonly #of: Broadcasting;
  readonly #ring: Told[] = [];
  readonly #lookers = new Set<Looker>();
  readonly #names = new Map<WorkflowId, { namespace: string; name: string }>();
  #next = 1;
  #last: Promise<unknown> = Promise.resolve();
  #beats = 0;
  readonly #beat: NodeJS.Timeout;

  constructor(of: Broadcasting) {
    this.#of = of;
    this.#beat = setInterval(() => void this.#check(), BEAT_MS).unref();
  }

  get size(): number {
    return this.#lookers.size;
  }

  /** In the order they happened, though a name may have to be looked up first. */
  saw(happening: Happening): void {
    const workflow = happening.kind === "applied" ? happening.change.workflow : happening.facts.workflow.id;
    this.#last = this.#last
      .then(async () => {
        const of = await this.#named(workflow);
        if (of)
          for (const [topic, data] of tellings(happening, of.name)) this.#tell(of.namespace, topic, data);
      })
      .catch(() => {});
  }

  /** `since`: the `Last-Event-ID` of a client that comes back. */
  add(looker: Looker, since: string | undefined): void {
    const last = `${this.#of.life}-${this.#next - 1}`;
    const missed = since === undefined ? [] : this.#since(since);
    if (missed === undefined)
      looker.send(`id: ${last}\nevent: reset\ndata: {}\n\n`); // (S2)
    else {
      looker.send(`: pawl\nid: ${since ?? last}\nevent: hello\ndata: {}\n\n`);
      for (const told of missed) if (isFor(looker, told)) looker.send(this.#text(told));
    }
    this.#lookers.add(looker);
  }

  remove(looker: Looker): void {
    this.#lookers.delete(looker);
  }

  close(): void {
    clearInterval(this.#beat);
    for (const looker of this.#lookers) this.#drop(looker);
  }

  #since(id: string): Told[] | undefined {
    const [life, number = ""] = id.split("-", 2);
    if (life !== this.#of.life || !/^\d{1,15}$/.test(number)) return undefined;
    const after = Number(number);
    const oldest = this.#ring[0]?.n ?? this.#next;
    if (after >= this.#next || after < oldest - 1) return undefined;
    return this.#ring.slice(after - oldest + 1);
  }

  #tell(namespace: string, topic: string, data: object): void {
    const told = { n: this.#next++, namespace, topic, data: JSON.stringify(data) };
    this.#ring.push(told);
    if (this.#ring.length > KEPT) this.#ring.splice(0, this.#ring.length - KEPT);
    const text = this.#text(told);
    for (const looker of this.#lookers) if (isFor(looker, told) && !looker.send(text)) this.#drop(looker); // (S3)
  }

  #text({ n, topic, data }: Told): string {
    return `id: ${this.#of.life}-${n}\nevent: ${topic.split(":")[0]}\ndata: ${data}\n\n`;
  }

  async #named(workflow: WorkflowId) {
    const known = this.#names.get(workflow) ?? (await this.#of.nameOf(workflow));
    if (known) this.#names.set(workflow, known);
    return known;
  }

  async #check(): Promise<void> {
    const tokens = new Set([...this.#lookers].map((one) => one.token));
    const gone = new Set<number>();
    for (const token of tokens) if (!(await this.#of.holds(token).catch(() => true))) gone.add(token);
    const isQuiet = ++this.#beats % COMMENT_EVERY === 0;
    for (const looker of this.#lookers)
      if (gone.has(looker.token) || (isQuiet && !looker.send(": still here\n\n"))) this.#drop(looker); // (S4)
  }

  #drop(looker: Looker): void {
    this.#lookers.delete(looker);
    looker.end();
  }
}

/** (S1) */
const isFor = ({ namespace, topics }: Looker, told: Told): boolean =>
  namespace === told.namespace && (topics.size === 0 || topics.has(told.topic));

type Telling = [topic: string, data: object];

function tellings(happening: Happening, workflow: string): Telling[] {
  if (happening.kind === "run.logged") {
    const { run, handler } = happening.facts;
    const lines = happening.lines.map(({ level, message }) => ({ level, message }));
    return [["logs", { workflow, handler: handler.name, run: formatId("run", run.id), lines }]];
  }
  if (happening.kind !== "applied") return [];
  const { change, published } = happening;
  const told: Telling[] = [];
  let isMoved = false;
  for (const write of change.writes) {
    if (write.do === "run.create") {
      const { id, phase, status } = write.run;
      told.push(["runs", { run: formatId("run", id), workflow, phase, status, verb: change.verb }]);
    } else if (write.do === "run.set") {
      const { phase = write.from.phase, status = write.from.status } = write.set;
      told.push(["runs", { run: formatId("run", write.id), workflow, phase, status, verb: change.verb }]);
    } else if (write.do === "inbox.open")
      told.push(["inbox", { item: formatId("inbox", write.id), kind: write.kind, workflow, open: true }]);
    else if (write.do === "inbox.close") told.push(["inbox", { workflow, open: false }]);
    else if (write.do === "workflow.set" || write.do === "version.create" || write.do === "handler.set")
      isMoved = true;
  }
  if (isMoved) told.push(["workflows", { workflow, verb: change.verb }]);
  for (const { topic, event, outcome } of published)
    told.push([`events:${topic}`, { workflow, topic, event: formatId("event", event), outcome }]);
  return told;
}

/** A looker whose stream is read by an HTTP response. */
export function streaming(
  of: Pick<Looker, "namespace" | "topics" | "token">,
  gone: (looker: Looker) => void,
): { looker: Looker; stream: ReadableStream<Uint8Array> } {
  const encoder = new TextEncoder();
  let controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  const looker: Looker = {
    ...of,
    send: (text) => {
      if (!controller || (controller.desiredSize ?? 0) < 0) return false;
      controller.enqueue(encoder.encode(text));
      return true;
    },
    end: () => {
      try {
        controller?.close();
      } catch {
        // The client was faster.
      }
      controller = undefined;
    },
  };
  const stream = new ReadableStream<Uint8Array>(
    {
      start: (given) => {
        controller = given;
      },
      cancel: () => {
        controller = undefined;
        gone(looker);
      },
    },
    { highWaterMark: MOST_WAITING_BYTES, size: (piece) => piece.byteLength },
  );
  return { looker, stream };
}
