"""One local Spark session for all pipeline tests: starting one costs more than any test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from omnigraph.pipeline.model import SparkSettings
from omnigraph.pipeline.session import start_session

QUICK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "1g",
    "spark.python.worker.reuse": "true",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = start_session(SparkSettings("local[2]", conf=QUICK), "omnigraph tests")
    yield session
    session.stop()
