"""The Spark data plane: bulk data into and out of a graph, on one laptop or a cluster.

`run` executes a pipeline file as one commit. Modules of this package may use Spark; no other package does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from omnigraph.errors import BadRequestError

if TYPE_CHECKING:
    from omnigraph.api.service.pipeline import PipelineReport, StageEvent
    from omnigraph.pipeline.bulk_export import export_types
    from omnigraph.pipeline.bulk_load import BulkInput, load_on_spark, write_frame
    from omnigraph.pipeline.bulk_maintenance import optimize_on_spark, reembed
    from omnigraph.pipeline.execution.plan import explain, validate
    from omnigraph.pipeline.execution.run import run
    from omnigraph.pipeline.file import Pipeline, SparkSettings, load_pipeline, read_pipeline
    from omnigraph.pipeline.spark.datasource import OmnigraphDataSource, register
    from omnigraph.pipeline.spark.session import current_session, spark_session, start_session
    from omnigraph.pipeline.spark.type_reader import register_views, to_spark
    from omnigraph.pipeline.spark.type_writer import error_behind

_SPARK_EXTRA = ("pyspark", "py4j", "pandas")

_HOMES = {
    "BulkInput": "bulk_load",
    "OmnigraphDataSource": "spark.datasource",
    "Pipeline": "file",
    "PipelineReport": "omnigraph.api.service.pipeline",
    "SparkSettings": "file",
    "StageEvent": "omnigraph.api.service.pipeline",
    "current_session": "spark.session",
    "error_behind": "spark.type_writer",
    "explain": "execution.plan",
    "export_types": "bulk_export",
    "load_on_spark": "bulk_load",
    "load_pipeline": "file",
    "optimize_on_spark": "bulk_maintenance",
    "read_pipeline": "file",
    "reembed": "bulk_maintenance",
    "register": "spark.datasource",
    "register_views": "spark.type_reader",
    "run": "execution.run",
    "spark_session": "spark.session",
    "start_session": "spark.session",
    "to_spark": "spark.type_reader",
    "validate": "execution.plan",
    "write_frame": "bulk_load",
}

__all__ = [
    "BulkInput",
    "OmnigraphDataSource",
    "Pipeline",
    "PipelineReport",
    "SparkSettings",
    "StageEvent",
    "current_session",
    "error_behind",
    "explain",
    "export_types",
    "load_on_spark",
    "load_pipeline",
    "optimize_on_spark",
    "read_pipeline",
    "reembed",
    "register",
    "register_views",
    "run",
    "spark_session",
    "start_session",
    "to_spark",
    "validate",
    "write_frame",
]


def __getattr__(name: str) -> Any:
    """Spark is imported by the first thing that needs it, not by reading a pipeline file."""
    if name not in _HOMES:
        raise AttributeError(f"module 'omnigraph.pipeline' has no attribute '{name}'")
    try:
        home = _HOMES[name]
        return getattr(
            importlib.import_module(home if home.startswith("omnigraph.") else f"omnigraph.pipeline.{home}"), name
        )
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _SPARK_EXTRA:
            raise
        raise BadRequestError(
            f"this needs Spark, and {missing} is not installed; install the extra: pip install 'omnigraph[spark]'"
        ) from None
