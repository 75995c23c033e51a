"""The syntax tree of a row filter: comparisons of a row's own properties, joined by `and` and `or`.

Policies say with it which rows of a type somebody sees. It has a start of its own in the grammar, the comparisons are
those of a `match`, and bare names (`Alias`) are properties.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from omnigraph.language.query.syntax import BooleanLiteral, Filter, Place


class AllOf(Struct, frozen=True):
    """Tests joined by `and`."""

    tests: tuple[RowTest, ...]
    at: Place


class AnyOf(Struct, frozen=True):
    """Tests joined by `or`."""

    tests: tuple[RowTest, ...]
    at: Place


RowTest: TypeAlias = Filter | BooleanLiteral | AllOf | AnyOf
