"""Who asks a provider for a text right now, so that threads and processes that want the same one pay for it once.

A claim is a lock on one byte of a file, at the place that the key of the text names. The kernel holds it and takes it
back from whoever dies, so nothing is left behind and no clock decides. Whoever finds a text claimed waits, and not for
ever: a holder that makes no progress costs a second payment and never an answer.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from omnigraph.embeddings.configuration import logger

try:
    from fcntl import F_OFD_SETLK, F_UNLCK, F_WRLCK, fcntl
except ImportError:  # not Linux: there are no locks that belong to an open file, so nothing is claimed
    fcntl = None  # type: ignore[assignment]

LONGEST_WAIT: Final = 300.0
"""Seconds until a holder that still has a text counts as stuck. One that works has ended long before."""
_FIRST_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 0.1


class Claims:
    """The claims of everybody who uses one file; without one, nobody knows of anybody else."""

    def __init__(self, path: Path | None) -> None:
        self._path = path if fcntl is not None else None

    def portions(
        self, keys: Mapping[str, bytes], longest_wait: float = LONGEST_WAIT
    ) -> Generator[dict[str, bytes], None, None]:
        """Texts by their keys, in the portions in which they become the caller's, all of them in the end.

        A portion is held until the next one is asked for. Whoever held it before may have got what it is about.
        """
        others = dict(keys)
        pause, gives_up = _FIRST_PAUSE, time.monotonic() + longest_wait
        while others:
            with self._held(others) as mine:
                if mine:
                    yield mine
            others = {text: key for text, key in others.items() if text not in mine}
            if mine:
                pause, gives_up = _FIRST_PAUSE, time.monotonic() + longest_wait
            elif time.monotonic() > gives_up:
                logger.warning("texts=%d are asked for by somebody who gets no answer: asked again", len(others))
                yield others
                return
            else:
                if pause == _FIRST_PAUSE:
                    logger.info("texts=%d are asked for by somebody else already: waiting", len(others))
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    @contextmanager
    def _held(self, keys: Mapping[str, bytes]) -> Iterator[dict[str, bytes]]:
        """What nobody else holds, held until the block ends. It is everything where there can be no locks."""
        file = None
        with suppress(OSError):
            if self._path is not None:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                file = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
        if file is None:
            yield dict(keys)
            return
        try:
            yield {text: key for text, key in keys.items() if _is_locked(file, key)}
        finally:
            with suppress(OSError):
                _lock(file, F_UNLCK, 0, 0)  # all; a process that was forked meanwhile has the file open too
            os.close(file)


def _is_locked(file: int, key: bytes) -> bool:
    try:
        _lock(file, F_WRLCK, int.from_bytes(key[:8], "big") >> 2, 1)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks
    return True


def _lock(file: int, kind: int, start: int, length: int) -> None:
    fcntl(file, F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0))
