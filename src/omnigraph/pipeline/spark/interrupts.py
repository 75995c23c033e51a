"""Ctrl-C while Spark works: the JVM that this process started ends first, then whatever waits for it.

Spark would be asked to stop by a call to Java from within a call to Java, and everything on the way out asks Java for
more. A JVM that is told to end by the system needs no answers: it removes its files and its executors by itself.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from omnigraph.pipeline.spark.jvm import launched_process, quieten

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
