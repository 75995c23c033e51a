"""Arguments that several tools have, described once."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from msgspec import Meta

from omnigraph.errors import BadRequestError
from omnigraph.mcp.paging import Place
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

    def point(self, place: Place | None = None) -> dict[str, str | None]:
        """The state to read: what is asked for, and on later pages the commit that the first one read."""
        if self.branch is not None and self.snapshot is not None:
            raise BadRequestError("give a branch or a snapshot, not both")
        if place is not None and place.pin is not None:
            return {"branch": None, "snapshot": place.pin}
        branch = None if self.branch is None else self.branch.strip()
        return {"branch": branch, "snapshot": None if self.snapshot is None else self.snapshot.strip()}

    @property
    def schema_branch(self) -> str:
        return "main" if self.branch is None else self.branch.strip()
