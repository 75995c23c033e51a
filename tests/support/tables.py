"""Small graphs of plain tables, for tests of the storage core that need no schema language."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa

from omnigraph import Graph
from omnigraph.engine.workspace import Workspace
from omnigraph.engine.write.publish import Intent, PublishedCommit, PublishPlan, ReadSet, WriteTxn
from omnigraph.storage.creation import create_root
from omnigraph.storage.location import Location
from omnigraph.storage.log.tracing import Trace

NODE = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("n", pa.int64())])
EDGE = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("id", "src", "dst")])
PEOPLE, PLACES, KNOWS = "node:Person", "node:Place", "edge:Knows"


def create_graph(
    uri: str | Path, tables: Mapping[str, pa.Schema], *, force: bool = False, trace: Trace | None = None
) -> Graph:
    return Graph(Workspace(create_root(Location.parse(uri), tables, force=force, trace=trace)))


def new_graph(uri: str, extra_tables: int = 0, trace: Trace | None = None) -> Graph:
    tables = {PEOPLE: NODE, PLACES: NODE, KNOWS: EDGE}
    tables |= {f"node:Extra{i}": NODE for i in range(extra_tables)}
    return create_graph(uri, tables, trace=trace)


def nodes(rows: Mapping[str, int]) -> pa.Table:
    return pa.table({"id": list(rows), "n": list(rows.values())}, schema=NODE)


def edges(rows: Iterable[tuple[str, str, str]]) -> pa.Table:
    return pa.Table.from_pylist([{"id": i, "src": s, "dst": d} for i, s, d in rows], schema=EDGE)


def append(graph: Graph, rows: Mapping[str, pa.Table], branch: str = "main", **intent: str) -> PublishedCommit:
    """One commit that appends to one or more tables; prepared again whenever it loses a race."""

    def prepare(txn: WriteTxn) -> PublishPlan:
        staging = txn.root.staging
        return PublishPlan(txn.stage({k: lambda state, t=t: staging.append(state, t) for k, t in rows.items()}))

    published = graph._workspace.commit(branch, prepare, Intent(kind="load", **intent))  # type: ignore[arg-type]
    assert published is not None
    return published


def append_one(graph: Graph, entity_id: str, branch: str = "main", **intent: str) -> PublishedCommit:
    return append(graph, {PEOPLE: nodes({entity_id: 1})}, branch, **intent)


def upsert(graph: Graph, type_key: str, rows: pa.Table, branch: str = "main", strict: bool = False) -> PublishedCommit:
    def prepare(txn: WriteTxn) -> PublishPlan:
        return PublishPlan(txn.stage({type_key: lambda state: txn.root.staging.upsert(state, rows)}))

    published = graph._workspace.commit(branch, prepare, Intent(kind="load"), strict=strict)
    assert published is not None
    return published


def connect(graph: Graph, edge_id: str, source: str, target: str, branch: str = "main") -> PublishedCommit | None:
    """Insert an edge whose endpoints were seen to exist; None when one does not."""

    def prepare(txn: WriteTxn) -> PublishPlan | None:
        wanted = frozenset({source, target})
        if txn.snapshot.table(PEOPLE).existing_ids(wanted) != wanted:
            return None
        row = edges([(edge_id, source, target)])
        staged = txn.stage({KNOWS: lambda state: txn.root.staging.append(state, row)})
        return PublishPlan(staged, ReadSet(present={PEOPLE: wanted}))

    txn = graph._workspace.begin(branch, Intent(kind="mutate"))
    plan = prepare(txn)
    return None if plan is None else graph._workspace.publish(txn, plan)


def remove_person(graph: Graph, entity_id: str, branch: str = "main") -> PublishedCommit | None:
    """Delete a person nobody knows; None when an edge still touches them."""
    txn = graph._workspace.begin(branch, Intent(kind="mutate"))
    touching = f"src = '{entity_id}' OR dst = '{entity_id}'"
    if txn.snapshot.count(KNOWS, touching):
        return None
    staged = txn.stage({PEOPLE: lambda state: txn.root.staging.delete(state, [entity_id])})
    return graph._workspace.publish(txn, PublishPlan(staged, ReadSet(tables=frozenset({KNOWS}))))


def ids(graph: Graph, type_key: str = PEOPLE, branch: str = "main") -> list[str]:
    return sorted(graph.snapshot(branch).scan(type_key, ["id"]).column("id").to_pylist())
