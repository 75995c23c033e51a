"""Errors on the wire, the parameters of query strings, and the header `Retry-After`.

`ErrorOutput` holds any class of `omnigraph.errors`, and the same error can be built from it again. The members that
HTTP clients have always known come first; `type` names the class and `fields` holds the rest, so a new class of error
needs no code here.
"""

from __future__ import annotations

import time
import typing
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct, field

from omnigraph import errors
from omnigraph.api import wire
from omnigraph.api.branches import MergeConflict
from omnigraph.api.enums import Dates, EntityKind, LoadMode, Operation
from omnigraph.api.history import ChangeScope
from omnigraph.api.queries import ReadPoint


class PublishedDatasetVersionConflictOutput(Struct, frozen=True):
    """A write that rests on a version of a table which is not the newest any more."""

    entity_kind: EntityKind
    type_name: str
    expected_published_dataset_version: int
    actual_published_dataset_version: int


class ReadSetConflictOutput(Struct, frozen=True):
    member: str
    expected: str | None
    actual: str | None


class KeyConflictOutput(Struct, frozen=True, omit_defaults=True):
    entity_kind: str
    type_name: str
    entity_id: str | None = None

    @property
    def type_key(self) -> str:
        return f"{self.entity_kind}:{self.type_name}"


class ResourceLimitOutput(Struct, frozen=True):
    resource: str
    limit: int
    actual: int


class BlobRangeOutput(Struct, frozen=True):
    start: int
    end: int
    length: int


class ExternalBlobSourceOutput(Struct, frozen=True):
    uri: str
    reason: str


class RecoveryRequiredOutput(Struct, frozen=True):
    """Never set: no operation leaves anything to recover."""

    operation_id: str


class PreconditionFailureOutput(Struct, frozen=True, omit_defaults=True):
    expected: str
    actual: str | None = None


class ChangeFeedGapOutput(Struct, frozen=True, kw_only=True, omit_defaults=True):
    cursor: str | None = None
    first_unreadable_commit_id: str


class ChangeDiffRefusalOutput(Struct, frozen=True, omit_defaults=True):
    reason: str
    graph_commit_id: str
    type_name: str | None = None


class ErrorOutput(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A failure: the sentence for a person, its coarse class, at most one detail, and what else a program may ask."""

    error: str
    code: errors.ErrorCode | None = None
    merge_conflicts: tuple[MergeConflict, ...] | None = None
    published_dataset_version_conflict: PublishedDatasetVersionConflictOutput | None = None
    read_set_conflict: ReadSetConflictOutput | None = None
    key_conflict: KeyConflictOutput | None = None
    resource_limit: ResourceLimitOutput | None = None
    blob_range: BlobRangeOutput | None = None
    external_blob_source: ExternalBlobSourceOutput | None = None
    recovery_required: RecoveryRequiredOutput | None = None
    precondition_failure: PreconditionFailureOutput | None = None
    change_feed_gap: ChangeFeedGapOutput | None = None
    change_diff_refusal: ChangeDiffRefusalOutput | None = None
    type: str | None = None
    fields: dict[str, Any] = {}

    @classmethod
    def of(cls, error: errors.OmniGraphError) -> ErrorOutput:
        member = _member_of(type(error))
        details: dict[str, Any] = {} if member is None else {member: _detail(member, error)}
        detail = details.get(member or "")
        rest = {name: value for name, value in error.fields.items() if not _is_in_detail(detail, name, value)}
        fields = msgspec.to_builtins(rest, enc_hook=str)
        return cls(error=str(error), code=error.error_code(), type=error.error_type(), fields=fields, **details)

    def rebuilt(self) -> errors.OmniGraphError:
        """The error this was made of: the same class, fields and message. A class that this version does not know
        becomes the nearest one it does."""
        kind = _class_of(self)
        error = kind.__new__(kind)
        Exception.__init__(error, self.error)
        shapes = _field_shapes(kind)
        member = _member_of(kind)
        detail = None if member is None else getattr(self, member)
        if isinstance(detail, tuple):
            error.__dict__["conflicts"] = detail
        elif detail is not None:
            error.__dict__.update({name: getattr(detail, name) for name in shapes if hasattr(detail, name)})
        for name, value in self.fields.items():
            error.__dict__[name] = msgspec.convert(value, shapes[name]) if name in shapes else value
        return error


class _ErrorBody(Struct, frozen=True):
    """What every version says of a failure."""

    error: str
    code: str | None = None


def received_error(data: bytes) -> errors.OmniGraphError:
    """The error that an answer tells. Of one that this version can't build again, the sentence is kept.

    Raises `BadRequestError` for an answer that tells none.
    """
    try:
        return wire.decode(data, ErrorOutput).rebuilt()
    except (errors.BadRequestError, msgspec.ValidationError):
        body = wire.decode(data, _ErrorBody)
        code = errors.ErrorCode(body.code) if body.code in set(errors.ErrorCode) else None
        return ErrorOutput(error=body.error, code=code).rebuilt()


class ChangeErrorOutput(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A failure of a change read: those members of `ErrorOutput` that can occur there."""

    error: str
    code: errors.ErrorCode | None = None
    resource_limit: ResourceLimitOutput | None = None
    recovery_required: RecoveryRequiredOutput | None = None
    change_feed_gap: ChangeFeedGapOutput | None = None
    change_diff_refusal: ChangeDiffRefusalOutput | None = None
    type: str | None = None
    fields: dict[str, Any] = {}


_MEMBERS: Final[dict[type[errors.OmniGraphError], str]] = {
    errors.MergeConflictsError: "merge_conflicts",
    errors.ReadSetChangedError: "read_set_conflict",
    errors.KeyConflictError: "key_conflict",
    errors.ResourceLimitError: "resource_limit",
    errors.BlobRangeError: "blob_range",
    errors.ExternalBlobSourceError: "external_blob_source",
    errors.PreconditionFailedError: "precondition_failure",
    errors.ChangeFeedGapError: "change_feed_gap",
    errors.CommitHasNoParentError: "change_diff_refusal",
    errors.ChangeSchemaBoundaryError: "change_diff_refusal",
}

_NEAREST: Final[dict[errors.ErrorCode | None, type[errors.OmniGraphError]]] = {
    errors.ErrorCode.BAD_REQUEST: errors.BadRequestError,
    errors.ErrorCode.FORBIDDEN: errors.PolicyError,
    errors.ErrorCode.NOT_FOUND: errors.NotFoundError,
    errors.ErrorCode.CONFLICT: errors.ConflictError,
}


def _member_of(kind: type[errors.OmniGraphError]) -> str | None:
    return next((member for base, member in _MEMBERS.items() if issubclass(kind, base)), None)


def _detail(member: str, error: errors.OmniGraphError) -> Any:
    if isinstance(error, errors.MergeConflictsError):
        return error.conflicts
    shape = next(t for t in get_args(get_type_hints(ErrorOutput)[member]) if t is not type(None))
    if isinstance(error, errors.KeyConflictError):
        entity_kind, _, type_name = error.type_key.partition(":")
        return shape(entity_kind, type_name, error.entity_id)
    fields = msgspec.structs.fields(shape)
    return shape(**{field.name: getattr(error, field.name, None) for field in fields})


def _is_in_detail(detail: Any, name: str, value: Any) -> bool:
    """Whether the detail of an error already says this field, and completely."""
    if isinstance(detail, tuple):
        return name == "conflicts" and bool(wire.decode(wire.encode(detail), tuple[MergeConflict, ...]) == value)
    return isinstance(detail, Struct) and hasattr(detail, name) and bool(getattr(detail, name) == value)


def _class_of(output: ErrorOutput) -> type[errors.OmniGraphError]:
    waiting: list[type[errors.OmniGraphError]] = [errors.OmniGraphError]
    while waiting:
        kind = waiting.pop()
        if kind.error_type() == output.type:
            return kind
        waiting += kind.__subclasses__()
    kinds = [kind for kind, member in _MEMBERS.items() if getattr(output, member) is not None]
    return kinds[0] if kinds else _NEAREST.get(output.code, errors.OmniGraphError)


def _field_shapes(kind: type[errors.OmniGraphError]) -> dict[str, Any]:
    """The types of an error's fields: as the class declares them, else as its `__init__` takes them."""
    shapes: dict[str, Any] = {}
    for each in reversed(kind.__mro__):
        if issubclass(each, errors.OmniGraphError):
            shapes |= {name: _as_kept(hint) for name, hint in get_type_hints(each.__init__).items()}
    if issubclass(kind, errors.MergeConflictsError):
        shapes["conflicts"] = tuple[MergeConflict, ...]
    declared = {name: hint for name, hint in get_type_hints(kind).items() if get_origin(hint) is not typing.ClassVar}
    return shapes | declared


def _as_kept(hint: Any) -> Any:
    """A sequence that was given is kept as a tuple."""
    return tuple.__class_getitem__((*get_args(hint), ...)) if get_origin(hint) is Sequence else hint


Positive = Annotated[int, Meta(ge=1)]


class CommitsParameters(Struct, frozen=True):
    """`limit` and `before` page through a long history; without them the response has all of it."""

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


class CountParameters(ReadPoint, frozen=True, kw_only=True):
    """The entities of a type. The kind may be left out: no node type is called like an edge type."""

    entity: EntityKind | None = None
    type: str


class EntityParameters(ReadPoint, frozen=True, kw_only=True):
    """One node or edge by its id. The kind may be left out: no node type is called like an edge type."""

    entity: EntityKind | None = None
    type: str
    id: str


def retry_after_seconds(header: str | None) -> float | None:
    """The seconds that a `Retry-After` asks to wait, given as their number or as a date. None when it says nothing."""
    text = (header or "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    from email.utils import parsedate_to_datetime  # as large as the whole contract, and hardly ever needed

    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None
