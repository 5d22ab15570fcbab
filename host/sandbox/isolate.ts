/**
 * Inside a child: one isolate per script version, and in it one scope per run. `fresh` is a new context, thrown away
 * after the run; `frozen` is one context whose every reachable object cannot change, with the module called anew.
 *
 * I1. Never two live runs in one realm.
 * I2. A realm that met a guard (time, memory, abort) is never used again, nor is its isolate.
 * I3. Every Reference is released: one leaked per run would pin its context and kill the isolate.
 */
import { createHash } from "node:crypto";
import type ivm from "isolated-vm";

export type RealmScope = "fresh" | "frozen" | "reused";
type SendToHost = (kind: string, id: number, name: string, json: string) => void;

const RUNS_PER_REALM = 1_000;
const RUNS_PER_ROOM = 20_000;
const NATIVE_INPUT_CHARS = 1_048_576;
const HEAP_CHECK_EVERY = 16;

interface PreludeText {
  text: string;
  lines: number;
}

class Realm {
  send: SendToHost = () => {};
  live = false;
  runs = 0;
  readonly scope: RealmScope;
  readonly #context: ivm.Context;
  readonly #enter: ivm.Reference;

  constructor(
    vm: typeof ivm,
    isolate: ivm.Isolate,
    script: ivm.Script,
    native: ivm.Callback,
    scope: RealmScope,
    timeout: number,
  ) {
    this.scope = scope;
    this.#context = isolate.createContextSync();
    const boot = script.runSync(this.#context, { reference: true, timeout }) as unknown as ivm.Reference;
    const send = new vm.Callback((kind: string, id: number, name: string, json: string) =>
      this.send(kind, id, name, json),
    );
    this.#enter = boot.applySync(undefined, [send, native, scope === "frozen"], {
      timeout,
      result: { reference: true },
    }) as ivm.Reference;
    boot.release();
  }

  enter(op: string, id: number, json: string, nowMs: number, timeout: number): void {
    this.#enter.applySync(undefined, [op, id, json, nowMs], { timeout });
  }

  release(): void {
    this.#enter.release();
    this.#context.release();
  }
}

export class Room {
  readonly #vm: typeof ivm;
  readonly #isolate: ivm.Isolate;
  readonly #script: ivm.Script;
  readonly #native: ivm.Callback;
  readonly #memoryMb: number;
  /** As last looked at: after every run of a shared realm, and now and then after a fresh one. */
  heapBytes = 0;
  #frozen: Realm | undefined;
  #frozenRefused = false;
  #spare: Realm | undefined;
  #runs = 0;
  #live = 0;

  constructor(vm: typeof ivm, prelude: PreludeText, code: string, file: string, memoryMb: number) {
    this.#vm = vm;
    this.#memoryMb = memoryMb;
    this.#isolate = new vm.Isolate({ memoryLimit: memoryMb });
    this.#native = new vm.Callback(native);
    this.#script = this.#isolate.compileScriptSync(`${prelude.text}(\n${code}\n)`, {
      filename: `pawl-script:${file}`,
      lineOffset: -(prelude.lines + 1),
    });
  }

  get disposed(): boolean {
    return this.#isolate.isDisposed;
  }

  get cpuMs(): number {
    return this.#isolate.isDisposed ? 0 : Number(this.#isolate.cpuTime) / 1e6;
  }

  /** A scope that no live run holds (I1). */
  take(wanted: RealmScope, timeout: number): Realm {
    const realm = this.#idle(wanted, timeout);
    realm.live = true;
    realm.runs++;
    this.#runs++;
    this.#live++;
    return realm;
  }

  /** Ends a run's hold; a fresh realm is gone with it. */
  give(realm: Realm): void {
    realm.live = false;
    realm.send = () => {};
    this.#live--;
    const shared = realm === this.#frozen;
    if (shared || this.#runs % HEAP_CHECK_EVERY === 1)
      this.heapBytes = this.#isolate.getHeapStatisticsSync().used_heap_size;
    // A run can pin memory in a frozen realm (a private field on a built-in) that the next ones would pay for.
    const grown = this.heapBytes > this.#memoryMb * 0.5 * 1_048_576;
    if (shared && realm.runs < RUNS_PER_REALM && !grown) return;
    if (shared) this.#frozen = undefined;
    realm.release();
  }

  /** Builds the next fresh context while nothing waits. */
  prepareSpare(timeout: number): void {
    if (!this.#spare && !this.disposed) this.#spare = this.#make("fresh", timeout);
  }

  /** Gone, or used so often that the next run deserves a new one. */
  get worn(): boolean {
    return this.disposed || (this.#live === 0 && this.#runs >= RUNS_PER_ROOM);
  }

  dispose(): void {
    if (!this.#isolate.isDisposed) this.#isolate.dispose();
  }

  #idle(wanted: RealmScope, timeout: number): Realm {
    const shared = wanted === "fresh" || this.#frozenRefused ? undefined : this.#shared(wanted, timeout);
    if (shared && !shared.live) return shared;
    const realm = this.#spare ?? this.#make("fresh", timeout);
    this.#spare = undefined;
    return realm;
  }

  #shared(scope: RealmScope, timeout: number): Realm | undefined {
    try {
      this.#frozen ??= this.#make(scope, timeout);
    } catch (error) {
      if (this.disposed) throw error;
      this.#frozenRefused = true;
    }
    return this.#frozen;
  }

  #make(scope: RealmScope, timeout: number): Realm {
    return new Realm(this.#vm, this.#isolate, this.#script, this.#native, scope, timeout);
  }
}

export type { Realm };

/** Pure functions that V8 lacks: text in, text out, `""` for "cannot". */
function native(op: string, text: string, extra: string): string {
  if (text.length > NATIVE_INPUT_CHARS || (op !== "digest" && extra.length > NATIVE_INPUT_CHARS)) return "";
  try {
    switch (op) {
      case "url":
        return urlParts(extra === "" ? new URL(text) : new URL(text, extra));
      case "url.set": {
        const [name, value] = JSON.parse(extra) as [string, string];
        const url = new URL(text);
        if (name === "href" || name in URL.prototype)
          (url as unknown as Record<string, string>)[name] = value;
        return urlParts(url);
      }
      case "digest": {
        const name = { "SHA-1": "sha1", "SHA-256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512" }[
          text.toUpperCase()
        ];
        return name === undefined ? "" : createHash(name).update(extra, "latin1").digest("hex");
      }
      default:
        return "";
    }
  } catch {
    return "";
  }
}

function urlParts(url: URL): string {
  const { href, origin, protocol, username, password, host, hostname, port, pathname, search, hash } = url;
  return JSON.stringify({
    href,
    origin,
    protocol,
    username,
    password,
    host,
    hostname,
    port,
    pathname,
    search,
    hash,
  });
}
