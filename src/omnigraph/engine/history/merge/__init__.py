"""Merging one branch into another: by entity, all or nothing, as one commit with two parents.

`merge` and `preview` are what `Graph` calls. `decision` holds the three-way table, `planning` applies it to every
type, `validation` judges the result, `schema` settles whose schema it has, `resolution` is what a person decided.
"""

from omnigraph.engine.history.merge.merging import merge, preview

__all__ = ["merge", "preview"]
