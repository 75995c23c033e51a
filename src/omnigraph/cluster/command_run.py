"""One run of a cluster command: its configuration, its storage root, its lock, the ledger, and its findings.

Every command in `commands` runs through a `CommandRun` or a `Session`. A run that fails still has a report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from omnigraph.api.service.cluster import DesiredRevision, Diagnostics, Observations, StateObservations, Statuses, is_ok
from omnigraph.cluster import state_ledger
from omnigraph.cluster.configuration import ConfigFile, absolute_directory, read_config, survey_config
from omnigraph.cluster.desired import Desired, ReadPipeline, load_desired
from omnigraph.cluster.payloads import PayloadStore
from omnigraph.cluster.resources import ClusterError, Diagnostic, Severity, error, graph_address, warning
from omnigraph.cluster.state import State, StateBuilder, composite_digest
from omnigraph.cluster.storage_root import make_root, open_root
from omnigraph.storage.objects import Objects


@dataclass
class Session:
    """An open cluster. `recorded` is the revision that the command read, later the one that it wrote. `lock` is its own
    lock, `holder` the lock of another command."""

    file: ConfigFile
    objects: Objects
    findings: list[Diagnostic] = field(default_factory=list)
    lock: state_ledger.Lock | None = None
    holder: state_ledger.Lock | None = None
    recorded: state_ledger.LedgerRevision | None = None

    def __post_init__(self) -> None:
        self.ledger, self.catalog = state_ledger.Ledger(self.objects), PayloadStore(self.objects)


@contextmanager
def hold_lock(session: Session, operation: str) -> Iterator[None]:
    """Hold the lock while the block runs, and release it in any case."""
    if not session.file.config.state.lock:
        message = "commands run without a lock; that is safe, but one of two concurrent commands has to be run again"
        session.findings.append(warning("state_lock_disabled", "state.lock", message))
        yield
        return
    try:
        session.lock = lock = state_ledger.acquire(session.objects, operation)
    except state_ledger.LockHeldError as held:
        session.holder = held.holder
        raise
    try:
        yield
    finally:
        try:
            state_ledger.release(session.objects, lock)
        except ClusterError as problem:
            # The command has succeeded or failed already; a lock that stays must not change that.
            session.findings += as_warnings(problem)


def as_warnings(problem: ClusterError) -> list[Diagnostic]:
    return [msgspec.structs.replace(finding, severity=Severity.WARNING) for finding in problem.diagnostics]


Outcome = TypeVar("Outcome")
Report = TypeVar("Report", bound=Struct)


@dataclass
class CommandRun:
    """A command from its start to its report. `source` is the configuration directory as the user wrote it."""

    source: str
    desired: Desired | None = None
    session: Session | None = None
    findings: list[Diagnostic] = field(default_factory=list)

    @contextmanager
    def report_errors(self) -> Iterator[None]:
        """A `ClusterError` ends the block and becomes part of the report."""
        try:
            yield
        except ClusterError as problem:
            self.findings += problem.diagnostics

    def open_read_only(self) -> Session | None:
        """The cluster, for a command that changes nothing; None when the local storage root does not exist."""
        file = read_config(self.source)
        objects = open_root(file.storage_root)
        self.session = None if objects is None else Session(file, objects)
        return self.session

    def run(
        self, operation: str, read_pipeline: ReadPipeline, work: Callable[[Session, Desired], Outcome]
    ) -> Outcome | None:
        """Load the configuration, acquire the lock, read the ledger and do the work. A missing local storage root is
        created."""
        with self.report_errors():
            self.desired = desired = load_desired(survey_config(self.source), read_pipeline)
            if not desired.is_valid:
                raise ClusterError(desired.findings)
            root = make_root(desired.file.storage_root)
            self.session = session = Session(desired.file, root, list(desired.findings))
            with hold_lock(session, operation):
                session.recorded = session.ledger.newest()
                return work(session, desired)
        return None

    def report(self, shape: type[Report], **members: Any) -> Report:
        """A report with these members. The other members are the properties of this run with their names."""
        others = {name: getattr(self, name) for name in shape.__struct_fields__ if name not in members}
        return shape(**others, **members)

    @property
    def diagnostics(self) -> Diagnostics:
        return (*(self.session.findings if self.session is not None else ()), *self.findings)

    @property
    def ok(self) -> bool:
        return is_ok(self.diagnostics)

    @property
    def config_dir(self) -> str:
        return absolute_directory(self.source)

    @property
    def desired_revision(self) -> DesiredRevision:
        desired = self.desired
        return DesiredRevision(desired.config_digest if desired is not None and desired.is_valid else None)

    @property
    def state_observations(self) -> StateObservations:
        """The ledger and the lock, as far as they were read."""
        session = self.session
        root = f"{session.objects.location.uri}/" if session is not None else ""
        members: dict[str, Any] = {
            "state_path": f"{root}{state_ledger.STATE_FOLDER}",
            "state_revision": 0,
            "resource_count": 0,
        }
        recorded = session.recorded if session is not None else None
        if recorded is not None:
            members = {
                "state_path": f"{root}{recorded.path}",
                "applied_config_digest": recorded.state.applied_revision.config_digest,
                "state_revision": recorded.revision,
                "state_cas": recorded.state_cas,
                "resource_count": len(recorded.state.resources),
            }
        own = session.lock if session is not None else None
        lock = own or (session.holder if session is not None else None)
        if lock is not None:
            shown = ("operation", "created_at", "pid", "age_seconds")
            members |= {"lock_id": lock.lock_id, **{f"lock_{name}": getattr(lock, name) for name in shown}}
        return StateObservations(
            lock_path=f"{root}{state_ledger.LOCK_PATH}",
            state_found=recorded is not None,
            locked=lock is not None,
            lock_acquired=own is not None,
            acquired_lock_id=own.lock_id if own is not None else None,
            **members,
        )

    @property
    def state(self) -> State:
        """The state that the command wrote, else the one that it read; an empty one when it read none."""
        recorded = self.session.recorded if self.session is not None else None
        return recorded.state if recorded is not None else StateBuilder().state()

    @property
    def resource_digests(self) -> dict[str, str]:
        return self.state.digests

    @property
    def resource_statuses(self) -> Statuses:
        return self.state.resource_statuses

    @property
    def observations(self) -> Observations:
        return self.state.observations


def require_state(session: Session) -> state_ledger.LedgerRevision:
    """The revision that a command starts from. Raises `ClusterError` when there is none."""
    if session.recorded is None:
        message = f"'{session.objects.location.uri}' holds no state of a cluster; run `omnigraph cluster import` first"
        raise ClusterError.of("state_missing", state_ledger.STATE_FOLDER, message)
    return session.recorded


def refuse_uncovered(state: State) -> None:
    """Refuse a state whose graph digests don't match: the digest covers all that is recorded about a graph, so somebody
    has edited the ledger."""
    path = state_ledger.revision_path(state.state_revision)
    message = f"its digest does not match its record: {path} was edited; restore the original text"
    findings = [
        error("external_blob_policy_digest_mismatch", graph_address(graph_id), message)
        for graph_id in state.graph_ids
        if composite_digest(state.resources, graph_id) != state.resources[graph_address(graph_id)].digest
    ]
    if findings:
        raise ClusterError(findings)
