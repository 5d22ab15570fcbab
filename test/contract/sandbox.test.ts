import { describe, expect, it } from "vitest";
import { PawlError } from "../../host/core/errors.ts";
import { openPool } from "../../host/sandbox/pool.ts";
import { callFor, noAnswers } from "../support/scripts.ts";
import { openScripted, ProcessLost, type ScriptedHandlers } from "../support/scripted-sandbox.ts";
import { contractScript, describeSandboxContract } from "./sandbox.ts";
import contract from "./sandbox-script.ts";

describeSandboxContract("the pool", () => openPool({ childrenPerNamespace: 1 }));
describeSandboxContract("the scripted sandbox", () =>
  openScripted({ contract: contract as ScriptedHandlers }),
);

describe("the scripted sandbox", () => {
  it("plays a list one run at a time: values, functions, throws, codes and lost processes", async () => {
    const script = await contractScript();
    const handler = [
      { n: 1 },
      (ctx: { run: { attempt: number } }) => ctx.run.attempt,
      new TypeError("no"),
      new PawlError("cpu-limit", "too long"),
      new ProcessLost(),
    ];
    await using sandbox = openScripted({ contract: { producers: { echo: { handler } } } });
    const next = async () => {
      const result = await sandbox.run(callFor(script, "producer", "echo"), noAnswers);
      return result.status === "done" ? result.state : [result.status, result.error.code, result.error.class];
    };
    expect([await next(), await next(), await next(), await next(), await next()]).toEqual([
      '{"n":1}',
      "1",
      ["failed", "handler-throws", "logic"],
      ["failed", "cpu-limit", "logic"],
      ["lost", "sandbox-lost", "transient"],
    ]);
    await expect(next()).rejects.toThrow("producer of echo ran more often than the 5 times scripted");
    expect(sandbox.calls).toHaveLength(6);
  });

  it("refuses a handler nobody scripted", async () => {
    const script = await contractScript();
    await using sandbox = openScripted({});
    await expect(sandbox.run(callFor(script, "producer", "echo"), noAnswers)).rejects.toThrow(
      "nothing is scripted for producer echo of contract",
    );
  });

  it("can lose its process under the runs that are alive", async () => {
    const script = await contractScript();
    await using sandbox = openScripted({ contract: contract as ScriptedHandlers });
    const running = sandbox.run(callFor(script, "producer", "waitsForHost"), () => {
      sandbox.loseProcess();
      return new Promise(() => {});
    });
    expect(await running).toMatchObject({
      status: "lost",
      error: { code: "sandbox-lost", class: "transient" },
    });
  });
});
