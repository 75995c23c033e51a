"""`@card`: how many edges of a type each source has in the final image, for the sources that the change touches.

A source is touched when it gains an edge, loses one, or has one moved away from it. A node that never had an edge
does not break a minimum by itself, and a node that goes with the change no longer counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.write.change import TypeChange
from omnigraph.engine.write.constraints.image import FinalImage
from omnigraph.engine.write.constraints.violation import Violation, refuse
from omnigraph.language.catalog import Cardinality, EdgeType
from omnigraph.language.violations import Sentence

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
    broken = {
        source: found
        for source in touched
        if source not in gone and (found := _broken_bound(edge.cardinality, counts.get(source, 0))) is not None
    }
    written = _rows_by_source(change, broken) if broken else {}
    for source, (sentence, bound) in broken.items():
        count, rows = counts.get(source, 0), written.get(source, [])
        # Of too many edges the earliest may stay, so the first one beyond them breaks the rule.
        surplus = count - bound if sentence is Sentence.TOO_MANY_EDGES else len(rows)
        row = rows[max(0, len(rows) - surplus)] if rows else None
        yield Violation(
            sentence,
            edge.type_key,
            sentence.text(type=edge.name, source=source, count=count, bound=bound),
            "src",
            None if row is None else change.ids[row].as_py(),
            change,
            row,
        )


def _rows_by_source(change: TypeChange, sources: Iterable[str]) -> dict[str, list[int]]:
    """The rows of a change that have one of these sources."""
    column = change.rows.column("src")
    found: dict[str, list[int]] = {}
    for row in np.flatnonzero(pc.is_in(column, value_set=pa.array(list(sources), pa.string())).to_numpy()).tolist():
        found.setdefault(column[row].as_py(), []).append(row)
    return found


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


def _broken_bound(cardinality: Cardinality, count: int) -> tuple[Sentence, int] | None:
    if cardinality.maximum is not None and count > cardinality.maximum:
        return Sentence.TOO_MANY_EDGES, cardinality.maximum
    return (Sentence.TOO_FEW_EDGES, cardinality.minimum) if count < cardinality.minimum else None
