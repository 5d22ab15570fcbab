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
const SMALL = 2_048;
const ROOM = 16_384;
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
  try {
    const bytes = await collected(source, maxBytes);
    return bytes ? { bytes } : { bytes: NOTHING, problem: "too-large" };
  } catch (error) {
    if (decoder && isOfDecoder(error)) return { bytes: NOTHING, problem: "undecodable" };
    throw error;
  }
}

/** Undefined for what is larger. Listens instead of iterating: a promise for each of a million chunks is a cost, too. */
function collected(source: Readable, maxBytes: number): Promise<Buffer | undefined> {
  const pieces = new Pieces();
  let total = 0;
  return new Promise((resolve, reject) => {
    source.on("error", reject);
    source.once("close", () => reject(new Error("the connection was closed before the end of the answer")));
    source.once("end", () => resolve(pieces.whole()));
    source.on("data", (chunk: Buffer) => {
      total += chunk.length;
      if (total <= maxBytes) return pieces.add(chunk);
      resolve(undefined);
      source.destroy();
    });
  });
}

/** Small ones copied together: a body of single bytes would cost a hundred times its size. */
class Pieces {
  readonly #full: Buffer[] = [];
  #open: Buffer = NOTHING;
  #used = 0;

  add(chunk: Buffer): void {
    if (chunk.length >= SMALL) {
      this.#close();
      this.#full.push(chunk);
      return;
    }
    if (this.#used + chunk.length > this.#open.length) {
      this.#close();
      this.#open = Buffer.allocUnsafeSlow(ROOM);
    }
    this.#used += chunk.copy(this.#open, this.#used);
  }

  whole(): Buffer {
    this.#close();
    return this.#full.length === 1 ? (this.#full[0] ?? NOTHING) : Buffer.concat(this.#full);
  }

  #close(): void {
    if (this.#used > 0) this.#full.push(this.#open.subarray(0, this.#used));
    this.#open = NOTHING;
    this.#used = 0;
  }
}

function isOfDecoder(error: unknown): boolean {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  return /^(Z_|ERR__ERROR_|ERR_BROTLI|ERR_ZLIB|ERR_TRAILING)/.test(code);
}
