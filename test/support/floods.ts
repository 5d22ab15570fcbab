// A server on this machine whose answers do not want to end, each in its own way.
import { createServer, type AddressInfo, type Socket } from "node:net";
import { brotliCompressSync, constants, deflateSync, gzipSync } from "node:zlib";

const MEBIBYTE = 1_048_576;
const BOMB = Buffer.alloc(128 * MEBIBYTE);
const OK = "HTTP/1.1 200 OK\r\n";
const CHUNKED = `${OK}transfer-encoding: chunked\r\n\r\n`;

/** Writes the same again and again, as fast as it is read. */
function pour(socket: Socket, text: string | Buffer): void {
  const piece = typeof text === "string" ? Buffer.from(text.repeat(Math.ceil(16_384 / text.length))) : text;
  const more = (): void => {
    while (!socket.destroyed && socket.write(piece));
    if (!socket.destroyed) socket.once("drain", more);
  };
  more();
}

/** One byte at a time. */
function drip(socket: Socket, text: string): void {
  let at = 0;
  const timer = setInterval(() => void socket.write(text.charAt(at++ % text.length)), 1);
  socket.once("close", () => clearInterval(timer));
}

function compressed(encoding: string, body: Buffer) {
  return (socket: Socket): void => {
    socket.write(`${OK}content-encoding: ${encoding}\r\ncontent-length: ${body.byteLength}\r\n\r\n`);
    socket.end(body);
  };
}

const gzip = gzipSync(BOMB);
export const GZIP_BYTES = gzip.byteLength;
const starting =
  (head: string, rest: string | Buffer) =>
  (socket: Socket): void => {
    socket.write(head);
    pour(socket, rest);
  };
const dripping =
  (head: string, rest: string) =>
  (socket: Socket): void => {
    socket.write(head);
    drip(socket, rest);
  };

/** What ends only because the time is up; everything else must end by what it sends. */
export const ENDED_BY_TIME: readonly string[] = [
  "body, dripping",
  "headers, dripping",
  "status, dripping",
  "chunks, dripping",
  "silence",
  "interim answers, dripping",
  "compressed, dripping",
];

export const FLOODS: Record<string, (socket: Socket) => void> = {
  "gzip bomb": compressed("gzip", gzip),
  "brotli bomb": compressed(
    "br",
    brotliCompressSync(BOMB, { params: { [constants.BROTLI_PARAM_QUALITY]: 5 } }),
  ),
  "deflate bomb": compressed("deflate", deflateSync(BOMB)),
  "nested gzip": compressed("gzip, gzip", gzipSync(gzip)),
  // Small on the wire and small for its reader: only who unpacks it again would suffer.
  "gzip of gzip": compressed("gzip", gzipSync(gzip)),
  "concatenated gzip": compressed("gzip", Buffer.concat([gzip, gzip, gzip, gzip])),
  "empty gzip members without end": starting(
    `${OK}content-encoding: gzip\r\n\r\n`,
    Buffer.concat(Array<Buffer>(500).fill(gzipSync(""))),
  ),
  "gzip that stores": starting(
    `${OK}content-encoding: gzip\r\n\r\n`,
    Buffer.concat(Array<Buffer>(4).fill(gzipSync(Buffer.alloc(16_384), { level: 0 }))),
  ),
  "body without end": starting(`${OK}\r\n`, "x"),
  "huge content-length": starting(`${OK}content-length: 999999999999999\r\n\r\n`, "x"),
  "negative content-length": starting(`${OK}content-length: -1\r\n\r\n`, "x"),
  "two content-lengths": starting(`${OK}content-length: 1\r\ncontent-length: 99999999999\r\n\r\n`, "x"),
  "headers without end": starting(OK, "x-header: value\r\n"),
  "many names of headers": (socket) => {
    socket.write(OK + Array.from({ length: 100_000 }, (_, n) => `h${n}: v\r\n`).join(""));
  },
  "one header without end": starting(`${OK}x-header: `, "x"),
  "a name of a header without end": starting(OK, "x"),
  "a status line without end": starting("HTTP/1.1 200 ", "x"),
  "no protocol": starting("", "\0\u0001\u0002"),
  "interim answers without end": starting("", "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"),
  "interim answers of another kind": starting("", "HTTP/1.1 102 Processing\r\n\r\n"),
  "interim answers to nobody": starting("", "HTTP/1.1 100 Continue\r\n\r\n"),
  "chunks without end": starting(CHUNKED, "1\r\nx\r\n"),
  "a chunk's size without end": starting(CHUNKED, "0"),
  "a huge chunk": starting(`${CHUNKED}fffffffffffff\r\n`, "x"),
  "chunk extensions without end": starting(`${CHUNKED}5;a=`, "x"),
  "chunks with extensions": starting(CHUNKED, `1;${"a=b;".repeat(500)}\r\nx\r\n`),
  "trailers without end": starting(`${CHUNKED}0\r\n`, "x-trailer: value\r\n"),
  "one trailer without end": starting(`${CHUNKED}0\r\nx-trailer: `, "x"),
  "answers without end": starting("", `${OK}content-length: 1\r\n\r\nx`),
  "body, dripping": dripping(`${OK}\r\n`, "x"),
  "headers, dripping": dripping(OK, "x-header: value\r\n"),
  "status, dripping": dripping("", "HTTP/1.1 200 "),
  "chunks, dripping": dripping(CHUNKED, "1\r\nx\r\n"),
  "interim answers, dripping": dripping("HTTP/1.1 103 E\r\n", "link: </x>\r\n"),
  "compressed, dripping": (socket) => {
    const text = gzipSync(Buffer.from("x".repeat(100_000)), { level: 0 }).toString("latin1");
    socket.write(`${OK}content-encoding: gzip\r\n\r\n`);
    let at = 0;
    const timer = setInterval(() => void socket.write(Buffer.from(text.charAt(at++), "latin1")), 1);
    socket.once("close", () => clearInterval(timer));
  },
  silence: () => {},
};

const BODY = Buffer.from(Array.from({ length: 30_000 }, (_, n) => `{"id": ${n}, "name": "x"}`).join(","));
const ORDINARY = [
  compressed("identity", BODY),
  compressed("gzip", gzipSync(BODY)),
  compressed("br", brotliCompressSync(BODY, { params: { [constants.BROTLI_PARAM_QUALITY]: 5 } })),
  (socket: Socket): void => {
    const chunks = Array.from({ length: 20_000 }, () => "14\r\n01234567890123456789\r\n");
    socket.end(`${CHUNKED}${chunks.join("")}0\r\n\r\n`);
  },
];

/** The name of the flood is the path; anything else is an ordinary answer. */
export async function floodServer() {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.once("close", () => sockets.delete(socket));
    socket.once("data", (bytes) => {
      const path = decodeURIComponent(/^[A-Z]+ \/(\S*)/.exec(bytes.toString("latin1"))?.[1] ?? "");
      const flood = FLOODS[path];
      if (flood) flood(socket);
      else ORDINARY[Number(path.split(" ")[1]) % ORDINARY.length]?.(socket);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    [Symbol.asyncDispose]: async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
