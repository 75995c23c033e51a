"""A process that runs a pipeline over Spark Connect, against a server that Spark starts for it.

python -m tests.pipeline.connecting URI DIRECTORY
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from omnigraph import Graph
from omnigraph.pipeline import run, to_spark
from tests.pipeline.library import quarantine, records


def main(uri: str, inputs: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.remote("local[1]").getOrCreate()
    try:
        with Graph.open(uri) as graph:
            given = records(Path(inputs), quality=quarantine(Path(inputs)), index="true")
            report = run(given, graph=graph, spark=spark)
            read = to_spark(graph, "Reader", spark).count()
        print(json.dumps({"report": report.to_dict(), "session": type(spark).__module__, "read": read}), flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
