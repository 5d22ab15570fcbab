/**
 * A list to its end as lines of JSON: page by page, each asked for when the one before it has been read.
 *
 * J1. A reader that is slow keeps one page in memory, one that leaves ends the reading.
 */
import type { Page } from "../ports/records.ts";

const AT_ONCE = 200;

export function jsonLines<Item>(
  pageAt: (page: { limit: number; cursor?: string }) => Promise<Page<Item>>,
  viewOf: (item: Item) => unknown,
): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  let cursor: string | undefined;
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        for (;;) {
          const page = await pageAt({ limit: AT_ONCE, ...(cursor === undefined ? {} : { cursor }) }); // (J1)
          const lines = await Promise.all(
            page.items.map(async (item) => `${JSON.stringify(await viewOf(item))}\n`),
          );
          if (lines.length > 0) controller.enqueue(encoder.encode(lines.join("")));
          cursor = page.nextCursor;
          if (cursor === undefined) return controller.close();
          // A filtered page may be empty and still go on.
          if (lines.length > 0) return undefined;
        }
      },
    },
    { highWaterMark: 0 },
  );
}
