"""Referential integrity: every edge of the final image ends in nodes of the final image.

New and changed edges are checked against the nodes they name. When an overwrite makes nodes disappear, the edges
that stay are checked as well; deletes take their incident edges along and need no such look.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.change import TypeChange
from omnigraph.engine.constraints.image import FinalImage
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import EdgeType, NodeType


def check_endpoints(image: FinalImage, order: Sequence[TypeChange]) -> None:
    """Raise for the first edge, of the first edge type in `order`, that would point at no node."""
    missing = image.missing_nodes(_wanted(order))
    for change, end, node_type in _written_ends(order):
        if absent := missing[node_type]:
            _refuse_dangling(change, end, node_type, absent)
    for change in order:
        if isinstance(change.type, NodeType) and change.replaces:
            _refuse_orphans(image, change.type)


def _ends(edge: EdgeType) -> tuple[tuple[str, str], tuple[str, str]]:
    return (("src", edge.from_type), ("dst", edge.to_type))


def _written_ends(order: Sequence[TypeChange]) -> Iterator[tuple[TypeChange, str, str]]:
    """Each end of each edge type that gets rows: its change, its column and the node type it must be found in."""
    for change in order:
        if isinstance(change.type, EdgeType) and change.rows.num_rows:
            for end, node_type in _ends(change.type):
                yield change, end, node_type


def _wanted(changes: Sequence[TypeChange]) -> dict[str, pa.Array]:
    """Per node type, the distinct ids that written edges name."""
    named: defaultdict[str, list[pa.Array]] = defaultdict(list)
    for change, end, node_type in _written_ends(changes):
        named[node_type] += change.rows.column(end).chunks
    return {name: pc.unique(pa.chunked_array(chunks, pa.string())) for name, chunks in sorted(named.items())}


def _refuse_dangling(change: TypeChange, end: str, node_type: str, absent: set[str]) -> None:
    values = change.rows.column(end)
    row = pc.index(pc.is_in(values, value_set=pa.array(absent, pa.string())), True).as_py()
    if row >= 0:
        raise BadRequestError(
            f"{change.where(row)}edge {change.type.name}: {end} '{values[row].as_py()}' not found in {node_type}"
        )


def _refuse_orphans(image: FinalImage, node: NodeType) -> None:
    """Edges that stay while a node they end in goes."""
    touching = [edge for edge in image.catalog.incident_edges(node.name) if not _is_replaced(image, edge)]
    gone = image.disappeared(node.name) if touching else set()
    if not gone:
        return
    for edge in touching:
        for end in _ends_at(edge, node.name):
            orphans = image.survivors(edge.type_key, ["id", end], (end, gone))
            if orphans.num_rows:
                first = orphans.sort_by("id").slice(0, 1).to_pylist()[0]
                raise BadRequestError(
                    f"edge {edge.name} '{first['id']}' would be orphaned: {end} '{first[end]}' not found in {node.name}"
                    f"; keep the node, or load {edge.name} in the same overwrite"
                )


def _is_replaced(image: FinalImage, edge: EdgeType) -> bool:
    change = image.change.by_type.get(edge.type_key)
    return change is not None and change.replaces


def _ends_at(edge: EdgeType, node_type: str) -> Iterator[str]:
    return (end for end, name in _ends(edge) if name == node_type)
