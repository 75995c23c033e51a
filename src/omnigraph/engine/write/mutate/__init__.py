"""Mutations: the write statements of the query language, executed as one commit.

`Graph.mutate` calls `mutate`. A server also asks for the receipt of an earlier one, by its idempotency key alone.
"""

from omnigraph.engine.write.mutate.mutation import MutationRequest, earlier_receipt, mutate

__all__ = ["MutationRequest", "earlier_receipt", "mutate"]
