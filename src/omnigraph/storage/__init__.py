"""The storage core: object store seam, graph log, refs and staged Lance tables.

Everything durable goes through this package. It knows type keys, Arrow data and compiled catalogs, which it stores by
digest; it knows neither the schema language nor queries.
"""
