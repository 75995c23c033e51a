"""The Spark data plane: bulk data into and out of a graph, on one laptop or a cluster.

`run` executes a pipeline file as one commit. Everything here may use Spark; nothing below it does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omnigraph.pipeline.execution import run
    from omnigraph.pipeline.model import Pipeline, load_pipeline, read_pipeline
    from omnigraph.pipeline.report import PipelineReport

_HOMES = {
    "Pipeline": "model",
    "load_pipeline": "model",
    "read_pipeline": "model",
    "PipelineReport": "report",
    "run": "execution",
}

__all__ = ["Pipeline", "PipelineReport", "load_pipeline", "read_pipeline", "run"]


def __getattr__(name: str) -> Any:
    """Spark is imported by the first thing that needs it, not by reading a pipeline file."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"omnigraph.pipeline.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'omnigraph.pipeline' has no attribute '{name}'")
