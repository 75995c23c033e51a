"""Progress on a terminal, drawn on stderr so that results can be piped. Imported only when somebody watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


@contextmanager
def reading(name: str, size: int) -> Iterator[Callable[[bytes], bytes]]:
    """A bar over the bytes of a file; each piece is handed through. When all is read it says what remains to do."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"reading {name}", total=size)
        read = 0

        def advance(piece: bytes) -> bytes:
            nonlocal read
            read += len(piece)
            done = "checking and writing" if read >= size else f"reading {name}"
            progress.update(task, completed=read, description=done)
            return piece

        yield advance


@contextmanager
def working(what: str) -> Iterator[None]:
    """A spinner with the time, for work whose extent is not known."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(what, total=None)
        yield
