"""Mutations: the write statements of the query language, executed as one commit.

`Graph.mutate` comes in here; everything else is reached through `mutate`.
"""

from omnigraph.engine.mutate.mutation import MutationRequest, mutate

__all__ = ["MutationRequest", "mutate"]
