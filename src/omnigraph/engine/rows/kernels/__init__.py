"""Row kernels: bytes or loosely typed Arrow columns in, typed rows and violations out.

Pure functions of their arguments: no store, no snapshot, no global state, so that the in-process loader and Spark
executors run the same code. Rules that span rows (uniqueness, endpoints, cardinality) are checked elsewhere.
"""
