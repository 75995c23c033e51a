"""Scan plans of a driver: the fragments and the schema of a table version, and filter texts over stored columns.

The pipeline builds its reads here. A filter text is made only where the scan means exactly what its author means.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from omnigraph.engine.bulk.executor import RemoteTable
from omnigraph.storage.tables.fragments import FragmentSummary, fragments_of, pinned_dataset
from omnigraph.storage.tables.rows import identifier, string_literal

if TYPE_CHECKING:
    from omnigraph.engine.resources import Resources
    from omnigraph.storage.models import TableState


@dataclass(frozen=True, slots=True)
class PinnedTable:
    """One version and those of its fragments that are meant."""

    remote: RemoteTable
    fragments: tuple[FragmentSummary, ...]
    schema: pa.Schema

    @classmethod
    def of(cls, resources: Resources, state: TableState) -> PinnedTable:
        table = resources.root.reader.open(state)
        return cls(RemoteTable.of(resources, state), tuple(fragments_of(table)), table.schema)

    def only(self, wanted: Callable[[FragmentSummary], bool]) -> PinnedTable:
        return replace(self, fragments=tuple(fragment for fragment in self.fragments if wanted(fragment)))

    @property
    def fragment_ids(self) -> list[int]:
        return [fragment.id for fragment in self.fragments]

    @property
    def rows(self) -> int:
        return sum(fragment.rows for fragment in self.fragments)

    def groups(self, most_rows: int) -> list[tuple[int, ...]]:
        """Fragments in order, by groups of at most so many rows; a larger fragment is a group of its own."""
        groups: list[tuple[int, ...]] = []
        current: list[int] = []
        rows = 0
        for fragment in self.fragments:
            if current and rows + fragment.rows > most_rows:
                groups.append(tuple(current))
                current, rows = [], 0
            current.append(fragment.id)
            rows += fragment.rows
        return [*groups, tuple(current)] if current else groups


class ForeignDataset(NamedTuple):
    """A Lance dataset that belongs to no graph. `digest` names its files: one made anew there has another."""

    table: PinnedTable
    digest: str


def foreign_dataset(uri: str, version: int | None, options: Mapping[str, str]) -> ForeignDataset:
    """The dataset at a path or URI, at `version` or the newest there is. `options` add to those of the environment."""
    dataset = pinned_dataset(uri, version, options)
    remote = RemoteTable(dataset.uri, dataset.version, dataset.options)
    return ForeignDataset(PinnedTable(remote, dataset.fragments, dataset.schema), dataset.digest)


def is_null(column: str) -> str:
    return f"{identifier(column)} IS NULL"


def is_not_null(column: str) -> str:
    return f"{identifier(column)} IS NOT NULL"


def is_not_blank(column: str) -> str:
    """A text with something in it."""
    return f"regexp_like({identifier(column)}, '[^\\s]')"


def compares(column: str, operator: str, value: Any) -> str | None:
    """A comparison with a literal; None where the value has none that means the same in the scan."""
    text = _literal(value)
    return None if text is None else f"{identifier(column)} {operator} {text}"


def is_one_of(column: str, values: Sequence[Any]) -> str | None:
    listed = [text for value in values if (text := _literal(value)) is not None]
    if not listed or len(listed) < len(values):
        return None
    return f"{identifier(column)} IN ({', '.join(listed)})"


def starts_with(column: str, prefix: Any) -> str | None:
    text = _literal(prefix)
    return None if text is None else f"starts_with({identifier(column)}, {text})"


def all_of(predicates: Sequence[str]) -> str:
    """At least one predicate, each of which has to hold."""
    return " AND ".join(f"({text})" for text in predicates)


def _literal(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return string_literal(value)
    if isinstance(value, int) or (isinstance(value, Decimal) and value == value.to_integral_value()):
        return str(int(value))
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return f"date '{value.isoformat()}'"
    return None
