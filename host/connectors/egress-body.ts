/**
 * An answer's body, read no further than its cap: what is counted is what comes out of the decompression, so that a
 * small answer cannot become a large one (08).
 */
import { pipeline, type Readable, type Transform } from "node:stream";
import { createBrotliDecompress, createGunzip, createInflate } from "node:zlib";

export interface Body {
  bytes: Buffer;
  /** Why it is not all there; the answer itself did come. */
  problem?: "too-large" | "undecodable";
}

const NOTHING = Buffer.alloc(0);
const DECODERS: Record<string, () => Transform> = {
  gzip: () => createGunzip(),
  "x-gzip": () => createGunzip(),
  deflate: () => createInflate(),
  br: () => createBrotliDecompress(),
};

/** What `accept-encoding` says; the rest is understood where it comes uninvited. */
export const ENCODINGS = "gzip, br";

/** Rejects only when the connection broke before the end. */
export async function readBody(from: Readable, encoding: string, maxBytes: number): Promise<Body> {
  const named = encoding.trim().toLowerCase();
  const plain = named === "" || named === "identity";
  const decoder = plain || !Object.hasOwn(DECODERS, named) ? undefined : DECODERS[named]?.();
  if (!plain && !decoder) {
    from.on("error", () => {}).destroy();
    return { bytes: NOTHING, problem: "undecodable" };
  }
  // The callback's error is the last stream's too, which the loop sees.
  const source = decoder ? pipeline(from, decoder, () => {}) : from;
  const chunks: Buffer[] = [];
  let total = 0;
  try {
    for await (const chunk of source as AsyncIterable<Buffer>) {
      total += chunk.length;
      if (total > maxBytes) return { bytes: NOTHING, problem: "too-large" };
      chunks.push(chunk);
    }
  } catch (error) {
    if (decoder && isOfDecoder(error)) return { bytes: NOTHING, problem: "undecodable" };
    throw error;
  }
  return { bytes: Buffer.concat(chunks) };
}

function isOfDecoder(error: unknown): boolean {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  return /^(Z_|ERR__ERROR_|ERR_BROTLI|ERR_ZLIB|ERR_TRAILING)/.test(code);
}
