/** What has been counted since the host started, for Prometheus. Nothing of it names a workflow or a namespace. */
import type { Happening } from "./open.ts";

type Labels = Record<string, string>;

export class Counters {
  readonly #counts = new Map<string, number>();
  readonly #gauges = new Map<string, () => number>();
  #active = 0;

  constructor() {
    this.gauge("pawl_runs_active", () => this.#active);
    this.gauge("process_resident_memory_bytes", () => process.memoryUsage.rss());
    this.gauge("process_uptime_seconds", () => process.uptime());
  }

  add(name: string, labels: Labels = {}, by = 1): void {
    const words = Object.entries(labels).map(
      ([key, value]) => `${key}="${value.replaceAll(/["\\\n]/g, "_")}"`,
    );
    const series = words.length === 0 ? name : `${name}{${words.join(",")}}`;
    this.#counts.set(series, (this.#counts.get(series) ?? 0) + by);
  }

  gauge(name: string, read: () => number): void {
    this.#gauges.set(name, read);
  }

  saw(happening: Happening): void {
    if (happening.kind === "run.started") this.#active++;
    if (happening.kind === "run.ended") {
      this.#active = Math.max(0, this.#active - 1);
      const { run, handler } = happening.facts;
      this.add("pawl_runs_total", { status: run.status, type: handler.kind });
    }
    if (happening.kind !== "applied") return;
    this.add("pawl_changes_total");
    if (happening.published.length > 0)
      this.add("pawl_events_published_total", {}, happening.published.length);
    for (const write of happening.change.writes) {
      if (write.do === "inbox.open") this.add("pawl_inbox_opened_total", { kind: write.kind });
      if (write.do === "mutation.set" && write.set.status !== undefined)
        this.add("pawl_mutations_total", { status: write.set.status });
    }
  }

  /** The text format of Prometheus, version 0.0.4. */
  text(): string {
    const lines: string[] = [];
    const families = Map.groupBy(
      [...this.#counts].toSorted(([a], [b]) => a.localeCompare(b)),
      ([series]) => series.split("{")[0] ?? "",
    );
    for (const [family, series] of families)
      lines.push(`# TYPE ${family} counter`, ...series.map(([name, count]) => `${name} ${count}`));
    for (const [name, read] of this.#gauges) lines.push(`# TYPE ${name} gauge`, `${name} ${read()}`);
    return `${lines.join("\n")}\n`;
  }
}
