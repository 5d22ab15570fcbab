/** The library door. Authors' `import … from "pawl"` finds its types here; hosts find `createHost` and its errors. */
export * from "../sandbox-api/index.ts";
export { ERRORS, type ErrorClass, type ErrorCode, PawlError } from "./core/errors.ts";
export {
  applied,
  auth,
  type CheckContext,
  type Connector,
  defineConnector,
  internal,
  invalid,
  mutation,
  notApplied,
  type OpenConnection,
  permission,
  precondition,
  rateLimited,
  read,
  type ReadContext,
  type SendContext,
  transient,
  unknownOutcome,
  unsure,
  type Verdict,
} from "./host.ts";
export type { Decision } from "./core/resolve.ts";
export type { PolicyLayer } from "./core/policy-resolve.ts";
export {
  type Acting,
  createHost,
  type Decided,
  type Deployed,
  eventNames,
  type Expectation,
  type Host,
  type HostEvent,
  type HostOptions,
  type PhaseTelemetry,
  type PublishAnswer,
  type RunTelemetry,
  type ScriptUpload,
  type Started,
  type StoreTelemetry,
} from "./host.ts";
export type { Clock } from "./ports/clock.ts";
export type { World } from "./ports/connector.ts";
