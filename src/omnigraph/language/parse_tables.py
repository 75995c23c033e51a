"""Parsers from tables that are worked out beforehand, which is ten times as fast as from their grammars.

Beside each `grammar.lark` lies `grammar.json`, its tables as Lark serialises them; `./dev docs` writes it. The tables
say which grammar, options and version of Lark they belong to, and where that is not what is there, the grammar is
compiled instead: a table can be missed, but it can't be wrong.
"""

from __future__ import annotations

import hashlib
import json
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

import lark
import msgspec
from lark import Lark
from lark.grammar import Rule
from lark.lexer import TerminalDef

GRAMMARS = ("omnigraph.language.query", "omnigraph.language.schema")


class _States(msgspec.Struct):
    tokens: dict[int, str]
    states: dict[int, dict[int, Any]]
    start_states: dict[str, int]
    end_states: dict[str, int]


class _Tables(msgspec.Struct):
    """What is stored: JSON keeps keys as text, and these types say which of them are numbers."""

    fingerprint: str
    states: _States
    data: dict[str, Any]
    memo: dict[int, Any]


def parser_of(package: str, transformer: object, **options: Any) -> Lark:
    """The parser of the grammar in a package. Trees are built by the transformer as they are found."""
    home = resources.files(package)
    grammar = home.joinpath("grammar.lark").read_text("utf-8")
    stored = _stored(home)
    if stored is None or stored.fingerprint != fingerprint(grammar, options):
        return _compiled(grammar, transformer, options)
    stored.data["parser"]["parser"] = msgspec.structs.asdict(stored.states)
    # What the parsers that Lark generates as modules load themselves with; the fingerprint names the version.
    return Lark._load_from_dict(stored.data, stored.memo, transformer=transformer)  # type: ignore[no-any-return,no-untyped-call]


def tables_of(package: str, **options: Any) -> str:
    """The text of `grammar.json` for the grammar in a package."""
    grammar = resources.files(package).joinpath("grammar.lark").read_text("utf-8")
    data, memo = _compiled(grammar, None, options).memo_serialize([TerminalDef, Rule])
    states = data["parser"].pop("parser")
    del data["options"]["transformer"]
    tables = {"fingerprint": fingerprint(grammar, options), "states": states, "data": data, "memo": memo}
    # A state to a line: small enough to load quickly, and a change of the grammar shows as one.
    return json.dumps(tables, separators=(",", ":")).replace("},", "},\n") + "\n"


def fingerprint(grammar: str, options: dict[str, Any]) -> str:
    """What tables depend on."""
    made_from = json.dumps([lark.__version__, options, grammar], sort_keys=True)
    return hashlib.sha256(made_from.encode()).hexdigest()


def _stored(home: Traversable) -> _Tables | None:
    try:
        return msgspec.json.decode(home.joinpath("grammar.json").read_bytes(), type=_Tables)
    except (OSError, msgspec.DecodeError):
        return None


def _compiled(grammar: str, transformer: object, options: dict[str, Any]) -> Lark:
    return Lark(grammar, parser="lalr", transformer=transformer, **options)
