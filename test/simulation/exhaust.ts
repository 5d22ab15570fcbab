/** Every handler shape × every moment at which a host can die × how it dies; and, for the proof, twice in a row. */
import { shapeProgram, SHAPES } from "./programs.ts";
import { type CrashMode, simulate, type SimulationOptions } from "./simulate.ts";

const MODES: readonly CrashMode[] = ["kill", "power cut"];
export const SHAPE_NAMES: readonly string[] = Object.keys(SHAPES);

/** Recovery, and the step that it leads to. */
const DURING_RECOVERY = 14;

export interface Shape {
  shape: string;
  fused: boolean;
}

const optionsOf = ({ shape, fused }: Shape): SimulationOptions => ({
  seed: 1,
  programs: [shapeProgram(shape)],
  fused,
  stormMs: 90_000,
});

/** How many moments there are while the shape's work is done once; it must be done without a crash first. */
export async function momentsOf(shape: Shape): Promise<number> {
  const { problems, stormMoments } = await simulate({ ...optionsOf(shape), crashAt: [] });
  if (problems.length > 0) throw new Error(`${shape.shape} fails by itself: ${problems.join("; ")}`);
  return stormMoments;
}

export function* singles(shape: Shape, moments: number): Generator<SimulationOptions> {
  for (const crashMode of MODES)
    for (let moment = 0; moment < moments; moment++)
      yield { ...optionsOf(shape), crashAt: [moment], crashMode };
}

/** The second death falls into the recovery from the first. */
export function* doubles(shape: Shape, moments: number): Generator<SimulationOptions> {
  for (const crashMode of MODES)
    for (let first = 0; first < moments; first++)
      for (let second = first + 1; second <= first + DURING_RECOVERY; second++)
        yield { ...optionsOf(shape), crashAt: [first, second], crashMode };
}
