"""Access requests and decisions, and the limits of one operation.

The engine asks a `Gate` before it acts; `omnigraph.policy` implements it. A handle is opened with its limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from msgspec import Struct

from omnigraph.api.enums import PolicyAction
from omnigraph.errors import BadRequestError


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """What an actor wants to do: the action, and the branches it is about where it is about any."""

    action: PolicyAction
    branch: str | None = None
    target_branch: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer, the sentence that says so, and the rule that allowed it.

    `reasons` say what the nearest rule lacks to allow it, if the actor may read the rules.
    """

    allowed: bool
    message: str
    matched_rule_id: str | None = None
    reasons: tuple[str, ...] = ()


class Gate(Protocol):
    """The rules of one scope: the server, or one graph."""

    def decide(self, actor: str | None, request: AccessRequest) -> Decision:
        """Decide whether the actor may do it. `PolicyEvaluationError` means undecided, which is not a denial."""
        ...


DEFAULT_ROWS = 2_000_000
DEFAULT_BYTES = 512 << 20
DEFAULT_QUERY_MEMORY_BYTES = 4 << 30
DEFAULT_TRAVERSAL_WORK = 50_000_000
"""Adjacency entries that one query looks at, and steps of the paths that it binds."""
SCHEMA_BYTES = 4 << 20
"""The text of one schema. Every schema that a graph has was within it, so no handle may move it."""
MOST_QUERY_DEPTH = 200
"""Each level of a plan is a level of its profile, which JSON nests: decoders refuse much deeper texts."""


class QueryLimits(Struct, frozen=True):
    """How large the text of a query may be, and what one query of it may hold. Parameters are not part of it."""

    bytes: int = 1 << 20
    """Of the whole text, which may declare several queries."""
    clauses: int = 10_000
    """Clauses, pins, projections, sort keys, parameters and statements."""
    literals: int = 100_000
    """Each item of a list is one."""
    depth: int = MOST_QUERY_DEPTH
    """Bindings, traversals and negations: each one is evaluated on top of the others. Can only be lowered."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            limit = getattr(self, name)
            if type(limit) is not int or limit < 0:
                raise BadRequestError(f"QueryLimits.{name} must be a whole number of at least 0, not {limit!r}")

    @staticmethod
    def setting(field: str) -> str:
        """Where a limit is set, as part of a message."""
        return f"the limit (`omnigraph serve --query-{field}`, `QueryLimits.{field}` in Python)"


class Limits(Struct, frozen=True):
    """What one write may hold in memory, beyond which the input belongs to the Spark pipeline; and how large a query
    may be."""

    rows: int = DEFAULT_ROWS
    bytes: int = DEFAULT_BYTES
    query: QueryLimits = QueryLimits()
