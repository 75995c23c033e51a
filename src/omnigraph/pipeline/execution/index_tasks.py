"""Declared indexes brought to full coverage by executors: one task per index and group of fragments.

Called by a run that asked for indexes, by re-embedding and by distributed maintenance.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from omnigraph.engine.bulk.jobs import IndexBuild, IndexedVersions, TablesToIndex
from omnigraph.engine.resources import Resources
from omnigraph.pipeline.spark.tasks import texts_of


def index_tables(spark: SparkSession, resources: Resources, tables: TablesToIndex) -> IndexedVersions:
    """Staged versions of these tables with every declared index whole; tables that lack nothing are left out."""
    build = IndexBuild(resources, tables)
    return build.staged(texts_of(spark, [task.run for task in build.tasks]))
