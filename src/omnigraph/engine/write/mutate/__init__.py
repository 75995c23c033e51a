"""Mutations: the write statements of the query language, executed as one commit.

`Graph.mutate` calls `mutate`, the only entry point.
"""

from omnigraph.engine.write.mutate.mutation import MutationRequest, mutate

__all__ = ["MutationRequest", "mutate"]
