"""One Spark session for a pipeline: the caller's, a remote one, or a local one that this module starts and stops.

Configuration comes from the pipeline file and from Spark's own places (SPARK_REMOTE, spark-defaults.conf); what the
user set always wins over our defaults. Nothing here knows about graphs.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Final

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from omnigraph.errors import BadRequestError
from omnigraph.pipeline.file import SparkSettings
from omnigraph.pipeline.spark.jvm import ending_the_jvm, launch_jvm, logging_options, own_interrupts, spark_defaults

DEFAULT_MASTER: Final = "local[*]"
_QUERY_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")

# Rows per Arrow batch: large enough that a batch costs more than its hand-over, small enough for wide rows.
_BATCH_ROWS: Final = "32768"

_DEFAULTS: Final[dict[str, str]] = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": _BATCH_ROWS,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.python.filterPushdown.enabled": "true",
    # Over TCP every Python task waits for a delayed acknowledgement, which takes longer than most of our tasks.
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
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
    with ending_the_jvm() as interrupt:
        # Nobody waits for a server that does not answer, but a JVM that is being started can't be ended yet.
        with interrupt.held() if _remote_address(settings) is None else nullcontext():
            spark = start_session(settings, app_name)
        try:
            yield spark
        finally:
            if not interrupt.ended_jvm:
                spark.stop()


def _make_active(spark: SparkSession) -> None:
    """Give a caller's session back as the active one; making a frame is the public way to say so.

    A run works in sessions of its own, and Spark looks up data sources in whichever was active last.
    """
    spark.createDataFrame([], "nothing int")


def current_session(given: SparkSession | None = None) -> SparkSession:
    """The session to read with: the one given, the active one, or a new local one that lives as long as the process."""
    return given or SparkSession.getActiveSession() or start_session(SparkSettings(), "omnigraph")


def start_session(settings: SparkSettings, app_name: str) -> SparkSession:
    """A new session with quiet logs."""
    # What these have to say they also raise. The loggers of PySpark must be made by PySpark.
    for logger in (logging.getLogger("py4j"), *map(PySparkLogger.getLogger, _QUERY_LOGGERS)):
        logger.setLevel(logging.CRITICAL)
    # Executors on this machine must run this interpreter and not whatever `python3` means there.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    remote = _remote_address(settings)
    with warnings.catch_warnings():
        # Starting the JVM forks and at once becomes another program; Lance can't tell that from a worker.
        warnings.filterwarnings("ignore", message="lance is not fork-safe")
        try:
            return _remote(remote, settings, app_name) if remote else _classic(settings, app_name)
        except PySparkException as error:
            if "JAVA_GATEWAY_EXITED" not in str(error):
                raise BadRequestError(f"Spark did not start: {str(error).splitlines()[0]}") from error
            raise BadRequestError(
                "Spark's Java process did not start; Spark needs Java 17 or newer on the PATH or in JAVA_HOME"
            ) from None


def _remote_address(settings: SparkSettings) -> str | None:
    return settings.remote or os.environ.get("SPARK_REMOTE") or None


def _remote(address: str, settings: SparkSettings, app_name: str) -> SparkSession:
    builder = SparkSession.builder.appName(app_name).remote(address)
    for name, value in settings.conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _classic(settings: SparkSettings, app_name: str) -> SparkSession:
    chosen = session_settings(settings, app_name)
    if _is_local(chosen["spark.master"]):
        # Spark would print a warning about the address it guesses, before any log level counts.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    _start_context(chosen)
    builder = SparkSession.builder
    for name, value in chosen.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def session_settings(settings: SparkSettings, app_name: str) -> dict[str, str]:
    """Everything a new session is started with: the pipeline's word, then the user's spark-defaults, then ours."""
    users = spark_defaults()
    master = settings.master or os.environ.get("MASTER") or users.get("spark.master") or DEFAULT_MASTER
    ours = _DEFAULTS | (_LOCAL_DEFAULTS if _is_local(master) else {})
    chosen = ours | users | {"spark.master": master, "spark.app.name": app_name} | dict(settings.conf)
    if settings.packages:
        chosen["spark.jars.packages"] = ",".join(settings.packages)
    return chosen | logging_options(chosen)


def _is_local(master: str) -> bool:
    """Whether everything runs on this machine; the executors of a local cluster are processes of it."""
    return master == "local" or master.startswith(("local[", "local-cluster["))


def _start_context(conf: Mapping[str, str]) -> None:
    """Spark's context on a JVM whose chatter we filter; a context or a JVM of this process that is there is used."""
    if SparkContext._active_spark_context is None and SparkContext._gateway is None:
        launched = launch_jvm(conf)
        with own_interrupts():
            SparkContext(conf=launched.conf, gateway=launched.gateway)


@contextmanager
def session_of_run(spark: SparkSession, settings: SparkSettings) -> Iterator[SparkSession]:
    """A session of the run's own: its views meet nobody else's, and settings of its file count in a given session."""
    session = spark.newSession()
    try:
        for name, value in settings.conf.items():
            if session.conf.isModifiable(name):
                session.conf.set(name, value)
        yield session
    finally:
        if type(session).__module__.startswith("pyspark.sql.connect"):
            # It is a connection there. Left open, it holds up the end of a process whose server has gone.
            session.client.release_session()
            session.client.close()


def ui_url(spark: SparkSession) -> str | None:
    """The address of the Spark UI, when there is one and this process can know it."""
    try:
        url: str | None = spark.sparkContext.uiWebUrl
    except Exception:  # a Connect session has no context to ask; what it raises differs by release
        return None
    return url
