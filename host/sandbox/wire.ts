/**
 * The wire between host and child: `u32 length | u8 type | u32 slot | u32 call | UTF-8 body`, little-endian, where the
 * length counts the body only. Both ends use this file; the child's copy travels as text.
 *
 * W1. A frame's length is checked against a cap before its body is kept or parsed.
 */
export const HEADER_BYTES = 13;

export const FRAME = {
  // host → child
  load: 2,
  unload: 3,
  invoke: 4,
  answer: 5,
  abort: 6,
  compile: 7,
  escape: 8,
  // child → host
  ready: 16,
  call: 17,
  done: 18,
  fail: 19,
  wait: 20,
  compiled: 21,
  escaped: 22,
  lost: 23,
} as const;

export interface Frame {
  type: number;
  slot: number;
  call: number;
  body: string;
}

export function encodeFrame(type: number, slot: number, call: number, body: string): Buffer {
  const bytes = Buffer.byteLength(body);
  const out = Buffer.allocUnsafe(HEADER_BYTES + bytes);
  out.writeUInt32LE(bytes, 0);
  out.writeUInt8(type, 4);
  out.writeUInt32LE(slot, 5);
  out.writeUInt32LE(call, 9);
  out.write(body, HEADER_BYTES);
  return out;
}

/** Cuts a byte stream into frames. `push` throws a RangeError at a length over the cap (W1). */
export class FrameReader {
  #held: Buffer[] = [];
  #size = 0;
  readonly #maxBody: number;

  constructor(maxBody: number) {
    this.#maxBody = maxBody;
  }

  push(chunk: Buffer, emit: (frame: Frame) => void): void {
    this.#held.push(chunk);
    this.#size += chunk.length;
    while (this.#size >= HEADER_BYTES) {
      const head = this.#take(HEADER_BYTES, true);
      const length = head.readUInt32LE(0);
      if (length > this.#maxBody) throw new RangeError(`frame of ${length} bytes`);
      if (this.#size < HEADER_BYTES + length) return;
      const whole = this.#take(HEADER_BYTES + length, false);
      emit({
        type: whole.readUInt8(4),
        slot: whole.readUInt32LE(5),
        call: whole.readUInt32LE(9),
        body: whole.toString("utf8", HEADER_BYTES, HEADER_BYTES + length),
      });
    }
  }

  #take(bytes: number, peek: boolean): Buffer {
    let first = this.#held[0] as Buffer;
    if (first.length < bytes) {
      first = Buffer.concat(this.#held);
      this.#held = [first];
    }
    if (!peek) {
      this.#size -= bytes;
      if (first.length === bytes) this.#held.shift();
      else this.#held[0] = first.subarray(bytes);
    }
    return first;
  }
}

/** Splits a body at its first `lines` line breaks; the rest stays whole. */
export function splitBody(body: string, lines: number): string[] {
  const parts: string[] = [];
  let from = 0;
  for (let i = 0; i < lines; i++) {
    const at = body.indexOf("\n", from);
    if (at < 0) break;
    parts.push(body.slice(from, at));
    from = at + 1;
  }
  parts.push(body.slice(from));
  return parts;
}
