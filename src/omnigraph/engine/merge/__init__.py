"""Merging one branch into another: by entity, all or nothing, as one commit with two parents.

`merge` and `preview` are what `Graph` calls. `decision` holds the three-way table, `planning` applies it to every
type, `validation` judges the result, `schema` settles whose schema it has, `resolution` is what a person decided.
"""

from omnigraph.engine.merge.merging import MergeOutcome, MergePreview, MergeRequest, MergeResult, merge, preview
from omnigraph.engine.merge.resolution import Resolutions, Side

__all__ = [
    "MergeOutcome",
    "MergePreview",
    "MergeRequest",
    "MergeResult",
    "Resolutions",
    "Side",
    "merge",
    "preview",
]
