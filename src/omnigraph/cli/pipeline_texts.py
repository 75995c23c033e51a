"""Reads pipeline files for the cluster package, which may not import pipelines: the command line passes this to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.language.catalog import Catalog


def read_pipeline_text(text: str, path: str) -> Callable[[Catalog], None]:
    """Read a pipeline file, and give what checks it against a schema. Starts no Spark."""
    from omnigraph.pipeline.file import check_against, read_pipeline

    pipeline = read_pipeline(text, path=path)
    return lambda catalog: check_against(pipeline, catalog)
