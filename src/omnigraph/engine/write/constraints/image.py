"""The graph as a change would leave it: the change applied to the pinned snapshot, read only where a rule needs rows.

Every read is recorded in the read set. Tables that the change writes are left out of it: the publish machine compares
those as a whole anyway.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.write.author_sight import AuthorSight
from omnigraph.engine.write.change import GraphChange
from omnigraph.engine.write.publish import ReadSet, WriteTxn
from omnigraph.language.catalog import Catalog

Among: TypeAlias = tuple[str, Collection[str | int]]
"""A column and the values of it that matter."""


class FinalImage:
    """One change applied to one snapshot. Not shared between threads, except for the probes it starts itself."""

    def __init__(self, txn: WriteTxn, change: GraphChange) -> None:
        self.snapshot = txn.snapshot
        self._sight = AuthorSight(txn)
        self.change = change
        self._workers = txn.root.workers
        self._tables: set[str] = set()
        self._present: defaultdict[str, set[str]] = defaultdict(set)

    @property
    def catalog(self) -> Catalog:
        return self.snapshot.catalog

    def read_set(self) -> ReadSet:
        written = self.change.by_type.keys()
        return ReadSet(
            tables=frozenset(self._tables - written),
            present={key: frozenset(ids) for key, ids in sorted(self._present.items()) if key not in written},
        )

    def survivors(self, type_key: str, columns: Sequence[str], among: Among | None = None) -> pa.Table:
        """Committed rows that the change neither replaces nor removes; `among` narrows them to values of a column."""
        change = self.change.by_type.get(type_key)
        if change is not None and change.replaces:
            return self.committed(type_key, columns, ("id", ()))
        rows = self.committed(type_key, columns, among)
        if change is None or not rows.num_rows:
            return rows
        ids = rows.column("id")
        return rows.filter(pc.invert(pc.or_(change.writes(ids), change.removes(ids))))

    def committed(self, type_key: str, columns: Sequence[str], among: Among | None = None) -> pa.Table:
        """Rows of the snapshot as they are before the change."""
        self._tables.add(type_key)
        table = self.snapshot.table(type_key)
        return table.read(columns) if among is None else table.rows_among(*among, columns)

    def missing_nodes(self, wanted: Mapping[str, pa.Array]) -> dict[str, set[str]]:
        """Per node type, the ids that no node of the final image has. All types are probed at the same time."""
        missing: dict[str, set[str]] = {}
        uncertain: dict[str, set[str]] = {}
        for name, ids in wanted.items():
            change = self.change.of_node(name)
            if change is None:
                missing[name], uncertain[name] = set(), set(ids.to_pylist())
                continue
            unwritten = ids.filter(pc.invert(change.writes(ids)))
            gone = pa.array([True] * len(unwritten), pa.bool_()) if change.replaces else change.removes(unwritten)
            missing[name] = set(unwritten.filter(gone).to_pylist())
            uncertain[name] = set(unwritten.filter(pc.invert(gone)).to_pylist())
        for name, found in self._existing(uncertain).items():
            missing[name] |= uncertain[name] - found
        return missing

    def disappeared(self, name: str) -> set[str]:
        """Ids of a node type that are committed and not in the final image."""
        change = self.change.of_node(name)
        if change is None:
            return set()
        if not change.replaces:
            return set(change.deleted)
        committed = self.committed(change.type_key, ["id"]).column("id")
        return set(committed.filter(pc.invert(change.writes(committed))).to_pylist())

    def _existing(self, by_name: Mapping[str, set[str]]) -> dict[str, set[str]]:
        probes = {}
        for name, ids in by_name.items():
            if ids:
                self._present[f"node:{name}"] |= ids
                probes[name] = self._workers.submit(self._probe, f"node:{name}", ids)
        return {name: probe.result() for name, probe in probes.items()}

    def _probe(self, type_key: str, ids: set[str]) -> set[str]:
        """Those of some ids that exist for the author: an edge to a node that is not seen ends nowhere."""
        if self._sight.is_open:
            return self.snapshot.table(type_key).existing_ids(ids)
        return self._sight.seen_among(self.catalog.nodes[type_key.partition(":")[2]], sorted(ids))
