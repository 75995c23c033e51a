"""One run of a cluster command, from its start to its report. A run that fails anywhere still has a report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from omnigraph.api.cluster import DesiredRevision, Diagnostics, StateObservations, is_ok
from omnigraph.cluster.config_file import survey_config
from omnigraph.cluster.desired import Desired, ReadPipeline, load_desired
from omnigraph.cluster.diagnostics import ClusterError, Diagnostic
from omnigraph.cluster.session import UNREAD, Session, locked, open_session
from omnigraph.cluster.state import State
from omnigraph.cluster.storage_root import shown_directory

Outcome = TypeVar("Outcome")


@dataclass
class Attempt:
    """What a command has come to so far; `source` is the configuration directory as it was given."""

    source: str
    desired: Desired | None = None
    session: Session | None = None
    _refused: list[Diagnostic] = field(default_factory=list)

    def run(
        self, operation: str, read_pipeline: ReadPipeline, work: Callable[[Session, Desired], Outcome]
    ) -> Outcome | None:
        """Load the configuration, take the lock, read the ledger, and do the work. A `ClusterError` on the way ends it
        and becomes part of the report."""
        try:
            self.desired = desired = load_desired(survey_config(self.source), read_pipeline)
            if not desired.is_valid:
                raise ClusterError(desired.found)
            self.session = session = open_session(self.source)
            session.found += desired.found
            with locked(session, operation):
                session.recorded = session.ledger.newest()
                return work(session, desired)
        except ClusterError as problem:
            self._refused += problem.diagnostics
            return None

    @property
    def diagnostics(self) -> Diagnostics:
        return (*(self.session.found if self.session is not None else ()), *self._refused)

    @property
    def ok(self) -> bool:
        return is_ok(self.diagnostics)

    @property
    def config_dir(self) -> str:
        return shown_directory(self.source)

    @property
    def desired_revision(self) -> DesiredRevision:
        is_whole = self.desired is not None and self.desired.is_valid
        return DesiredRevision(self.desired.config_digest if self.desired is not None and is_whole else None)

    @property
    def state_observations(self) -> StateObservations:
        return self.session.observations() if self.session is not None else UNREAD

    @property
    def state(self) -> State | None:
        """The state that the command wrote, or else the one it read."""
        recorded = self.session.recorded if self.session is not None else None
        return recorded.state if recorded is not None else None
