"""The Spark data plane: bulk data into and out of a graph, on one laptop or a cluster.

`run` executes a pipeline file as one commit. Everything here may use Spark; nothing below it does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omnigraph.pipeline.datasource import OmnigraphDataSource, register
    from omnigraph.pipeline.execution import run
    from omnigraph.pipeline.frames import write_frame
    from omnigraph.pipeline.maintenance import export_types, optimize_on_spark
    from omnigraph.pipeline.model import Pipeline, load_pipeline, read_pipeline
    from omnigraph.pipeline.plan import explain, validate
    from omnigraph.pipeline.reading import register_views, to_spark
    from omnigraph.pipeline.reembedding import reembed
    from omnigraph.pipeline.report import PipelineReport, StageEvent
    from omnigraph.pipeline.session import spark_session, start_session

_HOMES = {
    "OmnigraphDataSource": "datasource",
    "Pipeline": "model",
    "PipelineReport": "report",
    "StageEvent": "report",
    "explain": "plan",
    "export_types": "maintenance",
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
    "OmnigraphDataSource",
    "Pipeline",
    "PipelineReport",
    "StageEvent",
    "explain",
    "export_types",
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
    if name in _HOMES:
        return getattr(importlib.import_module(f"omnigraph.pipeline.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'omnigraph.pipeline' has no attribute '{name}'")
