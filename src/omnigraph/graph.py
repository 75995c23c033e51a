"""`omnigraph.Graph`: the engine's handle with Spark within reach.

What `omnigraph.init` and `omnigraph.open` return. The engine knows nothing of Spark; this one class joins the two for
users, and imports the pipeline, and Spark with it, only when one of these methods is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.engine.graph import Graph as EngineGraph

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.pipeline import Pipeline, PipelineReport
    from omnigraph.pipeline.report import Progress


class Graph(EngineGraph):
    """A versioned graph of typed tables at one location."""

    def to_spark(
        self,
        type_name: str,
        spark: SparkSession | None = None,
        *,
        columns: Sequence[str] | None = None,
        branch: str | None = None,
        snapshot: str | None = None,
    ) -> DataFrame:
        """A type as a DataFrame, pinned to the state it has now; on the active session, or on a new local one."""
        from omnigraph.pipeline import current_session, to_spark

        return to_spark(self, type_name, current_session(spark), columns=columns, branch=branch, snapshot=snapshot)

    def register_views(self, spark: SparkSession, branch: str | None = None, prefix: str = "") -> list[str]:
        """Temporary views of every type for Spark SQL, all of one snapshot; returns their names."""
        from omnigraph.pipeline import register_views

        return register_views(spark, self, branch, prefix)

    def run_pipeline(
        self,
        pipeline: Pipeline | str | Path,
        *,
        branch: str | None = None,
        mode: str | None = None,
        spark: SparkSession | None = None,
        actor: str | None = None,
        run_key: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> PipelineReport:
        """Run a pipeline, or the file of one, into this graph as one commit, whatever graph the file names."""
        from omnigraph.pipeline import run

        return run(
            pipeline,
            graph=self,
            branch=branch,
            mode=mode,
            spark=spark,
            actor=actor,
            run_key=run_key,
            force=force,
            dry_run=dry_run,
            progress=progress,
        )
