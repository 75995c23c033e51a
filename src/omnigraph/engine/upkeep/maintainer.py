"""A thread that looks after a graph while a process runs: `maintain`, again and again, until the handle is closed.

`omnigraph.open(uri, maintain=True)` starts one. Upkeep is never needed for right answers, so nothing that happens here
reaches the caller: what fails is logged, kept in `last_error`, and tried again at the next look. The first look comes
after a while; a process that ends sooner did none.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import weakref
from datetime import timedelta
from typing import Final

from omnigraph.api.maintenance import DEFAULT_POLICY, MaintenancePolicy, MaintenanceReport
from omnigraph.engine.upkeep.maintain import maintain
from omnigraph.engine.workspace import Workspace
from omnigraph.errors import BadRequestError, OmniGraphError
from omnigraph.storage.identifiers import MAIN

LOOK_EVERY: Final = timedelta(minutes=5)
SWEEP_EVERY: Final = timedelta(days=1)
"""What deleted branches and interrupted writes left is looked for so often, even if no history may go."""

logger: Final = logging.getLogger("omnigraph.maintenance")


class Maintainer:
    """Looks after one branch of a graph, and after the history of the whole graph."""

    def __init__(
        self,
        workspace: Workspace,
        policy: MaintenancePolicy = DEFAULT_POLICY,
        *,
        every: timedelta = LOOK_EVERY,
        branch: str = MAIN,
        actor: str | None = None,
    ) -> None:
        if every <= timedelta(0):
            raise BadRequestError("the time between two looks at a graph must be positive")
        self._stopping = threading.Event()
        # A graph that nobody holds any more ends its maintainer, instead of being kept open by it for ever.
        self._root = weakref.ref(workspace.root, lambda _: self._stopping.set())
        self._policy = policy
        self._every = every.total_seconds()
        self._branch = branch
        self._actor = actor
        self._swept_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="omnigraph-maintain", daemon=True)
        self.looks = 0
        self.last_report: MaintenanceReport | None = None
        self.last_cleanup: MaintenanceReport | None = None
        self.last_error: Exception | None = None

    def start(self) -> Maintainer:
        """Begin; closing the graph ends it."""
        if (root := self._root()) is not None:
            root.on_close(self.stop)
            self._thread.start()
        return self

    def stop(self) -> None:
        """End it, after the table or the sweep that it is busy with."""
        self._stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        # Processes that were started together should not all look at the same moment.
        while not self._stopping.wait(self._every * random.uniform(0.8, 1.2)):
            if (root := self._root()) is None:
                return
            self._look(Workspace(root))
            del root

    def _look(self, workspace: Workspace) -> None:
        sweeps = time.monotonic() - self._swept_at > SWEEP_EVERY.total_seconds()
        try:
            report = maintain(
                workspace, self._branch, self._policy, actor=self._actor, progress=self._between_tables, sweeps=sweeps
            )
        except _StoppedError:
            return
        except OmniGraphError as error:
            logger.warning("maintenance of %s failed and is tried again later: %s", workspace.uri, error)
            self.last_error = error
        except Exception as error:
            # The thread goes on: one odd look must not end upkeep for the rest of the process.
            logger.exception("maintenance of %s failed and is tried again later", workspace.uri)
            self.last_error = error
        else:
            self.last_report, self.last_error = report, None
            if report.cleaned is not None:
                self.last_cleanup, self._swept_at = report, time.monotonic()
            if report.optimized is not None or report.cleaned is not None:
                removed = 0 if report.cleaned is None else report.cleaned.bytes_removed
                logger.info("maintenance of %s: tidied %s, removed %d bytes", workspace.uri, report.reasons, removed)
        self.looks += 1

    def _between_tables(self, _type_key: str, _done: int, _of: int) -> None:
        if self._stopping.is_set():
            raise _StoppedError


class _StoppedError(Exception):
    """The handle is being closed; whatever was being tidied is left as it was."""
