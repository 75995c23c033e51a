"""The tables of a bulk run between writing and publishing.

Each type goes through detached versions: the base, the base with all incoming fragments, and one more whenever rows
are taken out. Checks read the newest version, and only the last one can be published. `FrameCommit` checks a single
type in this process with the constraint stage, for a sink that has no data plane to join with.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.api.enums import LoadMode
from omnigraph.engine.bulk.executor import (
    OFFSET_BITS,
    PLACE,
    EntityRecords,
    RemoteTable,
    by_fragment,
    equal_rows_at,
    row_ids_at,
)
from omnigraph.engine.bulk.scan_plans import PinnedTable
from omnigraph.engine.rows.columns import column_of, table_schema
from omnigraph.engine.workspace import Workspace
from omnigraph.engine.write.change import GraphChange, TypeChange
from omnigraph.engine.write.constraints import FinalImage, check_constraints, refuse_repeated_ids, taken_id
from omnigraph.engine.write.publish import PublishPlan, ReadSet, WriteTxn
from omnigraph.errors import ResourceLimitError
from omnigraph.language.catalog import Catalog, EdgeType, TableType
from omnigraph.storage.location import Location
from omnigraph.storage.models import IDEMPOTENCY_WINDOW, ChangeCounts, LogEntry, TableState
from omnigraph.storage.root import GraphRoot
from omnigraph.storage.tables.files import StagedFiles
from omnigraph.storage.tables.fragments import FragmentStaging, delete_rows, fragments_of, scan_fragments
from omnigraph.storage.tables.rows import ROW_ADDRESS, row_ids_of
from omnigraph.storage.tables.staging import StagedTable


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
        by_key: dict[str, list[WrittenFragment]] = {}
        for fragment in sorted(self._found, key=lambda f: (f.type_key, f.order, f.first)):
            by_key.setdefault(fragment.type_key, []).append(fragment)
        return by_key

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
    unchanged: int = 0
    nulled: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return self.type.type_key

    @property
    def changes(self) -> ChangeCounts:
        if self.replaces:
            return ChangeCounts(inserted=self.current.rows, deleted=self.base.rows)
        return ChangeCounts(inserted=self.current.rows - self.base.rows, updated=self.updated)


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
        """Go on without some rows: fragments as `delete_rows` left them."""
        self.replace_current(key, self._staging.without_rows(self.by_key[key].current, remaining).state)

    def replace_current(self, key: str, state: TableState) -> None:
        self.by_key[key] = replace(self.by_key[key], current=state)

    def note_updated(self, key: str, updated: int) -> None:
        self.by_key[key] = replace(self.by_key[key], updated=updated)

    def note_unchanged(self, key: str, unchanged: int, nulled: Iterable[str]) -> None:
        """How many incoming rows were stored already, and the properties that stored entities lose."""
        self.by_key[key] = replace(self.by_key[key], unchanged=unchanged, nulled=tuple(sorted(nulled)))

    def newest_versions(self) -> dict[str, StagedTable]:
        """What to publish: the newest version of each type, unless all of its rows were stored already."""
        types = {key: t for key, t in sorted(self.by_key.items()) if not t.unchanged or t.changes != ChangeCounts()}
        return {key: StagedTable(t.current, t.changes) for key, t in types.items()}

    def read_set(self) -> ReadSet:
        """Node tables that endpoints were looked up in, and edges of replaced nodes. Written tables need no mention."""
        edges = [t.type for t in self.types("edge") if isinstance(t.type, EdgeType)]
        nodes = {f"node:{name}" for edge in edges for end in edge.ends for name in end.types}
        replaced = [t.type.name for t in self.types("node") if t.replaces]
        touched = {edge.type_key for name in replaced for edge in self.catalog.incident_edges(name)}
        return ReadSet(tables=frozenset((nodes | touched | self.by_key.keys()) - self.newest_versions().keys()))


def last_number(txn: WriteTxn, prefix: str) -> int | None:
    """The highest number that a run key with this prefix ended in, however many commits came after it. Every log entry
    remembers the last keys of its branch, and the oldest of them leads to an entry that remembers older ones. Numbers
    are committed in order, so the first one with the prefix decides."""
    entry = txn.base
    while True:
        for record in reversed(entry.recent_keys):
            if record.key.startswith(prefix):
                return int(record.key.removeprefix(prefix))
        if len(entry.recent_keys) < IDEMPOTENCY_WINDOW:
            return None
        address = txn.ref.locate(entry.recent_keys[0].version)
        older = txn.root.log.entry(address.branch_id, address.version)
        if not isinstance(older, LogEntry) or older.commit.id == entry.commit.id:
            return None
        entry = older


@dataclass(frozen=True, slots=True)
class GraphAddress:
    """Plain data for tasks and committing processes. The options of the store may hold credentials."""

    location: Location

    @classmethod
    def of(cls, uri: str) -> GraphAddress:
        return cls(Location.parse(uri))

    def open(self) -> closing[Workspace]:
        """The graph, open for as long as the block runs."""
        return closing(Workspace(GraphRoot.open(self.location)))


@dataclass(frozen=True, slots=True)
class FrameCommit:
    """Fragments of one type, in input order, as `write_new_fragments` made them."""

    type: TableType
    mode: LoadMode
    fragments: Sequence[str]

    def prepare(self, txn: WriteTxn) -> PublishPlan | None:
        """The plan; None for a merge of rows that are all stored as they are."""
        mode, key, limit = self.mode, self.type.type_key, txn.resources.limits.rows
        replaces = mode is LoadMode.OVERWRITE
        base, staging = txn.state(key), FragmentStaging(txn.root.reader, txn.root.trace)
        staged = staging.add_fragments(base, self.fragments, replaces=replaces).state
        base_files = set() if replaces else {f.file for f in fragments_of(txn.root.reader.open(base))}
        incoming = PinnedTable.of(txn.resources, staged).only(lambda fragment: fragment.file not in base_files)
        if incoming.rows > limit:
            remedy = "use omnigraph.pipeline.write_frame, which has no such limit"
            raise ResourceLimitError("rows of one DataFrame write", limit, incoming.rows, remedy)
        rows = _row_indices(incoming, self.type)
        superseded: list[int] = []
        if mode is LoadMode.MERGE:
            rows, superseded = _last_per_id(rows)
        change = TypeChange(self.type, rows, replaces=replaces, fresh=mode is LoadMode.APPEND)
        read_set = check_constraints(FinalImage(txn, GraphChange.of(change)), [change])
        if mode is not LoadMode.MERGE:
            refuse_repeated_ids(key, rows.column("id"))
        replaced: list[int] = []
        unchanged = 0
        if not replaces:
            table = txn.root.reader.open(base)
            stored = table.rows_among("id", rows.column("id").to_pylist(), ["id", ROW_ADDRESS], row_ids=True)
            if stored.num_rows and mode is LoadMode.APPEND:
                raise taken_id(key, min(stored.column("id").to_pylist()))
            places = rows.column(PLACE).take(pc.index_in(stored.column("id"), value_set=rows.column("id"))).to_numpy()
            same = self._equal_rows(txn, staged, places, stored)
            superseded += places[same].tolist()
            unchanged = int(same.sum())
            if unchanged == rows.num_rows:
                return None
            replaced = stored.column(ROW_ADDRESS).filter(pa.array(~same)).to_pylist()
        gone = by_fragment([*superseded, *replaced])
        remaining = {fragment: delete_rows(incoming.remote, fragment, offsets) for fragment, offsets in gone.items()}
        final = staging.without_rows(staged, remaining)
        updated, deleted = len(replaced), base.rows if replaces else 0
        counts = ChangeCounts(inserted=rows.num_rows - updated - unchanged, updated=updated, deleted=deleted)
        return PublishPlan(staged={key: StagedTable(final.state, counts)}, read_set=read_set)

    def _equal_rows(
        self, txn: WriteTxn, staged: TableState, places: NDArray[np.int64], stored: pa.Table
    ) -> NDArray[np.bool_]:
        """Which incoming rows, by their places, say what the stored rows of the same ids say."""
        new = EntityRecords.of(txn.snapshot, self.type, staged)
        row_ids = np.empty(len(places), np.int64)
        for fragment in by_fragment(places.tolist()):
            here = places >> OFFSET_BITS == fragment
            row_ids[here] = row_ids_at(new, fragment, places[here])
        return equal_rows_at(new, row_ids, EntityRecords.of(txn.snapshot, self.type), row_ids_of(stored))


def _row_indices(incoming: PinnedTable, type_: TableType) -> pa.Table:
    """The columns that constraints need, with the address of each row."""
    members = {name for rule in (*type_.uniques, type_.key) for name in rule}
    columns = [*type_.system_columns, *(column_of(type_, name) or name for name in sorted(members))]
    wanted = list(dict.fromkeys(columns))
    batches = scan_fragments(incoming.remote, incoming.fragment_ids, wanted, addresses=PLACE)
    if incoming.fragments and (rows := list(batches)):
        return pa.Table.from_batches(rows)
    schema = table_schema(type_)
    return pa.schema([*(schema.field(name) for name in wanted), pa.field(PLACE, pa.int64())]).empty_table()


def _last_per_id(rows: pa.Table) -> tuple[pa.Table, list[int]]:
    """The last row of every id, and the addresses of the others."""
    numbered = rows.append_column("#", pa.array(range(rows.num_rows), pa.int64()))
    last = numbered.group_by("id").aggregate([("#", "max")]).column("#_max").combine_chunks()
    if len(last) == rows.num_rows:
        return rows, []
    kept = pc.is_in(numbered.column("#"), value_set=last)
    return rows.filter(kept), rows.filter(pc.invert(kept)).column(PLACE).to_pylist()
