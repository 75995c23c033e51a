"""A process that runs a pipeline over Spark Connect, against a server that Spark starts for it.

python -m tests.pipeline.connecting URI DIRECTORY
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from omnigraph import Graph
from omnigraph.api import wire
from omnigraph.pipeline import run, start_session, to_spark
from omnigraph.pipeline.file import SparkSettings
from tests.pipeline.conftest import QUICK
from tests.pipeline.library import quarantine, records


def main(uri: str, inputs: str) -> None:
    spark = start_session(SparkSettings(remote="local[2]", conf=QUICK), "omnigraph over Connect")
    try:
        with Graph.open(uri) as graph:
            # A session over Connect begins without the settings of the one it comes from.
            given = records(Path(inputs), quality=quarantine(Path(inputs)), spark=json.dumps({"conf": QUICK}))
            report = run(given, graph=graph, spark=spark)
            read = to_spark(graph, "Reader", spark).count()
        print(
            json.dumps({"report": wire.to_builtins(report), "session": type(spark).__module__, "read": read}),
            flush=True,
        )
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
