"""The constraint stage: whether the graph as a change would leave it satisfies every rule that spans rows.

Loads, mutations and merges call `check_constraints` with their change and the pinned snapshot. Rules of single rows
(`@range`, `@check`, enums) were judged before by the row kernels.
"""

from omnigraph.engine.constraints.image import FinalImage
from omnigraph.engine.constraints.stage import check_constraints

__all__ = ["FinalImage", "check_constraints"]
