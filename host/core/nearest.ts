/** The name that was probably meant. Decides nothing about whether the given one is wrong. */

const LONGEST = 64;

/**
 * The known name that differs least, in at most a third of its letters (or in one), the first of equals; else the only
 * one that begins with what was given: `cpu` for `cpuMs`.
 */
export function nearestName(given: string, known: Iterable<string>): string | undefined {
  const wanted = given.slice(0, LONGEST).toLowerCase();
  let best: string | undefined;
  let least = Number.POSITIVE_INFINITY;
  const longer: string[] = [];
  for (const name of known) {
    const candidate = name.slice(0, LONGEST).toLowerCase();
    const distance = editsBetween(wanted, candidate);
    const most = Math.max(1, Math.floor(Math.max(wanted.length, candidate.length) / 3));
    if (distance <= most && distance < least) {
      least = distance;
      best = name;
    }
    if (wanted.length > 2 && candidate.startsWith(wanted)) longer.push(name);
  }
  return best ?? (longer.length === 1 ? longer[0] : undefined);
}

/** How many letters must be added, removed, changed or swapped with their neighbour. */
function editsBetween(a: string, b: string): number {
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, j) => j)];
  const at = (i: number, j: number): number => rows[i]?.[j] ?? Number.POSITIVE_INFINITY;
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    rows.push(row);
    for (let j = 1; j <= b.length; j++) {
      const isSwap = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      const swapped = isSwap ? at(i - 2, j - 2) + 1 : Number.POSITIVE_INFINITY;
      const changed = at(i - 1, j - 1) + (a[i - 1] === b[j - 1] ? 0 : 1);
      row.push(Math.min(at(i - 1, j) + 1, at(i, j - 1) + 1, changed, swapped));
    }
  }
  return at(a.length, b.length);
}
