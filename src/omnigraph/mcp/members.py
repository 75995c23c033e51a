"""Arguments that several tools have, described once."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from msgspec import Meta

from omnigraph.mcp.paging import Place
from omnigraph.mcp.state import State
from omnigraph.mcp.tool import Arguments

Branch: TypeAlias = Annotated[str | None, Meta(description="The branch to read; main when left out.")]
Snapshot: TypeAlias = Annotated[
    str | None, Meta(description="A commit id: read exactly this state instead of a branch's head.")
]
Continuation: TypeAlias = Annotated[
    str | None, Meta(description="From the previous answer; the other arguments must be repeated unchanged.")
]
TypeName: TypeAlias = Annotated[
    str, Meta(description="A type of the schema, such as Person; node:Person or edge:Knows where both exist.")
]
Params: TypeAlias = Annotated[
    dict[str, Any] | None, Meta(description="Values of the query's parameters by name, without the $.")
]
QueryName: TypeAlias = Annotated[
    str | None, Meta(description="Which query of the text; needed only if it holds several.")
]
IdempotencyKey: TypeAlias = Annotated[
    str | None,
    Meta(description="A name of your own for this write: repeating the call with it never writes twice."),
]


class ReadArguments(Arguments, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Of a tool that reads one state."""

    branch: Branch = None
    snapshot: Snapshot = None

    def state(self, place: Place | None = None) -> State:
        return State.of(self.branch, self.snapshot, place)
