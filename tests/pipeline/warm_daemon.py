"""Spark's daemon for Python workers, with the imports done: they take longer than what most workers of a test do.

Spark starts one for each kind of worker, and it forks the workers. Nothing but imports may happen before a fork.
"""

from __future__ import annotations

import gc
import warnings

import lance  # noqa: F401
import pandas  # noqa: F401
import pyspark.sql.worker.plan_data_source_read
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import omnigraph.graph
import omnigraph.pipeline  # noqa: F401

if __name__ == "__main__":
    warnings.filterwarnings("ignore", "lance is not fork-safe")  # once it has worked; here it was only imported
    gc.freeze()  # workers look for garbage after every task
    manager()
