"""Following a cluster: a thread that looks for the next applied state, has it built beside the one that is served, and
puts it in its place.

What can't be built changes nothing: the older state goes on, the failure is logged and shown by `/readyz` and the
metrics, and it is tried again, because a store that was away comes back. A still newer state is looked for meanwhile.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from omnigraph.errors import OmniGraphError
from omnigraph.server.states import States, close_graphs

if TYPE_CHECKING:
    from omnigraph.server.serving import Serving

LOOK_EVERY_SECONDS: Final = 1.0
FIRST_DELAY: Final = 2.0
LONGEST_DELAY: Final = 60.0

_LEDGER: Final = "the ledger"

NewerThan: TypeAlias = Callable[[int], int | None]
"""The newest revision if it is newer than that one."""
Renew: TypeAlias = "Callable[[Serving, int], Serving]"
"""What a revision says to serve, built beside what is served now. Raises when it can't be served."""

logger: Final = logging.getLogger("omnigraph.server")


class Follower:
    """Follows one cluster for one worker. `taken` and `failed` are told of every attempt."""

    def __init__(
        self,
        states: States,
        newer_than: NewerThan,
        renew: Renew,
        taken: Callable[[Serving], None],
        failed: Callable[[int], None],
        every: float = LOOK_EVERY_SECONDS,
    ) -> None:
        self._states = states
        self._newer_than = newer_than
        self._renew = renew
        self._taken = taken
        self._failed = failed
        self._every = every
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="omnigraph-follow", daemon=True)
        self._failures = 0
        self._retry_at = 0.0
        self._complained_about = ""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Take over nothing from now on."""
        self._stopping.set()

    def join(self) -> None:
        """Wait for what is being built, which then is not served."""
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        # Workers that were started together should not all look at the same moment.
        while not self._stopping.wait(self._every * random.uniform(0.8, 1.2)):
            try:
                revision = self._due()
            except Exception as error:
                self._complain(_LEDGER, "the ledger can't be read", error)
            else:
                if self._complained_about == _LEDGER:
                    self._complained_about = ""
                if revision is not None:
                    self._follow(revision)

    def _due(self) -> int | None:
        """The revision to serve next, None while there is nothing to do."""
        served, unserved = self._states.serving.revision or 0, self._states.unserved_revision
        newest = self._newer_than(unserved or served)
        if newest is None and unserved is not None and time.monotonic() >= self._retry_at:
            return unserved
        return newest

    def _follow(self, revision: int) -> None:
        before = self._states.serving
        try:
            serving = self._renew(before, revision)
        except Exception as error:
            self._failures = self._failures + 1 if self._states.unserved_revision == revision else 1
            self._retry_at = time.monotonic() + min(LONGEST_DELAY, FIRST_DELAY * 2 ** (self._failures - 1))
            self._states.unserved_revision = revision
            self._failed(revision)
            told = f"revision {revision} can't be served, revision {before.revision} still is"
            self._complain(f"{revision}: {error}", told, error)
            return
        if self._stopping.is_set():
            close_graphs(serving.graphs.values(), but=before.graphs.values())
            return
        self._states.replace(serving)
        self._complained_about = ""
        self._taken(serving)
        logger.info("revision %d is served: %d graphs", revision, len(serving.graphs))

    def _complain(self, about: str, told: str, error: Exception) -> None:
        """Once: what goes wrong at every look is no news."""
        if about == self._complained_about:
            return
        self._complained_about = about
        if isinstance(error, OmniGraphError):
            logger.error("%s: %s", told, error)
        else:
            # The text of something unforeseen may hold anything.
            logger.error("%s: %s", told, type(error).__name__, exc_info=error)
