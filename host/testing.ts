/** The door of `pawl/testing`: what a connector's own tests need. */
export { connectorContract, contractCases, type TestRunner } from "./testing/contract.ts";
export { type Fault, FAULTS, type Outside } from "./testing/faults.ts";
export {
  type HttpAnswer,
  type HttpDoing,
  httpOutside,
  type HttpOutside,
  type HttpRequest,
} from "./testing/http-outside.ts";
export { Breach, type ConnectorSpec, type ContractCase } from "./testing/spec.ts";
