"""A snapshot: one log entry of the graph, with tables opened when first touched.

Every operation that only reads takes one and finds the settings of its handle in it. A snapshot never mixes versions
and never changes; it reads the same rows for as long as cleanup keeps its versions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Final, Self

from omnigraph.api.enums import PolicyAction
from omnigraph.engine.history import log_walk
from omnigraph.engine.resources import Resources, restricted_error
from omnigraph.errors import BadRequestError, IntegrityError
from omnigraph.language.catalog import Catalog, TableType
from omnigraph.language.query.row_filter import Visibility
from omnigraph.storage.models import FORMAT_VERSION, LogEntry, SchemaDocument, TableState
from omnigraph.storage.root import GraphRoot

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph.storage.tables import Table

_WORD: Final = re.compile(r"\w+")
_OPENED_AHEAD: Final = 8

INTERNAL_SCHEMA_VERSION: Final = FORMAT_VERSION
"""The storage format as servers report it."""


class Snapshot:
    def __init__(
        self,
        resources: Resources,
        branch: str,
        entry: LogEntry,
        visibility: Visibility | None = None,
        governed_by: str | None = None,
    ) -> None:
        """Without a visibility of its own, a snapshot has that of its handle. `governed_by` is the branch whose rules
        hold for it, if that is another one. The unbound visibility is passed on to other snapshots: bound to one
        schema, it would lose the parts that this schema lacks."""
        self.resources = resources
        self.branch = branch
        self.entry = entry
        self.governed_by = branch if governed_by is None else governed_by
        self.unbound_visibility = visibility

    @cached_property
    def visibility(self) -> Visibility:
        """The visibility of this snapshot, bound to its own schema. Queries, entities and exports apply it."""
        visibility = self._visibility
        return visibility if visibility.is_unrestricted else visibility.on(self.catalog)

    @cached_property
    def rule_visibility(self) -> Visibility:
        """As `visibility`, by nothing but the rules: what they can't name, because it was dropped since, is not
        restricted. For the schema of this snapshot; its rows are read by `visibility`."""
        visibility = self._visibility
        return visibility if visibility.is_unrestricted else replace(visibility, schema=None).on(self.catalog)

    @property
    def visibility_digest(self) -> str:
        """Equal for readers who see the same of every state."""
        return self._visibility.digest

    @property
    def _visibility(self) -> Visibility:
        return self.resources.visibility if self.unbound_visibility is None else self.unbound_visibility

    @property
    def commit_id(self) -> str:
        """The commit that made this state."""
        return self.entry.commit.id

    @property
    def version(self) -> int:
        """The version of the graph on its branch."""
        return self.entry.version

    @property
    def schema_document(self) -> SchemaDocument:
        return self.root.schema(self.entry.schema)

    @property
    def catalog(self) -> Catalog:
        """The compiled schema of this state."""
        return self.root.catalog(self.entry.schema)

    @property
    def root(self) -> GraphRoot:
        return self.resources.root

    def at(self, entry: LogEntry) -> Snapshot:
        """Another state of the same graph, read with the same settings."""
        return Snapshot(self.resources, entry.branch, entry, self.unbound_visibility, self.governed_by)

    def restricted_to(self, visibility: Visibility) -> Self:
        """This snapshot under a visibility, which may have been made for another schema of the graph."""
        return type(self)(self.resources, self.branch, self.entry, visibility, self.governed_by)

    def for_action(self, action: PolicyAction) -> Self:
        """This state for something else than reading it, if the actor of its handle may do that."""
        if self.resources.caller is None:
            return self
        return self.restricted_to(self.resources.for_action(action, self.governed_by).visibility)

    def types(self) -> list[str]:
        """Type keys, edges before nodes."""
        return sorted(self.entry.tables)

    def types_by_key(self) -> dict[str, TableType]:
        """The type of every table, by its type key."""
        types = {}
        for type_key in self.entry.tables:
            if (type_ := self.catalog.type_of_key(type_key)) is None:
                raise IntegrityError(f"schemas/{self.entry.schema}.json", f"has no type for the table {type_key}")
            types[type_key] = type_
        return types

    def table(self, type_key: str) -> Table:
        return self.root.reader.open_to_read(self._state(type_key))

    def _state(self, type_key: str) -> TableState:
        state = self.entry.tables.get(type_key)
        if state is None:
            raise BadRequestError(f"type '{type_key}' does not exist at this snapshot (commit {self.commit_id})")
        return state

    def table_of(self, type_: TableType) -> Table:
        return self.root.reader.open_to_read(self.state_of(type_))

    def state_of(self, type_: TableType) -> TableState:
        """The table of a catalog type, found by identity: a later rename still finds the data of its type."""
        own: Mapping[str, TableType] = self.catalog.nodes if type_.kind == "node" else self.catalog.edges
        same = own.get(type_.name)
        if same is None or same.id != type_.id:
            same = next((t for t in own.values() if t.id == type_.id), None)
        if same is None:
            raise BadRequestError(f"type '{type_.type_key}' does not exist at this snapshot (commit {self.commit_id})")
        return self._state(same.type_key)

    def open_ahead(self, text: str) -> None:
        """Open the tables of the node types that the text of a query names, while its schema is being read. For a store
        behind a network: the query then waits for all of them at once. What fails here fails again where it counts."""
        if self.root.location.is_local:
            return
        words = set(_WORD.findall(text))
        named = (key for key in self.entry.tables if key.startswith("node:") and key.removeprefix("node:") in words)
        for type_key in islice(named, _OPENED_AHEAD):
            self.root.in_background(partial(self.root.reader.open_to_read, self.entry.tables[type_key]))

    def count(self, type_key: str, filter: str | None = None) -> int:
        """The number of rows is in the log; only those of a filter are counted in the table."""
        self.refuse_restricted("counting rows of a table")
        return self._state(type_key).rows if filter is None else self.table(type_key).count(filter)

    def scan(self, type_key: str, columns: Sequence[str] | None = None, filter: str | None = None) -> pa.Table:
        self.refuse_restricted("reading a table as it is stored")
        return self.table(type_key).read(columns, filter=filter)

    def table_versions(self) -> dict[str, int]:
        """By type key, the version of the graph in which each table last changed on this line of history."""
        return log_walk.table_versions(self.root, self.branch, self.entry)

    def refuse_restricted(self, what: str) -> None:
        """For reads that are about everything there is."""
        if not self.visibility.is_unrestricted:
            raise restricted_error(what)

    def requests(self) -> int:
        """Read requests that this process has sent to the store for this graph so far."""
        control = self.root.objects.counts
        return control.get("get", 0) + control.get("list", 0) + self.root.reader.requests()
