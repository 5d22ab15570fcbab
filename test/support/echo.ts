/**
 * An upstream that tells everything it was sent, wherever an answer has room for it, and a connector careless enough to
 * pass all of it on.
 */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

export interface Echo extends AsyncDisposable {
  url: string;
  requests: number;
}

export async function openEcho(): Promise<Echo> {
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      echo.requests++;
      const { url = "", headers } = request;
      const credentials = [headers.authorization ?? "", headers["x-api-key"] ?? ""].join(" ");
      const told = {
        url,
        headers,
        credentials,
        body: Buffer.concat(chunks).toString(),
        decoded: Buffer.from((headers.authorization ?? "").replace(/^\w+ /, ""), "base64").toString("latin1"),
        base64: [0, 1, 2].map((n) => Buffer.from("abc".slice(0, n) + credentials).toString("base64")),
        base64url: Buffer.from(credentials).toString("base64url"),
        hex: Buffer.from(credentials).toString("hex"),
        encoded: encodeURIComponent(credentials),
        lower: encodeURIComponent(credentials).replace(/%../g, (one) => one.toLowerCase()),
        form: new URLSearchParams({ credentials }).toString(),
        json: JSON.stringify({ credentials }),
        html: `<p>${credentials.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;")}</p>`,
        cut: credentials.slice(0, -5),
      };
      const path = new URL(url, "http://echo").pathname;
      const status = Number(/^\/(\d{3})/.exec(path)?.[1] ?? 200);
      response.writeHead(status, {
        "content-type": "application/json",
        "x-echo": encodeURIComponent(credentials),
        "x-echo-plain": credentials.replace(/[^\x20-\x7e]/g, "?"),
        ...(status >= 300 && status < 400 ? { location: `/ok?was=${encodeURIComponent(credentials)}` } : {}),
      });
      response.end(JSON.stringify(told));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const echo: Echo = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests: 0,
    [Symbol.asyncDispose]: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  };
  return echo;
}
