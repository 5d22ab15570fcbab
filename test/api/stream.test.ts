// What changes, as it does: server-sent events of one namespace, resumed where a client was.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { ADMIN, closeStands, orders, type Stand, stand } from "../support/api-stand.ts";

interface Told {
  id: string;
  event: string;
  data: Record<string, unknown>;
}

const CLIENTS = 2_000;
const PROCESSES = 4;

const streams: Stream[] = [];
afterEach(async () => {
  for (const stream of streams.splice(0)) stream.close();
  await closeStands();
});

class Stream {
  readonly told: Told[] = [];
  readonly ended: Promise<void>;
  readonly #abort: AbortController;
  readonly #waiting = new Set<() => void>();

  constructor(response: Response, abort: AbortController) {
    this.#abort = abort;
    this.ended = this.#read(response).catch(() => {});
  }

  static async open(
    api: Stand,
    query = "",
    { token = ADMIN, since }: { token?: string; since?: string } = {},
  ) {
    const abort = new AbortController();
    const response = await fetch(`${api.listening.url}/api/v1/stream${query}`, {
      signal: abort.signal,
      headers: {
        authorization: `Bearer ${token}`,
        ...(since === undefined ? {} : { "last-event-id": since }),
      },
    });
    if (response.headers.get("content-type") !== "text/event-stream")
      throw new Error(`no stream: ${response.status} ${await response.text()}`);
    const stream = new Stream(response, abort);
    streams.push(stream);
    return stream;
  }

  async until(fits: (told: Told) => boolean): Promise<Told> {
    for (;;) {
      const found = this.told.find(fits);
      if (found) return found;
      await new Promise<void>((resolve) => this.#waiting.add(resolve));
    }
  }

  close(): void {
    this.#abort.abort();
  }

  async #read(response: Response): Promise<void> {
    let text = "";
    for await (const piece of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
      text += piece;
      const whole = text.split("\n\n");
      text = whole.pop() ?? "";
      for (const one of whole) this.#take(one);
      for (const go of this.#waiting) go();
    }
  }

  #take(text: string): void {
    const fields = Object.fromEntries(
      text
        .split("\n")
        .filter((line) => !line.startsWith(":"))
        .map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]),
    ) as { id?: string; event?: string; data?: string };
    if (fields.event === undefined) return;
    this.told.push({
      id: fields.id ?? "",
      event: fields.event,
      data: JSON.parse(fields.data ?? "{}") as Told["data"],
    });
  }
}

const publish = (api: Stand, id: string, token = ADMIN) =>
  api.ask("POST /workflows/orders/topics/order/events", { token, body: { messageId: id, payload: { id } } });

describe("a stream", () => {
  test("tells of runs, workflows, events and logs as they happen, and of the topics that were asked for alone", async () => {
    const api = await stand();
    const [all, runs] = [await Stream.open(api), await Stream.open(api, "?topics=runs,events:booked")];
    await api.ask("PUT /workflows/orders", { body: { source: orders() } });
    await publish(api, "a");
    await runs.until((one) => one.event === "events");
    await all.until((one) => one.event === "runs" && one.data["status"] === "committed");
    expect(new Set(all.told.map((one) => one.event))).toEqual(
      new Set(["hello", "inbox", "workflows", "runs", "events", "logs"]),
    );
    expect(new Set(runs.told.map((one) => one.event))).toEqual(new Set(["hello", "runs", "events"]));
    const numbers = all.told.slice(1).map((one) => Number(one.id.split("-")[1]));
    expect(numbers).toEqual(numbers.toSorted((a, b) => a - b));
  });

  test("(S2) resumes behind the last id, and is reset when that is not known", async () => {
    const api = await stand();
    await api.ask("PUT /workflows/orders", { body: { source: orders() } });
    const first = await Stream.open(api, "?topics=events:order");
    await publish(api, "a");
    const { id } = await first.until((one) => one.event === "events");
    first.close();
    await publish(api, "b");
    await publish(api, "c");
    const second = await Stream.open(api, "?topics=events:order", { since: id });
    await publish(api, "d");
    const seen = () => second.told.filter((one) => one.event === "events");
    await second.until(() => seen().length === 3);
    expect(seen().every((one) => one.id !== id)).toBe(true);
    for (const since of ["another-1", "nonsense", `${id.split("-")[0]}-999999`]) {
      const lost = await Stream.open(api, "", { since });
      expect((await lost.until(() => true)).event).toBe("reset");
    }
  });

  test("(S1) tells nothing of another namespace, and (S4) ends with its token", async () => {
    const api = await stand();
    const tokens: string[] = [];
    const ids: string[] = [];
    for (const namespace of ["acme", "globex"]) {
      const made = await api.ask("POST /tokens", { body: { name: "x", role: "deployer", namespace } });
      tokens.push(made.body.token as string);
      ids.push(made.body.id as string);
    }
    const [acme = "", globex = ""] = tokens;
    for (const token of tokens) await api.ask("PUT /workflows/orders", { token, body: { source: orders() } });
    const own = await Stream.open(api, "?topics=events:order", { token: acme });
    const other = await Stream.open(api, "?topics=events:order", { token: globex });
    await publish(api, "of-acme", acme);
    await publish(api, "of-globex", globex);
    await own.until((one) => one.event === "events");
    await other.until((one) => one.event === "events");
    expect([own.told.length, other.told.length]).toEqual([2, 2]);
    await api.ask(`DELETE /tokens/${ids[0]}`);
    await own.ended;
    await publish(api, "still", globex);
    await other.until(() => other.told.length === 3);
  });

  test("an unknown topic is refused", async () => {
    const api = await stand();
    expect((await api.ask("GET /stream?topics=everything")).status).toBe(422);
  });

  test(`${CLIENTS} idle clients of other processes are told, others are answered meanwhile, and the host stops with them open`, async () => {
    const api = await stand();
    await api.ask("PUT /workflows/orders", { body: { source: orders() } });
    const said = { open: 0, told: 0 };
    const heard = new Set<() => void>();
    const file = join(import.meta.dirname, "../support/idle-streams.mjs");
    const each = CLIENTS / PROCESSES;
    const ended = Array.from({ length: PROCESSES }, () => {
      const args = [file, String(api.listening.port), String(each), ADMIN];
      const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
      child.stdout.setEncoding("utf8").on("data", (text: string) => {
        said.open += text.split("open").length - 1;
        said.told += text.split("told").length - 1;
        for (const go of heard) go();
      });
      return once(child, "exit");
    });
    const until = (fits: () => boolean) =>
      new Promise<void>((resolve) => {
        const look = () => void (fits() && resolve());
        heard.add(look);
        look();
      });
    await until(() => said.open === CLIENTS);
    expect((await api.ask("GET /me")).status).toBe(200);
    await publish(api, "a");
    await until(() => said.told === CLIENTS);
    expect((await api.ask("GET !/metrics")).text).toContain(`pawl_streams ${CLIENTS}\n`);
    await api.host.stop();
    expect((await Promise.all(ended)).map(([code]) => code as number)).toEqual(ended.map(() => 0));
  });
});
