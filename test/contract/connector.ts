// The contract of a connector's changing tools. It ships as `pawl/testing`, so that connectors outside of this
// repository are held to it, too; here it is bound to our test runner.
import { afterAll, describe, test } from "vitest";
import { connectorContract, type ConnectorSpec } from "../../host/testing.ts";

export const connectorSuite = (spec: ConnectorSpec): void =>
  connectorContract(spec, { describe, test, afterAll });
