import { describe, expect, test } from "vitest";
import { deploy, deployProblem, type Deployment, freedByDeploy } from "../../host/core/deploy.ts";
import type { RunFacts } from "../../host/core/facts.ts";
import type { PauseReason, Status } from "../../host/core/run.ts";
import { claim } from "../../host/core/retry.ts";
import type { Manifest } from "../../host/core/workflow.ts";
import {
  attempt,
  consumer,
  created,
  factsOf,
  handlerSet,
  ID,
  MINUTE,
  NOW,
  opened,
  producer,
  reachableStates,
  runSet,
  sound,
  workflow,
  writes,
} from "../support/facts.ts";

const MANIFEST: Manifest = {
  name: "orders",
  description: "",
  connections: {},
  topics: {},
  params: {},
  hooks: {},
  producers: { poll: { schedule: { interval: "5m", intervalMs: 5 * MINUTE }, publishes: [] } },
  consumers: { book: { subscribes: ["order"], publishes: [], hasMutate: true, hasNext: true } },
};
const without = (what: "producers" | "consumers"): Manifest => ({ ...MANIFEST, [what]: {} });

let ids = 0;
const put = (more: Partial<Deployment> = {}, flow = workflow(), open?: RunFacts) => {
  ids = 700;
  const deployment = {
    number: 4,
    manifest: MANIFEST,
    by: "ann",
    orphans: "keep" as const,
    newId: () => ++ids,
    ...more,
  };
  return sound(deploy(flow, open, deployment, NOW));
};

describe("1.10 deploy", () => {
  test("1.10 every producer is due now, every consumer triggered once", () => {
    const change = put();
    expect(handlerSet(change, ID.producer)).toMatchObject({ queued: { reason: "deploy", atMs: NOW } });
    expect(handlerSet(change, ID.consumer)).toMatchObject({ triggered: { reason: "deploy", atMs: NOW } });
    expect(writes(change, "workflow.set")[0]?.set).toEqual({ activeVersion: 4, deployed: true });
  });

  test("1.10 identity is kind + name: a kept name keeps state, deliveries, wakeAt and its schedule", () => {
    const change = put();
    for (const id of [ID.producer, ID.consumer])
      for (const field of ["state", "wakeAtMs", "seenSeq", "nextRunAtMs", "anchorMs"])
        expect(handlerSet(change, id)).not.toHaveProperty(field);
    expect(writes(change, "handler.create")).toEqual([]);
  });

  test("1.2 a changed schedule starts anew from now", () => {
    const manifest = {
      ...MANIFEST,
      producers: { poll: { schedule: { interval: "1h", intervalMs: 60 * MINUTE }, publishes: [] } },
    };
    expect(handlerSet(put({ manifest }), ID.producer)).toMatchObject({
      anchorMs: NOW,
      nextRunAtMs: NOW + 60 * MINUTE,
    });
  });

  test("1.10 the same name with another kind is another handler", () => {
    const manifest = {
      ...without("consumers"),
      producers: {
        ...MANIFEST.producers,
        book: { schedule: { interval: "1h", intervalMs: 60 * MINUTE }, publishes: [] },
      },
    };
    const change = put({ manifest });
    expect(writes(change, "handler.create")[0]).toMatchObject({ kind: "producer", name: "book" });
    expect(handlerSet(change, ID.consumer)).toMatchObject({ orphaned: true });
  });

  test("1.10 a new handler is created, with its first trigger and its place", () => {
    const consumers = {
      ...MANIFEST.consumers,
      mail: { subscribes: [], publishes: [], hasMutate: false, hasNext: false },
    };
    expect(writes(put({ manifest: { ...MANIFEST, consumers } }), "handler.create")[0]).toMatchObject({
      kind: "consumer",
      name: "mail",
      order: 2,
      set: { triggered: { reason: "deploy", atMs: NOW }, orphaned: false },
    });
  });

  test("1.10 a handler that comes back is taken up again, schedule and all", () => {
    const { schedule: _, ...gone } = producer({ orphaned: true });
    const change = put({}, workflow({ handlers: [gone, consumer({ orphaned: true })] }));
    expect(handlerSet(change, ID.producer)).toMatchObject({ orphaned: false, nextRunAtMs: NOW + 5 * MINUTE });
    expect(handlerSet(change, ID.consumer)).toMatchObject({
      orphaned: false,
      triggered: { reason: "deploy" },
    });
  });

  test("1.10 a dropped producer stops; a dropped consumer without pending work raises nothing", () => {
    const change = put({ manifest: without("producers") });
    expect(handlerSet(change, ID.producer)).toMatchObject({
      orphaned: true,
      nextRunAtMs: null,
      queued: null,
    });
    expect(opened(change)).toEqual([]);
    expect(opened(put({ manifest: without("consumers") }))).toEqual([]);
  });

  const fed = workflow({
    handlers: [producer(), consumer({ oldestPendingAtMs: NOW - 1, wakeAtMs: NOW + 5 })],
  });
  test("1.10 orphans keep: they stay, and a person is asked", () => {
    const change = put({ manifest: without("consumers") }, fed);
    expect(writes(change, "inbox.open")[0]).toMatchObject({ kind: "orphaned", handler: ID.consumer });
    expect(writes(change, "orphans.skip")).toEqual([]);
    expect(handlerSet(change, ID.consumer)).toMatchObject({
      orphaned: true,
      wakeAtMs: null,
      triggered: null,
    });
  });
  test("1.10 orphans skip, orphans moveTo", () => {
    const skip = put({ manifest: without("consumers"), orphans: "skip" }, fed);
    expect(writes(skip, "orphans.skip")).toHaveLength(1);
    expect(opened(skip)).toEqual([]);
    const manifest = {
      ...MANIFEST,
      consumers: { other: { subscribes: ["order"], publishes: [], hasMutate: false, hasNext: false } },
    };
    const move = put({ manifest, orphans: { moveTo: "other" } }, fed);
    expect(writes(move, "orphans.move")[0]).toMatchObject({ from: ID.consumer, to: 701 });
  });
  test("1.10 moveTo a consumer that is not there is an operator's error, said before", () => {
    expect(deployProblem({ manifest: MANIFEST, orphans: { moveTo: "nobody" } })).toContain("nobody");
    expect(deployProblem({ manifest: MANIFEST, orphans: { moveTo: "book" } })).toBeUndefined();
    expect(deployProblem({ manifest: MANIFEST, orphans: "keep" })).toBeUndefined();
  });

  test("6 audited; a stored version that is activated again is no new version", () => {
    const version = {
      number: 4,
      hash: "h",
      language: "ts" as const,
      source: "",
      code: "",
      manifest: MANIFEST,
      scope: "frozen" as const,
    };
    expect(writes(put({ version }), "audit")[0]).toMatchObject({ action: "deploy", actor: "ann" });
    expect(writes(put({ version }), "version.create")).toHaveLength(1);
    expect(writes(put(), "audit")[0]).toMatchObject({ action: "activate" });
    expect(writes(put(), "version.create")).toEqual([]);
  });
});

describe("1.10 status × deploy", () => {
  /** Independently written from the sentence of 1.10. */
  const freed = (status: Status, reason?: PauseReason): boolean => {
    if (status === "paused:transient" || status === "failed:logic" || status === "crashed") return true;
    return status === "paused:approval" && reason !== "approval" && reason !== "step";
  };
  for (const state of reachableStates()) {
    const ready = freed(state.status, state.reason);
    test(`1.10 ${state.name}: ${ready ? "ready at once" : "left as it is"}`, () => {
      const open = factsOf(state);
      const change = put({}, open.workflow, open);
      expect(freedByDeploy(open.run)).toBe(ready);
      expect(runSet(change)).toEqual(
        ready ? { readyAtMs: NOW, resolution: { by: "ann", action: "deploy", atMs: NOW } } : {},
      );
      const closed = writes(change, "inbox.close").filter((one) => one.run === ID.run);
      expect(closed).toHaveLength(ready ? 1 : 0);
      expect(change.expect).toEqual({
        workflowRevision: 5,
        ...(ready ? { run: { id: ID.run, revision: 6 } } : { runIs: { id: ID.run, status: state.status } }),
      });
    });
  }
  test("1.10 a run that goes on beside a deploy keeps its revision: its next step is not refused", () => {
    const open = factsOf({ name: "", kind: "consumer", phase: "preparing", status: "active" });
    expect(put({}, open.workflow, open).expect.run).toBeUndefined();
  });

  for (const state of reachableStates().filter((one) => freed(one.status, one.reason))) {
    const past = state.row === "applied" || state.row === "skipped";
    test(`1.10, 3.1 ${state.name}, freed: the next run is on the new version${past ? ", at emitting" : ""}`, () => {
      const open = factsOf(state, {
        run: { version: 3, readyAtMs: NOW, resolution: { by: "ann", action: "deploy", atMs: NOW } },
        workflow: { activeVersion: 4 },
      });
      const next = created(sound(claim(open, attempt(), NOW)));
      const first = state.kind === "producer" ? "executing" : "preparing";
      expect(next).toMatchObject({ version: 4, phase: past ? "emitting" : first, retries: 0, attempt: 3 });
    });
  }
});
