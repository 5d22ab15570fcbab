// The outside world of the crash tests: it outlives every host, and writes each effect to a file of its own before it
// answers. What it says happened, happened, whatever a killed host believes.
import { closeSync, fsyncSync, openSync, readFileSync, writeSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface Effect {
  key: string;
  /** "ledger.post" or "ledger.put". */
  call: string;
  order: string;
}

export interface EffectServer extends AsyncDisposable {
  url: string;
  /** Off: every call is answered as it should be. */
  faulty: boolean;
  /** Orders that exist, per workflow. */
  orders: number;
  /** The highest cursor that each workflow has come back with: what it has committed. */
  readonly cursors: Map<string, number>;
  readonly handedOut: Set<string>;
  effects(): Effect[];
}

export async function effectServer(file: string, chance: () => number): Promise<EffectServer> {
  const fd = openSync(file, "a");
  const known = new Map<string, string>();
  const server = createServer((request, response) => {
    void answer(request, response).catch(() => response.destroy());
  });
  const world: EffectServer = {
    url: "",
    faulty: true,
    orders: 0,
    cursors: new Map(),
    handedOut: new Set(),
    effects: () =>
      readFileSync(file, "utf8")
        .split("\n")
        .filter((line) => line !== "")
        .map((line) => JSON.parse(line) as Effect),
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      closeSync(fd);
    },
  };

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname, searchParams } = new URL(request.url ?? "/", "http://test");
    const [, what, alias, tool] = pathname.split("/");
    if (what === "read") return send(response, 200, orders(JSON.parse(searchParams.get("args") ?? "{}")));
    if (what === "check") {
      const result = known.get(decodeURIComponent(alias ?? ""));
      return result === undefined ? send(response, 404, "{}") : send(response, 200, result);
    }
    let body = "";
    for await (const piece of request) body += String(piece);
    const fault = world.faulty ? chance() : 1;
    if (fault < 0.03) return void response.destroy();
    if (fault < 0.06) return send(response, 409, "{}");
    const { body: asked } = JSON.parse(body) as { body: { order: string } };
    const effect: Effect = {
      key: String(request.headers["idempotency-key"]),
      call: `${alias}.${tool}`,
      order: asked.order,
    };
    writeSync(fd, `${JSON.stringify(effect)}\n`);
    fsyncSync(fd);
    known.set(effect.key, RESULT);
    if (fault < 0.12) return void response.destroy();
    return send(response, fault < 0.15 ? 503 : 200, RESULT);
  }

  function orders({ path: url, query }: { path: string; query?: { after?: number } }): string {
    const after = query?.after ?? 0;
    world.cursors.set(url, Math.max(world.cursors.get(url) ?? 0, after));
    const found: { id: string }[] = [];
    for (let n = after + 1; n <= Math.min(after + 4, world.orders); n++) found.push({ id: `${url}-${n}` });
    for (const { id } of found) world.handedOut.add(id);
    return JSON.stringify({ status: 200, headers: {}, body: { orders: found, last: after + found.length } });
  }

  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  world.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return world;
}

const RESULT = '{"status":201,"headers":{},"body":{"id":"e"}}';

function send(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, { "content-type": "application/json" }).end(text);
}
