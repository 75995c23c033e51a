"""The front end stays pure: it imports the standard library, the parser, the codec, errors, limits and itself."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph.language

ROOT = Path(omnigraph.language.__file__).parent
ALLOWED = (
    "lark",
    "msgspec",
    "omnigraph.api",
    "omnigraph.dates",
    "omnigraph.errors",
    "omnigraph.language",
)
# The dialect of patterns is that of the library that checks rows; one module asks it.
# Reading a grammar makes very many objects that stay: meanwhile nothing is collected.
ALLOWED_IN = {"values.py": ("pyarrow", "pyarrow.compute"), "source.py": ("omnigraph.process",)}
# Standard, and still not for a package that neither reads nor writes anything.
WITH_EFFECTS = {"os", "io", "socket", "subprocess", "pathlib", "tempfile", "shutil", "asyncio", "random"}


def imported_by(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are spelled out"
            yield node.module or ""


@pytest.mark.parametrize("module", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_the_language_imports_only_what_is_pure(module: Path) -> None:
    for name in imported_by(module):
        root = name.split(".")[0]
        is_ours = name in (*ALLOWED, *ALLOWED_IN.get(module.name, ())) or name.startswith(
            tuple(f"{allowed}." for allowed in ALLOWED)
        )
        assert is_ours or (root in sys.stdlib_module_names and root not in WITH_EFFECTS), name
