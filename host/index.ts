/** The library door. Authors' `import … from "pawl"` finds its types here; hosts find the errors they may meet. */
export * from "../sandbox-api/index.ts";
export { ERRORS, type ErrorClass, type ErrorCode, PawlError } from "./core/errors.ts";
