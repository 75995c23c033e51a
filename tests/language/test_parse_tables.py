"""The tables that are shipped beside the grammars: they fit, and nothing depends on their being there."""

from __future__ import annotations

import shutil
import sys
from importlib import import_module, resources
from pathlib import Path
from typing import Any

import msgspec
import pytest

from omnigraph.language import parse_tables
from omnigraph.language.parse_tables import GRAMMARS, fingerprint, parser_of


class AsText:
    """Builds whatever the grammar asks for as nested text, so that trees can be compared."""

    def __getattr__(self, rule: str) -> Any:
        if rule.startswith("__"):
            raise AttributeError(rule)
        return lambda children: f"({rule} {' '.join(map(str, children))})"


def options_of(package: str) -> dict[str, Any]:
    options: dict[str, Any] = import_module(f"{package}.parser").GRAMMAR_OPTIONS
    return options


@pytest.mark.parametrize("package", GRAMMARS)
def test_the_shipped_tables_belong_to_the_grammar(package: str) -> None:
    home = resources.files(package)
    grammar = home.joinpath("grammar.lark").read_text("utf-8")
    stored = msgspec.json.decode(home.joinpath("grammar.json").read_bytes())
    assert stored["fingerprint"] == fingerprint(grammar, options_of(package)), "run `./dev docs`"


@pytest.mark.parametrize("flaw", ["missing", "torn", "of another grammar", "none"])
def test_a_parser_does_not_depend_on_its_tables(flaw: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = "omnigraph.language.schema"
    copy = tmp_path / "grammar_copy"
    copy.mkdir()
    (copy / "__init__.py").touch()
    for name in ("grammar.lark", "grammar.json"):
        shutil.copy(str(resources.files(package).joinpath(name)), copy)
    tables = copy / "grammar.json"
    if flaw == "missing":
        tables.unlink()
    elif flaw == "torn":
        tables.write_bytes(tables.read_bytes()[:-20])
    elif flaw == "of another grammar":
        (copy / "grammar.lark").write_text((copy / "grammar.lark").read_text() + "\n// newer\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    compiled: list[str] = []
    compile_grammar = parse_tables._compiled
    monkeypatch.setattr(parse_tables, "_compiled", lambda *given: compiled.append("once") or compile_grammar(*given))
    parser = parser_of("grammar_copy", AsText(), **options_of(package))
    del sys.modules["grammar_copy"]
    assert str(parser.parse("node Person { name: String @key }")).startswith("(")
    assert compiled == ([] if flaw == "none" else ["once"])
