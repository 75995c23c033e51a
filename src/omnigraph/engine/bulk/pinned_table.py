"""What a driver plans the reading of a table version with: its fragments, its schema, and how executors reach it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.engine.bulk.remote_table import RemoteTable
from omnigraph.storage.tables.fragments import FragmentSummary, fragments_of
from omnigraph.storage.tables.input_datasets import pinned_dataset

if TYPE_CHECKING:
    # Executors import this module, and have no use for an open graph.
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


@dataclass(frozen=True, slots=True)
class ForeignDataset:
    """A Lance dataset that belongs to no graph. `digest` names its files: one made anew there has another."""

    table: PinnedTable
    digest: str


def foreign_dataset(uri: str, version: int | None, options: Mapping[str, str]) -> ForeignDataset:
    """The dataset at a path or URI, at `version` or the newest there is. `options` add to those of the environment."""
    found = pinned_dataset(uri, version, options)
    remote = RemoteTable(found.uri, found.version, found.options)
    return ForeignDataset(PinnedTable(remote, found.fragments, found.schema), found.digest)
