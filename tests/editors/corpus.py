"""Every schema and query that the repository shows or tests with, whether it parses or not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from omnigraph.language.source import LONE_SURROGATE

ROOT = Path(__file__).parents[2]
_PYTHON = ("tests/**/*.py", "benchmarks/**/*.py", "examples/**/*.py")
_PAGES = ("*.md", "docs/**/*.md", "examples/**/*.md")
_FILES = ("examples/**/*.pg", "examples/**/*.gq", "src/**/*.pg", "src/**/*.gq", "tests/**/*.pg", "tests/**/*.gq")

_FENCED = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SCHEMA = re.compile(r"\b(?:node|edge|interface)\s+\w")
_QUERY = re.compile(r"\bquery\s+\w+\s*\(|^\s*(?:branch|explain)\b")


@cache
def schemas() -> tuple[str, ...]:
    """What looks like a schema: the head of a declaration occurs in it."""
    return _texts(_SCHEMA)


@cache
def queries() -> tuple[str, ...]:
    """What looks like queries or a statement."""
    return _texts(_QUERY)


def _texts(shape: re.Pattern[str]) -> tuple[str, ...]:
    # Half a surrogate pair is in no file, so no editor shows it.
    return tuple(sorted(text for text in _everything() if shape.search(text) and not LONE_SURROGATE.search(text)))


@cache
def _everything() -> frozenset[str]:
    return frozenset((*_python_strings(), *_fenced_blocks(), *map(Path.read_text, _paths(_FILES))))


def _paths(patterns: tuple[str, ...]) -> Iterator[Path]:
    return (path for pattern in patterns for path in ROOT.glob(pattern))


def _python_strings() -> Iterator[str]:
    for path in _paths(_PYTHON):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def _fenced_blocks() -> Iterator[str]:
    for path in _paths(_PAGES):
        yield from _FENCED.findall(path.read_text("utf-8"))
