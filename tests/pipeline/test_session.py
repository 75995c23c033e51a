"""What a new Spark session is started with: the pipeline's word first, then the user's, then our defaults."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from omnigraph.pipeline.file import SparkSettings
from omnigraph.pipeline.sources.source_frames import short_reason
from omnigraph.pipeline.spark.session import session_settings


def test_what_the_user_configured_wins_over_our_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASTER", raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    plain = session_settings(SparkSettings(), "app")
    assert (plain["spark.master"], plain["spark.ui.enabled"]) == ("local[*]", "false")
    assert "log4j2.configurationFile=file:///" in plain["spark.driver.defaultJavaOptions"]

    (tmp_path / "spark-defaults.conf").write_text(
        "# ours\nspark.master   spark://host:7077\nspark.executor.memory=8g\nspark.sql.session.timeZone  Europe/Oslo\n"
    )
    (tmp_path / "log4j2.properties").write_text("rootLogger.level = info\n")
    theirs = session_settings(SparkSettings(conf={"spark.executor.memory": "2g"}, packages=("a:b:1", "c:d:2")), "app")
    assert theirs["spark.master"] == "spark://host:7077"
    assert theirs["spark.executor.memory"] == "2g"
    assert theirs["spark.sql.session.timeZone"] == "Europe/Oslo"
    assert theirs["spark.jars.packages"] == "a:b:1,c:d:2"
    assert not {"spark.ui.enabled", "spark.driver.defaultJavaOptions"} & theirs.keys()
    for master in ("local", "local[1]", "local-cluster[2,1,1024]"):
        here = session_settings(SparkSettings(master), "app")
        assert here["spark.master"] == master
        assert (here["spark.ui.enabled"], here["spark.driver.bindAddress"]) == ("false", "127.0.0.1")


class JavaError(Py4JJavaError):
    """An error as Java throws it past Spark, without a Java to throw it."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)

    def __str__(self) -> str:
        return str(self.args[0])


def test_a_failure_of_spark_is_one_line_with_a_way_out() -> None:
    said = "An error occurred while calling o1.text.\n: java.lang.RuntimeException: No FileSystem for scheme x\n\tat a"
    assert short_reason(JavaError(said)).startswith("No FileSystem for scheme x; Spark needs a package for this")
    own = "Job aborted\nTraceback\nomnigraph.errors.BadRequestError: not finite\n\nJVM stacktrace:\nat a"
    assert short_reason(PySparkException(own)) == "not finite"
    assert short_reason(PySparkException("[NO_SUCH] column x; line 1;\n'Project ...")) == "[NO_SUCH] column x; line 1"


def test_tests_that_use_spark_are_one_group(request: pytest.FixtureRequest, spark: SparkSession) -> None:
    """Workers are told of groups by the names of tests; where that fails, every worker starts a JVM of its own."""
    in_groups = getattr(request.config.option, "loadgroup", False)
    assert request.node.nodeid.endswith("@spark") == in_groups
