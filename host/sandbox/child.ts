/**
 * The child process: a blocking, single-threaded loop on one socket. It reads a frame, enters an isolate, writes
 * frames; it has no event loop, no timers and no promises of its own, and never parses what a script handed over.
 *
 * C1. Every invoke and answer ends with exactly one of done, fail, wait, lost: that frame closes the section.
 * C2. What a script produced in a section that then hit a guard is dropped.
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

interface Slot {
  key: string;
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

export function serve({ vm, prelude, escape }: ChildOptions): never {
  const codes = new Map<string, { code: string; file: string; memoryMb: number }>();
  const rooms = new Map<string, Room>();
  const slots = new Map<number, Slot>();
  let outbox: Buffer[] = [];
  let spareFor: Room | undefined;
  const post = (type: number, slot: number, call: number, body: string) =>
    outbox.push(encodeFrame(type, slot, call, body));

  const drop = (key: string): void => {
    rooms.get(key)?.dispose();
    rooms.delete(key);
  };
  const roomOf = (key: string): Room => {
    let room = rooms.get(key);
    if (room?.worn) {
      drop(key);
      room = undefined;
    }
    if (!room) {
      const known = codes.get(key);
      if (!known) throw new Error(`no code for ${key}`);
      room = new Room(vm, prelude, known.code, known.file, known.memoryMb);
      rooms.set(key, room);
    }
    return room;
  };
  const usage = (slot: Slot): string =>
    JSON.stringify({
      cpuMs: Math.round(slot.cpuMs * 1000) / 1000,
      hostCalls: slot.calls,
      heapBytes: slot.room.heapBytes,
      scope: slot.realm.scope,
    });

  const hearing =
    (id: number, slot: Slot) =>
    (kind: string, call: number, name: string, json: string): void => {
      if (slot.overflow !== undefined || slot.ended) return;
      slot.chars += json.length + name.length;
      if (slot.chars > slot.header.outputChars) {
        slot.overflow = "output-limit";
        return;
      }
      if (kind !== "call") {
        slot.ended = { type: kind === "done" ? FRAME.done : FRAME.fail, logs: name, json };
        return;
      }
      if (++slot.calls > slot.header.hostCalls) slot.overflow = "host-call-limit";
      else if (name.includes("\n"))
        slot.overflow = "bad-call"; // it would read as arguments on the wire
      else {
        slot.waiting++;
        post(FRAME.call, id, call, `${name}\n${json}`);
      }
    };

  const finish = (
    id: number,
    slot: Slot,
    type: number,
    logs: string,
    json: string,
    guilty: boolean,
  ): void => {
    post(type, id, 0, `${usage(slot)}\n[${logs}]\n${json}`);
    slots.delete(id);
    if (guilty || slot.room.disposed) drop(slot.key);
    else {
      slot.room.give(slot.realm);
      if (slot.realm.scope === "fresh") spareFor = slot.room;
    }
  };
  const guard = (id: number, slot: Slot, code: string): void => {
    finish(id, slot, FRAME.fail, "", JSON.stringify({ code, name: "Error", message: "", stack: "" }), true);
  };

  const section = (id: number, slot: Slot, op: string, call: number, json: string, nowMs: number): void => {
    if (slot.room.disposed) {
      slots.delete(id);
      return void post(FRAME.lost, id, 0, ""); // by a guard that another run of this version met while this one waited
    }
    const before = slot.room.cpuMs;
    const timeout = Math.max(1, Math.min(slot.header.sectionMs, Math.ceil(slot.header.cpuMs - slot.cpuMs)));
    const sent = outbox.length;
    try {
      slot.realm.enter(op, call, json, nowMs, timeout);
    } catch (error) {
      outbox = outbox.slice(0, sent); // (C2)
      if (slot.room.disposed) return guard(id, slot, "memory-limit");
      if (String(error).includes("timed out")) return guard(id, slot, "cpu-limit");
      return finish(id, slot, FRAME.fail, "", unawaited(error), true);
    }
    slot.cpuMs += Math.max(0, slot.room.cpuMs - before);
    if (slot.overflow !== undefined) return guard(id, slot, slot.overflow);
    if (slot.ended) return finish(id, slot, slot.ended.type, slot.ended.logs, slot.ended.json, false);
    if (slot.waiting === 0) return guard(id, slot, "never-settles");
    if (slot.cpuMs >= slot.header.cpuMs) return guard(id, slot, "cpu-limit");
    post(FRAME.wait, id, 0, "");
  };

  const invoke = (id: number, body: string): void => {
    const [head, payload] = splitBody(body, 1) as [string, string];
    const header = JSON.parse(head) as InvokeHeader;
    let room: Room | undefined;
    try {
      room = roomOf(header.key);
      const realm = room.take(header.scope, BOOT_TIMEOUT_MS);
      const slot: Slot = {
        key: header.key,
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
      slots.set(id, slot);
      realm.send = hearing(id, slot);
      section(id, slot, "invoke", 0, payload, 0);
    } catch {
      const code = room?.disposed ? "memory-limit" : "cpu-limit";
      drop(header.key);
      post(
        FRAME.fail,
        id,
        0,
        `{"cpuMs":0,"hostCalls":0,"heapBytes":0,"scope":"fresh"}\n[]\n${JSON.stringify({ code, name: "Error", message: "", stack: "" })}`,
      );
    }
  };

  const handle = (type: number, id: number, call: number, body: string): void => {
    const slot = slots.get(id);
    switch (type) {
      case FRAME.load: {
        const [key, file, memoryMb, code] = splitBody(body, 3) as [string, string, string, string];
        codes.set(key, { code, file, memoryMb: Number(memoryMb) });
        return;
      }
      case FRAME.unload:
        codes.delete(body);
        return drop(body);
      case FRAME.invoke:
        return invoke(id, body);
      case FRAME.answer: {
        if (!slot) return void post(FRAME.wait, id, 0, "");
        const [now, json] = splitBody(body, 1) as [string, string];
        slot.waiting--;
        return section(id, slot, "answer", call, json, Number(now));
      }
      case FRAME.abort:
        if (slot) {
          slots.delete(id);
          drop(slot.key);
        }
        return;
      case FRAME.escape:
        return void post(FRAME.escaped, id, 0, escape ? escape(body) : "not a test");
    }
  };

  const flush = (): void => {
    const all = outbox.length === 1 ? (outbox[0] as Buffer) : Buffer.concat(outbox);
    outbox = [];
    for (let at = 0; at < all.length; ) at += writeSync(SOCKET, all, at);
  };
  let held = Buffer.allocUnsafe(65_536);
  let size = 0;
  const need = (bytes: number): void => {
    if (held.length < bytes) held = Buffer.concat([held.subarray(0, size)], Math.max(bytes, held.length * 2));
    while (size < bytes) {
      const got = readSync(SOCKET, held, size, held.length - size, null);
      if (got === 0) process.exit(0);
      size += got;
    }
  };

  post(FRAME.ready, 0, 0, String(process.pid));
  flush();
  for (;;) {
    if (spareFor && size < HEADER_BYTES) {
      if (!spareFor.disposed) spareFor.prepareSpare(BOOT_TIMEOUT_MS);
      spareFor = undefined;
    }
    need(HEADER_BYTES);
    const length = held.readUInt32LE(0);
    need(HEADER_BYTES + length);
    const [type, id, call] = [held.readUInt8(4), held.readUInt32LE(5), held.readUInt32LE(9)];
    const body = held.toString("utf8", HEADER_BYTES, HEADER_BYTES + length);
    held.copyWithin(0, HEADER_BYTES + length, size);
    size -= HEADER_BYTES + length;
    handle(type, id, call, body);
    if (outbox.length > 0) flush();
  }
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
