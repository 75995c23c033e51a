"""One Spark session for a pipeline: the caller's, a remote one, or a local one that this module starts and stops.

Configuration comes from the pipeline file and from Spark's own places (SPARK_REMOTE, spark-defaults.conf); what the
user set always wins over our defaults. Nothing here knows about graphs.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

from omnigraph.pipeline.model import SparkSettings

DEFAULT_MASTER: Final = "local[*]"

# Rows per Arrow batch: large enough that a batch costs more than its hand-over, small enough for wide rows.
_BATCH_ROWS: Final = "32768"

_DEFAULTS: Final[dict[str, str]] = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": _BATCH_ROWS,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.python.filterPushdown.enabled": "true",
}
_LOCAL_DEFAULTS: Final[dict[str, str]] = {
    # Spark's 200 are meant for a cluster; on one machine each costs a little for nothing.
    "spark.sql.shuffle.partitions": "16",
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


@contextmanager
def spark_session(settings: SparkSettings, app_name: str, given: SparkSession | None = None) -> Iterator[SparkSession]:
    """A session for the length of a run. One that was given, or was active before, is left running."""
    active = given or (SparkSession.getActiveSession() if settings.remote is None else None)
    if active is not None:
        try:
            yield active
        finally:
            _make_active(active)
        return
    spark = start_session(settings, app_name)
    try:
        yield spark
    finally:
        spark.stop()


def _make_active(spark: SparkSession) -> None:
    """Give a caller's session back as the active one; making a frame is the public way to say so.

    A run works in sessions of its own, and Spark looks up data sources in whichever was active last.
    """
    spark.createDataFrame([], "nothing int")


def start_session(settings: SparkSettings, app_name: str) -> SparkSession:
    """A new session with quiet logs."""
    logging.getLogger("py4j").setLevel(logging.ERROR)
    # Executors on this machine must run this interpreter and not whatever `python3` means there.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    remote = settings.remote or os.environ.get("SPARK_REMOTE")
    if remote:
        builder = builder.remote(remote)
        chosen = dict(settings.conf)
    else:
        master = settings.master or os.environ.get("MASTER") or DEFAULT_MASTER
        builder = builder.master(master)
        local = _LOCAL_DEFAULTS if master.startswith("local[") else {}
        if local:
            # Spark would print a warning about the address it guesses, before any log level counts.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        chosen = {**_DEFAULTS, **local, **settings.conf}
        if settings.packages:
            chosen["spark.jars.packages"] = ",".join(settings.packages)
    for name, value in chosen.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        # Starting the JVM forks and at once becomes another program; Lance can't tell that from a worker.
        warnings.filterwarnings("ignore", message="lance is not fork-safe")
        return builder.getOrCreate()


def session_of_run(spark: SparkSession, settings: SparkSettings) -> SparkSession:
    """A session of the run's own: its views meet nobody else's, and settings of its file count in a given session."""
    session = spark.newSession()
    for name, value in settings.conf.items():
        if session.conf.isModifiable(name):
            session.conf.set(name, value)
    return session


def ui_url(spark: SparkSession) -> str | None:
    """The address of the Spark UI, when there is one and this process can know it."""
    try:
        url: str | None = spark.sparkContext.uiWebUrl
    except Exception:  # a Connect session has no context to ask; what it raises differs by release
        return None
    return url
