"""The storage core: object store seam, graph log, refs and staged Lance tables.

Everything durable goes through this package. It knows type keys and Arrow data, but no schema language and no
queries.
"""
