"""A stream from the change feed of a library into a graph of notes, in this process or in one that can be killed.

    python -m tests.pipeline.following LIBRARY NOTES CHECKPOINT

Notes have no key: a change that is delivered twice would stand in the graph twice.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql import SparkSession

from omnigraph.pipeline import register, start_session
from omnigraph.pipeline.file import SparkSettings
from tests.pipeline.conftest import QUICK
from tests.support.waiting import GIVE_UP

NOTES = "node Note { text: String }"


def follow(spark: SparkSession, library: str, notes: str, checkpoint: str, **options: str) -> None:
    """Copy the name of every reader that there is by now, a commit of the library per micro-batch."""
    register(spark)
    changes: Any = spark.readStream.format("omnigraph").options(graph=library, commitsPerBatch="1", **options)
    names = changes.load().where("type = 'Reader'").selectExpr("id as text")
    stream = names.writeStream.format("omnigraph").options(graph=notes, type="Note", checkpointLocation=checkpoint)
    query = stream.trigger(availableNow=True).start()
    query.awaitTermination(GIVE_UP)
    assert query.exception() is None
    assert not query.isActive


if __name__ == "__main__":
    follow(start_session(SparkSettings("local[2]", conf=QUICK), "omnigraph stream"), *sys.argv[1:])
