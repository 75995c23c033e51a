"""A pipeline run in a process of its own, on a chosen master, that can be made to die or to fail on the way.

    python -m tests.pipeline.driver GRAPH INPUT_DIRECTORY MASTER [PIPELINE_FILE ...]

Merges the graph records of the directory, then runs the files. Prints one JSON line per report.
`OMNIGRAPH_KILL_AT=<point>:<n>` kills the driver at a step of the write. On a local cluster tasks stand still once they
have written: see `tests.pipeline.holding_daemon`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from omnigraph import Graph
from omnigraph.api import wire
from omnigraph.pipeline import run, start_session
from omnigraph.pipeline.file import SparkSettings
from tests.pipeline.conftest import QUICK
from tests.pipeline.library import records
from tests.support.child import killing_trace


def main(uri: str, inputs: str, master: str, *files: str) -> None:
    conf = dict(QUICK)
    if master.startswith("local-cluster"):
        # Eager speculation: tasks that take a little longer than others are started twice.
        conf |= {
            "spark.executor.memory": "1g",
            "spark.python.daemon.module": "tests.pipeline.holding_daemon",
            "spark.executor.extraJavaOptions": QUICK["spark.driver.extraJavaOptions"],
            "spark.speculation": "true",
            "spark.speculation.multiplier": "1.0",
            "spark.speculation.quantile": "0.1",
            "spark.speculation.interval": "50ms",
            "spark.speculation.minTaskRuntime": "50ms",
        }
    spark = start_session(SparkSettings(master, conf=conf), "omnigraph test driver")
    graph = Graph.open(uri, trace=killing_trace())
    try:
        print(json.dumps(wire.to_builtins(run(records(Path(inputs)), graph=graph, spark=spark))), flush=True)
        for file in files:
            print(json.dumps(wire.to_builtins(run(file, spark=spark))), flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
