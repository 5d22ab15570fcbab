// A process that only listens: opens streams, says when each has been told, and ends when the last one is closed.
import { request } from "node:http";

const [, , port, count, token] = process.argv;
let told = 0;
let closed = 0;
for (let n = 0; n < Number(count); n++) {
  const asking = request(
    {
      host: "127.0.0.1",
      port,
      path: "/api/v1/stream?topics=events:order",
      headers: { authorization: `Bearer ${token}` },
    },
    (response) => {
      let text = "";
      let isOpen = false;
      let isTold = false;
      response.setEncoding("utf8").on("data", (piece) => {
        text += piece;
        if (!isOpen && text.includes("event: hello")) {
          isOpen = true;
          process.stdout.write("open\n");
        }
        if (!isTold && text.includes("event: events")) {
          isTold = true;
          process.stdout.write("told\n");
          told++;
        }
      });
      response.on("close", () => {
        if (++closed === Number(count)) process.exit(told === closed ? 0 : 1);
      });
    },
  );
  asking.on("error", () => process.exit(2));
  asking.end();
}
