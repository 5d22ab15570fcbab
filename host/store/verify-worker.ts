/** A thread that examines a data folder: the host's loop goes on meanwhile. */
import { parentPort, workerData } from "node:worker_threads";
import { examine } from "./examine.ts";

const { data } = workerData as { data: string };
parentPort?.postMessage(examine(data, "journal"));
