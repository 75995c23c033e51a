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

_MODULES = {
    "omnigraph.api.service.pipeline": ("PipelineReport", "StageEvent"),
    "omnigraph.pipeline.bulk_export": ("export_types",),
    "omnigraph.pipeline.bulk_load": ("BulkInput", "load_on_spark", "write_frame"),
    "omnigraph.pipeline.bulk_maintenance": ("optimize_on_spark", "reembed"),
    "omnigraph.pipeline.execution.plan": ("explain", "validate"),
    "omnigraph.pipeline.execution.run": ("run",),
    "omnigraph.pipeline.file": ("Pipeline", "SparkSettings", "load_pipeline", "read_pipeline"),
    "omnigraph.pipeline.spark.datasource": ("OmnigraphDataSource", "register"),
    "omnigraph.pipeline.spark.session": ("current_session", "spark_session", "start_session"),
    "omnigraph.pipeline.spark.type_reader": ("register_views", "to_spark"),
    "omnigraph.pipeline.spark.type_writer": ("error_behind",),
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
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module 'omnigraph.pipeline' has no attribute '{name}'")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _SPARK_EXTRA:
            raise
        raise BadRequestError(
            f"this needs Spark, and {missing} is not installed; install the extra: pip install 'omnigraph[spark]'"
        ) from None
