"""Reads: what is asked for, where it is read, and the answer as JSON. Rows in Python are Arrow, not these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, ClassVar, Literal, Protocol, Self

from msgspec import Struct, structs

from omnigraph.api.cell_text import counted
from omnigraph.api.commits import shorten
from omnigraph.errors import BadRequestError


class ReadPoint(Struct, frozen=True, omit_defaults=True):
    """Which state a read is of: a branch's head, or its past; at most one of the last three."""

    branch: str | None = None
    snapshot: str | None = None
    version: int | None = None
    at: datetime | None = None

    @property
    def is_head(self) -> bool:
        """Whether it moves with the branch: nothing says which of its states."""
        return self.snapshot is None and self.version is None and self.at is None


class ReadTarget(Struct, frozen=True):
    """What was asked to be read: a branch's head, or a commit."""

    branch: str | None
    snapshot: str | None

    WIRE_NAME: ClassVar[str] = "ReadTargetOutput"

    @classmethod
    def of(cls, point: ReadPoint, branch: str) -> Self:
        """What a point asks for: its commit, or else this branch."""
        return cls(branch, None) if point.snapshot is None else cls(None, point.snapshot)


class QueryRequest(Struct, frozen=True, omit_defaults=True):
    """A read: the source, the name in it, its parameters and the state."""

    query: str
    name: str | None = None
    params: dict[str, Any] | None = None
    branch: str | None = None
    snapshot: str | None = None
    version: int | None = None
    at: datetime | None = None


class LegacyReadRequest(Struct, frozen=True, omit_defaults=True):
    """A read as clients of the first API spell it."""

    query_source: str
    query_name: str | None = None
    params: dict[str, Any] | None = None
    branch: str | None = None
    snapshot: str | None = None
    version: int | None = None
    at: datetime | None = None

    WIRE_NAME: ClassVar[str] = "ReadRequest"

    @property
    def request(self) -> QueryRequest:
        return QueryRequest(
            self.query_source, self.query_name, self.params, self.branch, self.snapshot, self.version, self.at
        )


class ReadOutput(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rows of one query, in order; columns in projection order. The commit is what a precondition can name."""

    query_name: str
    target: ReadTarget
    row_count: int
    columns: tuple[str, ...] = ()
    rows: list[dict[str, Any]]
    graph_commit_id: str | None = None


class LegacyReadOutput(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """As `ReadOutput`, without the commit that was read."""

    query_name: str
    target: ReadTarget
    row_count: int
    columns: tuple[str, ...] = ()
    rows: list[dict[str, Any]]


class ReadHeader(Struct, frozen=True):
    """The first line of a read written as JSON lines."""

    kind: Literal["metadata"]
    query_name: str
    target: ReadTarget
    row_count: int

    @classmethod
    def of(cls, output: ReadOutput) -> ReadHeader:
        return cls("metadata", output.query_name, output.target, output.row_count)


class OperatorProfile(Struct, frozen=True):
    """What one operator of a query did. Times and requests include those of its inputs."""

    operator: str
    rows: int
    milliseconds: float
    requests: int
    notes: tuple[str, ...]
    inputs: tuple[OperatorProfile, ...]

    def __repr__(self) -> str:
        return f"<profile of {shorten(self.operator, 60)}: {self._cost()}; lines() shows its operators>"

    def _cost(self) -> str:
        return f"{counted(self.rows, 'row')}, {self.milliseconds:.2f} ms, {counted(self.requests, 'request')}"

    def lines(self, depth: int = 0) -> Iterator[str]:
        """A readable tree, the last operator first."""
        waiting = [(self, depth)]
        while waiting:
            entry, depth = waiting.pop()
            yield f"{'  ' * depth}{entry.operator}  [{entry._cost()}]"
            for note in entry.notes:
                yield f"{'  ' * depth}    {note}"
            waiting += [(child, depth + 1) for child in reversed(entry.inputs)]


class QueryPlan(Struct, frozen=True):
    """How a read would be run: the lines of an indented tree."""

    plan: tuple[str, ...]

    WIRE_NAME: ClassVar[str] = "QueryPlanOutput"


class ParamDescriptor(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One column of a result or one parameter of a query."""

    name: str
    kind: str
    item_kind: str | None = None
    vector_dim: int | None = None
    nullable: bool


class DeclaredQuery(Protocol):
    """What the text of a query says of it."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str | None: ...
    @property
    def instruction(self) -> str | None: ...
    @property
    def is_mutation(self) -> bool: ...


class StoredQuery(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A query that a server offers by name."""

    name: str
    tool_name: str
    description: str | None = None
    instruction: str | None = None
    mutation: bool
    params: tuple[ParamDescriptor, ...]

    WIRE_NAME: ClassVar[str] = "QueryCatalogEntry"

    @classmethod
    def of(cls, query: DeclaredQuery, parameters: Iterable[Struct]) -> Self:
        """The query under its own name. Its parameters are described by structs with the fields of a descriptor."""
        return cls(
            name=query.name,
            tool_name=query.name,
            description=query.description,
            instruction=query.instruction,
            mutation=query.is_mutation,
            params=tuple(ParamDescriptor(**structs.asdict(parameter)) for parameter in parameters),
        )


def require_kind(name: str, is_mutation: bool, expect_mutation: bool | None) -> None:
    """Refuse a stored query of the other kind than its caller expects."""
    if expect_mutation is not None and expect_mutation != is_mutation:
        kind, verb = ("mutation", "mutate") if is_mutation else ("read", "query")
        raise BadRequestError(f"'{name}' is a {kind} — use omnigraph {verb} {name}")


def require_branch(name: str, is_mutation: bool, point: ReadPoint) -> None:
    """Refuse a stored query as a write that can't be one: of a read, or of a state that is past."""
    if not is_mutation:
        raise BadRequestError(f"'{name}' is a read; only stored mutations have a precondition")
    if point.snapshot is not None or point.version is not None or point.at is not None:
        raise BadRequestError(f"'{name}' is a mutation: it runs on a branch, not on a snapshot")


class StoredQueries(Struct, frozen=True):
    """Sorted by name."""

    queries: tuple[StoredQuery, ...]

    WIRE_NAME: ClassVar[str] = "QueriesCatalogOutput"

    def __repr__(self) -> str:
        lines = [f"  {'mutation' if each.mutation else 'query'} {each.name}" for each in self.queries]
        return "\n".join([f"<{counted(len(lines), 'stored query', 'stored queries')}>", *lines])


class InvokeStoredQueryRequest(Struct, frozen=True, omit_defaults=True):
    params: dict[str, Any] | None = None
    branch: str | None = None
    snapshot: str | None = None
    version: int | None = None
    at: datetime | None = None
    expect_mutation: bool | None = None
