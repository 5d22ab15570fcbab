import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  encodeFrame,
  FRAME,
  type Frame,
  FrameReader,
  HEADER_BYTES,
  splitBody,
} from "../../host/sandbox/wire.ts";

const frames: Frame[] = [
  { type: FRAME.invoke, slot: 1, call: 0, body: '{"a":1}\n{"b":"ü€😀"}' },
  { type: FRAME.ready, slot: 0, call: 0, body: "" },
  { type: FRAME.call, slot: 0xffff_ffff, call: 0xffff_ffff, body: "peek\n{}" },
  { type: FRAME.done, slot: 2, call: 7, body: "x".repeat(300) },
];
const encode = ({ type, slot, call, body }: Frame) => encodeFrame(type, slot, call, body);
const stream = Buffer.concat(frames.map(encode));

function read(chunks: Iterable<Buffer>, maxBody = 1_000): Frame[] {
  const reader = new FrameReader(maxBody);
  const got: Frame[] = [];
  for (const chunk of chunks) reader.push(chunk, (frame) => got.push(frame));
  return got;
}

describe("frames", () => {
  test("all in one chunk", () => {
    expect(read([stream])).toEqual(frames);
  });

  test("one byte at a time", () => {
    expect(read(Array.from(stream, (byte) => Buffer.from([byte])))).toEqual(frames);
  });

  test("cut in two at every byte, also inside a letter of several bytes", () => {
    for (let at = 0; at <= stream.length; at++)
      expect(read([stream.subarray(0, at), stream.subarray(at)])).toEqual(frames);
  });

  test("any frames in any chunks come out as they went in", () => {
    const frame = fc.record({
      type: fc.integer({ min: 0, max: 255 }),
      slot: fc.integer({ min: 0, max: 0xffff_ffff }),
      call: fc.integer({ min: 0, max: 0xffff_ffff }),
      body: fc.string({ unit: "grapheme", maxLength: 60 }),
    });
    fc.assert(
      fc.property(
        fc.array(frame),
        fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1 }),
        (given, sizes) => {
          const bytes = Buffer.concat(given.map(encode));
          const chunks: Buffer[] = [];
          for (let at = 0, i = 0; at < bytes.length; i++) {
            const size = sizes[i % sizes.length] as number;
            chunks.push(bytes.subarray(at, at + size));
            at += size;
          }
          expect(read(chunks)).toEqual(given);
        },
      ),
    );
  });

  test("a frame that is not whole is not given out", () => {
    expect(read([stream.subarray(0, stream.length - 1)])).toEqual(frames.slice(0, -1));
    expect(read([stream.subarray(0, HEADER_BYTES - 1)])).toEqual([]);
  });
});

describe("the cap on a body", () => {
  const head = (length: number) => {
    const out = encodeFrame(FRAME.done, 1, 0, "");
    out.writeUInt32LE(length, 0);
    return out;
  };

  test("a body of exactly the cap passes, one byte more does not", () => {
    expect(read([encodeFrame(1, 0, 0, "x".repeat(64))], 64)).toHaveLength(1);
    expect(() => read([encodeFrame(1, 0, 0, "x".repeat(65))], 64)).toThrow(RangeError);
  });

  test("counts bytes, not letters", () => {
    expect(() => read([encodeFrame(1, 0, 0, "€".repeat(22))], 64)).toThrow(RangeError);
  });

  test("strikes at the header, before any byte of the body has come", () => {
    expect(() => read([head(65)], 64)).toThrow(RangeError);
    expect(() => read([head(0xffff_ffff)], 64)).toThrow(RangeError);
  });

  test("gives out what came before the frame that is too large, and nothing after", () => {
    const got: Frame[] = [];
    const reader = new FrameReader(64);
    const bytes = Buffer.concat([encodeFrame(1, 0, 0, "ok"), head(65), encodeFrame(2, 0, 0, "no")]);
    expect(() => reader.push(bytes, (frame) => got.push(frame))).toThrow(RangeError);
    expect(got.map((frame) => frame.body)).toEqual(["ok"]);
  });

  test("garbage is cut into frames or refused by size; it throws nothing else and reads nothing twice", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 400 }), (bytes) => {
        const got: Frame[] = [];
        const reader = new FrameReader(100);
        try {
          for (let at = 0; at < bytes.length; at += 7)
            reader.push(Buffer.from(bytes.subarray(at, at + 7)), (frame) => got.push(frame));
        } catch (error) {
          if (!(error instanceof RangeError)) throw error;
        }
        expect(got.length * HEADER_BYTES).toBeLessThanOrEqual(bytes.length);
        for (const frame of got) expect(Buffer.byteLength(frame.body)).toBeLessThanOrEqual(300);
      }),
    );
  });

  test("bytes that are no UTF-8 become replacement characters, never an exception", () => {
    const bytes = encodeFrame(FRAME.done, 0, 0, "abcd");
    bytes.set([0xff, 0xfe, 0xc0, 0x80], HEADER_BYTES);
    expect(read([bytes]).map((frame) => frame.body)).toEqual(["\ufffd\ufffd\ufffd\ufffd"]);
  });
});

describe("the lines of a body", () => {
  test("only the first are split off; the rest keeps its line breaks", () => {
    expect(splitBody("a\nb\nc\nd", 2)).toEqual(["a", "b", "c\nd"]);
    expect(splitBody("\n\n", 2)).toEqual(["", "", ""]);
  });

  test("a body with fewer lines gives fewer parts", () => {
    expect(splitBody("a", 2)).toEqual(["a"]);
    expect(splitBody("", 1)).toEqual([""]);
  });
});
