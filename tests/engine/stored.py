"""What a graph holds, as plain values: the shortest way for a test to say what it expects."""

from __future__ import annotations

from typing import Any

from omnigraph import Graph
from omnigraph.engine.snapshot import Snapshot
from tests.support.lance_tables import lance_of


def rows(graph: Graph, type_key: str, branch: str = "main") -> dict[str, dict[str, Any]]:
    """The entities of one type by id, properties by column; blobs as bytes, URI text or None."""
    return rows_at(graph.snapshot(branch), type_key)


def rows_at(snapshot: Snapshot, type_key: str) -> dict[str, dict[str, Any]]:
    table = snapshot.table(type_key)
    kind, _, name = type_key.partition(":")
    types = snapshot.catalog.nodes if kind == "node" else snapshot.catalog.edges
    blobs = [prop.column for prop in types[name].property_list if prop.type.is_blob]
    read = table.read(row_ids=True).to_pylist()
    for column in blobs:
        for row in read:
            row[column] = _blob(lance_of(table), column, row)
    return {row.pop("id"): {k: v for k, v in row.items() if k != "_rowid"} for row in read}


def _blob(dataset: Any, column: str, row: dict[str, Any]) -> bytes | str | None:
    if row[column] is None or row[column]["blob_uri"]:
        return None if row[column] is None else row[column]["blob_uri"]
    with dataset.take_blobs(column, ids=[row["_rowid"]])[0] as blob:
        return bytes(blob.read())


def everything(graph: Graph, branch: str = "main") -> dict[str, dict[str, dict[str, Any]]]:
    """The whole graph, by type key and id."""
    snapshot = graph.snapshot(branch)
    return {key: rows_at(snapshot, key) for key in snapshot.types()}
