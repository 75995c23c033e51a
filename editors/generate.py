#!/usr/bin/env python3
"""Makes the parsers of the editors from their grammars: `src/parser.c` for Neovim and Helix, a `.wasm` for VS Code.

A maintainer runs it after every change of a `grammar.js` or of `src/scanner.c` and commits the results. It needs the
tree-sitter CLI (`cargo install tree-sitter-cli --version '^0.26'`), clang and wasm-ld (Debian: `clang`, `lld`). The
digests that it writes beside each grammar let the tests notice a file that was changed without running it.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from pathlib import Path

EDITORS = Path(__file__).resolve().parent
GRAMMARS = ("omnigraph_pg", "omnigraph_gq")
DIGESTS = "generated.sha256"


def folder(grammar: str) -> Path:
    return EDITORS / f"tree-sitter-{grammar.replace('_', '-')}"


def generate_parser(grammar: str) -> None:
    # Version 15 of the format has reserved words. Neovim reads it from 0.11 on, Helix from 25.07 on.
    subprocess.run(["tree-sitter", "generate", "--abi=15"], cwd=folder(grammar), check=True)
    # Of the headers only this one is for parsers without a state of their own.
    for header in ("alloc.h", "array.h"):
        (folder(grammar) / "src" / "tree_sitter" / header).unlink(missing_ok=True)


def build_wasm(grammar: str) -> None:
    """A library that web-tree-sitter links when it loads it."""
    source = folder(grammar) / "src"
    with tempfile.TemporaryDirectory() as headers:
        # Without a C library: `tree_sitter/parser.h` includes this header for `NULL`.
        (Path(headers) / "stdlib.h").write_text("#include <stddef.h>\n")
        compiled = ["--target=wasm32-unknown-emscripten", "-ffreestanding", "-fPIC", "-fvisibility=hidden", "-Os"]
        linked = ["-shared", "--experimental-pic", "--allow-undefined", "--no-entry", "--strip-all"]
        options = [f"-Wl,{option}" for option in (*linked, f"--export=tree_sitter_{grammar}")]
        output = str(folder(grammar) / f"tree-sitter-{grammar}.wasm")
        command = ["clang", *compiled, "-nostdlib", *options, "-I", headers, "-I", str(source), "-o", output]
        subprocess.run([*command, *map(str, sorted(source.glob("*.c")))], check=True)
        Path(output).chmod(0o644)


def write_digests(grammar: str) -> None:
    """In the form of `sha256sum`, sources and results alike."""
    root = folder(grammar)
    files = [root / "grammar.js", root / f"tree-sitter-{grammar}.wasm", *root.glob("src/**/*.*")]
    names = sorted(path.relative_to(root).as_posix() for path in files)
    lines = (f"{hashlib.sha256((root / name).read_bytes()).hexdigest()}  {name}\n" for name in names)
    (root / DIGESTS).write_text("".join(lines))


if __name__ == "__main__":
    for grammar in GRAMMARS:
        generate_parser(grammar)
        build_wasm(grammar)
        write_digests(grammar)
