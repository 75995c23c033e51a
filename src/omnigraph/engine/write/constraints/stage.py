"""The order of the constraint stage: uniqueness, then endpoints, then cardinality; the first violation is raised.

Which types come first differs between a load (sorted type keys) and a mutation (nodes before edges), so the caller
gives the order. Returns the read set of the checks, which the publish machine compares with a moved head.
"""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.engine.write.change import TypeChange
from omnigraph.engine.write.constraints.cardinality import check_cardinality
from omnigraph.engine.write.constraints.endpoints import check_endpoints
from omnigraph.engine.write.constraints.image import FinalImage
from omnigraph.engine.write.constraints.uniqueness import check_uniqueness
from omnigraph.engine.write.publish import ReadSet


def check_constraints(image: FinalImage, order: Sequence[TypeChange]) -> ReadSet:
    """Raise the first violation of the final image, or return the reads that found none."""
    for change in order:
        check_uniqueness(image, change)
    check_endpoints(image, order)
    for change in order:
        check_cardinality(image, change)
    return image.read_set()
