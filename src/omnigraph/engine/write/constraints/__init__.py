"""The constraint stage: checks every rule that spans rows on the graph as a change would leave it.

Loads, mutations and merges call `check_constraints` with their change and the pinned snapshot. The row kernels have
checked the rules of single rows (`@range`, `@check`, enums) before. Sentences come from `language.violations`.
"""

from omnigraph.engine.write.constraints.image import FinalImage
from omnigraph.engine.write.constraints.stage import check_constraints

__all__ = ["FinalImage", "check_constraints"]
