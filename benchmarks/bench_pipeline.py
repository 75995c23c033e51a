"""Ingest speed of a pipeline beside Spark's own Parquet writer, on the same mapped rows in the same session.

    python benchmarks/bench_pipeline.py [--nodes N] [--edges M] [--master local[2]] [--json]
    python benchmarks/bench_pipeline.py --scaling        # one executor process, then two

The yardstick only writes; we also type every row, derive ids, refuse repeats, check both ends of every edge, and
commit. Ratios are Parquet seconds over our seconds for the same rows. The driver's heap and the peak of its Python
process show that rows never visit it.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from omnigraph import Graph
from omnigraph.pipeline import read_pipeline, run, start_session
from omnigraph.pipeline.model import SparkSettings

SCHEMA = """
node Event { label: String  amount: I64 }
node Person { name: String @key  age: I64 }
edge Knows: Person -> Person { weight: F64 }
"""


def seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def inputs(spark: SparkSession, directory: Path, nodes: int, edges: int) -> None:
    people = spark.range(nodes).selectExpr("concat('p', lpad(id, 9, '0')) as name", "id % 90 as age")
    people.write.parquet(str(directory / "people"))
    ends = [
        f"concat('p', lpad(pmod(xxhash64(id, {salt}), {nodes}), 9, '0')) as {end}" for salt, end in ((1, "a"), (2, "b"))
    ]
    spark.range(edges).selectExpr(*ends, "rand(1) as weight").write.parquet(str(directory / "knows"))


def pipeline(directory: Path, mapping: str):  # type: ignore[no-untyped-def]
    text = f"""
version: 1
mode: append
sources:
  people: {{format: parquet, path: people}}
  knows: {{format: parquet, path: knows}}
{mapping}
"""
    return read_pipeline(text, directory=str(directory))


CASES = {
    "nodes, ids made up": ("nodes: {Event: {from: people, select: {label: name, amount: age}}}", "people"),
    "nodes, keyed": ("nodes: {Person: {from: people, select: {name: name, age: age}}}", "people"),
    "edges, both ends checked": ("edges: {Knows: {from: knows, src: a, dst: b, select: {weight: weight}}}", "knows"),
}


def compare_executors(nodes: int, edges: int) -> None:
    """The same rows on one and on two executor processes of one core each."""
    rates = []
    for executors in (1, 2):
        command = [sys.executable, __file__, "--nodes", str(nodes), "--edges", str(edges), "--json"]
        command += ["--master", f"local-cluster[{executors},1,1024]"]
        answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        rates.append({case["case"]: case["rows_per_second"] for case in json.loads(answer)["results"]})
    print(f"{'case':<28}{'1 executor':>12}{'2 executors':>12}{'gain':>8}")
    for case, alone in rates[0].items():
        print(f"{case:<28}{alone:>12,}{rates[1][case]:>12,}{rates[1][case] / alone:>8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5_000_000)
    parser.add_argument("--edges", type=int, default=20_000_000)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--driver-memory", default="1g")
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.scaling:
        compare_executors(arguments.nodes, arguments.edges)
        return
    conf = {"spark.driver.memory": arguments.driver_memory}
    spark = start_session(SparkSettings(arguments.master, conf=conf), "omnigraph benchmark")
    results = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        inputs(spark, directory, arguments.nodes, arguments.edges)
        graph, warm = (Graph.init(directory / name, SCHEMA) for name in ("graph", "warm-graph"))
        # The first runs of anything pay for class loading, compilation and worker starts.
        inputs(spark, directory / "warm", 500_000, 500_000)
        for mapping, source in CASES.values():
            for _ in range(2):
                rows = spark.read.parquet(str(directory / "warm" / source))
                rows.write.mode("overwrite").parquet(str(directory / "out"))
                run(pipeline(directory / "warm", mapping), graph=warm, spark=spark, force=True, mode="overwrite")
        for number, (case, (mapping, source)) in enumerate(CASES.items()):
            frame = spark.read.parquet(str(directory / source))
            rows = frame.count()
            plain = seconds(lambda frame=frame, n=number: frame.write.parquet(str(directory / f"plain{n}")))
            model = pipeline(directory, mapping)
            report = run(model, graph=graph, spark=spark, force=True)
            results.append(
                {
                    "case": case,
                    "rows": rows,
                    "rows_per_second": round(rows / report.seconds),
                    "parquet_rows_per_second": round(rows / plain),
                    "ratio": round(plain / report.seconds, 2),
                    "stages": {stage: round(took, 1) for stage, took in report.stages.items()},
                }
            )
        graph.close()
    spark.stop()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    if arguments.json:
        print(json.dumps({"results": results, "driver_python_peak_mib": peak}, indent=2))
        return
    print(f"{'case':<28}{'rows':>12}{'rows/s':>12}{'Parquet rows/s':>16}{'ratio':>8}")
    for result in results:
        print("{case:<28}{rows:>12,}{rows_per_second:>12,}{parquet_rows_per_second:>16,}{ratio:>8}".format(**result))
    print(f"driver: JVM heap {arguments.driver_memory}, Python peak {peak} MiB")


if __name__ == "__main__":
    main()
