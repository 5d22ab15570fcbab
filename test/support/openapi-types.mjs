// openapi-typescript builds its output with the compiler's own API, which TypeScript 7 does not have: it is given 6.
// Reads an OpenAPI document on stdin, writes its types to stdout.
import { registerHooks } from "node:module";
import { text } from "node:stream/consumers";

registerHooks({
  resolve: (specifier, context, next) =>
    next(specifier === "typescript" ? "typescript6" : specifier, context),
});
const { default: generate, astToString } = await import("openapi-typescript");
process.stdout.write(astToString(await generate(await text(process.stdin))));
