"""`omnigraph.Snapshot`: a pinned state of the whole graph that can be read.

What `Graph.at` and `Graph.snapshot` return: the engine's snapshot, with the reads of the engine within reach. It keeps
the settings of the handle it came from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from omnigraph.api.branches import SnapshotListing
from omnigraph.api.enums import PolicyAction
from omnigraph.api.queries import OperatorProfile, ReadPoint
from omnigraph.api.values import plain_id
from omnigraph.engine.export import export_text
from omnigraph.engine.query.read import (
    DEFAULT_OPTIONS,
    ReadOptions,
    explain_query,
    profile_query,
    run_query,
    stream_query,
)
from omnigraph.engine.query.result import QueryResult, QueryStream
from omnigraph.engine.query.visibility import count_entities, listing, read_entity
from omnigraph.engine.snapshot import Snapshot as PinnedState
from omnigraph.sources import Query, call

_SHOWN: Final = (
    *("branch", "version", "commit_id"),
    *("query", "stream", "explain", "profile", "entity", "count", "listing", "export"),
)


class Snapshot(PinnedState):
    """A state that never changes, for as long as cleanup keeps it: `branch`, `version` and `commit_id` say which."""

    def query(
        self,
        source: str | Query,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        options: ReadOptions | None = None,
        **parameters: Any,
    ) -> QueryResult:
        """Run a read query on this state; see `Graph.query`."""
        asked = call(source, name, params, parameters, {"options": options})
        return run_query(self, self._target, asked, options or DEFAULT_OPTIONS)

    def stream(
        self,
        source: str | Query,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        options: ReadOptions | None = None,
        **parameters: Any,
    ) -> QueryStream:
        """As `query`, a batch at a time: for results that should not be in memory at once."""
        asked = call(source, name, params, parameters, {"options": options})
        return stream_query(self, self._target, asked, options or DEFAULT_OPTIONS)

    def profile(
        self,
        source: str | Query,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        **parameters: Any,
    ) -> OperatorProfile:
        """Run a read query, drop its rows and tell what each operator did."""
        return profile_query(self, call(source, name, params, parameters, {}))

    def explain(
        self,
        source: str | Query,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        **parameters: Any,
    ) -> list[str]:
        """The plan of a read query as lines of an indented tree. Nothing is run."""
        return explain_query(self, call(source, name, params, parameters, {}))

    def entity(self, type_name: str, entity_id: str) -> dict[str, Any] | None:
        """One node or edge in export form, by its type (`Book`, or `node:Book`) and id; None when it is not there."""
        return read_entity(self, self.catalog.type_named(type_name), plain_id(entity_id))

    def count(self, type_name: str, filter: str | None = None) -> int:
        """How many entities of a type there are. A filter is about stored columns: it takes a reader who sees all."""
        if type_name in self.entry.tables and self.visibility.is_unrestricted:
            return super().count(type_name, filter)
        type_ = self.catalog.type_named(type_name)
        return count_entities(self, type_) if filter is None else super().count(type_.type_key, filter)

    def listing(self) -> SnapshotListing:
        """The tables of this state with their versions, and how many entities each has."""
        return listing(self)

    def export(self, types: Collection[str] = (), *, epoch: bool = False) -> Iterator[str]:
        """The lines of an export, each with its line end. They can be loaded as they are. Dates and times are texts of
        ISO 8601; with `epoch`, days and milliseconds since 1970."""
        return export_text(self.acting(PolicyAction.EXPORT), types, epoch=epoch)

    def __dir__(self) -> list[str]:
        """What completion shows: how it is read, and not how it is stored."""
        return [*_SHOWN, *(name for name in super().__dir__() if name.startswith("__"))]

    def __repr__(self) -> str:
        return f"<snapshot of {self.root.location.uri}: branch '{self.branch}', version {self.version}>"

    @property
    def _target(self) -> ReadPoint:
        return ReadPoint(snapshot=self.commit_id)
