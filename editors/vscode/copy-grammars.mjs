// Puts the compiled grammars and their highlighting beside the compiled extension, which is all that is packaged.

import { copyFileSync, mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";

const here = new URL(".", import.meta.url);
const target = new URL("out/grammars/", here);
mkdirSync(target, { recursive: true });
for (const name of ["pg", "gq"]) {
  const grammar = new URL(`../tree-sitter-omnigraph-${name}/`, here);
  copyFileSync(fileURLToPath(new URL(`tree-sitter-omnigraph_${name}.wasm`, grammar)), new URL(`${name}.wasm`, target));
  copyFileSync(fileURLToPath(new URL("queries/highlights.scm", grammar)), new URL(`${name}.scm`, target));
}
