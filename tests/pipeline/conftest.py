"""One local Spark session for all pipeline tests: starting one costs more than any test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from omnigraph.pipeline.file import SparkSettings
from omnigraph.pipeline.spark.session import start_session
from tests.support.processes import REPOSITORY

# Plans of a few rows: compiling them to bytecode, and that to machine code, would take longer than running them.
QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "1g",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "tests.pipeline.warm_daemon",
}


@pytest.fixture(scope="session", autouse=True)
def no_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Digests of test files are kept where they go with the test run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as patch:
        # Where Java finds our daemon, from whatever directory the tests are run.
        patch.setenv("PYTHONPATH", os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]))
        session = start_session(SparkSettings("local[2]", conf=QUICK), "omnigraph tests")
    yield session
    session.stop()
