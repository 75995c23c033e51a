"""The instructions for users of Neovim and Helix: the commands run and leave what the editors load."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tree_sitter import Query

from .grammars import EDITORS, LANGUAGES, language

PAGE = (EDITORS.parent / "docs" / "user" / "editors.md").read_text("utf-8")


def block(section: str, kind: str) -> str:
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    (found,) = re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)
    return str(found)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where the commands put their files. Without a compiler in the system, `cc` is that of the environment."""
    if shutil.which("cc") is None:
        (tmp_path / "cc").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang cc "$@"\n')
        (tmp_path / "cc").chmod(0o755)
    return tmp_path


def run(script: str, home: Path) -> None:
    environment = {"XDG_DATA_HOME": str(home), "XDG_CONFIG_HOME": str(home)}
    path = f"{os.environ['PATH']}{os.pathsep}{home}"
    subprocess.run(
        ["sh", "-e", "-c", script], cwd=EDITORS.parent, env={**os.environ, **environment, "PATH": path}, check=True
    )


def test_neovim(home: Path) -> None:
    run(block("Neovim", "sh"), home)
    site = home / "nvim" / "site"
    for name in LANGUAGES:
        assert (site / "parser" / f"omnigraph_{name}.so").is_file()
        files = {path.name for path in (site / "queries" / f"omnigraph_{name}").iterdir()}
        assert files == {"highlights.scm", "folds.scm", "indents.scm"}


def test_helix(home: Path) -> None:
    run(block("Helix", "sh"), home)
    settings = tomllib.loads(block("Helix", "toml"))
    runtime = home / "helix" / "runtime"
    for described in settings["language"]:
        assert (runtime / "grammars" / f"{described['grammar']}.so").is_file()
        highlights = (runtime / "queries" / described["name"] / "highlights.scm").read_text("utf-8")
        Query(language(described["grammar"].removeprefix("omnigraph_")), highlights)
        assert not re.search(r"@(number|boolean|property|module)\b", highlights)


def test_both_editors_and_vscode_call_the_languages_alike() -> None:
    settings = tomllib.loads(block("Helix", "toml"))
    names = {described["name"]: described["file-types"] for described in settings["language"]}
    assert names == {"omnigraph-schema": ["pg"], "omnigraph-query": ["gq"]}
    lua = block("Neovim", "lua")
    assert all(f'{types[0]} = "{name}"' in lua for name, types in names.items())
