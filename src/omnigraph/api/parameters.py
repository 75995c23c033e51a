"""What stands in the query string of a request. A strict set refuses parameters that it does not know."""

from __future__ import annotations

import builtins
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct, field

from omnigraph.api.changes import ChangeScope
from omnigraph.api.enums import Dates, EntityKind, LoadMode, Operation
from omnigraph.api.query import ReadPoint

Positive = Annotated[int, Meta(ge=1)]


class PointParameters(Struct, frozen=True):
    """Which state is read: a branch's head, one of its versions or moments, or a commit."""

    branch: str | None = None
    snapshot: str | None = None
    version: Positive | None = None
    at: datetime | None = None

    @property
    def point(self) -> ReadPoint:
        return ReadPoint(self.branch, self.snapshot, self.version, self.at)


class CommitsParameters(Struct, frozen=True):
    """`limit` and `before` page through a long history; without them it is told whole."""

    branch: str | None = None
    limit: Positive | None = None
    before: Positive | None = None


class HistoryParameters(CommitsParameters, frozen=True):
    """Unless `exact` is false, what a fast-forward merge changed is counted, which it does not record."""

    exact: bool = True


class ExportParameters(Struct, frozen=True):
    """How dates and times are written, unless the body says it: as numbers when neither does."""

    dates: Dates | None = None


class LoadParameters(Struct, frozen=True, kw_only=True):
    branch: str | None = None
    base: str | None = field(default=None, name="from")
    mode: LoadMode = LoadMode.MERGE
    embed: bool | None = None


class RowsParameters(LoadParameters, frozen=True, kw_only=True):
    """Rows of one type. `file` is the name that messages have for the body, and `format` (csv or ndjson) says
    how it is written, where neither its media type nor that name does; the rest is the dialect of CSV."""

    type: str
    file: str | None = None
    format: str | None = None
    delimiter: str | None = None
    quote: str | None = None
    """Empty where the file quotes nothing."""
    header: bool | None = None
    encoding: str | None = None
    null: str | None = None


class _ScopeParameters(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: tuple[EntityKind, ...] = ()
    type: tuple[str, ...] = ()
    op: tuple[Operation, ...] = ()

    @property
    def scope(self) -> ChangeScope:
        return ChangeScope.of(kinds=self.kind, types=self.type, ops=self.op)


class CommitChangesParameters(_ScopeParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    page_token: str | None = None
    limit: Positive | None = None
    max_bytes: Positive | None = None


class ChangeFeedParameters(_ScopeParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`wait_ms` holds an empty answer back until something happens, for at most so long."""

    branch: str | None = None
    cursor: str | None = None
    start: str | None = None
    page_token: str | None = None
    limit: Positive | None = None
    max_bytes: Positive | None = None
    max_commits: Positive | None = None
    wait_ms: Annotated[int, Meta(ge=0)] | None = None


class DiffParameters(_ScopeParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two states, each a branch or a commit id."""

    before: str = field(name="from")
    after: str = field(name="to")
    page_token: str | None = None
    limit: Positive | None = None


class BlobParameters(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cell of a branch's head or of a past state."""

    entity: EntityKind
    type: str
    id: str
    property: str
    branch: str | None = None
    snapshot: str | None = None
    version: Positive | None = None
    at: datetime | None = None

    @builtins.property
    def point(self) -> ReadPoint:
        return ReadPoint(self.branch, self.snapshot, self.version, self.at)


class CountParameters(PointParameters, frozen=True, kw_only=True):
    """The entities of a type. The kind may be left out: no node type is called like an edge type."""

    entity: EntityKind | None = None
    type: str


class EntityParameters(PointParameters, frozen=True, kw_only=True):
    """One node or edge by its id. The kind may be left out: no node type is called like an edge type."""

    entity: EntityKind | None = None
    type: str
    id: str
