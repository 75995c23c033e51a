"""The Spark data plane: bulk data into and out of a graph, on one laptop or a cluster.

`run` executes a pipeline file as one commit. Everything here may use Spark; nothing below it does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from omnigraph.errors import BadRequestError

if TYPE_CHECKING:
    from omnigraph.api.pipeline import PipelineReport, StageEvent
    from omnigraph.pipeline.bulk_load import BulkInput, load_on_spark
    from omnigraph.pipeline.datasource import OmnigraphDataSource, register
    from omnigraph.pipeline.execution import run
    from omnigraph.pipeline.export import export_types
    from omnigraph.pipeline.frames import write_frame
    from omnigraph.pipeline.maintenance import optimize_on_spark
    from omnigraph.pipeline.model import Pipeline, SparkSettings, load_pipeline, read_pipeline
    from omnigraph.pipeline.plan import explain, validate
    from omnigraph.pipeline.reading import register_views, to_spark
    from omnigraph.pipeline.reembedding import reembed
    from omnigraph.pipeline.session import current_session, spark_session, start_session
    from omnigraph.pipeline.task_errors import error_behind

_SPARK_EXTRA = ("pyspark", "py4j", "pandas")

_HOMES = {
    "BulkInput": "bulk_load",
    "OmnigraphDataSource": "datasource",
    "Pipeline": "model",
    "PipelineReport": "omnigraph.api.pipeline",
    "SparkSettings": "model",
    "StageEvent": "omnigraph.api.pipeline",
    "current_session": "session",
    "error_behind": "task_errors",
    "explain": "plan",
    "export_types": "export",
    "load_on_spark": "bulk_load",
    "load_pipeline": "model",
    "optimize_on_spark": "maintenance",
    "read_pipeline": "model",
    "reembed": "reembedding",
    "register": "datasource",
    "register_views": "reading",
    "run": "execution",
    "spark_session": "session",
    "start_session": "session",
    "to_spark": "reading",
    "validate": "plan",
    "write_frame": "frames",
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
        return getattr(importlib.import_module(home if "." in home else f"omnigraph.pipeline.{home}"), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _SPARK_EXTRA:
            raise
        raise BadRequestError(
            f"this needs Spark, and {missing} is not installed; install the extra: pip install 'omnigraph[spark]'"
        ) from None
