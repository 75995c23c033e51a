"""`@card`: how many edges of a type each source has in the final image, for the sources that the change touches.

A source is touched when it gains an edge, loses one, or has one moved away from it. A node that never had an edge
does not break a minimum by itself, and a node that goes with the change no longer counts.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.change import TypeChange
from omnigraph.engine.constraints.image import FinalImage
from omnigraph.engine.constraints.violation import Violation, refuse
from omnigraph.language.catalog import Cardinality, EdgeType

_UNBOUNDED = Cardinality()


def check_cardinality(image: FinalImage, change: TypeChange) -> None:
    """Raise for the first touched source with too many or too few edges of this type."""
    refuse(miscounted_sources(image, change))


def miscounted_sources(image: FinalImage, change: TypeChange) -> Iterator[Violation]:
    """Every touched source with too many or too few edges of this type."""
    edge = change.type
    if not isinstance(edge, EdgeType) or edge.cardinality == _UNBOUNDED:
        return
    gained = pc.unique(change.rows.column("src")).to_pylist()
    lost = _sources_that_lost(image, change) if edge.cardinality.minimum else set()
    touched = [*gained, *sorted(lost.difference(gained))]
    if not touched:
        return
    gone = image.disappeared(edge.from_type)
    stored = image.survivors(edge.type_key, ["id", "src"], ("src", set(touched)))
    counts = _counted(pa.chunked_array([*change.rows.column("src").chunks, *stored.column("src").chunks], pa.string()))
    for source in touched:
        bound = _broken_bound(edge.cardinality, counts.get(source, 0))
        if bound is not None and source not in gone:
            found = f"source '{source}' has {counts.get(source, 0)} edges ({bound})"
            yield Violation(edge.type_key, f"@card violation on edge {edge.name}: {found}")


def _sources_that_lost(image: FinalImage, change: TypeChange) -> set[str]:
    """Sources of edges that the change removes or gives another source."""
    if change.replaces:
        before = image.committed(change.type_key, ["src"])
    else:
        ids = change.deleted if change.fresh else {*change.deleted, *change.ids.to_pylist()}
        before = image.committed(change.type_key, ["src"], ("id", ids))
    return set(before.column("src").to_pylist())


def _counted(sources: pa.ChunkedArray) -> dict[str, int]:
    tally = pc.value_counts(sources)
    return dict(zip(tally.field("values").to_pylist(), tally.field("counts").to_pylist(), strict=True))


def _broken_bound(cardinality: Cardinality, count: int) -> str | None:
    if cardinality.maximum is not None and count > cardinality.maximum:
        return f"max {cardinality.maximum}"
    return f"min {cardinality.minimum}" if count < cardinality.minimum else None
