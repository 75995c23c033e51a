"""The storage core: object store seam, graph log, refs and staged Lance tables.

Everything durable goes through this package. It knows type keys, Arrow data and the catalog that a schema compiles to,
which it stores and hands out by digest; how a schema is written, and queries, are nothing to it.
"""
