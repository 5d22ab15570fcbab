// `file.write` × every fault that a disk can have, on the real file system.
import type { ConnectorSpec } from "../../host/testing.ts";
import { connectorSuite } from "../contract/connector.ts";
import { diskOutside, file } from "../support/gated-disk.ts";

const NO_ANSWER = "a disk gives no answer that could be misread";
const NO_PATIENCE = "a disk does not ask for patience";
const cannot: NonNullable<ConnectorSpec["cannot"]> = {
  "dropped-before-send": "there is no connection to close",
  "late-effect": "a write ends when its rename has really ended: nothing comes after it",
  "garbage-answer": NO_ANSWER,
  "garbage-body": NO_ANSWER,
  "answered-twice": NO_ANSWER,
  unauthorized: "a disk knows no credentials",
  "rate-limited-negative": NO_PATIENCE,
  "rate-limited-huge": NO_PATIENCE,
  "rate-limited-date": NO_PATIENCE,
  "rate-limited-words": NO_PATIENCE,
};

connectorSuite({
  connector: file,
  from: new URL("../support/gated-disk.ts", import.meta.url),
  tool: "write",
  input: (n) => ({ path: `out/entry-${n}.txt`, content: `This is number ${n}.` }),
  outside: diskOutside,
  cannot,
});
// Where something stood before, a check compares with what it was.
connectorSuite({
  title: "file.write, over what is there",
  connector: file,
  from: new URL("../support/gated-disk.ts", import.meta.url),
  tool: "write",
  input: (n) => ({
    path: "state.txt",
    content: Buffer.from(`number ${n}`).toString("base64"),
    encoding: "base64",
  }),
  outside: diskOutside,
  cannot,
});
