"""The temporary directory of one running server: everything that its processes tell one another, in small files.

The supervisor makes it and removes it; workers write to it. Locks are those of the kernel (`flock`), so a process that
is killed never holds one. Nothing in it outlives the server.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from omnigraph.errors import StorageError, StorageErrorKind

if TYPE_CHECKING:
    from omnigraph.server.catalog import Serving

_REVISION: Final = "revision"
_READY: Final = "ready"
_MAINTENANCE: Final = "maintenance"
_REFUSAL: Final = "refusal"


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The files of one server. Workers get it when they are started."""

    path: str

    def boot(self, boot: Callable[[int | None], Serving]) -> Serving:
        """Boot at the revision that the other workers serve; the first worker chooses it while the others wait."""
        with self._lock(_REVISION) as file:
            if not (text := file.read()):
                serving = boot(None)
                file.write(json.dumps(serving.revision))
                return serving
        return boot(json.loads(text))

    def advance(self, revision: int | None) -> None:
        """Let workers that start from now on serve at least this revision: it is known to be servable."""
        with self._lock(_REVISION) as file:
            newest = json.loads(file.read() or "null")
            if revision is not None and revision > (newest or 0):
                file.truncate(0)
                file.write(json.dumps(revision))

    def count_ready(self) -> int:
        """Count this worker as ready; returns how many have been ready so far, those that died since included."""
        with self._lock(_READY) as file:
            count = len(file.read()) + 1
            file.write(".")
        return count

    def ready(self) -> int:
        """How many workers have been ready so far."""
        file = Path(self.path, _READY)
        return file.stat().st_size if file.exists() else 0

    def await_maintenance(self) -> IO[str]:
        """Wait until no other worker maintains the graphs. The right lasts as long as the file is open."""
        file = Path(self.path, _MAINTENANCE).open("a")  # noqa: SIM115 (its owner keeps it open)
        fcntl.flock(file, fcntl.LOCK_EX)
        return file

    def refuse(self, reason: str) -> None:
        """Say why the server must not start; the supervisor reports it."""
        Path(self.path, _REFUSAL).write_text(reason)

    def refusal(self) -> str | None:
        """Why a worker could not start for the first time."""
        file = Path(self.path, _REFUSAL)
        return file.read_text() if file.exists() else None

    def discard(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    @contextmanager
    def _lock(self, name: str) -> Iterator[IO[str]]:
        with Path(self.path, name).open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            yield file


@contextmanager
def run_directory() -> Iterator[RunDirectory]:
    """A new directory, for as long as the server runs."""
    try:
        directory = tempfile.TemporaryDirectory(prefix="omnigraph-run-", ignore_cleanup_errors=True)
    except OSError as error:
        reason = f"workers need a directory for temporary files: {error.strerror}; set TMPDIR to one"
        raise StorageError(StorageErrorKind.CONFIGURATION, reason) from None
    with directory as path:
        yield RunDirectory(path)
