"""The tables of a bulk run between writing and publishing: what was stored, what came in, what was taken out again.

Each type that a run writes goes through detached versions: the base, the base with all incoming fragments, and one
more whenever rows are taken out. Checks read the newest; only the last one can ever be published.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from omnigraph.engine.bulk.pinned_table import PinnedTable
from omnigraph.engine.bulk.remote_table import RemoteTable
from omnigraph.engine.write.publish import ReadSet, WriteTxn
from omnigraph.language.catalog import Catalog, EdgeType, TableType
from omnigraph.storage.models import ChangeCounts, TableState
from omnigraph.storage.tables import StagedTable
from omnigraph.storage.tables.fragments import FragmentStaging, fragments_of
from omnigraph.storage.tables.staged_files import StagedFiles


@dataclass(frozen=True, slots=True)
class WrittenFragment:
    """A fragment that an executor wrote: which source's rows it holds, from which row on."""

    type_key: str
    source: str
    order: int
    first: int
    rows: int
    json: str

    @property
    def file(self) -> str:
        return str(json.loads(self.json)["files"][0]["path"])


class WrittenFragments:
    """All that executors wrote for the tables of one captured head, and the way to take it back."""

    def __init__(self, txn: WriteTxn) -> None:
        self._paths = {key: state.path for key, state in txn.base.tables.items()}
        self._files = StagedFiles(txn.root.objects)
        self._found: list[WrittenFragment] = []

    def add(self, fragment: WrittenFragment) -> None:
        self._found.append(fragment)
        self._files.add(self._paths[fragment.type_key], fragment.json)

    def by_type(self) -> dict[str, list[WrittenFragment]]:
        """The fragments of each type in input order: ids of fragments then follow the order of the input."""
        found: dict[str, list[WrittenFragment]] = {}
        for fragment in sorted(self._found, key=lambda f: (f.type_key, f.order, f.first)):
            found.setdefault(fragment.type_key, []).append(fragment)
        return found

    def keep(self) -> None:
        """A plan that names them goes to be published: from now on nothing is taken back."""
        self._files.keep()

    def discard(self) -> None:
        """Delete the rows, unless they were kept."""
        self._files.discard()


@dataclass(frozen=True, slots=True)
class IncomingType:
    """One type of the run. `fragments` are the incoming ones by their id in `all_rows` and later versions."""

    type: TableType
    base: TableState
    all_rows: TableState
    current: TableState
    fragments: dict[int, WrittenFragment]
    replaces: bool
    updated: int = 0

    @property
    def key(self) -> str:
        return self.type.type_key

    @property
    def changes(self) -> ChangeCounts:
        if self.replaces:
            return ChangeCounts(inserted=self.current.rows, deleted=self.base.rows)
        return ChangeCounts(inserted=self.current.rows - self.base.rows, updated=self.updated)


def remote_tables(txn: WriteTxn) -> dict[str, RemoteTable]:
    """Every table of the captured head, for executors that write into them."""
    return {key: RemoteTable.of(txn.resources, state) for key, state in txn.base.tables.items()}


class StagedRun:
    """All tables of one attempt against one captured head."""

    def __init__(self, txn: WriteTxn) -> None:
        self.txn = txn
        self.by_key: dict[str, IncomingType] = {}
        self._staging = FragmentStaging(txn.root.reader, txn.root.trace)

    @property
    def catalog(self) -> Catalog:
        return self.txn.snapshot.catalog

    def add(self, type_: TableType, written: Sequence[WrittenFragment], *, replaces: bool) -> None:
        """Stage the fragments of a type, in this order."""
        base = self.txn.state(type_.type_key)
        staged = self._staging.add_fragments(base, [f.json for f in written], replaces=replaces).state
        by_file = {f.file: f for f in written}
        table = self.txn.root.reader.open(staged)
        fragments = {f.id: by_file[f.file] for f in fragments_of(table) if f.file in by_file}
        self.by_key[type_.type_key] = IncomingType(type_, base, staged, staged, fragments, replaces)

    def types(self, kind: str) -> Iterator[IncomingType]:
        return (self.by_key[key] for key in sorted(self.by_key) if key.startswith(f"{kind}:"))

    def fresh_rows(self, key: str) -> PinnedTable:
        """Incoming rows that are still in. Nothing when the run does not write the type."""
        incoming = self.by_key.get(key)
        if incoming is None:
            return self.committed_rows(key).only(lambda _: False)
        return PinnedTable.of(self.txn.resources, incoming.current).only(lambda f: f.id in incoming.fragments)

    def stored_rows(self, key: str) -> PinnedTable:
        """Rows of the captured head. Nothing when the run replaces the type."""
        incoming = self.by_key.get(key)
        replaced = incoming is not None and incoming.replaces
        return self.committed_rows(key).only(lambda _: not replaced)

    def committed_rows(self, key: str) -> PinnedTable:
        """Rows of the captured head, whatever the run does to the type."""
        return PinnedTable.of(self.txn.resources, self.txn.state(key))

    def current(self, key: str) -> RemoteTable:
        """The newest version of a type that the run writes."""
        return RemoteTable.of(self.txn.resources, self.by_key[key].current)

    def without_rows(self, key: str, remaining: Mapping[int, str | None]) -> None:
        """Go on without some rows: fragments as `RemoteTable.without_rows` left them."""
        staged = self._staging.without_rows(self.by_key[key].current, remaining)
        self.replace_current(key, staged.state)

    def replace_current(self, key: str, state: TableState) -> None:
        self.by_key[key] = replace(self.by_key[key], current=state)

    def note_updated(self, key: str, updated: int) -> None:
        self.by_key[key] = replace(self.by_key[key], updated=updated)

    def staged(self) -> dict[str, StagedTable]:
        """What to publish: the newest version of each type."""
        return {key: StagedTable(t.current, t.changes) for key, t in sorted(self.by_key.items())}

    def read_set(self) -> ReadSet:
        """Node tables that endpoints were looked up in, and edges of replaced nodes. Written tables need no mention."""
        edges = [t.type for t in self.types("edge") if isinstance(t.type, EdgeType)]
        nodes = {f"node:{name}" for edge in edges for name in (edge.from_type, edge.to_type)}
        touched = {
            edge.type_key for t in self.types("node") if t.replaces for edge in self.catalog.incident_edges(t.type.name)
        }
        return ReadSet(tables=frozenset((nodes | touched) - self.by_key.keys()))
