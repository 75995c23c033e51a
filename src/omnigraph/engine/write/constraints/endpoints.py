"""Referential integrity: every edge of the final image ends in nodes of the final image.

New and changed edges are checked against the nodes they name. When an overwrite makes nodes disappear, the edges
that stay are checked as well; deletes remove the incident edges themselves and need no such check.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.write.change import TypeChange
from omnigraph.engine.write.constraints.image import FinalImage
from omnigraph.engine.write.constraints.violation import Violation, refuse
from omnigraph.language.catalog import EdgeType, NodeType
from omnigraph.language.violations import ORPHAN_REMEDY, Sentence


def check_endpoints(image: FinalImage, order: Sequence[TypeChange]) -> None:
    """Raise for the first edge, of the first edge type in `order`, that ends in no node."""
    refuse(dangling_edges(image, order))
    for change in order:
        if isinstance(change.type, NodeType) and change.replaces:
            refuse(orphaned_edges(image, change))


def dangling_edges(image: FinalImage, order: Sequence[TypeChange]) -> Iterator[Violation]:
    """Every end of a written edge that no node has, end by end and in row order."""
    missing = image.missing_nodes(_wanted(order))
    for change, end, node_type in _written_ends(order):
        if absent := missing[node_type]:
            yield from _dangling(change, end, node_type, absent)


def orphaned_edges(image: FinalImage, change: TypeChange) -> Iterator[Violation]:
    """Every end of an edge that stays while the change makes its node go."""
    node = change.type
    if not isinstance(node, NodeType):
        return
    touching = [edge for edge in image.catalog.incident_edges(node.name) if not _is_replaced(image, edge)]
    gone = image.disappeared(node.name) if touching else set()
    if not gone:
        return
    for edge in touching:
        for end in _ends_at(edge, node.name):
            orphans = image.survivors(edge.type_key, ["id", end], (end, gone)).sort_by("id")
            for entity_id, missing in zip(
                orphans.column("id").to_pylist(), orphans.column(end).to_pylist(), strict=True
            ):
                yield Violation(
                    Sentence.ORPHANED_EDGE,
                    edge.type_key,
                    Sentence.ORPHANED_EDGE.text(
                        type=edge.name, entity_id=entity_id, end=end, node_id=missing, node=node.name
                    ),
                    end,
                    entity_id,
                    remedy=ORPHAN_REMEDY.format(type=edge.name),
                    absent_node=(node.type_key, missing),
                )


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


def _dangling(change: TypeChange, end: str, node_type: str, absent: set[str]) -> Iterator[Violation]:
    values = change.rows.column(end)
    lacking = pc.is_in(values, value_set=pa.array(absent, pa.string())).to_numpy()
    for row in np.flatnonzero(lacking).tolist():
        node = values[row].as_py()
        yield Violation(
            Sentence.DANGLING_EDGE,
            change.type_key,
            Sentence.DANGLING_EDGE.text(type=change.type.name, end=end, node_id=node, node=node_type),
            end,
            change.ids[row].as_py(),
            change,
            row,
            absent_node=(f"node:{node_type}", node),
        )


def _is_replaced(image: FinalImage, edge: EdgeType) -> bool:
    change = image.change.by_type.get(edge.type_key)
    return change is not None and change.replaces


def _ends_at(edge: EdgeType, node_type: str) -> Iterator[str]:
    return (end for end, name in _ends(edge) if name == node_type)
