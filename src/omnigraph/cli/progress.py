"""Progress on a terminal, drawn on stderr so that results can be piped. Without a terminal nothing is drawn.

A bar comes up when the work has taken a second, with its rate and what is left where the end is known, and leaves
nothing behind. Rich is imported only when somebody watches.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

    from omnigraph.api.export import ByteWriter
    from omnigraph.api.pipeline import StageEvent

PATIENCE_SECONDS = 1.0


def _is_watched() -> bool:
    return sys.stderr.isatty()


@contextmanager
def _drawn(*columns: ProgressColumn) -> Iterator[Progress]:
    """A display of these columns between a spinner with its text and the time, once the work is no short one."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    begin, end = (SpinnerColumn(), TextColumn("{task.description}")), TimeElapsedColumn()
    progress = Progress(*begin, *columns, end, console=Console(stderr=True), transient=True)
    timer = threading.Timer(PATIENCE_SECONDS, progress.start)
    timer.daemon = True
    if PATIENCE_SECONDS:
        timer.start()
    else:
        progress.start()
    try:
        yield progress
    finally:
        timer.cancel()
        if PATIENCE_SECONDS:
            timer.join()
        progress.stop()


@contextmanager
def reading(name: str, size: int | None) -> Iterator[Callable[[bytes], bytes]]:
    """A bar over the bytes of a file; each piece is handed through. When all is read it says what remains to do."""
    if not _is_watched():
        yield lambda piece: piece
        return
    from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

    with _drawn(BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()) as progress:
        task = progress.add_task(f"reading {name}", total=size)
        read = 0

        def advance(piece: bytes) -> bytes:
            nonlocal read
            before, read = read, read + len(piece)
            progress.update(task, completed=read)
            if size is not None and before < size <= read:
                # How long the rest takes is not known, and a bar at its end stands still.
                progress.update(task, visible=False)
                progress.add_task("checking and writing", completed=read, total=None)
            return piece

        yield advance


@contextmanager
def writing(writer: ByteWriter, total: Callable[[], int | None]) -> Iterator[ByteWriter]:
    """A bar over the lines that go through a writer; how many there will be is asked for when somebody watches."""
    if not _is_watched():
        yield writer
        return
    from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed or 0:,.0f}/s")

    with _drawn(BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn()) as progress:
        task = progress.add_task("exporting", total=total())

        class Counted:
            def write(self, piece: bytes) -> object:
                progress.update(task, advance=piece.count(b"\n"))
                return writer.write(piece)

        yield Counted()


@contextmanager
def tables(what: str) -> Iterator[Callable[[str, int, int], None] | None]:
    """A bar over the tables of a graph, told after each one; None when nobody watches."""
    if not _is_watched():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn

    with _drawn(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as progress:
        task = progress.add_task(what, total=None)

        def told(type_key: str, done: int, total: int) -> None:
            progress.update(task, completed=done, total=total, description=f"{what} {type_key}")

        yield told


@contextmanager
def working(what: str) -> Iterator[None]:
    """That something goes on, where nobody knows how much there is to do."""
    if not _is_watched():
        yield
        return
    with _drawn() as progress:
        progress.add_task(what, total=None)
        yield


@contextmanager
def stages(beginning: str, *, transient: bool = True) -> Iterator[Callable[[StageEvent], None]]:
    """A line per stage of work on Spark: a spinner while it runs, its time when it is done.

    `beginning` is shown until the first stage begins: starting Java takes seconds in which nothing else is told. When
    nobody watches, only the address of Spark's UI is told.
    """
    announced = _Announcement()
    if not sys.stderr.isatty():
        yield lambda event: announced.once(lambda text: print(text, file=sys.stderr))
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
            announced.once(progress.console.print)
            progress.update(first, completed=1)
            stage = (event.stage, event.detail)
            if event.seconds is None:
                running[stage] = progress.add_task(" ".join(stage).strip(), total=1)
            else:
                progress.update(running[stage], completed=1)

        yield show


class _Announcement:
    """Tells where Spark's UI is, at the first stage, when there is one."""

    def __init__(self) -> None:
        self._due = True

    def once(self, tell: Callable[[str], None]) -> None:
        if self._due and (url := active_ui()) is not None:
            tell(f"Spark UI: {url}")
        self._due = False


def active_ui() -> str | None:
    """The address of Spark's UI, once a session that has one is running."""
    from pyspark.sql import SparkSession

    from omnigraph.pipeline.spark.session import ui_url

    session = SparkSession.getActiveSession()
    return None if session is None else ui_url(session)
