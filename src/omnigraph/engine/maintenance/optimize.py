"""Optimize: compaction and complete indexes for the tables of a branch, as one commit that changes no content.

Files are written without the lock of the branch. If writers moved the branch on, the finished work is replayed on the
new head; only work that a writer made void is done again, a few times, and then left for the next run.
`ensure_indices` skips the compaction. `refresh_topologies` renews stored topologies that were used. Nothing is
deleted here: earlier versions keep their files until cleanup.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Final

from omnigraph.api.maintenance import OptimizeReport, PendingIndex, PendingProperty, TableOptimized
from omnigraph.engine.maintenance.declared_indexes import declared_indexes, pending_properties, table_types
from omnigraph.engine.maintenance.vector_recall import measure_recall
from omnigraph.engine.observers import Progress, Tally
from omnigraph.engine.query.traversal.topology import PROCESS_TOPOLOGIES, Shape, TopologyKey, shape_of
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.workspace import Workspace
from omnigraph.engine.write.publish import Intent, PublishedCommit, PublishPlan, WriteTxn, receipt_of
from omnigraph.errors import BadRequestError, ReadSetChangedError
from omnigraph.language.catalog import TableType
from omnigraph.language.source import did_you_mean
from omnigraph.storage.models import TableState
from omnigraph.storage.tables.maintenance import MaintenanceWork
from omnigraph.storage.topology import TopologyFiles

KEPT_BUILDS: Final = 2
"""Per edge table and shape: the newest, and one that a reader of another branch may still derive from."""


_FEWEST_EDGES: Final = 10_000
_BYTES_PER_EDGE: Final = 24
"""Of a topology, both ways and with its nodes."""
_MOST_PAIRS: Final = 4


def refresh_topologies(snapshot: Snapshot, *, makes_new: bool = False) -> None:
    """Build what is stored for earlier versions at the versions of this snapshot, and drop old builds. With `makes_new`
    also build, for edge types of some size, what nobody has needed yet: it takes less than their indexes, and the first
    traversal of every process then finds it."""
    root = snapshot.root
    files = TopologyFiles(root.objects)
    tables = snapshot.entry.tables
    for edge in snapshot.catalog.edges.values():
        state = tables[edge.type_key]
        pairs = {
            (tables[f"node:{source}"].table_id, tables[f"node:{target}"].table_id): (source, target)
            for source, target in product(edge.source_types, edge.target_types)
        }
        builds: dict[tuple[Shape, tuple[str, str]], list[str]] = {}
        for folder in files.folders(state.table_id):
            # A build of an earlier version was used too, and is made again.
            pair = _pair_of(folder, files, pairs)
            if pair is not None:
                builds.setdefault((shape_of(folder), pair), []).append(folder)
        if makes_new and _is_worth_building(state, len(pairs)):
            for pair in pairs.values():
                builds.setdefault((Shape.NEIGHBOURS, pair), [])
        for (shape, pair), folders in builds.items():
            ends = tables[f"node:{pair[0]}"], tables[f"node:{pair[1]}"]
            key = TopologyKey.of(root.identity.graph_id, shape, edge, pair, (state, *ends))
            PROCESS_TOPOLOGIES.store(root, key)
            outdated = [folder for folder in folders if folder != key.folder]
            for folder in outdated[KEPT_BUILDS - 1 :]:
                files.remove(folder)


def _is_worth_building(edges: TableState, pairs: int) -> bool:
    fits = edges.rows * _BYTES_PER_EDGE <= PROCESS_TOPOLOGIES.limit
    return fits and edges.rows >= _FEWEST_EDGES and pairs <= _MOST_PAIRS


def _pair_of(
    folder: str, files: TopologyFiles, pairs: Mapping[tuple[str, str], tuple[str, str]]
) -> tuple[str, str] | None:
    """The node types that a stored build is about, by the ids of their tables. One that can't be read, perhaps of
    another release, is about the only pair that there is."""
    if len(pairs) == 1:
        return next(iter(pairs.values()))
    description = files.describe(folder)
    return None if description is None else pairs.get((description.sources.table_id, description.targets.table_id))


_TABLES_AT_ONCE: Final = 4
_ROUNDS: Final = 6


def optimize(
    workspace: Workspace,
    branch: str,
    *,
    types: Collection[str] | None = None,
    actor: str | None = None,
    progress: Progress | None = None,
) -> OptimizeReport:
    """Compact every table of a branch, or those of some type keys; then renew the topologies that readers use. With all
    tables, have one for every edge type that is worth it."""
    intent = Intent(kind="optimize", actor=actor)
    report = _Optimization(workspace, branch, intent, types, progress, compacts=True).run()
    refresh_topologies(workspace.snapshot(branch), makes_new=types is None)
    return report


def ensure_indices(workspace: Workspace, branch: str, *, actor: str | None = None) -> list[PendingProperty]:
    """Build what is declared and buildable; returns what has to wait, with the reason."""
    intent = Intent(kind="ensure_indices", actor=actor)
    rows = _Optimization(workspace, branch, intent, None, None, compacts=False).run().datasets
    return [PendingProperty(row.type_key, each.property, each.reason) for row in rows for each in row.pending_indexes]


class _WorkVoidError(Exception):
    """A writer changed what finished work rests on; raised through the publish machine, which then does nothing."""


@dataclass
class _Optimization:
    """One run over all its rounds. Finished work is kept by type key, on whatever version it was done."""

    workspace: Workspace
    branch: str
    intent: Intent
    only: Collection[str] | None
    progress: Progress | None
    compacts: bool

    def run(self) -> OptimizeReport:
        works: dict[str, MaintenanceWork] = {}
        for last in (False,) * (_ROUNDS - 1) + (True,):
            txn = self.workspace.begin(self.branch, self.intent)
            types = self._types(txn)
            works = self._round(txn, types, works)
            if not any(work.changed for work in works.values()):
                break
            again = partial(_replay, works, txn.base.schema, last)
            try:
                published = self.workspace.publish(txn, _plan_of(works), again)
            except (_WorkVoidError, ReadSetChangedError):
                continue
            return self._report(types, works, published)
        return self._report(types, works, None)

    def _types(self, txn: WriteTxn) -> dict[str, TableType]:
        declared = table_types(txn.snapshot.catalog)
        if self.only is None:
            return declared
        if unknown := sorted(set(self.only) - declared.keys()):
            hint = did_you_mean(unknown[0], declared) or "write node:<Type> or edge:<Type>"
            raise BadRequestError(f"unknown type '{unknown[0]}'; {hint}")
        return {key: type_ for key, type_ in declared.items() if key in self.only}

    def _round(
        self, txn: WriteTxn, types: Mapping[str, TableType], finished: Mapping[str, MaintenanceWork]
    ) -> dict[str, MaintenanceWork]:
        """Work for every table on the captured head, finished work replayed where that is possible."""
        maintenance, tally = txn.root.table_maintenance, Tally(self.progress, "tables", len(types))

        def work(item: tuple[str, TableType]) -> MaintenanceWork:
            type_key, type_ = item
            state, before = txn.base.tables[type_key], finished.get(type_key)
            optimized = maintenance.replay(before, state) if before is not None else None
            if optimized is None:
                act = maintenance.optimize if self.compacts else maintenance.index_only
                specs = declared_indexes(type_)
                optimized = measure_recall(txn.root, act(state, specs), specs)
            tally.add(what=type_key)
            return optimized

        with ThreadPoolExecutor(_TABLES_AT_ONCE, thread_name_prefix="omnigraph-maintenance") as workers:
            return dict(zip(types, workers.map(work, types.items()), strict=True))

    def _report(
        self, types: Mapping[str, TableType], works: Mapping[str, MaintenanceWork], published: PublishedCommit | None
    ) -> OptimizeReport:
        tables = {} if published is None else published.entry.tables
        rows = [
            TableOptimized(
                type_key=key,
                fragments_removed=work.fragments_removed,
                fragments_added=work.fragments_added,
                committed=work.changed and tables.get(key) == work.staged.state,
                pending_indexes=tuple(
                    PendingIndex(each.property, each.reason) for each in pending_properties(types[key], work.pending)
                ),
            )
            for key, work in works.items()
        ]
        commit = None if published is None else receipt_of(published.entry)
        return OptimizeReport.of(self.workspace.uri, self.branch, tuple(rows), commit)


def _plan_of(works: Mapping[str, MaintenanceWork]) -> PublishPlan:
    return PublishPlan({key: work.staged for key, work in works.items() if work.changed})


def _replay(works: dict[str, MaintenanceWork], schema: str, gives_up: bool, txn: WriteTxn) -> PublishPlan:
    """The branch moved: replay. In the last round, what can't be replayed is left out; else it is done again."""
    if txn.base.schema != schema:
        raise _WorkVoidError
    for key, work in [(key, work) for key, work in works.items() if work.changed]:
        replayed = txn.root.table_maintenance.replay(work, txn.base.tables[key])
        if replayed is None and not gives_up:
            raise _WorkVoidError
        works[key] = replayed or MaintenanceWork(work.base, work.staged, pending=work.pending)
    if not any(work.changed for work in works.values()):
        raise _WorkVoidError
    return _plan_of(works)
