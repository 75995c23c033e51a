"""The terms of an endpoint (size of results, what may be written) and its access to a graph.

Tools work on any `GraphApi`: an embedded graph that acts for an actor, or a remote one. They never decide what an
actor may do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from omnigraph.api.calls import QueryBatches, QueryRows
from omnigraph.api.graph import GraphApi
from omnigraph.errors import BadRequestError, PolicyError

Result = TypeVar("Result")
Rows: TypeAlias = QueryRows | QueryBatches
"""The rows of a query in order, its columns, and the commit that was read."""


@contextmanager
def open_cursor(rows: Rows) -> Iterator[Iterator[dict[str, Any]]]:
    """The rows one after another. The stream is closed at the end, even if some rows were not read."""
    try:
        yield iter(rows.rows())
    finally:
        if (close := getattr(rows, "close", None)) is not None:
            close()


class Access(Protocol):
    """The graph of one connection. A tool is run as a whole in a thread, however many calls of the graph it makes."""

    @property
    def actor(self) -> str | None:
        """The actor that writes are recorded for; None where the other side of the connection knows it."""
        ...

    async def run(self, work: Callable[[GraphApi], Result], *, writes: bool) -> Result: ...


MAIN: Final = "main"
DEFAULT_MAX_TOKENS: Final = 8000
LEAST_MAX_TOKENS: Final = 200
BYTES_PER_TOKEN: Final = 4
"""Tokens are counted by the bytes of the JSON text: every model counts in its own way, and this is near enough to
protect a context window."""


@dataclass(frozen=True, slots=True)
class Terms:
    """`max_tokens` bounds one answer. `read_only` leaves out every tool that writes. `allow_main` lets mutations go to
    main; a merge into main is a decision about a branch as a whole and needs no such leave. `main_flag` is the flag
    of the command that starts the endpoint."""

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
                f"merge_preview, then merge it. The operator of this endpoint can allow main with {self.main_flag}"
            )
        return named
