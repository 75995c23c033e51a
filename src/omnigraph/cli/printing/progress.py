"""Progress on a terminal, drawn on stderr so that results can be piped. Without a terminal nothing is drawn.

A line comes up when the work has taken a second, with its rate and what is left where the end is known, and leaves
nothing behind. Until then it costs a timer: Rich is imported when there is something to draw.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from omnigraph.errors import PolicyError

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

    from omnigraph.api.graph import GraphApi
    from omnigraph.api.queries import ByteWriter
    from omnigraph.api.service.pipeline import StageEvent


QUIET_SECONDS = 1.0
_NARROW: Final = 70
"""Columns of a terminal that has no room for a bar and for the time that has passed."""


def _amount_columns(unit: str | None) -> list[ProgressColumn]:
    """How much is done of bytes or other items, and the rate; nothing where nobody knows."""
    from rich import progress
    from rich.text import Text

    class Rate(progress.ProgressColumn):
        def render(self, task: progress.Task) -> Text:
            return Text(f"{task.speed or 0:,.0f}/s")

    if unit is None:
        return []
    done: tuple[ProgressColumn, ...] = (progress.MofNCompleteColumn(), Rate())
    if unit == "bytes":
        done = (progress.DownloadColumn(), progress.TransferSpeedColumn())
    return [progress.BarColumn(), *done, progress.TimeRemainingColumn()]


class _Line:
    """One piece of work: its name, how much of it is done and of how much. Any thread may report; it is drawn late."""

    def __init__(self, what: str, total: int | None = None, unit: str | None = "items") -> None:
        self._what = what
        self._done = 0
        self._total = total
        self._unit = unit
        self._drawn: Progress | None = None
        self._is_over = False
        self._since = monotonic()
        self._lock = threading.Lock()

    def tell(self, done: int, total: int | None = None, what: str | None = None) -> None:
        with self._lock:
            self._done, self._total, self._what = done, total, what or self._what
            if self._drawn is None:
                return
            [task] = self._drawn.tasks
            if total is None and task.total is not None:  # a task can't lose its end
                self._drawn.remove_task(task.id)
                self._add_task(self._drawn)
            else:
                self._drawn.update(task.id, description=self._what, completed=done, total=total)

    def advance(self, count: int) -> None:
        self.tell(self._done + count, self._total)

    @contextmanager
    def display(self) -> Iterator[None]:
        """Draw the line from the first second on, until the work is done."""
        timer = threading.Timer(QUIET_SECONDS, self._draw)
        timer.daemon = True
        if QUIET_SECONDS:
            timer.start()
        else:
            self._draw()
        try:
            yield
        finally:
            timer.cancel()
            with self._lock:
                self._is_over = True
                if self._drawn is not None:
                    self._drawn.stop()

    def _draw(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.table import Column

        console = Console(stderr=True)
        what = TextColumn("{task.description}", table_column=Column(no_wrap=True, ratio=1))
        columns = [SpinnerColumn(), what, *_amount_columns(self._unit), TimeElapsedColumn()]
        if console.width < _NARROW:
            columns = [each for each in columns if not isinstance(each, BarColumn | TimeElapsedColumn)]
        with self._lock:
            if not self._is_over:
                self._drawn = Progress(*columns, console=console, transient=True)
                self._add_task(self._drawn)
                self._drawn.start()

    def _add_task(self, drawn: Progress) -> None:
        drawn.add_task(self._what, total=self._total, completed=self._done)
        drawn.tasks[0].start_time = self._since


@contextmanager
def reading(name: str, size: int | None) -> Iterator[Callable[[bytes], bytes]]:
    """A bar over the bytes of a file; each piece is handed through. When all is read it says what remains to do."""
    if not sys.stderr.isatty():
        yield lambda piece: piece
        return
    line, read = _Line(f"reading {name}", size, "bytes"), 0

    def advance(piece: bytes) -> bytes:
        nonlocal read
        read += len(piece)
        if size is not None and read >= size:
            # How long the rest takes is not known, and a bar at its end would not move.
            line.tell(read, None, "checking and writing")
        else:
            line.tell(read, size)
        return piece

    with line.display():
        yield advance


@contextmanager
def writing(writer: ByteWriter, total: Callable[[], int | None], what: str = "exporting") -> Iterator[ByteWriter]:
    """A bar over the lines that go through a writer; how many there will be is asked for when somebody watches."""
    if not sys.stderr.isatty():
        yield writer
        return
    line = _Line(what, total())

    class Counted:
        def write(self, piece: bytes) -> object:
            line.advance(piece.count(b"\n"))
            return writer.write(piece)

    with line.display():
        yield Counted()


def entities(
    graph: GraphApi, *, types: Collection[str] | None = None, kinds: Collection[str] | None = None, **point: Any
) -> int | None:
    """How many entities of these types and kinds a snapshot has; None for an actor who may not look at it."""
    try:
        tables = graph.listing(**point).datasets
    except PolicyError:
        return None
    return sum(
        table.entity_count
        for table in tables
        if (not types or table.type_name in types) and (not kinds or table.entity_kind in kinds)
    )


@contextmanager
def steps(what: str) -> Iterator[Callable[[str, int, int], None] | None]:
    """A bar over each step of work on a graph, which reports how far it is; None when nobody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    line = _Line(what)
    with line.display():
        yield lambda step, done, total: line.tell(done, total, f"{what}: {step}")


@contextmanager
def working(what: str) -> Iterator[None]:
    """That something goes on, where nobody knows how much there is to do."""
    if not sys.stderr.isatty():
        yield
        return
    with _Line(what, unit=None).display():
        yield


@contextmanager
def stages(beginning: str, *, transient: bool = True) -> Iterator[Callable[[StageEvent], None]]:
    """A line per stage of work on Spark: a spinner while it runs, its time when it is done.

    `beginning` is shown until the first stage begins: starting Java takes seconds in which nothing else is
    printed. The address of Spark's UI is printed at the first stage; without a terminal, nothing else is.
    """
    is_first = True

    def announce(tell: Callable[[str], None]) -> None:
        nonlocal is_first
        if is_first and (url := active_ui()) is not None:
            tell(f"Spark UI: {url}")
        is_first = False

    if not sys.stderr.isatty():
        yield lambda event: announce(lambda text: print(text, file=sys.stderr))
        return
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn
    from rich.text import Text

    class Seconds(ProgressColumn):
        """Tenths of a second: most stages take few of them."""

        def render(self, task: Task) -> Text:
            took = task.finished_time if task.finished else task.elapsed
            return Text(f"{took or 0.0:6.1f} s", style="dim")

    columns = (SpinnerColumn(finished_text="[green]✓[/]"), TextColumn("{task.description}"), Seconds())
    with Progress(*columns, console=Console(stderr=True, highlight=False), transient=transient) as progress:
        first = progress.add_task(beginning, total=1)
        running: dict[tuple[str, str], TaskID] = {}

        def show(event: StageEvent) -> None:
            announce(progress.console.print)
            progress.update(first, completed=1)
            stage = (event.stage, event.detail)
            if event.seconds is None:
                running[stage] = progress.add_task(" ".join(stage).strip(), total=1)
            else:
                progress.update(running[stage], completed=1)

        yield show


def active_ui() -> str | None:
    """The address of Spark's UI, once a session that has one is running."""
    from pyspark.sql import SparkSession

    from omnigraph.pipeline.spark.session import ui_url

    session = SparkSession.getActiveSession()
    return None if session is None else ui_url(session)
