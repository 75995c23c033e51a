"""Search on one table version: nearest vectors, text predicates, BM25 ranking and rank fusion.

The operators of a read plan call it. Results depend on the rows of the version alone, never on which indexes cover
them. Nothing here writes, and nothing here knows the plan.
"""
