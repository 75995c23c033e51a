"""The cached tables of the grammars make a parser start sooner; nothing depends on their being there."""

from __future__ import annotations

import shutil
import sys
from importlib import import_module, resources
from pathlib import Path
from typing import Any

import pytest

from omnigraph.language.source import grammar_parser

PACKAGE = "omnigraph.language.schema"
DECLARATION = "node Person { name: String @key }"


class AsText:
    """Builds whatever the grammar asks for as nested text, so that trees can be compared."""

    def __getattr__(self, rule: str) -> Any:
        if rule.startswith("__"):
            raise AttributeError(rule)
        return lambda children: f"({rule} {' '.join(map(str, children))})"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of its own with the grammar of schemas in it."""
    folder = tmp_path / "grammar_copy"
    folder.mkdir()
    (folder / "__init__.py").touch()
    shutil.copy(str(resources.files(PACKAGE).joinpath("grammar.lark")), folder)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "grammar_copy", raising=False)
    (folder / "__pycache__").mkdir()
    return folder


def parse() -> str:
    parser = grammar_parser("grammar_copy", AsText(), **import_module(f"{PACKAGE}.parser").GRAMMAR_OPTIONS)
    return str(parser.parse(DECLARATION))


def tables_of(package: Path) -> Path:
    (tables,) = (package / "__pycache__").glob("*.tables")
    return tables


def test_the_second_parser_reads_the_tables_of_the_first(package: Path) -> None:
    tree = parse()
    tables = tables_of(package)
    written = tables.stat().st_mtime_ns
    assert tree.startswith("(")
    assert parse() == tree
    assert tables.stat().st_mtime_ns == written


def test_damaged_tables_are_made_again(package: Path) -> None:
    tree = parse()
    tables = tables_of(package)
    whole = tables.read_bytes()
    tables.write_bytes(whole[: len(whole) // 2])  # two tables of one grammar may differ by some bytes
    damaged = tables.stat().st_size
    assert parse() == tree
    assert tables.stat().st_size > damaged


def test_tables_of_another_grammar_are_not_used(package: Path) -> None:
    parse()
    grammar = package / "grammar.lark"
    grammar.write_text(grammar.read_text().replace("NODE: /node", "NODE: /vertex"))
    with pytest.raises(Exception, match="node"):
        parse()


def test_a_folder_that_can_not_be_written_costs_nothing_but_time(
    package: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tree = parse()
    shutil.rmtree(package / "__pycache__")
    (package / "__pycache__").touch()  # a file, so that not even root can write into it
    assert parse() == tree
    assert capfd.readouterr().err == ""
