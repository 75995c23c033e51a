"""The committed tree-sitter grammars, compiled and loaded as an editor does it."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tree_sitter import Language, Parser, Query

EDITORS = Path(__file__).parents[2] / "editors"
LANGUAGES = ("pg", "gq")


def folder(name: str) -> Path:
    return EDITORS / f"tree-sitter-omnigraph-{name}"


@cache
def language(name: str) -> Language:
    """The grammar of `.pg` or of `.gq`."""
    library = ctypes.CDLL(str(_compile(name)))
    function = getattr(library, f"tree_sitter_omnigraph_{name}")
    function.restype = ctypes.c_void_p
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype = ctypes.py_object
    capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return Language(capsule(function(), b"tree_sitter.Language", None))


@cache
def parser(name: str) -> Parser:
    return Parser(language(name))


@cache
def query(name: str, file: str) -> Query:
    """A query file of a grammar, such as `highlights`."""
    return Query(language(name), (folder(name) / "queries" / f"{file}.scm").read_text("utf-8"))


def _compile(name: str) -> Path:
    """The library of a grammar. One that was compiled from the same sources is used again."""
    source = folder(name) / "src"
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(source.rglob("*.[ch]"))))
    cached = Path(tempfile.gettempdir()) / f"omnigraph-grammars-{os.getuid()}"
    cached.mkdir(mode=0o700, exist_ok=True)
    library = cached / f"{name}-{digest.hexdigest()[:16]}.so"
    if not library.exists():
        # Processes that test at the same time each compile their own, and the last one stays.
        part = library.with_suffix(f".{os.getpid()}")
        options = ["-O1", "-fPIC", "-shared", "-Wall", "-Werror", "-I", str(source), "-o", str(part)]
        subprocess.run([*_compiler(), *options, *map(str, sorted(source.glob("*.c")))], check=True)
        part.replace(library)
    return library


def _compiler() -> list[str]:
    found = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    return [sys.executable, "-m", "ziglang", "cc"] if found is None else [found]
