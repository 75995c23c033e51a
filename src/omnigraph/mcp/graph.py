"""What the tools ask of a graph. Every `GraphApi` offers it, embedded or remote; a server offers it for each caller.

What the operator of an endpoint settled: how long answers may be, and what may be written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from omnigraph.api.branches import NO_RESOLUTIONS, BranchCreated, MergePreview, MergeResult, Resolutions
from omnigraph.api.history import ChangeRecord, ChangeScope, ChangeSet, CommitList
from omnigraph.api.load import MutationReceipt
from omnigraph.api.queries import StoredQueries
from omnigraph.errors import BadRequestError, PolicyError

Result = TypeVar("Result")


class Rows(Protocol):
    """The rows of a query in order, its columns, and the commit that was read."""

    @property
    def graph_commit_id(self) -> str: ...
    @property
    def columns(self) -> Sequence[str]: ...
    def rows(self) -> Iterable[dict[str, Any]]: ...


@contextmanager
def taking(rows: Rows) -> Iterator[Iterator[dict[str, Any]]]:
    """The rows one after another. Whatever stays open behind those that nobody takes is closed."""
    try:
        yield iter(rows.rows())
    finally:
        close = getattr(rows, "close", None)
        if close is not None:
            close()


class AgentGraph(Protocol):
    """The part of `GraphApi` that tools are made of."""

    def stream(
        self,
        source: str,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
    ) -> Rows: ...

    def entity(
        self,
        type_key: str,
        entity_id: str,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
    ) -> dict[str, Any] | None: ...

    def mutate(
        self,
        source: str,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        if_commit: str | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> MutationReceipt: ...

    def schema_text(
        self, branch: str | None = None, *, snapshot: str | None = None, version: int | None = None
    ) -> str: ...
    def list_branches(self) -> list[str]: ...
    def create_branch(
        self,
        name: str,
        *,
        source: str | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> BranchCreated: ...
    def diff(self, before: str, after: str, filter: ChangeScope | None = None) -> ChangeSet: ...

    def preview_merge(
        self, source: str, target: str = "main", *, resolutions: Resolutions = NO_RESOLUTIONS
    ) -> MergePreview: ...

    def merge(
        self,
        source: str,
        target: str = "main",
        *,
        delete_branch: bool = False,
        resolutions: Resolutions = NO_RESOLUTIONS,
        actor: str | None = None,
        message: str | None = None,
        idempotency_key: str | None = None,
    ) -> MergeResult: ...

    def commits(self, branch: str = "main", *, limit: int = 100, before: int | None = None) -> CommitList: ...
    def iter_commit_changes(self, commit_id: str, *, scope: ChangeScope | None = None) -> Iterator[ChangeRecord]: ...


@runtime_checkable
class OffersQueries(Protocol):
    """A graph that has queries which are called by name."""

    def stored_queries(self) -> StoredQueries: ...

    def invoke(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        if_commit: str | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> Rows | MutationReceipt: ...


class Access(Protocol):
    """The graph of one connection. A tool is run as a whole in a thread, however many calls of the graph it makes."""

    @property
    def actor(self) -> str | None:
        """Who writes are recorded for; None where the other side of the connection knows it."""
        ...

    async def run(self, work: Callable[[AgentGraph], Result], *, writes: bool) -> Result: ...


MAIN: Final = "main"
DEFAULT_MAX_TOKENS: Final = 8000
LEAST_MAX_TOKENS: Final = 200
BYTES_PER_TOKEN: Final = 4
"""Tokens are counted by the bytes of the JSON text: every model counts in its own way, and this is near enough to
protect a context window."""


@dataclass(frozen=True, slots=True)
class Terms:
    """`max_tokens` bounds one answer. `read_only` leaves out every tool that writes. `allow_main` lets mutations go to
    main; a merge into main is a decision about a branch as a whole and needs no such leave. `main_flag` is how whoever
    starts the endpoint says so."""

    max_tokens: int = DEFAULT_MAX_TOKENS
    read_only: bool = False
    allow_main: bool = False
    main_flag: str = "--allow-main"

    @property
    def max_bytes(self) -> int:
        return self.max_tokens * BYTES_PER_TOKEN

    def writable(self, branch: str) -> str:
        """The branch that a mutation may go to."""
        named = branch.strip()
        if not named:
            raise BadRequestError("a mutation needs a branch; make one with branch_create")
        if named == MAIN and not self.allow_main:
            raise PolicyError(
                "mutations on 'main' are refused here: make a branch with branch_create, mutate it, look at "
                f"merge_preview, then merge it. Whoever runs this endpoint can allow main with {self.main_flag}"
            )
        return named
