// The run command of the README, as a user sees it: `npm start` gets ready, a producer ticks, a consumer acts, and
// SIGTERM ends it with exit code 0. Event-driven, with one deadline for all of it.
import { spawn } from "node:child_process";

const DEADLINE_MS = 120_000;
const WANTED = [
  ["a ready line", /^ready: \d+ workflows from scripts-examples/m],
  ["a producer that published", /events? published/],
  ["a consumer that acted", /changed via [a-z]+\.[a-z]+/],
];

const child = spawn("npm", ["start"], { stdio: ["ignore", "pipe", "pipe"] });
let text = "";
let isAsked = false;

const deadline = setTimeout(() => {
  const missing = WANTED.filter(([, pattern]) => !pattern.test(text)).map(([what]) => what);
  fail(
    `npm start did not ${isAsked ? "end after SIGTERM" : `show ${missing.join(", ")}`} within ${DEADLINE_MS / 1000} s`,
  );
}, DEADLINE_MS);

for (const [from, to] of [
  [child.stdout, process.stdout],
  [child.stderr, process.stderr],
])
  from.on("data", (piece) => {
    to.write(piece);
    text += piece;
    if (isAsked || !WANTED.every(([, pattern]) => pattern.test(text))) return;
    isAsked = true;
    child.kill("SIGTERM");
  });

child.on("exit", (code, signal) => {
  clearTimeout(deadline);
  if (!isAsked) fail(`npm start ended by itself (${signal ?? code})`);
  if (code !== 0) fail(`npm start ended with ${signal ?? code} after SIGTERM; 0 was expected`);
  if (!/^stopped: \d+ runs/m.test(text)) fail("npm start did not say that it stopped");
});

function fail(message) {
  process.stderr.write(`${message}\n`);
  child.kill("SIGKILL");
  process.exit(1);
}
