"""Errors on the wire: whatever class, the other side gets the same error."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from omnigraph import errors
from omnigraph.api import wire
from omnigraph.api.branches import MergeConflict
from omnigraph.api.service.http import ErrorOutput
from omnigraph.errors import ConstraintRule, EvaluationRule, OmniGraphError

CONFLICTS = [
    MergeConflict.of("node:Person", "Ada", "divergent_update", "changed twice"),
    MergeConflict.of("edge:Knows", None, "cardinality_violation", "too many"),
]
BROKEN = MergeConflict.of("node:Person", "Ada", "unique_violation", "two", ConstraintRule.UNIQUE, "name")
AT = errors.Span(1, 2, 3, 9)

SAMPLES: list[OmniGraphError] = [
    OmniGraphError("something broke"),
    errors.BadRequestError("no"),
    errors.RequestShapeError("a member is missing"),
    errors.UnsupportedMediaTypeError("not JSON"),
    errors.DirectAccessError("cleanup"),
    errors.RequestTimeoutError("too slow"),
    errors.HostNotAllowedError("evil.example"),
    errors.ConstraintError(ConstraintRule.RANGE, "node:Person", "age", "Ada", 7, message="too old"),
    errors.ConstraintError(ConstraintRule.RECORD, message="not JSON"),
    errors.RowsRejectedError(3, ["first", "second"], 1, rule=ConstraintRule.ID, type_key="node:Person", line=4),
    errors.EvaluationError(EvaluationRule.DIVISION_BY_ZERO, "$b.pages / 0", message="7 is divided by zero"),
    errors.EvaluationError(
        EvaluationRule.AMBIGUOUS_WRITE, "update $b", "Book", "it", message="two values for one book"
    ),
    errors.NotFoundError("gone"),
    errors.BranchNotFoundError("review", "create it"),
    errors.EntityNotFoundError("node Person", "Ada"),
    errors.HistoricalVersionReclaimedError("12345678901234567890", "reclaimed"),
    errors.ConflictError("busy"),
    errors.AlreadyInitializedError("g.omni"),
    errors.ReadSetChangedError("graph_head:main", "C1", "C2"),
    errors.WriteExpiredError(4.25, 3.5),
    errors.ClockSkewError("2026-11-21T01:50:00+00:00", "2026-11-18T01:50:00+00:00", 3600.0),
    errors.IdempotencyKeyReusedError("key", "C1"),
    errors.IdempotencyKeyReusedError("key"),
    errors.KeyConflictError("node:Person", "Ada"),
    errors.KeyConflictError("edge:Knows", message="twice in the input"),
    errors.MergeConflictsError("a", "main", CONFLICTS),
    errors.MergeConflictsError("a", "main", [*CONFLICTS, BROKEN]),
    errors.PreconditionFailedError("main", "C1", "C2"),
    errors.PreconditionFailedError("main", "C1", None),
    errors.ResourceLimitError("keyed entities for node:Person", 10, 11, "use Spark"),
    errors.TooManyRequestsError("16 at once", 60),
    errors.UnavailableError("draining", 5),
    errors.ServerUnreachableError("http://h", "refused"),
    errors.AnswerBrokenError(17, "reset"),
    errors.WriteOutcomeUnknownError("merge", "key", "reset"),
    errors.WriteOutcomeUnknownError("branch create", None, "reset"),
    errors.UnexpectedAnswerError(502, "Bad Gateway"),
    errors.QueryCancelledError(),
    errors.ChangeCursorRejectedError("invalid encoding"),
    errors.ChangeFeedGapError("C1", "cursor"),
    errors.ChangeFeedGapError("C1"),
    errors.CommitHasNoParentError("C1"),
    errors.ChangeSchemaBoundaryError("C2", "Person"),
    errors.ExternalBlobPolicyError("s3://b/k", "denied"),
    errors.ExternalBlobSourceError("s3://b/k", "missing"),
    errors.BlobRangeError(5, 9, 3),
    errors.BlobIntegrityError("odd"),
    errors.UnauthorizedError("missing bearer token"),
    errors.PolicyError("not you"),
    errors.PolicyEvaluationError(["no such action", "no such actor"]),
    errors.BootRefusedError(["no graph", "no token"]),
    errors.StorageError(errors.StorageErrorKind.TRANSIENT, "timeout"),
    errors.CommitOutcomeUnknownError("C1", "timeout"),
    errors.IntegrityError("log/1.json", "breaks off"),
    errors.FormatVersionError("graph.json", 5, 6),
    errors.EmbeddingError("no key"),
    errors.CompileError([errors.Diagnostic("T1", "unknown type", AT, "query q()", "did you mean?", "q.gq")]),
    errors.CompileError([errors.Diagnostic("parse error", "odd"), errors.Diagnostic("T2", "worse")]),
]


def family(kind: type[OmniGraphError] = OmniGraphError) -> Iterator[type[OmniGraphError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from family(below)


def test_every_class_of_the_family_has_a_sample() -> None:
    declared = {kind for kind in family() if kind.__module__ == "omnigraph.errors"}
    assert declared == {type(sample) for sample in SAMPLES}


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_the_other_side_gets_the_same_error(error: OmniGraphError) -> None:
    sent = wire.encode(ErrorOutput.of(error))
    received = wire.decode(sent, ErrorOutput).rebuilt()
    assert type(received) is type(error)
    assert str(received) == str(error)
    assert received.fields == error.fields
    assert {name: type(value) for name, value in received.fields.items()} == {
        name: type(value) for name, value in error.fields.items()
    }


class NewError(errors.ConflictError):
    """A class that the derivation has never heard of."""

    def __init__(self, places: list[errors.Span], kind: errors.StorageErrorKind, note: str | None = None) -> None:
        super().__init__(f"{len(places)} places")
        self.places = places
        self.kind = kind
        self.note = note


def test_a_new_class_travels_without_new_code() -> None:
    error = NewError([AT], errors.StorageErrorKind.FULL)
    told = ErrorOutput.of(error)
    assert (told.type, told.code, set(told.fields)) == ("new", "conflict", {"places", "kind", "note"})
    received = wire.decode(wire.encode(told), ErrorOutput).rebuilt()
    assert isinstance(received, NewError)
    assert received.fields == error.fields


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        ({"error": "x", "code": "not_found"}, errors.NotFoundError),
        ({"error": "x", "code": "conflict", "type": "of_tomorrow", "fields": {"a": [1]}}, errors.ConflictError),
        ({"error": "x", "precondition_failure": {"expected": "C1"}}, errors.PreconditionFailedError),
        ({"error": "x", "resource_limit": {"resource": "r", "limit": 1, "actual": 2}}, errors.ResourceLimitError),
        ({"error": "x"}, OmniGraphError),
    ],
)
def test_an_error_of_another_version_becomes_the_nearest_class(
    form: dict[str, object], kind: type[OmniGraphError]
) -> None:
    received = wire.convert(form, ErrorOutput).rebuilt()
    assert type(received) is kind
    assert str(received) == "x"


def test_the_members_that_http_clients_know() -> None:
    told = wire.to_builtins(ErrorOutput.of(errors.KeyConflictError("node:Person", "Ada")))
    assert list(told) == ["error", "code", "key_conflict", "type"]
    assert told["key_conflict"] == {"entity_kind": "node", "type_name": "Person", "entity_id": "Ada"}
    broken = wire.to_builtins(ErrorOutput.of(errors.MergeConflictsError("a", "main", [BROKEN])))
    members = list(broken["merge_conflicts"][0])
    assert members[:5] == ["entity_kind", "type_name", "entity_id", "kind", "message"]


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_a_code_follows_from_the_status(error: OmniGraphError) -> None:
    expected = {
        400: "bad_request", 401: "unauthorized", 403: "forbidden", 404: "not_found", 408: "bad_request",
        409: "conflict", 413: "bad_request", 415: "bad_request", 416: "bad_request", 421: "bad_request",
        422: "bad_request", 429: "too_many_requests", 500: "internal",
    }.get(error.http_status)  # fmt: skip
    assert json.loads(wire.encode(ErrorOutput.of(error))).get("code") == expected
