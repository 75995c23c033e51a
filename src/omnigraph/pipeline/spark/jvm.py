"""The JVM of a Spark session: started by us so that what it prints is worth reading.

Called by `session` for the first session of a process. What the user has configured in Spark's own places stays the
user's; without a logging configuration the package's own shows errors only.

Ctrl-C while Spark works: the JVM that this process started ends first, then whatever waits for it.

Spark would be asked to stop by a call to Java from within a call to Java, and everything on the way out asks Java for
more. A JVM that is told to end by the system needs no answers: it removes its files and its executors by itself.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

_LOG_SETTING: Final = "log4j2.configurationFile"
_DEFAULT_OPTIONS: Final = "spark.driver.defaultJavaOptions"
_EXTRA_OPTIONS: Final = "spark.driver.extraJavaOptions"

# Java says this before any of its logging exists: Spark asks for the module, and no option silences the remark.
_NOISE: Final = (b"WARNING: Using incubator modules",)
_TRACE: Final = b"Traceback (most recent call last):"
_DAEMON: Final = b"pyspark/daemon.py"
_INTERRUPTED: Final = b"KeyboardInterrupt"

_launched: list[subprocess.Popen[bytes]] = []
_quiet = threading.Event()


@dataclass(frozen=True, slots=True)
class LaunchedJvm:
    conf: SparkConf
    gateway: Any


def spark_defaults() -> dict[str, str]:
    """What the user has set in spark-defaults.conf. Spark reads it as well, but lets what a program sets win."""
    for directory in _configuration_directories():
        file = directory / "spark-defaults.conf"
        if file.exists():
            lines = (line.strip() for line in file.read_text(encoding="utf-8").splitlines())
            pairs = (re.split(r"[\s=:]+", line, maxsplit=1) for line in lines if line and not line.startswith("#"))
            return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
    return {}


def logging_options(conf: Mapping[str, str]) -> dict[str, str]:
    """The setting that makes Spark log by our file, or nothing where the user has a configuration."""
    configured = any((directory / "log4j2.properties").exists() for directory in _configuration_directories())
    named = any(_LOG_SETTING in conf.get(option, "") for option in (_DEFAULT_OPTIONS, _EXTRA_OPTIONS))
    if configured or named or "spark.log.level" in conf:
        return {}
    file = Path(__file__).with_name("log4j2.properties").as_uri()
    return {_DEFAULT_OPTIONS: f"{conf.get(_DEFAULT_OPTIONS, '')} -D{_LOG_SETTING}={file}".strip()}


def _configuration_directories() -> list[Path]:
    chosen = os.environ.get("SPARK_CONF_DIR")
    return [Path(chosen)] if chosen else [Path(_find_spark_home()) / "conf"]


def launch_jvm(conf: Mapping[str, str]) -> LaunchedJvm:
    """Start Java with these settings; what it writes to stderr comes to ours, without the noise."""
    settings = SparkConf(loadDefaults=False).setAll(list(conf.items()))
    reading, writing = os.pipe()
    try:
        gateway = launch_gateway(settings, popen_kwargs={"stderr": writing})  # type: ignore[no-untyped-call]
    finally:
        os.close(writing)
        threading.Thread(target=_forward, args=(reading,), name="spark-stderr", daemon=True).start()
    _launched[:] = [gateway.proc] if gateway.proc is not None else []
    _quiet.clear()
    return LaunchedJvm(settings, gateway)


def launched_process() -> subprocess.Popen[bytes] | None:
    """The JVM that this process started last, as long as it runs."""
    return next((process for process in _launched if process.poll() is None), None)


def quieten() -> None:
    """From now on, what the JVM says about its end is not worth reading."""
    _quiet.set()


def _forward(reading: int) -> None:
    with open(reading, "rb") as lines:
        for line in worth_reading(lines):
            if _quiet.is_set():
                continue
            sys.stderr.write(line.decode(errors="replace"))
            sys.stderr.flush()


def worth_reading(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines without the noise. Whoever wants the first rows of a frame makes Spark hang up on its Python workers, and
    each of them prints a trace about that. Each prints one about Ctrl-C on a terminal, too."""
    trace: list[bytes] = []
    for line in lines:
        if line.startswith(_TRACE) or (trace and line.startswith(b"  ")):
            trace.append(line)
            continue
        hung_up = line.startswith(b"BrokenPipeError") and any(_DAEMON in frame for frame in trace[-2:])
        hung_up = hung_up or (bool(trace) and line.startswith(_INTERRUPTED))
        if not hung_up:
            yield from trace
        if not hung_up and not line.startswith(_NOISE):
            yield line
        trace = []
    yield from trace


@contextmanager
def own_interrupts() -> Iterator[None]:
    """Keep Ctrl-C what it is in Python while Spark starts its context.

    Spark's handler calls Java from within a call to Java, which ends in two stack traces; who stops the session
    cancels its jobs as well. Py4J logs every interrupt with a trace of its own on the way.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals, and Spark leaves the others alone
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        logging.getLogger().addFilter(_is_no_interrupt)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("KeyboardInterrupt while sending command")


_SECONDS_TO_END: Final = 10


class Interrupt:
    """The handler of SIGINT. What comes while Java is being started waits until it can be ended; once."""

    def __init__(self) -> None:
        self.came = False
        self.ended_jvm = False
        self._starting = False

    def __call__(self, number: int, frame: object) -> None:
        waits, self.came = self._starting and not self.came, True
        if (process := launched_process()) is not None:
            self.ended_jvm = True
            quieten()
            if (server := _accumulators()) is not None:
                server.handle_error = _ignore
            process.terminate()
        if not waits:
            raise KeyboardInterrupt

    @contextmanager
    def held(self) -> Iterator[None]:
        """While there may be a JVM that nobody knows of yet."""
        self._starting = True
        try:
            yield
        finally:
            self._starting = False
        if self.came:
            raise KeyboardInterrupt

    def is_silent(self, record: logging.LogRecord) -> bool:
        """What libraries say about a JVM that went away is no news."""
        return not self.came


@contextmanager
def ending_the_jvm() -> Iterator[Interrupt]:
    """Work with Spark that ends with KeyboardInterrupt and without a JVM when SIGINT comes, however it takes that.

    Only the main thread gets signals. A JVM that this process did not start is left alone.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before, unraisable = signal.signal(signal.SIGINT, interrupt), sys.unraisablehook

    def told(unraised: Any) -> None:
        if not interrupt.came:
            unraisable(unraised)

    sys.unraisablehook = told
    logging.getLogger().addFilter(interrupt.is_silent)
    try:
        yield interrupt
    except BaseException:
        if not interrupt.came:
            raise
    finally:
        if interrupt.came:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            if interrupt.ended_jvm or launched_process() is not None:
                _end_jvm()
        signal.signal(signal.SIGINT, before)
        sys.unraisablehook = unraisable
        logging.getLogger().removeFilter(interrupt.is_silent)
    if interrupt.came:
        raise KeyboardInterrupt


def _end_jvm() -> None:
    process = launched_process()
    if process is not None:
        process.terminate()
        try:
            process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if (server := _accumulators()) is not None:
        server.shutdown()
    # The next session of this process must not look for it.
    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _accumulators() -> Any:
    """The server that the JVM tells its sums to, in a thread of this process. It prints a trace when nobody calls."""
    return getattr(SparkContext._active_spark_context, "_accumulatorServer", None)


def _ignore(request: object, address: object) -> None:
    """Somebody hung up who was told to."""
