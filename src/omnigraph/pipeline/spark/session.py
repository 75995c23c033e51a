"""Spark sessions: the caller's, a remote one, or a local one that this module starts and stops.

Every command and function that runs on Spark gets its session here. Settings come from the pipeline file and from
Spark's own places (SPARK_REMOTE, spark-defaults.conf), and those of the user win over our defaults. Nothing here knows
about graphs, and nothing uses a private name of PySpark or Py4J.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final

import pyspark
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from omnigraph.errors import BadRequestError
from omnigraph.pipeline.file import SparkSettings

DEFAULT_MASTER: Final = "local[*]"
_QUERY_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_LOG_SETTING: Final = "log4j2.configurationFile"
_DEFAULT_OPTIONS: Final = "spark.driver.defaultJavaOptions"
_EXTRA_OPTIONS: Final = "spark.driver.extraJavaOptions"

_DEFAULTS: Final[dict[str, str]] = {
    # Large enough that a batch costs more than its hand-over, small enough for wide rows.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "32768",
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
def spark_session(settings: SparkSettings, app_name: str, spark: SparkSession | None = None) -> Iterator[SparkSession]:
    """A session for the length of a run. The caller's session, or one that was active before, is left running."""
    active = spark or (SparkSession.getActiveSession() if settings.remote is None else None)
    if active is not None:
        try:
            yield active
        finally:
            # A run works in sessions of its own, and Spark looks up data sources in the session that was active last.
            # Making a frame is the public way to make the caller's session the active one again.
            active.createDataFrame([], "nothing int")
        return
    # Only a local start is waited for: a server that does not answer may be interrupted at once.
    with _hold_interrupts() if _remote_address(settings) is None else nullcontext():
        session = start_session(settings, app_name)
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def _hold_interrupts() -> Iterator[None]:
    """Hold the first Ctrl-C back until Spark has started, so that what it started can be stopped. Spark installs a
    handler that calls Java from within a call to Java; the handler from before is put back, so that Ctrl-C is a
    KeyboardInterrupt. Py4J logs every one of those with a stack trace, which is filtered out."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals, and Spark leaves the others alone
        return
    interrupts: list[int] = []

    def hold(number: int, frame: object) -> None:
        interrupts.append(number)
        if len(interrupts) > 1:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        logging.getLogger().addFilter(_is_not_an_interrupt)
    if interrupts:
        raise KeyboardInterrupt


def _is_not_an_interrupt(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("KeyboardInterrupt while sending command")


def current_session(spark: SparkSession | None = None) -> SparkSession:
    """The session to read with: the caller's, the active one, or a new local one that lives as long as the process."""
    return spark or SparkSession.getActiveSession() or start_session(SparkSettings(), "omnigraph")


def start_session(settings: SparkSettings, app_name: str) -> SparkSession:
    """A new session with quiet logs."""
    # These libraries also raise what they log. The loggers of PySpark must be made by PySpark.
    for logger in (logging.getLogger("py4j"), *map(PySparkLogger.getLogger, _QUERY_LOGGERS)):
        logger.setLevel(logging.CRITICAL)
    # Executors on this machine must run this interpreter and not whatever `python3` means there.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with warnings.catch_warnings():
        # Starting the JVM forks and at once becomes another program; Lance can't tell that from a worker.
        warnings.filterwarnings("ignore", message="lance is not fork-safe")
        try:
            if remote := _remote_address(settings):
                builder = SparkSession.builder.appName(app_name).remote(remote)
                return builder.config(map=dict(settings.conf)).getOrCreate()
            chosen = session_settings(settings, app_name)
            if _is_local(chosen["spark.master"]):
                # Spark would print a warning about the address it guesses, before any log level counts.
                os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            return SparkSession.builder.config(map=dict(chosen)).getOrCreate()
        except PySparkException as error:
            if "JAVA_GATEWAY_EXITED" not in str(error):
                raise BadRequestError(f"Spark did not start: {str(error).splitlines()[0]}") from error
            raise BadRequestError(
                "Spark's Java process did not start; Spark needs Java 17 or newer on the PATH or in JAVA_HOME"
            ) from None


def _remote_address(settings: SparkSettings) -> str | None:
    return settings.remote or os.environ.get("SPARK_REMOTE") or None


def session_settings(settings: SparkSettings, app_name: str) -> dict[str, str]:
    """All settings of a new session: those of the pipeline, then of the user's spark-defaults, then our own."""
    # Spark reads the user's spark-defaults.conf as well, but lets the settings of a program win.
    file = _configuration_directory() / "spark-defaults.conf"
    lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    pairs = (re.split(r"[\s=:]+", line, maxsplit=1) for line in lines if line and not line.startswith("#"))
    users = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
    master = settings.master or os.environ.get("MASTER") or users.get("spark.master") or DEFAULT_MASTER
    ours = _DEFAULTS | (_LOCAL_DEFAULTS if _is_local(master) else {})
    chosen = ours | users | {"spark.master": master, "spark.app.name": app_name} | dict(settings.conf)
    if settings.packages:
        chosen["spark.jars.packages"] = ",".join(settings.packages)
    return chosen | _logging_options(chosen)


def _is_local(master: str) -> bool:
    """Whether everything runs on this machine; the executors of a local cluster are processes of it."""
    return master == "local" or master.startswith(("local[", "local-cluster["))


def _logging_options(conf: Mapping[str, str]) -> dict[str, str]:
    """The setting that makes Spark log by our file; nothing where the user has a logging configuration."""
    configured = (_configuration_directory() / "log4j2.properties").exists()
    named = any(_LOG_SETTING in conf.get(option, "") for option in (_DEFAULT_OPTIONS, _EXTRA_OPTIONS))
    if configured or named or "spark.log.level" in conf:
        return {}
    file = Path(__file__).with_name("log4j2.properties").as_uri()
    return {_DEFAULT_OPTIONS: f"{conf.get(_DEFAULT_OPTIONS, '')} -D{_LOG_SETTING}={file}".strip()}


def _configuration_directory() -> Path:
    chosen = os.environ.get("SPARK_CONF_DIR")
    return Path(chosen) if chosen else Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "conf"


@contextmanager
def session_of_run(spark: SparkSession, settings: SparkSettings) -> Iterator[SparkSession]:
    """A session of the run's own, for its views and for the settings of its file."""
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
