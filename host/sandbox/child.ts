/**
 * The child process: a blocking, single-threaded loop on one socket. It reads a frame, enters an isolate, writes
 * frames; it has no event loop, no timers and no promises of its own, and never parses what a script handed over.
 *
 * C1. Every invoke, answer and abort ends with exactly one of done, fail, wait, lost: that frame closes the section.
 * C2. What a script produced in a section that then hit a guard is dropped.
 * C3. Runs that wait in an isolate which another run brought down are lost, not failed.
 */
import { readSync, writeSync } from "node:fs";
import type ivm from "isolated-vm";
import { type Realm, type RealmScope, Room } from "./isolate.ts";
import { encodeFrame, FRAME, HEADER_BYTES, splitBody } from "./wire.ts";

const SOCKET = 3;
const BOOT_TIMEOUT_MS = 1_000;

/** The host's words about one invocation; the script's own data follows in the frame, unread. */
export interface InvokeHeader {
  key: string;
  scope: RealmScope;
  sectionMs: number;
  cpuMs: number;
  hostCalls: number;
  outputChars: number;
}

/** What a child says of itself and of one run at its end. */
export interface ChildUsage {
  cpuMs: number;
  heapBytes: number;
  scope: "fresh" | "frozen";
  /** Isolates this child has made so far. */
  isolates: number;
}

interface Slot {
  id: number;
  room: Room;
  realm: Realm;
  header: InvokeHeader;
  cpuMs: number;
  calls: number;
  waiting: number;
  chars: number;
  ended: { type: number; logs: string; json: string } | undefined;
  overflow: string | undefined;
}

export interface ChildOptions {
  vm: typeof ivm;
  prelude: { text: string; lines: number };
  /** Test hook: lets a test run code with the rights of an escaped script. */
  escape?: (code: string) => string;
}

export function serve(options: ChildOptions): never {
  const line = new Line();
  const floor = new Floor(options, line);
  line.post(FRAME.ready, 0, 0, String(process.pid));
  for (;;) {
    line.flush();
    if (line.quiet) floor.idle();
    line.take((type, id, call, body) => floor.handle(type, id, call, body));
  }
}

/** The socket: whole frames in, and out in one write after each. */
class Line {
  #outbox: Buffer[] = [];
  #held = Buffer.allocUnsafe(65_536);
  #size = 0;

  post(type: number, slot: number, call: number, body: string): void {
    this.#outbox.push(encodeFrame(type, slot, call, body));
  }

  get posted(): number {
    return this.#outbox.length;
  }

  /** Takes back what was posted after the first `kept`. */
  unpost(kept: number): void {
    this.#outbox.length = kept;
  }

  flush(): void {
    if (this.#outbox.length === 0) return;
    const all = this.#outbox.length === 1 ? (this.#outbox[0] as Buffer) : Buffer.concat(this.#outbox);
    this.#outbox = [];
    for (let at = 0; at < all.length; ) at += writeSync(SOCKET, all, at);
  }

  /** True when no frame has begun to arrive in what was read so far. */
  get quiet(): boolean {
    return this.#size < HEADER_BYTES;
  }

  take(handle: (type: number, slot: number, call: number, body: string) => void): void {
    this.#need(HEADER_BYTES);
    const held = this.#held;
    const end = HEADER_BYTES + held.readUInt32LE(0);
    const [type, slot, call] = [held.readUInt8(4), held.readUInt32LE(5), held.readUInt32LE(9)];
    this.#need(end);
    const body = this.#held.toString("utf8", HEADER_BYTES, end);
    this.#held.copyWithin(0, end, this.#size);
    this.#size -= end;
    handle(type, slot, call, body);
  }

  #need(bytes: number): void {
    if (this.#held.length < bytes)
      this.#held = Buffer.concat(
        [this.#held.subarray(0, this.#size)],
        Math.max(bytes, this.#held.length * 2),
      );
    while (this.#size < bytes) {
      const got = readSync(SOCKET, this.#held, this.#size, this.#held.length - this.#size, null);
      if (got === 0) process.exit(0);
      this.#size += got;
    }
  }
}

/** The scripts this child knows, their rooms, and the runs alive in them. */
class Floor {
  readonly #options: ChildOptions;
  readonly #line: Line;
  readonly #codes = new Map<string, { code: string; file: string; memoryMb: number }>();
  readonly #rooms = new Map<string, Room>();
  readonly #slots = new Map<number, Slot>();
  #isolates = 0;
  #spareFor: Room | undefined;

  constructor(options: ChildOptions, line: Line) {
    this.#options = options;
    this.#line = line;
  }

  handle(type: number, id: number, call: number, body: string): void {
    const slot = this.#slots.get(id);
    switch (type) {
      case FRAME.load: {
        const [key, file, memoryMb, code] = splitBody(body, 3) as [string, string, string, string];
        this.#codes.set(key, { code, file, memoryMb: Number(memoryMb) });
        return;
      }
      case FRAME.unload:
        this.#codes.delete(body);
        return this.#drop(this.#rooms.get(body));
      case FRAME.invoke:
        return this.#invoke(id, body);
      case FRAME.answer: {
        if (!slot) return this.#line.post(FRAME.wait, id, 0, "");
        if (slot.room.disposed) return this.#lose(slot); // (C3)
        const [now, json] = splitBody(body, 1) as [string, string];
        slot.waiting--;
        return this.#section(slot, "answer", call, json, Number(now));
      }
      case FRAME.abort:
        if (slot) {
          this.#slots.delete(id);
          this.#drop(slot.room);
        }
        return this.#line.post(FRAME.wait, id, 0, "");
      case FRAME.escape:
        return this.#line.post(FRAME.escaped, id, 0, this.#options.escape?.(body) ?? "not a test");
    }
  }

  /** Builds the next fresh scope while nothing waits. */
  idle(): void {
    const room = this.#spareFor;
    this.#spareFor = undefined;
    try {
      room?.prepareSpare(BOOT_TIMEOUT_MS);
    } catch {
      this.#drop(room); // The room is full: the next run gets a new one.
    }
  }

  #invoke(id: number, body: string): void {
    const [head, payload] = splitBody(body, 1) as [string, string];
    const header = JSON.parse(head) as InvokeHeader;
    let room: Room | undefined;
    let realm: Realm;
    try {
      room = this.#roomOf(header.key);
      realm = room.take(header.scope, BOOT_TIMEOUT_MS);
    } catch (error) {
      const verdict = verdictOf(error, room) ?? guardJson("sandbox-killed");
      this.#drop(room);
      const usage = { cpuMs: 0, heapBytes: 0, scope: header.scope, isolates: this.#isolates };
      return this.#line.post(FRAME.fail, id, 0, `${JSON.stringify(usage)}\n[]\n${verdict}`);
    }
    const slot: Slot = {
      id,
      room,
      realm,
      header,
      cpuMs: 0,
      calls: 0,
      waiting: 0,
      chars: 0,
      ended: undefined,
      overflow: undefined,
    };
    this.#slots.set(id, slot);
    realm.send = (kind, call, name, json) => this.#hear(slot, kind, call, name, json);
    this.#section(slot, "invoke", 0, payload, 0);
  }

  #section(slot: Slot, op: string, call: number, json: string, nowMs: number): void {
    const { room, header } = slot;
    const before = room.cpuMs;
    const timeout = Math.max(1, Math.min(header.sectionMs, Math.ceil(header.cpuMs - slot.cpuMs)));
    const posted = this.#line.posted;
    try {
      slot.realm.enter(op, call, json, nowMs, timeout);
    } catch (error) {
      this.#line.unpost(posted); // (C2)
      return this.#guard(slot, verdictOf(error, room) ?? unawaited(error));
    }
    slot.cpuMs += Math.max(0, room.cpuMs - before);
    if (slot.overflow !== undefined) return this.#guard(slot, guardJson(slot.overflow));
    if (slot.ended) return this.#finish(slot, slot.ended.type, slot.ended.logs, slot.ended.json);
    if (slot.waiting === 0) return this.#guard(slot, guardJson("never-settles"));
    if (slot.cpuMs >= header.cpuMs) return this.#guard(slot, guardJson("cpu-limit"));
    this.#line.post(FRAME.wait, slot.id, 0, "");
  }

  #hear(slot: Slot, kind: string, call: number, name: string, json: string): void {
    if (slot.overflow !== undefined || slot.ended) return;
    slot.chars += json.length + name.length;
    if (slot.chars > slot.header.outputChars) slot.overflow = "output-limit";
    else if (kind !== "call")
      slot.ended = { type: kind === "done" ? FRAME.done : FRAME.fail, logs: name, json };
    else if (++slot.calls > slot.header.hostCalls) slot.overflow = "host-call-limit";
    else if (name.includes("\n"))
      slot.overflow = "bad-call"; // It would read as arguments on the wire.
    else {
      slot.waiting++;
      this.#line.post(FRAME.call, slot.id, call, `${name}\n${json}`);
    }
  }

  #finish(slot: Slot, type: number, logs: string, json: string): void {
    slot.room.give(slot.realm);
    this.#close(slot, type, logs, json);
    if (slot.realm.scope === "fresh") this.#spareFor = slot.room;
  }

  #guard(slot: Slot, verdict: string): void {
    this.#close(slot, FRAME.fail, "", verdict);
    this.#drop(slot.room);
  }

  #lose(slot: Slot): void {
    this.#close(slot, FRAME.lost, "", "{}");
  }

  #close(slot: Slot, type: number, logs: string, json: string): void {
    const usage = {
      cpuMs: Math.round(slot.cpuMs * 1000) / 1000,
      heapBytes: slot.room.heapBytes,
      scope: slot.realm.scope,
      isolates: this.#isolates,
    };
    this.#slots.delete(slot.id);
    this.#line.post(type, slot.id, 0, `${JSON.stringify(usage)}\n[${logs}]\n${json}`);
  }

  #roomOf(key: string): Room {
    const held = this.#rooms.get(key);
    if (held && !held.worn) return held;
    this.#drop(held);
    const known = this.#codes.get(key);
    if (!known) throw new Error(`no code for ${key}`);
    const { vm, prelude } = this.#options;
    const room = new Room(vm, prelude, known.code, known.file, known.memoryMb);
    this.#isolates++;
    this.#rooms.set(key, room);
    return room;
  }

  #drop(room: Room | undefined): void {
    room?.dispose();
    for (const [key, held] of this.#rooms) if (held === room) this.#rooms.delete(key);
  }
}

/** Which limit it was; `undefined` when the error is the script's own. */
function verdictOf(error: unknown, room: Room | undefined): string | undefined {
  if (room?.disposed) return guardJson("memory-limit");
  const { stack = "" } = error instanceof Error ? error : new Error(String(error));
  return stack.includes("timed out") ? guardJson("cpu-limit", stack) : undefined;
}

/** `stack`: where the guard struck, if it is known. */
function guardJson(code: string, stack = ""): string {
  return JSON.stringify({ code, name: "Error", message: "", stack: stack.slice(0, 8_000) });
}

/** The only throw that leaves a section: a promise that failed while nobody waited for it. */
function unawaited(error: unknown): string {
  const { name, message, stack = "" } = error instanceof Error ? error : new Error(String(error));
  const said = message.includes("isolated-vm") ? "a value that is no Error" : message.slice(0, 1_900);
  return JSON.stringify({
    code: "handler-throws",
    name: name.slice(0, 100),
    message: `${said} (in a promise that nobody awaited)`,
    stack: stack.slice(0, 8_000),
  });
}
