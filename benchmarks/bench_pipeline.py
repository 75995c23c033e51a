"""Ingest speed of a pipeline beside Spark's own Parquet writer, on the same mapped rows in the same session.

    python benchmarks/bench_pipeline.py [--nodes N] [--edges M] [--rounds R] [--master local[2]] [--json]
    python benchmarks/bench_pipeline.py --scaling        # one executor process, then two

The yardstick only writes; we also type every row, derive ids, refuse repeats, check both ends of every edge, and
commit. Ratios are Parquet seconds over our seconds for the same rows, the median of all rounds; every round fills a
graph of its own. The driver's heap and the peak of its Python process show that rows never visit it.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from omnigraph import Graph
from omnigraph.api.enums import LoadMode
from omnigraph.pipeline import Pipeline, run, start_session
from omnigraph.pipeline.file import Source, SparkSettings, TypeMapping

SCHEMA = """
node Event { label: String  amount: I64 }
node Item { amount: I64 }
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


@dataclass(frozen=True)
class Case:
    """A mapping of one source to one type. `columns` are the mapped rows, by name and Spark SQL expression."""

    name: str
    source: str
    target: str
    columns: dict[str, str]

    def pipeline(self, directory: Path) -> Pipeline:
        ends = {end: self.columns[end] for end in ("src", "dst") if end in self.columns}
        select = {name: value for name, value in self.columns.items() if name not in ends}
        mapping = TypeMapping(self.target, self.source, select, **ends)
        source = Source(self.source, "parquet", self.source)
        return Pipeline("benchmark", {self.source: source}, (mapping,), mode=LoadMode.APPEND, directory=str(directory))

    def rows(self, spark: SparkSession, directory: Path) -> DataFrame:
        frame = spark.read.parquet(str(directory / self.source))
        return frame.selectExpr(*(f"{value} as {name}" for name, value in self.columns.items()))


CASES = (
    Case("nodes, ids made up", "people", "Event", {"label": "name", "amount": "age"}),
    Case("nodes, ids made up, by SQL", "people", "Event", {"label": "upper(name)", "amount": "age + 1"}),
    Case("nodes, ids given", "people", "Item", {"id": "name", "amount": "age"}),
    Case("nodes, keyed", "people", "Person", {"name": "name", "age": "age"}),
    Case("edges, both ends checked", "knows", "Knows", {"src": "a", "dst": "b", "weight": "weight"}),
)


def one_round(spark: SparkSession, directory: Path, scratch: Path) -> Iterator[dict[str, Any]]:
    """Every case on a graph of its own, Parquet first."""
    with Graph.init(scratch / "graph", SCHEMA) as graph:
        for number, case in enumerate(CASES):
            rows = case.rows(spark, directory)
            plain = seconds(lambda rows=rows, n=number: rows.write.parquet(str(scratch / f"plain{n}")))
            report = run(case.pipeline(directory), graph=graph, spark=spark, force=True)
            count = sum(counts.read for counts in report.types)
            yield {
                "case": case.name,
                "rows": count,
                "rows_per_second": round(count / report.seconds),
                "parquet_rows_per_second": round(count / plain),
                "ratio": round(plain / report.seconds, 2),
                "stages": {stage: round(took, 1) for stage, took in report.stages.items()},
            }
    shutil.rmtree(scratch)


def compare_executors(nodes: int, edges: int) -> None:
    """The same rows on one and on two executor processes of one core each."""
    rates = []
    for executors in (1, 2):
        command = [sys.executable, __file__, "--nodes", str(nodes), "--edges", str(edges), "--json"]
        command += ["--rounds", "1", "--master", f"local-cluster[{executors},1,1024]"]
        answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        rates.append({case["case"]: case["rows_per_second"] for case in json.loads(answer)["results"]})
    print(f"{'case':<28}{'1 executor':>12}{'2 executors':>12}{'gain':>8}")
    for case, alone in rates[0].items():
        print(f"{case:<28}{alone:>12,}{rates[1][case]:>12,}{rates[1][case] / alone:>8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5_000_000)
    parser.add_argument("--edges", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=3)
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
    rounds = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        inputs(spark, directory, arguments.nodes, arguments.edges)
        # The first runs of anything pay for class loading, compilation and worker starts.
        inputs(spark, directory / "warm", 500_000, 500_000)
        for number in range(2):
            list(one_round(spark, directory / "warm", directory / f"warm{number}"))
        for number in range(arguments.rounds):
            rounds.append(list(one_round(spark, directory, directory / f"round{number}")))
    results = [
        sorted(found, key=lambda result: result["ratio"])[len(found) // 2] for found in zip(*rounds, strict=True)
    ]
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
