/** What changed between two texts, line by line: the shortest edit up to a size, beyond it all out and all in. */
export interface DiffLine {
  op: " " | "-" | "+";
  text: string;
}

/** The table of a comparison grows with the product of what is left between the common ends. */
const MOST_CELLS = 4_000_000;

export function diffLines(before: string, after: string): DiffLine[] {
  const [a, b] = [before.split("\n"), after.split("\n")];
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (
    tail < a.length - head &&
    tail < b.length - head &&
    a[a.length - 1 - tail] === b[b.length - 1 - tail]
  )
    tail++;
  const same = (lines: string[]): DiffLine[] => lines.map((text) => ({ op: " ", text }));
  return [
    ...same(a.slice(0, head)),
    ...middle(a.slice(head, a.length - tail), b.slice(head, b.length - tail)),
    ...same(a.slice(a.length - tail)),
  ];
}

function middle(a: string[], b: string[]): DiffLine[] {
  const gone = (text: string): DiffLine => ({ op: "-", text });
  const come = (text: string): DiffLine => ({ op: "+", text });
  if ((a.length + 1) * (b.length + 1) > MOST_CELLS) return [...a.map(gone), ...b.map(come)];
  const width = b.length + 1;
  // Longest common subsequence of what begins at (i, j).
  const longest = new Uint32Array((a.length + 1) * width);
  const at = (i: number, j: number) => longest[i * width + j] ?? 0;
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      longest[i * width + j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
  const lines: DiffLine[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    const [old, fresh] = [a[i], b[j]];
    if (old !== undefined && old === fresh) {
      lines.push({ op: " ", text: old });
      i++;
      j++;
    } else if (fresh === undefined || (old !== undefined && at(i + 1, j) >= at(i, j + 1))) {
      lines.push(gone(old ?? ""));
      i++;
    } else {
      lines.push(come(fresh));
      j++;
    }
  }
  return lines;
}
