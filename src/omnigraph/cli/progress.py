"""Progress on a terminal, drawn on stderr so that results can be piped. Without a terminal nothing is drawn.

Rich is imported only when somebody watches.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.api.pipeline import StageEvent


@contextmanager
def reading(name: str, size: int) -> Iterator[Callable[[bytes], bytes]]:
    """A bar over the bytes of a file; each piece is handed through. When all is read it says what remains to do."""
    if not sys.stderr.isatty():
        yield lambda piece: piece
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"reading {name}", total=size)
        read = 0

        def advance(piece: bytes) -> bytes:
            nonlocal read
            read += len(piece)
            doing = "checking and writing" if read >= size else f"reading {name}"
            progress.update(task, completed=read, description=doing)
            return piece

        yield advance


@contextmanager
def tables(what: str) -> Iterator[Callable[[str, int, int], None] | None]:
    """A bar over the tables of a graph, told after each one; None when nobody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)

        def told(type_key: str, done: int, total: int) -> None:
            progress.update(task, completed=done, total=total, description=f"{what} {type_key}")

        yield told


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
